/* newfile: a reader finds the old content or the new content, and no temporary file is left. */
#undef _FORTIFY_SOURCE /* which makes openat() an inline function */
#include "client/ctl/ui/newfile.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_noreplace; /* else as NFS, which knows no flags */
static bool has_tmpfile;   /* else as NFS, FAT, most of FUSE */
static bool is_killed_at_rename;

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	if (flags && !has_noreplace) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	if (is_killed_at_rename)
		(void)raise(SIGKILL);
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int openat(int at_fd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if ((flags & O_TMPFILE) == O_TMPFILE && !has_tmpfile) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return (int)syscall(SYS_openat, at_fd, path, flags, mode);
}

static void setup(void)
{
	make_dir();
	has_noreplace = has_tmpfile = true;
	is_killed_at_rename = false;
}

/* File systems: without O_TMPFILE and flags of a rename, without O_TMPFILE, with both. */
enum { PLAIN, WITHOUT_TMPFILE, FULL, N_KINDS };

static void set_kind(int kind)
{
	has_noreplace = kind != PLAIN;
	has_tmpfile = kind == FULL;
}

static void teardown(void)
{
	(void)unlinkat(dir_fd, "a", 0);
	remove_empty_dir(); /* no temporary file is left */
}

static void write_text(int fd, const char *text)
{
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static const char *read_text(const char *name)
{
	static char text[64];
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	return fd < 0 ? NULL : text;
}

TEST_LOOP(a_commit_replaces_the_file_of_that_name, N_KINDS) /* _i: kind */
{
	struct newfile file;

	set_kind(_i);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
		write_text(file.fd, i ? "new" : "the old content");
		if (i)
			ck_assert_str_eq(read_text("a"), "the old content");
		ck_assert_int_eq(newfile_commit(&file), 0);
		ck_assert_int_eq(file.fd, -1);
		newfile_discard(&file); /* nothing is left to do */
	}
	ck_assert_str_eq(read_text("a"), "new");
}

TEST_LOOP(a_discarded_file_leaves_nothing, N_KINDS) /* _i: kind */
{
	struct newfile file;

	set_kind(_i);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "lost");
	newfile_discard(&file);
	newfile_discard(&file);
	ck_assert_ptr_null(read_text("a"));
}

/* As the daemon does for a while. */
TEST_LOOP(a_discarded_file_releases_its_room_while_another_process_has_it_open,
	  N_KINDS) /* _i: kind */
{
	struct newfile file;
	struct stat st;
	int other;

	set_kind(_i);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_reserve(file.fd, 0, 1 << 20), 0);
	write_text(file.fd, "lost");
	other = fcntl(file.fd, F_DUPFD_CLOEXEC, 0);
	newfile_discard(&file);
	ck_assert_int_eq(fstat(other, &st), 0);
	ck_assert_int_eq(st.st_blocks, 0);
	(void)close(other);
}

TEST(a_discarded_file_that_has_another_name_keeps_its_bytes)
{
	struct newfile file;

	has_tmpfile = false;
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "kept");
	ck_assert_int_eq(linkat(dir_fd, file.temporary, dir_fd, "a", 0), 0);
	newfile_discard(&file);
	ck_assert_str_eq(read_text("a"), "kept");
}

TEST_LOOP(a_placed_file_that_is_removed_keeps_its_bytes_for_readers, 2) /* _i: replaces */
{
	struct newfile file;
	struct stat st;
	int reader;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "kept");
	ck_assert_int_eq(newfile_rename(&file, _i), 0);
	reader = openat(dir_fd, "a", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(unlinkat(dir_fd, "a", 0), 0);
	newfile_discard(&file);
	ck_assert_int_eq(fstat(reader, &st), 0);
	ck_assert_int_eq(st.st_size, 4);
	(void)close(reader);
}

TEST_LOOP(a_commit_that_fails_leaves_nothing, N_KINDS) /* _i: kind */
{
	struct newfile file;

	set_kind(_i);
	ck_assert_int_eq(mkdirat(dir_fd, "a", 0777), 0);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_commit(&file), -EISDIR);
	ck_assert_int_eq(file.fd, -1);
	ck_assert_int_eq(unlinkat(dir_fd, "a", AT_REMOVEDIR), 0);
}

TEST_LOOP(a_rename_replaces_only_if_it_is_reported_to, N_KINDS) /* _i: kind */
{
	struct newfile file;
	int fd = openat(dir_fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	set_kind(_i);
	ck_assert_int_ge(fd, 0);
	write_text(fd, "of another process");
	(void)close(fd);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "ours");
	ck_assert_int_eq(newfile_rename(&file, false), -EEXIST);
	ck_assert_str_eq(read_text("a"), "of another process");
	ck_assert_int_eq(newfile_rename(&file, true), 0);
	ck_assert_str_eq(read_text("a"), "ours");
	newfile_discard(&file); /* closes it, and removes nothing */
	ck_assert_str_eq(read_text("a"), "ours");
}

