#include "daemon/control/limits.h"

#include "daemon/base/log.h"
#include "daemon/control/session.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>

/* object: "store " with its name; or a client or user, which who is. */
static void log_limit(const struct session *session, const char *object, const char *store,
		      const struct hung_who *who, const struct rate_limit *limit)
{
	log_event(NULL, LOG_FIELDS(.event = "limited", .store = store, .who = who),
		  "%s%s: limited by user %u to %s/s and %" PRIu64 " ops/s (0: no limit)", object,
		  store ? store : "", session->user->uid, SIZE_TEXT(limit->bytes_per_sec),
		  limit->ops_per_sec);
}

/* ---- a user ---- */

static void on_saved(void *arg, const char *note)
{
	struct call *call = arg;

	call_end(call, 0, NULL, note);
}

static int limit_user(struct session *session, uid_t uid, const struct rate_limit *limit,
		      struct call *call, struct error *error)
{
	char key[SAVED_KEY_BYTES];
	struct saved *saved = &session->service->registry.saved;
	struct saved_change change = { .what = "limit",
				       .is_set = rate_limit_is_set(limit),
				       .until = "the daemon ends",
				       .settings.limit = *limit,
				       .on_done = on_saved,
				       .arg = call };

	(void)snprintf(key, sizeof(key), SAVED_USER_KEY, uid);
	change.entry = saved_entry(saved, key);
	if (!change.entry || usage_set_limit(&session->service->usage, uid, limit) < 0)
		return error_set(error, -ENOMEM, "user %u", uid);
	(void)snprintf(change.title, sizeof(change.title), "user %u", uid);
	log_limit(session, change.title, NULL, &(struct hung_who){ .uid = uid }, limit);
	saved_set(saved, &change);
	return 0;
}

/* ---- a client ---- */

static int limit_client(const struct session *session, const Wire__LimitSet *set,
			const struct rate_limit *limit, struct call *call, struct error *error)
{
	struct session *client = session_find(session->service, set->client);

	if (!client)
		return error_set_plain(error, -ESRCH,
				       "client %" PRIu32
				       ": there is none with this number: dsaioctl clients "
				       "lists them",
				       set->client);
	if (set->limit) {
		limiter_set(&client->limiter, limit);
		log_limit(session, session_title(client), NULL, &client->who, limit);
	}
	if (set->weight)
		handles_set_weight(client, set->weight);
	call_end(call, 0, NULL, "");
	return 0;
}

/* ---- all ---- */

int session_limit_set(struct session *session, const Wire__LimitSet *set, struct call *call,
		      struct error *error)
{
	struct store_change change = { .what = CHANGE_LIMIT };
	const struct rate_limit *limit = &change.limit;
	const struct registry_question question = call_question(call, set->store, -1);
	int r;

	r = config_check_admin(session->service->config, &session->peer,
			       "only administrators set limits", ": ask one", error);
	if (r < 0)
		return r;
	if (set->limit)
		change.limit = (struct rate_limit){ .bytes_per_sec = set->limit->bytes_per_sec,
						    .ops_per_sec = set->limit->ops_per_sec };
	if (set->has_uid)
		return limit_user(session, set->uid, limit, call, error);
	if (!set->store[0])
		return limit_client(session, set, limit, call, error);
	change.is_set = rate_limit_is_set(limit);
	r = registry_change(&session->service->registry, &question, &change, error);
	if (r == 0)
		log_limit(session, "store ", set->store, NULL, limit);
	return r;
}
