#include "daemon/engine/workers.h"

#include "daemon/base/work_queue.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Blocking calls of one user on one store that may be under way at once: a guess. */
#define THREADS 8u
/* Further threads where worker threads are the engine: for two channels at full depth, so that a channel
   whose blocks hang does not block the user's other channels. */
#define THREADS_FURTHER (2 * WORKERS_DEPTH - THREADS)

struct workers_of_user {
	struct workers_of_user *next;
	uid_t uid;
	unsigned n_taken;
	struct work_queue *work_queue;
};

int workers_take(struct workers *workers, uid_t uid, struct work_queue **ret_queue)
{
	_cleanup_(freep) struct workers_of_user *new = NULL;
	struct workers_of_user *user;
	int r;

	for (user = workers->first; user && user->uid != uid; user = user->next)
		;
	if (!user) {
		new = calloc(1, sizeof(*new));
		if (!new)
			return -ENOMEM;
		r = work_queue_new_deep("store", THREADS, THREADS_FURTHER, &new->work_queue);
		if (r < 0)
			return r;
		user = TAKE_PTR(new);
		user->uid = uid;
		user->next = workers->first;
		workers->first = user;
	}
	user->n_taken++;
	*ret_queue = user->work_queue;
	return 0;
}

void workers_give(struct workers *workers, uid_t uid)
{
	for (struct workers_of_user **p = &workers->first; *p; p = &(*p)->next) {
		struct workers_of_user *user = *p;

		if (user->uid != uid)
			continue;
		assert(user->n_taken > 0);
		if (--user->n_taken == 0) {
			*p = user->next;
			work_queue_leave(
				user->work_queue); /* its channels are gone, so it is idle */
			free(user);
		}
		return;
	}
	assert(false && "the work queue was taken");
}
