/*
 * The connection of a store: its uses, and how it is made.
 *
 * It is used from when the addresses in the state file are blocklisted, which are those of the daemon or the
 * connection before, and its own are written there, until a call of it comes back with -ESHUTDOWN.  A daemon that stops
 * in order leaves its addresses, too: an op without an answer may still be carried out.
 */
#include "daemon/rados/conn.h"

#include "daemon/base/state_file.h"
#include "daemon/rados/entry.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_MAX_BYTES 16384 /* of at most 16 links */
#define PROBE_NSEC NSEC_PER_SEC	  /* a cluster that lives has answered by then (a guess) */

/* ---- its uses, by all threads ---- */

const struct rados_settings *store_settings(const struct rados_store *store)
{
	return &store->settings;
}

struct held_files *store_held(struct rados_store *store)
{
	return store->held;
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

struct rados_conn *conn_try(struct rados_store *store, bool *ret_may_wait)
{
	LOCKED(&store->lock);

	*ret_may_wait = clock_nsec() < store->give_up_nsec;
	return conn_use(store);
}

int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error)
{
	LOCKED(&store->lock);

	while (!(*ret_conn = conn_use(store)))
		if (!store_wait(store, store->give_up_nsec))
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
	return conn->links[turn % conn->store->settings.keys.connections].io;
}

void store_offline(struct rados_store *store, uint64_t wait_nsec, const char *why)
{
	store->state.is_online = false;
	store->give_up_nsec = clock_nsec() + wait_nsec;
	(void)snprintf(store->state.text, sizeof(store->state.text), "%.159s", why);
	(void)pthread_cond_broadcast(&store->changed); /* never fails */
}

int conn_note(struct rados_conn *conn, int r)
{
	struct rados_store *store = conn->store;

	if (r == -ESHUTDOWN || r == -ETIMEDOUT) {
		LOCKED(&store->lock);

		store->is_fenced |= r == -ESHUTDOWN;
		if (store->state.is_online && r == -ESHUTDOWN)
			store_offline(store, store->settings.keys.op_timeout_sec * NSEC_PER_SEC,
				      "this daemon was blocklisted");
		else if (store->state.is_online)
			store_offline(store, PROBE_NSEC, "an op had no answer in op_timeout");
	}
	return r;
}

/* ---- by the keeper ---- */

void conn_close(struct rados_store *store)
{
	struct rados_conn *conn = TAKE_PTR(store->conn);

	for (uint32_t i = 0; conn && i < store->settings.keys.connections; i++) {
		if (conn->links[i].io)
			rados_ioctx_destroy(conn->links[i].io);
		if (conn->links[i].cluster)
			rados_shutdown(conn->links[i].cluster);
	}
	free(conn);
}

/* Connects; ret_addresses: as rados_blocklist_add() takes them.  The options bound each call, and keep librados' own
   files away. */
static int link_open(const struct rados_store *store, struct link *link, char **ret_addresses,
		     struct error *error)
{
	const struct rados_config *s = &store->settings.keys;
	char bytes[24], sec[24], map_sec[24];
	const char *const options[][2] = {
		{ "rados_osd_op_timeout", sec },
		{ "rados_mon_op_timeout", sec },
		{ "client_mount_timeout", sec },
		/* It asks for a new map only for ops that are older than this, and ours end by op_timeout. */
		{ "objecter_timeout", map_sec },
		{ "objecter_tick_interval", "1" },
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
	(void)snprintf(sec, sizeof(sec), "%u", s->op_timeout_sec);
	(void)snprintf(map_sec, sizeof(map_sec), "%.1f", s->op_timeout_sec / 3.0);
	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, 2 * s->inflight_max + RADOS_OBJECT_MAX);
	for (size_t i = 0; r >= 0 && i < sizeof(options) / sizeof(*options); i++)
		r = rados_conf_set(link->cluster, options[i][0], options[i][1]);
	if (r < 0 || (r = rados_connect(link->cluster)) < 0)
		return error_set(error, r,
				 "cluster not reached as client.%s, whose keyring the daemon's "
				 "user must be able to read",
				 s->user ? s->user : "admin");
	r = rados_ioctx_create(link->cluster, store->pool, &link->io);
	if (r < 0 || (r = rados_getaddrs(link->cluster, ret_addresses)) < 0)
		return error_set(error, r, "pool %s", store->pool);
	rados_ioctx_set_namespace(link->io, store->nspace);
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
	for (uint32_t i = 0; r >= 0 && i < store->settings.keys.connections; i++)
		r = rados_wait_for_latest_osdmap(store->conn->links[i].cluster);
	if (r < 0 || ferror(file))
		return error_set(error, r < 0 ? r : -EIO,
				 "addresses in the state file %s not blocklisted; the user needs "
				 "mon 'profile rbd'",
				 store->state_name);
	return 0;
}

int conn_open(struct rados_store *store, struct error *error)
{
	const char *state_dir = store->settings.state_dir;
	const uint32_t n_links = store->settings.keys.connections;
	struct rados_conn *conn = calloc(1, sizeof(*conn) + n_links * sizeof(*conn->links));
	char text[ADDRESSES_MAX_BYTES], *addresses;
	size_t n = 0;
	int r;

	if (!conn)
		return error_set(error, -ENOMEM, "connection");
	store->conn = conn;
	conn->store = store;
	for (uint32_t i = 0; i < n_links; i++) {
		r = link_open(store, &conn->links[i], &addresses, error);
		if (r < 0)
			return r;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%.500s\n", addresses);
		rados_buffer_free(addresses);
	}
	r = state_dir ? store_fence(store, error) : 0;
	return r == 0 && state_dir
		       ? state_file_write(state_dir, store->state_name, text, false, error)
		       : r;
}

int conn_probe(struct rados_store *store, struct error *error)
{
	char object[ENTRY_OBJECT_BYTES], byte;
	int r;

	entry_index_object(0, object);
	r = conn_note(store->conn, rados_read(conn_io(store->conn), object, &byte, 1, 0));
	return r >= 0 || r == -ENOENT
		       ? 0
		       : error_set(error, r, "pool %s: no read of an object", store->pool);
}
