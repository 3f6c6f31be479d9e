#include "client/lib/io/submit.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/route_gpu.h"
#include "client/lib/io/vector.h"
#include "client/lib/io/wait.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Limits for incongruent memory (is_incongruent()) in a ring.  A read up to this fits with its
 * surroundings into one of the daemon's bounce pages.  A write up to this has no block that could go
 * directly.  Longer ops are faster when this library bounces them.
 */
#define SHORT_READ_MAX (32u << 10)
#define SHORT_WRITE_MAX 4096u

static bool is_sync(uint8_t opcode)
{
	return opcode == RING_OP_FSYNC || opcode == RING_OP_FDATASYNC;
}

/*
 * Cuts a read at the end that the file will have when all earlier ops have ended.  Otherwise a direct
 * read of the file's last, incomplete block would change bytes of the buffer behind the end.  A size
 * that was seen long ago does not do, although it covers the read: another process may have cut the
 * file since.
 */
static int cut_at_end(struct op_request *q)
{
	uint64_t to_be = 0, end;
	int64_t size;

	if (inode_reached(q->file->inode, q->off + q->len))
		return 0;
	/* Before the size is read: a write that ends in between has changed the size. */
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

/* Checks a request, and cuts a read at the file's end. */
static int check(struct op_request *q)
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
	r = atomic_load(&q->file->session.error);
	if (r < 0)
		return error_fail_errno(
			r,
			"%s: %s could not be handed over after a restart of the daemon: "
			"open it again",
			q->function, q->file->name);
	r = client_check_alive(q->handle->client, q->function);
	return r == 0 && q->opcode == RING_OP_READ && q->len ? cut_at_end(q) : r;
}

/* ---- where the bytes are ---- */

static bool is_unaligned(const struct op_request *q, uint32_t align)
{
	return (q->off | q->len) & (align - 1);
}

/*
 * The memory lies at another distance from a page's start than the file's bytes.  The daemon cannot
 * serve that directly.  It uses a bounce page for a short read, and worker threads for the rest.  GPU
 * memory may lie anywhere.
 */
static bool is_incongruent(const struct op_request *q, const struct buffer_place *place)
{
	return !place->slab->is_gpu &&
	       (place->slab_off - q->off) & (q->file->session.memory_align - 1);
}

/* ---- transports: how the bytes go ---- */

enum transport {
	AT_ONCE, /* there is nothing to do: no bytes, a read behind the end of the file, or an error */
	BY_RING, /* of the file's store: a sync, memory of a slab, memory of a GPU that is imported */
	COPIED,		  /* piece by piece, by the caller's thread */
	COPIED_BY_THREAD, /* the same by the bounce thread */
	IN_PARTS,	  /* a vectored op: each part has its own transport */
};

/* An op that is ready to go: all checks and questions to kernel and daemon are done. */
struct op_plan {
	struct dsaio_op *op;
	const struct op_request *q;
	enum transport transport;
	struct buffer_place place; /* of one by a ring: its buffer, which is referenced */
	struct job_memory memory;  /* of one that is copied */
	char *why;		   /* the same, on GPU memory that could go by the ring; or NULL */
	struct handle_channel *channel; /* gets the op, or its pieces */
	struct dsaio_handle *companion; /* with the bounce thread: whose channel that is */
};

/* Returns the transport, for a buffer that is looked up once; or a negative errno with a message: its memory is a
   GPU's, and there is no path that the daemon allows. */
static int resolve(struct op_plan *plan)
{
	const struct op_request *q = plan->q;
	const uint32_t short_max = q->opcode == RING_OP_READ ? SHORT_READ_MAX : SHORT_WRITE_MAX;
	int r;

	if (is_sync(q->opcode))
		return BY_RING;
	if (!q->len)
		return AT_ONCE;
	if (q->iov)
		return IN_PARTS;
	if (q->place) {
		plan->place = *q->place;
		return BY_RING;
	}
	if (buffers_ref(&q->handle->client->buffers, q->buf, q->len, &plan->place)) {
		if (!is_incongruent(q, &plan->place) || q->len <= short_max)
			return BY_RING;
	} else {
		r = route_gpu(q, &plan->place, &plan->memory.gpu, &plan->why);
		if (r)
			return r < 0 ? r : BY_RING;
	}
	return q->is_async || plan->memory.gpu >= 0 ? COPIED_BY_THREAD : COPIED;
}

