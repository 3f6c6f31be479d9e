/*
 * The look for the program's libcuda, beside fork(2).  (test_client_gpu_copy.c has the rest.)
 */
#include "client/lib/memory/cuda.h"

#include "tests/unit/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_THREADS 4
#define N_CHILDREN 50

static _Atomic bool must_stop;

static void *look_main(void *arg)
{
	while (!atomic_load(&must_stop))
		(void)cuda_get();
	return arg;
}

TEST(a_child_that_is_forked_while_threads_look_can_look_too)
{
	pthread_t threads[N_THREADS];
	int status = 0;

	for (unsigned i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, look_main, NULL), 0);
	for (unsigned i = 0; i < N_CHILDREN && !status; i++) {
		pid_t pid = fork();

		if (!pid) {
			(void)alarm(50); /* ends a child that waits for a lock */
			_exit(cuda_get() != NULL);
		}
		ck_assert_int_gt(pid, 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	atomic_store(&must_stop, true);
	for (unsigned i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(status, 0);
}

TEST_MAIN
