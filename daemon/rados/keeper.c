/*
 * The keeper of a store: one thread that makes the connection, closes it, and sweeps.
 *
 * A connection is used from when the addresses in the state file are blocklisted, which are those of the daemon or the
 * connection before, and its own are written there, until a call of it comes back with -ESHUTDOWN.
 */
#include "daemon/rados/store.h"

#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "daemon/base/state_file.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_NSEC NSEC_PER_SEC	  /* the keeper looks so often */
#define ADDRESSES_MAX_BYTES 16384 /* of at most 16 links */

struct rados_conn {
	struct rados_store *store;
	struct link {
		rados_t cluster;
		rados_ioctx_t io;
	} links[];
};

struct rados_store {
	struct rados_settings settings;
	char state_name[200];
	struct held_files *held;
	struct rados_conn *conn; /* the keeper's, unless the store is online */
	pthread_t keeper;

	pthread_mutex_t lock;
	pthread_cond_t changed;	  /* it is online, or the keeper must stop */
	struct rados_state state; /* from here on under the lock; pause_nsec is not used */
	uint64_t quiet_nsec;	  /* since when no use of the connection ended */
	uint32_t n_uses;
	bool must_stop;
};

/* ---- for all threads ---- */

const struct rados_settings *store_settings(const struct rados_store *store)
{
	return &store->settings;
}

struct held_files *store_held(struct rados_store *store)
{
	return store->held;
}

/* Waits under the lock for a change.  Returns whether there was one before that time. */
static bool store_wait(struct rados_store *store, uint64_t until_nsec)
{
	struct timespec until = { .tv_sec = (time_t)(until_nsec / NSEC_PER_SEC),
				  .tv_nsec = (long)(until_nsec % NSEC_PER_SEC) };

	return pthread_cond_timedwait(&store->changed, &store->lock, &until) != ETIMEDOUT;
}

/* Under the lock. */
static struct rados_conn *conn_use(struct rados_store *store)
{
	if (!store->state.is_online)
		return NULL;
	if (store->n_uses++ == 0)
		store->quiet_nsec = clock_nsec();
	return store->conn;
}

struct rados_conn *conn_try(struct rados_store *store)
{
	LOCKED(&store->lock);

	return conn_use(store);
}

int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error)
{
	const uint64_t nsec = store->settings.op_timeout_msec * (NSEC_PER_SEC / 1000);
	const uint64_t until_nsec = clock_nsec() + nsec;
	LOCKED(&store->lock);

	while (!(*ret_conn = conn_use(store)))
		if (!store_wait(store, until_nsec))
			return error_set_plain(error, -EHOSTDOWN, "store %s: offline: %s",
					       store->settings.store, store->state.text);
	return 0;
}

void conn_put(struct rados_conn *conn)
{
	struct rados_store *store = conn->store;
	uint64_t now = clock_nsec(), nsec;
	LOCKED(&store->lock);

	nsec = now > store->quiet_nsec ? now - store->quiet_nsec : 0;
	if (nsec >= RADOS_PAUSE_MIN_NSEC) {
		store->state.n_pauses++;
		if (nsec > store->state.longest_pause_nsec)
			store->state.longest_pause_nsec = nsec;
	}
	store->quiet_nsec = now;
	store->n_uses--;
}

rados_ioctx_t conn_io(const struct rados_conn *conn)
{
	return conn->links[0].io;
}

rados_ioctx_t conn_io_next(const struct rados_conn *conn, unsigned turn)
{
	return conn->links[turn % conn->store->settings.connections].io;
}

int conn_note(struct rados_conn *conn, int r)
{
	if (r == -ESHUTDOWN) {
		LOCKED(&conn->store->lock);

		conn->store->state.is_online = false;
		strcpy(conn->store->state.text, "this daemon was blocklisted");
	}
	return r;
}

void keeper_state(struct rados_store *store, struct rados_state *ret_state)
{
	uint64_t now = clock_nsec();
	LOCKED(&store->lock);

	*ret_state = store->state;
	if (store->n_uses && now >= store->quiet_nsec + RADOS_PAUSE_MIN_NSEC)
		ret_state->pause_nsec = now - store->quiet_nsec;
}

/* ---- the connection ---- */

