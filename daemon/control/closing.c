#include "daemon/control/closing.h"

#include "daemon/base/job.h"
#include "proto/util/cleanup.h"

#include <stdlib.h>
#include <unistd.h>

struct closing {
	struct user *user;
	void (*on_closed)(void *arg);
	void *arg;
	struct job job;
	unsigned n_fds;
	int fds[];
};

static void closing_done(struct job *job)
{
	struct closing *closing = container_of(job, struct closing, job);
	struct user *user = closing->user;
	void (*on_closed)(void *arg) = closing->on_closed;
	void *arg = closing->arg;

	user->n_closing_fds -= closing->n_fds;
	free(closing);
	users_room(user->users);
	on_closed(arg); /* may drop the last reference to the user */
}

static void closing_run(struct job *job)
{
	struct closing *closing = container_of(job, struct closing, job);

	for (unsigned i = 0; i < closing->n_fds; i++)
		closep(&closing->fds[i]);
}

bool closing_start(struct user *user, const struct hung_who *who, const char *file, const int *fds,
		   unsigned n_fds, void (*on_closed)(void *arg), void *arg)
{
	struct closing *closing;
	unsigned n = 0;

	for (unsigned i = 0; i < n_fds; i++)
		n += fds[i] >= 0;
	if (!n)
		return false;
	closing = calloc(1, sizeof(*closing) + n * sizeof(closing->fds[0]));
	if (!closing) {
		/* This thread may hang now, but a leak of descriptors would be worse. */
		for (unsigned i = 0; i < n_fds; i++)
			if (fds[i] >= 0)
				(void)close(fds[i]); /* errors concern the client only */
		return false;
	}
	closing->user = user;
	closing->on_closed = on_closed;
	closing->arg = arg;
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			closing->fds[closing->n_fds++] = fds[i];
	closing->job.work.about = (struct hung_about){
		.what = "close",
		.file = file,
		.fd = closing->fds[0],
		.who = *who,
	};
	user->n_closing_fds += closing->n_fds;
	job_submit(user->work_queue, &closing->job, user->users->mailbox, closing_run,
		   closing_done);
	return true;
}