/* To the program. */
static enum dsaio_path reported(const struct op_plan *plan)
{
	if (plan->transport == COPIED || plan->transport == COPIED_BY_THREAD)
		return DSAIO_PATH_COPIED;
	if (!plan->place.slab)
		return DSAIO_PATH_NONE;
	return plan->place.slab->is_gpu ? DSAIO_PATH_GPU : DSAIO_PATH_SHARED;
}

/* Makes channels and threads that the op needs.  Returns 0, or a negative errno with a message. */
static int prepare(struct op_plan *plan)
{
	struct dsaio_handle *handle = plan->q->handle;
	int r;

	/* The channel of a vectored op is for the look at its room. */
	if (plan->transport == AT_ONCE || (plan->transport == IN_PARTS && !plan->q->is_nowait))
		return 0;
	if (plan->transport == COPIED_BY_THREAD) {
		r = bounce_start(handle->client);
		if (r == 0)
			r = handle_companion(handle, &plan->companion);
		if (r < 0)
			return r;
		handle = plan->companion;
	}
	return handle_channel(handle, plan->q->file->session.store, &plan->channel);
}

/* Into the ring, behind earlier ops that the daemon cannot order. */
static void go_ring(const struct op_plan *plan, bool is_batched)
{
	struct dsaio_op *op = plan->op;
	uint64_t deadline = deadline_in_msec(op->timeout_msec);
	struct dsaio_op *earlier = inode_conflict(op->file->inode, op, true);
	int r = 0;

	if (earlier)
		handle_op_unref(earlier);
	if (earlier || plan->q->is_linked) {
		if (plan->q->is_async) {
			bounce_defer(op);
			return;
		}
		r = bounce_await_earlier(op, true, deadline);
		op->timeout_msec = deadline_left_msec(deadline);
	}
	if (r == 0)
		r = plan->q->is_nowait ? channel_put(op, is_batched) : wait_put(op, is_batched);
	if (r == -EAGAIN) /* there was room, but other threads took it */
		bounce_defer(op);
	else if (r < 0)
		end_op(op, r == -ENOTCONN ? -ECONNRESET : r, 0);
}

/* The op, which is among the open ones of its inode, goes.  A batch is seen by the lanes after handle_publish(). */
static void go_whole(const struct op_plan *plan, bool is_batched)
{
	if (plan->transport == BY_RING)
		go_ring(plan, is_batched);
	else if (plan->transport == COPIED)
		bounce_run(plan->op, plan->channel, &plan->memory);
	else if (plan->transport == COPIED_BY_THREAD)
		bounce_submit(plan->op, plan->companion, plan->channel, &plan->memory);
	else /* its result is there */
		end_op(plan->op, plan->op->result, 0);
}

/* ---- an op, in two steps ---- */

/* Is there room in the ring for this op and for those that were planned before it? */
static int check_room(const struct op_request *q, struct handle_channel *channel,
		      const struct op_plan *plans, unsigned n_plans)
{
	uint32_t n = 1;

	for (unsigned i = 0; i < n_plans; i++)
		n += plans[i].transport == BY_RING && plans[i].channel == channel;
	if (channel_room(channel) >= n)
		return 0;
	(void)wait_poll(q->handle, false);
	if (channel_room(channel) >= n)
		return 0;
	return error_fail(-EAGAIN,
			  "%s: the ring of %u entries is full: wait for ops, or submit without "
			  "DSAIO_NOWAIT",
			  q->function, channel->ring.entries);
}

/* Has a write a file description for what cannot go direct?  One of less than whole pages goes direct if there is
   none. */
static int check_buffered(const struct op_plan *plan)
{
	const struct op_request *q = plan->q;
	const bool must = is_unaligned(q, q->file->session.offset_align) ||
			  (plan->transport == BY_RING && is_incongruent(q, &plan->place));
	int r = 0;

	if (must || is_unaligned(q, file_write_align(q->file)))
		r = file_need_buffered(q->file);
	return must ? r : 0;
}

