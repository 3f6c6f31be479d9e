#include "client/ctl/cmd/trace_show.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <pwd.h>
#include <string.h>

void trace_add_result(struct table *table, int64_t result)
{
	const int error = ring_result_errno(result);
	const uint64_t done = ring_result_done(result);
	const char *name = strerrorname_np(error);
	char size[UNITS_TEXT_BYTES], number[32];

	(void)snprintf(number, sizeof(number), "errno %d", error);
	if (error && done)
		table_add(table, "%s after %s", name ? name : number,
			  units_format_size(size, done));
	else if (error)
		table_add(table, "%s", name ? name : number);
	else
		table_add(table, "%s", units_format_size(size, done));
}

static struct recording_event as_event(const struct trace_op *op)
{
	return (struct recording_event){ .opcode = op->opcode };
}

/* The stages of an op; UINT64_MAX: it has not come to the stage's end, or skipped it, as where it was refused. */
struct stages {
	uint64_t queued_nsec, device_nsec, done_nsec, total_nsec;
};

static uint64_t between(uint64_t from_nsec, uint64_t to_nsec)
{
	return from_nsec && to_nsec >= from_nsec ? to_nsec - from_nsec : UINT64_MAX;
}

/* An open op takes until the end of the trace. */
static struct stages stages_of(const struct trace_op *op, uint64_t end_nsec)
{
	return (struct stages){
		.queued_nsec = between(op->taken_nsec, op->started_nsec),
		.device_nsec = between(op->started_nsec, op->ended_nsec ? op->done_nsec : 0),
		.done_nsec = between(op->done_nsec, op->ended_nsec),
		.total_nsec = between(op->taken_nsec, op->ended_nsec ? op->ended_nsec : end_nsec),
	};
}

static void add_nsec(struct table *table, uint64_t nsec)
{
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", nsec == UINT64_MAX ? "-" : units_format_nsec(text, nsec));
}

static void add_op(struct table *table, const struct trace_op *op, const char *store,
		   uint64_t end_nsec)
{
	const struct recording_event event = as_event(op);
	const struct stages stages = stages_of(op, end_nsec);
	const struct passwd *user = getpwuid(op->uid);
	char command[TRACE_COMMAND_BYTES], number[TRACE_NUMBER_BYTES], size[UNITS_TEXT_BYTES];

	table_add(table, "%.6f s", (double)(int64_t)(op->taken_nsec - end_nsec) / 1e9);
	table_add(table, "%" PRIu32, op->pid);
	(void)snprintf(number, sizeof(number), "%" PRIu32, op->uid);
	table_add(table, "%s", user ? user->pw_name : number);
	table_add(table, "%s", *trace_op_command(op, command) ? command : "-");
	table_add(table, "%s", store);
	table_add(table, "%" PRIu32, op->file);
	table_add(table, "%s", trace_opcode_text(&event, number));
	table_add(table, "%" PRIu64, op->off);
	table_add(table, "%s", units_format_size(size, op->len));
	add_nsec(table, stages.queued_nsec);
	add_nsec(table, stages.device_nsec);
	add_nsec(table, stages.done_nsec);
	add_nsec(table, stages.total_nsec);
	if (op->ended_nsec)
		trace_add_result(table, op->result);
	else
		table_add(table, "open");
}

int trace_ops_print(const struct trace_op *ops, size_t n, const struct trace_file *files,
		    uint64_t end_nsec)
{
	static const struct table_column columns[] = {
		{ "TIME", true },   { "PID", true },	 { "USER", false },  { "COMMAND", false },
		{ "STORE", false }, { "FILE", true },	 { "OP", false },    { "OFFSET", true },
		{ "LENGTH", true }, { "QUEUE", true },	 { "DEVICE", true }, { "DELIVERY", true },
		{ "TOTAL", true },  { "RESULT", false },
	};
	_cleanup_(table_deinit) struct table table;

	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < n; i++)
		add_op(&table, &ops[i], files[ops[i].lane].store, end_nsec);
	return table_print(&table, stdout);
}

static void add_nsec_json(struct json_object *object, const char *key, uint64_t nsec)
{
	json_object_object_add(object, key,
			       nsec == UINT64_MAX ? NULL : json_object_new_uint64(nsec));
}

static struct json_object *op_json(const struct trace_op *op, const struct trace_file *file,
				   uint64_t end_nsec)
{
	const struct recording_event event = as_event(op);
	const struct stages stages = stages_of(op, end_nsec);
	const int error = ring_result_errno(op->result);
	const char *name = error ? strerrorname_np(error) : "";
	struct json_object *object = json_object_new_object();
	char command[TRACE_COMMAND_BYTES], number[TRACE_NUMBER_BYTES];

	json_object_object_add(object, "before_nsec",
			       json_object_new_int64((int64_t)(end_nsec - op->taken_nsec)));
	json_add_number(object, "time_nsec", trace_file_real_nsec(file, op->taken_nsec));
	json_add_text(object, "store", file->store);
	json_add_number(object, "client", op->client);
	json_add_number(object, "pid", op->pid);
	json_add_number(object, "uid", op->uid);
	json_add_text(object, "command", trace_op_command(op, command));
	json_add_number(object, "channel", op->channel);
	json_add_number(object, "op", op->id);
	json_add_text(object, "what", trace_opcode_text(&event, number));
	json_add_number(object, "file", op->file);
	json_add_number(object, "offset", op->off);
	json_add_number(object, "length", op->len);
	add_nsec_json(object, "queue_nsec", stages.queued_nsec);
	add_nsec_json(object, "device_nsec", stages.device_nsec);
	add_nsec_json(object, "delivery_nsec", stages.done_nsec);
	add_nsec_json(object, "total_nsec", stages.total_nsec);
	json_add_bool(object, "is_open", !op->ended_nsec);
	json_object_object_add(object, "bytes",
			       op->ended_nsec ? json_object_new_uint64(ring_result_done(op->result))
					      : NULL);
	json_add_text(object, "error", name ? name : "?");
	return object;
}

struct json_object *trace_ops_json(const struct trace_op *ops, size_t n,
				   const struct trace_file *files, uint64_t end_nsec)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < n; i++)
		(void)json_object_array_add(array, op_json(&ops[i], &files[ops[i].lane], end_nsec));
	return array;
}
