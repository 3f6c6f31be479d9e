#include "daemon/control/status.h"

#include "daemon/account/metrics.h"
#include "daemon/base/hung.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/rados.h"
#include "proto/util/clock.h"
#include "proto/version.h" /* the version is the project's */
#include "proto/wire.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Hung calls that status reports, the oldest first: a client can make one per worker thread. */
#define HUNG_MAX 64u
/* Users that it reports: with all their counters they fit into a frame.  A guess. */
#define USERS_MAX 128u
/* A page takes no further object once its messages are so large.  Packed they are smaller; about 100 us (a guess). */
#define PAGE_BYTES (64u << 10)
/* Channels of one handle that it reports: there are fewer stores. */
#define CHANNELS_MAX 256u

/*
 * The memory of one reply.  With users, hung calls and GPUs, which have at most 200 KiB, and with a last object, a page
 * takes half of it.
 */
static struct {
	_Alignas(max_align_t) char bytes[512 << 10];
	size_t used;
} memory;

static void *take(size_t bytes)
{
	void *taken = memory.bytes + memory.used;

	memory.used += (bytes + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
	assert(memory.used <= sizeof(memory.bytes));
	return taken;
}

#define NEW(type, name)                           \
	__extension__({                           \
		type *new_ = take(sizeof(*new_)); \
		name##__init(new_);               \
		new_;                             \
	})

static char *text(const char *from)
{
	return strcpy(take(strlen(from) + 1), from);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static Wire__Counters *counters_to_wire(const struct metrics *metrics, bool with_histograms)
{
	Wire__Counters *wire = NEW(Wire__Counters, wire__counters);

	if (with_histograms) {
		wire->n_latencies = METRICS_PLACES;
		wire->latencies = take(METRICS_PLACES * sizeof(*wire->latencies));
		for (size_t i = 0; i < METRICS_PLACES; i++)
			wire->latencies[i] = metrics_get(&metrics->places[i]);
	}
	wire->latency_sum_nsec = metrics_get(&metrics->ended_nsec);
	wire->reads = metrics_get(&metrics->reads);
	wire->writes = metrics_get(&metrics->writes);
	wire->fsyncs = metrics_get(&metrics->fsyncs);
	wire->errors = metrics_get(&metrics->errors);
	wire->read_bytes = metrics_get(&metrics->read_bytes);
	wire->write_bytes = metrics_get(&metrics->write_bytes);
	wire->open_ops = metrics_get(&metrics->open_ops);
	wire->blocks_in_flight = metrics_get(&metrics->blocks_in_flight);
	wire->bytes_in_flight = metrics_get(&metrics->bytes_in_flight);
	wire->latency_p50_nsec = metrics_percentile(metrics, 0.50);
	wire->latency_p99_nsec = metrics_percentile(metrics, 0.99);
	wire->blocks = metrics_get(&metrics->blocks);
	wire->blocks_nsec = metrics_get(&metrics->blocks_nsec);
	wire->device_nsec = metrics_get(&metrics->device_nsec);
	wire->queue_nsec = minus(metrics_get(&metrics->open_nsec), wire->device_nsec);
	return wire;
}

/* NULL if there is no limit. */
static Wire__Limit *limit_to_wire(const struct limiter *limiter)
{
	const struct rate_limit limit = limiter_get(limiter);
	Wire__Limit *wire;

	if (!rate_limit_is_set(&limit))
		return NULL;
	wire = NEW(Wire__Limit, wire__limit);
	wire->bytes_per_sec = limit.bytes_per_sec;
	wire->ops_per_sec = limit.ops_per_sec;
	return wire;
}

static Wire__Pool *pool_to_wire(const struct pool *pool, const struct views *views)
{
	Wire__Pool *wire = NEW(Wire__Pool, wire__pool);
	const struct views_sum sum = views_sum(views);

	wire->size_bytes = pool->quota.limit[QUOTA_POOL_BYTES];
	wire->used_bytes = pool->quota.used[QUOTA_POOL_BYTES];
	wire->is_locked = pool->is_locked;
	wire->wants_huge = pool->pages != POOL_PAGES_SMALL;
	wire->huge_bytes = pool->huge_bytes;
	wire->why_unlocked = text(pool->why_unlocked);
	wire->views = sum.n;
	wire->view_uses = sum.n_uses;
	wire->view_bytes = sum.bytes;
	wire->view_left_bytes = sum.left_bytes;
	wire->view_saved_bytes = sum.saved_bytes;
	wire->view_refusals = sum.n_refused;
	return wire;
}

/* Calls that are not answered: of a user, of a client, or on a device. */
struct hung_number {
	const uid_t *uid; /* NULL: any */
	uint32_t client;  /* 0: any */
	dev_t dev;	  /* 0: any */
	uint32_t n;
};

static bool hung_number_add(const struct hung_call *call, void *arg)
{
	struct hung_number *number = arg;

	number->n += (!number->uid || *number->uid == call->about.who.uid) &&
		     (!number->client || number->client == call->about.who.client) &&
		     (!number->dev || number->dev == call->about.dev);
	return true;
}

static uint32_t hung_number(struct hung_number number)
{
	hung_each(hung_number_add, &number);
	return number.n;
}

static const Wire__Class wire_classes[N_SCHED_CLASSES] = {
	[SCHED_DEMAND] = WIRE__CLASS__DEMAND,
	[SCHED_NORMAL] = WIRE__CLASS__NORMAL,
	[SCHED_BACKGROUND] = WIRE__CLASS__BACKGROUND,
};

static void add_cluster(Wire__Store *wire, const struct store *store)
{
	struct rados_state state;

	store->plugin->store_state(store->rados, &state);
	wire->is_offline = !state.is_online;
	wire->offline_text = text(state.is_online ? "" : state.text);
	wire->pauses = state.n_pauses;
	wire->longest_pause_usec = state.longest_pause_nsec / 1000;
	wire->pause_usec = state.pause_nsec / 1000;
}

static Wire__Store *add_store(const struct store *store, bool with_histograms)
{
	Wire__Store *wire = NEW(Wire__Store, wire__store);
	struct metrics sum;

	lane_store_sum(&store->lane_store, &sum);
	wire->written_bytes = (store->saved ? store->saved->written_bytes : 0) +
			      metrics_get(&sum.write_bytes);
	wire->hung = hung_number((struct hung_number){ .dev = store->dev });
	wire->is_automatic = store->is_automatic;
	wire->is_blocking = store_is_blocking(store);
	wire->is_drained = lane_store_is_drained(&store->lane_store);
	wire->clients = store->n_shares;
	wire->store = store->id;
	wire->number = store->key;
	wire->lane_depth = store_lane_depth(store);
	wire->window_bytes = atomic_load_explicit(&store->lane_store.now_window_bytes,
						  memory_order_relaxed);
	wire->profile = NEW(Wire__Profile, wire__profile);
	profile_to_wire(&store->profile, wire->profile);
	wire->block_bytes = store_block_bytes(store, &store->profile);
	wire->limit = limit_to_wire(&store->lane_store.limiter);
	wire->name = text(store->name);
	wire->path = text(store->path);
	wire->fs_type = text(store->fs_type->name);
	wire->engine = text(store->engine->name);
	wire->engine_text = text(store_engine_text(store));
	wire->profile_source = text(store_profile_source(store));
	wire->allowed = text(access_text(&store->access));
	if (store->rados)
		add_cluster(wire, store);
	wire->counters = counters_to_wire(&sum, with_histograms);
	wire->classes = take(N_SCHED_CLASSES * sizeof(*wire->classes));
	for (; wire->n_classes < N_SCHED_CLASSES; wire->n_classes++) {
		Wire__ClassCounters *one = NEW(Wire__ClassCounters, wire__class_counters);

		wire->classes[wire->n_classes] = one;
		one->io_class = wire_classes[wire->n_classes];
		one->counters = counters_to_wire(&store->lane_store.metrics[wire->n_classes],
						 with_histograms);
	}
	return wire;
}

Wire__Store *status_store(const struct store *store)
{
	memory.used = 0;
	return add_store(store, false);
}

static Wire__Channel *channel_to_wire(const struct channel *channel)
{
	Wire__Channel *wire = NEW(Wire__Channel, wire__channel);

	wire->channel = channel->id;
	wire->store = channel->store->id;
	wire->entries = channel->entries;
	wire->has_rings = channel->has_rings;
	wire->counters = counters_to_wire(&channel->metrics, false);
	/* The time of the ops as the client measured it, minus the time until the daemon completed them. */
	if (channel->has_rings)
		wire->counters->delivery_nsec = minus(ring_lane_client_nsec(&channel->ring),
						      metrics_get(&channel->metrics.ended_nsec));
	return wire;
}

static Wire__Handle *handle_to_wire(const struct handle *handle)
{
	Wire__Handle *wire = NEW(Wire__Handle, wire__handle);

	wire->handle = handle->id;
	wire->io_class = wire_classes[handle->io_class];
	wire->weight = handle->weight;
	if (handle->profile.given) {
		wire->profile = NEW(Wire__Profile, wire__profile);
		partial_to_wire(&handle->profile, wire->profile);
	}
	wire->channels = take(
		(handle->n_channels < CHANNELS_MAX ? handle->n_channels : CHANNELS_MAX) *
		sizeof(*wire->channels));
	LIST_EACH(const struct session_channel, c, &handle->channels, node)
		if (wire->n_channels < CHANNELS_MAX)
			wire->channels[wire->n_channels++] = channel_to_wire(c->channel);
	return wire;
}

/* All fields except the handles. */
static Wire__Client *client_to_wire(const struct session *session)
{
	Wire__Client *wire = NEW(Wire__Client, wire__client);

	wire->client = session->id;
	wire->uid = session->user->uid;
	wire->pid = (uint32_t)session->peer.pid;
	wire->pool_bytes = session->quota.used[QUOTA_POOL_BYTES];
	wire->device_bytes = session->quota.used[QUOTA_GPU_BYTES];
	wire->slabs = (uint32_t)session->quota.used[QUOTA_SLABS];
	wire->files = (uint32_t)session->quota.used[QUOTA_FILES];
	wire->written_bytes = session->written_bytes + session_open_bytes(session);
	wire->hung = hung_number((struct hung_number){ .client = session->id });
	wire->connected_usec = (clock_nsec() - session->connected_nsec) / 1000;
	wire->weight = session->weight;
	wire->limit = limit_to_wire(&session->limiter);
	wire->library = text(session->library);
	wire->name = text(session->name);
	return wire;
}

/* ---- pages ---- */

/*
 * Whether the page takes another object; else the next page begins with it.  Each page has one at least, so that the
 * pages come to an end.
 */
static bool has_room(Wire__StatusReply *wire, size_t n, uint32_t store, uint32_t client,
		     uint32_t handle)
{
	if (!n || memory.used < PAGE_BYTES)
		return true;
	wire->next = NEW(Wire__StatusPage, wire__status_page);
	wire->next->store = store;
	wire->next->client = client;
	wire->next->handle = handle;
	return false;
}

/* Pointers to n objects, or to as many as a page takes. */
static void *take_pointers(size_t n, size_t object_bytes)
{
	const size_t max = PAGE_BYTES / object_bytes + 2;

	return take((n < max ? n : max) * sizeof(void *));
}

static void add_stores(Wire__StatusReply *wire, const struct service *service, uint32_t first_store,
		       bool with_histograms)
{
	wire->stores = take_pointers(SIZE_MAX, sizeof(Wire__Store));
	LIST_EACH(const struct store, store, &service->registry.stores, node) {
		if (store->id < first_store)
			continue;
		if (!has_room(wire, wire->n_stores, store->id, 0, 0))
			return;
		wire->stores[wire->n_stores++] = add_store(store, with_histograms);
	}
}

/* The client's handles from the slot cursor on. */
static void add_client(Wire__StatusReply *wire, const struct session *session, uint32_t cursor)
{
	Wire__Client *one = client_to_wire(session);
	const struct id_table *handles = &session->handles.handles;
	const struct handle *handle;
	uint32_t at = cursor;

	wire->clients[wire->n_clients++] = one;
	one->handles = take_pointers(handles->n_objects, sizeof(Wire__Handle));
	for (; (handle = id_table_next(handles, &cursor)); at = cursor) {
		if (!has_room(wire, one->n_handles, 0, session->id, at))
			return;
		one->handles[one->n_handles++] = handle_to_wire(handle);
	}
}

/* Whether a session's user may see another session's objects. */
struct view {
	uid_t uid;
	bool is_admin;
};

static bool may_see(const struct view *view, uid_t uid)
{
	return view->is_admin || view->uid == uid;
}

/* The list of sessions is in the order of their ids. */
static void add_clients(Wire__StatusReply *wire, const struct service *service,
			const struct view *view, uint32_t first_client, uint32_t first_handle)
{
	wire->clients = take_pointers(service->n_sessions, sizeof(Wire__Client));
	LIST_EACH(const struct session, s, &service->sessions, node) {
		const uint32_t cursor = s->id == first_client ? first_handle : 0;

		if (s->id < first_client || !may_see(view, s->peer.uid))
			continue;
		if (wire->next ||
		    !has_room(wire, wire->n_stores + wire->n_clients, 0, s->id, cursor))
			return;
		add_client(wire, s, cursor);
	}
}

/* ---- the parts of each page, or of the first ---- */

/* Clients of other users, in sum, and how many others there are. */
static void add_others(Wire__StatusReply *wire, const struct service *service,
		       const struct view *view)
{
	Wire__Others *others = NEW(Wire__Others, wire__others);

	LIST_EACH(const struct user, user, &service->users.all, node) {
		const uint64_t *used = user->quota.used;

		if (may_see(view, user->uid)) {
			wire->n_all_clients += (uint32_t)used[QUOTA_SESSIONS];
			continue;
		}
		others->clients += (uint32_t)used[QUOTA_SESSIONS];
		others->pool_bytes += used[QUOTA_POOL_BYTES];
		others->device_bytes += used[QUOTA_GPU_BYTES];
		others->slabs += (uint32_t)used[QUOTA_SLABS];
		others->files += (uint32_t)used[QUOTA_FILES];
		others->handles += (uint32_t)used[QUOTA_HANDLES];
	}
	if (others->clients)
		wire->others = others;
}

/* Counters of users, also by channels that have not ended. */
static void user_sum(Wire__User *wire, struct metrics *sum, const struct service *service,
		     const struct usage_user *user)
{
	wire->clients += user->n_clients;
	wire->written_bytes += user->earlier_bytes;
	wire->hung += hung_number((struct hung_number){ .uid = &user->uid });
	metrics_sum_coarse(sum, &user->ended);
	LIST_EACH(const struct session, session, &service->sessions, node) {
		if (session->usage != user)
			continue;
		session_sum(session, sum);
		wire->pool_bytes += session->quota.used[QUOTA_POOL_BYTES];
	}
}

static void add_user(Wire__StatusReply *wire, Wire__User *user, const struct metrics *sum,
		     bool with_histograms)
{
	user->written_bytes += metrics_get(&sum->write_bytes);
	user->counters = counters_to_wire(sum, with_histograms);
	wire->users[wire->n_users++] = user;
}

/* The rest has the sum of the users that are too many. */
static void add_users(Wire__StatusReply *wire, const struct service *service,
		      const struct view *view, bool with_histograms)
{
	const struct usage *usage = &service->usage;
	bool has_rest = usage->has_rest || usage->rest.earlier_bytes;
	Wire__User *rest = NEW(Wire__User, wire__user);
	struct metrics rest_sum = { 0 };

	rest->is_rest = true;
	rest->written_bytes = usage->rest.earlier_bytes;
	metrics_sum_coarse(&rest_sum, &usage->rest.ended);
	wire->users = take((USERS_MAX + 1) * sizeof(*wire->users));
	LIST_EACH(const struct usage_user, user, &usage->users, node) {
		struct metrics sum = { 0 };
		Wire__User *one;

		if (!may_see(view, user->uid))
			continue;
		if (wire->n_users == USERS_MAX) {
			user_sum(rest, &rest_sum, service, user);
			has_rest = true;
			if (limiter_is_limited(&user->limiter) && !rest->limit)
				rest->limit = NEW(Wire__Limit, wire__limit);
			continue;
		}
		one = NEW(Wire__User, wire__user);
		one->uid = user->uid;
		one->limit = limit_to_wire(&user->limiter);
		user_sum(one, &sum, service, user);
		add_user(wire, one, &sum, with_histograms);
	}
	if (view->is_admin && has_rest)
		add_user(wire, rest, &rest_sum, with_histograms);
}

struct hung_page {
	const struct view *view;
	Wire__StatusReply *wire;
};

static bool add_hung(const struct hung_call *call, void *arg)
{
	const struct hung_page *page = arg;
	Wire__Hung *one;

	if (!may_see(page->view, call->about.who.uid))
		return true;
	one = NEW(Wire__Hung, wire__hung);
	one->uid = call->about.who.uid;
	one->usec = (clock_nsec() - call->reported_nsec) / 1000;
	one->what = text(call->about.what);
	one->file = text(call->file);
	one->mount = text(call->place.mount);
	one->text = text(call->place.text);
	page->wire->hung[page->wire->n_hung++] = one;
	return page->wire->n_hung < HUNG_MAX;
}

static void add_gpus(Wire__StatusReply *wire, const struct service *service)
{
	const struct gpu_path path = gpu_requests_path(&service->gpu);
	struct gpu_probe *probe = service->gpu.probe;
	static const struct gpu_report none;
	const struct gpu_report *report = gpu_probe_report(probe);
	char cufile[GPU_TEXT_BYTES] = "";
	Wire__Gpus *gpus;

	if (!report && path.path != WIRE__GPU_PATH__GPU_DIRECT)
		return;
	if (!report) /* the configuration demands GPUs: it says that there are none */
		report = &none;
	if (!gpu_probe_is_running(probe) && report->n_gpus)
		(void)gpu_report_cufile_text(report, cufile);
	wire->gpus = gpus = NEW(Wire__Gpus, wire__gpus);
	gpus->cuda_version = (uint32_t)report->cuda_version;
	gpus->path = path.path;
	gpus->cufile = text(cufile);
	gpus->why = text(path.why);
	gpus->problem = text(report->problem);
	gpus->call = text(gpu_probe_is_running(probe) ? report->call : "");
	gpus->gpus = take(report->n_gpus * sizeof(*gpus->gpus));
	for (unsigned i = 0; i < report->n_gpus; i++) {
		Wire__Gpu *one = NEW(Wire__Gpu, wire__gpu);

		one->memory_bytes = report->gpus[i].memory_bytes;
		one->uuid = text(report->gpus[i].uuid);
		one->name = text(report->gpus[i].name);
		gpus->gpus[gpus->n_gpus++] = one;
	}
}

/* As an upgrade does: the kernel marks the name of a file that was removed or renamed over. */
static bool program_is_replaced(void)
{
	static const char mark[] = " (deleted)";
	char path[PATH_MAX + sizeof(mark)];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path)); /* calls no file system */
	const ssize_t n_mark = sizeof(mark) - 1;

	return n > n_mark && memcmp(path + n - n_mark, mark, (size_t)n_mark) == 0;
}

