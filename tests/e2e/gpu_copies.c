/*
 * Copies by a GPU are queued ahead, beside the I/O.  standin_let() holds them, so that nothing here
 * depends on time.
 */
#include "tests/gpu/program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#define OP_BYTES (20 * MIB + 77) /* more pieces than may be under way */
#define PIECES_MAX 12u		 /* JOB_PIECES_MAX */

static const struct way {
	const char *what;
	bool is_write, is_async;
} ways[] = {
	{ "a blocking read", false, false },
	{ "a blocking write", true, false },
	{ "an async read", false, true },
	{ "an async write", true, true },
};

/* ---- an op in a thread of its own ---- */

struct call {
	const struct way *way;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	char *memory;
	struct dsaio_op *op; /* of an async one */
	pthread_t thread;
	int64_t result;
	char why[512];
};

static void *call_run(void *arg)
{
	struct call *call = arg;

	call->result = call->way->is_write
			       ? dsaio_pwrite(call->handle, call->file, call->memory, OP_BYTES, 0)
			       : dsaio_pread(call->handle, call->file, call->memory, OP_BYTES, 0);
	(void)snprintf(call->why, sizeof(call->why), "%s", dsaio_error());
	return NULL;
}

static void call_start(struct call *call, struct rig *rig, int row)
{
	call->way = &ways[row];
	if (!call->handle)
		call->handle = rig->handle;
	call->file = rig->files[0];
	if (!call->way->is_async)
		CHECK_EQ(pthread_create(&call->thread, NULL, call_run, call), 0);
	else if (call->way->is_write)
		CHECK_CALL(dsaio_pwrite_async(call->handle, call->file, call->memory, OP_BYTES, 0,
					      &call->op));
	else
		CHECK_CALL(dsaio_pread_async(call->handle, call->file, call->memory, OP_BYTES, 0,
					     &call->op));
}

static int64_t call_end(struct call *call)
{
	if (!call->way->is_async) {
		CHECK_EQ(pthread_join(call->thread, NULL), 0);
		return call->result;
	}
	call->result = op_wait(call->op, -1);
	(void)snprintf(call->why, sizeof(call->why), "%s", dsaio_error());
	dsaio_op_free(call->op);
	return call->result;
}

/* All bytes are there. */
static void call_check(const struct call *call, const char *path, uint64_t seed)
{
	if (call->way->is_write)
		file_check_pattern(path, 0, OP_BYTES, seed, 0);
	else
		pattern_check(program_bytes(call->memory), OP_BYTES, seed, 0, "GPU memory");
}

/* A file of pattern 1, memory of pattern 2 to write, and no copy that may end. */
static const char *rig_held(struct rig *rig, struct call *call, const char *standin)
{
	const char *path;

	rig_gpu(rig, standin);
	path = daemon_path(rig->daemon, "f");
	file_make_pattern(path, OP_BYTES, 1);
	(void)rig_file(rig, "f", O_RDWR);
	call->memory = program_alloc(0, OP_BYTES);
	pattern_fill(program_bytes(call->memory), OP_BYTES, 2, 0);
	gpu.look.standin_let(0);
	return path;
}

/* Waits until so many copies were queued in all. */
static void await_copies(uint64_t n)
{
	while (gpu.look.standin_counts().n_copies < n)
		(void)usleep(1000);
	CHECK_EQ(gpu.look.standin_counts().n_copies, n);
}

/* The memory is fine for another op of each kind. */
static void check_after(struct rig *rig, const char *path, char *memory)
{
	gpu.look.standin_let(UINT64_MAX);
	pattern_fill(program_bytes(memory), OP_BYTES, 3, 0);
	CHECK_EQ(dsaio_pwrite(rig->handle, rig->files[0], memory, OP_BYTES, 0), OP_BYTES);
	file_check_pattern(path, 0, OP_BYTES, 3, 0);
	memset(program_bytes(memory), 0, OP_BYTES);
	CHECK_EQ(dsaio_pread(rig->handle, rig->files[0], memory, OP_BYTES, 0), OP_BYTES);
	pattern_check(program_bytes(memory), OP_BYTES, 3, 0, "GPU memory");
}

/* ---- ahead ---- */

TEST_TABLE(ahead, ways, "copies are queued ahead, and I/O goes on meanwhile")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };
	const char *path = rig_held(&rig, &call, "");

	call_start(&call, &rig, row);
	await_copies(PIECES_MAX);
	/* The first one's end gives its slot to a further piece, whose I/O is done beside eleven copies. */
	gpu.look.standin_let(1);
	await_copies(PIECES_MAX + 1);
	CHECK_EQ(gpu.look.standin_counts().n_ahead, PIECES_MAX);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_EQ(call_end(&call), OP_BYTES);
	call_check(&call, path, call.way->is_write ? 2 : 1);
	rig_gone(&rig);
}

TEST(beside, "ops on other memory go on while copies by a GPU do not end")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };
	char host[4096], *gpu1;
	struct dsaio_op *op;

	(void)rig_held(&rig, &call, "");
	gpu1 = program_alloc(0, 4096);
	call_start(&call, &rig, 2);
	await_copies(PIECES_MAX);
	CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], host, sizeof(host), 0, &op));
	CHECK_EQ(op_wait(op, -1), sizeof(host));
	dsaio_op_free(op);
	pattern_check(host, sizeof(host), 1, 0, "host memory");
	/* The other direction is another stream, but held, too. */
	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], gpu1, 4096, 24 * MIB, &op));
	await_copies(PIECES_MAX + 1);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_EQ(op_wait(op, -1), 4096);
	dsaio_op_free(op);
	CHECK_EQ(call_end(&call), OP_BYTES);
	rig_gone(&rig);
}

