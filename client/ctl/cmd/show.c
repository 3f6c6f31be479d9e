#include "client/ctl/cmd/show.h"

#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"
#include "proto/wire.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

const char *show_enum(char *text, const ProtobufCEnumDescriptor *kind, int value)
{
	const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(kind, value);
	const char *name = known ? known->name : "?", *prefix = strrchr(name, '_');
	size_t n = 0;

	for (const char *c = prefix ? prefix + 1 : name; *c && n < SHOW_ENUM_BYTES - 1; c++)
		text[n++] = (char)tolower((unsigned char)*c);
	text[n] = '\0';
	return text;
}

const Wire__Store *show_find_store(const Wire__StatusReply *status, uint32_t id)
{
	for (size_t i = 0; i < status->n_stores; i++)
		if (status->stores[i]->store == id)
			return status->stores[i];
	return NULL;
}

void show_others(const Wire__StatusReply *status)
{
	const Wire__Others *others = status->others;
	char text[UNITS_TEXT_BYTES];

	if (!others && !status->n_all_clients)
		(void)puts("no clients");
	if (!others)
		return;
	(void)printf("%" PRIu32 " client%s of other users: %s of the pool, %" PRIu32
		     " slab%s, %" PRIu32 " file%s, %" PRIu32 " handle%s\n",
		     others->clients, plural(others->clients),
		     units_format_size(text, others->pool_bytes), others->slabs,
		     plural(others->slabs), others->files, plural(others->files), others->handles,
		     plural(others->handles));
}

void show_hung(const Wire__StatusReply *status, FILE *out)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = ">UID|>FOR|WHAT|FILE|MOUNT|WHAT FREES IT"
	};
	char text[UNITS_TEXT_BYTES];

	if (status->n_hung == 0)
		return;
	for (size_t i = 0; i < status->n_hung; i++) {
		const Wire__Hung *hung = status->hung[i];

		table_add(&table, "%" PRIu32, hung->uid);
		table_add(&table, "%s", units_format_nsec(text, hung->usec * 1000));
		table_add(&table, "%s", hung->what);
		table_add(&table, "%s", hung->file);
		table_add(&table, "%s", hung->mount);
		table_add(&table, "%s", hung->text);
	}
	(void)fputs("HUNG: calls that have not returned:\n", out);
	table_print(&table, out);
	(void)fputc('\n', out);
}

/* ---- cells ---- */

static void add_latency(struct table *table, uint64_t nsec)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", nsec ? units_format_nsec(text, nsec) : "-");
}

static void add_share(struct table *table, uint64_t part, uint64_t all)
{
	if (all)
		table_add(table, "%.1f%%", 100 * (double)part / (double)all);
	else
		table_add(table, "-");
}

void show_counters(struct table *table, const Wire__Counters *c)
{
	const uint64_t all = c ? c->queue_nsec + c->device_nsec + c->delivery_nsec : 0;
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
	add_share(table, c->queue_nsec, all);
	add_share(table, c->device_nsec, all);
	add_share(table, c->delivery_nsec, c->delivery_nsec ? all : 0);
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
		(void)snprintf(parts, sizeof(parts), " x %" PRIu32, profile->intra_op_parallelism);
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

char *show_uid(char *text, uint32_t uid)
{
	const struct passwd *passwd = getpwuid(uid);

	if (passwd)
		(void)snprintf(text, SHOW_USER_BYTES, "%s", passwd->pw_name);
	else
		(void)snprintf(text, SHOW_USER_BYTES, "%" PRIu32, uid);
	return text;
}

bool show_find_uid(const char *user, uint32_t *ret_uid)
{
	const struct passwd *passwd = getpwnam(user);
	uint64_t uid;

	if (passwd)
		uid = passwd->pw_uid;
	else if (user[strspn(user, "0123456789")] || size_parse(user, &uid) < 0 ||
		 uid >= UINT32_MAX)
		return false;
	*ret_uid = (uint32_t)uid;
	return true;
}

const char *show_user(char *text, const Wire__User *user)
{
	return user->is_rest ? "others" : show_uid(text, user->uid);
}

/* ---- JSON ---- */

/* Keys that differ from the field's name; NULL: the field is not shown. */
static const char *const keys[][2] = {
	{ "io_class", "class" }, { "text", "what_frees_it" }, { "n_all_clients", "clients_total" },
	{ "next", NULL },      /* all pages are in one status */
	{ "absent", NULL },    /* its fields are null */
	{ "latencies", NULL }, /* nobody asks for them, but metrics */
	{ "blocks", NULL },    /* these two: only for stores */
	{ "blocks_nsec", NULL },
};

static const char *key_of(const ProtobufCFieldDescriptor *field)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(field->name, keys[i][0]) == 0)
			return keys[i][1];
	return field->name;
}

