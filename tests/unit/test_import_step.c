/*
 * Steps that stall ban their memory.  The state is of the process, so each test has a process of its own.
 */
#include "daemon/object/import_step.h"

#include "proto/util/clock.h"
#include "proto/util/cpu.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MSEC 1000000u
#define BYTES 4096u
#define LONG_MSEC (11 * STALL_STEP_NSEC / MSEC) /* for a ban */

static const struct inode_id memory = { .dev = 1, .ino = 2 }, other = { .dev = 1, .ino = 3 };
static const struct hung_who who = { .uid = 7 }, somebody = { .uid = 8 };
static unsigned munmap_msec;

static void sleep_msec(unsigned msec)
{
	const struct timespec time = { .tv_nsec = (long)msec * MSEC };

	(void)nanosleep(&time, NULL);
}

/* In place of the C library's: the linker takes the first. */
int munmap(void *start, size_t bytes)
{
	if (munmap_msec)
		sleep_msec(munmap_msec);
	return (int)syscall(SYS_munmap, start, bytes);
}

/* Returns as import_step_begin(), and ends the step if that succeeds. */
static int import(const struct inode_id *id, const struct hung_who *by, unsigned msec)
{
	struct import_step step = { .memory = id, .who = by };
	struct error error;
	int r = import_step_begin(&step, &error);

	if (r < 0)
		return r;
	if (msec)
		sleep_msec(msec);
	import_step_end(&step);
	return 0;
}

/* Returns how long it took. */
static uint64_t unmap(const struct inode_id *id, bool is_stopping)
{
	struct import_step step = { .memory = id, .who = &who };
	const _Atomic bool stopping = is_stopping;
	void *start = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t since_nsec = clock_nsec();

	ck_assert(start != MAP_FAILED);
	ck_assert(import_step_unmap(&step, start, BYTES, &stopping));
	return clock_nsec() - since_nsec;
}

TEST(memory_whose_steps_stall_is_refused_to_all_and_other_memory_to_none)
{
	unsigned n = 0;

	/* On a busy machine one may count as none. */
	while (import(&memory, &who, 3 * STALL_STEP_NSEC / MSEC / 2) == 0)
		ck_assert_uint_lt(++n, 100);
	ck_assert_int_eq(import(&memory, &who, 0), -EAGAIN);
	ck_assert_int_eq(import(&memory, &somebody, 0), -EAGAIN);
	ck_assert_int_eq(import(&other, &who, 0), 0);
}

/* On a busy host one step waited for 61 ms for another thread of the daemon, and huge pages were refused. */
TEST(one_step_that_stalls_is_no_reason_to_refuse_memory)
{
	ck_assert_int_eq(import(&memory, &who, 3 * STALL_STEP_NSEC / MSEC), 0);
	ck_assert_int_eq(import(&memory, &who, 0), 0);
}

TEST(banned_memory_is_unmapped_with_pauses_except_at_a_stop)
{
	unsigned n = 0;

	while (import(&memory, &who, LONG_MSEC) == 0)
		ck_assert_uint_lt(++n, 10);
	munmap_msec = 100;
	/* The kernel may count some of its sleep as a wait for a processor: then it was no stall. */
	for (n = 0; unmap(&memory, false) < 1000 * (uint64_t)MSEC; n++)
		ck_assert_uint_lt(n, 10);
	for (n = 0; unmap(&memory, true) >= 1000 * (uint64_t)MSEC; n++) /* or the machine is busy */
		ck_assert_uint_lt(n, 10);
	for (n = 0; unmap(&other, false) >= 1000 * (uint64_t)MSEC; n++)
		ck_assert_uint_lt(n, 10);
	munmap_msec = 0;
}

static void *slab_call(void *arg)
{
	import_step_hold(true);
	(void)pthread_barrier_wait(arg);
	sleep_msec(4 * STALL_STEP_NSEC / MSEC);
	import_step_go_on();
	return NULL;
}

/* Two users who allocated and freed memory made the daemon refuse a third one's imports. */
TEST(a_step_does_not_wait_for_calls_on_slabs)
{
	struct import_step step = { .memory = &memory, .who = &who };
	pthread_barrier_t barrier;
	struct error error;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
	for (unsigned i = 0; i < STALLS_MAX; i++) {
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, slab_call, &barrier), 0);
		(void)pthread_barrier_wait(&barrier);
		ck_assert_int_eq(import_step_begin(&step, &error), 0);
		import_step_end(&step);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	ck_assert_int_eq(import_step_check(&step, &error), 0);
}

static void *hold(void *arg)
{
	_Atomic bool *is_held = arg;

	import_step_hold(true);
	*is_held = true;
	import_step_go_on();
	return NULL;
}

TEST(calls_on_slabs_wait_for_a_step)
{
	struct import_step step = { .memory = &memory, .who = &who };
	_Atomic bool is_held = false;
	struct error error;
	pthread_t thread;

	ck_assert_int_eq(import_step_begin(&step, &error), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold, &is_held), 0);
	sleep_msec(4 * STALL_STEP_NSEC / MSEC);
	ck_assert(!is_held);
	import_step_end(&step);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(is_held);
}

#define HOLDERS_MAX 256

static struct holder {
	pthread_t thread;
	_Atomic pid_t tid; /* it is about to call */
	bool is_first;
	unsigned place; /* in the order of the calls */
} holders[HOLDERS_MAX];
static _Atomic unsigned n_held;

static void *hold_in_order(void *arg)
{
	struct holder *holder = arg;

	holder->tid = gettid();
	import_step_hold(holder->is_first);
	holder->place = n_held++;
	import_step_go_on();
	return NULL;
}

static bool is_asleep(const struct holder *holder)
{
	char path[64], state = 0;
	FILE *file;

	if (!holder->tid)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", holder->tid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*d %*s %c", &state), 1);
	(void)fclose(file);
	return state == 'S';
}

/* An allocation of 4 KiB waited for a large slab's 512 MiB of others, and a large one for all small ones of others. */
TEST_LOOP(a_call_on_a_slab_waits_for_few_of_those_on_slabs_of_the_other_size, 2)
{
	const unsigned room = cpu_count() > 3 ? cpu_count() / 2 : 1;
	const unsigned n = room < 50 ? 4 * room + 4 : HOLDERS_MAX;
	struct import_step step = { .memory = &memory, .who = &who };
	struct error error;

	ck_assert_int_eq(import_step_begin(&step, &error), 0);
	for (unsigned i = 0; i < n; i++) {
		holders[i].is_first = (i == n - 1) == (_i == 0);
		ck_assert_int_eq(
			pthread_create(&holders[i].thread, NULL, hold_in_order, &holders[i]), 0);
		while (!is_asleep(&holders[i]))
			sleep_msec(1);
	}
	import_step_end(&step);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(pthread_join(holders[i].thread, NULL), 0);
	ck_assert_uint_le(holders[n - 1].place, 2 * room + 1);
}

TEST_MAIN
