/*
 * Restarts of the daemon: what is handed over to the next one, and what the next one refuses.
 *
 * Each test has ops open when the daemon ends.  Most are on memory of dsaio_alloc(); the daemon is stopped before
 * they are submitted, so none of them is done before.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define PIECE (64 * KIB)

static uint8_t *memory_new(struct rig *rig, size_t bytes)
{
	uint8_t *memory;

	CHECK_CALL(dsaio_alloc(rig->client, bytes, NULL, (void **)&memory));
	return memory;
}

/* An op of each kind: the first of its kind asks the daemon for what it needs. */
static void warm_up(struct rig *rig, struct dsaio_file *file)
{
	uint8_t *pinned = memory_new(rig, 4096), private[100];
	struct dsaio_op *op;

	CHECK_CALL(dsaio_pread_async(rig->handle, file, pinned, 4096, 0, &op));
	CHECK(op_wait(op, -1) >= 0);
	dsaio_op_free(op);
	CHECK_CALL(dsaio_pread_async(rig->handle, file, private, sizeof(private), 0, &op));
	CHECK(op_wait(op, -1) >= 0);
	dsaio_op_free(op);
	CHECK_CALL(dsaio_free(rig->client, pinned));
}

/* Stops the daemon, so that what is submitted from now on is open when it is killed. */
static void hold(struct rig *rig, struct dsaio_file *file)
{
	warm_up(rig, file);
	process_stop(rig->daemon->pid);
}

static void kill_and_start(struct rig *rig, const char *config)
{
	daemon_kill(rig->daemon);
	rig->daemon = next_daemon(config);
}

/* Its op has failed with that errno, and a message with these words. */
static void check_op_fails(struct dsaio_op *op, int error, const char *words)
{
	int64_t result = op_wait(op, 20000000);

	check_fails("the op", result, error, result < 0 ? dsaio_op_error(op) : "", words, __FILE__,
		    __LINE__);
	dsaio_op_free(op);
}

static void check_op(struct dsaio_op *op, int64_t result)
{
	CHECK_EQ(op_wait(op, 20000000), result);
	dsaio_op_free(op);
}

/* ---- files ---- */

static const struct {
	const char *what;
	int flags;
	bool by_fd, is_unlinked, is_replaced, is_unaligned;
} files[] = {
	{ .what = "unlinked while it is open", .is_unlinked = true },
	{ .what = "opened by a descriptor", .by_fd = true },
	{ .what = "opened by a descriptor, and unlinked", .by_fd = true, .is_unlinked = true },
	{ .what = "opened with O_CREAT | O_EXCL", .flags = O_CREAT | O_EXCL },
	{ .what = "opened with O_TRUNC", .flags = O_CREAT | O_TRUNC },
	{ .what = "its path names another file", .is_replaced = true },
	{ .what = "with a buffered description", .is_unaligned = true },
	{ .what = "with a buffered description, unlinked",
	  .is_unaligned = true,
	  .is_unlinked = true },
	{ .what = "by a descriptor, buffered, its path names another file",
	  .by_fd = true,
	  .is_unaligned = true,
	  .is_replaced = true },
};

static struct dsaio_file *file_of_row(struct rig *rig, int row, const char *path)
{
	struct dsaio_file *file;
	int fd;

	if (!files[row].by_fd)
		return rig_file(rig, path,
				O_RDWR | (files[row].flags ? files[row].flags : O_CREAT));
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	CHECK_CALL(dsaio_file_from_fd(rig->client, fd, &file));
	CHECK_SYS(close(fd));
	rig->files[rig->n_files++] = file;
	return file;
}

