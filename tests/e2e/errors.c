/*
 * Errors that a program gets: the right errno, a message that names op, file and
 * reason, how many bytes were done, and how long the file is.
 */
#include "tests/stores.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED 6

/* ---- messages ---- */

TEST(open_errors, "opening files: errno and a message with the path and the reason")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	const char *path;

	path = daemon_path(rig.daemon, "missing");
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDONLY, NULL, &file), -ENOENT, path);
	path = daemon_path(rig.daemon, "f");
	file_make_pattern(path, 4096, SEED);
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR | O_CREAT | O_EXCL, NULL, &file), -EEXIST,
		    path);
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR | O_APPEND, NULL, &file), -EINVAL,
		    test_text("%s;O_APPEND", path));
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR | O_NONBLOCK, NULL, &file), -EINVAL, path);
	CHECK_FAILS(dsaio_open(rig.client, rig.daemon->store_dir, O_RDONLY, NULL, &file),
		    -EOPNOTSUPP, test_text("%s;regular file", rig.daemon->store_dir));
	CHECK_FAILS(dsaio_open(rig.client, "/dev/null", O_RDONLY, NULL, &file), -EOPNOTSUPP,
		    "/dev/null");
	CHECK_FAILS(dsaio_file_from_fd(rig.client, -1, &file), -EBADF, "-1");
}

TEST(argument_errors, "wrong arguments: errno and a message")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	_cleanup_(rig_close) struct rig other = RIG_NONE;
	struct dsaio_file *read_only, *write_only, *theirs;
	struct dsaio_op *op;
	uint8_t buf[4096];

	other.daemon = rig.daemon;
	rig_open(&other, NULL);
	file_make_pattern(daemon_path(rig.daemon, "weights.bin"), 4096, SEED);
	read_only = rig_file(&rig, "weights.bin", O_RDONLY);
	write_only = rig_file(&rig, "weights.bin", O_WRONLY);
	theirs = rig_file(&other, "weights.bin", O_RDWR);

	CHECK_FAILS(dsaio_pwrite(rig.handle, read_only, buf, 4096, 0), -EBADF,
		    "write;weights.bin;O_RDWR");
	CHECK_FAILS(dsaio_pread(rig.handle, write_only, buf, 4096, 0), -EBADF,
		    "read;weights.bin;O_RDWR");
	CHECK_FAILS(dsaio_pwrite_async(rig.handle, read_only, buf, 4096, 0, &op), -EBADF,
		    "write;weights.bin");
	CHECK_FAILS(dsaio_pread_async(rig.handle, write_only, buf, 4096, 0, &op), -EBADF,
		    "read;weights.bin");
	CHECK_FAILS(dsaio_pread(rig.handle, theirs, buf, 4096, 0), -EBADF, "client");
	CHECK_FAILS(dsaio_pread(rig.handle, read_only, buf, 4096, INT64_MAX - 100), -EINVAL,
		    test_text("%" PRIu64, (uint64_t)INT64_MAX - 100));
	CHECK_FAILS(dsaio_pread(rig.handle, read_only, buf, SIZE_MAX, 4096), -EINVAL,
		    "weights.bin");
	CHECK_EQ(dsaio_pread(NULL, read_only, buf, 1, 0), -EINVAL);
	CHECK_EQ(dsaio_pread(rig.handle, NULL, buf, 1, 0), -EINVAL);
	CHECK_EQ(dsaio_pread_async(rig.handle, NULL, buf, 1, 0, &op), -EINVAL);
	CHECK_EQ(dsaio_pread(rig.handle, read_only, NULL, 1, 0), -EFAULT);
	CHECK_EQ(handle_wait(NULL, -1), -EINVAL);
	CHECK_EQ(handle_wait(rig.handle, -1), 0); /* none of them was an op */
	CHECK_EQ(dsaio_pread(rig.handle, read_only, buf, 4096, 0), 4096);
	(void)dsaio_disconnect(NULL);
	(void)dsaio_handle_close(NULL, -1);
	dsaio_file_close(NULL);
	dsaio_op_free(NULL);
}

