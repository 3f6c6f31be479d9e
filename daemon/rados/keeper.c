/*
 * The keeper of a store: one thread that makes the connection, closes it, and sweeps.
 */
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "daemon/base/state_file.h"
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

/* Nobody uses the connection. */
static void store_connect(struct rados_store *store)
{
	char *text = store->state.text; /* while it is offline and unused, nobody else writes it */
	struct error error;
	int r;

	conn_close(store);
	r = conn_open(store, &error);
	if (r == 0)
		log_notice("store %s: online", store->settings.store);
	else if (strncmp(text, error.text, sizeof(store->state.text) - 1) != 0)
		log_warning("store %s: offline: %s", store->settings.store, error.text);
	LOCKED(&store->lock);
	store->state.is_online = r == 0;
	(void)snprintf(text, sizeof(store->state.text), "%.159s", r == 0 ? "" : error.text);
	(void)pthread_cond_broadcast(&store->changed); /* never fails */
}

static void *keeper_main(void *arg)
{
	struct rados_store *store = arg;
	const char *state_dir = store->settings.state_dir;
	struct error error;

	privileges_own_files();
	(void)pthread_mutex_lock(&store->lock);
	while (!store->must_stop) {
		const bool is_online = store->state.is_online, is_free = !store->n_uses;
		const uint64_t now = clock_nsec();
		bool has_more = false;

		(void)pthread_mutex_unlock(&store->lock);
		if (is_online)
			has_more = sweep_run(store, store->conn, now) <= now;
		else if (is_free)
			store_connect(store);
		(void)pthread_mutex_lock(&store->lock);
		if (!store->must_stop && !has_more)
			(void)store_wait(store, clock_nsec() + TURN_NSEC);
	}
	(void)pthread_mutex_unlock(&store->lock);
	conn_close(store);
	/* All ops have ended, so there is nothing to fence; unless it is offline: the file may be another daemon's. */
	if (store->state.is_online && state_dir &&
	    state_file_write(state_dir, store->state_name, NULL, false, &error) < 0)
		log_warning("store %s: %s", store->settings.store, error.text);
	return NULL;
}

/* ---- open, close ---- */

enum { N_STRINGS = 6 };

static void strings_of(struct rados_settings *s, const char **strings[N_STRINGS])
{
	const char **const all[] = { &s->store, &s->pool, &s->nspace,
				     &s->conf,	&s->user, &s->state_dir };

	memcpy(strings, all, sizeof(all));
}

static void store_free(struct rados_store *store)
{
	const char **strings[N_STRINGS];

	strings_of(&store->settings, strings);
	for (size_t i = 0; i < N_STRINGS; i++)
		free((char *)(uintptr_t)*strings[i]);
	held_files_free(store->held);
	(void)pthread_cond_destroy(&store->changed); /* nobody uses them */
	(void)pthread_mutex_destroy(&store->lock);
	free(store);
}

int keeper_open(const struct rados_settings *settings, struct rados_store **ret_store,
		struct error *error)
{
	struct rados_store *store = calloc(1, sizeof(*store));
	const char **strings[N_STRINGS];
	pthread_condattr_t attr;
	sigset_t old;
	int r;

	if (!store)
		return error_set(error, -ENOMEM, "store %s", settings->store);
	store->settings = *settings;
	(void)snprintf(store->state_name, sizeof(store->state_name), "rados-%s", settings->store);
	strcpy(store->state.text, "not connected yet");
	(void)pthread_condattr_init(&attr); /* these cannot fail */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&store->changed, &attr);
	(void)pthread_mutex_init(&store->lock, NULL);
	r = held_files_new(&store->held);
	strings_of(&store->settings, strings);
	for (size_t i = 0; i < N_STRINGS; i++)
		if (*strings[i] && !(*strings[i] = strdup(*strings[i])))
			r = -ENOMEM;
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
