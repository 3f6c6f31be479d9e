#include "daemon/base/work_queue.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"

#include <dirent.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct task {
	struct work work;
	int number;
	sem_t *wait, *done;
	pthread_t thread;
	char thread_name[16];
	bool is_blocking_signals;
};

static _Atomic int n_run;
static int numbers[4 * WORK_QUEUE_OVERFLOW_MAX];

static void task_run(struct work *work)
{
	struct task *task = container_of(work, struct task, work);
	sigset_t mask;

	if (task->wait)
		(void)sem_wait(task->wait);
	task->thread = pthread_self();
	(void)pthread_getname_np(pthread_self(), task->thread_name, sizeof(task->thread_name));
	(void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
	task->is_blocking_signals = sigismember(&mask, SIGTERM) == 1;
	numbers[atomic_fetch_add(&n_run, 1)] = task->number;
	if (task->done)
		(void)sem_post(task->done);
}

TEST(one_thread_does_work_in_order)
{
	struct work_queue *work_queue;
	struct task tasks[100];

	ck_assert_int_eq(work_queue_new("one", 1, &work_queue), 0);
	for (int i = 0; i < 100; i++) {
		tasks[i] = (struct task){ .work.run = task_run, .number = i };
		work_queue_submit(work_queue, &tasks[i].work);
	}
	work_queue_free(work_queue); /* runs what is queued */
	ck_assert_int_eq(n_run, 100);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(numbers[i], i);
		ck_assert(pthread_equal(tasks[i].thread, tasks[0].thread));
	}
	ck_assert(!pthread_equal(tasks[0].thread, pthread_self()));
	ck_assert_str_eq(tasks[0].thread_name, "one");
	ck_assert(tasks[0].is_blocking_signals);
}

TEST(work_that_hangs_leaves_the_other_threads)
{
	struct work_queue *work_queue;
	struct task hung[2] = { { .number = 1 }, { .number = 2 } }, other = { .number = 3 };
	sem_t go, done;

	(void)sem_init(&go, 0, 0);
	(void)sem_init(&done, 0, 0);
	ck_assert_int_eq(work_queue_new("a-name-that-is-too-long", 3, &work_queue), 0);
	for (int i = 0; i < 2; i++) {
		hung[i].work.run = task_run;
		hung[i].wait = &go;
		work_queue_submit(work_queue, &hung[i].work);
	}
	other.work.run = task_run;
	other.done = &done;
	work_queue_submit(work_queue, &other.work);
	ck_assert_int_eq(sem_wait(&done), 0);
	ck_assert_int_eq(n_run, 1);
	ck_assert_int_eq(numbers[0], 3);
	(void)sem_post(&go);
	(void)sem_post(&go);
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 3);
	ck_assert_str_eq(other.thread_name, "a-name-that-is-");
}

/* Threads of this name: a sanitizer may have others. */
static unsigned count_threads_in(const char *name, const char *states)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	unsigned n = 0;

	ck_assert_ptr_nonnull(tasks);
	while ((task = readdir(tasks))) {
		char path[sizeof(task->d_name) + 32], comm[32] = "", state = 0;
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
		file = fopen(path, "re");
		if (!file)
			continue; /* not a thread, or one that has just gone */
		if (fscanf(file, "%*d (%31[^)]) %c", comm, &state) == 2)
			n += strcmp(comm, name) == 0 && strchr(states, state);
		(void)fclose(file);
	}
	(void)closedir(tasks);
	return n;
}

static unsigned count_threads(const char *name)
{
	return count_threads_in(name, "RSDTtZXI");
}

/* So many tasks that wait for go; returns when all that can have begun. */
static void hang(struct work_queue *work_queue, struct task *tasks, unsigned n, sem_t *go)
{
	for (unsigned i = 0; i < n; i++) {
		tasks[i] = (struct task){ .work = { .run = task_run, .may_exceed_max = true },
					  .wait = go };
		work_queue_submit(work_queue, &tasks[i].work);
	}
}

static struct work_room no_room; /* its on_room() is never called */

static bool try_hang(struct work_queue *work_queue, struct task *task, sem_t *go)
{
	*task = (struct task){ .work = { .run = task_run, .may_exceed_max = true }, .wait = go };
	return work_queue_try_submit(work_queue, &task->work, &no_room);
}

struct waiting_room {
	struct work_room room;
	sem_t reported;
};

static void on_room(struct work_room *room)
{
	(void)sem_post(&container_of(room, struct waiting_room, room)->reported);
}

