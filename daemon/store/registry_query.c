#include "daemon/store/registry_parts.h"

#include "daemon/base/job.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An open question: it passes the user's worker thread and, to save a change, that of the saved settings. */
struct query {
	struct registry *registry;
	struct registry_question question;
	struct store_change change;
	struct store *store; /* referenced until its change is saved */
	struct job job;
	char path[128]; /* of the descriptor, for error texts */
	struct file_facts facts;
	int result;
	struct error error;
};

static void query_done(void *arg, const char *note)
{
	struct query *query = arg;

	query->question.on_done(query->store, query->result,
				query->result < 0 ? &query->error : NULL, note,
				query->question.arg);
	if (query->store)
		store_unref(query->store);
	free(query);
}

/* Stores with one key (subvolumes of a btrfs) are one file system. */
static bool is_same_file_system(const struct store *a, const struct store *b)
{
	return a == b || (a->saved && a->saved == b->saved);
}

static void store_set(struct store *store, const struct store_change *change,
		      const struct profile *profile)
{
	if (change->what == CHANGE_PROFILE) {
		store->profile = change->is_set ? *profile : store->given_profile;
		store->profile_source = change->is_set ? PROFILE_SAVED : store->given_source;
	} else if (change->what == CHANGE_LIMIT) {
		limiter_set(&store->lane_store.limiter, &change->limit);
	} else {
		lane_store_set_drained(&store->lane_store, change->is_set);
	}
}

static struct saved_settings settings_of(const struct store *store)
{
	return (struct saved_settings){
		.has_profile = store->profile_source == PROFILE_SAVED,
		.profile = store->profile,
		.limit = limiter_get(&store->lane_store.limiter),
		.is_drained = lane_store_is_drained(&store->lane_store),
	};
}

static void query_change(struct query *query)
{
	static const char *const names[] = { "", "profile", "limit", "drain" };
	struct registry *registry = query->registry;
	const struct store_change *change = &query->change;
	struct store *store = query->store;
	const struct profile profile = profile_fill(&change->profile, &store->profile);
	struct saved_change saved;

	LIST_EACH(struct store, s, &registry->stores, node)
		if (is_same_file_system(s, store))
			store_set(s, change, &profile);
	saved = (struct saved_change){
		.entry = store->saved,
		.what = names[change->what],
		.is_set = change->is_set,
		.until = store->is_automatic ? "nobody has used the store for a minute"
					     : "the daemon ends",
		.settings = settings_of(store),
		.on_done = query_done,
		.arg = query,
	};
	(void)snprintf(saved.title, sizeof(saved.title), "store %s", store->name);
	saved_set(&registry->saved, &saved);
}

/* The store has been found, or the query has an error. */
static void query_go_on(struct query *query, struct store *store)
{
	if (query->result == 0 && store) { /* one implies the other, which cppcheck can't see */
		store_ref(store);
		query->store = store;
	}
	if (query->result == 0 && query->change.what)
		query_change(query);
	else
		query_done(query, "");
}

static void looked_main(struct job *job)
{
	struct query *query = container_of(job, struct query, job);
	struct store *store = NULL;

	if (query->result == 0)
		query->result = registry_find_or_make(query->registry, &query->facts, query->path,
						      query->question.peer, !query->change.what,
						      &store, &query->error);
	query_go_on(query, store);
}

static void look_run(struct job *job)
{
	struct query *query = container_of(job, struct query, job);
	char link[32];
	ssize_t n;

	/* The kernel knows the name: this calls no file system. */
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", query->question.fd);
	n = readlink(link, query->path, sizeof(query->path) - 1);
	query->path[n > 0 ? n : 0] = 0;
	for (char *c = query->path; *c; c++)
		if (*c < ' ' || *c == 0x7f)
			*c = '?';
	query->result = file_look(query->question.fd, query->path, &query->facts, &query->error);
	closep(&query->question.fd);
}

static int check_profile(const struct registry *registry, const struct registry_question *question,
			 const struct store_change *change, struct error *error)
{
	char why[ERROR_TEXT_BYTES - 64];
	int r = config_check_admin(registry->config, question->peer,
				   "profile: only administrators set it",
				   ": ask one, or give a handle a profile of its own", error);

	if (r == 0 && change->is_set &&
	    profile_check(&change->profile.profile, why, sizeof(why)) < 0)
		r = error_set_plain(error, -EINVAL, "%s", why);
	return r;
}

int registry_change(struct registry *registry, const struct registry_question *question,
		    const struct store_change *change, struct error *error)
{
	struct store *store = registry_named(registry, question->name);
	struct query *query;
	char served[200];
	int r = change->what == CHANGE_PROFILE ? check_profile(registry, question, change, error)
					       : 0;

	if (r < 0)
		return r;
	if ((question->name[0] != 0) == (question->fd >= 0))
		return error_set_plain(error, -EINVAL,
				       "store: either its name or a descriptor of something on it "
				       "is needed, and not both");
	if (question->name[0] && !store) {
		registry_text(registry, served, sizeof(served));
		return error_set_plain(error, -ENXIO,
				       "store %.64s: the daemon has none with this name (it serves "
				       "%s): name one of them, or a file or directory that lies on "
				       "the one",
				       question->name, served);
	}
	query = calloc(1, sizeof(*query));
	if (!query)
		return error_set(error, -ENOMEM, "store");
	query->registry = registry;
	query->question = *question;
	query->change = *change;
	if (store) {
		query_go_on(query, store);
		return 0;
	}
	query->job.work.about = (struct hung_about){
		.what = "check", .file = "(store)", .fd = question->fd, .who = *question->who
	};
	job_submit(question->work_queue, &query->job, registry->main_mailbox, look_run,
		   looked_main);
	return 0;
}
