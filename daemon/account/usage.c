#include "daemon/account/usage.h"

#include <errno.h>
#include <stdlib.h>

void usage_deinit(struct usage *usage)
{
	LIST_EACH(struct usage_user, user, &usage->users, node)
		free(user);
	*usage = (struct usage){ 0 };
}

/* An entry that may serve another user: the rest has its counters.  NULL: there is none. */
static struct usage_user *user_recycle(struct usage *usage)
{
	LIST_EACH(struct usage_user, user, &usage->users, node) {
		if (user->n_clients || limiter_is_limited(&user->limiter))
			continue;
		list_remove(&usage->users, &user->node);
		usage->n_users--;
		usage->rest.earlier_bytes += user->earlier_bytes;
		metrics_sum_coarse(&usage->rest.ended, &user->ended);
		usage->has_rest = true;
		*user = (struct usage_user){ 0 };
		return user;
	}
	return NULL;
}

struct usage_user *usage_user(struct usage *usage, uid_t uid)
{
	struct usage_user *made = NULL;

	LIST_EACH(struct usage_user, user, &usage->users, node)
		if (user->uid == uid)
			return user;
	if (usage->n_users >= USAGE_USERS_MAX)
		made = user_recycle(usage);
	if (!made)
		made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->uid = uid;
	usage->n_users++;
	list_push(&usage->users, &made->node);
	return made;
}

int usage_set_limit(struct usage *usage, uid_t uid, const struct rate_limit *limit)
{
	struct usage_user *user = usage_user(usage, uid);

	if (!user)
		return -ENOMEM;
	limiter_set(&user->limiter, limit);
	return 0;
}
