#include "client/ctl/cmd/show.h"

#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"

#include <inttypes.h>
#include <stdio.h>

const char *show_class(Wire__Class io_class)
{
	switch (io_class) {
	case WIRE__CLASS__NORMAL:
		return "normal";
	case WIRE__CLASS__DEMAND:
		return "demand";
	case WIRE__CLASS__BACKGROUND:
		return "background";
	default:
		return "?";
	}
}

const Wire__Store *show_find_store(const Wire__StatusReply *status, uint32_t id)
{
	for (size_t i = 0; i < status->n_stores; i++)
		if (status->stores[i]->store == id)
			return status->stores[i];
	return NULL;
}

static const char *plural(uint32_t n)
{
	return n == 1 ? "" : "s";
}

void show_left_out(const Wire__StatusReply *status)
{
	if (status->n_clients < status->n_all_clients)
		(void)printf("showing %zu of %" PRIu32 " clients\n", status->n_clients,
			     status->n_all_clients);
}

void show_others(const Wire__StatusReply *status)
{
	const Wire__Others *others = status->others;
	char text[UNITS_TEXT_BYTES];

	show_left_out(status);
	if (!others)
		return;
	(void)printf("%" PRIu32 " client%s of other users: %s of the pool, %" PRIu32
		     " slab%s, %" PRIu32 " file%s, %" PRIu32 " handle%s\n",
		     others->clients, plural(others->clients),
		     units_format_size(text, others->pool_bytes), others->slabs,
		     plural(others->slabs), others->files, plural(others->files), others->handles,
		     plural(others->handles));
}

void show_device_bytes(const Wire__StatusReply *status)
{
	char text[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < status->n_clients; i++)
		if (status->clients[i]->device_bytes)
			(void)printf("client %" PRIu32 ": %s of its GPU memory is used directly\n",
				     status->clients[i]->client,
				     units_format_size(text, status->clients[i]->device_bytes));
}

int show_stuck(const Wire__StatusReply *status, FILE *out)
{
	static const struct table_column columns[] = {
		{ "UID", true },   { "FOR", true },    { "WHAT", false },
		{ "FILE", false }, { "MOUNT", false }, { "WHAT FREES IT", false },
	};
	_cleanup_(table_deinit) struct table table = { .n_cells = 0 };
	char text[UNITS_TEXT_BYTES];
	int r;

	if (status->n_stuck == 0)
		return 0;
	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_stuck; i++) {
		const Wire__Stuck *stuck = status->stuck[i];

		table_add(&table, "%" PRIu32, stuck->uid);
		table_add(&table, "%s", units_format_nsec(text, stuck->usec * 1000));
		table_add(&table, "%s", stuck->what);
		table_add(&table, "%s", stuck->file);
		table_add(&table, "%s", stuck->mount);
		table_add(&table, "%s", stuck->text);
	}
	(void)fputs("STUCK: calls that were not answered:\n", out);
	r = table_print(&table, out);
	(void)fputc('\n', out);
	return r;
}

/* ---- cells ---- */

static void add_latency(struct table *table, uint64_t nsec)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", nsec ? units_format_nsec(text, nsec) : "-");
}

void show_counters(struct table *table, const Wire__Counters *c)
{
	char text[UNITS_TEXT_BYTES];

	if (!c) {
		for (unsigned i = 0; i < SHOW_N_COUNTER_COLUMNS; i++)
			table_add(table, "-");
		return;
	}
	table_add(table, "%" PRIu64, c->open_ops);
	table_add(table, "%s", units_format_count(text, c->reads));
	table_add(table, "%s", units_format_size(text, c->read_bytes));
	table_add(table, "%s", units_format_count(text, c->writes));
	table_add(table, "%s", units_format_size(text, c->write_bytes));
	table_add(table, "%s", units_format_count(text, c->fsyncs));
	table_add(table, "%s", units_format_count(text, c->errors));
	add_latency(table, c->latency_p50_nsec);
	add_latency(table, c->latency_p99_nsec);
}

static void add_share(struct table *table, bool is_known, uint64_t part, uint64_t all)
{
	if (is_known)
		table_add(table, "%.1f%%", 100 * (double)part / (double)all);
	else
		table_add(table, "-");
}

void show_times(struct table *table, const Wire__Counters *c)
{
	uint64_t all = c->queue_nsec + c->device_nsec + c->delivery_nsec;

	add_share(table, all, c->queue_nsec, all);
	add_share(table, all, c->device_nsec, all);
	add_share(table, c->delivery_nsec, c->delivery_nsec, all);
}

Wire__Counters show_sum(const Wire__Client *client)
{
	Wire__Counters sum = WIRE__COUNTERS__INIT;

	for (size_t i = 0; i < client->n_handles; i++)
		for (size_t k = 0; k < client->handles[i]->n_channels; k++) {
			const Wire__Counters *c = client->handles[i]->channels[k]->counters;

			if (!c)
				continue;
			sum.open_ops += c->open_ops;
			sum.read_bytes += c->read_bytes;
			sum.write_bytes += c->write_bytes;
			sum.errors += c->errors;
			sum.queue_nsec += c->queue_nsec;
			sum.device_nsec += c->device_nsec;
			sum.delivery_nsec += c->delivery_nsec;
		}
	return sum;
}

