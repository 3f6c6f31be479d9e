#include "daemon/base/job.h"

#include "proto/util/cleanup.h"

static void job_done(struct message *message)
{
	struct job *job = container_of(message, struct job, message);

	job->done(job);
}

static void job_run(struct work *work)
{
	struct job *job = container_of(work, struct job, work);

	job->run(job);
	mailbox_post(job->mailbox, &job->message, job_done);
}

void job_submit(struct work_queue *work_queue, struct job *job, struct mailbox *mailbox,
		void (*run)(struct job *job), void (*done)(struct job *job))
{
	job->run = run;
	job->done = done;
	job->mailbox = mailbox;
	job->work.run = job_run;
	work_queue_submit(work_queue, &job->work);
}
