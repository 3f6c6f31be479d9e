#include "daemon/control/user.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Worker threads of one user for slabs, as many for its descriptors, and as many for its GPU memory: a
   guess. */
#define USER_THREADS 4u
/* Overflow threads for descriptors.  A call that hangs in a dead mount keeps its thread, and each unanswered
   request and each close of a user may hang: a guess. */
#define USER_OVERFLOW_THREADS 60u
/* Descriptors of one user that wait for close(2), before its clients wait: a guess. */
#define USER_CLOSING_FDS_MAX 64u
/* The part of RLIMIT_NOFILE for descriptors in unread replies of all, and of what is left for one user.  The
   rest is for other programs of the uid, and for clients of an earlier daemon: a guess. */
#define UNREAD_DIVISOR 4u
#define UNREAD_USER_DIVISOR 4u

int user_ref(struct users *users, uid_t uid, struct user **ret_user)
{
	char name[16];
	struct user *user;
	int r;

	LIST_EACH(struct user, known, &users->all, node) {
		if (known->uid == uid) {
			known->n_refs++;
			*ret_user = known;
			return 0;
		}
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return -ENOMEM;
	(void)snprintf(name, sizeof(name), "user-%u", uid);
	r = work_queue_new(name, USER_THREADS, &user->slab_work_queue);
	if (r == 0)
		r = work_queue_new_overflow(name, USER_THREADS, USER_OVERFLOW_THREADS,
					    &user->work_queue);
	if (r == 0)
		r = work_queue_new(name, USER_THREADS, &user->gpu_work_queue);
	if (r < 0) {
		work_queue_free(user->work_queue);
		work_queue_free(user->slab_work_queue);
		free(user);
		return r;
	}
	user->users = users;
	user->uid = uid;
	user->n_refs = 1;
	(void)snprintf(user->quota.name, sizeof(user->quota.name), "user %u", uid);
	user->quota.parent = users->quota;
	memcpy(user->quota.limit, users->limit, sizeof(user->quota.limit));
	user->gpu = (struct gpu_user){ .quota = &user->quota, .work_queue = user->gpu_work_queue };
	list_push_front(&users->all, &user->node);
	*ret_user = user;
	return 0;
}

void user_unref(struct user *user)
{
	if (--user->n_refs)
		return;
	assert(quota_is_zero(&user->quota) && !user->n_unread_fds);
	list_remove(&user->users->all, &user->node);
	/* All are idle: a session or closing socket references its user until its work is done. */
	work_queue_leave(user->slab_work_queue);
	work_queue_leave(user->work_queue);
	work_queue_leave(user->gpu_work_queue);
	free(user);
}

static bool user_has_unread(const struct user *user)
{
	const struct quota *all = user->users->quota;
	uint64_t limit = all->n_descriptors / UNREAD_DIVISOR;
	uint64_t sum = user->users->n_unread_fds + all->used[QUOTA_CALLS];
	uint64_t own = user->n_unread_fds + user->quota.used[QUOTA_CALLS];

	return own > (sum < limit ? limit - sum : 0) / UNREAD_USER_DIVISOR;
}

static bool user_is_full(const struct user *user)
{
	return user->quota.used[QUOTA_CALLS] >= user->quota.limit[QUOTA_CALLS] ||
	       user->n_closing_fds >= USER_CLOSING_FDS_MAX || user_has_unread(user);
}

bool user_must_wait(struct user *user)
{
	if (!user_is_full(user))
		return false;
	user->is_waiting = user->users->has_waiting = true;
	return true;
}

void users_room(struct users *users)
{
	if (!users->has_waiting)
		return;
	users->has_waiting = false;
	LIST_EACH(struct user, user, &users->all, node) {
		if (!user->is_waiting)
			continue;
		user->is_waiting = user_is_full(user);
		if (user->is_waiting)
			users->has_waiting = true;
		else
			users->on_room(user, users->arg);
	}
}

void user_count_unread(struct user *user, int n)
{
	user->n_unread_fds += (unsigned)n;
	user->users->n_unread_fds += (unsigned)n;
	if (n < 0)
		users_room(user->users);
}
