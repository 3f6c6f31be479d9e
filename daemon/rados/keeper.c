/*
 * The keeper of a store: one thread that makes connections and closes them, and sweeps.
 *
 * It alone changes the list of connections.  A connection is used from when the daemon before this one is fenced and
 * the connection's own addresses are in the state directory, until an op of it comes back with -ESHUTDOWN.  The state
 * file has the addresses of all connections that there may be, so the next daemon fences each of them.
 */
#include "daemon/rados/keeper.h"

#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "daemon/base/state_file.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETRY_NSEC NSEC_PER_SEC
#define ADDRESSES_MAX_BYTES 65536

struct link {
	rados_t cluster;
	rados_ioctx_t io;
	char *addresses; /* as rados_blocklist_add() takes them */
};

struct rados_conn {
	struct rados_conn *next; /* the keeper's */
	struct rados_store *store;
	uint32_t
		n_refs; /* under the store's lock; the store's own for the present one is not among them */
	uint32_t n_links;
	struct link links[];
};

struct rados_store {
	struct rados_settings settings;
	struct held_files *held;
	pthread_t keeper;
	struct rados_conn *conns; /* all; the keeper's */
	bool is_fenced;		  /* the daemon before this one; the keeper's */
	bool has_reported;	  /* that it is offline; the keeper's */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* of what is under the lock */
	struct rados_conn *present;
	bool must_stop, must_look; /* the keeper */
	char since[32];		   /* it is offline */
	char text[sizeof(((struct rados_state *)0)->text)];
	int event_fd;
	_Atomic bool
		is_online; /* there is a present one: for a look without the lock, so relaxed */

	/* The lane writes, any thread reads; nothing else depends on them: relaxed. */
	_Atomic uint64_t quiet_nsec; /* since when no op ended; 0: none is under way */
	_Atomic uint64_t longest_nsec;
	_Atomic uint32_t n_pauses;
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

bool store_is_online(const struct rados_store *store)
{
	return atomic_load_explicit(&store->is_online, memory_order_relaxed);
}

/* Under the lock. */
static void conn_set(struct rados_store *store, struct rados_conn *conn)
{
	time_t now = time(NULL);
	struct tm tm;

	store->present = conn;
	atomic_store_explicit(&store->is_online, conn, memory_order_relaxed);
	if (!conn) {
		(void)strftime(store->since, sizeof(store->since), "%F %T", localtime_r(&now, &tm));
		(void)snprintf(store->text, sizeof(store->text), "cluster not reached since %s",
			       store->since);
	}
	store->must_look = true;
	(void)pthread_cond_broadcast(&store->changed); /* these never fail */
}

static uint64_t timeout_nsec(const struct rados_store *store)
{
	return store->settings.op_timeout_msec * (NSEC_PER_SEC / 1000);
}

/* Waits under the lock for a change.  Returns whether there was one before that time. */
static bool store_wait(struct rados_store *store, uint64_t until_nsec)
{
	struct timespec until = { .tv_sec = (time_t)(until_nsec / NSEC_PER_SEC),
				  .tv_nsec = (long)(until_nsec % NSEC_PER_SEC) };

	return pthread_cond_timedwait(&store->changed, &store->lock, &until) != ETIMEDOUT;
}

int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error)
{
	const uint64_t until_nsec = clock_nsec() + timeout_nsec(store);
	LOCKED(&store->lock);

	while (!store->present)
		if (!store_wait(store, until_nsec))
			return error_set_plain(error, -EHOSTDOWN, "store %s: offline: %s",
					       store->settings.store, store->text);
	store->present->n_refs++;
	*ret_conn = store->present;
	return 0;
}

struct rados_conn *conn_try(struct rados_store *store)
{
	LOCKED(&store->lock);

	if (store->present)
		store->present->n_refs++;
	return store->present;
}

void conn_put(struct rados_conn *conn)
{
	struct rados_store *store = conn->store;
	LOCKED(&store->lock);

	assert(conn->n_refs > 0);
	if (--conn->n_refs == 0 && conn != store->present) {
		store->must_look = true;
		(void)pthread_cond_broadcast(&store->changed);
	}
}

rados_ioctx_t conn_io(const struct rados_conn *conn)
{
	return conn->links[0].io;
}

rados_ioctx_t conn_io_next(const struct rados_conn *conn, unsigned turn)
{
	return conn->links[turn % conn->n_links].io;
}