static void conn_close(struct rados_store *store)
{
	struct rados_conn *conn = TAKE_PTR(store->conn);

	for (uint32_t i = 0; conn && i < store->settings.connections; i++) {
		if (conn->links[i].io)
			rados_ioctx_destroy(conn->links[i].io);
		if (conn->links[i].cluster)
			rados_shutdown(conn->links[i].cluster);
	}
	free(conn);
}

/* Connects; ret_addresses: as rados_blocklist_add() takes them.  The options bound each call, and keep librados' own
   files away. */
static int link_open(const struct rados_settings *s, struct link *link, char **ret_addresses,
		     struct error *error)
{
	char bytes[24], sec[24];
	const char *const options[][2] = {
		{ "rados_osd_op_timeout", sec },
		{ "rados_mon_op_timeout", sec },
		{ "client_mount_timeout", sec },
		{ "objecter_inflight_op_bytes", bytes },
		{ "objecter_inflight_ops", "1048576" },
		{ "log_file", "" },
		{ "admin_socket", "" },
	};
	int r = rados_create(&link->cluster, s->user);

	if (r < 0)
		return error_set(error, r, "user %s", s->user ? s->user : "admin");
	r = rados_conf_read_file(link->cluster, s->conf);
	if (r < 0)
		return error_set(error, r, "ceph_conf %s",
				 s->conf ? s->conf : "in Ceph's own places");
	(void)snprintf(sec, sizeof(sec), "%u", (s->op_timeout_msec + 999) / 1000);
	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, 2 * s->inflight_max + RADOS_OBJECT_MAX);
	for (size_t i = 0; r >= 0 && i < sizeof(options) / sizeof(*options); i++)
		r = rados_conf_set(link->cluster, options[i][0], options[i][1]);
	if (r < 0 || (r = rados_connect(link->cluster)) < 0)
		return error_set(error, r, "cluster not reached");
	r = rados_ioctx_create(link->cluster, s->pool, &link->io);
	if (r < 0 || (r = rados_getaddrs(link->cluster, ret_addresses)) < 0)
		return error_set(error, r, "pool %s", s->pool);
	rados_ioctx_set_namespace(link->io, s->nspace);
	rados_set_pool_full_try(link->io);
	return 0;
}

/* Ops from the addresses in the state file come to nothing from now on. */
static int store_fence(const struct rados_store *store, struct error *error)
{
	_cleanup_(closep) int dir_fd = open(store->settings.state_dir,
					    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(fclosep) FILE *file = NULL;
	char line[512];
	int r = 0;

	if (dir_fd >= 0)
		file = state_file_open(dir_fd, store->state_name, ADDRESSES_MAX_BYTES);
	if (!file)
		return errno == ENOENT
			       ? 0
			       : error_set(error, -errno, "state file %s", store->state_name);
	while (r >= 0 && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		r = rados_blocklist_add(store->conn->links[0].cluster, line, 0);
	}
	/* Each connection: an osd that gets an op by the new map refuses the other's from then on. */
	for (uint32_t i = 0; r >= 0 && i < store->settings.connections; i++)
		r = rados_wait_for_latest_osdmap(store->conn->links[i].cluster);
	if (r < 0 || ferror(file))
		return error_set(error, r < 0 ? r : -EIO,
				 "addresses in the state file %s not blocklisted; the user needs "
				 "mon 'profile rbd'",
				 store->state_name);
	return 0;
}

/* Also after a failure conn_close() is due. */
static int conn_open(struct rados_store *store, struct error *error)
{
	const struct rados_settings *s = &store->settings;
	struct rados_conn *conn = calloc(1, sizeof(*conn) + s->connections * sizeof(*conn->links));
	char text[ADDRESSES_MAX_BYTES], *addresses;
	size_t n = 0;
	int r;

	if (!conn)
		return error_set(error, -ENOMEM, "connection");
	store->conn = conn;
	conn->store = store;
	for (uint32_t i = 0; i < s->connections; i++) {
		r = link_open(s, &conn->links[i], &addresses, error);
		if (r < 0)
			return r;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%.500s\n", addresses);
		rados_buffer_free(addresses);
	}
	r = s->state_dir ? store_fence(store, error) : 0;
	return r == 0 && s->state_dir
		       ? state_file_write(s->state_dir, store->state_name, text, false, error)
		       : r;
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