TEST(missing_arguments, "NULL where something has to be: errno and a message")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_memory memory = DSAIO_MEMORY_INIT;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t buf[4096];
	void *view;

	CHECK_FAILS(dsaio_connect(NULL, NULL), -EINVAL, "connect;place");
	CHECK_FAILS(dsaio_open(NULL, "f", O_RDONLY, NULL, &file), -EINVAL, "open;client");
	CHECK_FAILS(dsaio_open(rig.client, NULL, O_RDONLY, NULL, &file), -EINVAL, "open;name");
	CHECK_FAILS(dsaio_open(rig.client, "f", O_RDONLY, NULL, NULL), -EINVAL, "open;place");
	CHECK_FAILS(dsaio_file_from_fd(NULL, 0, &file), -EINVAL, "file_from_fd;client");
	CHECK_FAILS(dsaio_file_from_fd(rig.client, 0, NULL), -EINVAL, "file_from_fd;place");
	CHECK_FAILS(dsaio_file_size(NULL), -EINVAL, "file_size;file");
	CHECK_EQ(dsaio_file_alignment(NULL), 0);
	CHECK_FAILS(dsaio_alloc(rig.client, 4096, NULL, NULL), -EINVAL, "alloc;place");
	CHECK_FAILS(dsaio_free(NULL, buf), -EINVAL, "free;client");
	CHECK_FAILS(dsaio_memory_unregister(NULL, buf), -EINVAL, "memory_unregister;client");
	CHECK_FAILS(dsaio_view(NULL, NULL, 0, 1, 0, &view), -EINVAL, "view;client");
	CHECK_FAILS(dsaio_view(rig.client, NULL, 0, 1, 0, &view), -EINVAL, "view;file");
	CHECK_FAILS(dsaio_view_wait(NULL, buf, 1), -EINVAL, "view_wait;handle");
	CHECK_FAILS(dsaio_view_free(NULL, buf), -EINVAL, "view_free;client");
	memory.size = 1;
	CHECK_FAILS(dsaio_memory_register(rig.client, &memory), -EINVAL, "memory_register");
	options.flags = UINT32_MAX;
	CHECK_FAILS(dsaio_handle_open(rig.client, &options, &handle), -E2BIG, "handle_open;flags");
	profile.zero = 1;
	options = (struct dsaio_handle_options)DSAIO_HANDLE_OPTIONS_INIT;
	options.profile = &profile;
	CHECK_FAILS(dsaio_handle_open(rig.client, &options, &handle), -E2BIG, "handle_open;zero");
	profile.zero = 0;
	profile.single_submit = 9;
	CHECK_FAILS(dsaio_handle_open(rig.client, &options, &handle), -EINVAL, "single_submit 9");
	CHECK_FAILS(dsaio_stat(rig.client, "rados://p/n/x", NULL), -EINVAL, "stat;place");
	CHECK_FAILS(dsaio_op_result(NULL), -EINVAL, "op_result;op");
	CHECK_EQ(dsaio_op_bytes(NULL), 0);
	CHECK(strstr(dsaio_op_error(NULL), "op_error"));
	CHECK(strstr(dsaio_op_why(NULL), "op_why"));

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, buf, 4096, 0, &op));
	CHECK_EQ(op_wait(op, -1), 4096);
	CHECK_EQ(strcmp(dsaio_op_error(op), ""), 0);
	dsaio_op_free(op);
	CHECK_FAILS(dsaio_file_allocate(file, UINT64_MAX, 4096, 0), -EINVAL, "file_allocate;f");
}

TEST(connect_errors, "no daemon: the message says how to start one")
{
	struct dsaio_client *client;
	const char *path = test_text("%s/nobody.sock", test_dir());

	CHECK_FAILS(socket_connect(path, &client), -ENOENT, test_text("%s;dsaiod", path));
	CHECK_SYS(setenv("DSAIO_SOCKET", path, 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ENOENT, test_text("%s;dsaiod", path));
}

TEST(environment, "DSAIO_SOCKET is where dsaio_connect(NULL) looks")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client;

	CHECK_SYS(setenv("DSAIO_SOCKET", daemon->socket_path, 1));
	CHECK_CALL(dsaio_connect(NULL, &client));
	(void)dsaio_disconnect(client);
}

