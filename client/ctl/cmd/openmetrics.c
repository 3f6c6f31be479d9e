#include "client/ctl/cmd/openmetrics.h"

#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Room for a value in a label, quoted: longer ones are cut. */
#define VALUE_BYTES 100u
/* A series for every other place of the daemon's histogram: the bounds grow fourfold. */
#define PLACES_STEP 2u

/* Rows of one kind have the same families. */
enum kind { DAEMON, POOL, STORE, CLASS, USER, N_KINDS };
static const char *const prefixes[] = { "", "pool_", "store_", "class_", "user_" };
#define IN(kind) (1u << (kind))
#define COUNTED (IN(STORE) | IN(CLASS) | IN(USER)) /* the field is one of their counters */

/* A family is a field of a message, in all rows of a kind.  A unit is the end of its name, and what the field
   counts in is the end of the field's. */
static const struct family {
	unsigned kinds;
	bool is_counter;   /* else a gauge */
	const char *field; /* in dsaio.proto; behind a '!' it is a bool, and shown inverted */
	const char *name;  /* behind the prefix of the kind */
	const char *help;
} families[] = {
	{ IN(DAEMON), false, "uptime_usec", "uptime_seconds", "Since the daemon's start." },
	{ IN(DAEMON), true, "recoveries", "recoveries", "Clients that came back." },
	{ IN(DAEMON), true, "crashes", "crashes", "Daemons that did not stop in order." },
	{ IN(DAEMON), false, "n_all_clients", "clients", "Clients that are connected." },
	{ IN(DAEMON), false, "wear_since_sec", "wear_since_seconds", "Begin of wear's count." },
	{ IN(POOL), false, "size_bytes", "size_bytes", "Bound of the pinned memory." },
	{ IN(POOL), false, "used_bytes", "used_bytes", "Pinned memory that clients have." },
	{ IN(POOL), false, "huge_bytes", "huge_bytes", "Part of it in reserved huge pages." },
	{ IN(POOL), false, "view_bytes", "view_bytes", "Memory of views." },
	{ IN(POOL), false, "view_left_bytes", "view_left_bytes", "Only others still map it." },
	{ IN(POOL), true, "view_refusals", "view_refusals", "Pieces that clients read alone." },
	{ IN(POOL), true, "view_saved_bytes", "view_saved_bytes", "Not read and pinned again." },
	{ IN(POOL), false, "is_locked", "locked", "1 if all of it can be locked." },
	{ IN(STORE) | IN(USER), false, "clients", "clients", "Clients that use it." },
	{ IN(STORE) | IN(USER), false, "hung", "hung_calls", "Calls that have not returned." },
	{ IN(STORE) | IN(USER), true, "written_bytes", "wear_bytes", "Written, over restarts." },
	{ IN(STORE), false, "lane_depth", "lane_depth", "Blocks that the engine's queue holds." },
	{ IN(STORE), false, "window_bytes", "window_bytes", "Bound of bytes in flight." },
	{ IN(STORE), false, "is_drained", "drained", "1 while it refuses new ops." },
	{ IN(STORE), false, "!is_offline", "online",
	  "0 while its Ceph cluster cannot be reached." },
	{ IN(STORE), true, "pauses", "pauses",
	  "Times that its cluster ended no request for long." },
	{ IN(USER), false, "pool_bytes", "pool_bytes", "Pinned memory of its clients." },
	{ COUNTED, true, "reads", "reads", "Reads that ended." },
	{ COUNTED, true, "writes", "writes", "Writes that ended." },
	{ COUNTED, true, "fsyncs", "syncs", "Syncs that ended." },
	{ COUNTED, true, "errors", "errors", "Ops that ended with an error." },
	{ COUNTED, true, "read_bytes", "read_bytes", "Bytes read." },
	{ COUNTED, true, "write_bytes", "write_bytes", "Bytes written." },
	{ COUNTED, false, "open_ops", "open_ops", "Ops taken and not ended." },
	{ COUNTED, false, "blocks_in_flight", "blocks_in_flight", "Requests at the device." },
	{ COUNTED, false, "bytes_in_flight", "in_flight_bytes", "Bytes of these." },
	{ COUNTED, true, "queue_nsec", "queue_seconds", "Time of all ops in the queue." },
	{ COUNTED, true, "device_nsec", "device_seconds", "Time of all ops at the device." },
};