TEST(full_ring, "more copies are over than the ring has room for")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	enum { N = 24 };
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle;
	struct dsaio_op *ops[N];
	char *memory;

	rig_gpu(&rig, "");
	memory = program_alloc(0, N * 64 * KIB);
	pattern_fill(program_bytes(memory), N * 64 * KIB, 2, 0);
	(void)rig_file(&rig, "f", O_RDWR | O_CREAT);
	options.entries = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	gpu.look.standin_let(0);
	for (unsigned i = 0; i < N; i++)
		CHECK_CALL(dsaio_pwrite_async(handle, rig.files[0], memory + i * 64 * KIB, 64 * KIB,
					      i * 64 * KIB, &ops[i]));
	await_copies(N);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_CALL(dsaio_op_wait_many(ops, N, -1, NULL));
	dsaio_op_free_many(ops, N);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, N * 64 * KIB, 2, 0);
	(void)dsaio_handle_close(handle, -1);
	rig_gone(&rig);
}

/* ---- ends that come before the copies are over ---- */

static const struct {
	const char *what;
	int way;
} async_ways[] = { { "a read", 2 }, { "a write", 3 } };

TEST_TABLE(cancelled, async_ways, "an op that is cancelled ends when its copies are over")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };
	const char *path = rig_held(&rig, &call, "");

	call_start(&call, &rig, async_ways[row].way);
	await_copies(PIECES_MAX);
	CHECK_CALL(dsaio_op_cancel(call.op));
	CHECK_EQ(op_wait(call.op, 20000), -ETIMEDOUT);
	gpu.look.standin_let(1);
	CHECK_EQ(op_wait(call.op, 20000), -ETIMEDOUT);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_EQ(call_end(&call), -ECANCELED);
	CHECK_EQ(gpu.look.standin_counts().n_copies, PIECES_MAX);
	if (call.way->is_write)
		file_check_pattern(path, 0, OP_BYTES, 1, 0);
	check_after(&rig, path, call.memory);
	rig_gone(&rig);
}

TEST_TABLE(late, ways, "an op whose time is over ends when its copies are over")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct call call = { .op = NULL };
	const char *path = rig_held(&rig, &call, "");
	uint64_t n_copies =
		0; /* of this op; on a busy machine its time may be over before the first */
	int64_t result;

	options.op_timeout_usec = 1000000;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &call.handle));
	while (!n_copies) {
		const uint64_t before = gpu.look.standin_counts().n_copies;

		gpu.look.standin_let(0);
		call_start(&call, &rig, row);
		for (unsigned i = 0; i < 1000 && !n_copies; i++) {
			(void)usleep(1000);
			n_copies = gpu.look.standin_counts().n_copies - before;
		}
		(void)usleep(
			1000000); /* an op that has copies began before that: its time is over */
		gpu.look.standin_let(UINT64_MAX);
		result = call_end(&call);
		if (n_copies)
			CHECK_EQ(result, -ETIMEDOUT);
		CHECK(gpu.look.standin_counts().n_copies - before <= PIECES_MAX);
	}
	check_after(&rig, path, call.memory);
	(void)dsaio_handle_close(call.handle, -1);
	rig_gone(&rig);
}

TEST_TABLE(killed, ways, "the daemon is killed while copies are queued")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };

	(void)rig_held(&rig, &call, "");
	call_start(&call, &rig, row);
	await_copies(PIECES_MAX);
	daemon_kill(rig.daemon);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_EQ(call_end(&call), -ECONNRESET);
	rig_gone(&rig);
}

static void *let_all(void *arg)
{
	(void)arg;
	(void)usleep(20000); /* earlier or later than the disconnect's wait: both are well */
	gpu.look.standin_let(UINT64_MAX);
	return NULL;
}

TEST_TABLE(closed, async_ways, "the client disconnects while copies are queued")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };
	pthread_t thread;

	(void)rig_held(&rig, &call, "");
	call_start(&call, &rig, async_ways[row].way);
	await_copies(PIECES_MAX);
	dsaio_op_free(call.op);
	CHECK_EQ(pthread_create(&thread, NULL, let_all, NULL), 0);
	rig_gone(&rig);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* ---- errors ---- */

TEST_TABLE(broken, ways,
	   "a copy that fails later is the op's error, and those behind it are awaited")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct call call = { .op = NULL };
	char host[4096];

	(void)rig_held(&rig, &call, "copy_fails=3");
	call_start(&call, &rig, row);
	await_copies(PIECES_MAX);
	gpu.look.standin_let(UINT64_MAX);
	CHECK_EQ(call_end(&call), -EIO);
	CHECK_MSG(strstr(call.why, "GPU memory") && strstr(call.why, "(719)"), "%s", call.why);
	/* All later copies of that stream fail.  Other memory is fine. */
	call_start(&call, &rig, row);
	CHECK_EQ(call_end(&call), -EIO);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], host, sizeof(host), 0), sizeof(host));
	rig_gone(&rig);
}

TEST_MAIN
