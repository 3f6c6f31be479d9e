#include "daemon/control/status.h"

#include "daemon/account/metrics.h"
#include "daemon/base/hung.h"
#include "daemon/engine/engine.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/version.h" /* the version is the project's */
#include "proto/wire.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Hung calls that status reports, the oldest first: a client can make one per worker thread. */
#define HUNG_MAX 64u
/* Users that it reports: with all their counters they fit into a frame.  A guess. */
#define USERS_MAX 128u
/* Stores and clients of one page, packed: takes about 100 us (a guess).  One object may be larger;
   a handle, the largest, has at most one channel for each store. */
#define PAGE_BYTES (16u << 10)
/* The overhead of each nested message: at least its tag and length. */
#define NESTED_BYTES 8u
#define PAGE_OBJECTS_MAX (PAGE_BYTES / NESTED_BYTES + 1)

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

/* NULL: no memory. */
static Wire__Counters *counters_to_wire(const struct metrics *metrics, bool with_histograms)
{
	Wire__Counters *wire = WIRE_NEW(Wire__Counters, wire__counters);

	if (!wire)
		return NULL;
	if (with_histograms) {
		wire->latencies = calloc(METRICS_PLACES, sizeof(*wire->latencies));
		if (!wire->latencies) {
			wire__counters__free_unpacked(wire, NULL);
			return NULL;
		}
		wire->n_latencies = METRICS_PLACES;
		metrics_latencies(metrics, wire->latencies);
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

static Wire__Profile *profile_to_new_wire(const struct profile *profile)
{
	Wire__Profile *wire = WIRE_NEW(Wire__Profile, wire__profile);

	if (wire)
		profile_to_wire(profile, wire);
	return wire;
}

/* NULL, and 0, if there is no limit. */
static int limit_to_wire(const struct limiter *limiter, Wire__Limit **ret_wire)
{
	const struct rate_limit limit = limiter_get(limiter);

	if (!rate_limit_is_set(&limit))
		return 0;
	*ret_wire = WIRE_NEW(Wire__Limit, wire__limit);
	if (!*ret_wire)
		return -ENOMEM;
	(*ret_wire)->bytes_per_sec = limit.bytes_per_sec;
	(*ret_wire)->ops_per_sec = limit.ops_per_sec;
	return 0;
}

/* These functions fill in messages that already belong to the reply, so an error frees them with it. */
static int pool_to_wire(const struct pool *pool, Wire__Pool *wire)
{
	wire->size_bytes = pool->quota.limit[QUOTA_POOL_BYTES];
	wire->used_bytes = pool->quota.used[QUOTA_POOL_BYTES];
	wire->is_locked = pool->is_locked;
	wire->wants_huge = pool->pages != POOL_PAGES_SMALL;
	wire->huge_bytes = pool->huge_bytes;
	return text_to_wire(pool->why_unlocked, &wire->why_unlocked);
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

static int classes_to_wire(const struct store *store, bool with_histograms, Wire__Store *wire)
{
	wire->classes = calloc(N_SCHED_CLASSES, sizeof(Wire__ClassCounters *));
	if (!wire->classes)
		return -ENOMEM;
	for (unsigned i = 0; i < N_SCHED_CLASSES; i++) {
		Wire__ClassCounters *one = WIRE_NEW(Wire__ClassCounters, wire__class_counters);

		if (!one)
			return -ENOMEM;
		wire->classes[wire->n_classes++] = one;
		one->io_class = wire_classes[i];
		one->counters = counters_to_wire(&store->lane_store.metrics[i], with_histograms);
		if (!one->counters)
			return -ENOMEM;
	}
	return 0;
}

int store_to_wire(const struct store *store, const struct usage *usage, bool with_histograms,
		  Wire__Store *wire)
{
	const char *allowed = store->access.text ? store->access.text : "";
	struct metrics sum;

	lane_store_sum(&store->lane_store, &sum);
	wire->written_bytes = usage_store_bytes(usage, store->saved_key) +
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
	wire->profile = profile_to_new_wire(&store->profile);
	wire->block_bytes = store_block_bytes(store, &store->profile);
	wire->counters = counters_to_wire(&sum, with_histograms);
	if (!wire->profile || !wire->counters ||
	    classes_to_wire(store, with_histograms, wire) < 0 ||
	    limit_to_wire(&store->lane_store.limiter, &wire->limit) < 0 ||
	    text_to_wire(store->name, &wire->name) < 0 ||
	    text_to_wire(store->path, &wire->path) < 0 ||
	    text_to_wire(store->fs_type->name, &wire->fs_type) < 0 ||
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
	LIST_EACH(const struct session_channel, c, &handle->channels, node) {
		const struct channel *channel = c->channel;
		Wire__Channel *one = WIRE_NEW(Wire__Channel, wire__channel);

		if (!one)
			return -ENOMEM;
		wire->channels[wire->n_channels++] = one;
		one->channel = channel->id;
		one->store = channel->store->id;
		one->entries = channel->entries;
		one->has_rings = channel->has_rings;
		one->counters = counters_to_wire(&channel->metrics, false);
		if (!one->counters)
			return -ENOMEM;
		/* The time of the ops as the client measured it, minus the time until the daemon completed them. */
		if (channel->has_rings)
			one->counters->delivery_nsec = minus(
				ring_lane_client_nsec(&channel->ring),
				metrics_get(&channel->metrics.ended_nsec));
	}
	return 0;
}

static int handle_to_wire(const struct handle *handle, Wire__Handle *wire)
{
	wire->handle = handle->id;
	wire->io_class = wire_classes[handle->io_class];
	wire->weight = handle->weight;
	if (handle->profile.given) {
		wire->profile = WIRE_NEW(Wire__Profile, wire__profile);
		if (!wire->profile)
			return -ENOMEM;
		partial_to_wire(&handle->profile, wire->profile);
	}
	return channels_to_wire(handle, wire);
}

/* Fills in all fields except the handles, for which it makes room. */
static int client_to_wire(const struct session *session, Wire__Client *wire)
{
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
	wire->handles = calloc(
		session->handles.handles.n_objects ? session->handles.handles.n_objects : 1,
		sizeof(Wire__Handle *));
	if (!wire->handles || limit_to_wire(&session->limiter, &wire->limit) < 0)
		return -ENOMEM;
	if (text_to_wire(session->library, &wire->library) < 0)
		return -ENOMEM;
	return text_to_wire(session->name, &wire->name);
}

/* ---- pages ---- */

/* A page that is being filled.  It has at least one object, so that the pages come to an end. */
struct page {
	Wire__StatusReply *wire;
	size_t used;
	bool is_full;
};

/* Counts an object; returns whether it fits. */
static bool page_take(struct page *page, size_t packed_size)
{
	bool is_first = !page->wire->n_stores && !page->wire->n_clients && !page->wire->n_hung;
	size_t size = packed_size + NESTED_BYTES;

	if (!is_first && page->used + size > PAGE_BYTES)
		return false;
	page->used += size;
	return true;
}

/* The next page begins here. */
static int page_end(struct page *page, uint32_t store, uint32_t client, uint32_t handle)
{
	Wire__StatusPage *next = WIRE_NEW(Wire__StatusPage, wire__status_page);

	if (!next)
		return -ENOMEM;
	next->store = store;
	next->client = client;
	next->handle = handle;
	page->wire->next = next;
	page->is_full = true;
	return 0;
}

static int page_add_stores(struct page *page, const struct service *service, uint32_t first_store,
			   bool with_histograms)
{
	Wire__StatusReply *wire = page->wire;

	wire->stores = calloc(PAGE_OBJECTS_MAX, sizeof(Wire__Store *));
	if (!wire->stores)
		return -ENOMEM;
	LIST_EACH(const struct store, store, &service->registry.stores, node) {
		Wire__Store *one;
		bool fits;

		if (store->id < first_store)
			continue;
		one = WIRE_NEW(Wire__Store, wire__store);
		if (!one)
			return -ENOMEM;
		if (store_to_wire(store, &service->usage, with_histograms, one) < 0) {
			wire__store__free_unpacked(one, NULL);
			return -ENOMEM;
		}
		fits = page_take(page, wire__store__get_packed_size(one));
		if (!fits) {
			wire__store__free_unpacked(one, NULL);
			return page_end(page, store->id, 0, 0);
		}
		wire->stores[wire->n_stores++] = one;
	}
	return 0;
}

/* The client is on the page; its handles follow from the slot cursor on. */
static int page_add_handles(struct page *page, const struct session *session, uint32_t cursor,
			    Wire__Client *wire)
{
	const struct handle *handle;
	uint32_t at = cursor;

	for (; (handle = id_table_next(&session->handles.handles, &cursor)); at = cursor) {
		Wire__Handle *one = WIRE_NEW(Wire__Handle, wire__handle);

		if (!one)
			return -ENOMEM;
		if (handle_to_wire(handle, one) < 0) {
			wire__handle__free_unpacked(one, NULL);
			return -ENOMEM;
		}
		if (!page_take(page, wire__handle__get_packed_size(one)) && wire->n_handles) {
			wire__handle__free_unpacked(one, NULL);
			return page_end(page, 0, session->id, at);
		}
		wire->handles[wire->n_handles++] = one;
	}
	return 0;
}

static int page_add_client(struct page *page, const struct session *session, uint32_t cursor)
{
	Wire__StatusReply *wire = page->wire;
	Wire__Client *one = WIRE_NEW(Wire__Client, wire__client);

	if (!one)
		return -ENOMEM;
	if (client_to_wire(session, one) < 0) {
		wire__client__free_unpacked(one, NULL);
		return -ENOMEM;
	}
	if (!page_take(page, wire__client__get_packed_size(one))) {
		wire__client__free_unpacked(one, NULL);
		return page_end(page, 0, session->id, cursor);
	}
	wire->clients[wire->n_clients++] = one;
	return page_add_handles(page, session, cursor, one);
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
static int page_add_clients(struct page *page, const struct service *service,
			    const struct view *view, uint32_t first_client, uint32_t first_handle)
{
	Wire__StatusReply *wire = page->wire;

	wire->clients = calloc(PAGE_OBJECTS_MAX, sizeof(Wire__Client *));
	if (!wire->clients)
		return -ENOMEM;
	LIST_EACH(const struct session, s, &service->sessions, node) {
		int r;

		if (page->is_full)
			break;
		if (s->id < first_client || !may_see(view, s->peer.uid))
			continue;
		r = page_add_client(page, s, s->id == first_client ? first_handle : 0);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the parts of each page, or of the first ---- */

/* Clients of other users, in sum, and how many others there are. */
static int users_to_wire(const struct service *service, const struct view *view,
			 Wire__StatusReply *wire)
{
	Wire__Others others = WIRE__OTHERS__INIT;

	LIST_EACH(const struct user, user, &service->users.all, node) {
		const uint64_t *used = user->quota.used;

		if (may_see(view, user->uid)) {
			wire->n_all_clients += (uint32_t)used[QUOTA_SESSIONS];
			continue;
		}
		others.clients += (uint32_t)used[QUOTA_SESSIONS];
		others.pool_bytes += used[QUOTA_POOL_BYTES];
		others.device_bytes += used[QUOTA_GPU_BYTES];
		others.slabs += (uint32_t)used[QUOTA_SLABS];
		others.files += (uint32_t)used[QUOTA_FILES];
		others.handles += (uint32_t)used[QUOTA_HANDLES];
	}
	if (!others.clients)
		return 0;
	wire->others = WIRE_NEW(Wire__Others, wire__others);
	if (!wire->others)
		return -ENOMEM;
	*wire->others = others;
	return 0;
}

/* Counters of users, also by channels that have not ended. */
struct usage_sum {
	struct metrics counters;
	uint64_t earlier_bytes, pool_bytes;
	uint32_t n_clients, n_hung;
};

static void usage_sum_add(struct usage_sum *sum, const struct service *service,
			  const struct usage_user *user)
{
	sum->n_clients += user->n_clients;
	sum->earlier_bytes += user->earlier_bytes;
	sum->n_hung += hung_number((struct hung_number){ .uid = &user->uid });
	metrics_sum(&sum->counters, &user->ended);
	LIST_EACH(const struct session, session, &service->sessions, node) {
		if (session->usage != user)
			continue;
		session_sum(session, &sum->counters);
		sum->pool_bytes += session->quota.used[QUOTA_POOL_BYTES];
	}
}

/* Adds it to the reply; returns it, or NULL without memory. */
static Wire__User *usage_sum_to_wire(const struct usage_sum *sum, bool with_histograms,
				     Wire__StatusReply *wire)
{
	Wire__User *one = WIRE_NEW(Wire__User, wire__user);

	if (!one)
		return NULL;
	wire->users[wire->n_users++] = one;
	one->clients = sum->n_clients;
	one->pool_bytes = sum->pool_bytes;
	one->hung = sum->n_hung;
	one->written_bytes = sum->earlier_bytes + metrics_get(&sum->counters.write_bytes);
	one->counters = counters_to_wire(&sum->counters, with_histograms);
	return one->counters ? one : NULL;
}

/* The rest has the sum of the users that are too many. */
static int usage_to_wire(const struct service *service, const struct view *view,
			 bool with_histograms, Wire__StatusReply *wire)
{
	const struct usage *usage = &service->usage;
	struct usage_sum rest = { .earlier_bytes = usage->rest.earlier_bytes };
	bool has_rest = usage->has_rest || usage->rest.earlier_bytes;
	Wire__User *one;

	metrics_sum(&rest.counters, &usage->rest.ended);
	wire->users = calloc(USERS_MAX + 1, sizeof(Wire__User *));
	if (!wire->users)
		return -ENOMEM;
	LIST_EACH(const struct usage_user, user, &usage->users, node) {
		struct usage_sum sum = { .n_clients = 0 };

		if (!may_see(view, user->uid))
			continue;
		if (wire->n_users == USERS_MAX) {
			usage_sum_add(&rest, service, user);
			has_rest = true;
			continue;
		}
		usage_sum_add(&sum, service, user);
		one = usage_sum_to_wire(&sum, with_histograms, wire);
		if (!one || limit_to_wire(&user->limiter, &one->limit) < 0)
			return -ENOMEM;
		one->uid = user->uid;
	}
	if (!view->is_admin || !has_rest)
		return 0;
	one = usage_sum_to_wire(&rest, with_histograms, wire);
	if (!one)
		return -ENOMEM;
	one->is_rest = true;
	return 0;
}

struct hung_page {
	const struct view *view;
	Wire__StatusReply *wire;
	int result;
};

static bool hung_one_to_wire(const struct hung_call *call, void *arg)
{
	struct hung_page *page = arg;
	Wire__Hung *one;

	if (!may_see(page->view, call->about.who.uid))
		return true;
	one = WIRE_NEW(Wire__Hung, wire__hung);
	if (one) {
		page->wire->hung[page->wire->n_hung++] = one;
		one->uid = call->about.who.uid;
		one->usec = (clock_nsec() - call->reported_nsec) / 1000;
	}
	if (!one || text_to_wire(call->about.what, &one->what) < 0 ||
	    text_to_wire(call->file, &one->file) < 0 ||
	    text_to_wire(call->place.mount, &one->mount) < 0 ||
	    text_to_wire(call->place.text, &one->text) < 0)
		page->result = -ENOMEM;
	return page->result == 0 && page->wire->n_hung < HUNG_MAX;
}

static int hung_to_wire(const struct view *view, Wire__StatusReply *wire)
{
	struct hung_page page = { .view = view, .wire = wire };

	wire->hung = calloc(HUNG_MAX, sizeof(Wire__Hung *));
	if (!wire->hung)
		return -ENOMEM;
	hung_each(hung_one_to_wire, &page);
	return page.result;
}

static int gpus_to_wire(const struct service *service, Wire__StatusReply *wire)
{
	const struct gpu_path path = gpu_requests_path(&service->gpu);
	struct gpu_probe *probe = service->gpu.probe;
	static const struct gpu_report none;
	const struct gpu_report *report = gpu_probe_report(probe);
	char cufile[GPU_TEXT_BYTES] = "";

	if (!report && path.path != WIRE__GPU_PATH__GPU_DIRECT)
		return 0;
	if (!report) /* the configuration demands GPUs: it says that there are none */
		report = &none;
	wire->gpus = WIRE_NEW(Wire__Gpus, wire__gpus);
	if (!wire->gpus)
		return -ENOMEM;
	wire->gpus->cuda_version = (uint32_t)report->cuda_version;
	if (!gpu_probe_is_running(probe) && report->n_gpus)
		(void)gpu_report_cufile_text(report, cufile);
	wire->gpus->path = path.path;
	if (text_to_wire(cufile, &wire->gpus->cufile) < 0 ||
	    text_to_wire(path.why, &wire->gpus->why) < 0 ||
	    text_to_wire(report->problem, &wire->gpus->problem) < 0 ||
	    text_to_wire(gpu_probe_is_running(probe) ? report->call : "", &wire->gpus->call) < 0)
		return -ENOMEM;
	wire->gpus->gpus = calloc(report->n_gpus + 1, sizeof(Wire__Gpu *));
	if (!wire->gpus->gpus)
		return -ENOMEM;
	for (unsigned i = 0; i < report->n_gpus; i++) {
		Wire__Gpu *one = WIRE_NEW(Wire__Gpu, wire__gpu);

		if (!one)
			return -ENOMEM;
		wire->gpus->gpus[wire->gpus->n_gpus++] = one;
		one->memory_bytes = report->gpus[i].memory_bytes;
		if (text_to_wire(report->gpus[i].uuid, &one->uuid) < 0 ||
		    text_to_wire(report->gpus[i].name, &one->name) < 0)
			return -ENOMEM;
	}
	return 0;
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

int status_to_wire(const struct session *session, const Wire__Status *asked,
		   Wire__StatusReply *wire)
{
	static const Wire__StatusPage first = WIRE__STATUS_PAGE__INIT;
	const Wire__StatusPage *from = asked->page ? asked->page : &first;
	const struct service *service = session->service;
	const struct view view = { .uid = session->peer.uid,
				   .is_admin = config_is_admin(service->registry.config,
							       &session->peer) };
	const char *build = service->registry.config->build;
	struct page page = { .wire = wire };

	wire->pid = (uint32_t)getpid();
	wire->uptime_usec = (clock_nsec() - service->started_nsec) / 1000;
	wire->is_admin = view.is_admin;
	wire->is_replaced = program_is_replaced();
	wire->recoveries = service->n_recoveries;
	wire->crashes = service->usage.n_crashes;
	wire->wear_since_sec = service->usage.since_sec;
	wire->pool = WIRE_NEW(Wire__Pool, wire__pool);
	if (!wire->pool || pool_to_wire(&service->pool, wire->pool) < 0 ||
	    text_to_wire(DSAIO_VERSION, &wire->daemon_version) < 0 ||
	    text_to_wire(build ? build : "", &wire->daemon_build) < 0 ||
	    users_to_wire(service, &view, wire) < 0)
		return -ENOMEM;
	if (!from->store && !from->client) {
		if (hung_to_wire(&view, wire) < 0 || gpus_to_wire(service, wire) < 0 ||
		    usage_to_wire(service, &view, asked->with_histograms, wire) < 0)
			return -ENOMEM;
		page.used = wire__status_reply__get_packed_size(wire);
	}
	if (!from->client &&
	    page_add_stores(&page, service, from->store, asked->with_histograms) < 0)
		return -ENOMEM;
	return page.is_full ? 0
			    : page_add_clients(&page, service, &view, from->client, from->handle);
}
