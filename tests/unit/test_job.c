#include "daemon/base/job.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

struct task {
	struct job job;
	pthread_t runner, finisher;
	unsigned n_runs, n_done, n_wanted;
	struct work_queue *work_queue;
};

static void task_run(struct job *job)
{
	struct task *task = container_of(job, struct task, job);

	task->runner = pthread_self();
	task->n_runs++;
}

static void task_done(struct job *job)
{
	struct task *task = container_of(job, struct task, job);

	task->finisher = pthread_self();
	if (++task->n_done < task->n_wanted)
		job_submit(task->work_queue, job, job->mailbox, job->run, job->done);
}

static void run_until_done(struct mailbox *mailbox, const struct task *task)
{
	struct pollfd poll_fd = { .fd = mailbox->event_fd, .events = POLLIN };

	while (task->n_done < task->n_wanted) {
		ck_assert_int_eq(poll(&poll_fd, 1, -1), 1);
		(void)mailbox_run(mailbox);
	}
}

TEST(a_job_runs_on_a_worker_and_is_done_by_its_owner)
{
	struct mailbox mailbox;
	struct task task = { .n_wanted = 1 };

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("job", 1, &task.work_queue), 0);
	job_submit(task.work_queue, &task.job, &mailbox, task_run, task_done);
	run_until_done(&mailbox, &task);
	ck_assert_uint_eq(task.n_runs, 1);
	ck_assert(!pthread_equal(task.runner, pthread_self()));
	ck_assert(pthread_equal(task.finisher, pthread_self()));
	work_queue_free(task.work_queue);
	mailbox_deinit(&mailbox);
}

TEST(a_job_that_is_done_can_be_submitted_again)
{
	struct mailbox mailbox;
	struct task task = { .n_wanted = 100 };

	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("job", 2, &task.work_queue), 0);
	job_submit(task.work_queue, &task.job, &mailbox, task_run, task_done);
	run_until_done(&mailbox, &task);
	ck_assert_uint_eq(task.n_runs, 100);
	ck_assert_uint_eq(task.n_done, 100);
	work_queue_free(task.work_queue);
	mailbox_deinit(&mailbox);
}

TEST_MAIN
