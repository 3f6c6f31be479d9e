#include "client/ctl/cmd/openmetrics.h"

#include "client/ctl/cmd/show.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

/* Room for a value in a label, quoted: longer ones are cut. */
#define VALUE_BYTES 100u
#define PATH_BYTES 1000u
/* A series for every other place of the daemon's histogram: the bounds grow fourfold. */
#define PLACES_STEP 2u

/* A family is a field of a message, in all of its rows. */
struct family {
	const char *field; /* in dsaio.proto */
	const char *name;  /* behind the prefix of its kind of row */
	const char *unit;  /* "": none; the name ends with it */
	bool is_counter;   /* else a gauge */
	unsigned digits;   /* behind the point: 6 for microseconds */
	const char *help;
};

static const struct family daemon_families[] = {
	{ "uptime_usec", "uptime_seconds", "seconds", false, 6, "Time since the daemon's start." },
	{ "recoveries", "recoveries", "", true, 0,
	  "Clients that came back from an earlier daemon." },
	{ "crashes", "crashes", "", true, 0,
	  "Daemons that did not stop in order, as far as their flight recorders tell, kept over restarts." },
	{ "n_all_clients", "clients", "", false, 0, "Clients that are connected." },
	{ "wear_since_sec", "wear_since_seconds", "seconds", false, 0,
	  "Since when wear is counted: a time since 1970." },
};

static const struct family pool_families[] = {
	{ "size_bytes", "size_bytes", "bytes", false, 0, "Bound of the pinned memory." },
	{ "used_bytes", "used_bytes", "bytes", false, 0, "Pinned memory that clients have." },
	{ "huge_bytes", "huge_bytes", "bytes", false, 0, "Part of it in reserved huge pages." },
	{ "is_locked", "locked", "", false, 0, "1 if all of it can be locked." },
};

static const struct family store_families[] = {
	{ "clients", "clients", "", false, 0, "Clients with files or channels there." },
	{ "hung", "hung_calls", "", false, 0,
	  "Calls that the file system or the device does not answer." },
	{ "lane_depth", "lane_depth", "", false, 0, "Blocks that the lane's engine queue holds." },
	{ "window_bytes", "window_bytes", "bytes", false, 0,
	  "Bound of bytes in flight while several clients are active." },
	{ "is_drained", "drained", "", false, 0, "1 while the store refuses new ops." },
	{ "written_bytes", "wear_bytes", "bytes", true, 0,
	  "Bytes written since wear is counted, kept over restarts." },
};

static const struct family user_families[] = {
	{ "clients", "clients", "", false, 0, "Clients that are connected." },
	{ "hung", "hung_calls", "", false, 0, "Calls that no file system or device answers." },
	{ "pool_bytes", "pool_bytes", "bytes", false, 0, "Pinned memory of its clients." },
	{ "written_bytes", "wear_bytes", "bytes", true, 0,
	  "Bytes written since wear is counted, kept over restarts." },
};

/* They belong to stores, classes and users. */
static const struct family counter_families[] = {
	{ "reads", "reads", "", true, 0, "Reads that ended." },
	{ "writes", "writes", "", true, 0, "Writes that ended." },
	{ "fsyncs", "syncs", "", true, 0, "Syncs that ended." },
	{ "errors", "errors", "", true, 0, "Ops that ended with an error." },
	{ "read_bytes", "read_bytes", "bytes", true, 0, "Bytes read." },
	{ "write_bytes", "write_bytes", "bytes", true, 0, "Bytes written." },
	{ "open_ops", "open_ops", "", false, 0, "Ops that were taken and have not ended." },
	{ "blocks_in_flight", "blocks_in_flight", "", false, 0, "Requests at the device." },
	{ "bytes_in_flight", "in_flight_bytes", "bytes", false, 0, "Bytes of these." },
	{ "queue_nsec", "queue_seconds", "seconds", true, 9,
	  "Time of all ops together in the queue." },
	{ "device_nsec", "device_seconds", "seconds", true, 9,
	  "Time of all ops together with a block in flight." },
};

