/*
 * dsaioctl status: what the daemon serves, to whom, and how fast.
 *
 * One Status request; its reply is printed as tables, or whole as JSON.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/table.h"
#include "client/ctl/units.h"
#include "client/lib/client.h"
#include "client/lib/conn.h"
#include "proto/cleanup.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

static const char help[] =
	"dsaioctl status - what the daemon serves, to whom, and how fast\n"
	"\n"
	"    dsaioctl status\n"
	"    dsaioctl status --socket /run/user/1000/dsaiod/dsaiod.sock\n"
	"    dsaioctl status --json | jq '.stores[].counters.latency_p99_nsec'\n"
	"\n"
	"A row of the second table is a handle's part on one store.  OPEN are ops taken and not\n"
	"ended, P50 and P99 the times from then to the end that half and 99% of them did not pass.\n"
	"\n"
	"    --json         all numbers, in bytes and nanoseconds\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone, with a store on this directory\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

static const char *class_name(Wire__Class io_class)
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

static const Wire__Store *find_store(const Wire__StatusReply *status, uint32_t id)
{
	for (size_t i = 0; i < status->n_stores; i++)
		if (status->stores[i]->store == id)
			return status->stores[i];
	return NULL;
}

/* ---- tables ---- */

#define COUNTER_COLUMNS                                                                      \
	{ "OPEN", true }, { "READS", true }, { "READ", true }, { "WRITES", true },           \
		{ "WRITTEN", true }, { "SYNCS", true }, { "ERRORS", true }, { "P50", true }, \
	{                                                                                    \
		"P99", true                                                                  \
	}
#define N_COUNTER_COLUMNS 9

static void add_latency(struct table *table, uint64_t nsec)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", nsec ? units_format_nsec(text, nsec) : "-");
}

static void add_counters(struct table *table, const Wire__Counters *c)
{
	char text[UNITS_TEXT_BYTES];

	if (!c) {
		for (unsigned i = 0; i < N_COUNTER_COLUMNS; i++)
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

/* "1 MiB x 128", and what is not as it mostly is; "store's" if it was left to the store. */
static void add_profile(struct table *table, const Wire__Profile *profile)
{
	char size[UNITS_TEXT_BYTES], parts[UNITS_TEXT_BYTES] = "";

	if (!profile) {
		table_add(table, "store's");
		return;
	}
	if (profile->intra_op_parallelism != 1)
		(void)snprintf(parts, sizeof(parts), " in %" PRIu32, profile->intra_op_parallelism);
	table_add(table, "%s x %" PRIu32 "%s%s%s", units_format_size(size, profile->block_size),
		  profile->queue_depth, parts, profile->single_submit ? " single" : "",
		  profile->overlap_events ? "" : " sequential");
}

static int print_stores(const Wire__StatusReply *status)
{
	static const struct table_column about_columns[] = {
		{ "STORE", false },    { "PATH", false },    { "TYPE", false },
		{ "ENGINE", false },   { "LANES", true },    { "LANE DEPTH", true },
		{ "IN FLIGHT", true }, { "PROFILE", false },
	};
	static const struct table_column counter_columns[] = { { "STORE", false },
							       COUNTER_COLUMNS };
	_cleanup_(table_deinit) struct table about, counters;
	char text[UNITS_TEXT_BYTES];
	int r;

	table_init(&about, about_columns, sizeof(about_columns) / sizeof(about_columns[0]));
	table_init(&counters, counter_columns, 1 + N_COUNTER_COLUMNS);
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		table_add(&about, "%s", store->name);
		table_add(&about, "%s", store->path);
		table_add(&about, "%s", store->fs_type);
		table_add(&about, "%s", store->engine);
		table_add(&about, "%" PRIu32, store->lanes);
		table_add(&about, "%" PRIu32, store->lane_depth);
		table_add(&about, "%s",
			  units_format_size(text, store->counters ? store->counters->bytes_in_flight
								  : 0));
		add_profile(&about, store->profile);
		table_add(&counters, "%s", store->name);
		add_counters(&counters, store->counters);
	}
	r = table_print(&about, stdout);
	(void)putchar('\n');
	return r < 0 ? r : table_print(&counters, stdout);
}

static void add_handle(struct table *table, const Wire__StatusReply *status,
		       const Wire__Client *client, const Wire__Handle *handle,
		       const Wire__Channel *channel)
{
	const Wire__Store *store = channel ? find_store(status, channel->store) : NULL;

	table_add(table, "%" PRIu32 "/%" PRIu32, client->client, handle->handle);
	table_add(table, "%s", store ? store->name : "-");
	table_add(table, "%s %" PRIu32, class_name(handle->io_class), handle->weight);
	add_profile(table, handle->profile);
	add_counters(table, channel ? channel->counters : NULL);
}

static int print_clients(const Wire__StatusReply *status)
{
	static const struct table_column client_columns[] = {
		{ "CLIENT", true }, { "NAME", false }, { "PID", true },	  { "UID", true },
		{ "POOL", true },   { "SLABS", true }, { "FILES", true }, { "HANDLES", true },
	};
	static const struct table_column handle_columns[] = { { "HANDLE", true },
							      { "STORE", false },
							      { "CLASS", false },
							      { "PROFILE", false },
							      COUNTER_COLUMNS };
	_cleanup_(table_deinit) struct table clients, handles;
	char text[UNITS_TEXT_BYTES];
	bool has_handles = false;
	int r;

	table_init(&clients, client_columns, sizeof(client_columns) / sizeof(client_columns[0]));
	table_init(&handles, handle_columns, 4 + N_COUNTER_COLUMNS);
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		table_add(&clients, "%" PRIu32, client->client);
		table_add(&clients, "%s", client->name);
		table_add(&clients, "%" PRIu32, client->pid);
		table_add(&clients, "%" PRIu32, client->uid);
		table_add(&clients, "%s", units_format_size(text, client->pool_bytes));
		table_add(&clients, "%" PRIu32, client->slabs);
		table_add(&clients, "%" PRIu32, client->files);
		table_add(&clients, "%zu", client->n_handles);
		for (size_t k = 0; k < client->n_handles; k++) {
			const Wire__Handle *handle = client->handles[k];

			has_handles = true;
			for (size_t c = 0; c < handle->n_channels; c++)
				add_handle(&handles, status, client, handle, handle->channels[c]);
			if (handle->n_channels == 0)
				add_handle(&handles, status, client, handle, NULL);
		}
	}
	r = table_print(&clients, stdout);
	if (r < 0 || !has_handles)
		return r;
	(void)putchar('\n');
	return table_print(&handles, stdout);
}

