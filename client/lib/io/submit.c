#include "client/lib/io/submit.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/file_fd.h"
#include "client/lib/io/file_gpu.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/vector.h"
#include "client/lib/io/wait.h"
#include "client/lib/memory/gpu_copy.h"
#include "proto/util/cleanup.h"

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

/* ---- the path ---- */

enum op_path { PATH_AT_ONCE, PATH_RING, PATH_BOUNCED, PATH_VECTOR };

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

/* How an op goes, and why. */
struct route {
	enum op_path path;
	struct buffer_place place; /* of one by a ring: its buffer, which is referenced */
	char *why; /* of GPU memory that could go by the ring, and is copied; the route's */
	struct job_memory memory; /* of one that is copied */
};

static void route_unref(struct route *route)
{
	if (route->place.piece)
		buffer_unref(route->place.piece);
	route->place = (struct buffer_place){ .slab = NULL };
}

/* An op whose memory may go directly.  Does its file?  Returns as gpu_route(). */
static int file_route(const struct op_request *q, struct route *route)
{
	_cleanup_(freep) char *why = NULL;
	int r = file_gpu_register(q->file, gpu_memory_uuid(&route->place), &why);

	if (r == 0)
		return 1;
	route_unref(route);
	if (r == -ENOTCONN)
		return error_fail(r, "%s: %s", q->function, why ? why : strerrordesc_np(-r));
	r = gpu_memory_refuse_file(&q->handle->client->gpu, q->function, r, why);
	if (r == 0)
		route->why = TAKE_PTR(why);
	return r;
}

/*
 * For memory that is no slab's of the pool.  Returns 1: by the ring, 0: copied, or a negative errno with a
 * message.
 */
static int gpu_route(const struct op_request *q, struct route *route)
{
	struct gpu_memory *gpu = &q->handle->client->gpu;
	int r;

	route->memory.gpu = gpus_find(q->buf);
	if (route->memory.gpu < 0)
		return 0;
	if (gpu->can_import && !gpu->must_import && file_gpu_is_refused(q->file, &route->why)) {
		gpu_memory_tend(gpu);
		return 0;
	}
	r = gpu_memory_ref(gpu, q->function, q->buf, q->len, &route->place);
	return r == 1 ? file_route(q, route) : r;
}

/*
 * Chooses the path.  Returns 0, or a negative errno with a message: its memory is a GPU's, and there is no
 * path that the daemon allows.
 */
static int op_route(const struct op_request *q, struct route *ret_route)
{
	struct dsaio_client *client = q->handle->client;
	struct route route = { .path = PATH_RING, .memory = { .buf = q->buf, .gpu = -1 } };
	struct buffer_place *place = &route.place;
	int r = 0;

	if (is_sync(q->opcode))
		route.path = PATH_RING;
	else if (q->iov && q->len)
		route.path = PATH_VECTOR;
	else if (!q->len)
		route.path = PATH_AT_ONCE;
	else if (buffers_ref(&client->buffers, q->buf, q->len, place))
		route.path = is_incongruent(q, place) &&
					     q->len > (q->opcode == RING_OP_READ ? SHORT_READ_MAX
										 : SHORT_WRITE_MAX)
				     ? PATH_BOUNCED
				     : PATH_RING;
	else if ((r = gpu_route(q, &route)) == 0)
		route.path = PATH_BOUNCED;
	*ret_route = route;
	return r < 0 ? r : 0;
}

/* The same for the program.  A vectored op has the path of its parts. */
static enum dsaio_way path_reported(enum op_path path, const struct buffer_place *place)
{
	if (path == PATH_BOUNCED)
		return DSAIO_WAY_COPIED;
	if (!place->slab)
		return DSAIO_WAY_NONE;
	return place->slab->is_gpu ? DSAIO_WAY_GPU : DSAIO_WAY_SHARED;
}

