/*
 * Many ops, many threads, many handles and stores; all the ways to learn that an op has ended.
 *
 * It is over 600 lines because its parts share the batches of ops and the checks of their results.
 */
#include "tests/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SEED 3

TEST(hundred_thousand, "100,000 async ops on one handle before one wait")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const unsigned n = 100000, n_blocks = 256;
	struct dsaio_file *file;
	uint8_t *memory;
	void *start;

	file_make_pattern(daemon_path(rig.daemon, "f"), n_blocks * 4096, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, n_blocks * 4096, NULL, &start));
	memory = start;
	for (unsigned i = 0; i < n; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i % n_blocks * 4096, 4096,
					     i % n_blocks * 4096, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), n);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
	pattern_check(memory, n_blocks * 4096, SEED, 0, "read");
}

TEST(hundred_thousand_kept, "100,000 ops that the caller keeps, each with its result")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const unsigned n = 100000;
	_cleanup_(freep) struct dsaio_op **ops = calloc(n, sizeof(*ops));
	struct dsaio_file *file;
	void *memory;

	CHECK(ops);
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096 + 100, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 2 * 4096, NULL, &memory));
	for (unsigned i = 0; i < n; i++) /* one in two ends at the end of the file */
		CHECK_CALL(dsaio_pread_async(rig.handle, file, (char *)memory + i % 2 * 4096, 4096,
					     i % 2 * 4096, &ops[i]));
	CHECK_EQ(handle_wait(rig.handle, -1), n);
	for (unsigned i = 0; i < n; i++) {
		CHECK_EQ(op_is_done(ops[i]), 1);
		CHECK_EQ(dsaio_op_result(ops[i]), i % 2 ? 100 : 4096);
		dsaio_op_free(ops[i]);
	}
}

static const struct {
	const char *what;
	bool pinned;
} memories[] = { { "pinned memory", true }, { "private memory", false } };

static uint8_t *memory_new(struct rig *rig, bool pinned, size_t len)
{
	void *memory;

	if (pinned)
		CHECK_CALL(dsaio_alloc(rig->client, len, NULL, &memory));
	else
		memory = test_text("%*s", (int)len, ""); /* lives to the end, at no good address */
	return memory;
}

TEST_TABLE(count, memories,
	   "dsaio_handle_wait counts async ops that ended since the last, not blocking ones")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *op, *taken[4];
	struct dsaio_file *file;
	uint8_t *buf;

	CHECK_EQ(handle_wait(rig.handle, 0), 0);
	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	file = rig_file(&rig, "f", O_RDWR);
	buf = memory_new(&rig, memories[row].pinned, 4 * 4096);
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, 4096, 0), 4096);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);

	for (unsigned i = 0; i < 3; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, buf + i * 4096, 4096, 0, NULL));
	CHECK_EQ(dsaio_pread(rig.handle, file, buf + 3 * 4096, 4096, 0), 4096);
	CHECK_EQ(handle_wait(rig.handle, -1), 3);

	/* One that was waited for by itself counts, too. */
	CHECK_CALL(dsaio_pread_async(rig.handle, file, buf, 4096, 0, &op));
	CHECK_EQ(op_wait(op, -1), 4096);
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	dsaio_op_free(op);

	/* An op that dsaio_handle_reap() has returned does not. */
	CHECK_CALL(dsaio_pread_async(rig.handle, file, buf, 4096, 0, &op));
	CHECK_EQ(op_wait(op, -1), 4096);
	CHECK_EQ(ops_reap(rig.handle, taken, 0, 4, 0), 1);
	CHECK(taken[0] == op);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
	dsaio_op_free(op);

	CHECK_CALL(dsaio_fsync_async(rig.handle, file, 0, NULL));
	CHECK_CALL(dsaio_fsync_async(rig.handle, file, DSAIO_DATASYNC, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 2);
}

