#include "daemon/control/closing.h"

#include "proto/util/cleanup.h"

#include <stdlib.h>
#include <unistd.h>

struct closing {
	struct user *user;
	void (*on_closed)(void *arg);
	void *arg;
	struct work work;
	struct message message;
	unsigned n_fds;
	int fds[];
};

static void closing_done(struct message *message)
{
	struct closing *closing = container_of(message, struct closing, message);
	struct user *user = closing->user;
	void (*on_closed)(void *arg) = closing->on_closed;
	void *arg = closing->arg;
	bool was_full = user_is_full(user);

	user->n_closing_fds -= closing->n_fds;
	free(closing);
	user_room(user, was_full);
	on_closed(arg); /* may give the user up */
}

static void closing_run(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);

	for (unsigned i = 0; i < closing->n_fds; i++)
		closep(&closing->fds[i]);
	mailbox_post(closing->user->users->mailbox, &closing->message);
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
		/* A hang of this thread is better than a leak of descriptors. */
		for (unsigned i = 0; i < n_fds; i++)
			if (fds[i] >= 0)
				(void)close(fds[i]); /* foreign: its errors are the client's */
		return false;
	}
	closing->user = user;
	closing->on_closed = on_closed;
	closing->arg = arg;
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			closing->fds[closing->n_fds++] = fds[i];
	closing->message.run = closing_done;
	closing->work.run = closing_run;
	closing->work.about = (struct hung_about){
		.what = "close",
		.file = file,
		.fd = closing->fds[0],
		.who = *who,
	};
	user->n_closing_fds += closing->n_fds;
	work_queue_submit(user->work_queue, &closing->work);
	return true;
}