TEST(work_that_does_not_begin_at_once_is_reported_of_room)
{
	struct task hung = { .work.run = task_run }, late = { .work.run = task_run };
	struct waiting_room waits = { .room.on_room = on_room };
	struct work_queue *work_queue;
	sem_t go;

	(void)sem_init(&go, 0, 0);
	(void)sem_init(&waits.reported, 0, 0);
	hung.wait = &go;
	ck_assert_int_eq(work_queue_new("room", 1, &work_queue), 0);
	ck_assert(work_queue_try_submit(work_queue, &hung.work, &waits.room));
	for (int i = 0; i < 2; i++) /* asked twice, called once */
		ck_assert(!work_queue_try_submit(work_queue, &late.work, &waits.room));
	ck_assert_int_eq(sem_trywait(&waits.reported), -1);
	(void)sem_post(&go);
	ck_assert_int_eq(sem_wait(&waits.reported), 0);
	ck_assert(!work_queue_stop_waiting(work_queue, &waits.room));
	while (!work_queue_try_submit(work_queue, &late.work, &waits.room))
		ck_assert_int_eq(sem_wait(&waits.reported), 0);
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 2);
	ck_assert_int_eq(sem_trywait(&waits.reported), -1);
}

TEST(room_is_reported_although_the_thread_goes_on_with_other_work)
{
	struct task first = { .work.run = task_run }, late = { .work.run = task_run };
	struct task other = { .work = { .run = task_run, .may_exceed_max = true } };
	struct waiting_room waits = { .room.on_room = on_room };
	struct work_queue *work_queue;
	sem_t go, other_go;

	(void)sem_init(&go, 0, 0);
	(void)sem_init(&other_go, 0, 0);
	(void)sem_init(&waits.reported, 0, 0);
	first.wait = &go;
	other.wait = &other_go;
	ck_assert_int_eq(work_queue_new("room", 1, &work_queue), 0);
	work_queue_submit(work_queue, &first.work);
	work_queue_submit(work_queue, &other.work);
	ck_assert(!work_queue_try_submit(work_queue, &late.work, &waits.room));
	(void)sem_post(&go);
	ck_assert_int_eq(sem_wait(&waits.reported), 0); /* the other work hangs still */
	(void)sem_post(&other_go);
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 2);
}

TEST(overflow_threads_are_shared_and_none_takes_more_than_it_leaves)
{
	static struct task tasks[3][WORK_QUEUE_OVERFLOW_MAX + 8];
	/* 2 of its own and half of all, one third of what is left, and what its bound says */
	static const unsigned max[3] = { WORK_QUEUE_OVERFLOW_MAX, WORK_QUEUE_OVERFLOW_MAX, 3 };
	static const unsigned want[3] = { 2 + WORK_QUEUE_OVERFLOW_MAX / 2,
					  2 + WORK_QUEUE_OVERFLOW_MAX / 4, 2 + 3 };
	struct work_queue *work_queues[3];
	sem_t go;

	(void)sem_init(&go, 0, 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(work_queue_new_overflow("overflow", 2, max[i], &work_queues[i]),
				 0);
		hang(work_queues[i], tasks[i], want[i] - 1, &go);
		ck_assert(try_hang(work_queues[i], &tasks[i][want[i] - 1], &go));
		ck_assert(!try_hang(work_queues[i], &tasks[i][want[i]], &go));
		ck_assert(work_queue_stop_waiting(work_queues[i], &no_room));
		hang(work_queues[i], tasks[i] + want[i], 1, &go);
	}
	/* A thread gives itself its name. */
	while (count_threads("overflow") < want[0] + want[1] + want[2])
		(void)usleep(10000);
	ck_assert_uint_eq(count_threads("overflow"), want[0] + want[1] + want[2]);
	for (int i = 0; i < 3; i++)
		for (unsigned k = 0; k < want[i] + 1; k++)
			(void)sem_post(&go);
	for (int i = 0; i < 3; i++)
		work_queue_free(work_queues[i]);
	/* All are back. */
	ck_assert_int_eq(work_queue_new_overflow("again", 2, max[0], &work_queues[0]), 0);
	hang(work_queues[0], tasks[0], want[0] - 1, &go);
	ck_assert(try_hang(work_queues[0], &tasks[0][want[0] - 1], &go));
	for (unsigned k = 0; k < want[0]; k++)
		(void)sem_post(&go);
	work_queue_free(work_queues[0]);
}

TEST(only_work_that_may_exceed_max_runs_on_overflow_threads)
{
	static struct task tasks[20], more[20];
	struct waiting_room waits = { .room.on_room = on_room };
	struct work_queue *work_queue;
	sem_t go, more_go;
	int n = 0;

	(void)sem_init(&go, 0, 0);
	(void)sem_init(&more_go, 0, 0);
	(void)sem_init(&waits.reported, 0, 0);
	ck_assert_int_eq(work_queue_new_overflow("overflow", 8, 100, &work_queue), 0);
	/* Threads of work that may exceed it do not count. */
	for (int i = 0; i < 20; i++)
		ck_assert(try_hang(work_queue, &more[i], &more_go));
	for (; n < 20; n++) {
		tasks[n] = (struct task){ .work.run = task_run, .wait = &go };
		if (!work_queue_try_submit(work_queue, &tasks[n].work, &waits.room))
			break;
	}
	ck_assert_int_eq(n, 8);
	(void)sem_post(&go);
	ck_assert_int_eq(sem_wait(&waits.reported), 0);
	ck_assert(work_queue_try_submit(work_queue, &tasks[8].work, &waits.room));
	for (int i = 0; i < 20; i++) {
		(void)sem_post(&go);
		(void)sem_post(&more_go);
	}
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 29);
}