TEST(reap,
     "dsaio_handle_reap tells of each op once, with its data, also of those submitted with NULL")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	enum { N = 64 };
	struct dsaio_op *ops[N];
	struct dsaio_completion taken[16];
	unsigned n_nameless = 0, n_seen = 0, n_held = 0;
	bool seen[N] = { false };
	struct dsaio_file *file;
	uint8_t *memory;
	void *start;
	int fd;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, N * 512, NULL, &start));
	memory = start;
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	for (unsigned i = 0; i < N; i++) {
		struct dsaio_io io = { .opcode = DSAIO_READ,
				       .file = file,
				       .buf = memory + i * 512,
				       .len = 512,
				       .off = 512 * i,
				       .user_data = &seen[i] };

		if (i % 4 == 0)
			CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i * 512, 512,
						     512 * i, NULL));
		else
			CHECK_EQ(dsaio_submit(rig.handle, &io, sizeof(struct dsaio_io), 1, 0,
					      i % 4 == 1 ? NULL : &ops[i]),
				 1);
	}
	while (n_seen < N) {
		int n = (int)CHECK_CALL(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0,
							  ARRAY_SIZE(taken), 0));

		CHECK(n <= (int)ARRAY_SIZE(taken));
		for (int i = 0; i < n; i++) {
			bool *data = taken[i].user_data;

			CHECK_EQ(taken[i].result, 512);
			CHECK_EQ(taken[i].bytes, 512);
			CHECK_EQ(taken[i].flags, 0);
			if (data) {
				CHECK(!*data);
				*data = true;
			} else
				n_nameless++;
			n_held += !!taken[i].op;
			dsaio_op_free(taken[i].op);
			n_seen++;
		}
		if (!n && n_seen < N)
			CHECK(wait_readable(fd, 60000000));
	}
	CHECK_EQ(n_nameless, N / 4);
	CHECK_EQ(n_held, N / 2); /* the others are detached */
	for (unsigned i = 0; i < N; i++)
		CHECK(seen[i] || i % 4 == 0);
	CHECK_EQ(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0, ARRAY_SIZE(taken), 0),
		 0);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
	pattern_check(memory, N * 512, SEED, 0, "read");
}

TEST(freed, "ops whose owner freed them early still end, are counted, and are not reaped")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_op *op, *taken[4];
	struct dsaio_file *file;
	void *memory;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 65536, NULL, &memory));
	for (unsigned i = 0; i < 16; i++) {
		CHECK_CALL(dsaio_pread_async(rig.handle, file, (char *)memory + 4096 * i, 4096,
					     4096 * i, &op));
		dsaio_op_free(op);
	}
	CHECK_EQ(handle_wait(rig.handle, -1), 16);
	CHECK_EQ(ops_reap(rig.handle, taken, 0, 4, 0), 0);
	pattern_check(memory, 65536, SEED, 0, "read");
}

TEST_TABLE(handle_fd, memories, "dsaio_handle_fd stays the same and wakes poll for each op")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_completion taken[8];
	struct dsaio_file *file;
	uint8_t *buf;
	int fd;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	buf = memory_new(&rig, memories[row].pinned, 4096);
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle)); /* before there is a channel */
	for (unsigned round = 0; round < 2000; round++) {
		int n;

		CHECK_EQ(dsaio_handle_fd(rig.handle), fd);
		CHECK_EQ(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0, 8, 0),
			 0); /* arms */
		CHECK_CALL(
			dsaio_pread_async(rig.handle, file, buf, 4096, 4096 * (round % 16), NULL));
		/* By poll alone: what dsaio_handle_reap() would say now does not count. */
		CHECK_MSG(wait_readable(fd, 60000000), "round %u: no wake-up", round);
		while (!(n = (int)CHECK_CALL(
				 dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0, 8, 0))))
			CHECK_MSG(wait_readable(fd, 60000000), "round %u: no wake-up", round);
		CHECK_EQ(n, 1);
		CHECK_EQ(taken[0].result, 4096);
		pattern_check(buf, 4096, SEED, 4096 * (round % 16), "read");
	}
}

/*
 * The wake-up for an op may come after its completion was consumed, and after the next arming: once,
 * and dsaio_handle_reap() then says 0 again.
 */