int conn_note(struct rados_conn *conn, int r)
{
	if (r == -ESHUTDOWN) {
		LOCKED(&conn->store->lock);

		if (conn->store->present == conn)
			conn_set(conn->store, NULL);
	}
	return r;
}

void store_wake(struct rados_store *store, int event_fd)
{
	LOCKED(&store->lock);

	store->event_fd = event_fd;
}

void store_began(struct rados_store *store, uint64_t now_nsec)
{
	if (!atomic_load_explicit(&store->quiet_nsec, memory_order_relaxed))
		atomic_store_explicit(&store->quiet_nsec, now_nsec, memory_order_relaxed);
}

void store_ended(struct rados_store *store, uint64_t now_nsec, bool is_busy)
{
	uint64_t nsec = now_nsec - atomic_load_explicit(&store->quiet_nsec, memory_order_relaxed);

	if (nsec >= RADOS_PAUSE_MIN_NSEC)
		atomic_fetch_add_explicit(&store->n_pauses, 1, memory_order_relaxed);
	if (nsec >= RADOS_PAUSE_MIN_NSEC &&
	    nsec > atomic_load_explicit(&store->longest_nsec, memory_order_relaxed))
		atomic_store_explicit(&store->longest_nsec, nsec, memory_order_relaxed);
	atomic_store_explicit(&store->quiet_nsec, is_busy ? now_nsec : 0, memory_order_relaxed);
}

void keeper_state(const struct rados_store *const_store, struct rados_state *ret_state)
{
	struct rados_store *store = (struct rados_store *)(uintptr_t)const_store; /* for its lock */
	uint64_t quiet = atomic_load_explicit(&store->quiet_nsec, memory_order_relaxed);
	uint64_t now = clock_nsec(), pause = quiet && now > quiet ? now - quiet : 0;
	LOCKED(&store->lock);

	*ret_state = (struct rados_state){
		.is_online = store->present,
		.n_pauses = atomic_load_explicit(&store->n_pauses, memory_order_relaxed),
		.longest_pause_nsec = atomic_load_explicit(&store->longest_nsec,
							   memory_order_relaxed),
		.pause_nsec = pause >= RADOS_PAUSE_MIN_NSEC ? pause : 0,
	};
	if (!store->present)
		memcpy(ret_state->text, store->text, sizeof(store->text));
}

/* ---- connections ---- */

static void conn_free(struct rados_conn *conn)
{
	if (!conn)
		return;
	for (uint32_t i = 0; i < conn->n_links; i++) {
		if (conn->links[i].io)
			rados_ioctx_destroy(conn->links[i].io);
		if (conn->links[i].cluster)
			rados_shutdown(conn->links[i].cluster);
		free(conn->links[i].addresses);
	}
	free(conn);
}

static void conn_freep(struct rados_conn **conn)
{
	conn_free(*conn);
}

/* The options that bound each call, and keep librados' own files away. */
static int link_set_options(struct link *link, const struct rados_settings *settings,
			    struct error *error)
{
	const uint64_t bytes = 2 * settings->inflight_max + RADOS_OBJECT_MAX;
	const uint32_t sec = (settings->op_timeout_msec + 999) / 1000;
	const struct {
		const char *name;
		uint64_t number;
	} options[] = {
		{ "rados_osd_op_timeout", sec },
		{ "rados_mon_op_timeout", sec },
		{ "client_mount_timeout", sec },
		{ "objecter_inflight_op_bytes", bytes },
		{ "objecter_inflight_ops", UINT32_C(1) << 20 },
	};
	char text[24];
	int r = 0;

	for (size_t i = 0; r >= 0 && i < sizeof(options) / sizeof(*options); i++) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, options[i].number);
		r = rados_conf_set(link->cluster, options[i].name, text);
		if (r < 0)
			error_set(error, r, "Ceph's option %s = %s", options[i].name, text);
	}
	if (r >= 0 && ((r = rados_conf_set(link->cluster, "log_file", "")) < 0 ||
		       (r = rados_conf_set(link->cluster, "admin_socket", "")) < 0))
		error_set(error, r, "Ceph's options log_file and admin_socket");
	return r;
}

