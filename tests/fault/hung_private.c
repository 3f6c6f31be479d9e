/*
 * Private memory while a store's reads or writes hang: its ops keep a part of what private memory is copied
 * through, and nothing that the ops of other stores wait for.  When it answers, all have their bytes.
 */
#include "tests/fuse.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SEED 3
#define OP_BYTES (8 * MIB)
#define HEALTHY_BYTES (24 * MIB)
#define HUNG_MAX 40
#define ROUNDS 5
#define WAIT_USEC 20000000 /* for what takes milliseconds */

static const struct {
	const char *what;
	unsigned n_async, n_blocking;
	uint32_t entries; /* of a handle's rings; 0: as usual */
	bool is_write;
} hangs[] = {
	{ "three async reads", 3, 0, 0, false },
	{ "three async reads that fill their ring", 3, 0, 4, false },
	{ "40 async reads", 40, 0, 0, false },
	{ "40 blocking reads", 0, 40, 0, false },
	{ "20 async and 20 blocking reads", 20, 20, 0, false },
	{ "20 async and 20 blocking writes, each behind the last", 20, 20, 0, true },
};

struct hung {
	pthread_t thread;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op; /* NULL: a thread's, blocking */
	uint8_t *memory;
	int64_t result;
	bool is_write;
};

static void *run_blocking(void *arg)
{
	struct hung *hung = arg;

	if (hung->is_write)
		hung->result = dsaio_pwrite(hung->handle, hung->file, hung->memory, OP_BYTES, 0);
	else
		hung->result = dsaio_pread(hung->handle, hung->file, hung->memory, OP_BYTES, 0);
	return NULL;
}

static void start_async(struct hung *hung)
{
	if (hung->is_write)
		CHECK_CALL(dsaio_pwrite_async(hung->handle, hung->file, hung->memory, OP_BYTES, 0,
					      &hung->op));
	else
		CHECK_CALL(dsaio_pread_async(hung->handle, hung->file, hung->memory, OP_BYTES, 0,
					     &hung->op));
}

/* All that a program does with private memory, on the healthy store. */
static void check_healthy(struct rig *rig, struct dsaio_handle *handle, uint8_t *memory,
			  unsigned round)
{
	static const uint64_t offs[] = { 0, OP_BYTES, 2 * OP_BYTES };
	struct dsaio_op *ops[ARRAY_SIZE(offs)];
	struct dsaio_file *file = rig->files[0];

	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		pattern_fill(memory + offs[i], OP_BYTES, SEED + round, offs[i]);
		CHECK_CALL(dsaio_pwrite_async(handle, file, memory + offs[i], OP_BYTES, offs[i],
					      &ops[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		CHECK_EQ(op_wait(ops[i], WAIT_USEC), OP_BYTES);
		dsaio_op_free(ops[i]);
	}
	memset(memory, 0xee, HEALTHY_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++)
		CHECK_CALL(dsaio_pread_async(handle, file, memory + offs[i], OP_BYTES, offs[i],
					     &ops[i]));
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		CHECK_EQ(op_wait(ops[i], WAIT_USEC), OP_BYTES);
		dsaio_op_free(ops[i]);
	}
	pattern_check(memory, HEALTHY_BYTES, SEED + round, 0, "async");
	pattern_fill(memory, OP_BYTES, SEED + round + 1, 0);
	CHECK_EQ(dsaio_pwrite(handle, file, memory, OP_BYTES, 0), OP_BYTES);
	memset(memory, 0xee, OP_BYTES);
	CHECK_EQ(dsaio_pread(handle, file, memory, OP_BYTES, 0), OP_BYTES);
	pattern_check(memory, OP_BYTES, SEED + round + 1, 0, "blocking");
}

TEST_TABLE(others, hangs, "ops on private memory hang on a store: those on another store go on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static struct hung hung[HUNG_MAX];
	const unsigned n = hangs[row].n_async + hangs[row].n_blocking;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle, *other;
	uint8_t *memory = malloc(HEALTHY_BYTES);
	struct fuse fs;

	test_needs_root();
	CHECK(memory);
	fuse_start(&fs, 0);
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("f=%s", fs.dir)));
	rig_open(&rig, NULL);
	options.entries = hangs[row].entries;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &other));
	file_make_pattern(daemon_path(rig.daemon, "f"), HEALTHY_BYTES, SEED);
	rig_file(&rig, "f", O_RDWR);
	rig_file(&rig, fuse_path(&fs, 'a'), O_RDWR);
	check_healthy(&rig, handle, memory, 0);

	atomic_store(&fs.control->is_io_hung, true);
	for (unsigned i = 0; i < n; i++) {
		hung[i] = (struct hung){ .handle = handle,
					 .file = rig.files[1],
					 .memory = malloc(OP_BYTES),
					 .is_write = hangs[row].is_write };
		CHECK(hung[i].memory);
		memset(hung[i].memory, 0xee, OP_BYTES);
		if (i < hangs[row].n_async)
			start_async(&hung[i]);
		else
			CHECK_EQ(pthread_create(&hung[i].thread, NULL, run_blocking, &hung[i]), 0);
	}
	while (!atomic_load(&fs.control->n_hung))
		(void)poll(NULL, 0, 1); /* the test's time is the limit */
	for (unsigned round = 1; round <= ROUNDS; round++) {
		check_healthy(&rig, handle, memory, round);
		check_healthy(&rig, other, memory, round);
	}
	for (unsigned i = 0; i < hangs[row].n_async; i++)
		CHECK_EQ(op_is_done(hung[i].op), 0);

	fuse_answer_hung(&fs);
	for (unsigned i = 0; i < n; i++) {
		if (hung[i].op) {
			hung[i].result = op_wait(hung[i].op, WAIT_USEC);
			dsaio_op_free(hung[i].op);
		} else {
			CHECK_EQ(pthread_join(hung[i].thread, NULL), 0);
		}
		CHECK_EQ(hung[i].result, OP_BYTES);
		if (!hangs[row].is_write)
			pattern_check(hung[i].memory, OP_BYTES, FUSE_SEED, 0, "what hung");
		free(hung[i].memory);
	}
	(void)dsaio_handle_close(handle, -1);
	(void)dsaio_handle_close(other, -1);
	free(memory);
}

TEST_MAIN
