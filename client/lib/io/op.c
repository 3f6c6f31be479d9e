/*
 * Ops: the public calls that start, await, look at and cancel them.
 *
 * The way of an op: op_start() checks the arguments and finds which way it goes (op_route()).
 *   at once    it has nothing to do: no bytes, or a read behind the end of the file
 *   by a ring  a sync; or its memory is one piece of a slab, where the daemon can use it: op_put()
 *   bounced    all else: copied through slots (bounce.c)
 * Its end is wait.c's, whichever way it went.
 */
#include "client/lib/io/bounce.h"
#include "client/lib/memory/buffer.h"
#include "client/lib/base/cancel.h"
#include "client/lib/io/file.h"
#include "client/lib/io/wait.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Up to here the daemon does well alone with memory at another distance from a page's start than
 * the file's bytes: a read fits into one of its bounce pages with what is around it, and a write
 * has no block in it that could go directly.
 */
#define SHORT_READ_MAX (32u << 10)
#define SHORT_WRITE_MAX 4096u

/* What a call asks for. */
struct op_request {
	const char *function;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t opcode;
	void *buf; /* a write only reads it */
	uint64_t len, off;
	bool is_async;
};

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
		r = wait_put(op, &entry);
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

/*
 * Starts an op; *ret_op (if not NULL) has a reference of the caller's.  Returns 0 or what keeps
 * it from being an op.
 */
static int op_start(struct op_request *q, struct dsaio_op **ret_op)
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
	if (ret_op) { /* before the end: it may be told of at once */
		*ret_op = op;
		/* the caller's other threads may free it meanwhile */
		(void)atomic_fetch_add(&op->n_refs, 1);
	}
	op_go(op, way, &means, &place, needs_buffered, q->buf);
	if (ret_op) {
		if (atomic_load(&op->is_cancelled)) /* too early for the daemon to find it */
			(void)dsaio_op_cancel(op);  /* fails with the connection: then all end */
		handle_op_drop(op);
	}
	return 0;
}

/* ---- starting, blocking ---- */

/* The result of an op that has ended; a failed one's sentence becomes this thread's. */
static int64_t op_result(const struct dsaio_op *op)
{
	if (op->result >= 0)
		return op->result;
	if (op->text)
		return error_fail((int)op->result, "%s", op->text);
	return error_fail_errno((int)op->result, "op");
}

static int64_t op_run(struct op_request *q)
{
	CANCEL_DISABLE();
	struct dsaio_op *op;
	int64_t result;
	int r = op_start(q, &op);

	if (r < 0)
		return r;
	(void)wait_until(q->handle, &(struct wait_for){ .what = WAIT_OP, .op = op }, UINT64_MAX);
	result = op_result(op);
	handle_op_drop(op);
	return result;
}

int64_t dsaio_pread(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		    uint64_t off)
{
	struct op_request q = { "pread", handle, file, RING_OP_READ, buf, len, off, false };

	return op_run(&q);
}

int64_t dsaio_pwrite(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		     size_t len, uint64_t off)
{
	struct op_request q = { "pwrite", handle, file, RING_OP_WRITE, (void *)(uintptr_t)buf,
				len,	  off,	  false };

	return op_run(&q);
}

int dsaio_fsync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	struct op_request q = { "fsync", handle, file, RING_OP_FSYNC, NULL, 0, 0, false };

	return (int)op_run(&q);
}

int dsaio_fdatasync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	struct op_request q = { "fdatasync", handle, file, RING_OP_FDATASYNC, NULL, 0, 0, false };

	return (int)op_run(&q);
}

int dsaio_pread_async(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		      uint64_t off, struct dsaio_op **ret_op)
{
	struct op_request q = { "pread_async", handle, file, RING_OP_READ, buf, len, off, true };

	return op_start(&q, ret_op);
}

int dsaio_pwrite_async(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		       size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	struct op_request q = { "pwrite_async",		handle, file, RING_OP_WRITE,
				(void *)(uintptr_t)buf, len,	off,  true };

	return op_start(&q, ret_op);
}

int dsaio_fsync_async(struct dsaio_handle *handle, struct dsaio_file *file,
		      struct dsaio_op **ret_op)
{
	struct op_request q = { "fsync_async", handle, file, RING_OP_FSYNC, NULL, 0, 0, true };

	return op_start(&q, ret_op);
}

int dsaio_fdatasync_async(struct dsaio_handle *handle, struct dsaio_file *file,
			  struct dsaio_op **ret_op)
{
	struct op_request q = {
		"fdatasync_async", handle, file, RING_OP_FDATASYNC, NULL, 0, 0, true
	};