static int link_open(struct rados_store *store, struct link *link, struct error *error)
{
	const struct rados_settings *settings = &store->settings;
	char *addresses;
	int r = rados_create(&link->cluster, settings->user);

	if (r < 0)
		return error_set(error, r, "user %s", settings->user ? settings->user : "admin");
	r = rados_conf_read_file(link->cluster, settings->conf);
	if (r < 0)
		return error_set(error, r, "ceph_conf %s",
				 settings->conf ? settings->conf : "in Ceph's own places");
	r = link_set_options(link, settings, error);
	if (r < 0)
		return r;
	r = rados_connect(link->cluster);
	if (r < 0)
		return error_set(error, r, "cluster not reached since %s", store->since);
	r = rados_ioctx_create(link->cluster, settings->pool, &link->io);
	if (r < 0)
		return error_set(error, r, "pool %s", settings->pool);
	rados_ioctx_set_namespace(link->io, settings->nspace);
	rados_set_pool_full_try(link->io);
	r = rados_getaddrs(link->cluster, &addresses);
	if (r < 0)
		return error_set(error, r, "addresses of the connection");
	link->addresses = strdup(addresses);
	rados_buffer_free(addresses);
	return link->addresses ? 0 : error_set(error, -ENOMEM, "addresses of the connection");
}

/* ---- fencing ---- */

static void state_name(const struct rados_store *store, char name[200])
{
	(void)snprintf(name, 200, "rados-%s", store->settings.store);
}

/* Adds each line of the file to the cluster's blocklist. */
static int addresses_block(const struct rados_store *store, FILE *file, rados_t cluster,
			   struct error *error)
{
	char line[512];
	int r;

	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		r = rados_blocklist_add(cluster, line, 0);
		if (r < 0)
			return error_set(
				error, r,
				"address %.60s of the daemon before this one not blocklisted; "
				"user %s needs mon 'profile rbd'",
				line, store->settings.user ? store->settings.user : "admin");
	}
	return ferror(file) ? error_set(error, -EIO, "state file rados-%s", store->settings.store)
			    : 0;
}

/* Ops of the daemon before this one come to nothing from now on. */
static int store_fence(struct rados_store *store, const struct rados_conn *conn,
		       struct error *error)
{
	_cleanup_(closep) int dir_fd = -1;
	_cleanup_(fclosep) FILE *file = NULL;
	char name[200];
	int r;

	if (store->is_fenced || !store->settings.state_dir)
		return 0;
	state_name(store, name);
	dir_fd = open(store->settings.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd >= 0)
		file = state_file_open(dir_fd, name, ADDRESSES_MAX_BYTES);
	if (!file)
		return errno == ENOENT ? 0 : error_set(error, -errno, "state file %s", name);
	r = addresses_block(store, file, conn->links[0].cluster, error);
	/* Each connection: an osd that gets an op by the new map refuses the other's from then on. */
	for (uint32_t i = 0; r == 0 && i < conn->n_links; i++) {
		r = rados_wait_for_latest_osdmap(conn->links[i].cluster);
		if (r < 0)
			error_set(error, r, "the cluster's map after blocklisting");
	}
	return r;
}

/* Writes the addresses of all connections, conn being new, for the next daemon. */
static int store_record(struct rados_store *store, struct rados_conn *conn, struct error *error)
{
	_cleanup_(freep) char *text = NULL;
	char name[200];
	size_t bytes;
	FILE *file;

	if (!store->settings.state_dir)
		return 0;
	file = open_memstream(&text, &bytes);
	if (!file)
		return error_set(error, -ENOMEM, "state file");
	conn->next = store->conns;
	for (const struct rados_conn *each = conn; each; each = each->next)
		for (uint32_t i = 0; i < each->n_links; i++)
			(void)fprintf(file, "%s\n", each->links[i].addresses); /* fclose() says */
	conn->next = NULL;
	if (fclose(file))
		return error_set(error, -ENOMEM, "state file");
	state_name(store, name);
	return state_file_write(store->settings.state_dir, name, text, false, error);
}

/* ---- the keeper ---- */

static int conn_make(struct rados_store *store, struct rados_conn **ret_conn, struct error *error)
{
	const uint32_t n = store->settings.connections;
	_cleanup_(conn_freep) struct rados_conn *conn = calloc(1, sizeof(*conn) +
									  n * sizeof(*conn->links));
	int r = 0;

	if (!conn)
		return error_set(error, -ENOMEM, "connection");
	conn->store = store;
	conn->n_links = n;
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = link_open(store, &conn->links[i], error);
	if (r == 0)
		r = store_fence(store, conn, error);
	if (r < 0)
		return r;
	store->is_fenced = true;
	r = store_record(store, conn, error);
	if (r < 0)
		return r;
	*ret_conn = TAKE_PTR(conn);
	return 0;
}