static int print_tables(const struct ctl *ctl, const Wire__StatusReply *status)
{
	char used[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES], up[UNITS_TEXT_BYTES];
	const Wire__Pool *pool = status->pool;
	int r;

	(void)printf("dsaiod %s, pid %" PRIu32 ", up %s\n", status->daemon_version, status->pid,
		     units_format_nsec(up, status->uptime_usec * 1000));
	if (pool) {
		(void)printf("pool: %s of %s used, %s", units_format_size(used, pool->used_bytes),
			     units_format_size(size, pool->size_bytes),
			     pool->is_locked ? "locked" : "not locked");
		(void)printf("%s%s\n", pool->why_unlocked[0] ? ": " : "", pool->why_unlocked);
	}
	(void)putchar('\n');
	r = print_stores(status);
	if (r == 0 && status->n_clients) {
		(void)putchar('\n');
		r = print_clients(status);
	}
	if (r == -ENOMEM)
		return ctl_fail(ctl, "out of memory");
	return ctl_flush(ctl);
}

/* ---- JSON ---- */

static void add_number(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_uint64(value));
}

static void add_bool(struct json_object *object, const char *key, bool value)
{
	json_object_object_add(object, key, json_object_new_boolean(value));
}

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
	add_number(object, "reads", c->reads);
	add_number(object, "writes", c->writes);
	add_number(object, "fsyncs", c->fsyncs);
	add_number(object, "errors", c->errors);
	add_number(object, "read_bytes", c->read_bytes);
	add_number(object, "write_bytes", c->write_bytes);
	add_number(object, "open_ops", c->open_ops);
	add_number(object, "blocks_in_flight", c->blocks_in_flight);
	add_number(object, "bytes_in_flight", c->bytes_in_flight);
	add_number(object, "latency_p50_nsec", c->latency_p50_nsec);
	add_number(object, "latency_p99_nsec", c->latency_p99_nsec);
	return object;
}

static struct json_object *profile_json(const Wire__Profile *profile)
{
	struct json_object *object;

	if (!profile)
		return NULL;
	object = json_object_new_object();
	add_number(object, "block_size", profile->block_size);
	add_number(object, "queue_depth", profile->queue_depth);
	add_bool(object, "single_submit", profile->single_submit);
	add_bool(object, "overlap_events", profile->overlap_events);
	add_number(object, "intra_op_parallelism", profile->intra_op_parallelism);
	return object;
}

