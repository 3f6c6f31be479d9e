/*
 * Closing loses nothing: ops that were submitted are done when dsaio_handle_close() or dsaio_disconnect()
 * returns, and an error that nobody has taken is their result.
 */
#include "tests/fuse.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define SEED 9
#define N_OPS 256u
#define OP_BYTES (64u << 10)

static const struct {
	const char *what;
	bool is_disconnect; /* else dsaio_handle_close() */
	bool is_private;    /* memory that is copied */
	int error;	    /* of one op */
} closes[] = {
	{ "dsaio_handle_close", false, false, 0 },
	{ "dsaio_handle_close, private memory", false, true, 0 },
	{ "dsaio_handle_close, one op fails", false, true, -EFAULT },
	{ "dsaio_disconnect", true, false, 0 },
	{ "dsaio_disconnect, private memory", true, true, 0 },
	{ "dsaio_disconnect, one op fails", true, true, -EFAULT },
};

/* One block of one op at a time, so that nearly none has started when the handle closes. */
static void slow_open(struct rig *rig)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;

	profile.block_size = OP_BYTES;
	profile.queue_depth = 1;
	rig_open(rig, &profile);
}

TEST_TABLE(writes, closes, "writes without ret_op were cancelled without a word")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const size_t bytes = (size_t)N_OPS * OP_BYTES;
	struct dsaio_file *file;
	const char *path;
	char *memory;
	void *slab;

	slow_open(&rig);
	path = daemon_path(rig.daemon, "f");
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	if (closes[row].is_private)
		memory = malloc(bytes);
	else
		CHECK_CALL(dsaio_alloc(rig.client, bytes, NULL, &slab));
	if (!closes[row].is_private)
		memory = slab;
	CHECK(memory);
	pattern_fill(memory, bytes, SEED, 0);
	for (unsigned i = 0; i < N_OPS; i++) {
		const uint64_t off = (uint64_t)i * OP_BYTES;

		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory + off, OP_BYTES, off, NULL));
	}
	if (closes[row].error) /* behind the others */
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, (void *)(uintptr_t)4096, OP_BYTES,
					      bytes, NULL));
	if (closes[row].is_disconnect) {
		CHECK_EQ(dsaio_disconnect(TAKE_PTR(rig.client)), closes[row].error);
	} else {
		CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), -1), closes[row].error);
	}
	if (closes[row].error)
		CHECK_MSG(strstr(dsaio_error(), "pwrite of 65536 bytes"), "%s", dsaio_error());
	file_check_pattern(path, 0, bytes, SEED, 0);
	if (closes[row].is_private)
		free(memory);
}

TEST(reported, "an error that a wait has reported is not reported again")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	int64_t result;

	slow_open(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, (void *)(uintptr_t)4096, 4096, 0, NULL));
	CHECK_EQ(dsaio_handle_wait(rig.handle, -1, &result), 0);
	CHECK_EQ(result, -EFAULT);
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), -1), 0);
}

static const struct {
	const char *what;
	bool is_freed, is_many;
} sights[] = { { "by dsaio_op_wait", false, false },
	       { "by dsaio_op_wait, freed", true, false },
	       { "by dsaio_op_wait_many, freed", true, true } };

TEST_TABLE(seen, sights, "an error that the caller has seen was returned again")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	int64_t result;

	slow_open(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, (void *)(uintptr_t)4096, 4096, 0, &op));
	if (sights[row].is_many)
		CHECK_EQ(dsaio_op_wait_many(&op, 1, -1, &result), 0);
	else
		CHECK_EQ(dsaio_op_wait(op, -1, &result), 0);
	CHECK_EQ(result, -EFAULT);
	if (sights[row].is_freed)
		dsaio_op_free(TAKE_PTR(op));
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), -1), 0);
	dsaio_op_free(op);
}

TEST(cancelled, "dsaio_handle_cancel: ops that no device has begun with end, and the close says so")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[N_OPS];
	struct dsaio_file *file;
	unsigned n_cancelled = 0;
	void *memory;

	slow_open(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	for (unsigned i = 0; i < N_OPS; i++)
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, MIB, (uint64_t)i * MIB,
					      &ops[i]));
	CHECK_EQ(dsaio_handle_cancel(rig.handle), 0);
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), -1), -ECANCELED);
	for (unsigned i = 0; i < N_OPS; i++) {
		const int64_t r = dsaio_op_result(ops[i]);

		CHECK_MSG(r == (int64_t)MIB || r == -ECANCELED, "%" PRId64, r);
		n_cancelled += r == -ECANCELED;
		dsaio_op_free(ops[i]);
	}
	test_note("%u of %u were cancelled", n_cancelled, N_OPS);
	CHECK(n_cancelled > N_OPS / 2);
}

TEST(parts, "dsaio_handle_cancel: vectored ops, and ops that are copied")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct iovec iov[2];
	struct dsaio_io io = { .opcode = DSAIO_WRITE, .iov = iov, .n_iov = 2 };
	struct dsaio_file *file;
	char *memory = malloc(64 * MIB);

	CHECK(memory);
	memset(memory, 1, 64 * MIB);
	slow_open(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	io.file = file;
	for (unsigned i = 0; i < 32; i++) {
		iov[0] = (struct iovec){ memory, 32 * MIB };
		iov[1] = (struct iovec){ memory + 32 * MIB, 32 * MIB };
		io.off = i * 64 * MIB;
		CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0, NULL), 1);
	}
	CHECK_EQ(dsaio_handle_cancel(rig.handle), 0);
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), -1), -ECANCELED);
	free(memory);
}

TEST(stopped, "a stopped daemon: dsaio_handle_cancel does not wait for it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *memory;

	slow_open(&rig);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory,
				      MIB, 0, NULL));
	process_stop(rig.daemon->pid);
	CHECK_EQ(dsaio_handle_cancel(rig.handle), 0);
	CHECK_EQ(dsaio_handle_close(rig.handle, 200000), -EINPROGRESS);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	(void)dsaio_handle_close(TAKE_PTR(rig.handle), -1); /* done or cancelled */
}

TEST(in_time, "an op that hangs: dsaio_handle_close returns in time, and the handle stays open")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	struct fuse fs;
	void *memory;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_CALL(dsaio_open(rig.client, fuse_path(&fs, 'r'), O_RDONLY, NULL, &file));
	atomic_store(&fs.control->hung_file, 'r');
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, 4096, 0, &op));
	CHECK_FAILS(dsaio_handle_close(rig.handle, 0), -EINPROGRESS,
		    "handle_close;stays open;cancel");
	CHECK_FAILS(dsaio_handle_close(rig.handle, 100000), -EINPROGRESS,
		    "handle_close;stays open");
	CHECK_EQ(dsaio_handle_close(rig.handle, -2), -EINPROGRESS); /* not forever */
	CHECK_EQ(op_is_done(op), 0);
	fuse_answer_hung(&fs);
	CHECK_EQ(op_wait(op, -1), 4096);
	dsaio_op_free(op);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096);
	CHECK_EQ(dsaio_handle_close(TAKE_PTR(rig.handle), 0), 0);
	dsaio_file_close(file);
}

TEST_MAIN
