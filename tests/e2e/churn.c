/*
 * Objects that come and go from many threads at once while ops are in flight: memory, files,
 * handles, connections, cancels.  All data is checked, and at the end the daemon holds nothing.
 */
#include "tests/harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_THREADS 8
#define SEED 9
#define FILE_BYTES (4 * MIB)

struct crowd {
	struct rig *rig;
	struct dsaio_file *file;
	void (*run)(struct crowd *crowd, unsigned thread, uint64_t *random);
	_Atomic unsigned n_started;
	_Atomic uint64_t n_done, n_cancelled;
};

static void *crowd_thread(void *arg)
{
	struct crowd *crowd = arg;
	unsigned n = atomic_fetch_add(&crowd->n_started, 1);
	uint64_t random = (uint64_t)test_seed() << 40 | (uint64_t)n << 32;

	crowd->run(crowd, n, &random);
	return NULL;
}

/* A rig with a file of a pattern, and so many threads that do the same. */
static void crowd_run(struct rig *rig, struct crowd *crowd)
{
	pthread_t threads[N_THREADS];

	rig_open(rig, NULL);
	file_make_pattern(daemon_path(rig->daemon, "f"), FILE_BYTES, SEED);
	crowd->rig = rig;
	crowd->file = rig_file(rig, "f", O_RDWR);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, crowd_thread, crowd), 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void check_read(struct dsaio_handle *handle, struct dsaio_file *file, void *memory,
		       uint64_t *random)
{
	uint64_t off = test_random(random) % (FILE_BYTES / 4096 - 4) * 4096;
	size_t len = (test_random(random) % 4 + 1) * 4096;

	CHECK_EQ(dsaio_pread(handle, file, memory, len, off), len);
	pattern_check(memory, len, SEED, off, "a read among the crowd");
}

/* ---- memory ---- */

static void memory_come_and_go(struct crowd *crowd, unsigned thread, uint64_t *random)
{
	struct {
		uint8_t *memory;
		size_t len;
	} held[16] = { 0 };

	for (unsigned i = 0; i < 1500; i++) {
		size_t k = test_random(random) % ARRAY_SIZE(held), len;
		void *memory;

		if (held[k].memory) {
			pattern_check(held[k].memory, held[k].len, thread, k, "memory of mine");
			CHECK_EQ(dsaio_free(crowd->rig->client, held[k].memory), 0);
			held[k].memory = NULL;
			continue;
		}
		len = test_random(random) % 16 ? test_random(random) % 65536 + 1
					       : test_random(random) % (8 * MIB) + 1;
		CHECK_CALL(dsaio_alloc(crowd->rig->client, len, NULL, &memory));
		for (size_t at = 0; at < len; at += 997)
			CHECK(!((uint8_t *)memory)[at]);
		if (len >= 16384)
			check_read(crowd->rig->handle, crowd->file, memory, random);
		pattern_fill(memory, len, thread, k);
		held[k].memory = memory;
		held[k].len = len;
	}
	for (size_t k = 0; k < ARRAY_SIZE(held); k++)
		CHECK_EQ(dsaio_free(crowd->rig->client, held[k].memory), 0);
}

TEST(memory, "eight threads take and give memory, and no two have the same")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .run = memory_come_and_go };

	crowd_run(&rig, &crowd);
}

/* ---- files ---- */