/* ---- one line ---- */

/* A message, its counters, and the labels of its series, without braces. */
struct row {
	enum kind kind;
	const ProtobufCMessage *message;
	const Wire__Counters *counters; /* NULL: has none */
	char labels[2 * VALUE_BYTES + 40];
};

static uint64_t value_of(const ProtobufCMessage *message, const char *name)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
		message->descriptor, name);
	const void *value = (const char *)message + field->offset;

	if (field->type == PROTOBUF_C_TYPE_UINT64)
		return *(const uint64_t *)value;
	return field->type == PROTOBUF_C_TYPE_BOOL ? (uint64_t) * (const protobuf_c_boolean *)value
						   : *(const uint32_t *)value;
}

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), n_end = strlen(end);

	return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static void print_value(FILE *out, const ProtobufCMessage *message, const char *field)
{
	const bool is_inverted = *field == '!';
	const uint64_t value = is_inverted ? !value_of(message, field + 1)
					   : value_of(message, field);

	if (ends_with(field, "_nsec"))
		(void)fprintf(out, " %.9f\n", (double)value / 1e9);
	else if (ends_with(field, "_usec"))
		(void)fprintf(out, " %.6f\n", (double)value / 1e6);
	else
		(void)fprintf(out, " %" PRIu64 "\n", value);
}

static void print_head(FILE *out, const char *prefix, const char *name, const char *type,
		       const char *help)
{
	(void)fprintf(out, "# TYPE dsaio_%s%s %s\n# HELP dsaio_%s%s %s\n", prefix, name, type,
		      prefix, name, help);
	if (ends_with(name, "_seconds") || ends_with(name, "_bytes"))
		(void)fprintf(out, "# UNIT dsaio_%s%s%s\n", prefix, name,
			      ends_with(name, "_bytes") ? " bytes" : " seconds");
}

/* ---- families ---- */

static void print_family(FILE *out, const struct family *f, enum kind kind, const struct row *rows,
			 size_t n_rows)
{
	const bool is_of_counters = f->kinds == COUNTED;

	print_head(out, prefixes[kind], f->name, f->is_counter ? "counter" : "gauge", f->help);
	for (size_t i = 0; i < n_rows; i++) {
		const struct row *row = &rows[i];

		if (row->kind != kind)
			continue;
		(void)fprintf(out, row->labels[0] ? "dsaio_%s%s%s{%s}" : "dsaio_%s%s%s",
			      prefixes[kind], f->name, f->is_counter ? "_total" : "", row->labels);
		print_value(out, is_of_counters ? &row->counters->base : row->message, f->field);
	}
}

static void print_histogram(FILE *out, const struct row *row)
{
	const Wire__Counters *counters = row->counters;
	const char *prefix = prefixes[row->kind];
	uint64_t n = 0;

	for (size_t i = 0; i < counters->n_latencies; i++) {
		const bool is_last = i + 1 == counters->n_latencies;

		n += counters->latencies[i];
		if (is_last || i % PLACES_STEP)
			continue;
		(void)fprintf(out, "dsaio_%slatency_seconds_bucket{%s,le=\"%.9g\"} %" PRIu64 "\n",
			      prefix, row->labels, (double)(UINT64_C(1024) << i) / 1e9, n);
	}
	(void)fprintf(out,
		      "dsaio_%slatency_seconds_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n"
		      "dsaio_%slatency_seconds_count{%s} %" PRIu64 "\n"
		      "dsaio_%slatency_seconds_sum{%s}",
		      prefix, row->labels, n, prefix, row->labels, n, prefix, row->labels);
	print_value(out, &counters->base, "latency_sum_nsec");
}