static struct json_object *pool_json(const Wire__Pool *pool)
{
	struct json_object *object;

	if (!pool)
		return NULL;
	object = json_object_new_object();
	add_number(object, "size_bytes", pool->size_bytes);
	add_number(object, "used_bytes", pool->used_bytes);
	add_bool(object, "is_locked", pool->is_locked);
	add_text(object, "why_unlocked", pool->why_unlocked);
	return object;
}

static struct json_object *store_json(const Wire__Store *store)
{
	struct json_object *object = json_object_new_object();

	add_number(object, "store", store->store);
	add_text(object, "name", store->name);
	add_text(object, "path", store->path);
	add_text(object, "fs_type", store->fs_type);
	json_object_object_add(object, "profile", profile_json(store->profile));
	add_number(object, "lanes", store->lanes);
	add_number(object, "lane_depth", store->lane_depth);
	add_text(object, "engine", store->engine);
	json_object_object_add(object, "counters", counters_json(store->counters));
	return object;
}

static struct json_object *channel_json(const Wire__StatusReply *status,
					const Wire__Channel *channel)
{
	const Wire__Store *store = find_store(status, channel->store);
	struct json_object *object = json_object_new_object();

	add_number(object, "channel", channel->channel);
	add_number(object, "store", channel->store);
	add_text(object, "store_name", store ? store->name : "");
	add_number(object, "entries", channel->entries);
	add_bool(object, "has_rings", channel->has_rings);
	json_object_object_add(object, "counters", counters_json(channel->counters));
	return object;
}

static struct json_object *client_json(const Wire__StatusReply *status, const Wire__Client *client)
{
	struct json_object *object = json_object_new_object();
	struct json_object *handles = json_object_new_array();

	add_number(object, "client", client->client);
	add_number(object, "uid", client->uid);
	add_number(object, "pid", client->pid);
	add_text(object, "name", client->name);
	add_number(object, "pool_bytes", client->pool_bytes);
	add_number(object, "slabs", client->slabs);
	add_number(object, "files", client->files);
	for (size_t i = 0; i < client->n_handles; i++) {
		const Wire__Handle *handle = client->handles[i];
		struct json_object *one = json_object_new_object();
		struct json_object *channels = json_object_new_array();

		add_number(one, "handle", handle->handle);
		json_object_object_add(one, "profile", profile_json(handle->profile));
		add_text(one, "class", class_name(handle->io_class));
		add_number(one, "weight", handle->weight);
		for (size_t k = 0; k < handle->n_channels; k++)
			(void)json_object_array_add(channels,
						    channel_json(status, handle->channels[k]));
		json_object_object_add(one, "channels", channels);
		(void)json_object_array_add(handles, one);
	}
	json_object_object_add(object, "handles", handles);
	return object;
}

static int print_json(const struct ctl *ctl, const Wire__StatusReply *status)
{
	struct json_object *object = json_object_new_object();
	struct json_object *stores = json_object_new_array(), *clients = json_object_new_array();

	add_text(object, "daemon_version", status->daemon_version);
	add_number(object, "pid", status->pid);
	add_number(object, "uptime_usec", status->uptime_usec);
	json_object_object_add(object, "pool", pool_json(status->pool));
	for (size_t i = 0; i < status->n_stores; i++)
		(void)json_object_array_add(stores, store_json(status->stores[i]));
	json_object_object_add(object, "stores", stores);
	for (size_t i = 0; i < status->n_clients; i++)
		(void)json_object_array_add(clients, client_json(status, status->clients[i]));
	json_object_object_add(object, "clients", clients);
	return ctl_print_json(ctl, object);
}

static int status_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__Status status = WIRE__STATUS__INIT;
	const char *const here = ".";
	int r;

	if (ctl->n_args > 0)
		return ctl_usage(ctl, "%s: takes no arguments: see dsaioctl status --help",
				 ctl->args[0]);
	r = ctl_connect(ctl, &here, 1, &client);
	if (r != CTL_OK)
		return r;
	request.body_case = WIRE__REQUEST__BODY_STATUS;
	request.status = &status;
	if (conn_call(client_conn(client), "status", &request, NULL, 0, &reply, NULL, NULL) < 0)
		return ctl_fail(ctl, "%s", dsaio_error());
	return ctl->is_json ? print_json(ctl, reply->status) : print_tables(ctl, reply->status);
}

const struct command command_status = {
	"status", status_run, "what the daemon serves, to whom, and how fast", help, { NULL, 0 }
};