static void files_come_and_go(struct crowd *crowd, unsigned thread, uint64_t *random)
{
	const char *own = daemon_path(crowd->rig->daemon, test_text("own%u", thread));
	struct dsaio_client *client = crowd->rig->client;
	void *memory;

	CHECK_CALL(dsaio_alloc(client, 65536, NULL, &memory));
	for (unsigned i = 0; i < 300; i++) {
		struct dsaio_file *file;
		struct dsaio_op *op;

		CHECK_CALL(dsaio_open(client, daemon_path(crowd->rig->daemon, "f"), O_RDONLY, NULL,
				      &file));
		check_read(crowd->rig->handle, file, memory, random);
		dsaio_file_close(file);

		/* Closed with an op in flight, which goes on. */
		CHECK_CALL(dsaio_open(client, own, O_RDWR | O_CREAT | O_TRUNC, NULL, &file));
		pattern_fill(memory, 65536, i, 0);
		CHECK_CALL(dsaio_pwrite_async(crowd->rig->handle, file, memory, 65536, 0, &op));
		dsaio_file_close(file);
		CHECK_EQ(op_wait(op, -1), 65536);
		dsaio_op_free(op);
		file_check_pattern(own, 0, 65536, i, 0);
	}
}

TEST(files, "eight threads open and close files, also with ops in flight")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .run = files_come_and_go };

	crowd_run(&rig, &crowd);
	CHECK_EQ(handle_wait(rig.handle, -1), N_THREADS * 300);
}

/* ---- handles ---- */

static void handles_come_and_go(struct crowd *crowd, unsigned thread, uint64_t *random)
{
	struct dsaio_client *client = crowd->rig->client;
	void *memory;

	CHECK_CALL(dsaio_alloc(client, 16 * 65536, NULL, &memory));
	for (unsigned i = 0; i < 100; i++) {
		struct dsaio_profile profile = DSAIO_PROFILE_INIT;
		struct dsaio_handle *handle;

		profile.intra_op_parallelism = 1 + thread % 3;
		profile.block_size = 4096u << test_random(random) % 6;
		CHECK_CALL(profile_open(client, i % 2 ? &profile : NULL, &handle));
		if (i % 3)
			check_read(handle, crowd->file, memory, random);
		for (unsigned k = 0; k < 16; k++)
			CHECK_CALL(dsaio_pread_async(handle, crowd->file,
						     (char *)memory + k * 65536, 65536, k * 65536,
						     NULL));
		if (i % 2)
			CHECK_EQ(handle_wait(handle, -1), 16);
		(void)dsaio_handle_close(handle, -1); /* else with all of them in flight */
	}
	CHECK_CALL(dsaio_free(client, memory)); /* nobody uses it any more */
}

TEST(handles, "eight threads open and close handles, also with ops in flight")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .run = handles_come_and_go };

	crowd_run(&rig, &crowd);
}

/* ---- connections ---- */

static void clients_come_and_go(struct crowd *crowd, unsigned thread, uint64_t *random)
{
	for (unsigned i = 0; i < 40; i++) {
		_cleanup_(rig_close) struct rig mine = { .daemon = crowd->rig->daemon };
		void *memory;

		rig_open(&mine, NULL);
		if (i % 4 == 0)
			continue;
		rig_file(&mine, "f", O_RDONLY);
		CHECK_CALL(dsaio_alloc(mine.client, MIB, NULL, &memory));
		if (i % 2)
			check_read(mine.handle, mine.files[0], memory, random);
		for (unsigned k = 0; k < 16; k++)
			CHECK_CALL(dsaio_pread_async(mine.handle, mine.files[0],
						     (char *)memory + k * 65536, 65536, k * 65536,
						     NULL));
		if (i % 3 == thread % 3)
			CHECK_EQ(handle_wait(mine.handle, -1), 16);
	}
}

TEST(clients, "eight threads connect and disconnect, also with ops in flight")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .run = clients_come_and_go };

	crowd_run(&rig, &crowd);
	rig_close(&rig);
	CHECK(daemon_wait_clients(rig.daemon, 0, 0));
}

/* ---- cancels ---- */