/* Whether the value is null: a field that a profile inherits, or an empty text about GPUs. */
static bool is_null(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
		    const void *value)
{
	if (message->descriptor == &wire__profile__descriptor)
		return ((const Wire__Profile *)message)->absent & 1u << (field->id - 1);
	return message->descriptor == &wire__gpus__descriptor &&
	       field->type == PROTOBUF_C_TYPE_STRING && !**(const char *const *)value;
}

static struct json_object *part_json(const Wire__StatusReply *status,
				     const ProtobufCMessage *message);

static struct json_object *value_json(const Wire__StatusReply *status,
				      const ProtobufCFieldDescriptor *field, const void *value)
{
	char text[SHOW_ENUM_BYTES];

	switch (field->type) {
	case PROTOBUF_C_TYPE_BOOL:
		return json_object_new_boolean(*(const protobuf_c_boolean *)value);
	case PROTOBUF_C_TYPE_UINT32:
		return json_object_new_uint64(*(const uint32_t *)value);
	case PROTOBUF_C_TYPE_UINT64:
		return json_object_new_uint64(*(const uint64_t *)value);
	case PROTOBUF_C_TYPE_ENUM:
		return json_object_new_string(
			show_enum(text, field->descriptor, *(const int *)value));
	case PROTOBUF_C_TYPE_STRING:
		return json_object_new_string(*(const char *const *)value);
	default:
		assert(field->type == PROTOBUF_C_TYPE_MESSAGE); /* a status has no others */
		return part_json(status, *(const ProtobufCMessage *const *)value);
	}
}

/* A part of a status.  NULL: null. */
static struct json_object *part_json(const Wire__StatusReply *status,
				     const ProtobufCMessage *message)
{
	struct json_object *object, *array;

	if (!message)
		return NULL; /* json-c's null */
	object = json_object_new_object();
	if (message->descriptor == &wire__status_reply__descriptor)
		json_add_number(object, "clients_shown", status->n_clients);
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
		const char *base = (const char *)message, *key = key_of(field);
		const void *value = base + field->offset;

		if (!key)
			continue;
		if (field->label != PROTOBUF_C_LABEL_REPEATED) {
			json_object_object_add(object, key,
					       is_null(message, field, value)
						       ? NULL
						       : value_json(status, field, value));
			continue;
		}
		/* The elements are messages: a status has no other lists. */
		array = json_object_new_array();
		for (size_t k = 0; k < *(const size_t *)(base + field->quantifier_offset); k++)
			(void)json_object_array_add(
				array,
				value_json(status, field,
					   *(const ProtobufCMessage *const *const *)value + k));
		json_object_object_add(object, key, array);
	}
	if (message->descriptor == &wire__channel__descriptor) {
		const Wire__Store *store = show_find_store(status,
							   ((const Wire__Channel *)message)->store);

		json_object_object_add(object, "store_name",
				       json_object_new_string(store ? store->name : ""));
	}
	return object;
}

struct json_object *show_json(const ProtobufCMessage *message)
{
	static const Wire__StatusReply none = WIRE__STATUS_REPLY__INIT;

	return part_json(message->descriptor == none.base.descriptor
				 ? (const Wire__StatusReply *)message
				 : &none,
			 message);
}

/* ---- commands ---- */

int show_status(struct ctl *ctl, show_status_fn *print_tables)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r = ask_status(ctl, &reply);

	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, show_json(&reply->status->base))
			    : print_tables(ctl, reply->status);
}

/* ---- stores ---- */