TEST_TABLE(handed_over, files, "a file is handed over")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t skew = files[row].is_unaligned ? 777 : 0;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;
	const char *path;

	reconnecting(&rig);
	path = daemon_path(rig.daemon, "f");
	memory = memory_new(&rig, 4 * PIECE);
	file = file_of_row(&rig, row, path);
	pattern_fill(memory, 3 * PIECE, 1, skew);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, skew), PIECE);
	if (files[row].is_unlinked || files[row].is_replaced)
		CHECK_SYS(unlink(path));
	if (files[row].is_replaced)
		file_make_pattern(path, PIECE, 9);
	hold(&rig, file);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + PIECE, PIECE, skew + PIECE, &op));
	kill_and_start(&rig, NULL);
	check_op(op, PIECE);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory + 2 * PIECE, PIECE, skew + 2 * PIECE),
		 PIECE);
	CHECK_CALL(dsaio_fsync(rig.handle, file, 0));
	daemon_stop(rig.daemon);
	rig.daemon = daemon_start(NULL);
	memset(memory, 0, 3 * PIECE);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 3 * PIECE, skew), 3 * PIECE);
	pattern_check(memory, 3 * PIECE, 1, skew, "what was read");
	CHECK_EQ(dsaio_file_size(file), skew + 3 * PIECE);
	if (files[row].is_replaced) {
		CHECK_EQ(file_size(path), PIECE);
		file_check_pattern(path, 0, PIECE, 9, 0);
	}
}

static const struct {
	const char *what;
	bool has_ops;
} few[] = { { "with open ops", true }, { "idle", false } };

enum { N_FEW = 40, REPLACED = 30, UNLINKED, BUFFERED, BY_FD };

/* Neither its path nor a descriptor leads to it. */
static bool is_left(unsigned i)
{
	return i == REPLACED || i == UNLINKED || i == BY_FD;
}

static struct dsaio_file *few_open(const struct rig *rig, unsigned i)
{
	const char *path = daemon_path(rig->daemon, test_text("f%u", i));
	struct dsaio_file *file;
	int fd;

	if (i == BY_FD) {
		fd = (int)CHECK_SYS(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
		CHECK_CALL(dsaio_file_from_fd(rig->client, fd, &file));
		CHECK_SYS(close(fd));
	} else {
		CHECK_CALL(dsaio_open(rig->client, path, O_RDWR | O_CREAT | O_EXCL, NULL, &file));
	}
	return file;
}

TEST_TABLE(few_descriptors, few, "files whose descriptor is not kept are opened again by path")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *opened[N_FEW];
	struct dsaio_op *ops[N_FEW] = { NULL };
	struct rlimit limit;
	uint8_t *memory;

	reconnecting(&rig);
	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 48; /* 12 are kept, also when all others are needed for something */
	memory = memory_new(&rig, N_FEW * PIECE);
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	for (unsigned i = 0; i < N_FEW; i++)
		opened[i] = few_open(&rig, i);
	pattern_fill(memory, N_FEW * PIECE, 1, 0);
	for (unsigned i = 0; i < N_FEW; i++)
		CHECK_EQ(dsaio_pwrite(rig.handle, opened[i], memory + i * PIECE, PIECE, i * PIECE),
			 PIECE);
	CHECK_EQ(dsaio_pwrite(rig.handle, opened[BUFFERED], memory, 100, 33), 100);
	memset(memory, 0, N_FEW * PIECE);
	if (few[row].has_ops) {
		hold(&rig, opened[0]);
		for (unsigned i = 0; i < N_FEW; i++)
			if (i != BY_FD) /* its size is asked of the daemon */
				CHECK_CALL(dsaio_pread_async(rig.handle, opened[i],
							     memory + i * PIECE, PIECE, i * PIECE,
							     &ops[i]));
	}
	CHECK_SYS(unlink(daemon_path(rig.daemon, test_text("f%d", REPLACED))));
	file_make_pattern(daemon_path(rig.daemon, test_text("f%d", REPLACED)), 4096, 9);
	CHECK_SYS(unlink(daemon_path(rig.daemon, test_text("f%d", UNLINKED))));
	kill_and_start(&rig, NULL);
	for (unsigned i = 0; i < N_FEW; i++) {
		if (!ops[i])
			continue;
		if (is_left(i))
			check_op_fails(ops[i], -ESTALE, "restart;open it again");
		else
			check_op(ops[i], PIECE);
	}
	for (unsigned i = 0; i < N_FEW; i++) {
		uint8_t *at = memory + i * PIECE;

		if (is_left(i)) {
			CHECK_FAILS(dsaio_pread(rig.handle, opened[i], at, PIECE, i * PIECE),
				    -ESTALE, "restart;open it again");
		} else {
			CHECK_EQ(dsaio_pread(rig.handle, opened[i], at, PIECE, i * PIECE), PIECE);
			pattern_check(at, PIECE, 1, i * PIECE, "what was read");
		}
	}
	CHECK_EQ(dsaio_pwrite(rig.handle, opened[BUFFERED], memory, 100, 77), 100);
	file_check_pattern(daemon_path(rig.daemon, test_text("f%d", REPLACED)), 0, 4096, 9, 0);
	for (unsigned i = 0; i < N_FEW; i++)
		dsaio_file_close(opened[i]);
	CHECK_CALL(dsaio_open(rig.client, daemon_path(rig.daemon, test_text("f%d", REPLACED)),
			      O_RDWR, NULL, &opened[0]));
	CHECK_EQ(dsaio_pread(rig.handle, opened[0], memory, 4096, 0), 4096);
	pattern_check(memory, 4096, 9, 0, "the file that has the path now");
	dsaio_file_close(opened[0]);
}

