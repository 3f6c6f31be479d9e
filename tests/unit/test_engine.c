/*
 * The libaio engine on a real file with direct I/O.
 */
#include "daemon/engine/libaio.h"

#include "daemon/base/hung.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N 16
#define BYTES 4096

static struct engine *engine;
static struct block blocks[N];
static struct target target = { .about.who.uid = 77 };
static struct region region;
static char *memory;
static int fd;
/* A digit for each io_submit(), the number of its blocks; and the blocks of other files. */
static char calls[N + 1];
static int n_calls, n_foreign;

/* In place of libaio's. */
int io_submit(io_context_t context, long n, struct iocb **iocbs)
{
	long r;

	for (long i = 0; i < n; i++)
		n_foreign += iocbs[i]->aio_fildes != fd;
	if (n_calls < N)
		calls[n_calls++] = (char)('0' + n);
	r = syscall(SYS_io_submit, context, n, iocbs);
	return r < 0 ? -errno : (int)r;
}

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
	ck_assert_int_eq(engine_libaio.open(&(struct engine_config){ .depth = N, .room = N },
					    &engine, &error),
			 0);
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
		struct pollfd poll_fd = { .fd = engine->event_fd, .events = POLLIN };

		submitted += engine_libaio.submit(engine, list + submitted, N - submitted);
		if (!engine_libaio.is_ready(engine))
			ck_assert_int_eq(poll(&poll_fd, 1, 10000), 1);
		n += engine_libaio.reap(engine, done, N);
	}
	ck_assert_uint_eq(engine->n_in_flight, 0);
}

TEST_LOOP(what_was_written_is_read, 2)
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

TEST(an_error_is_a_negative_number_and_hits_no_neighbour)
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

TEST(contexts_are_added_while_blocks_are_in_flight)
{
	struct block *list[N], *done[N];
	struct error error;
	struct engine *grown;
	int n = 0;

	setup();
	run_all(true);
	ck_assert_int_eq(engine_libaio.open(&(struct engine_config){ .depth = N, .room = 4 },
					    &grown, &error),
			 0);
	ck_assert_uint_eq(grown->room, 4);
	for (int i = 0; i < N; i++) {
		blocks[i].operation = BLOCK_READ;
		list[i] = &blocks[i];
	}
	ck_assert_int_eq(engine_libaio.submit(grown, list, N), 4);
	ck_assert_int_eq(engine_libaio.grow(grown, 12, &error), 0);
	ck_assert_int_eq(engine_libaio.grow(grown, 8, &error), 0); /* it has more */
	ck_assert_uint_eq(grown->room, 12);
	ck_assert_int_eq(engine_libaio.submit(grown, list + 4, N - 4), 8);
	while (n < 12)
		n += engine_libaio.reap(grown, done + n, 12 - n);
	ck_assert_uint_eq(grown->n_in_flight, 0);
	for (int i = 0; i < 12; i++)
		ck_assert_int_eq(blocks[i].result, BYTES);
	engine_libaio.close(grown);
	teardown();
}

TEST(more_than_fits_is_left)
{
	struct block *list[N], *done[N];
	struct error error;
	struct engine *small;
	int n = 0, taken;

	setup();
	run_all(true);
	ck_assert_int_eq(engine_libaio.open(&(struct engine_config){ .depth = 4, .room = 4 },
					    &small, &error),
			 0);
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

TEST(memory_is_known_from_a_device_after_a_while)
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

TEST(blocks_of_tmpfs_are_done_when_submit_returns)
{
	const struct target closed = { .fd = -1, .is_tmpfs = true, .about.who.uid = 77 };
	struct target tmpfs = { .is_tmpfs = true, .about.who.uid = 77 };
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
	ck_assert_int_eq(read(engine->event_fd, &n_events, sizeof(n_events)), -1);
	(void)close(tmpfs.fd);
	teardown();
}

/* Each block is a letter: d of the disk, u of it and another user, s in a call of its own, t of tmpfs. */
static const struct {
	const char *what, *blocks;
	uint32_t len;
	const char *calls;
} batches[] = {
	{ "few where the device waits", "dddd", BYTES, "4" },
	{ "more beside blocks in flight", "dddddddddddddddd", BYTES, "484" },
	{ "as many bytes as the most", "dddddddddddd", 8 << 10, "48" },
	{ "more bytes than that", "dddddddddddddddd", 16 << 10, "4444" },
	{ "two users", "dduuuudd", BYTES, "242" },
	{ "two users beside blocks in flight", "dddddduuuudd", BYTES, "4242" },
	{ "calls of their own", "ddsdds", BYTES, "2121" },
	{ "disk, then tmpfs", "ddttddtt", BYTES, "22" },
	{ "tmpfs, then disk", "ttddddtd", BYTES, "41" },
	{ "tmpfs alone", "tttttttttttttttt", BYTES, "" },
};

TEST_TABLE(blocks_of_a_call_are_few_and_of_one_user_and_none_is_of_tmpfs, batches)
{
	struct target others = { .about.who.uid = 78 };
	struct target tmpfs = { .is_tmpfs = true, .about.who.uid = 77 };
	const int n = (int)strlen(batches[_i].blocks);
	struct block *list[N], *done[N];
	int n_done = 0;

	setup();
	run_all(true);
	others.fd = fd;
	tmpfs.fd = memfd_create("dsaio-engine", MFD_CLOEXEC);
	ck_assert_int_ge(tmpfs.fd, 0);
	ck_assert_int_eq(ftruncate(tmpfs.fd, N * BYTES), 0);
	for (int i = 0; i < n; i++) {
		const char kind = batches[_i].blocks[i];

		blocks[i] = (struct block){ .operation = BLOCK_READ,
					    .target = kind == 't'   ? &tmpfs
						      : kind == 'u' ? &others
								    : &target,
					    .region = &region,
					    .len = batches[_i].len,
					    .bytes = batches[_i].len,
					    .is_single = kind == 's' };
		list[i] = &blocks[i];
	}
	n_calls = n_foreign = 0;
	memset(calls, 0, sizeof(calls));
	ck_assert_int_eq(engine_libaio.submit(engine, list, n), n);
	ck_assert_msg(strcmp(calls, batches[_i].calls) == 0 && !n_foreign,
		      "%s: %s, %d of other files", batches[_i].what, calls, n_foreign);
	while (n_done < n)
		n_done += engine_libaio.reap(engine, done, N);
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(blocks[i].result, batches[_i].len);
	(void)close(tmpfs.fd);
	teardown();
}

TEST_MAIN