static void store_connect(struct rados_store *store)
{
	static const uint64_t one = 1;
	struct rados_conn *conn = NULL;
	struct error error;

	if (conn_make(store, &conn, &error) < 0) {
		if (!store->has_reported)
			log_warning("store %s: offline: %s", store->settings.store, error.text);
		store->has_reported = true;
		LOCKED(&store->lock);
		(void)snprintf(store->text, sizeof(store->text), "%.159s", error.text);
		return;
	}
	if (store->has_reported)
		log_notice("store %s: online", store->settings.store);
	store->has_reported = false;
	conn->next = store->conns;
	store->conns = conn;
	LOCKED(&store->lock);
	conn_set(store, conn);
	if (store->event_fd >= 0 && write(store->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN); /* full: readable all the same */
}

/* Closes the connections that nobody uses. */
static void conns_close(struct rados_store *store)
{
	struct rados_conn **next = &store->conns, *conn;
	bool is_used;

	while ((conn = *next)) {
		(void)pthread_mutex_lock(&store->lock);
		is_used = conn == store->present || conn->n_refs;
		(void)pthread_mutex_unlock(&store->lock);
		if (is_used) {
			next = &conn->next;
			continue;
		}
		*next = conn->next;
		conn_free(conn);
	}
}

/* All ops have ended: nothing is left to fence.  A store that is not fenced has not read what the daemon before left.
   The keeper does so because its thread uses the daemon's own files. */
static void state_leave(struct rados_store *store)
{
	struct error error;
	char name[200];

	state_name(store, name);
	if (store->is_fenced && store->settings.state_dir &&
	    state_file_write(store->settings.state_dir, name, NULL, false, &error) < 0)
		log_warning("store %s: %s", store->settings.store, error.text);
}

static void *keeper_main(void *arg)
{
	struct rados_store *store = arg;
	struct rados_conn *conn;
	uint64_t next_nsec;
	bool must_stop = false;

	privileges_own_files();
	while (!must_stop) {
		conns_close(store);
		conn = conn_try(store);
		if (conn) {
			next_nsec = sweep_run(store, conn, clock_nsec());
			conn_put(conn);
		} else {
			store_connect(store);
			next_nsec = clock_nsec() + RETRY_NSEC;
		}
		LOCKED(&store->lock);
		while (!store->must_stop && !store->must_look && store_wait(store, next_nsec))
			;
		store->must_look = false;
		must_stop = store->must_stop;
	}
	(void)pthread_mutex_lock(&store->lock);
	conn_set(store, NULL);
	(void)pthread_mutex_unlock(&store->lock);
	conns_close(store);
	state_leave(store);
	return NULL;
}

/* ---- open, close ---- */

static void store_free(struct rados_store *store)
{
	const struct rados_settings *s = &store->settings;
	const char *const copies[] = {
		s->store, s->pool, s->nspace, s->conf, s->user, s->state_dir
	};

	for (size_t i = 0; i < sizeof(copies) / sizeof(*copies); i++)
		free((char *)(uintptr_t)copies[i]);
	held_files_free(store->held);
	(void)pthread_cond_destroy(&store->changed); /* nobody uses them */
	(void)pthread_mutex_destroy(&store->lock);
	free(store);
}

static bool settings_copy(struct rados_settings *s)
{
	const char **const strings[] = { &s->store, &s->pool, &s->nspace,
					 &s->conf,  &s->user, &s->state_dir };
	bool is_whole = true;

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++) {
		if (!*strings[i])
			continue;
		*strings[i] = strdup(*strings[i]);
		is_whole &= *strings[i] != NULL;
	}
	return is_whole;
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
	store->settings = *settings;
	store->event_fd = -1;
	(void)pthread_condattr_init(&attr); /* these cannot fail */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&store->changed, &attr);
	(void)pthread_mutex_init(&store->lock, NULL);
	conn_set(store, NULL);
	r = settings_copy(&store->settings) ? held_files_new(&store->held) : -ENOMEM;
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
	assert(!store->conns);
	store_free(store);
}
