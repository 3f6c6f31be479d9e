#include "daemon/status.h"

#include "client/lib/dsaio.h" /* the version is the project's */
#include "daemon/engine.h"
#include "daemon/stats.h"
#include "daemon/stuck.h"
#include "daemon/wire.h"
#include "proto/cleanup.h"
#include "proto/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of what is stuck, the longest are told: a client can make as many as it has threads. */
#define STUCK_MAX 64u
/* Of a Status reply: for what stands around the clients, and each one's tag and length. */
#define STATUS_ROOM_BYTES 64u

static int text_to_wire(const char *text, char **ret_wire)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	*ret_wire = copy;
	return 0;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static Wire__Counters *counters_to_wire(const struct stats *stats)
{
	Wire__Counters *wire = WIRE_NEW(Wire__Counters, wire__counters);

	if (!wire)
		return NULL;
	wire->reads = stats_get(&stats->reads);
	wire->writes = stats_get(&stats->writes);
	wire->fsyncs = stats_get(&stats->fsyncs);
	wire->errors = stats_get(&stats->errors);
	wire->read_bytes = stats_get(&stats->read_bytes);
	wire->write_bytes = stats_get(&stats->write_bytes);
	wire->open_ops = stats_get(&stats->open_ops);
	wire->blocks_in_flight = stats_get(&stats->blocks_in_flight);
	wire->bytes_in_flight = stats_get(&stats->bytes_in_flight);
	wire->latency_p50_nsec = stats_percentile(stats, 0.50);
	wire->latency_p99_nsec = stats_percentile(stats, 0.99);
	wire->blocks = stats_get(&stats->blocks);
	wire->blocks_nsec = stats_get(&stats->blocks_nsec);
	wire->device_nsec = stats_get(&stats->device_nsec);
	wire->queue_nsec = minus(stats_get(&stats->open_nsec), wire->device_nsec);
	return wire;
}

static Wire__Profile *profile_to_new_wire(const struct profile *profile)
{
	Wire__Profile *wire = WIRE_NEW(Wire__Profile, wire__profile);

	if (wire)
		profile_to_wire(profile, wire);
	return wire;
}

/* Each fills a message that hangs in the tree already, so that an error frees it with that. */
static int pool_to_wire(const struct pool *pool, Wire__Pool *wire)
{
	wire->size_bytes = pool->account.limit[CHARGE_POOL_BYTES];
	wire->used_bytes = pool->account.used[CHARGE_POOL_BYTES];
	wire->is_locked = pool->is_locked;
	wire->wants_huge = pool->pages != POOL_PAGES_SMALL;
	wire->huge_bytes = pool->huge_bytes;
	return text_to_wire(pool->why_unlocked, &wire->why_unlocked);
}

/* Clients that have files or channels there. */
static uint32_t store_n_clients(const struct service *service, const struct store *store)
{
	uint32_t n = 0;

	for (const struct session *s = service->sessions; s; s = s->next)
		for (const struct share *share = s->shares; share; share = share->next)
			n += share->store == store;
	return n;
}

int store_to_wire(const struct service *service, const struct store *store, Wire__Store *wire)
{
	const char *allowed = store->access.text ? store->access.text : "";

	wire->is_automatic = store->is_automatic;
	wire->is_blocking = store_is_blocking(store);
	wire->clients = store_n_clients(service, store);
	wire->store = store->id;
	wire->lanes = store->n_lanes;
	wire->lane_depth = store_lane_depth(store);
	wire->window_bytes = atomic_load_explicit(&store->now_window_bytes, memory_order_relaxed);
	wire->profile = profile_to_new_wire(&store->profile);
	wire->block_bytes = store_block_bytes(store, &store->profile);
	wire->counters = counters_to_wire(&store->stats);
	if (!wire->profile || !wire->counters || text_to_wire(store->name, &wire->name) < 0 ||
	    text_to_wire(store->path, &wire->path) < 0 ||
	    text_to_wire(store->fs_type, &wire->fs_type) < 0 ||
	    text_to_wire(store->engine->name, &wire->engine) < 0 ||
	    text_to_wire(store_engine_text(store), &wire->engine_text) < 0 ||
	    text_to_wire(store_profile_source(store), &wire->profile_source) < 0 ||
	    text_to_wire(allowed, &wire->allowed) < 0)
		return -ENOMEM;
	return 0;
}