Wire__StatusReply *status_reply(const struct session *session, const Wire__Status *asked)
{
	static const Wire__StatusPage first = WIRE__STATUS_PAGE__INIT;
	const Wire__StatusPage *from = asked->page ? asked->page : &first;
	const struct service *service = session->service;
	const struct view view = { .uid = session->peer.uid,
				   .is_admin = config_is_admin(service->registry.config,
							       &session->peer) };
	const char *build = service->registry.config->build;
	Wire__StatusReply *wire;

	memory.used = 0;
	wire = NEW(Wire__StatusReply, wire__status_reply);
	wire->pid = (uint32_t)getpid();
	wire->uptime_usec = (clock_nsec() - service->started_nsec) / 1000;
	wire->is_admin = view.is_admin;
	wire->is_replaced = program_is_replaced();
	wire->recoveries = service->n_recoveries;
	wire->crashes = service->usage.n_crashes;
	wire->wear_since_sec = service->usage.since_sec;
	wire->pool = pool_to_wire(&service->pool, &service->views);
	wire->daemon_version = text(DSAIO_VERSION);
	wire->daemon_build = text(build ? build : "");
	add_others(wire, service, &view);
	if (!from->store && !from->client) {
		wire->hung = take(HUNG_MAX * sizeof(*wire->hung));
		hung_each(add_hung, &(struct hung_page){ &view, wire });
		add_gpus(wire, service);
		add_users(wire, service, &view, asked->with_histograms);
	}
	if (!from->client)
		add_stores(wire, service, from->store, asked->with_histograms);
	if (!wire->next)
		add_clients(wire, service, &view, from->client, from->handle);
	return wire;
}
