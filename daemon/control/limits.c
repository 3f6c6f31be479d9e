#include "daemon/control/limits.h"

#include "daemon/base/log.h"
#include "daemon/control/session.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A limit on its way to the disk, or a store that is being found. */
struct limiting {
	struct call *call;
	limits_done_fn *on_done;
	uid_t uid;
};

static void limiting_done(struct limiting *limiting, int result, const struct error *error,
			  const char *note)
{
	limiting->on_done(limiting->call, result, error, note);
	free(limiting);
}

static void log_limit(const struct session *session, const char *kind, const char *name,
		      const Wire__Limit *limit)
{
	log_notice("%s %s: limited by user %u to %s/s and %" PRIu64 " ops/s (0: no limit)", kind,
		   name, session->user->uid, SIZE_TEXT(limit->bytes_per_sec), limit->ops_per_sec);
}

static struct rate_limit limit_of(const Wire__LimitSet *set)
{
	return (struct rate_limit){ .bytes_per_sec = set->limit->bytes_per_sec,
				    .ops_per_sec = set->limit->ops_per_sec };
}

/* ---- a store ---- */

static void on_store(struct store *store, int result, const struct error *error, const char *note,
		     void *arg)
{
	(void)store; /* the request has named it */
	limiting_done(arg, result, error, note);
}

static int limit_store(struct session *session, const Wire__LimitSet *set,
		       struct limiting *limiting, struct error *error)
{
	const struct rate_limit limit = limit_of(set);
	const struct registry_question question = {
		.name = set->store,
		.fd = -1,
		.peer = &session->peer,
		.work_queue = session->user->work_queue,
		.who = &session->who,
		.on_done = on_store,
		.arg = limiting,
	};

	return registry_set_limit(&session->service->registry, &question, &limit, error);
}

/* ---- a user ---- */

static void on_saved(void *arg, int result, const struct error *error)
{
	struct limiting *limiting = arg;
	char note[ERROR_TEXT_BYTES + 100] = "";

	if (result < 0) {
		(void)snprintf(
			note, sizeof(note),
			"user %u: the limit is not saved: %s; it lasts until the daemon ends",
			limiting->uid, error->text);
		log_warning("%s", note);
	}
	limiting_done(limiting, 0, NULL, note);
}

static int limit_user(struct session *session, const Wire__LimitSet *set, struct limiting *limiting,
		      struct error *error)
{
	struct service *service = session->service;
	const struct saved_settings settings = { .limit = limit_of(set) };
	char key[SAVED_KEY_BYTES], title[32];

	limiting->uid = set->uid;
	if (users_set_limit(&service->users, set->uid, &settings.limit) < 0)
		return error_set(error, -ENOMEM, "user %" PRIu32, set->uid);
	if (!service->registry.saved.dir) {
		(void)error_set_plain(error, -ENOENT, "there is no state_dir");
		on_saved(limiting, rate_limit_is_set(&settings.limit) ? -ENOENT : 0, error);
		return 0;
	}
	saved_key_by_uid(set->uid, key);
	(void)snprintf(title, sizeof(title), "user %" PRIu32, set->uid);
	return saved_set(&service->registry.saved, key, title, &settings, on_saved, limiting,
			 error);
}

/* ---- a client ---- */

static int limit_client(const struct session *session, const Wire__LimitSet *set,
			struct limiting *limiting, struct error *error)
{
	LIST_EACH(struct session, s, &session->service->sessions, node) {
		if (s->id != set->client)
			continue;
		if (set->limit) {
			const struct rate_limit limit = limit_of(set);

			limiter_set(&s->limiter, &limit);
		}
		if (set->weight)
			handles_set_weight(s, set->weight);
		limiting_done(limiting, 0, NULL, "");
		return 0;
	}
	return error_set_plain(error, -ESRCH,
			       "client %" PRIu32
			       ": there is none with this number: dsaioctl clients "
			       "lists them",
			       set->client);
}

/* ---- all ---- */

int session_limit_set(struct session *session, const Wire__LimitSet *set, struct call *call,
		      limits_done_fn *on_done, struct error *error)
{
	struct limiting *limiting;
	char name[16];
	int r;

	if (!config_is_admin(session->service->config, &session->peer))
		return error_set_plain(
			error, -EPERM,
			"limit: only administrators set it (root, the daemon's own user, "
			"members of admin_group in dsaiod.conf): ask one");
	limiting = calloc(1, sizeof(*limiting));
	if (!limiting)
		return error_set(error, -ENOMEM, "limit");
	*limiting = (struct limiting){ .call = call, .on_done = on_done };
	(void)snprintf(name, sizeof(name), "%" PRIu32, set->client ? set->client : set->uid);
	if (set->store[0])
		r = limit_store(session, set, limiting, error);
	else if (set->has_uid)
		r = limit_user(session, set, limiting, error);
	else
		r = limit_client(session, set, limiting, error);
	if (r < 0)
		free(limiting);
	else if (set->limit)
		log_limit(session,
			  set->store[0]	 ? "store"
			  : set->has_uid ? "user"
					 : "client",
			  set->store[0] ? set->store : name, set->limit);
	return r;
}