TEST_LOOP(a_rename_takes_a_free_name, N_KINDS) /* _i: kind */
{
	struct newfile file;

	set_kind(_i);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	write_text(file.fd, "ours");
	ck_assert_int_eq(newfile_rename(&file, false), 0);
	newfile_discard(&file);
	ck_assert_str_eq(read_text("a"), "ours");
}

TEST(the_name_may_be_as_long_as_a_name_can_be)
{
	char name[NAME_MAX + 1];
	struct newfile file;

	(void)memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	ck_assert_int_eq(newfile_open(dir_fd, name, 0666, &file), 0);
	ck_assert_int_eq(newfile_commit(&file), 0);
	ck_assert_int_eq(unlinkat(dir_fd, name, 0), 0);
}

TEST(a_temporary_name_of_another_process_is_neither_renamed_nor_removed)
{
	char name[NEWFILE_NAME_BYTES];
	struct newfile file;
	struct stat st;

	has_tmpfile = false;
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(unlinkat(dir_fd, file.temporary, 0), 0);
	ck_assert_int_eq(newfile_rename(&file, true), -ESTALE);
	ck_assert_int_eq(symlinkat("nothing", dir_fd, file.temporary), 0);
	ck_assert_int_eq(newfile_rename(&file, true), -ESTALE);
	memcpy(name, file.temporary, sizeof(name));
	newfile_discard(&file);
	ck_assert_int_eq(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(unlinkat(dir_fd, name, 0), 0);
}

TEST(reserved_blocks_keep_the_size)
{
	struct newfile file;
	struct stat st;

	ck_assert_int_eq(newfile_open(dir_fd, "a", 0666, &file), 0);
	ck_assert_int_eq(newfile_reserve(file.fd, 0, 65536), 0);
	ck_assert_int_eq(fstat(file.fd, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(newfile_check_room(file.fd, 1), 0);
	ck_assert_int_eq(newfile_check_room(file.fd, (uint64_t)1 << 60), -ENOSPC);
	newfile_discard(&file);
}

static unsigned count_entries(void)
{
	DIR *listing = opendir(dir);
	unsigned n = 0;

	ck_assert_ptr_nonnull(listing);
	while (readdir(listing))
		n++;
	(void)closedir(listing);
	return n - 2; /* . and .. */
}

/* It stayed forever. */
TEST_LOOP(what_a_killed_process_left_is_removed_by_the_next_one, N_KINDS) /* _i: kind */
{
	struct newfile file;
	int status;
	pid_t pid;

	set_kind(_i);
	pid = fork();
	if (pid == 0) {
		is_killed_at_rename = true;
		if (newfile_open(dir_fd, "a", 0600, &file) == 0)
			(void)newfile_commit(&file);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_uint_eq(count_entries(), 1);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0600, &file), 0);
	ck_assert_uint_eq(count_entries(), file.temporary[0] ? 1 : 0);
	newfile_discard(&file);
}

/* The lock of the first is not free. */
TEST(the_temporary_file_of_a_process_that_is_alive_stays)
{
	struct newfile first, second;

	has_tmpfile = false;
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0600, &first), 0);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0600, &second), 0);
	ck_assert_uint_eq(count_entries(), 2);
	newfile_discard(&second);
	ck_assert_int_eq(newfile_commit(&first), 0);
}

static const struct {
	const char *name;
	mode_t type;
	uid_t uid;
	bool stays;
} others[] = {
	{ ".dsaio-0123456789abcdef.new", S_IFREG, 0, false },
	{ ".dsaio-0123456789abcdef.tmp", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcdef", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcdeF.new", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcde.new", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcdef0.new", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcdef.new.bak", S_IFREG, 0, true },
	{ ".dsaio-0123456789abcdef.new", S_IFIFO, 0, true }, /* to open it would wait */
	{ ".dsaio-0123456789abcdef.new", S_IFREG, 65534, true },
};

TEST_TABLE(no_other_file_is_removed, others) /* _i: the row */
{
	struct newfile file;

	ck_assert_int_eq(mknodat(dir_fd, others[_i].name, others[_i].type | 0600, 0), 0);
	if (others[_i].uid && fchownat(dir_fd, others[_i].name, others[_i].uid, (gid_t)-1, 0) < 0)
		ck_assert_int_ne(geteuid(), 0);
	ck_assert_int_eq(newfile_open(dir_fd, "a", 0600, &file), 0);
	newfile_discard(&file);
	if (!others[_i].uid || geteuid() == 0)
		ck_assert_uint_eq(count_entries(), others[_i].stays);
	(void)unlinkat(dir_fd, others[_i].name, 0);
}

FIXTURE(setup, teardown)
TEST_MAIN
