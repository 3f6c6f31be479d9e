/*
 * A job: work for a worker thread whose end its owner hears of.
 *
 * job_submit() queues it.  A worker thread calls run(), then the owner of the mailbox calls done(),
 * which may free the job or submit it again.
 */
#ifndef DSAIO_DAEMON_BASE_JOB_H
#define DSAIO_DAEMON_BASE_JOB_H

#include "daemon/base/mailbox.h"
#include "daemon/base/work_queue.h"

/* Embedded in the object that it is about. */
struct job {
	void (*run)(struct job *job);
	void (*done)(struct job *job);
	struct mailbox *mailbox; /* borrowed */
	struct work work;	 /* the caller sets work.about, if it may hang */
	struct message message;
};

/* Any thread.  The job is not queued, nor is its message under way. */
void job_submit(struct work_queue *work_queue, struct job *job, struct mailbox *mailbox,
		void (*run)(struct job *job), void (*done)(struct job *job));

#endif