/* Adds the op, which is filled in, to the open ops of its inode; or sets its error. */
static void enter_inode(struct op_plan *plan)
{
	struct dsaio_op *op = plan->op;
	uint64_t grow_end;
	int r = op->opcode == RING_OP_WRITE ? check_buffered(plan) : 0;

	if (r < 0)
		op_set_text(op, strdup(dsaio_error())); /* NULL: the errno has to do */
	if (r == 0) {
		if (plan->transport != BY_RING)
			op_change_state(op, OP_BOUNCED);
		inode_add(op->file->inode, op);
		if (op->opcode == RING_OP_WRITE && !op->file->is_block_device) {
			r = file_grow(op->file, op->off + op->len, &grow_end);
			op->grow_end = grow_end;
			if (r < 0 && op->file->named.id)
				op->because = "the file was created with a size, which it passes";
		}
	}
	if (r < 0) {
		op_set_result(op, r, 0);
		plan->transport = AT_ONCE;
	}
}

/*
 * Plans a request that was checked.  plans: those of the same batch so far.
 * whole: the vectored op that it is a part of, or NULL.
 */
static int plan_op(const struct op_request *q, struct dsaio_op *whole, bool is_callers,
		   const struct op_plan *plans, unsigned n_plans, struct op_plan *plan)
{
	struct dsaio_op *op = NULL;
	int r;

	*plan = (struct op_plan){ .q = q, .memory = { .buf = q->buf, .gpu = -1 } };
	r = resolve(plan);
	if (r < 0)
		return r;
	plan->transport = (enum transport)r;
	r = prepare(plan);
	if (r == 0 && q->is_nowait && !whole &&
	    (plan->transport == BY_RING || plan->transport == IN_PARTS))
		r = check_room(q, plan->channel, plans, n_plans);
	if (r == 0)
		op = handle_op_new(q->handle, q->is_async && !whole, is_callers,
				   plan->transport == BY_RING ? plan->channel : NULL);
	if (!op) {
		if (plan->place.piece)
			buffer_unref(plan->place.piece);
		free(plan->why);
		return r < 0 ? r : error_fail_errno(-ENOMEM, "%s", q->function);
	}
	op_set_io(op, q->opcode, q->off, q->len, &plan->place);
	if (q->has_timeout)
		op->timeout_msec = q->timeout_msec;
	op->data = q->data;
	op->is_dsync = q->is_dsync;
	op->is_linked = q->is_linked;
	op->n_failed = q->n_failed;
	op_set_file(op, q->file);
	if (is_sync(q->opcode) || q->is_dsync)
		file_fd_need_second(q->file);
	plan->op = op;
	if (whole)
		vector_add(whole, op);
	op_set_path(op, reported(plan));
	if (plan->why)
		op_take_why(op, plan->why);
	if (plan->transport == IN_PARTS && vector_open(op, q->n_iov) < 0) {
		op_set_result(op, -ENOMEM, 0);
		plan->transport = AT_ONCE;
	} else if (plan->transport != IN_PARTS && plan->transport != AT_ONCE) {
		enter_inode(plan);
	}
	return 0;
}

/* Parts are planned here one by one, because up to IOV_MAX plans do not fit on the stack. */
static void go_parts(const struct op_plan *plan)
{
	struct dsaio_op *whole = plan->op;
	struct op_request q = *plan->q;
	uint64_t end = q.off + q.len;

	/* Planning may ask the kernel or the daemon, and they may hang. */
	handle_publish(q.handle);
	q.iov = NULL;
	for (unsigned i = 0; i < plan->q->n_iov && q.off < end; i++, q.off += q.len) {
		struct op_plan part;
		int r;

		q.buf = plan->q->iov[i].iov_base;
		q.len = plan->q->iov[i].iov_len;
		if (q.len > end - q.off)
			q.len = end - q.off;
		if (!q.len)
			continue;
		r = plan_op(&q, whole, false, NULL, 0, &part);
		if (r < 0) {
			vector_fail(whole, q.off, r, strdup(dsaio_error()));
			break;
		}
		go_whole(&part, true);
	}
	handle_publish(q.handle);
	if (vector_close(whole))
		end_op(whole, whole->result, whole->done);
}