static int print_stores(const struct ctl *ctl, Wire__Store *const *stores, size_t n)
{
	_cleanup_(table_deinit) struct table about = {
		.columns = "STORE|PATH|TYPE|ENGINE|>LANE DEPTH|>BLOCK SIZE|PROFILE|FROM|"
			   "AUTO|DRAINED|>CLIENTS|USERS"
	};
	_cleanup_(table_deinit) struct table counters = {
		.columns = "STORE|>IN FLIGHT|>BLOCKS|>WINDOW|" SHOW_COUNTER_COLUMNS
	};
	char text[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < n; i++) {
		const Wire__Store *store = stores[i];
		const Wire__Counters *c = store->counters;

		table_add(&about, "%s", store->name);
		table_add(&about, "%s", store->path);
		table_add(&about, "%s", store->fs_type);
		table_add(&about, "%s (%s)", store->is_blocking ? "worker threads" : store->engine,
			  store->engine_text);
		table_add(&about, "%" PRIu32, store->lane_depth);
		table_add(&about, "%s", units_format_size(text, store->block_bytes));
		show_profile(&about, store->profile);
		table_add(&about, "%s", store->profile_source);
		table_add(&about, "%s", store->is_automatic ? "yes" : "no");
		table_add(&about, "%s", store->is_drained ? "yes" : "no");
		table_add(&about, "%" PRIu32, store->clients);
		table_add(&about, "%s", store->allowed[0] ? store->allowed : "everybody");
		table_add(&counters, "%s", store->name);
		table_add(&counters, "%s", units_format_size(text, c ? c->bytes_in_flight : 0));
		table_add(&counters, "%" PRIu64, c ? c->blocks_in_flight : 0);
		table_add(&counters, "%s", units_format_size(text, store->window_bytes));
		show_counters(&counters, c);
	}
	table_print(&about, stdout);
	(void)putchar('\n');
	table_print(&counters, stdout);
	return ctl_flush(ctl);
}

int show_stores(const struct ctl *ctl, Wire__Store *const *stores, size_t n)
{
	struct json_object *object, *array;

	if (!ctl->is_json)
		return print_stores(ctl, stores, n);
	object = json_object_new_object();
	array = json_object_new_array();
	for (size_t i = 0; i < n; i++)
		(void)json_object_array_add(array, show_json(&stores[i]->base));
	json_object_object_add(object, "stores", array);
	return ctl_print_json(ctl, object);
}

/* ---- limits and wear ---- */

static void add_number(struct table *table, uint64_t number)
{
	if (number)
		table_add(table, "%" PRIu64, number);
	else
		table_add(table, "-");
}

static void add_limit(struct table *table, const char *kind, const char *name,
		      const Wire__Limit *limit, uint32_t weight, uint64_t written)
{
	const Wire__Limit none = WIRE__LIMIT__INIT;
	char text[UNITS_TEXT_BYTES];

	if (!limit)
		limit = &none;
	table_add(table, "%s", kind);
	table_add(table, "%s", name);
	table_add(table, "%s",
		  limit->bytes_per_sec ? units_format_rate(text, limit->bytes_per_sec, 1000000000)
				       : "-");
	add_number(table, limit->ops_per_sec);
	add_number(table, weight);
	table_add(table, "%s", units_format_size(text, written));
}

int show_limits(const struct ctl *ctl, const Wire__StatusReply *status, bool only_limited)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = "KIND|NAME|>BANDWIDTH|>IOPS|>WEIGHT|>WRITTEN"
	};
	char name[256];

	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		if (store->limit || !only_limited)
			add_limit(&table, "store", store->name, store->limit, 0,
				  store->written_bytes);
	}
	for (size_t i = 0; i < status->n_users; i++) {
		const Wire__User *user = status->users[i];

		if (user->limit || !only_limited)
			add_limit(&table, "user", show_user(name, user), user->limit, 0,
				  user->written_bytes);
	}
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		(void)snprintf(name, sizeof(name), "%" PRIu32 " %s", client->client, client->name);
		if (client->limit || client->weight || !only_limited)
			add_limit(&table, "client", name, client->limit, client->weight,
				  client->written_bytes);
	}
	if (!table.n_cells && only_limited)
		return ctl_print_line(ctl, "nothing is limited");
	table_print(&table, stdout);
	return ctl_flush(ctl);
}
