/*
 * The keeper of a store: one thread that makes the connection, closes it, and sweeps.
 */
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "daemon/rados/conn.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_NSEC NSEC_PER_SEC /* the keeper looks so often */

void keeper_state(struct rados_store *store, struct rados_state *ret_state)
{
	uint64_t now = clock_nsec();
	LOCKED(&store->lock);

	*ret_state = store->state;
	if (store->n_uses && now >= store->quiet_nsec + RADOS_PAUSE_MIN_NSEC)
		ret_state->pause_nsec = now - store->quiet_nsec;
}

/* ---- the keeper ---- */

/* Makes a new connection, which nobody uses, unless the one there may still work; and asks the cluster. */
static void store_connect(struct rados_store *store, bool is_fenced)
{
	struct error error;
	int r = 0;

	if (is_fenced) {
		conn_close(store);
		r = conn_open(store, &error);
		store->is_fenced = r < 0; /* while nobody uses it, it is the keeper's */
	}
	if (!r)
		r = conn_probe(store, &error);
	LOCKED(&store->lock);
	store->state.is_online = r == 0 && !store->is_fenced;
	(void)snprintf(store->state.text, sizeof(store->state.text), "%.159s",
		       r == 0 ? "" : error.text);
	(void)pthread_cond_broadcast(&store->changed); /* never fails */
}

/* Logs a state that is another than the last one logged. */
static void log_state(const struct rados_store *store, const char *text, char *logged)
{
	if (strcmp(text, logged) == 0)
		return;
	strcpy(logged, text);
	if (*text)
		log_warning("store %s: offline: %s", store->settings.store, text);
	else
		log_notice("store %s: online", store->settings.store);
}

static void *keeper_main(void *arg)
{
	struct rados_store *store = arg;
	char text[sizeof(store->state.text)], logged[sizeof(text)];

	privileges_own_files();
	(void)pthread_mutex_lock(&store->lock);
	strcpy(logged, store->state.text);
	while (!store->must_stop) {
		const bool is_online = store->state.is_online, is_free = !store->n_uses;
		const bool is_fenced = store->is_fenced;
		const uint64_t now = clock_nsec();
		bool has_more = false;

		strcpy(text, store->state.text);
		(void)pthread_mutex_unlock(&store->lock);
		log_state(store, text, logged);
		if (is_online)
			has_more = sweep_run(store, store->conn, now) <= now;
		else if (is_free || !is_fenced)
			store_connect(store, is_fenced);
		(void)pthread_mutex_lock(&store->lock);
		if (!store->must_stop && !has_more && store->state.is_online == is_online)
			(void)store_wait(store, clock_nsec() + TURN_NSEC);
	}
	(void)pthread_mutex_unlock(&store->lock);
	conn_close(store);
	return NULL;
}

/* ---- open, close ---- */

static void store_free(struct rados_store *store)
{
	held_files_free(store->held);
	(void)pthread_cond_destroy(&store->changed); /* nobody uses them */
	(void)pthread_mutex_destroy(&store->lock);
	free(store);
}

/* A copy that the store has; NULL of none.  There is room for each. */
static char *keep(char **room, const char *text)
{
	char *copy = *room;

	if (!text)
		return NULL;
	*room = stpcpy(copy, text) + 1;
	return copy;
}

static void keep_settings(struct rados_store *store, const struct rados_settings *settings)
{
	char *room = store->strings, *slash;

	store->settings = *settings;
	store->settings.store = keep(&room, settings->store);
	store->settings.state_dir = keep(&room, settings->state_dir);
	store->settings.keys.conf = keep(&room, settings->keys.conf);
	store->settings.keys.user = keep(&room, settings->keys.user);
	store->pool = keep(&room, settings->path + strlen(RADOS_SCHEME));
	slash = strchr(store->pool, '/'); /* rados_path_check() has seen it */
	*slash = 0;
	store->nspace = slash + 1;
	(void)snprintf(store->state_name, sizeof(store->state_name), "rados-%s", settings->store);
}

int keeper_open(const struct rados_settings *settings, struct rados_store **ret_store,
		struct error *error)
{
	struct rados_store *store = calloc(1, sizeof(*store));
	pthread_condattr_t attr;
	sigset_t old;
	int r;

	if (!store)
		return error_set(error, -ENOMEM, "store %s", settings->store);
	keep_settings(store, settings);
	(void)pthread_condattr_init(&attr); /* these cannot fail */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&store->changed, &attr);
	(void)pthread_mutex_init(&store->lock, NULL);
	store->is_fenced = true;
	store_offline(store, settings->keys.op_timeout_sec * NSEC_PER_SEC, "not connected yet");
	r = held_files_new(&store->held);
	if (r == 0) {
		signals_block(&old); /* also in librados' threads, which the keeper starts */
		r = -pthread_create(&store->keeper, NULL, keeper_main, store);
		(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (r < 0) {
		r = error_set(error, r, "store %s: its keeper", settings->store);
		store_free(store);
		return r;
	}
	(void)pthread_setname_np(store->keeper, "keeper"); /* for ps and perf only */
	*ret_store = store;
	return 0;
}

void keeper_close(struct rados_store *store)
{
	if (!store)
		return;
	(void)pthread_mutex_lock(&store->lock);
	store->must_stop = true;
	(void)pthread_cond_broadcast(&store->changed);
	(void)pthread_mutex_unlock(&store->lock);
	(void)pthread_join(store->keeper, NULL); /* a thread of ours */
	store_free(store);
}
