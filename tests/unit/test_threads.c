/*
 * The engine `threads`: blocking calls that come back short, fail or reach the end of the file, and
 * blocks on their way to a worker and back.
 */
#include "daemon/engine/threads.h"

#include "daemon/object/extend.h"
#include "tests/unit/suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES 100000
#define MEMORY_BYTES (1u << 20)

static char *memory;
static struct target target;
static struct region region;
static int buffered_fd;
static size_t most;			  /* that a call transfers */
static _Atomic int n_interrupts, n_calls; /* EINTR first; all */
static _Atomic bool holds_calls;	  /* they wait while it is set */

/* Instead of the C library's: transfers are held, interrupted and cut. */
long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
	const bool is_transfer = number == SYS_pread64 || number == SYS_pwrite64;
	long args[6];
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	while (is_transfer && atomic_load(&holds_calls))
		(void)usleep(1000);
	n_calls += is_transfer;
	if (is_transfer && n_interrupts-- > 0) {
		errno = EINTR;
		return -1;
	}
	if (is_transfer && (size_t)args[2] > most)
		args[2] = (long)most;
	return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

static char byte_at(uint64_t off)
{
	return (char)(off * 7 + off / 4096);
}

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[4200];
	static char bytes[FILE_BYTES];

	(void)snprintf(path, sizeof(path), "%s/dsaio-threads-XXXXXX", tmp ? tmp : "/var/tmp");
	buffered_fd = mkstemp(path);
	ck_assert_int_ge(buffered_fd, 0);
	target = (struct target){ .fd = open(path, O_RDWR | O_DIRECT),
				  .offset_align = 512,
				  .memory_align = 512 };
	ck_assert_int_ge(target.fd, 0);
	atomic_init(&target.buffered_fd, buffered_fd);
	ck_assert_int_eq(unlink(path), 0);
	for (size_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = byte_at(i);
	ck_assert_int_eq(write(buffered_fd, bytes, FILE_BYTES), FILE_BYTES);
	memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	region.base = memory;
	memset(memory, 0x5a, MEMORY_BYTES);
	most = SIZE_MAX;
	n_interrupts = n_calls = 0;
}

static void teardown(void)
{
	(void)munmap(memory, MEMORY_BYTES);
	(void)close(target.fd);
	(void)close(buffered_fd);
}

enum way { DIRECT, BUFFERED, BOUNCED };

static struct block make(enum way way, enum block_operation operation, uint64_t off, uint32_t len,
			 size_t memory_off)
{
	return (struct block){ .operation = (uint8_t)operation,
			       .target = &target,
			       .region = &region,
			       .off = off,
			       .region_off = memory_off,
			       .len = len,
			       .bytes = len,
			       .is_buffered = way == BUFFERED,
			       .is_bounced = way == BOUNCED };
}

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len, done;
} reads[] = {
	{ "a byte", 5000, 1, 1 },
	{ "across units", 4000, 9000, 9000 },
	{ "much", 1, 90001, 90001 },
	{ "up to the end", 90001, FILE_BYTES - 90001, FILE_BYTES - 90001 },
	{ "across the end", 99990, 5000, 10 },
	{ "behind it, in its unit", FILE_BYTES + 1, 10, 0 },
	{ "far behind it", 1 << 20, 5000, 0 },
};

TEST_TABLE(a_bounced_read_copies_what_is_wanted, reads)
{
	struct block block = make(BOUNCED, BLOCK_READ, reads[_i].off, reads[_i].len, 7);

	n_interrupts = 2;
	threads_do(&block);
	ck_assert_msg(block.result >= 0 && block.best == reads[_i].done, "%s: %u, %s",
		      reads[_i].what, block.best, strerror((int)-block.result));
	for (uint32_t i = 0; i < block.best; i++)
		ck_assert_int_eq(memory[7 + i], byte_at(reads[_i].off + i));
	ck_assert(memory[6] == 0x5a && memory[7 + block.best] == 0x5a);
}