static void go(const struct op_plan *plan, bool is_batched)
{
	if (plan->transport == IN_PARTS)
		go_parts(plan);
	else
		go_whole(plan, is_batched);
}

static int cancel_parts(struct dsaio_op *whole)
{
	struct dsaio_op *part;
	int result = 0;

	for (uint32_t i = 0; (part = vector_part(whole, i)); i++) {
		int r = op_has_ended(part) ? 0 : submit_cancel(part);

		if (r < 0)
			result = r;
		handle_op_unref(part);
	}
	return result;
}

int submit_cancel(struct dsaio_op *op)
{
	int r;

	op_set_cancelled(op);
	if (op->is_vector)
		return cancel_parts(op);
	bounce_cancel(op->handle->client);
	r = op->channel ? channel_cancel(op) : 0;
	return r < 0 && op_has_ended(op) ? 0 : r;
}

void submit_cancel_all(struct dsaio_handle *handle)
{
	struct dsaio_op *op;

	for (uint64_t at = 0; (op = handle_next_op(handle, &at));) {
		op_set_cancelled(op);
		if (op->channel)
			channel_post_cancel(op);
		handle_op_unref(op);
	}
	bounce_cancel(handle->client);
}

/* Gives the caller its reference before the op goes, since the op may end and be reaped at once. */
static void give_op(struct dsaio_op *op, struct dsaio_op **ret_op)
{
	*ret_op = op;
	op_ref(op); /* until gave_op(): another thread of the caller may free the op */
}

/* The op has taken its path. */
static void gave_op(struct dsaio_op *op)
{
	if (atomic_load(&op->is_cancelled)) /* before the daemon knew it */
		(void)submit_cancel(op);    /* fails only with the connection, which ends all ops */
	handle_op_unref(op);
}

int submit_op(struct op_request *q, struct dsaio_op **ret_op)
{
	CANCEL_DISABLE();
	struct op_plan plan;
	int r = check(q);

	if (r == 0)
		r = plan_op(q, NULL, ret_op, NULL, 0, &plan);
	if (r < 0)
		return r;
	if (ret_op)
		give_op(plan.op, ret_op);
	go(&plan, false);
	if (ret_op)
		gave_op(plan.op);
	return 0;
}

static bool is_given(const struct op_request *q, struct dsaio_op **ret_ops)
{
	return ret_ops && !q->is_detached;
}

int submit_ops(struct op_request *requests, unsigned n, struct dsaio_op **ret_ops)
{
	CANCEL_DISABLE();
	struct op_plan plans[SUBMIT_MAX];
	unsigned n_plans, n_gone = 0;
	int r = 0;

	for (n_plans = 0; n_plans < n; n_plans++) {
		struct op_plan *plan = &plans[n_plans];

		/* Ops on other files do not wait for the answer.  Parts come into the order of their inode when
		   they go. */
		if (n_gone < n_plans && (plans[n_plans - 1].transport == IN_PARTS ||
					 route_gpu_asks(&requests[n_plans]))) {
			for (; n_gone < n_plans; n_gone++)
				go(&plans[n_gone], true);
			handle_publish(requests[0].handle);
		}
		r = check(&requests[n_plans]);
		if (r == 0)
			r = plan_op(&requests[n_plans], NULL, is_given(&requests[n_plans], ret_ops),
				    &plans[n_gone], n_plans - n_gone, plan);
		if (r < 0)
			break;
		if (is_given(&requests[n_plans], ret_ops))
			give_op(plan->op, &ret_ops[n_plans]);
		else if (ret_ops)
			ret_ops[n_plans] = NULL;
	}
	for (unsigned i = n_gone; i < n_plans; i++)
		go(&plans[i], n_plans > 1);
	if (n_plans > 1)
		handle_publish(requests[0].handle);
	for (unsigned i = 0; i < n_plans; i++)
		if (is_given(&requests[i], ret_ops))
			gave_op(plans[i].op);
	return n_plans ? (int)n_plans : r;
}
