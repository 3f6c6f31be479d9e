#include "client/ctl/cmd/trace_ops.h"

#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ctl.h"
#include "proto/ring.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	return TRACE_OP_COMPARE(a, b, daemon, pid);
}

static int compare_starts(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;

	if (x->taken_nsec != y->taken_nsec)
		return x->taken_nsec < y->taken_nsec ? -1 : 1;
	return compare(a, b);
}

/* Moves it from the open ones to the others.  Takes op. */
static int move(struct trace_ops *ops, struct trace_op *op)
{
	(void)tdelete(op, &ops->open, compare); /* it is there */
	if (ops->n == ops->n_room) {
		const size_t n_room = ops->n_room ? 2 * ops->n_room : 1024;
		struct trace_op *room = reallocarray(ops->ops, n_room, sizeof(*room));

		if (!room) {
			free(op);
			return -ENOMEM;
		}
		ops->ops = room;
		ops->n_room = n_room;
	}
	ops->ops[ops->n++] = *op;
	free(op);
	return 0;
}

static int take(struct trace_ops *ops, struct trace_op *op, const struct trace_op *key)
{
	if (op) {
		ops->n_lost++;
		*op = *key;
		return 0;
	}
	op = malloc(sizeof(*op));
	if (!op)
		return -ENOMEM;
	*op = *key;
	if (tsearch(op, &ops->open, compare))
		return 0;
	free(op);
	return -ENOMEM;
}

int trace_ops_add(struct trace_ops *ops, uint32_t daemon, uint32_t lane,
		  const struct recording_event *event)
{
	const struct trace_op key = { .daemon = daemon,
				      .lane = lane,
				      .id = event->id,
				      .off = event->off,
				      .len = event->len,
				      .client = event->client,
				      .channel = event->channel,
				      .file = event->file,
				      .pid = event->pid,
				      .uid = event->uid,
				      .opcode = event->opcode,
				      .taken_nsec = event->nsec };
	struct trace_op **found = tfind(&key, &ops->open, compare);
	struct trace_op *op = found ? *found : NULL;

	if (event->kind == RECORDING_TAKEN)
		return take(ops, op, &key);
	if (!op)
		return 0;
	switch (event->kind) {
	case RECORDING_AT_ENGINE:
	case RECORDING_AT_WORKER:
		if (!op->started_nsec)
			op->started_nsec = event->nsec;
		return 0;
	case RECORDING_BLOCK_DONE:
		op->done_nsec = event->nsec;
		return 0;
	case RECORDING_ENDED:
		op->ended_nsec = event->nsec;
		op->result = event->result;
		return move(ops, op);
	default:
		return 0;
	}
}

int trace_ops_end(struct trace_ops *ops)
{
	while (ops->open) {
		const int r = move(ops, *(struct trace_op **)ops->open);

		if (r < 0)
			return r;
	}
	if (ops->n)
		qsort(ops->ops, ops->n, sizeof(*ops->ops), compare_starts);
	return 0;
}

void trace_ops_deinit(struct trace_ops *ops)
{
	tdestroy(ops->open, free);
	free(ops->ops);
	*ops = (struct trace_ops){ 0 };
}

/* ---- the choice of ops ---- */

static const char *const kinds[] = { NULL, "read", "write", "fsync",
				     "fdatasync" }; /* by RING_OP_ */
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const char *trace_op_kind(const struct trace_op *op)
{
	return op->opcode && op->opcode < N_KINDS ? kinds[op->opcode] : "?";
}

static int parse_time(const char *text, uint64_t *ret_nsec)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	char *end;
	const double value = strtod(text, &end);
	double nsec = value;

	for (size_t i = 0; end > text && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i]) == 0 && value >= 0 && nsec < 1e18) {
			*ret_nsec = (uint64_t)llround(nsec);
			return 0;
		}
		nsec *= 1000;
	}
	return -EINVAL;
}

int trace_filter_check(const struct ctl *ctl, struct trace_filter *filter)
{
	if (ctl->is_private)
		return ctl_usage(ctl, "--private: a daemon for this command alone has no ops of "
				      "others: leave it out");
	if (filter->slower && parse_time(filter->slower, &filter->slower_nsec) < 0)
		return ctl_usage(ctl, "--slower %s: is no time: write for example 10ms, 500us, 2s",
				 filter->slower);
	for (size_t i = 1; filter->kind && strcmp(filter->kind, kinds[i]) != 0;)
		if (++i == N_KINDS)
			return ctl_usage(ctl, "--op %s: there are read, write, fsync and fdatasync",
					 filter->kind);
	if (filter->user && !show_find_uid(filter->user, &filter->uid))
		return ctl_fail(ctl, "--user %s: there is no such user: give a name or a number",
				filter->user);
	return CTL_OK;
}

bool trace_filter_has_event(const struct trace_filter *filter, const char *store,
			    const struct recording_event *event)
{
	return (!filter->store || strcmp(filter->store, store) == 0) &&
	       (!filter->pid || filter->pid == event->pid) &&
	       (!filter->user || filter->uid == event->uid);
}

bool trace_filter_has(const struct trace_filter *filter, const struct trace_op *op,
		      uint64_t now_nsec)
{
	const uint64_t end_nsec = op->ended_nsec ? op->ended_nsec : now_nsec;

	return (!filter->kind || strcmp(filter->kind, trace_op_kind(op)) == 0) &&
	       (!filter->errors || ring_result_errno(op->result)) &&
	       (!filter->slower ||
		(end_nsec >= op->taken_nsec && end_nsec - op->taken_nsec >= filter->slower_nsec));
}