static int channels_to_wire(const struct handle *handle, Wire__Handle *wire)
{
	wire->channels = calloc(handle->n_channels ? handle->n_channels : 1,
				sizeof(Wire__Channel *));
	if (!wire->channels)
		return -ENOMEM;
	for (const struct member *member = handle->members; member; member = member->next) {
		const struct channel *channel = member->channel;
		Wire__Channel *one = WIRE_NEW(Wire__Channel, wire__channel);

		if (!one)
			return -ENOMEM;
		wire->channels[wire->n_channels++] = one;
		one->channel = channel->id;
		one->store = channel->store->id;
		one->entries = channel->entries;
		one->has_rings = channel->has_rings;
		one->counters = counters_to_wire(&channel->stats);
		if (!one->counters)
			return -ENOMEM;
		/* What the client saw of its ops' time, less what we know of. */
		if (channel->has_rings)
			one->counters->delivery_nsec = minus(ring_lane_client_nsec(&channel->ring),
							     stats_get(&channel->stats.ended_nsec));
	}
	return 0;
}

static int handle_to_wire(const struct handle *handle, Wire__Handle *wire)
{
	static const Wire__Class classes[N_SCHED_CLASSES] = {
		[SCHED_DEMAND] = WIRE__CLASS__DEMAND,
		[SCHED_NORMAL] = WIRE__CLASS__NORMAL,
		[SCHED_BACKGROUND] = WIRE__CLASS__BACKGROUND,
	};

	wire->handle = handle->id;
	wire->io_class = classes[handle->io_class];
	wire->weight = handle->weight;
	if (handle->has_profile) {
		wire->profile = profile_to_new_wire(&handle->profile);
		if (!wire->profile)
			return -ENOMEM;
	}
	return channels_to_wire(handle, wire);
}