void show_profile(struct table *table, const Wire__Profile *wire)
{
	char size[UNITS_TEXT_BYTES] = "store's", depth[UNITS_TEXT_BYTES] = "store's";
	char parts[UNITS_TEXT_BYTES] = "";
	struct partial_profile partial;
	const struct profile *profile = &partial.profile;

	if (!wire) {
		table_add(table, "store's");
		return;
	}
	partial = partial_from_wire(wire); /* what is absent is as usual, and not shown */
	if (partial.given & PROFILE_BLOCK_SIZE)
		(void)units_format_size(size, profile->block_size);
	if (partial.given & PROFILE_QUEUE_DEPTH)
		(void)snprintf(depth, sizeof(depth), "%" PRIu32, profile->queue_depth);
	if (profile->intra_op_parallelism != 1)
		(void)snprintf(parts, sizeof(parts), " in %" PRIu32, profile->intra_op_parallelism);
	table_add(table, "%s x %s%s%s%s", size, depth, parts,
		  profile->single_submit ? " single" : "",
		  profile->overlap_events ? "" : " sequential");
}

/*
 * The index in an id.  The upper half differs for handles that had the same index one after the
 * other.
 */
static uint32_t index_of(uint32_t id)
{
	return id & 0xffff;
}

void show_handle(struct table *table, const Wire__Client *client, const Wire__Handle *handle)
{
	table_add(table, "%" PRIu32 "/%" PRIu32, client->client, index_of(handle->handle));
}

/* ---- JSON ---- */

static void add_text(struct json_object *object, const char *key, const char *value)
{
	json_object_object_add(object, key, json_object_new_string(value));
}

static struct json_object *counters_json(const Wire__Counters *c)
{
	struct json_object *object;

	if (!c)
		return NULL; /* json-c's null */
	object = json_object_new_object();
	json_add_number(object, "reads", c->reads);
	json_add_number(object, "writes", c->writes);
	json_add_number(object, "fsyncs", c->fsyncs);
	json_add_number(object, "errors", c->errors);
	json_add_number(object, "read_bytes", c->read_bytes);
	json_add_number(object, "write_bytes", c->write_bytes);
	json_add_number(object, "open_ops", c->open_ops);
	json_add_number(object, "blocks_in_flight", c->blocks_in_flight);
	json_add_number(object, "bytes_in_flight", c->bytes_in_flight);
	json_add_number(object, "latency_p50_nsec", c->latency_p50_nsec);
	json_add_number(object, "latency_p99_nsec", c->latency_p99_nsec);
	json_add_number(object, "queue_nsec", c->queue_nsec);
	json_add_number(object, "device_nsec", c->device_nsec);
	json_add_number(object, "delivery_nsec", c->delivery_nsec);
	return object;
}

static struct json_object *profile_json(const Wire__Profile *wire)
{
	struct profile profile;

	if (!wire)
		return NULL;
	profile = profile_from_wire(wire);
	return json_profile(&profile);
}

/* Inherited fields are null. */
static struct json_object *handle_profile_json(const Wire__Profile *wire)
{
	static const struct {
		enum profile_field field;
		const char *key;
	} fields[] = {
		{ PROFILE_BLOCK_SIZE, "block_size" },
		{ PROFILE_QUEUE_DEPTH, "queue_depth" },
		{ PROFILE_SINGLE_SUBMIT, "single_submit" },
		{ PROFILE_OVERLAP_EVENTS, "overlap_events" },
		{ PROFILE_PARALLELISM, "intra_op_parallelism" },
	};
	struct json_object *object = profile_json(wire);

	for (size_t i = 0; wire && i < sizeof(fields) / sizeof(fields[0]); i++)
		if (wire->absent & fields[i].field)
			json_object_object_add(object, fields[i].key, NULL);
	return object;
}

struct json_object *show_pool_json(const Wire__Pool *pool)
{
	struct json_object *object;

	if (!pool)
		return NULL;
	object = json_object_new_object();
	json_add_number(object, "size_bytes", pool->size_bytes);
	json_add_number(object, "used_bytes", pool->used_bytes);
	json_add_bool(object, "is_locked", pool->is_locked);
	add_text(object, "why_unlocked", pool->why_unlocked);
	json_add_bool(object, "wants_huge", pool->wants_huge);
	json_add_number(object, "huge_bytes", pool->huge_bytes);
	return object;
}

static struct json_object *store_json(const Wire__Store *store)
{
	struct json_object *object = json_object_new_object();