TEST(cached, "files that are only cached are opened anew with the next daemon")
{
	enum { N = 8 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *memory;

	reconnecting(&rig);
	memory = memory_new(&rig, PIECE);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++) {
			const char *path = daemon_path(rig.daemon, test_text("f%u", i));

			if (round != 1) /* the same file, or another of that name */
				(void)unlink(path);
			if (round != 1)
				file_make_pattern(path, PIECE, round + 1);
			CHECK_EQ(dsaio_pread_path(rig.handle, path, memory, PIECE, 0), PIECE);
			pattern_check(memory, PIECE, round == 1 ? 1 : round + 1, 0,
				      "what was read");
		}
		daemon_kill(rig.daemon);
		if (round == 1) /* while there is no daemon */
			CHECK_CALL(dsaio_file_drop(rig.client, NULL));
		rig.daemon = daemon_start(NULL);
	}
	CHECK_CALL(dsaio_file_drop(rig.client, NULL));
}

/* ---- the next daemon ---- */

TEST(smaller_pool,
     "memory that does not fit into the next daemon's pool: its ops fail, others go on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t *small, *large, *private = malloc(PIECE), *other;
	struct dsaio_op *ops[3];
	struct dsaio_file *file;

	rig.daemon = next_daemon("[daemon]\npool_size = 256M\nclient_pool_max = 256M\n");
	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	small = memory_new(&rig, 8 * MIB);
	large = memory_new(&rig, 128 * MIB);
	pattern_fill(small, PIECE, 1, 0);
	pattern_fill(private, PIECE, 2, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, large, PIECE, 0), PIECE);
	hold(&rig, file);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, large, PIECE, 0, &ops[0]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, small, PIECE, PIECE, &ops[1]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, private, PIECE, 2 * PIECE, &ops[2]));
	kill_and_start(&rig, "[daemon]\npool_size = 96M\n");
	check_op_fails(ops[0], -ENOMEM, "memory;restart;allocate it again");
	check_op(ops[1], PIECE);
	check_op(ops[2], PIECE);
	CHECK_FAILS(dsaio_pread(rig.handle, file, large, PIECE, 0), -ENOMEM,
		    "memory;restart;allocate");
	CHECK_CALL(dsaio_free(rig.client, large));
	other = memory_new(&rig, 32 * MIB);
	CHECK_EQ(dsaio_pread(rig.handle, file, other, 2 * PIECE, PIECE), 2 * PIECE);
	pattern_check(other, PIECE, 1, 0, "from pinned memory");
	pattern_check(other + PIECE, PIECE, 2, 0, "from private memory");
	CHECK_CALL(dsaio_free(rig.client, other));
	CHECK_CALL(dsaio_free(rig.client, small));
	free(private);
}