TEST(reconnect_environment, "DSAIO_RECONNECT is the seconds to wait for the next daemon, or 0")
{
	static const char *const wrong[] = { "x", "-1", "1s", "5000000000" };
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client;
	struct dsaio_file *file;

	options.socket_path = daemon->socket_path;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		CHECK_SYS(setenv("DSAIO_RECONNECT", wrong[i], 1));
		CHECK_FAILS(dsaio_connect(&options, &client), -EINVAL,
			    test_text("DSAIO_RECONNECT=%s", wrong[i]));
	}
	file_make_pattern(daemon_path(daemon, "f"), 4096, SEED);
	CHECK_SYS(setenv("DSAIO_RECONNECT", "0", 1));
	CHECK_CALL(dsaio_connect(&options, &client));
	daemon_kill(daemon);
	CHECK_FAILS(dsaio_open(client, daemon_path(daemon, "f"), O_RDONLY, NULL, &file), -ENOTCONN,
		    "gone away");
	(void)dsaio_disconnect(client);
}

TEST(no_memory_there, "private memory that cannot be written ends the op with -EFAULT")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	uint8_t buf[4096];
	void *hole;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	rig_file(&rig, "f", O_RDWR);
	hole = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED);
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], hole, 4096, 0), -EFAULT, "read;f");
	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], hole, 4096, 0), -EFAULT, "write;f");
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], hole, 4095, 1), -EFAULT, "read;f");
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 65536, SEED, 0);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
}

static void *error_of_thread(void *arg)
{
	struct rig *rig = arg;
	struct dsaio_file *file;

	CHECK(!strcmp(dsaio_error(), ""));
	CHECK_FAILS(dsaio_open(rig->client, "/nowhere/theirs", O_RDONLY, NULL, &file), -ENOENT,
		    "theirs");
	return NULL;
}

TEST(error_by_thread, "dsaio_error is each thread's own")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_file *file;
	pthread_t thread;

	CHECK_FAILS(dsaio_open(rig.client, "/nowhere/mine", O_RDONLY, NULL, &file), -ENOENT,
		    "mine");
	CHECK_EQ(pthread_create(&thread, NULL, error_of_thread, &rig), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(strstr(dsaio_error(), "mine"));
}

/* ---- a full disk ---- */

#define SMALL_BYTES (32 * MIB)

static const struct {
	const char *what;
	enum store_kind kind;
} small_stores[] = { { "tmpfs", STORE_TMPFS }, { "ext4", STORE_EXT4 } };

static void small_rig_open(struct rig *rig, int row)
{
	struct store store;

	store_make(&store, small_stores[row].kind, SMALL_BYTES);
	store_rig_open(rig, &store);
}

TEST_TABLE(full_extending, small_stores, "a full disk: a write that extends ends with -ENOSPC")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 64 * MIB;
	struct dsaio_op *op;
	const char *path;
	uint64_t done;
	void *memory;

	small_rig_open(&rig, row);
	path = daemon_path(rig.daemon, "big.bin");
	rig_file(&rig, "big.bin", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	pattern_fill(memory, len, SEED, 0);

	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], memory, len, 0), -ENOSPC,
		    "write;big.bin;space");
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, len, 0, &op));
	CHECK_EQ(op_wait(op, -1), -ENOSPC);
	CHECK(strstr(dsaio_op_error(op), "big.bin"));
	done = dsaio_op_bytes(op);
	CHECK(done < len);
	test_note("%" PRIu64 " bytes were done", done);
	CHECK(file_size(path) >= done);
	CHECK(file_size(path) <= len);
	CHECK(strstr(dsaio_op_error(op), test_text("size is now %" PRIu64, file_size(path))));
	file_check_pattern(path, 0, done, SEED, 0);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig.handle, -1), -ENOSPC);
	CHECK(strstr(dsaio_error(), "big.bin"));

	/* Space that the failed op took is back. */
	CHECK_EQ(dsaio_file_truncate(rig.files[0], 0), 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, 4 * MIB, 0), 4 * MIB);
	file_check_pattern(path, 0, 4 * MIB, SEED, 0);
	CHECK_EQ(file_size(path), 4 * MIB);
	/* A failed write behind it leaves the old bytes and the old size. */
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, len, 4 * MIB), -ENOSPC);
	CHECK(file_size(path) < len);
	file_check_pattern(path, 0, 4 * MIB, SEED, 0);
}

TEST_TABLE(full_hole, small_stores, "a full disk: a write into a hole ends with -ENOSPC")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 64 * MIB;
	struct dsaio_op *op;
	const char *path;
	uint64_t done;
	void *memory;

	small_rig_open(&rig, row);
	path = daemon_path(rig.daemon, "big.bin");
	file_make_sparse(path, len);
	rig_file(&rig, "big.bin", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	pattern_fill(memory, len, SEED, 0);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, len, 0, &op));
	CHECK_EQ(op_wait(op, -1), -ENOSPC);
	CHECK(strstr(dsaio_op_error(op), "big.bin"));
	done = dsaio_op_bytes(op);
	CHECK(done < len);
	test_note("%" PRIu64 " bytes were done", done);
	file_check_pattern(path, 0, done, SEED, 0);
	CHECK_EQ(file_size(path), len); /* the size was there before */
	dsaio_op_free(op);
}