/* The prerequisites of an op: channels, the bounce thread. */
struct op_means {
	struct handle_channel *channel; /* gets the op, or its pieces */
	struct dsaio_handle *companion; /* with the bounce thread: whose channel that is */
};

/* An op that is ready to go: all checks and questions to kernel and daemon are done. */
struct op_plan {
	struct dsaio_op *op;
	const struct op_request *q;
	enum op_path path;
	struct op_means means;
	struct job_memory memory; /* of one that is copied */
};

/* Does the bounce thread run the op, if it is copied? */
static bool has_bounce_thread(const struct op_request *q, const struct job_memory *memory)
{
	return q->is_async || memory->gpu >= 0;
}

/* ---- into the ring ---- */

/* Shows the lanes what a batch has added so far. */
static void publish_all(const struct dsaio_handle *handle)
{
	/* acquire: pairs with handle_channel(), which shows a channel that is ready */
	struct handle_channel *channel = atomic_load_explicit(&handle->channels,
							      memory_order_acquire);

	for (; channel; channel = atomic_load_explicit(&channel->next, memory_order_relaxed))
		channel_publish(channel);
}

static int put(struct dsaio_op *op, bool is_batched)
{
	return is_batched ? channel_add(op) : channel_put(op);
}

static int put_with_room(struct dsaio_op *op, bool is_batched)
{
	struct wait_for room = { .what = WAIT_ROOM, .channel = op->channel };
	int r;

	for (;;) {
		/* Before the try, so that a later completion is noticed. */
		room.head = channel_head(op->channel);
		r = put(op, is_batched);
		if (r != -EAGAIN)
			return r;
		if (is_batched)
			publish_all(op->handle);
		(void)wait_until(op->handle, &room, UINT64_MAX); /* no time-out */
	}
}

int submit_put(struct dsaio_op *op)
{
	return put_with_room(op, false);
}

/* The bounce thread puts the op into its ring, behind ops that it waits for, when there is room. */
static void op_defer(struct dsaio_op *op)
{
	int r = bounce_start(op->handle->client);

	if (r < 0) {
		op_set_text(op, strdup(dsaio_error())); /* NULL: the errno has to do */
		end_op(op, r, 0);
		return;
	}
	inode_leave_ring(op->file->inode, op);
	bounce_defer(op);
}

/* Into the ring, behind earlier ops that the daemon cannot order. */
static void put_in_order(const struct op_plan *plan, bool is_batched)
{
	struct dsaio_op *op = plan->op;
	uint64_t deadline = deadline_in_msec(op->timeout_msec);
	struct dsaio_op *earlier = inode_conflict(op->file->inode, op, true);
	int r = 0;

	if (earlier) {
		handle_op_unref(earlier);
		if (plan->q->is_async) {
			op_defer(op);
			return;
		}
		r = bounce_await_earlier(op, true, deadline);
		op_set_timeout(op, deadline_left_msec(deadline));
	}
	if (r == 0)
		r = plan->q->is_nowait ? put(op, is_batched) : put_with_room(op, is_batched);
	if (r == -EAGAIN) /* there was room, but other threads took it */
		op_defer(op);
	else if (r < 0)
		end_op(op, r == -ENOTCONN ? -ECONNRESET : r, 0);
}

static int op_prepare(const struct op_request *q, struct op_plan *plan)
{
	struct dsaio_handle *handle = q->handle;
	struct op_means *means = &plan->means;
	const enum op_path path = plan->path;
	int r = 0;

	if (path == PATH_AT_ONCE || (path == PATH_VECTOR && !q->is_nowait))
		return 0;
	if (path == PATH_BOUNCED && has_bounce_thread(q, &plan->memory)) {
		r = bounce_start(handle->client);
		if (r == 0)
			r = handle_companion(handle, &means->companion);
		handle = means->companion;
	}
	return r < 0 ? r : handle_channel(handle, q->file->session.store, &means->channel);
}