	json_add_number(object, "store", store->store);
	add_text(object, "name", store->name);
	add_text(object, "path", store->path);
	add_text(object, "fs_type", store->fs_type);
	json_object_object_add(object, "profile", profile_json(store->profile));
	json_add_number(object, "lanes", store->lanes);
	json_add_number(object, "lane_depth", store->lane_depth);
	json_add_number(object, "block_bytes", store->block_bytes);
	json_add_number(object, "window_bytes", store->window_bytes);
	add_text(object, "engine", store->engine);
	json_add_bool(object, "is_blocking", store->is_blocking);
	add_text(object, "engine_text", store->engine_text);
	json_add_bool(object, "is_automatic", store->is_automatic);
	add_text(object, "profile_source", store->profile_source);
	json_add_number(object, "clients", store->clients);
	add_text(object, "allowed", store->allowed);
	json_object_object_add(object, "counters", counters_json(store->counters));
	return object;
}

static struct json_object *channel_json(const Wire__StatusReply *status,
					const Wire__Channel *channel)
{
	const Wire__Store *store = show_find_store(status, channel->store);
	struct json_object *object = json_object_new_object();

	json_add_number(object, "channel", channel->channel);
	json_add_number(object, "store", channel->store);
	add_text(object, "store_name", store ? store->name : "");
	json_add_number(object, "entries", channel->entries);
	json_add_bool(object, "has_rings", channel->has_rings);
	json_object_object_add(object, "counters", counters_json(channel->counters));
	return object;
}

static struct json_object *client_json(const Wire__StatusReply *status, const Wire__Client *client)
{
	struct json_object *object = json_object_new_object();
	struct json_object *handles = json_object_new_array();

	json_add_number(object, "client", client->client);
	json_add_number(object, "uid", client->uid);
	json_add_number(object, "pid", client->pid);
	add_text(object, "name", client->name);
	json_add_number(object, "pool_bytes", client->pool_bytes);
	json_add_number(object, "device_bytes", client->device_bytes);
	json_add_number(object, "slabs", client->slabs);
	json_add_number(object, "files", client->files);
	for (size_t i = 0; i < client->n_handles; i++) {
		const Wire__Handle *handle = client->handles[i];
		struct json_object *one = json_object_new_object();
		struct json_object *channels = json_object_new_array();

		json_add_number(one, "handle", handle->handle);
		json_object_object_add(one, "profile", handle_profile_json(handle->profile));
		add_text(one, "class", show_class(handle->io_class));
		json_add_number(one, "weight", handle->weight);
		for (size_t k = 0; k < handle->n_channels; k++)
			(void)json_object_array_add(channels,
						    channel_json(status, handle->channels[k]));
		json_object_object_add(one, "channels", channels);
		(void)json_object_array_add(handles, one);
	}
	json_object_object_add(object, "handles", handles);
	return object;
}

struct json_object *show_stores_json(Wire__Store *const *stores, size_t n)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < n; i++)
		(void)json_object_array_add(array, store_json(stores[i]));
	return array;
}

struct json_object *show_clients_json(const Wire__StatusReply *status)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < status->n_clients; i++)
		(void)json_object_array_add(array, client_json(status, status->clients[i]));
	return array;
}

static struct json_object *others_json(const Wire__Others *others)
{
	struct json_object *object;

	if (!others)
		return NULL;
	object = json_object_new_object();
	json_add_number(object, "clients", others->clients);
	json_add_number(object, "pool_bytes", others->pool_bytes);
	json_add_number(object, "device_bytes", others->device_bytes);
	json_add_number(object, "slabs", others->slabs);
	json_add_number(object, "files", others->files);
	json_add_number(object, "handles", others->handles);
	return object;
}

void show_others_json(struct json_object *object, const Wire__StatusReply *status)
{
	json_add_number(object, "clients_shown", status->n_clients);
	json_add_number(object, "clients_total", status->n_all_clients);
	json_object_object_add(object, "others", others_json(status->others));
}

struct json_object *show_stuck_json(const Wire__StatusReply *status)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < status->n_stuck; i++) {
		const Wire__Stuck *stuck = status->stuck[i];
		struct json_object *object = json_object_new_object();

		json_add_number(object, "uid", stuck->uid);
		json_add_number(object, "usec", stuck->usec);
		add_text(object, "what", stuck->what);
		add_text(object, "file", stuck->file);
		add_text(object, "mount", stuck->mount);
		add_text(object, "what_frees_it", stuck->text);
		(void)json_object_array_add(array, object);
	}
	return array;
}

/* ---- commands ---- */

int show_status(struct ctl *ctl, show_status_fn *print_tables, show_status_fn *print_json)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	if (ctl->n_args > 0)
		return ctl_usage(ctl, "%s: takes no arguments: see dsaioctl %s --help",
				 ctl->args[0], ctl->command);
	r = ask_status(ctl, &client, &reply);
	if (r != CTL_OK)
		return r;
	return ctl->is_json ? print_json(ctl, reply->status) : print_tables(ctl, reply->status);
}