/* One store is the test's file system, the other one is in memory. */
static const char *config_of(const char *name, const char *more)
{
	return test_text("[daemon]\nauto_stores = no\n[store m]\npath = /dev/shm\n%s",
			 !name ? ""
			       : test_text("[store %s]\npath = %s\n%s", name, test_dir(), more));
}

static const struct {
	const char *what, *name, *more;
	int error;
	const char *words;
} stores[] = {
	{ "it is gone", NULL, "", -ENXIO, "restart;open it again" },
	{ "it has another name", "u", "", -ENXIO, "restart;open it again" },
	{ "it is as it was", "t", "users = 0\n", 0, NULL },
};

TEST_TABLE(store_changed, stores, "the next daemon's configuration of the store")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file, *other;
	struct dsaio_op *ops[3];
	uint8_t *memory, *private = malloc(PIECE);
	int64_t result;

	rig.daemon = next_daemon(config_of("t", ""));
	reconnecting(&rig);
	memory = memory_new(&rig, 4 * PIECE);
	pattern_fill(memory, 2 * PIECE, 1, 0);
	file = rig_file(&rig, test_text("%s/f", test_dir()), O_RDWR | O_CREAT);
	other = rig_file(&rig, test_text("%s/f", test_dir_in("/dev/shm")), O_RDWR | O_CREAT);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), PIECE);
	CHECK_EQ(dsaio_pwrite(rig.handle, other, memory, PIECE, 0), PIECE);
	warm_up(&rig, other);
	hold(&rig, file);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + 2 * PIECE, PIECE, 0, &ops[0]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, other, memory + PIECE, PIECE, PIECE, &ops[1]));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, private, PIECE, 0, &ops[2]));
	kill_and_start(&rig, config_of(stores[row].name, stores[row].more));
	check_op(ops[1], PIECE);
	CHECK_EQ(dsaio_pread(rig.handle, other, memory + 2 * PIECE, 2 * PIECE, 0), 2 * PIECE);
	pattern_check(memory + 2 * PIECE, 2 * PIECE, 1, 0, "the other store");
	if (!stores[row].error) {
		check_op(ops[0], PIECE);
		check_op(ops[2], PIECE);
		CHECK_EQ(dsaio_pread(rig.handle, file, memory, PIECE, 0), PIECE);
	} else {
		check_op_fails(ops[0], stores[row].error, stores[row].words);
		check_op_fails(ops[2], stores[row].error, stores[row].words);
		result = dsaio_pread(rig.handle, file, memory, PIECE, 0);
		CHECK_FAILS(result, stores[row].error, "");
		/* Not for good: the daemon after that one has it again. */
		kill_and_start(&rig, config_of("t", ""));
		file = rig_file(&rig, test_text("%s/f", test_dir()), O_RDWR);
		CHECK_EQ(dsaio_pread(rig.handle, file, memory, PIECE, 0), PIECE);
		pattern_check(memory, PIECE, 1, 0, "what was read");
	}
	free(private);
}

/* The client of a user that the next daemon refuses; the parent has the daemons. */
static void visitor_main(const char *path, int to_parent, int from_parent)
{
	struct rig rig = RIG_NONE;
	struct daemon daemon = { .pid = 0 };
	struct dsaio_file *file;
	struct dsaio_op *ops[2];
	uint8_t *memory, private[100], byte = 0;

	(void)snprintf(daemon.socket_path, sizeof(daemon.socket_path), "%s/s.sock", test_dir());
	rig.daemon = &daemon;
	reconnecting(&rig);
	CHECK_CALL(dsaio_open(rig.client, path, O_RDWR, NULL, &file));
	memory = memory_new(&rig, PIECE);
	warm_up(&rig, file);
	CHECK_EQ(write(to_parent, &byte, 1), 1);
	CHECK_EQ(read(from_parent, &byte, 1), 1); /* the daemon is stopped */
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, PIECE, 0, &ops[0]));
	CHECK_CALL(dsaio_pread_async(rig.handle, file, private, sizeof(private), 0, &ops[1]));
	CHECK_EQ(write(to_parent, &byte, 1), 1);
	check_op_fails(ops[0], -EACCES, "restart");
	check_op_fails(ops[1], -EACCES, "restart");
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, PIECE, 0), -EACCES);
	CHECK_EQ(write(to_parent, &byte, 1), 1);
	CHECK_EQ(read(from_parent, &byte, 1), 1); /* it may again */
	CHECK_CALL(dsaio_open(rig.client, path, O_RDONLY, NULL, &file));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, PIECE, 0), PIECE);
	pattern_check(memory, PIECE, 1, 0, "what was read");
	(void)dsaio_disconnect(rig.client);
}