static void cancels(struct crowd *crowd, unsigned thread, uint64_t *random)
{
	enum { N = 16 };
	const size_t len = 256 * KIB;
	struct dsaio_client *client = crowd->rig->client;
	struct dsaio_op *ops[N];
	void *memory;

	CHECK_CALL(dsaio_alloc(client, N * len, NULL, &memory));
	for (unsigned i = 0; i < 150; i++) {
		for (unsigned k = 0; k < N; k++)
			CHECK_CALL(dsaio_pread_async(crowd->rig->handle, crowd->file,
						     (char *)memory + k * len, len, k * len,
						     &ops[k]));
		for (unsigned k = 0; k < N / 2; k++)
			CHECK_EQ(dsaio_op_cancel(ops[test_random(random) % N]), 0);
		for (unsigned k = 0; k < N; k++) {
			int64_t r = op_wait(ops[k], -1);

			if (r == -ECANCELED) {
				(void)atomic_fetch_add(&crowd->n_cancelled, 1);
			} else {
				CHECK_EQ(r, len);
				pattern_check((char *)memory + k * len, len, SEED, k * len,
					      test_text("thread %u", thread));
				(void)atomic_fetch_add(&crowd->n_done, 1);
			}
			dsaio_op_free(ops[k]);
		}
	}
	CHECK_CALL(dsaio_free(client, memory));
}

TEST(cancel, "eight threads cancel what they just submitted: each op ends once, whole or not")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct crowd crowd = { .run = cancels };

	crowd_run(&rig, &crowd);
	test_note("%" PRIu64 " ops done, %" PRIu64 " cancelled", atomic_load(&crowd.n_done),
		  atomic_load(&crowd.n_cancelled));
	CHECK_EQ(crowd.n_done + crowd.n_cancelled, N_THREADS * 150 * 16);
}

/* ---- files that grow ---- */

TEST(grow, "many writes behind the end, last first: the file ends at the last byte, all data there")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	enum { N = 64 };
	static const size_t lens[] = { 65536, 65537, 4096, 511, 100000 };
	const char *path;
	void *memory;

	CHECK_CALL(dsaio_alloc(rig.client, N * 131072, NULL, &memory));
	for (size_t l = 0; l < ARRAY_SIZE(lens); l++) {
		const size_t len = lens[l];

		rig_file(&rig, test_text("f%zu", len), O_RDWR | O_CREAT);
		path = daemon_path(rig.daemon, test_text("f%zu", len));
		for (unsigned i = N; i-- > 0;) {
			pattern_fill((char *)memory + i * 131072, len, len, i * len);
			CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[l],
						      (char *)memory + i * 131072, len, i * len,
						      NULL));
		}
		CHECK_EQ(handle_wait(rig.handle, -1), N);
		CHECK_EQ(file_size(path), N * len);
		file_check_pattern(path, 0, N * len, len, 0);
	}
}

TEST(grow_cancel,
     "a cancelled write behind the end leaves the file 64 MiB longer than its data at most")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const size_t len = 256 * MIB;
	const char *path;
	void *memory;

	profile.queue_depth = 1;
	profile.block_size = 64u << 10;
	rig_open(&rig, &profile);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	pattern_fill(memory, len, SEED, 4096);
	path = daemon_path(rig.daemon, "new");
	rig_file(&rig, "new", O_RDWR | O_CREAT);
	for (unsigned i = 0; i < 3; i++) {
		struct dsaio_op *op;
		int64_t r;

		CHECK_EQ(dsaio_file_truncate(rig.files[0], 4096), 0);
		CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, len, 4096, &op));
		(void)dsaio_op_wait(op, 5000 * i, NULL); /* so that some of it is done */
		CHECK_CALL(dsaio_op_cancel(op));
		r = op_wait(op, -1);
		CHECK_MSG(r == -ECANCELED || r == (int64_t)len, "%" PRId64, r);
		CHECK(file_size(path) >= 4096 + dsaio_op_bytes(op));
		CHECK(file_size(path) <= 4096 + dsaio_op_bytes(op) + 64 * MIB + profile.block_size);
		file_check_pattern(path, 4096, dsaio_op_bytes(op), SEED, 4096);
		dsaio_op_free(op);
	}
}

TEST_MAIN