static void quiet_after_reap(struct dsaio_handle *handle, struct pollfd *pollfd)
{
	struct dsaio_op *taken[8];

	CHECK_EQ(ops_reap(handle, taken, 0, 8, 0), 0);
	if (poll(pollfd, 1, 100)) {
		CHECK_EQ(ops_reap(handle, taken, 0, 8, 0), 0);
		CHECK_EQ(poll(pollfd, 1, 100), 0);
	}
}

TEST_TABLE(handle_fd_quiet, memories, "dsaio_handle_fd is not readable while nothing has ended")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct pollfd pollfd;
	struct dsaio_file *file;
	uint8_t *buf;

	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	buf = memory_new(&rig, memories[row].pinned, 4096);
	pollfd = (struct pollfd){ .fd = dsaio_handle_fd(rig.handle), .events = POLLIN };
	CHECK_EQ(dsaio_pread(rig.handle, file, buf, 4096, 0), 4096);
	quiet_after_reap(rig.handle, &pollfd);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, buf, 4096, 0, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	quiet_after_reap(rig.handle, &pollfd);
}

/* ---- cancel, time-out ---- */

TEST_TABLE(cancel, memories,
	   "cancelled ops end once, with -ECANCELED or whole, and the others are untouched")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	enum { N = 64 };
	const size_t len = MIB;
	unsigned n_cancelled = 0;
	struct dsaio_op *ops[N];
	struct dsaio_file *file;
	uint8_t *memory;

	profile.queue_depth = 1; /* a long queue, so that most have not started */
	profile.block_size = 64u << 10;
	rig_open(&rig, &profile);
	file_make_pattern(daemon_path(rig.daemon, "f"), N * len, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = memory_new(&rig, memories[row].pinned, N * len);
	for (unsigned i = 0; i < N; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i * len, len, i * len,
					     &ops[i]));
	for (unsigned i = N; i-- > N / 2;)
		CHECK_CALL(dsaio_op_cancel(ops[i]));
	for (unsigned i = 0; i < N; i++) {
		int64_t r = op_wait(ops[i], -1);

		if (r == -ECANCELED) {
			CHECK(i >= N / 2);
			CHECK(strlen(dsaio_op_error(ops[i])) > 0);
			n_cancelled++;
		} else {
			CHECK_EQ(r, len);
			pattern_check(memory + i * len, len, SEED, i * len, "not cancelled");
		}
		CHECK_EQ(dsaio_op_result(ops[i]), r);
		CHECK_EQ(dsaio_op_cancel(ops[i]), 0);
		CHECK_EQ(dsaio_op_result(ops[i]), r);
		dsaio_op_free(ops[i]);
	}
	CHECK(n_cancelled > 0);
	/* The first failure is reported, then all are forgotten. */
	CHECK_EQ(handle_wait(rig.handle, -1), -ECANCELED);
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
}

TEST(wait_timeout, "a time-out of a wait ends the wait, not the op")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const size_t len = 4 * MIB;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;
	int64_t r;

	file_make_pattern(daemon_path(rig.daemon, "f"), len, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096); /* the channel is open */
	CHECK_EQ(handle_wait(rig.handle, -1), 0);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, len, 0, &op));
	CHECK_EQ(op_wait(op, 0), -ETIMEDOUT);
	CHECK_EQ(op_is_done(op), 0);
	CHECK_EQ(dsaio_op_result(op), -EINPROGRESS);
	CHECK_EQ(op_wait(op, 1000), -ETIMEDOUT);
	CHECK_EQ(handle_wait(rig.handle, 1000), -ETIMEDOUT);
	CHECK_EQ(dsaio_free(rig.client, memory), -EBUSY);
	CHECK_SYS(kill(rig.daemon->pid, SIGCONT));
	r = op_wait(op, -1);
	CHECK_EQ(r, len);
	CHECK_EQ(handle_wait(rig.handle, -1), 1);
	pattern_check(memory, len, SEED, 0, "read");
	dsaio_op_free(op);
	CHECK_CALL(dsaio_free(rig.client, memory));
}

