/*
 * Descriptors of the program that the library lives in: it keeps none that is stdin, stdout or
 * stderr to others, and a program that has no more left loses a call, not its connection.  And
 * what calls say that were given none, or nothing, to work on.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED 9

/* ---- 0, 1 and 2 ---- */

static void check_stdio_closed(const char *after)
{
	struct stat st;

	for (int fd = 0; fd <= 2; fd++)
		CHECK_MSG(fstat(fd, &st) < 0 && errno == EBADF, "descriptor %d is open after %s",
			  fd, after);
}

TEST(closed, "with 0, 1 and 2 closed the library leaves them so")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *again;
	uint8_t private[4097];
	const char *path;
	void *memory;
	int fd, saved[3];

	rig.daemon = daemon_start(NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, 65536, SEED);
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	for (int i = 0; i <= 2; i++) {
		/* A runner may have closed some itself. */
		saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 3);
		(void)close(i);
	}

	rig_open(&rig, NULL);
	check_stdio_closed("connect and handle_open");
	CHECK_CALL(dsaio_handle_fd(rig.handle));
	check_stdio_closed("handle_fd");
	rig_file(&rig, "f", O_RDWR);
	check_stdio_closed("file_open");
	CHECK_CALL(dsaio_file_from_fd(rig.client, fd, &again));
	check_stdio_closed("file_from_fd");
	CHECK_CALL(dsaio_alloc(rig.client, 65536, NULL, &memory));
	check_stdio_closed("alloc");
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 65536, 0), 65536);
	check_stdio_closed("the first op");

	pattern_check(memory, 65536, SEED, 0, "what was read");
	CHECK_EQ(dsaio_pread(rig.handle, again, private, sizeof(private), 1), sizeof(private));
	pattern_check(private, sizeof(private), SEED, 1, "what was read to private memory");
	CHECK_EQ(write(STDOUT_FILENO, "stray output\n", 13), -1);
	pattern_fill(memory, 65536, SEED + 1, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, 65536, 0), 65536);
	CHECK_EQ(dsaio_fsync(rig.handle, rig.files[0], 0), 0);
	dsaio_file_close(again);
	rig_close(&rig);
	check_stdio_closed("disconnect");

	for (int i = 0; i <= 2; i++)
		if (saved[i] >= 0)
			CHECK_SYS(dup2(saved[i], i));
	file_check_pattern(path, 0, 65536, SEED + 1, 0);
}

/* ---- paths that are no socket ---- */

TEST(no_socket, "connecting to a path that cannot be a socket reports that")
{
	const char *path = test_text("%s/plain", test_dir());
	struct dsaio_client *client;

	CHECK_FAILS(socket_connect("", &client), -EINVAL, "connect;path is empty");
	file_make_pattern(path, 1, SEED);
	CHECK_FAILS(socket_connect(path, &client), -ENOTSOCK, test_text("%s;is no socket", path));
	CHECK_FAILS(socket_connect(test_dir(), &client), -ENOTSOCK,
		    test_text("%s;is no socket", test_dir()));
}

TEST(reap_nowhere, "reaping into no array says so")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);

	CHECK_FAILS(dsaio_handle_reap(rig.handle, NULL, sizeof(struct dsaio_completion), 0, 5, 0),
		    -EINVAL, "completions is NULL");
}

/* ---- none left ---- */

#define LIMIT 64

/* Descriptors that the test has opened to leave none. */
struct fill {
	int fds[LIMIT];
	unsigned n;
};

static void fill_all(struct fill *fill)
{
	int fd;

	while ((fd = dup(STDERR_FILENO)) >= 0) {
		CHECK(fill->n < LIMIT);
		fill->fds[fill->n++] = fd;
	}
	CHECK_EQ(errno, EMFILE);
}

static void fill_leave(struct fill *fill, unsigned n)
{
	while (n--) {
		CHECK(fill->n > 0);
		CHECK_SYS(close(fill->fds[--fill->n]));
	}
}

#define MESSAGE "RLIMIT_NOFILE 64;ulimit -n;close some"

TEST(none_left, "at RLIMIT_NOFILE a call gives -EMFILE, and works when there is room again")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct rlimit limit;
	struct fill fill = { .n = 0 };
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	const char *path;
	void *memory;

	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, 65536, SEED);
	rig_file(&rig, "f", O_RDWR);
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = LIMIT;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));

	fill_all(&fill);
	CHECK_FAILS(dsaio_alloc(rig.client, 65536, NULL, &memory), -EMFILE, "alloc;" MESSAGE);
	CHECK_FAILS(dsaio_handle_open(rig.client, NULL, &handle), -EMFILE, "handle_open;" MESSAGE);
	CHECK_FAILS(dsaio_fsync(rig.handle, rig.files[0], 0), -EMFILE, MESSAGE);
	CHECK_FAILS(dsaio_fsync_async(rig.handle, rig.files[0], 0, &op), -EMFILE, MESSAGE);
	CHECK_EQ(dsaio_open(rig.client, path, O_RDONLY, NULL, &file), -EMFILE);
	fill_all(&fill); /* to make room it has given up that of the other file */

	/* One for memory and one for a handle: both are kept. */
	fill_leave(&fill, 2);
	CHECK_CALL(dsaio_alloc(rig.client, 65536, NULL, &memory));
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &handle));
	CHECK_FAILS(dsaio_alloc(rig.client, 8 * MIB, NULL, &memory), -EMFILE, MESSAGE);
	(void)dsaio_handle_close(handle, -1);

	/* Three for the first op of a handle on a store, of which two are closed again. */
	fill_leave(&fill, 1);
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], memory, 65536, 0), -EMFILE, MESSAGE);
	fill_leave(&fill, 1);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 65536, 0), 65536);
	pattern_check(memory, 65536, SEED, 0, "what was read");

	/* Later ones need none. */
	fill_all(&fill);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, 65536, 65536), 65536);
	CHECK_EQ(dsaio_fsync(rig.handle, rig.files[0], 0), 0);
	CHECK_EQ(handle_wait(rig.handle, -1), 0); /* none of those that failed was an op */
	fill_leave(&fill, fill.n);
	file_check_pattern(path, 65536, 65536, SEED, 0);
}

TEST_MAIN