TEST(not_allowed, "the next daemon does not let the user use the store, and the one after it does")
{
	enum { VISITOR = 65534 };
	const char *path = test_text("%s/f", test_dir());
	struct rig rig = RIG_NONE;
	int to_parent[2], from_parent[2];
	uint8_t byte;
	pid_t pid;

	test_needs_root();
	CHECK_SYS(chmod(test_dir(), 0755));
	file_make_pattern(path, PIECE, 1);
	CHECK_SYS(chmod(path, 0666));
	rig.daemon = next_daemon(config_of("t", ""));
	CHECK_SYS(chmod(rig.daemon->socket_path, 0666));
	CHECK_SYS(pipe2(to_parent, O_CLOEXEC));
	CHECK_SYS(pipe2(from_parent, O_CLOEXEC));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		child_become(VISITOR);
		visitor_main(path, to_parent[1], from_parent[0]);
		_exit(0);
	}
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	process_stop(rig.daemon->pid);
	CHECK_EQ(write(from_parent[1], &byte, 1), 1);
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	kill_and_start(&rig, config_of("t", "users = 1\n"));
	CHECK_SYS(chmod(rig.daemon->socket_path, 0666));
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	kill_and_start(&rig, config_of("t", ""));
	CHECK_SYS(chmod(rig.daemon->socket_path, 0666));
	CHECK_EQ(write(from_parent[1], &byte, 1), 1);
	child_wait_ok(pid);
}

/* ---- kinds of ops ---- */

TEST(no_reconnect, "with DSAIO_NO_RECONNECT open ops end with -ECONNRESET at once")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *ops[2];
	struct dsaio_file *file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	uint8_t *memory = memory_new(&rig, PIECE), *private = calloc(1, PIECE);
	int64_t began;

	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), PIECE);
	hold(&rig, file);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, PIECE, 0, &ops[0]));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, private, PIECE, PIECE, &ops[1]));
	began = now_usec();
	daemon_kill(rig.daemon);
	check_op(ops[0], -ECONNRESET);
	check_op(ops[1], -ECONNRESET);
	CHECK((double)(now_usec() - began) < 2000000 * test_time_factor());
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_LOST);
	rig.daemon = daemon_start(NULL);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), -ENOTCONN, "gone away");
	free(private);
}

/* The library's connection to the daemon. */
static int connection_of(const struct daemon *daemon)
{
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_un peer = { .sun_family = AF_UNSPEC };
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
		    strcmp(peer.sun_path, daemon->socket_path) == 0)
			return fd;
	}
	test_fail("no connection to %s", daemon->socket_path);
}

TEST(same_daemon,
     "a daemon that lives and has ended the session, without a word, takes nothing over: it has "
     "emptied the slabs")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	uint8_t *memory;

	reconnecting(&rig);
	memory = memory_new(&rig, PIECE);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	pattern_fill(memory, PIECE, 1, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), PIECE);
	CHECK_SYS(
		shutdown(connection_of(rig.daemon), SHUT_WR)); /* to the daemon, the client's end */
	while (dsaio_open(rig.client, daemon_path(rig.daemon, "g"), O_RDWR | O_CREAT, NULL,
			  &file) == 0)
		dsaio_file_close(file); /* until the end is seen */
	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], memory, PIECE, 0), -ENOTCONN,
		    "the daemon lives, and has ended this session");
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_LOST);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, PIECE, 1, 0);
}

static const struct daemon_end ends[] = DAEMON_ENDS;