/* ---- one line ---- */

/* A value of a label.  Other bytes than printable ASCII become '?', since the text has to be UTF-8. */
static const char *quoted(char *text, size_t size, const char *from)
{
	size_t n = 0;

	for (; *from && n < size - 2; from++) {
		if (*from == '"' || *from == '\\')
			text[n++] = '\\';
		text[n++] = *from >= ' ' && *from <= '~' ? *from : '?';
	}
	text[n] = '\0';
	return text;
}

/* A message, and the labels of its series, without braces. */
struct row {
	char labels[2 * VALUE_BYTES + 40];
	const ProtobufCMessage *message;
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

static void print_value(FILE *out, uint64_t value, unsigned digits)
{
	uint64_t unit = 1;

	for (unsigned i = 0; i < digits; i++)
		unit *= 10;
	(void)fprintf(out, " %" PRIu64, value / unit);
	if (digits)
		(void)fprintf(out, ".%0*" PRIu64, (int)digits, value % unit);
	(void)putc('\n', out);
}

static void print_head(FILE *out, const char *prefix, const char *name, const char *type,
		       const char *unit, const char *help)
{
	(void)fprintf(out, "# TYPE dsaio_%s%s %s\n", prefix, name, type);
	if (unit[0])
		(void)fprintf(out, "# UNIT dsaio_%s%s %s\n", prefix, name, unit);
	(void)fprintf(out, "# HELP dsaio_%s%s %s\n", prefix, name, help);
}

/* ---- families ---- */

static void print_families(FILE *out, const char *prefix, const struct family *families,
			   size_t n_families, const struct row *rows, size_t n_rows)
{
	for (size_t i = 0; i < n_families; i++) {
		const struct family *f = &families[i];

		print_head(out, prefix, f->name, f->is_counter ? "counter" : "gauge", f->unit,
			   f->help);
		for (size_t k = 0; k < n_rows; k++) {
			(void)fprintf(out, "dsaio_%s%s%s", prefix, f->name,
				      f->is_counter ? "_total" : "");
			if (rows[k].labels[0])
				(void)fprintf(out, "{%s}", rows[k].labels);
			print_value(out, value_of(rows[k].message, f->field), f->digits);
		}
	}
}
#define PRINT_FAMILIES(out, prefix, families, rows, n_rows)                                   \
	print_families(out, prefix, families, sizeof(families) / sizeof((families)[0]), rows, \
		       n_rows)

static void print_histogram(FILE *out, const char *prefix, const struct row *row)
{
	const Wire__Counters *counters = (const Wire__Counters *)row->message;
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
	print_value(out, counters->latency_sum_nsec, 9);
}

static void print_counters(FILE *out, const char *prefix, const struct row *rows, size_t n_rows)
{
	PRINT_FAMILIES(out, prefix, counter_families, rows, n_rows);
	print_head(out, prefix, "latency_seconds", "histogram", "seconds",
		   "Time of ops from taken to ended.");
	for (size_t i = 0; i < n_rows; i++)
		print_histogram(out, prefix, &rows[i]);
}

/* ---- kinds of rows ---- */

static void print_builds(FILE *out, const Wire__StatusReply *status)
{
	char text[VALUE_BYTES], path[PATH_BYTES], type[VALUE_BYTES], engine[VALUE_BYTES];

	print_head(out, "", "build", "info", "", "The daemon's program.");
	(void)fprintf(out, "dsaio_build_info{version=\"%s\"",
		      quoted(text, sizeof(text), status->daemon_version));
	(void)fprintf(out, ",build=\"%s\"} 1\n", quoted(text, sizeof(text), status->daemon_build));
	print_head(out, "", "store", "info", "", "Where a store is, and how it is served.");
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		(void)fprintf(
			out,
			"dsaio_store_info{store=\"%s\",path=\"%s\",fs_type=\"%s\",engine=\"%s\"} 1\n",
			quoted(text, sizeof(text), store->name),
			quoted(path, sizeof(path), store->path),
			quoted(type, sizeof(type), store->fs_type),
			quoted(engine, sizeof(engine),
			       store->is_blocking ? "threads" : store->engine));
	}
}