TEST_TABLE(op_timeout, memories,
	   "an op that takes longer than op_timeout_usec ends with -ETIMEDOUT")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	const size_t len = 64 * MIB;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t buf[4096];
	uint8_t *memory;
	int64_t r;

	profile.queue_depth = 1;
	profile.block_size = 4u << 10;
	options.profile = &profile;
	options.op_timeout_usec = 20000;
	rig_open(&rig, NULL);
	(void)dsaio_handle_close(rig.handle, -1);
	rig.handle = NULL;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	file_make_pattern(daemon_path(rig.daemon, "f"), len, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	memory = memory_new(&rig, memories[row].pinned, len);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, len, 0, &op));
	CHECK_EQ(op_wait(op, -1), -ETIMEDOUT);
	CHECK_EQ(op_is_done(op), 1);
	CHECK(strstr(dsaio_op_error(op), "f"));
	CHECK(dsaio_op_bytes(op) < len);
	dsaio_op_free(op);
	CHECK_EQ(handle_wait(rig.handle, -1), -ETIMEDOUT);
	do /* the next is fine, unless the machine is so busy that it takes as long */
		r = dsaio_pread(rig.handle, file, buf, 4096, 0);
	while (r == -ETIMEDOUT);
	CHECK_EQ(r, 4096);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, len, 0), -ETIMEDOUT);
}

/* ---- threads, handles, stores ---- */

struct worker {
	pthread_t thread;
	struct rig *rig;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint64_t seed;
	uint8_t *memory;
};

#define WORKER_ROUNDS 300
#define WORKER_SLOTS 8
#define WORKER_BYTES ((size_t)16384)

/* Each writes and reads its own part of the file; waits for its own ops. */
static void *worker_run(void *arg)
{
	struct worker *w = arg;
	uint64_t base = w->seed * WORKER_SLOTS * WORKER_BYTES;

	for (unsigned round = 0; round < WORKER_ROUNDS; round++) {
		struct dsaio_op *ops[WORKER_SLOTS];
		uint64_t seed = w->seed * 1000 + round;

		for (unsigned i = 0; i < WORKER_SLOTS; i++) {
			uint8_t *m = w->memory + i * WORKER_BYTES;
			uint64_t off = base + i * WORKER_BYTES;

			pattern_fill(m, WORKER_BYTES, seed, off);
			CHECK_CALL(dsaio_pwrite_async(w->handle, w->file, m, WORKER_BYTES, off,
						      &ops[i]));
		}
		for (unsigned i = WORKER_SLOTS; i-- > 0;) { /* not in order */
			CHECK_EQ(op_wait(ops[i], -1), WORKER_BYTES);
			dsaio_op_free(ops[i]);
		}
		memset(w->memory, 0, WORKER_SLOTS * WORKER_BYTES);
		CHECK_EQ(dsaio_pread(w->handle, w->file, w->memory, WORKER_SLOTS * WORKER_BYTES,
				     base),
			 WORKER_SLOTS * WORKER_BYTES);
		pattern_check(w->memory, WORKER_SLOTS * WORKER_BYTES, seed, base, "a thread");
	}
	return NULL;
}

static void workers_run(struct rig *rig, struct worker *workers, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		void *memory;

		CHECK_CALL(dsaio_alloc(rig->client, WORKER_SLOTS * WORKER_BYTES, NULL, &memory));
		workers[i].memory = memory;
		workers[i].seed = i;
		workers[i].rig = rig;
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
}

TEST(threads, "eight threads submit to and wait on one handle")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct worker workers[8] = { 0 };

	rig_file(&rig, "f", O_RDWR | O_CREAT);
	for (unsigned i = 0; i < 8; i++) {
		workers[i].handle = rig.handle;
		workers[i].file = rig.files[0];
	}
	workers_run(&rig, workers, 8);
	CHECK_EQ(handle_wait(rig.handle, -1), 8 * WORKER_ROUNDS * WORKER_SLOTS);
}

