/*
 * The libaio engine on a real file with direct I/O.
 */
#include "daemon/engine/libaio.h"

#include "daemon/base/hung.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 16
#define BYTES 4096

static struct engine *engine;
static struct block blocks[N];
static struct target target = { .about.who.uid = 77 };
static struct region region;
static char *memory;
static int fd;

static void setup(void)
{
	const char *dir = getenv("TMPDIR");
	struct error error;
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/dsaio-engine.XXXXXX", dir ? dir : "/var/tmp");
	fd = mkostemp(path, O_DIRECT);
	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(posix_memalign((void **)&memory, 4096, (size_t)N * BYTES), 0);
	target.fd = fd;
	region.base = memory;
	engine_init();
	ck_assert_int_eq(engine_libaio.open(N, 4, &engine, &error), 0);
	ck_assert_uint_ge(engine->depth, 4);
	for (int i = 0; i < N; i++)
		blocks[i] = (struct block){ .off = (uint64_t)i * BYTES,
					    .target = &target,
					    .region = &region,
					    .region_off = (uint64_t)i * BYTES,
					    .len = BYTES,
					    .bytes = BYTES };
}

static void teardown(void)
{
	engine_libaio.close(engine);
	free(memory);
	(void)close(fd);
}

/* Submits all and reaps all, in the order in which they end. */
static void run_all(bool is_write)
{
	struct block *list[N], *done[N];
	int submitted = 0, n = 0;

	for (int i = 0; i < N; i++) {
		blocks[i].operation = is_write ? BLOCK_WRITE : BLOCK_READ;
		list[i] = &blocks[i];
	}
	while (n < N) {
		struct pollfd poll_fd = { .fd = engine_libaio.event_fd(engine), .events = POLLIN };

		submitted += engine_libaio.submit(engine, list + submitted, N - submitted);
		if (!engine_libaio.is_ready(engine))
			ck_assert_int_eq(poll(&poll_fd, 1, 10000), 1);
		n += engine_libaio.reap(engine, done, N);
	}
	ck_assert_uint_eq(engine->n_in_flight, 0);
}

START_TEST(what_was_written_is_read)
{
	setup();
	for (int i = 0; i < N; i++)
		blocks[i].is_single = _i;
	for (int i = 0; i < N * BYTES; i++)
		memory[i] = (char)(i * 7 + i / BYTES);
	run_all(true);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, BYTES);
	memset(memory, 0, (size_t)N * BYTES);
	run_all(false);
	for (int i = 0; i < N * BYTES; i++)
		ck_assert_int_eq(memory[i], (char)(i * 7 + i / BYTES));
	teardown();
}
END_TEST

START_TEST(an_error_is_a_negative_number_and_hits_no_neighbour)
{
	const struct target closed = { .fd = -1, .about.who.uid = 77 };

	setup();
	run_all(true);
	blocks[3].off = 1;		       /* not aligned */
	blocks[5].target = &closed;	       /* refused by io_submit itself */
	blocks[7].off = (uint64_t)100 * BYTES; /* behind the end */
	run_all(false);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, i == 3   ? -EINVAL
						   : i == 5 ? -EBADF
						   : i == 7 ? 0
							    : BYTES);
	teardown();
}
END_TEST

START_TEST(more_than_fits_is_left)
{
	struct block *list[N], *done[N];
	struct error error;
	struct engine *small;
	int n = 0, taken;

	setup();
	run_all(true);
	ck_assert_int_eq(engine_libaio.open(4, 4, &small, &error), 0);
	for (int i = 0; i < N; i++) {
		blocks[i].operation = BLOCK_READ;
		list[i] = &blocks[i];
	}
	taken = engine_libaio.submit(small, list, N);
	ck_assert_int_eq(taken, 4);
	ck_assert_int_eq(engine_libaio.submit(small, list + 4, N - 4), 0);
	while (n < 4)
		n += engine_libaio.reap(small, done, N);
	ck_assert_int_gt(engine_libaio.submit(small, list + 4, N - 4), 0);
	while (small->n_in_flight)
		(void)engine_libaio.reap(small, done, N);
	engine_libaio.close(small);
	teardown();
}
END_TEST

