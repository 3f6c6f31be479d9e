#include "client/lib/io/submit.h"

#include "client/lib/base/cancel.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/file.h"
#include "client/lib/io/wait.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <string.h>

/*
 * Up to here the daemon does well alone with memory at another distance from a page's start than
 * the file's bytes: a read fits into one of its bounce pages with what is around it, and a write
 * has no block in it that could go directly.
 */
#define SHORT_READ_MAX (32u << 10)
#define SHORT_WRITE_MAX 4096u

static bool is_sync(uint8_t opcode)
{
	return opcode == RING_OP_FSYNC || opcode == RING_OP_FDATASYNC;
}

static int op_check(const struct op_request *q)
{
	uint64_t end;
	int r = handle_check(q->handle, q->function);

	if (r < 0)
		return r;
	if (!q->file)
		return client_null(q->function, "file");
	if (q->file->client != q->handle->client)
		return error_fail(-EBADF,
				  "%s: file %s and handle belong to different clients: open the "
				  "file with the handle's",
				  q->function, q->file->name);
	if (q->opcode == RING_OP_READ && !q->file->can_read)
		return error_fail(-EBADF,
				  "%s: %s is not open for reading: open it with O_RDONLY or "
				  "O_RDWR",
				  q->function, q->file->name);
	if (q->opcode == RING_OP_WRITE && !q->file->can_write)
		return error_fail(-EBADF,
				  "%s: %s is not open for writing: open it with O_WRONLY or "
				  "O_RDWR",
				  q->function, q->file->name);
	if (__builtin_add_overflow(q->off, q->len, &end) || end > INT64_MAX)
		return error_fail(-EINVAL,
				  "%s of %" PRIu64 " bytes at %" PRIu64 " of %s: passes 2^63, the "
				  "last byte that a file can have",
				  q->function, q->len, q->off, q->file->name);
	return client_check_alive(q->handle->client, q->function);
}

/* ---- the way ---- */

enum op_way { OP_AT_ONCE, OP_BY_RING, OP_BOUNCED };

/* The file's place of the op's ends: does a write of it need the buffered description? */
static bool is_ragged(const struct op_request *q)
{
	return (q->off | q->len) & (q->file->offset_align - 1);
}

/*
 * Memory at another distance from a page's start than the file's bytes.  The daemon serves it, but
 * never directly: a short read by a page of its own, all else by its threads.
 */
static bool is_incongruent(const struct op_request *q, const struct buffer_place *place)
{
	return (place->slab_off - q->off) & (q->file->memory_align - 1);
}

/*
 * Cuts a read at the file's end, as it is when all ops before it have ended: a direct read of the
 * file's last, ragged block would also write behind the end's place in the buffer.
 */
static int cut_at_end(struct op_request *q)
{
	uint64_t to_be = 0, end;
	int64_t size;

	if (inode_reached(q->file->inode, q->off + q->len))
		return 0;
	/* Before the size: a write that has ended meanwhile has moved that. */
	if (!q->file->is_block_device)
		to_be = inode_end_to_be(q->file->inode, q->handle, q->off, q->len);
	size = file_size(q->file);
	if (size < 0)
		return error_fail_errno((int)size, "pread: size of %s", q->file->name);
	inode_saw_size(q->file->inode, (uint64_t)size);
	end = to_be > (uint64_t)size ? to_be : (uint64_t)size;
	if (q->off + q->len > end)
		q->len = q->off < end ? end - q->off : 0;
	return 0;
}

/* Returns an enum op_way, or a negative errno; cuts a read's len at the file's end. */
static int op_route(struct op_request *q, struct buffer_place *place)
{
	int r;

	if (is_sync(q->opcode))
		return OP_BY_RING;
	r = q->opcode == RING_OP_READ && q->len ? cut_at_end(q) : 0;
	if (r < 0)
		return r;
	if (!q->len)
		return OP_AT_ONCE;
	if (!buffers_ref(&q->handle->client->buffers, q->buf, q->len, place))
		return OP_BOUNCED;
	if (is_incongruent(q, place) &&
	    q->len > (q->opcode == RING_OP_READ ? SHORT_READ_MAX : SHORT_WRITE_MAX))
		return OP_BOUNCED;
	return OP_BY_RING;
}

/* The op ends without having been in a ring. */
static void op_fail(struct dsaio_op *op, int error)
{
	op->result = error;
	op->done = 0;
	wait_end_op(op);
}

/* The same, with the sentence of this thread's last error. */
static void op_fail_with_text(struct dsaio_op *op, int error)
{
	op->text = strdup(dsaio_error()); /* else the errno has to do */
	op_fail(op, error);
}

int submit_put(struct dsaio_op *op, struct ring_entry *entry)
{
	struct wait_for room = { .what = WAIT_ROOM, .channel = op->channel };
	int r;

	for (;;) {
		room.head = channel_head(op->channel); /* before the try: a later change is room */
		r = channel_put(op->channel, op, entry);
		if (r != -EAGAIN)
			return r;
		(void)wait_until(op->handle, &room, UINT64_MAX); /* no time-out */
	}
}