static int client_to_wire(const struct session *session, Wire__Client *wire)
{
	uint32_t cursor = 0;
	const struct handle *handle;

	wire->client = session->id;
	wire->uid = session->user->uid;
	wire->pid = (uint32_t)session->peer.pid;
	wire->pool_bytes = session->account.used[CHARGE_POOL_BYTES];
	wire->slabs = (uint32_t)session->account.used[CHARGE_SLABS];
	wire->files = (uint32_t)session->account.used[CHARGE_FILES];
	wire->handles = calloc(session->handles.n_objects ? session->handles.n_objects : 1,
			       sizeof(Wire__Handle *));
	if (!wire->handles || text_to_wire(session->name, &wire->name) < 0)
		return -ENOMEM;
	while ((handle = idtable_next(&session->handles, &cursor))) {
		Wire__Handle *one = WIRE_NEW(Wire__Handle, wire__handle);

		if (!one)
			return -ENOMEM;
		wire->handles[wire->n_handles++] = one;
		if (handle_to_wire(handle, one) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int stores_to_wire(const struct service *service, Wire__StatusReply *wire)
{
	size_t n = 0;

	for (const struct store *store = service->stores.first; store; store = store->next)
		n++;
	wire->stores = calloc(n ? n : 1, sizeof(Wire__Store *));
	if (!wire->stores)
		return -ENOMEM;
	for (const struct store *store = service->stores.first; store; store = store->next) {
		Wire__Store *one = WIRE_NEW(Wire__Store, wire__store);

		if (!one)
			return -ENOMEM;
		wire->stores[wire->n_stores++] = one;
		if (store_to_wire(service, store, one) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Whether the session's user may see what is a user's. */
static bool may_see(const struct session *session, uid_t uid)
{
	return uid == session->peer.uid ||
	       peer_is_admin(&session->peer, session->service->stores.config);
}

/* As many as a frame holds. */
static int clients_to_wire(const struct session *session, Wire__StatusReply *wire,
			   uint32_t *ret_n_left_out)
{
	const struct service *service = session->service;
	size_t used = wire__status_reply__get_packed_size(wire) + STATUS_ROOM_BYTES;
	uint32_t n_left_out = 0;

	wire->clients = calloc(service->n_sessions ? service->n_sessions : 1,
			       sizeof(Wire__Client *));
	if (!wire->clients)
		return -ENOMEM;
	for (const struct session *s = service->sessions; s; s = s->next) {
		Wire__Client *one;

		if (!may_see(session, s->peer.uid))
			continue;
		if (n_left_out) { /* the oldest are told, not those that happen to fit */
			n_left_out++;
			continue;
		}
		one = WIRE_NEW(Wire__Client, wire__client);
		if (!one)
			return -ENOMEM;
		wire->clients[wire->n_clients++] = one;
		if (client_to_wire(s, one) < 0)
			return -ENOMEM;
		used += wire__client__get_packed_size(one) + 8; /* its tag and length */
		if (used + ERROR_TEXT_BYTES > FRAME_BODY_MAX) {
			wire__client__free_unpacked(one, NULL);
			wire->n_clients--;
			n_left_out++;
		}
	}
	*ret_n_left_out = n_left_out;
	return 0;
}

/* Those of other users, in sum. */
static int others_to_wire(const struct session *session, Wire__StatusReply *wire)
{
	Wire__Others others = WIRE__OTHERS__INIT;

	for (const struct session *s = session->service->sessions; s; s = s->next) {
		if (may_see(session, s->peer.uid))
			continue;
		others.clients++;
		others.pool_bytes += s->account.used[CHARGE_POOL_BYTES];
		others.slabs += (uint32_t)s->account.used[CHARGE_SLABS];
		others.files += (uint32_t)s->account.used[CHARGE_FILES];
		others.handles += (uint32_t)s->account.used[CHARGE_HANDLES];
	}
	if (!others.clients)
		return 0;
	wire->others = WIRE_NEW(Wire__Others, wire__others);
	if (!wire->others)
		return -ENOMEM;
	*wire->others = others;
	return 0;
}

static int stuck_one_to_wire(const struct stuck_told *told, Wire__Stuck *wire)
{
	wire->uid = told->who.uid;
	wire->usec = told->usec;
	if (text_to_wire(told->what, &wire->what) < 0 ||
	    text_to_wire(told->file, &wire->file) < 0 ||
	    text_to_wire(told->place.mount, &wire->mount) < 0 ||
	    text_to_wire(told->place.text, &wire->text) < 0)
		return -ENOMEM;
	return 0;
}

static bool may_see_stuck(uid_t uid, const void *session)
{
	return may_see(session, uid);
}

static int stuck_to_wire(const struct session *session, Wire__StatusReply *wire)
{
	_cleanup_(freep) struct stuck_told *list = NULL;
	size_t n;

	if (stuck_list(may_see_stuck, session, STUCK_MAX, &list, &n) < 0)
		return -ENOMEM;
	wire->stuck = calloc(STUCK_MAX, sizeof(Wire__Stuck *));
	if (!wire->stuck)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		Wire__Stuck *one = WIRE_NEW(Wire__Stuck, wire__stuck);

		if (!one)
			return -ENOMEM;
		wire->stuck[wire->n_stuck++] = one;
		if (stuck_one_to_wire(&list[i], one) < 0)
			return -ENOMEM;
	}
	return 0;
}

int status_to_wire(const struct session *session, Wire__StatusReply *wire, uint32_t *ret_n_left_out)
{
	const struct service *service = session->service;

	wire->pid = (uint32_t)getpid();
	wire->uptime_usec = (clock_nsec() - service->started_nsec) / 1000;
	wire->is_admin = peer_is_admin(&session->peer, service->stores.config);
	wire->pool = WIRE_NEW(Wire__Pool, wire__pool);
	if (!wire->pool || pool_to_wire(&service->pool, wire->pool) < 0 ||
	    text_to_wire(DSAIO_VERSION, &wire->daemon_version) < 0 ||
	    stores_to_wire(service, wire) < 0 || others_to_wire(session, wire) < 0 ||
	    stuck_to_wire(session, wire) < 0)
		return -ENOMEM;
	return clients_to_wire(session, wire, ret_n_left_out);
}