TEST(threads_small_ring, "eight threads share a ring of four entries")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct worker workers[8] = { 0 };

	(void)dsaio_handle_close(rig.handle, -1);
	rig.handle = NULL;
	options.entries = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &rig.handle));
	rig_file(&rig, "f", O_RDWR | O_CREAT);
	for (unsigned i = 0; i < 8; i++) {
		workers[i].handle = rig.handle;
		workers[i].file = rig.files[0];
	}
	workers_run(&rig, workers, 8);
	CHECK_EQ(handle_wait(rig.handle, -1), 8 * WORKER_ROUNDS * WORKER_SLOTS);
}

TEST(handles, "a handle for each thread")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct worker workers[8] = { 0 };

	rig_file(&rig, "f", O_RDWR | O_CREAT);
	for (unsigned i = 0; i < 8; i++) {
		workers[i].file = rig.files[0];
		CHECK_CALL(dsaio_handle_open(rig.client, NULL, &workers[i].handle));
	}
	workers_run(&rig, workers, 8);
	for (unsigned i = 0; i < 8; i++) {
		CHECK_EQ(handle_wait(workers[i].handle, -1), WORKER_ROUNDS * WORKER_SLOTS);
		(void)dsaio_handle_close(workers[i].handle, -1);
	}
}

struct waiter {
	pthread_t thread;
	struct dsaio_handle *handle;
	_Atomic bool must_end;
	int64_t n_reported;
};

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;

	while (!atomic_load(&w->must_end))
		w->n_reported += CHECK_CALL(handle_wait(w->handle, -1));
	return NULL;
}

TEST(waiters, "two threads in dsaio_handle_wait: each op is counted by one of them")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct waiter waiters[2] = { 0 };
	const unsigned n = 20000;
	struct dsaio_file *file;
	uint8_t *memory;
	void *start;

	file_make_pattern(daemon_path(rig.daemon, "f"), 65536, SEED);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 65536, NULL, &start));
	memory = start;
	for (unsigned i = 0; i < 2; i++) {
		waiters[i].handle = rig.handle;
		CHECK_EQ(pthread_create(&waiters[i].thread, NULL, waiter_run, &waiters[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, file, memory + i % 16 * 4096, 4096,
					     i % 16 * 4096, NULL));
	for (unsigned i = 0; i < 2; i++)
		atomic_store(&waiters[i].must_end, true);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(waiters[i].thread, NULL), 0);
	CHECK_EQ(waiters[0].n_reported + waiters[1].n_reported + handle_wait(rig.handle, -1), n);
}

TEST(stores, "one handle over two stores: one wait for both, one fd for both")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *dir = test_dir_in("/dev/shm");
	struct dsaio_file *files[2];
	struct dsaio_completion taken[8];
	uint8_t *memory;
	struct stat st;
	unsigned seen;
	void *start;
	int fd;

	CHECK_SYS(stat(test_dir(), &st));
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("m=%s", dir)));
	rig_open(&rig, NULL);
	files[0] = rig_file(&rig, "f", O_RDWR | O_CREAT);
	files[1] = rig_file(&rig, test_text("%s/f", dir), O_RDWR | O_CREAT);
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	CHECK_CALL(dsaio_alloc(rig.client, 64 * 4096, NULL, &start));
	memory = start;
	pattern_fill(memory, 64 * 4096, SEED, 0);
	for (unsigned i = 0; i < 64; i++)
		CHECK_CALL(dsaio_pwrite_async(rig.handle, files[i % 2], memory + i * 4096, 4096,
					      i / 2 * 4096, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 64);
	memset(memory, 0, 64 * 4096);
	for (unsigned i = 0; i < 64; i++)
		CHECK_CALL(dsaio_pread_async(rig.handle, files[i % 2], memory + i * 4096, 4096,
					     i / 2 * 4096, NULL));
	CHECK_EQ(handle_wait(rig.handle, -1), 64);
	pattern_check(memory, 64 * 4096, SEED, 0, "two stores");

	for (unsigned round = 0; round < 500; round++) {
		CHECK_EQ(dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0, 8, 0), 0);
		for (unsigned i = 0; i < 2; i++)
			CHECK_CALL(dsaio_pread_async(rig.handle, files[i], memory + i * 4096, 4096,
						     0, NULL));
		for (seen = 0; seen < 2;) {
			int n = (int)CHECK_CALL(
				dsaio_handle_reap(rig.handle, taken, sizeof(taken[0]), 0, 8, 0));

			for (int i = 0; i < n; i++)
				CHECK_EQ(taken[i].result, 4096);
			seen += (unsigned)n;
			if (!n)
				CHECK_MSG(wait_readable(fd, 60000000), "round %u", round);
		}
	}
}

