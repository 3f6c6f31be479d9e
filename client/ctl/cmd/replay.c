#include "client/ctl/cmd/replay.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>

/* It has ended, without an error. */
static bool can_be_done(const struct trace_op *op)
{
	const bool is_sync = op->opcode > RING_OP_WRITE;

	return op->opcode >= RING_OP_READ && op->opcode <= RING_OP_FDATASYNC &&
	       op->ended_nsec >= op->taken_nsec && op->result >= 0 && op->off <= REPLAY_BYTES_MAX &&
	       op->len <= REPLAY_BYTES_MAX && (uint64_t)op->result <= op->len &&
	       (op->opcode == RING_OP_READ || (uint64_t)op->result == op->len) &&
	       (!is_sync || (!op->len && !op->off));
}

static int compare_files(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;

	return trace_compare((uint64_t[]){ x->client, x->channel, x->file },
			     (uint64_t[]){ y->client, y->channel, y->file }, 3);
}

static int compare_starts(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;

	return trace_compare((uint64_t[]){ x->client, x->channel, x->taken_nsec, x->id },
			     (uint64_t[]){ y->client, y->channel, y->taken_nsec, y->id }, 4);
}

/* Puts the files of each stream one behind the other.  Returns -EINVAL where there are too many streams. */
static int find_streams(struct replay *replay)
{
	uint64_t begin = 0; /* of the file */

	qsort(replay->ops, replay->n_ops, sizeof(*replay->ops), compare_files);
	for (struct trace_op *op = replay->ops; op < replay->ops + replay->n_ops; op++) {
		const bool is_new = op == replay->ops || op->client != op[-1].client ||
				    op->channel != op[-1].channel;
		uint64_t *bytes;

		if (is_new && replay->n_streams++ == REPLAY_STREAMS_MAX)
			return -EINVAL;
		bytes = &replay->stream_bytes[replay->n_streams - 1];
		if (is_new || compare_files(op, op - 1) != 0)
			begin = (*bytes + REPLAY_PAGE - 1) & ~(uint64_t)(REPLAY_PAGE - 1);
		replay->stream_ops[replay->n_streams - 1]++;
		op->len = (uint64_t)op->result;
		op->off = op->len ? begin + op->off : 0;
		if (op->off + op->len > *bytes)
			*bytes = op->off + op->len;
	}
	qsort(replay->ops, replay->n_ops, sizeof(*replay->ops), compare_starts);
	return 0;
}

int replay_init(const struct ctl *ctl, const char *path, struct trace_ops *ops,
		struct replay *ret_replay)
{
	uint64_t start = UINT64_MAX, end = 0, n = 0;

	for (size_t i = 0; i < ops->n; i++) {
		if (!can_be_done(&ops->ops[i]))
			continue;
		ops->ops[n] = ops->ops[i];
		start = ops->ops[n].taken_nsec < start ? ops->ops[n].taken_nsec : start;
		end = ops->ops[n].ended_nsec > end ? ops->ops[n].ended_nsec : end;
		n++;
	}
	if (!n)
		return ctl_fail(ctl, "%s: has no op that can be done again", path);
	for (uint64_t i = 0; i < n; i++) {
		ops->ops[i].taken_nsec -= start;
		ops->ops[i].ended_nsec -= start;
	}
	*ret_replay = (struct replay){ .ops = ops->ops,
				       .n_ops = n,
				       .n_left_out = ops->n - n + ops->n_lost,
				       .duration_nsec = end - start };
	if (find_streams(ret_replay) < 0)
		return ctl_fail(ctl,
				"%s: has over %u streams: choose some by trace record's options",
				path, REPLAY_STREAMS_MAX);
	return CTL_OK;
}

static int compare_times(const void *a, const void *b)
{
	return trace_compare(a, b, 1);
}

void replay_dues(const struct trace_op *ops, uint64_t n, uint64_t *ends,
		 struct replay_due *ret_dues)
{
	uint64_t n_ended = 0;

	for (uint64_t i = 0; i < n; i++)
		ends[i] = ops[i].ended_nsec;
	qsort(ends, n, sizeof(*ends), compare_times);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t since = i ? ops[i - 1].taken_nsec : 0;

		/* Later ops that took no time may have ended by then, too. */
		while (n_ended < i && ends[n_ended] <= ops[i].taken_nsec)
			n_ended++;
		if (n_ended && ends[n_ended - 1] > since)
			since = ends[n_ended - 1];
		ret_dues[i] = (struct replay_due){ n_ended, ops[i].taken_nsec - since };
	}
}