/* Fills done; true: the engine took all and knows them to be done already. */
static bool is_done_at_once(void)
{
	struct block *list[N], *done[N];
	int n = 0;

	for (int i = 0; i < N; i++) {
		blocks[i].operation = BLOCK_READ;
		list[i] = &blocks[i];
	}
	ck_assert_int_eq(engine_libaio.submit(engine, list, N), N);
	while (n < N)
		n += engine_libaio.reap(engine, done, N);
	return engine->is_at_once;
}

START_TEST(memory_is_known_from_a_device_after_a_while)
{
	int memory_fd = memfd_create("dsaio-engine", MFD_CLOEXEC);
	int turns = 0;

	setup();
	ck_assert_int_ge(memory_fd, 0);
	ck_assert_int_eq(ftruncate(memory_fd, N * BYTES), 0);
	ck_assert(!engine->is_at_once);
	target.fd = memory_fd;
	while (!is_done_at_once())
		ck_assert_int_lt(++turns, 10);
	ck_assert_int_gt(turns, 0);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, BYTES);
	(void)close(memory_fd);
	teardown();
}
END_TEST

START_TEST(blocks_of_tmpfs_are_done_when_submit_returns)
{
	const struct target closed = { .fd = -1, .is_memory = true, .about.who.uid = 77 };
	struct target tmpfs = { .is_memory = true, .about.who.uid = 77 };
	uint64_t n_events;
	int turns = 0;

	setup();
	tmpfs.fd = memfd_create("dsaio-engine", MFD_CLOEXEC);
	ck_assert_int_ge(tmpfs.fd, 0);
	ck_assert_int_eq(ftruncate(tmpfs.fd, (N - 1) * BYTES + 100), 0);
	memset(memory, 1, (size_t)N * BYTES);
	for (int i = 0; i < N; i++)
		blocks[i].target = i == 5 ? &closed : &tmpfs;
	while (!is_done_at_once())
		ck_assert_int_lt(++turns, 10);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, i == 5 ? -EBADF : i == N - 1 ? 100 : BYTES);
	for (int i = 0; i < (N - 1) * BYTES + 100; i++)
		ck_assert_int_eq(memory[i], i / BYTES == 5);
	/* none was an event, of which there would be one now */
	ck_assert_int_eq(read(engine_libaio.event_fd(engine), &n_events, sizeof(n_events)), -1);
	(void)close(tmpfs.fd);
	teardown();
}
END_TEST

START_TEST(blocks_of_tmpfs_among_those_of_a_disk)
{
	struct target tmpfs = { .is_memory = true, .about.who.uid = 77 };

	setup();
	run_all(true);
	tmpfs.fd = memfd_create("dsaio-engine", MFD_CLOEXEC);
	ck_assert_int_ge(tmpfs.fd, 0);
	ck_assert_int_eq(ftruncate(tmpfs.fd, N * BYTES), 0);
	for (int i = 0; i < N; i++)
		blocks[i].target = i % 4 < 2 ? &tmpfs : &target;
	ck_assert(!is_done_at_once());
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(blocks[i].result, BYTES);
	(void)close(tmpfs.fd);
	teardown();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, what_was_written_is_read, 0, 2);
	tcase_add_test(tcase, an_error_is_a_negative_number_and_hits_no_neighbour);
	tcase_add_test(tcase, more_than_fits_is_left);
	tcase_add_test(tcase, memory_is_known_from_a_device_after_a_while);
	tcase_add_test(tcase, blocks_of_tmpfs_are_done_when_submit_returns);
	tcase_add_test(tcase, blocks_of_tmpfs_among_those_of_a_disk);
}

SUITE("engine", add_tests)