static void print_kind(FILE *out, enum kind kind, const struct row *rows, size_t n_rows)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (families[i].kinds & IN(kind))
			print_family(out, &families[i], kind, rows, n_rows);
	if (!(COUNTED & IN(kind)))
		return;
	print_head(out, prefixes[kind], "latency_seconds", "histogram",
		   "Time of ops from taken to ended.");
	for (size_t i = 0; i < n_rows; i++)
		if (rows[i].kind == kind)
			print_histogram(out, &rows[i]);
}

/* ---- rows ---- */

/* *end: behind the last one.  Returns NULL if it is of no daemon. */
static struct row *add_row(struct row **end, enum kind kind, const ProtobufCMessage *message,
			   const Wire__Counters *counters)
{
	if (!message || (COUNTED & IN(kind) && !counters))
		return NULL;
	**end = (struct row){ .kind = kind, .message = message, .counters = counters };
	return (*end)++;
}

/* Appends a label.  Other bytes than printable ASCII become '?', since the text has to be UTF-8. */
static void add_label(struct row *row, const char *name, const char *value)
{
	size_t n = strlen(row->labels), end;

	n += (size_t)snprintf(row->labels + n, sizeof(row->labels) - n, "%s%s=\"", n ? "," : "",
			      name);
	for (end = n + VALUE_BYTES; *value && n < end; value++) {
		if (*value == '"' || *value == '\\')
			row->labels[n++] = '\\';
		row->labels[n++] = *value >= ' ' && *value <= '~' ? *value : '?';
	}
	(void)strcpy(row->labels + n, "\"");
}

static void add_store(struct row **end, const Wire__Store *store)
{
	char class[SHOW_ENUM_BYTES];
	struct row *row = add_row(end, STORE, &store->base, store->counters);

	if (row)
		add_label(row, "store", store->name);
	for (size_t k = 0; k < store->n_classes; k++) {
		row = add_row(end, CLASS, &store->classes[k]->base, store->classes[k]->counters);
		if (!row)
			continue;
		add_label(row, "store", store->name);
		add_label(row, "class",
			  show_enum(class, &wire__class__descriptor,
				    (int)store->classes[k]->io_class));
	}
}

static void add_user(struct row **end, const Wire__User *one)
{
	struct row *row = add_row(end, USER, &one->base, one->counters);
	char uid[16], user[SHOW_USER_BYTES];

	if (!row)
		return;
	(void)snprintf(uid, sizeof(uid), "%" PRIu32, one->uid);
	add_label(row, "uid", one->is_rest ? "rest" : uid);
	add_label(row, "user", show_user(user, one));
}

void openmetrics_print(const Wire__StatusReply *status, FILE *out)
{
	struct row program = { .labels = "" };
	size_t n_max = 2 + status->n_stores + status->n_users;
	_cleanup_(freep) struct row *rows = NULL;
	struct row *end;

	for (size_t i = 0; i < status->n_stores; i++)
		n_max += status->stores[i]->n_classes;
	end = rows = NEW_ARRAY(struct row, n_max);
	(void)add_row(&end, DAEMON, &status->base, NULL); /* these two have no labels */
	(void)add_row(&end, POOL, status->pool ? &status->pool->base : NULL, NULL);
	for (size_t i = 0; i < status->n_stores; i++)
		add_store(&end, status->stores[i]);
	for (size_t i = 0; i < status->n_users; i++)
		add_user(&end, status->users[i]);
	print_head(out, "", "build", "info", "The daemon's program.");
	add_label(&program, "version", status->daemon_version);
	add_label(&program, "build", status->daemon_build);
	(void)fprintf(out, "dsaio_build_info{%s} 1\n", program.labels);
	for (enum kind kind = 0; kind < N_KINDS; kind++)
		print_kind(out, kind, rows, (size_t)(end - rows));
	(void)fputs("# EOF\n", out);
}