TEST(a_short_transfer_is_continued)
{
	struct block block = make(BOUNCED, BLOCK_READ, 100, 60000, 1);

	most = 8192;
	threads_do(&block);
	ck_assert(block.result >= 0 && block.best == 60000);
	ck_assert_int_ge(n_calls, 8);
	for (uint32_t i = 0; i < block.best; i++)
		ck_assert_int_eq(memory[1 + i], byte_at(100 + i));

	memset(memory, 0x5a, MEMORY_BYTES);
	block = make(DIRECT, BLOCK_READ, 4096, 65536, 4096);
	/* As a block was returned: it goes on at a boundary. */
	block.result = 8192 + 100;
	ck_assert(block_must_continue(&block));
	threads_do(&block);
	ck_assert(block.result >= 0 && block.best == 65536);
	ck_assert_int_eq(memory[4096], 0x5a);
	ck_assert_int_eq(memory[4096 + 8192], byte_at(4096 + 8192));

	block = make(BUFFERED, BLOCK_WRITE, FILE_BYTES - 1, 20000, 3);
	most = 777;
	n_interrupts = 1;
	threads_do(&block);
	ck_assert(block.result >= 0 && block.best == 20000);
	ck_assert_int_eq(lseek(buffered_fd, 0, SEEK_END), FILE_BYTES - 1 + 20000);
}

TEST(memory_that_is_gone_is_the_ops_error)
{
	struct block block;

	ck_assert_int_eq(munmap(memory + 8192, 8192), 0);
	block = make(BOUNCED, BLOCK_READ, 1, 20000, 0);
	threads_do(&block);
	ck_assert(block.result == -EFAULT && block.best <= 8192);
	block = make(BUFFERED, BLOCK_WRITE, 1, 4096, 8192);
	threads_do(&block);
	ck_assert(block.result == -EFAULT && block.best == 0);
	block = make(DIRECT, BLOCK_READ, 0, 4096, 8192);
	threads_do(&block);
	ck_assert(block.result == -EFAULT && block.best == 0);
}

TEST(what_the_file_refuses_is_the_ops_error)
{
	struct block block = make(DIRECT, BLOCK_WRITE, 100, 4096, 0); /* not aligned */

	threads_do(&block);
	ck_assert(block.result == -EINVAL && block.best == 0);
	ck_assert_int_eq(close(buffered_fd), 0);
	block = make(BUFFERED, BLOCK_WRITE, 100, 4096, 0);
	threads_do(&block);
	ck_assert(block.result == -EBADF && block.best == 0);
}

TEST(an_interrupted_call_is_not_repeated_forever)
{
	struct block block = make(DIRECT, BLOCK_READ, 0, 4096, 0);

	n_interrupts = 1000;
	threads_do(&block);
	ck_assert(block.result == -EINTR && block.best == 0);
}

/* ---- on their way ---- */

static struct worker_queues queues;
static struct workers workers;
static struct engine *engine;
static struct worker_block blocks[300];
static int n_rooms;

static void on_room(struct workers *w)
{
	ck_assert_ptr_eq(w, &workers);
	n_rooms++;
}

static void setup_engine(void)
{
	struct error error;

	n_rooms = 0;
	ck_assert_int_eq(engine_threads.open(&(struct engine_config){ .depth = 1000, .room = 1 },
					     &engine, &error),
			 0);
	ck_assert_int_eq(worker_user_ref(&queues, 1000, &workers.user), 0);
	workers.engine = engine;
	workers.on_room = on_room;
}

static void teardown_engine(void)
{
	while (!workers_stop_waiting(&workers))
		(void)engine_threads.reap(engine, NULL, 0);
	worker_user_unref(&queues, workers.user);
	ck_assert_ptr_null(queues.users.first);
	engine_threads.close(engine);
}

static bool submit(unsigned i, struct block block)
{
	struct block *p = &blocks[i].block;

	blocks[i].block = block;
	blocks[i].workers = &workers;
	return engine_threads.submit(engine, &p, 1) == 1;
}

/* Sleeps until something is there; returns how many blocks are back. */
static int await(struct block **ret_blocks, int n)
{
	struct pollfd fd = { .fd = engine->event_fd, .events = POLLIN };

	if (!engine_threads.is_ready(engine))
		ck_assert_int_eq(poll(&fd, 1, 20000), 1);
	return engine_threads.reap(engine, ret_blocks, n);
}

TEST(users_share_their_own_work_queue_only)
{
	struct worker_user *first, *second, *other;

	ck_assert_int_eq(worker_user_ref(&queues, 1000, &first), 0);
	ck_assert_int_eq(worker_user_ref(&queues, 1001, &other), 0);
	ck_assert_int_eq(worker_user_ref(&queues, 1000, &second), 0);
	ck_assert_ptr_eq(first->queue, second->queue);
	ck_assert_ptr_ne(first->queue, other->queue);
	worker_user_unref(&queues, first);
	worker_user_unref(&queues, second);
	worker_user_unref(&queues, other);
	ck_assert_ptr_null(queues.users.first);
}