TEST_TABLE(full_many, small_stores, "a full disk: of many small writes each tells its own")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 512 };
	const size_t len = 128 * KIB;
	struct dsaio_op *ops[N];
	unsigned n_good = 0;
	const char *path;
	void *memory;

	small_rig_open(&rig, row);
	path = daemon_path(rig.daemon, "big.bin");
	rig_file(&rig, "big.bin", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, N * len, NULL, &memory));
	pattern_fill(memory, N * len, SEED, 0);
	for (unsigned i = 0; i < N; i++)
		CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], (char *)memory + i * len,
					      len, i * len, &ops[i]));
	for (unsigned i = 0; i < N; i++) {
		int64_t r = op_wait(ops[i], -1);

		if (r == (int64_t)len) {
			file_check_pattern(path, i * len, len, SEED, i * len);
			n_good++;
		} else
			CHECK_EQ(r, -ENOSPC);
		dsaio_op_free(ops[i]);
	}
	CHECK(n_good > 0 && n_good < N);
	CHECK_EQ(handle_wait(rig.handle, -1), -ENOSPC);
	CHECK(file_size(path) <= N * len);
}

/* ---- a write that fails after the file was made longer for it ---- */

#define FILE_LIMIT GIB

/* As a full quota or a lost device would: the daemon's writes end at this byte. */
static void limit_file_size(void)
{
	struct rlimit limit = { .rlim_cur = FILE_LIMIT, .rlim_max = FILE_LIMIT };

	(void)setrlimit(RLIMIT_FSIZE, &limit); /* if it fails, the test says so */
}

TEST(extending_fails, "a failing write that extends says how long it leaves the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t len = 2 * MIB;
	struct dsaio_op *op;
	const char *path;
	uint64_t done;
	void *memory;

	rig.daemon = daemon_start_with(&(struct daemon_options){ .before_exec = limit_file_size });
	rig_open(&rig, NULL);
	path = daemon_path(rig.daemon, "f");
	file_make_sparse(path, FILE_LIMIT - MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	pattern_fill(memory, len, SEED, FILE_LIMIT - MIB);
	CHECK_CALL(
		dsaio_pwrite_async(rig.handle, rig.files[0], memory, len, FILE_LIMIT - MIB, &op));
	CHECK_EQ(op_wait(op, -1), -EFBIG);
	CHECK(strstr(dsaio_op_error(op), "f"));
	done = dsaio_op_bytes(op);
	test_note("%" PRIu64 " bytes were done", done);
	CHECK(done <= MIB);
	CHECK(file_size(path) >= FILE_LIMIT - MIB + done);
	CHECK(file_size(path) <= FILE_LIMIT);
	CHECK(strstr(dsaio_op_error(op), test_text("size is now %" PRIu64, file_size(path))));
	file_check_pattern(path, FILE_LIMIT - MIB, done, SEED, FILE_LIMIT - MIB);
	dsaio_op_free(op);
	/* Daemon and client go on. */
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, MIB, 0), MIB);
}

TEST(extending_fails_beyond, "a failing write does not cut off what another op wrote beyond it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_op *op;
	const char *path;
	void *memory;

	rig.daemon = daemon_start_with(&(struct daemon_options){ .before_exec = limit_file_size });
	rig_open(&rig, &profile);
	path = daemon_path(rig.daemon, "f");
	file_make_sparse(path, FILE_LIMIT - MIB);
	rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4 * MIB, NULL, &memory));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, 4 * MIB, FILE_LIMIT - MIB,
				      &op));
	/* Somebody else makes the file longer meanwhile: their bytes stay. */
	{
		_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_WRONLY | O_CLOEXEC));

		CHECK_EQ(pwrite(fd, "theirs", 6, FILE_LIMIT + 16 * MIB), 6);
	}
	CHECK_EQ(op_wait(op, -1), -EFBIG);
	CHECK_EQ(file_size(path), FILE_LIMIT + 16 * MIB + 6);
	dsaio_op_free(op);
}

TEST_MAIN