/* ---- an op, in two steps ---- */

/* Is there room in the ring for this op and for those that were planned before it? */
static int check_room(const struct op_request *q, struct handle_channel *channel,
		      const struct op_plan *plans, unsigned n_plans)
{
	uint32_t n = 1;

	for (unsigned i = 0; i < n_plans; i++)
		n += plans[i].path == PATH_RING && plans[i].means.channel == channel;
	if (channel_room(channel) >= n)
		return 0;
	wait_poll(q->handle);
	if (channel_room(channel) >= n)
		return 0;
	return error_fail(-EAGAIN,
			  "%s: the ring of %u entries is full: wait for ops, or submit without "
			  "DSAIO_NOWAIT",
			  q->function, channel->ring.entries);
}

/*
 * Adds the op, which is filled in, to the open ops of its inode; or sets its error.  needs_buffered: it is a write that
 * cannot go direct.  Another write of less than whole pages goes direct if there is no buffered description.
 */
static void plan_file(struct op_plan *plan, bool needs_buffered)
{
	struct dsaio_op *op = plan->op;
	uint64_t grow_end;
	int r = 0;

	if (needs_buffered ||
	    (op->opcode == RING_OP_WRITE && is_unaligned(plan->q, file_write_align(op->file))))
		r = file_need_buffered(op->file);
	if (!needs_buffered)
		r = 0;
	if (r < 0)
		op_set_text(op, strdup(dsaio_error())); /* NULL: the errno has to do */
	if (r == 0) {
		if (plan->path == PATH_BOUNCED)
			op_change_state(op, OP_BOUNCED);
		inode_add(op->file->inode, op);
		if (op->opcode == RING_OP_WRITE && !op->file->is_block_device) {
			r = file_grow(op->file, op->off + op->len, &grow_end);
			op_set_grow_end(op, grow_end);
		}
	}
	if (r < 0) {
		op_set_result(op, r, 0);
		plan->path = PATH_AT_ONCE;
	}
}

/*
 * A request that was checked, and cut at the file's end.  plans: those of the same batch so far.
 * whole: the vectored op that it is a part of, or NULL.
 */
static int plan_checked(const struct op_request *q, struct dsaio_op *whole, bool is_callers,
			const struct op_plan *plans, unsigned n_plans, struct op_plan *plan)
{
	struct dsaio_op *op;
	bool needs_buffered;
	struct route route;
	enum op_path path;
	int r = op_route(q, &route);

	if (r < 0)
		return r;
	path = route.path;
	*plan = (struct op_plan){ .q = q, .path = path, .memory = route.memory };
	needs_buffered = q->opcode == RING_OP_WRITE && path != PATH_AT_ONCE &&
			 path != PATH_VECTOR &&
			 (is_unaligned(q, q->file->session.offset_align) ||
			  (path == PATH_RING && is_incongruent(q, &route.place)));
	r = op_prepare(q, plan);
	if (r == 0 && q->is_nowait && !whole && (path == PATH_RING || path == PATH_VECTOR))
		r = check_room(q, plan->means.channel, plans, n_plans);
	op = r < 0 ? NULL
		   : handle_op_new(q->handle, q->is_async && !whole, is_callers,
				   path == PATH_RING ? plan->means.channel : NULL);
	if (!op) {
		route_unref(&route);
		free(route.why);
		return r < 0 ? r : error_fail_errno(-ENOMEM, "%s", q->function);
	}
	op_set_io(op, q->opcode, q->off, q->len, &route.place);
	op_set_timeout(op, q->timeout_msec);
	op_set_data(op, q->data);
	op_set_file(op, q->file);
	plan->op = op;
	if (whole)
		vector_add(whole, op);
	op_set_path(op, path_reported(path, &route.place));
	if (route.why)
		op_take_why(op, route.why);
	if (path == PATH_VECTOR && vector_open(op, q->n_iov) < 0) {
		op_set_result(op, -ENOMEM, 0);
		plan->path = PATH_AT_ONCE;
	} else if (path == PATH_RING || path == PATH_BOUNCED) {
		plan_file(plan, needs_buffered);
	}
	return 0;
}