TEST(a_block_goes_to_a_worker_and_comes_back)
{
	struct extend_step step = { .off = FILE_BYTES, .len = 4096 };
	struct block extension = { .operation = BLOCK_EXTEND, .target = &target, .step = &step };
	const struct block sent[] = {
		make(DIRECT, BLOCK_READ, 0, 8192, 0),
		make(BUFFERED, BLOCK_WRITE, FILE_BYTES - 1, 1, 9000),
		make(DIRECT, BLOCK_FSYNC, 0, 0, 0),
		make(DIRECT, BLOCK_FDATASYNC, 0, 0, 0),
		extension,
	};
	const int n = sizeof(sent) / sizeof(*sent);
	struct block *back[8];
	int n_back = 0;

	setup_engine();
	for (int i = 0; i < n; i++)
		ck_assert(submit((unsigned)i, sent[i]));
	ck_assert_uint_eq(engine->n_in_flight, (unsigned)n);
	while (n_back < n)
		n_back += await(back + n_back, n - n_back);
	ck_assert_uint_eq(engine->n_in_flight, 0);
	for (int i = 0; i < n; i++) {
		ck_assert_int_ge(blocks[i].block.result, 0);
		ck_assert_uint_eq(blocks[i].block.best, sent[i].bytes);
	}
	ck_assert_int_eq(memory[5000], byte_at(5000));
	ck_assert_int_eq(lseek(buffered_fd, 0, SEEK_END), FILE_BYTES + 4096);
	teardown_engine();
}

TEST_LOOP(a_block_without_a_worker_is_not_taken_until_there_is_room, 2) /* _i: may exceed max */
{
	struct block *back[300];
	unsigned n = 0;
	int n_back = 0;

	setup_engine();
	atomic_store(&holds_calls, true);
	for (; n < 300; n++) {
		blocks[n].work.may_exceed_max = _i;
		if (!submit(n, make(DIRECT, BLOCK_READ, 0, 4096, n * 4096 % MEMORY_BYTES)))
			break;
	}
	/* Overflow threads only where worker threads are the engine (_i). */
	ck_assert_uint_lt(n, 300);
	ck_assert(_i ? n >= WORKERS_DEPTH : n == WORKERS_THREADS);
	ck_assert(workers.waits_for_room);
	ck_assert_uint_eq(engine->n_in_flight, n);
	ck_assert_int_eq(n_rooms, 0);
	atomic_store(&holds_calls, false);
	while (n_back < (int)n || workers.waits_for_room)
		n_back += await(back + n_back, 300 - n_back);
	ck_assert_int_eq(n_back, (int)n);
	ck_assert_int_eq(n_rooms, 1);
	ck_assert(submit(0, make(DIRECT, BLOCK_READ, 0, 4096, 0)));
	while (engine->n_in_flight)
		(void)await(back, 1);
	teardown_engine();
}

static void hang(struct work *work)
{
	(void)work;
	while (atomic_load(&holds_calls))
		(void)usleep(1000);
}

static void no_room(struct work_room *room)
{
	(void)room;
}

TEST(a_report_of_room_that_is_on_its_way_keeps_the_workers)
{
	static struct work works[300];
	struct work_room room = { .on_room = no_room };
	unsigned n = 0;

	setup_engine();
	atomic_store(&holds_calls, true);
	for (; n < 300; n++) {
		works[n].run = hang;
		if (!work_queue_try_submit(workers.user->queue, &works[n], &room))
			break;
	}
	ck_assert_uint_lt(n, 300);
	ck_assert(work_queue_stop_waiting(workers.user->queue, &room));
	ck_assert(!submit(0, make(DIRECT, BLOCK_READ, 0, 4096, 0)));
	atomic_store(&holds_calls, false);
	while (!engine_threads.is_ready(engine)) /* nothing but the report makes it so */
		(void)usleep(1000);
	ck_assert(!workers_stop_waiting(&workers));
	ck_assert_int_eq(n_rooms, 0);
	ck_assert_int_eq(engine_threads.reap(engine, NULL, 0), 0);
	ck_assert_int_eq(n_rooms, 1);
	ck_assert(workers_stop_waiting(&workers));
	teardown_engine();
}

FIXTURE(setup, teardown)
TEST_MAIN
