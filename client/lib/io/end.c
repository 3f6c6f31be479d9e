#include "client/lib/io/end.h"

#include "client/lib/base/debug.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/vector.h"
#include "client/lib/io/wake.h"
#include "proto/util/clock.h"

#include <inttypes.h>
#include <stdlib.h>

#define SLOW_NSEC UINT64_C(1000000000) /* $DSAIO_DEBUG reports ops that took longer */

static void report_slow(const struct dsaio_op *op, uint64_t nsec)
{
	if (nsec >= SLOW_NSEC)
		debug_log("slow: %s of %" PRIu64 " bytes at %" PRIu64 " of %s took %" PRIu64 " ms",
			  op_verb(op), op->len, op->off, op->file->name, nsec / 1000000);
}

/* The reason, where it is a restart or the end of the daemon, or NULL; maybe written to text. */
static const char *because(const struct dsaio_op *op, char text[ERROR_TEXT_BYTES])
{
	struct dsaio_conn *conn = op->handle->client->conn;
	char gone[CONN_TEXT_BYTES];
	const char *why;

	if (op->because)
		return op->because;
	if (!conn_was_lost(conn) && op_refused(op, conn_session(conn), &why) == op->result)
		return why;
	if (op->result != -ECONNRESET)
		return NULL;
	conn_why_gone(conn, gone);
	(void)snprintf(text, ERROR_TEXT_BYTES, "%s: %s", gone, error_reconnect);
	return text;
}

static void make_text(struct dsaio_op *op)
{
	char why[ERROR_TEXT_BYTES];
	struct error_op text = {
		.verb = op_verb(op),
		.file = op->file->name,
		.off = op->off,
		.len = op->len,
		.done = op->done,
		.error = (int)-op->result,
		.because = because(op, why),
		.file_size = op->grow_end && !op->file->is_temporary
				     ? file_size_seen(op->file, AT_STATX_DONT_SYNC)
				     : -1,
	};
	struct conn_facts facts;

	if (op->path == DSAIO_PATH_GPU) {
		facts = conn_facts(op->handle->client->conn);
		text.log_place = facts.log_place;
	}

	op->text = malloc(ERROR_TEXT_BYTES);
	if (op->text) /* else the errno has to do */
		error_op_text(&text, op->text, ERROR_TEXT_BYTES);
}

void op_settle(struct dsaio_op *op)
{
	if (op->result >= 0 && (uint64_t)op->result > op->len)
		op->result = op->opcode >= RING_OP_FSYNC ? 0 : -EIO;
	if (op->result >= 0 && op->opcode == RING_OP_WRITE && (uint64_t)op->result < op->len)
		op->result = -EIO; /* a write is whole, or fails */
	if (op->done > op->len)
		op->done = op->len;
	if (op->part_of) /* the rest concerns the whole vectored op */
		return;
	/* The daemon cancels the ops of a session that it ends. */
	if (op->result == -ECANCELED && !atomic_load(&op->is_cancelled) &&
	    conn_is_ended_on_purpose(op->handle->client->conn))
		op->result = -ECONNRESET;
	if (op->began_nsec)
		report_slow(op, clock_nsec() - op->began_nsec);
	if (op->opcode == RING_OP_WRITE && op->result < 0 && op->result != -ECONNRESET)
		inode_note_failed(op->file->inode, op->handle->client);
	if (op->is_in_inode)
		inode_remove(op->file->inode, op);
	if (op->result < 0 && !op->text && (!op->vector || op->is_vector || op->because))
		make_text(op);
	if (op->buffer.piece && !op->handle->is_abandoned) /* else a device may still write to it */
		buffer_unref(op->buffer.piece);
	file_drop_ref(TAKE_PTR(op->file));
}

/* Returns true if it can be reaped.  Under handle->lock; the op may be gone after. */
static bool end_one(struct dsaio_handle *handle, struct dsaio_op *op)
{
	handle->n_open_ring -= !!op->channel;
	handle->n_open_async -= op->is_async;
	if (op->is_awaited)
		client_poke(handle->client);
	return ended_add(&handle->ended, op);
}

void end_ops(struct dsaio_handle *handle, struct dsaio_op *first, bool by_consumer)
{
	struct dsaio_op *op, *next;
	bool has_listed = false;

	for (op = first; op; op = op_next(op)) {
		struct dsaio_op *whole;

		op_settle(op);
		whole = op->vector && !op->is_vector ? vector_end_part(op) : NULL;
		if (whole) { /* it ends next */
			whole->node.next = op->node.next;
			op->node.next = &whole->node;
		}
	}
	LOCKED(&handle->lock);
	for (op = first; op; op = next) {
		next = op_next(op);
		has_listed |= end_one(handle, op);
	}
	wake_after_ends(handle, has_listed, by_consumer);
}

void end_op(struct dsaio_op *op, int64_t result, uint64_t done)
{
	struct op_list list = { NULL, NULL };

	op_set_result(op, result, done);
	op_list_add(&list, op);
	end_ops(op->handle, list.first, false);
}