static int plan_op(struct op_request *q, bool is_callers, const struct op_plan *plans,
		   unsigned n_plans, struct op_plan *plan)
{
	int r = op_check(q);

	if (r == 0 && q->opcode == RING_OP_READ && q->len)
		r = cut_at_end(q);
	return r < 0 ? r : plan_checked(q, NULL, is_callers, plans, n_plans, plan);
}

static void go_parts(const struct op_plan *plan);

/* The op takes its path.  A batch is seen by the lanes after publish_all(). */
static void plan_go(const struct op_plan *plan, bool is_batched)
{
	struct dsaio_op *op = plan->op;

	if (plan->path == PATH_AT_ONCE)
		end_op(op, op->result, 0);
	else if (plan->path == PATH_RING)
		put_in_order(plan, is_batched);
	else if (plan->path == PATH_VECTOR)
		go_parts(plan);
	else if (has_bounce_thread(plan->q, &plan->memory))
		bounce_submit(op, plan->means.companion, plan->means.channel, &plan->memory);
	else
		bounce_run(op, plan->means.channel, &plan->memory);
}

/* Parts are planned here one by one, because up to IOV_MAX plans do not fit on the stack. */
static void go_parts(const struct op_plan *plan)
{
	struct dsaio_op *whole = plan->op;
	struct op_request q = *plan->q;
	uint64_t end = q.off + q.len;

	publish_all(q.handle); /* planning may ask the kernel or the daemon, and they may hang */
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
		r = plan_checked(&q, whole, false, NULL, 0, &part);
		if (r < 0) {
			vector_fail(whole, q.off, r, strdup(dsaio_error()));
			break;
		}
		plan_go(&part, true);
	}
	publish_all(q.handle);
	if (vector_close(whole))
		end_op(whole, whole->result, whole->done);
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
	int r = plan_op(q, ret_op, NULL, 0, &plan);

	if (r < 0)
		return r;
	if (ret_op)
		give_op(plan.op, ret_op);
	plan_go(&plan, false);
	if (ret_op)
		gave_op(plan.op);
	return 0;
}

/* Does the plan of the op ask the daemon about its file, whose file system may be dead? */
static bool asks_about_file(const struct op_request *q)
{
	return q->handle->client->gpu.can_import && !q->iov && q->len &&
	       !file_gpu_is_known(q->file) && gpus_find(q->buf) >= 0;
}

int submit_ops(struct op_request *requests, unsigned n, struct dsaio_op **ret_ops)
{
	CANCEL_DISABLE();
	struct op_plan plans[SUBMIT_MAX];
	unsigned n_plans, n_gone = 0;
	int r = 0;

	for (n_plans = 0; n_plans < n; n_plans++) {
		struct op_plan *plan = &plans[n_plans];

		/* Ops on other files do not wait for the answer. */
		if (n_gone < n_plans && asks_about_file(&requests[n_plans])) {
			for (; n_gone < n_plans; n_gone++)
				plan_go(&plans[n_gone], true);
			publish_all(requests[0].handle);
		}
		r = plan_op(&requests[n_plans], ret_ops, &plans[n_gone], n_plans - n_gone, plan);
		if (r < 0)
			break;
		if (ret_ops)
			give_op(plan->op, &ret_ops[n_plans]);
	}
	for (unsigned i = n_gone; i < n_plans; i++)
		plan_go(&plans[i], n_plans > 1);
	if (n_plans > 1)
		publish_all(requests[0].handle);
	for (unsigned i = 0; ret_ops && i < n_plans; i++)
		gave_op(plans[i].op);
	return n_plans ? (int)n_plans : r;
}