TEST(clients, "twenty clients come and go, each with its own memory")
{
	struct daemon *daemon = daemon_start(NULL);

	for (unsigned i = 0; i < 20; i++) {
		_cleanup_(rig_close) struct rig rig = RIG_NONE;
		void *memory;

		rig.daemon = daemon;
		rig_open(&rig, NULL);
		CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
		for (size_t k = 0; k < MIB; k++) /* not what another client had in it */
			CHECK(!((uint8_t *)memory)[k]);
		pattern_fill(memory, MIB, i, 0);
		CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory,
				      MIB, 0),
			 MIB);
		file_check_pattern(daemon_path(daemon, "f"), 0, MIB, i, 0);
	}
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

/* ---- memory ---- */

TEST(memory, "dsaio_alloc: zeroed, page aligned, distinguished from other memory, freed")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	static const size_t lens[] = { 1, 4096, 4097, 3 * MIB + 5, 64 * MIB };
	void *parts[200];
	uint8_t own[64];

	CHECK_EQ(dsaio_alloc(rig.client, 0, NULL, parts), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		uint8_t *m;
		void *start;

		CHECK_CALL(dsaio_alloc(rig.client, lens[i], NULL, &start));
		m = start;
		CHECK_EQ((uintptr_t)m % 4096, 0);
		for (size_t k = 0; k < lens[i]; k += 511)
			CHECK(!m[k]);
		memset(m, 0xff, lens[i]);
		CHECK(is_registered(rig.client, m, lens[i]));
		CHECK(is_registered(rig.client, m + lens[i] - 1, 1));
		CHECK_EQ(dsaio_free(rig.client, m), 0);
		CHECK_EQ(dsaio_free(rig.client, m), -EINVAL);
		/* A second taking of the same memory is zeroed again. */
		CHECK_CALL(dsaio_alloc(rig.client, lens[i], NULL, &start));
		m = start;
		for (size_t k = 0; k < lens[i]; k += 511)
			CHECK(!m[k]);
		CHECK_EQ(dsaio_free(rig.client, m + 1), -EINVAL);
		CHECK_EQ(dsaio_free(rig.client, m), 0);
	}
	CHECK(!is_registered(rig.client, own, sizeof(own)));
	CHECK_EQ(dsaio_free(rig.client, own), -EINVAL);
	CHECK_EQ(dsaio_free(rig.client, NULL), 0);

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
			CHECK_CALL(dsaio_alloc(rig.client, 100 * (i + 1), NULL, &parts[i]));
			memset(parts[i], (int)i, 100 * (i + 1));
		}
		for (unsigned i = 0; i < ARRAY_SIZE(parts); i++)
			for (unsigned k = 0; k < 100 * (i + 1); k++)
				CHECK_EQ(((uint8_t *)parts[i])[k], (uint8_t)i);
		for (unsigned i = 0; i < ARRAY_SIZE(parts); i += 2)
			CHECK_EQ(dsaio_free(rig.client, parts[i]), 0);
		for (unsigned i = 1; i < ARRAY_SIZE(parts); i += 2)
			CHECK_EQ(dsaio_free(rig.client, parts[i]), 0);
	}
}

TEST_MAIN
