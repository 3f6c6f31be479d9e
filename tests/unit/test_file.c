#include "daemon/object/file.h"

#include "tests/unit/main_mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[4096];

static void dir_make(void)
{
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(dir, sizeof(dir), "%s/dsaio-file-XXXXXX", tmp ? tmp : "/var/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

/* The file "f" or "g". */
static const char *path_of(const char *name)
{
	static char paths[2][4200];
	char *path = paths[name[0] == 'g'];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void dir_remove(void)
{
	(void)unlink(path_of("f"));
	(void)unlink(path_of("g"));
	(void)rmdir(dir);
}

/* ---- the check ---- */

enum kind { REGULAR, DIRECTORY, PIPE, SOCKET, DEVICE, EVENTFD, TMPFS };

static int fd_make(enum kind kind, int flags)
{
	int fds[2] = { -1, -1 };
	int fd = open(path_of("f"), O_CREAT | O_RDWR, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 65536), 0);
	(void)close(fd);
	switch (kind) {
	case REGULAR:
		return open(path_of("f"), flags);
	case DIRECTORY:
		return open(dir, flags);
	case PIPE:
		ck_assert_int_eq(pipe(fds), 0);
		(void)close(fds[1]);
		return fds[0];
	case SOCKET:
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		(void)close(fds[1]);
		return fds[0];
	case DEVICE:
		return open("/dev/null", flags);
	case EVENTFD:
		return eventfd(0, 0);
	case TMPFS:
		return memfd_create("tmpfs", 0);
	}
	return -1;
}

static const struct {
	const char *what;
	enum kind kind;
	int flags, want;
	const char *why; /* words of the message */
} checks[] = {
	{ "to be read", REGULAR, O_RDONLY | O_DIRECT, 0, NULL },
	{ "to be written", REGULAR, O_WRONLY | O_DIRECT, 0, NULL },
	{ "both", REGULAR, O_RDWR | O_DIRECT, 0, NULL },
	{ "appending, but only read", REGULAR, O_RDONLY | O_DIRECT | O_APPEND, 0, NULL },
	{ "C23 appending writes", REGULAR, O_RDWR | O_DIRECT | O_APPEND, -EINVAL, "O_APPEND" },
	{ "buffered", REGULAR, O_RDWR, -EOPNOTSUPP, "O_DIRECT" },
	{ "C5 O_PATH", REGULAR, O_PATH, -EBADF, "O_PATH" },
	{ "C5 directory", DIRECTORY, O_RDONLY, -EOPNOTSUPP, "a directory" },
	{ "C5 pipe", PIPE, 0, -EOPNOTSUPP, "a pipe" },
	{ "C5 socket", SOCKET, 0, -EOPNOTSUPP, "a socket" },
	{ "character device", DEVICE, O_RDWR, -EOPNOTSUPP, "a character device" },
	{ "eventfd", EVENTFD, 0, -EOPNOTSUPP, "neither" },
	{ "tmpfs without O_DIRECT", TMPFS, 0, 0, NULL },
};

TEST_TABLE(a_file_is_checked_before_it_is_used, checks)
{
	int fd = fd_make(checks[_i].kind, checks[_i].flags);
	struct file_facts facts = { 0 };
	struct error error;
	int r;

	ck_assert_int_ge(fd, 0);
	r = file_check(fd, "the name", &facts, &error);
	ck_assert_msg(r == checks[_i].want, "%s: %d %s", checks[_i].what, r, error.text);
	if (r < 0)
		ck_assert_msg(strstr(error.text, checks[_i].why) && strstr(error.text, "the name"),
			      "%s: %s", checks[_i].what, error.text);
	(void)close(fd);
}

TEST(facts_are_those_of_the_file)
{
	int fd = fd_make(REGULAR, O_WRONLY | O_DIRECT);
	struct file_facts facts;
	struct error error;
	struct stat st;

	ck_assert_int_eq(file_check(fd, "f", &facts, &error), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(facts.dev, st.st_dev);
	ck_assert_uint_eq(facts.ino, st.st_ino);
	ck_assert(!facts.can_read && facts.can_write && facts.is_direct);
	ck_assert(!facts.is_tmpfs && !facts.is_block_device && !facts.is_foreign);
	ck_assert(facts.fs_type->is_local && facts.mount_id); /* since Linux 5.8 */
	ck_assert_uint_ge(facts.offset_align, 1);
	ck_assert_uint_eq(facts.offset_align & (facts.offset_align - 1), 0);
	ck_assert_uint_eq(facts.memory_align & (facts.memory_align - 1), 0);
	(void)close(fd);

	fd = fd_make(TMPFS, 0);
	ck_assert_int_eq(file_check(fd, "f", &facts, &error), 0);
	ck_assert(facts.is_tmpfs);
	ck_assert_uint_eq(facts.offset_align, 1);
	ck_assert_uint_eq(facts.memory_align, 1);
	(void)close(fd);
}

TEST(a_read_of_the_reported_alignment_works)
{
	int fd = fd_make(REGULAR, O_RDONLY | O_DIRECT);
	struct file_facts facts;
	struct error error;
	char *memory;

	ck_assert_int_eq(file_check(fd, "f", &facts, &error), 0);
	ck_assert_int_eq(posix_memalign((void **)&memory, 65536, 65536), 0);
	ck_assert_int_eq(
		pread(fd, memory + facts.memory_align, facts.offset_align, facts.offset_align),
		facts.offset_align);
	free(memory);
	(void)close(fd);
}

/* ---- files ---- */

static struct quota client;
static const struct hung_who who = { .uid = 1, .client = 1 };
static struct work_queue *work_queue;
static struct inodes inodes;
static struct file *checked;
static int checked_result, n_checked, n_freed;

static void on_checked(struct file *file, int result, const struct error *error, void *arg)
{
	ck_assert_ptr_eq(arg, &client);
	ck_assert(!error == !result && !file == !!result);
	checked = file;
	checked_result = result;
	n_checked++;
}

static void on_freed(void *arg)
{
	(void)arg;
	n_freed++;
}

static void setup(void)
{
	dir_make();
	client = (struct quota){ .name = "client 1" };
	client.limit[QUOTA_FILES] = 4;
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("file", 2, &work_queue), 0);
	inodes.root = NULL;
}

static void teardown(void)
{
	ck_assert_ptr_null(inodes.root);
	work_queue_free(work_queue);
	mailbox_deinit(&mailbox);
	ck_assert(quota_is_zero(&client));
	dir_remove();
}

static int make(int fd)
{
	struct error error;
	int r = file_make(&client, work_queue, work_queue, &mailbox, &who, fd, "f", on_checked,
			  &client, &error);

	if (r < 0)
		return r;
	run_until(&n_checked);
	return checked_result;
}

static void drop(struct file *file)
{
	file->on_freed = on_freed;
	file_unref(file);
	run_until(&n_freed);
}

TEST(a_file_is_closed_and_released_when_the_last_holder_drops_it)
{
	int fd = fd_make(REGULAR, O_RDWR | O_DIRECT);

	ck_assert_int_eq(make(fd), 0);
	ck_assert_int_eq(checked->target.fd, fd);
	ck_assert_str_eq(checked->name, "f");
	ck_assert_uint_eq(checked->target.offset_align, checked->facts.offset_align);
	ck_assert_uint_eq(checked->target.memory_align, checked->facts.memory_align);
	ck_assert_str_eq(target_about(&checked->target, "read").file, "f");
	ck_assert_uint_eq(target_about(&checked->target, "read").dev, checked->facts.dev);
	ck_assert_uint_eq(client.used[QUOTA_FILES], 1);
	file_ref(checked);
	file_unref(checked);
	(void)mailbox_run(&mailbox);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	drop(checked);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}

static int fd_at_close = -1;

static void on_close(struct target *target)
{
	fd_at_close = fcntl(target->fd, F_GETFD);
}

TEST(an_engine_lets_go_of_a_file_before_its_close)
{
	int fd = fd_make(REGULAR, O_RDWR | O_DIRECT);

	ck_assert_int_eq(make(fd), 0);
	checked->target.on_close = on_close;
	drop(checked);
	ck_assert_int_ge(fd_at_close, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}

TEST(a_refused_file_is_closed_and_not_charged)
{
	int fd = fd_make(DIRECTORY, O_RDONLY);

	ck_assert_int_eq(make(fd), -EOPNOTSUPP);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert(quota_is_zero(&client));
}

TEST(one_file_too_many_stays_with_the_caller)
{
	struct file *first, *second;
	int fd;

	client.limit[QUOTA_FILES] = 2;
	ck_assert_int_eq(make(fd_make(REGULAR, O_RDWR | O_DIRECT)), 0);
	first = checked;
	ck_assert_int_eq(make(fd_make(REGULAR, O_RDWR | O_DIRECT)), 0);
	second = checked;
	fd = fd_make(REGULAR, O_RDWR | O_DIRECT);
	ck_assert_int_eq(make(fd), -EMFILE);
	ck_assert_int_eq(close(fd), 0);
	drop(first);
	drop(second);
}

TEST(files_of_one_inode_share_it_and_the_last_takes_it_along)
{
	struct file *first, *second;
	const struct store_inode *inode;

	ck_assert_int_eq(make(fd_make(REGULAR, O_RDWR | O_DIRECT)), 0);
	first = checked;
	ck_assert_int_eq(file_attach(first, NULL, &inodes, 1), 0);
	inode = first->inode;
	ck_assert_uint_eq(inode->n_files, 1);
	ck_assert_uint_eq(inode->id.ino, first->facts.ino);

	ck_assert_int_eq(make(fd_make(REGULAR, O_RDONLY | O_DIRECT)), 0);
	second = checked;
	ck_assert_int_eq(file_attach(second, NULL, &inodes, 1), 0);
	ck_assert_ptr_eq(second->inode, inode);
	ck_assert_uint_eq(inode->n_files, 2);
	drop(first);
	ck_assert_uint_eq(inode->n_files, 1);

	ck_assert_int_eq(rename(path_of("f"), path_of("g")), 0); /* the next f is another inode */
	ck_assert_int_eq(make(fd_make(REGULAR, O_RDWR | O_DIRECT)), 0);
	ck_assert_int_eq(file_attach(checked, NULL, &inodes, 1), 0);
	ck_assert_ptr_ne(checked->inode, inode);
	drop(checked);
	drop(second); /* teardown asserts that no inode is left */
}

/* ---- buffered descriptions ---- */

static int added_result;
static char added_text[ERROR_TEXT_BYTES];

static void on_added(struct file *file, int result, const struct error *error, void *arg)
{
	ck_assert_ptr_eq(file, checked);
	ck_assert_ptr_eq(arg, &client);
	ck_assert(!error == !result);
	added_result = result;
	(void)snprintf(added_text, sizeof(added_text), "%s", error ? error->text : "");
	n_checked++;
}

static int add_buffered(int fd)
{
	struct error error;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(file_add_buffered(checked, fd, on_added, &client, &error), 0);
	run_until(&n_checked);
	return added_result;
}

static const struct {
	const char *what;
	enum kind kind;
	int file_flags, flags;
	bool is_other; /* another file of the same kind */
	int want;
	const char *why;
} buffered[] = {
	{ "both", REGULAR, O_RDWR, O_RDWR, false, 0, "" },
	{ "to be read", REGULAR, O_RDONLY, O_RDONLY, false, 0, "" },
	{ "to be written", REGULAR, O_WRONLY, O_WRONLY, false, 0, "" },
	{ "another file", REGULAR, O_RDWR, O_RDWR, true, -EINVAL, "another file" },
	{ "a directory", DIRECTORY, O_RDONLY, O_RDONLY, false, -EINVAL, "another file" },
	{ "a pipe", PIPE, O_RDONLY, 0, false, -EINVAL, "another file" },
	{ "tmpfs", TMPFS, O_RDWR, 0, false, -EINVAL, "another file" },
	{ "more rights", REGULAR, O_RDONLY, O_RDWR, false, -EINVAL, "with O_RDONLY" },
	{ "fewer rights", REGULAR, O_RDWR, O_WRONLY, false, -EINVAL, "with O_RDWR" },
	{ "O_PATH", REGULAR, O_RDONLY, O_PATH, false, -EINVAL, "access mode" },
	{ "O_APPEND", REGULAR, O_RDWR, O_RDWR | O_APPEND, false, -EINVAL, "O_APPEND" },
	{ "O_DIRECT", REGULAR, O_RDWR, O_RDWR | O_DIRECT, false, -EINVAL, "O_DIRECT" },
};

TEST_TABLE(a_buffered_description_is_of_the_same_file, buffered)
{
	int fd;

	ck_assert_int_eq(make(fd_make(REGULAR, buffered[_i].file_flags | O_DIRECT)), 0);
	ck_assert_int_eq(target_buffered_fd(&checked->target), -1);
	if (buffered[_i].is_other)
		ck_assert_int_eq(rename(path_of("f"), path_of("g")), 0);
	fd = fd_make(buffered[_i].kind, buffered[_i].flags);
	ck_assert_msg(add_buffered(fd) == buffered[_i].want && strstr(added_text, buffered[_i].why),
		      "%s: %d %s", buffered[_i].what, added_result, added_text);
	ck_assert_int_eq(target_buffered_fd(&checked->target), buffered[_i].want ? -1 : fd);
	if (buffered[_i].want)
		ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* it was taken and closed */
	drop(checked);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}

TEST(a_second_buffered_description_is_refused)
{
	int fd;

	ck_assert_int_eq(make(fd_make(REGULAR, O_RDWR | O_DIRECT)), 0);
	fd = fd_make(REGULAR, O_RDWR);
	ck_assert_int_eq(add_buffered(fd), 0);
	ck_assert_int_eq(add_buffered(fd_make(REGULAR, O_RDWR)), -EEXIST);
	ck_assert_int_eq(target_buffered_fd(&checked->target), fd);
	drop(checked);
}

FIXTURE(setup, teardown)
TEST_MAIN