static void op_put(struct dsaio_op *op, const struct buffer_place *place)
{
	uint64_t deadline = bounce_deadline(op->handle);
	struct ring_entry entry = {
		.opcode = op->opcode,
		.file = op->file->id,
		.off = op->off,
		.len = op->len,
		.slab = place->slab,
		.slab_off = place->slab_off,
		.grow_end = op->grow_end,
		.timeout_msec = op->handle->timeout_msec,
	};
	struct dsaio_op *earlier = inode_conflict(op->inode, op, true);
	int r = 0;

	if (earlier) {
		handle_op_drop(earlier);
		if (op->is_async) {
			r = bounce_start(op->handle->client);
			if (r < 0) {
				op_fail_with_text(op, r);
				return;
			}
			inode_leave_ring(op->inode, op);
			bounce_defer(op, &entry);
			return;
		}
		r = bounce_await_earlier(op, true, deadline);
		entry.timeout_msec = bounce_timeout_msec(deadline);
	}
	if (r == 0)
		r = submit_put(op, &entry);
	if (r < 0)
		op_fail(op, r == -ENOTCONN ? -ECONNRESET : r);
}

/* What an op needs before it is one: channels, the thread. */
struct op_means {
	struct channel *channel;	/* that takes it, or its pieces */
	struct dsaio_handle *companion; /* async and bounced: whose channel that is */
};

static int op_prepare(const struct op_request *q, int way, struct op_means *means)
{
	struct dsaio_handle *handle = q->handle;
	int r = 0;

	if (way == OP_AT_ONCE)
		return 0;
	if (way == OP_BOUNCED && q->is_async) {
		r = bounce_start(handle->client);
		if (r == 0)
			r = handle_companion(handle, &means->companion);
		handle = means->companion;
	}
	return r < 0 ? r : handle_channel(handle, q->file->store, &means->channel);
}

/* The op, which is filled in, goes its way. */
static void op_go(struct dsaio_op *op, int way, const struct op_means *means,
		  const struct buffer_place *place, bool needs_buffered, void *buf)
{
	int r = 0;

	if (way == OP_AT_ONCE) {
		wait_end_op(op);
		return;
	}
	if (needs_buffered)
		r = file_need_buffered(op->file);
	if (r < 0) {
		op_fail_with_text(op, r);
		return;
	}
	op->is_bounced = op->is_off_ring = way == OP_BOUNCED;
	inode_add(op->file->inode, op);
	if (op->opcode == RING_OP_WRITE && !op->file->is_block_device)
		r = file_grow(op->file, op);
	if (r < 0)
		op_fail(op, r);
	else if (way == OP_BY_RING)
		op_put(op, place);
	else if (op->is_async)
		bounce_submit(op, means->companion, means->channel, buf);
	else
		bounce_run(op, means->channel, buf);
}

int submit_cancel(struct dsaio_op *op)
{
	int r;

	atomic_store(&op->is_cancelled,
		     true); /* seq_cst, as ring_id: one of the two sees the other */
	bounce_cancel(op->handle->client);
	r = op->channel ? channel_cancel(op) : 0;
	/* acquire: then the result is there */
	if (r < 0 && atomic_load_explicit(&op->state, memory_order_acquire) == OP_ENDED)
		return 0;
	return r;
}

int submit_op(struct op_request *q, struct dsaio_op **ret_op)
{
	CANCEL_DISABLE();
	struct buffer_place place = { .piece = NULL };
	struct op_means means = { .channel = NULL };
	struct dsaio_op *op;
	bool needs_buffered;
	int way, r = op_check(q);

	if (r < 0)
		return r;
	way = op_route(q, &place);
	if (way < 0)
		return way;
	needs_buffered = q->opcode == RING_OP_WRITE && way != OP_AT_ONCE &&
			 (is_ragged(q) || (way == OP_BY_RING && is_incongruent(q, &place)));
	r = op_prepare(q, way, &means);
	op = r < 0 ? NULL
		   : handle_op_new(q->handle, q->is_async, ret_op,
				   way == OP_BY_RING ? means.channel : NULL);
	if (!op) {
		if (place.piece)
			buffer_unref(place.piece);
		return r < 0 ? r : error_fail_errno(-ENOMEM, "%s", q->function);
	}
	op->opcode = q->opcode;
	op->off = q->off;
	op->len = q->len;
	op->file = q->file;
	file_ref(q->file);
	op->piece = place.piece;
	op->is_on_import = place.is_imported;
	if (ret_op) { /* before it goes: it may end, and be reaped, at once */
		*ret_op = op;
		/* the caller's other threads may free it meanwhile */
		(void)atomic_fetch_add(&op->n_refs, 1);
	}
	op_go(op, way, &means, &place, needs_buffered, q->buf);
	if (ret_op) {
		if (atomic_load(&op->is_cancelled)) /* too early for the daemon to find it */
			(void)submit_cancel(op);    /* fails with the connection: then all end */
		handle_op_drop(op);
	}
	return 0;
}