TEST(threads_without_work_end_and_others_start_when_there_is_some)
{
	struct work_queue *work_queue;
	struct task tasks[3] = { 0 };
	sem_t done, go;

	(void)sem_init(&done, 0, 0);
	(void)sem_init(&go, 0, 0);
	ck_assert_int_eq(work_queue_new("idle", 2, &work_queue), 0);
	for (int i = 0; i < 3; i++) {
		tasks[i] = (struct task){ .work.run = task_run, .done = &done };
		work_queue_submit(work_queue, &tasks[i].work);
		ck_assert_int_eq(sem_wait(&done), 0);
	}
	for (int i = 0; i < 2; i++) { /* two that end their waits at about the same time */
		tasks[i] = (struct task){ .work.run = task_run, .done = &done, .wait = &go };
		work_queue_submit(work_queue, &tasks[i].work);
	}
	(void)sem_post(&go);
	(void)sem_post(&go);
	ck_assert_int_eq(sem_wait(&done), 0);
	ck_assert_int_eq(sem_wait(&done), 0);
	while (count_threads("idle") > 1) /* nobody tells when a thread has gone */
		(void)usleep(10000);
	(void)usleep(1300000);
	ck_assert_uint_eq(count_threads("idle"), 1);
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 5);
}

TEST(a_queue_without_work_can_be_freed)
{
	struct work_queue *work_queue;

	ck_assert_int_eq(work_queue_new("idle", 4, &work_queue), 0);
	work_queue_free(work_queue);
	work_queue_free(NULL);
}

TEST_LOOP(without_more_threads_a_queue_s_own_does_the_work_and_no_queue_is_made,
	  HAS_SHADOW_MEMORY ? 0 : 1)
{
	struct rlimit none = { 0, 0 };
	struct work_queue *work_queue, *other;
	struct work_room room = { 0 };
	struct task tasks[50] = { 0 };
	sem_t go;

	(void)sem_init(&go, 0, 0);
	ck_assert_int_eq(work_queue_new("own", 4, &work_queue), 0);
	while (!count_threads_in("own", "S")) /* the thread sanitizer wants memory until then */
		(void)usleep(1000);
	/* No address space for a stack: as good as no thread. */
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	ck_assert_int_eq(work_queue_new("other", 4, &other), -EAGAIN);
	for (int i = 0; i < 50; i++) {
		tasks[i] = (struct task){ .work.run = task_run, .number = i };
		if (i == 0)
			tasks[i].wait = &go;
		if (i < 49)
			work_queue_submit(work_queue, &tasks[i].work);
	}
	ck_assert(
		!work_queue_try_submit(work_queue, &tasks[49].work, &room)); /* the thread hangs */
	ck_assert(work_queue_stop_waiting(work_queue, &room));
	ck_assert_int_eq(n_run, 0);
	(void)sem_post(&go);
	work_queue_free(work_queue);
	ck_assert_int_eq(n_run, 49);
	for (int i = 0; i < 49; i++)
		ck_assert_int_eq(numbers[i], i);
	ck_assert(!pthread_equal(tasks[48].thread, pthread_self()));
}

TEST(a_queue_that_is_left_runs_what_is_queued_and_nobody_waits)
{
	struct work_queue *work_queue;
	struct task hung = { .work.run = task_run, .number = 1 };
	struct task queued = { .work.run = task_run, .number = 2 };
	sem_t go, done;

	(void)sem_init(&go, 0, 0);
	(void)sem_init(&done, 0, 0);
	hung.wait = &go;
	queued.done = &done;
	ck_assert_int_eq(work_queue_new("left", 1, &work_queue), 0);
	work_queue_submit(work_queue, &hung.work);
	work_queue_submit(work_queue, &queued.work);
	work_queue_leave(work_queue); /* returns while the first hangs */
	ck_assert_int_eq(n_run, 0);
	(void)sem_post(&go);
	(void)sem_wait(&done);
	ck_assert_int_eq(n_run, 2);
	while (count_threads("left")) /* nobody tells when a thread has gone */
		(void)usleep(1000);
	work_queue_leave(NULL);
}

TEST(the_last_thread_of_a_queue_that_is_left_frees_it)
{
	struct work_queue *work_queues[20];
	struct task tasks[20][4];
	sem_t done;

	(void)sem_init(&done, 0, 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(work_queue_new("left", 4, &work_queues[i]), 0);
		for (int j = 0; j < 4; j++) {
			tasks[i][j] = (struct task){ .work.run = task_run, .done = &done };
			work_queue_submit(work_queues[i], &tasks[i][j].work);
		}
	}
	for (int i = 0; i < 20 * 4; i++)
		(void)sem_wait(&done);
	for (int i = 0; i < 20; i++)
		work_queue_leave(work_queues[i]);
	while (count_threads("left"))
		(void)usleep(1000);
	ck_assert_int_eq(n_run, 20 * 4);
}

TEST_MAIN