/* n rows, and the same number for their counters. */
struct rows {
	struct row *rows, *counters;
	size_t n;
};

static void rows_deinit(struct rows *rows)
{
	free(rows->rows);
	free(rows->counters);
}

static int rows_init(struct rows *rows, size_t max)
{
	*rows = (struct rows){ .rows = calloc(max + 1, sizeof(*rows->rows)),
			       .counters = calloc(max + 1, sizeof(*rows->counters)) };
	return rows->rows && rows->counters ? 0 : -ENOMEM;
}

__attribute__((format(printf, 4, 5))) static void rows_add(struct rows *rows,
							   const ProtobufCMessage *message,
							   const Wire__Counters *counters,
							   const char *format, ...)
{
	struct row *row = &rows->rows[rows->n];
	va_list args;

	if (!counters) /* of no daemon */
		return;
	va_start(args, format);
	(void)vsnprintf(row->labels, sizeof(row->labels), format, args);
	va_end(args);
	row->message = message;
	rows->counters[rows->n] = *row;
	rows->counters[rows->n].message = &counters->base;
	rows->n++;
}

static int print_stores(FILE *out, const Wire__StatusReply *status)
{
	_cleanup_(rows_deinit) struct rows stores = { 0 }, classes = { 0 };
	char name[VALUE_BYTES], class[SHOW_ENUM_BYTES];
	size_t n_classes = 0;

	for (size_t i = 0; i < status->n_stores; i++)
		n_classes += status->stores[i]->n_classes;
	if (rows_init(&stores, status->n_stores) < 0 || rows_init(&classes, n_classes) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		(void)quoted(name, sizeof(name), store->name);
		rows_add(&stores, &store->base, store->counters, "store=\"%s\"", name);
		for (size_t k = 0; k < store->n_classes; k++)
			rows_add(&classes, &store->classes[k]->base, store->classes[k]->counters,
				 "store=\"%s\",class=\"%s\"", name,
				 show_enum(class, &wire__class__descriptor,
					   (int)store->classes[k]->io_class));
	}
	PRINT_FAMILIES(out, "store_", store_families, stores.rows, stores.n);
	print_counters(out, "store_", stores.counters, stores.n);
	print_counters(out, "class_", classes.counters, classes.n);
	return 0;
}

static int print_users(FILE *out, const Wire__StatusReply *status)
{
	_cleanup_(rows_deinit) struct rows rows = { 0 };
	char name[VALUE_BYTES], user[SHOW_USER_BYTES];

	if (rows_init(&rows, status->n_users) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < status->n_users; i++) {
		const Wire__User *one = status->users[i];

		if (one->is_rest)
			rows_add(&rows, &one->base, one->counters, "uid=\"rest\",user=\"rest\"");
		else
			rows_add(&rows, &one->base, one->counters,
				 "uid=\"%" PRIu32 "\",user=\"%s\"", one->uid,
				 quoted(name, sizeof(name), show_user(user, one)));
	}
	PRINT_FAMILIES(out, "user_", user_families, rows.rows, rows.n);
	print_counters(out, "user_", rows.counters, rows.n);
	return 0;
}

int openmetrics_print(const Wire__StatusReply *status, FILE *out)
{
	const struct row daemon = { .message = &status->base },
			 pool = { .message = status->pool ? &status->pool->base : NULL };

	print_builds(out, status);
	PRINT_FAMILIES(out, "", daemon_families, &daemon, 1);
	PRINT_FAMILIES(out, "pool_", pool_families, &pool, pool.message ? 1 : 0);
	if (print_stores(out, status) < 0 || print_users(out, status) < 0)
		return -ENOMEM;
	(void)fputs("# EOF\n", out);
	return 0;
}
