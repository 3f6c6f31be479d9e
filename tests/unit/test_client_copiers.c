#include "client/lib/memory/copiers.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

struct task {
	struct copy copy;
	sem_t *begun, *go; /* NULL: it tells nobody, and waits for nobody */
	int n_runs;	   /* no lock: it is one thread's at a time */
	pthread_t thread;
	bool is_signalled; /* whether that thread takes signals */
};

static struct copiers copiers;

static void task_run(struct copy *copy)
{
	struct task *task = container_of(copy, struct task, copy);
	sigset_t blocked;

	if (task->begun)
		(void)sem_post(task->begun);
	while (task->go && sem_wait(task->go) < 0)
		ck_assert_int_eq(errno, EINTR);
	task->thread = pthread_self();
	(void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int i = 1; i < 32; i++)
		if (i != SIGKILL && i != SIGSTOP && !sigismember(&blocked, i))
			task->is_signalled = true;
	task->n_runs++;
}

static bool task_post(struct task *task)
{
	task->copy.run = task_run;
	return copiers_post(&copiers, &task->copy);
}

static unsigned count_threads(void)
{
	unsigned n;

	(void)pthread_mutex_lock(&copiers.lock);
	n = copiers.n_threads;
	(void)pthread_mutex_unlock(&copiers.lock);
	return n;
}

TEST(as_many_threads_as_allowed_take_copies_and_no_signals)
{
	struct task tasks[COPIERS_MAX + 1] = { 0 };
	sem_t begun, go;

	(void)sem_init(&begun, 0, 0);
	(void)sem_init(&go, 0, 0);
	copiers_init(&copiers, COPIERS_MAX);
	ck_assert_uint_eq(count_threads(), 0);
	for (unsigned i = 0; i < COPIERS_MAX; i++) {
		tasks[i].begun = &begun;
		tasks[i].go = &go;
		ck_assert(task_post(&tasks[i]));
	}
	for (unsigned i = 0; i < COPIERS_MAX; i++)
		(void)sem_wait(&begun); /* at once, so each in a thread of its own */
	ck_assert(task_post(&tasks[COPIERS_MAX]));
	ck_assert_uint_eq(count_threads(), COPIERS_MAX);
	for (unsigned i = 0; i <= COPIERS_MAX; i++)
		ck_assert(!copiers_is_done(&copiers, &tasks[i].copy));
	for (unsigned i = 0; i < COPIERS_MAX; i++)
		(void)sem_post(&go);
	for (unsigned i = 0; i <= COPIERS_MAX; i++) {
		copiers_await(&copiers, &tasks[i].copy);
		ck_assert(copiers_is_done(&copiers, &tasks[i].copy));
		ck_assert_int_eq(tasks[i].n_runs, 1);
		ck_assert(!pthread_equal(tasks[i].thread, pthread_self()));
		ck_assert(!tasks[i].is_signalled);
	}
	copiers_deinit(&copiers);
}

TEST(an_owner_makes_what_no_copier_has_begun_with)
{
	struct task held = { 0 }, queued[3] = { 0 };
	sem_t begun, go;

	(void)sem_init(&begun, 0, 0);
	(void)sem_init(&go, 0, 0);
	copiers_init(&copiers, 1);
	held.begun = &begun;
	held.go = &go;
	ck_assert(task_post(&held));
	(void)sem_wait(&begun);
	for (int i = 0; i < 3; i++)
		ck_assert(task_post(&queued[i]));
	for (int i = 1; i < 4; i++) { /* the middle one, the last, the only one */
		copiers_make(&copiers, &queued[i % 3].copy);
		copiers_make(&copiers, &queued[i % 3].copy); /* does nothing */
		ck_assert(copiers_is_done(&copiers, &queued[i % 3].copy));
		copiers_await(&copiers, &queued[i % 3].copy);
		ck_assert_int_eq(queued[i % 3].n_runs, 1);
		ck_assert(pthread_equal(queued[i % 3].thread, pthread_self()));
	}
	copiers_make(&copiers, &held.copy); /* a copier is at it */
	ck_assert(!copiers_is_done(&copiers, &held.copy));
	(void)sem_post(&go);
	copiers_await(&copiers, &held.copy);
	ck_assert_int_eq(held.n_runs, 1);
	ck_assert(task_post(&held)); /* and again */
	(void)sem_post(&go);
	copiers_await(&copiers, &held.copy);
	ck_assert_int_eq(held.n_runs, 2);
	copiers_deinit(&copiers);
}

TEST(where_no_thread_may_be_there_nothing_is_posted)
{
	struct task task = { 0 };

	copiers_init(&copiers, 0);
	ck_assert(!task_post(&task));
	copiers_deinit(&copiers);
	ck_assert_int_eq(task.n_runs, 0);
}

TEST_LOOP(where_no_thread_can_start_nothing_is_posted_until_one_can, HAS_SHADOW_MEMORY ? 0 : 1)
{
	struct rlimit before, none = { 0, 0 };
	struct task task = { 0 };

	copiers_init(&copiers, 2);
	/* No address space for a stack: as good as no thread. */
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
	none.rlim_max = before.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	ck_assert(!task_post(&task));
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
	ck_assert(task_post(&task));
	copiers_await(&copiers, &task.copy);
	ck_assert_int_eq(task.n_runs, 1);
	copiers_deinit(&copiers);
}

TEST(two_cpus_of_those_that_this_process_has_are_left_to_others)
{
	cpu_set_t set, all;
	int n = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&set);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		unsigned wanted;

		if (!CPU_ISSET(i, &all))
			continue;
		CPU_SET(i, &set);
		n++;
		ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
		wanted = n > 2 ? (unsigned)n - 2 : 0;
		ck_assert_uint_eq(copiers_wanted(), wanted < COPIERS_MAX ? wanted : COPIERS_MAX);
	}
}

#define N_OWNERS 4
#define N_EACH 20000
#define N_AT_ONCE 8

static void *owner_main(void *arg)
{
	struct task tasks[N_AT_ONCE];

	for (int round = 0; round < N_EACH / N_AT_ONCE; round++) {
		bool is_posted[N_AT_ONCE];

		memset(tasks, 0, sizeof(tasks));
		for (int i = 0; i < N_AT_ONCE; i++)
			is_posted[i] = task_post(&tasks[i]);
		for (int i = 0; i < N_AT_ONCE; i++) {
			if (is_posted[i] && round % 3)
				copiers_make(&copiers, &tasks[i].copy);
			if (is_posted[i])
				copiers_await(&copiers, &tasks[i].copy);
			else
				task_run(&tasks[i].copy);
			if (tasks[i].n_runs != 1)
				return arg;
		}
	}
	return NULL;
}

TEST(many_owners_have_each_copy_made_once)
{
	pthread_t owners[N_OWNERS];
	void *failed;

	copiers_init(&copiers, 2);
	for (int i = 0; i < N_OWNERS; i++)
		ck_assert_int_eq(pthread_create(&owners[i], NULL, owner_main, &owners), 0);
	for (int i = 0; i < N_OWNERS; i++) {
		ck_assert_int_eq(pthread_join(owners[i], &failed), 0);
		ck_assert_ptr_null(failed);
	}
	copiers_deinit(&copiers);
}

TEST_MAIN