	return op_start(&q, ret_op);
}

/* ---- one op ---- */

static int op_object_check(const struct dsaio_op *op, const char *function)
{
	if (!op)
		return client_null(function, "op");
	return client_check(op->handle->client, function);
}

static bool has_ended(const struct dsaio_op *op)
{
	/* acquire: then the result is there */
	return atomic_load_explicit(&op->state, memory_order_acquire) == OP_ENDED;
}

int dsaio_op_wait(struct dsaio_op *op, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	int64_t result;
	int r = op_object_check(op, "op_wait");

	if (r < 0)
		return r;
	if (!has_ended(op)) {
		struct wait_for end = { .what = WAIT_OP, .op = op };

		r = wait_until(op->handle, &end, wait_deadline(timeout_usec));
		if (r < 0)
			return error_fail(r,
					  "op_wait: the op on %" PRIu64 " bytes at %" PRIu64
					  " has not ended after %" PRId64 " us: it goes on, wait "
					  "again",
					  op->len, op->off, timeout_usec);
	}
	result = op_result(op);
	if (ret_result)
		*ret_result = result;
	return 0;
}

int dsaio_op_test(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_test");

	if (r < 0)
		return r;
	if (!has_ended(op))
		wait_poll(op->handle);
	return has_ended(op);
}

int64_t dsaio_op_result(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_result");

	if (r < 0)
		return r;
	if (!has_ended(op))
		return error_fail(-EINPROGRESS,
				  "op_result: the op has not ended: wait for it first");
	return op_result(op);
}

uint64_t dsaio_op_done(const struct dsaio_op *op)
{
	if (op_object_check(op, "op_done") < 0 || !has_ended(op))
		return 0;
	return op->result >= 0 ? (uint64_t)op->result : op->done;
}

const char *dsaio_op_error(struct dsaio_op *op)
{
	if (op_object_check(op, "op_error") < 0)
		return dsaio_error();
	if (!has_ended(op) || op->result >= 0)
		return "";
	return op->text ? op->text : strerror((int)-op->result);
}

int dsaio_op_cancel(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_cancel");

	if (r < 0 || has_ended(op))
		return r;
	atomic_store(&op->is_cancelled, true); /* seq_cst, as ring_id: one sees the other's */
	bounce_cancel(op->handle->client);
	r = op->channel ? channel_cancel(op) : 0;
	return r < 0 && has_ended(op) ? 0 : r;
}

void dsaio_op_free(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	struct dsaio_handle *handle;
	bool was_listed = false;

	if (!op || client_is_forked(op->handle->client))
		return;
	handle = op->handle;
	(void)pthread_mutex_lock(&handle->lock); /* a plain mutex: can not fail */
	op->is_orphan = true;
	if (op->is_listed)
		was_listed = handle_unlist(op);
	(void)pthread_mutex_unlock(&handle->lock);
	if (was_listed)
		handle_op_drop(op);
	handle_op_drop(op);
}

void dsaio_op_set_data(struct dsaio_op *op, void *data)
{
	if (op)
		atomic_store(&op->data, data);
}

void *dsaio_op_data(const struct dsaio_op *op)
{
	return op ? atomic_load(&op->data) : NULL;
}

/* ---- all ops of a handle ---- */

int dsaio_wait(struct dsaio_handle *handle, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	struct wait_for all = { .what = WAIT_ALL };
	_cleanup_(freep) char *text = NULL;
	int64_t result;
	int r = handle_check(handle, "wait");

	if (r < 0)
		return r;
	r = wait_until(handle, &all, wait_deadline(timeout_usec));
	if (r < 0)
		return error_fail(r,
				  "wait: ops of the handle have not ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	result = handle_tell_all(handle, &text);
	if (result < 0)
		(void)(text ? error_fail((int)result, "%s", text)
			    : error_fail_errno((int)result, "wait: an op"));
	if (result == 0) {
		r = client_check_alive(handle->client, "wait");
		if (r < 0)
			return r;
	}
	if (ret_result)
		*ret_result = result;
	return 0;
}

int dsaio_reap(struct dsaio_handle *handle, struct dsaio_op **ops, int n)
{
	CANCEL_DISABLE();
	int got, r = handle_check(handle, "reap");

	if (r < 0)
		return r;
	if (!ops)
		return client_null("reap", "array ops");
	if (n <= 0)
		return error_fail(-EINVAL, "reap: room for %d ops: must be at least 1", n);
	do
		got = handle_tell(handle, ops, n);
	while (!got && wait_poll_or_arm(handle));
	return got ? got : client_check_alive(handle->client, "reap");
}