/* The daemon is asked to end while it is stopped. */
static void end_and_start(struct rig *rig, int row)
{
	if (!ends[row].is_kill) {
		CHECK_SYS(kill(rig->daemon->pid, SIGTERM));
		CHECK_SYS(kill(rig->daemon->pid, SIGCONT));
		daemon_wait_end(rig->daemon, 0);
	} else {
		daemon_kill(rig->daemon);
	}
	rig->daemon = daemon_start(NULL);
}

enum { N_IOS = 7, N_PARTS = 5 };

TEST_TABLE(kinds, ends, "vectored, linked, detached and DSAIO_DSYNC ops end once")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_completion completions[N_IOS + 1];
	struct dsaio_io ios[N_IOS];
	struct dsaio_op *ops[N_IOS];
	struct iovec iov[N_PARTS];
	uint8_t *memory, *private = malloc(PIECE), *back;
	bool seen[N_IOS] = { false };
	struct dsaio_file *file;
	int n;

	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	memory = memory_new(&rig, 8 * PIECE);
	back = memory_new(&rig, 8 * PIECE);
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), PIECE); /* makes the channel */
	pattern_fill(memory, 8 * PIECE, 1, 0);
	pattern_fill(private, PIECE, 1, 4 * PIECE);
	for (unsigned i = 0; i < N_PARTS; i++) /* pinned and private ones, which lie apart */
		iov[i] = (struct iovec){ i == 2 ? private : memory + (2 + i) * PIECE, PIECE };
	for (unsigned i = 0; i < N_IOS; i++)
		ios[i] = (struct dsaio_io){ .opcode = DSAIO_WRITE,
					    .file = file,
					    .buf = memory + i * PIECE,
					    .len = PIECE,
					    .off = i * PIECE,
					    .user_data = &seen[i] };
	ios[1].flags = DSAIO_DETACHED;
	ios[2].buf = NULL;
	ios[2].len = 0;
	ios[2].iov = iov;
	ios[2].n_iov = N_PARTS;
	ios[3] = (struct dsaio_io){
		.opcode = DSAIO_FSYNC, .flags = DSAIO_LINKED, .file = file, .user_data = &seen[3]
	};
	ios[4].flags = DSAIO_DSYNC;
	ios[4].buf = memory + 7 * PIECE;
	ios[4].off = 7 * PIECE;
	ios[5] = (struct dsaio_io){ .opcode = DSAIO_FSYNC,
				    .flags = DSAIO_LINKED | DSAIO_DATASYNC,
				    .file = file,
				    .user_data = &seen[5] };
	ios[6] = (struct dsaio_io){ .opcode = DSAIO_READ,
				    .flags = DSAIO_DETACHED,
				    .file = file,
				    .buf = back + 7 * PIECE,
				    .len = PIECE,
				    .off = GIB,
				    .user_data = &seen[6] };
	hold(&rig, file);
	CHECK_EQ(dsaio_submit(rig.handle, ios, sizeof(ios[0]), N_IOS, 0, ops), N_IOS);
	end_and_start(&rig, row);
	for (unsigned n_seen = 0; n_seen < N_IOS; n_seen += (unsigned)n) {
		n = (int)CHECK_CALL(dsaio_handle_reap(rig.handle, completions,
						      sizeof(completions[0]), 1, N_IOS, 20000000));
		CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			bool *mine = completions[i].user_data;
			const ptrdiff_t at = mine - seen;

			CHECK(at >= 0 && at < N_IOS && !*mine);
			*mine = true;
			CHECK_EQ(completions[i].result, at == 2 ? (int64_t)(N_PARTS * PIECE)
							: at == 3 || at > 4 ? 0
									    : (int64_t)PIECE);
		}
	}
	CHECK_EQ(ops_reap(rig.handle, ops + 1, 0, 1, 0), 0);
	CHECK_EQ(dsaio_pread(rig.handle, file, back, 8 * PIECE, 0), 8 * PIECE);
	pattern_check(back, 8 * PIECE, 1, 0, "what was read");
	dsaio_op_free(ops[0]);
	for (unsigned i = 2; i < 6; i++)
		dsaio_op_free(ops[i]);
	free(private);
}

TEST_MAIN
