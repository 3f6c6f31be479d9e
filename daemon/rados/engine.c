/*
 * The engine rados: blocks become ops on one object each.
 *
 * The daemon never touches a client's memory: bytes are copied by a system call from it or to it, into and out of a
 * buffer of the op.  Buffers are kept with their slots, up to inflight_max bytes beside those in flight.  An op that
 * may not go to librados, because the store is offline, waits until it is online, the op's time is over, or the store
 * has been offline for too long.  One that comes back with -ESHUTDOWN waits again, as the next connection may succeed.
 *
 * librados' threads only post the op to the mailbox; all else is the lane's.
 */
#include "daemon/base/mailbox.h"
#include "daemon/object/unaligned.h"
#include "daemon/rados/entry.h"
#include "daemon/rados/store.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LOOK_NSEC 20000000 /* so often ops that wait look whether the store is online */

struct rados_op {
	struct message message; /* on_done() */
	struct rados_op *next;	/* of the free ones, or of those that wait */
	struct engine_rados *engine;
	struct block *block;
	struct rados_conn *conn; /* it is at librados */
	rados_completion_t completion;
	char *buffer; /* kept, as its room */
	uint32_t room;
	uint32_t len; /* of the block, as far as the object and the file reach */
	uint64_t deadline_nsec;
	bool was_submitted; /* to librados, so a write may have been carried out */
};

struct engine_rados {
	struct engine engine;
	struct rados_store *store;
	struct mailbox mailbox;
	int timer_fd; /* readable when ops that wait look */
	struct rados_op *free_ops, *waiting;
	uint64_t op_bytes; /* in flight */
	uint64_t room;	   /* of all buffers */
	unsigned turn;
	struct rados_op ops[];
};

static struct engine_rados *rados(const struct engine *engine)
{
	return container_of((uintptr_t)engine, struct engine_rados, engine);
}

/* ---- the end of an op ---- */

static void block_end(struct engine_rados *e, struct block *block, int64_t result)
{
	block->result = result;
	engine_end(&e->engine, block);
}

/* Ends a read: r bytes of its object are in the buffer, or there is no object. */
static int64_t read_result(struct rados_op *op, int r)
{
	const struct block *block = op->block;
	const struct rados_file *file = &block->target->rados;
	size_t done;
	int error;

	if (r == -ENOENT)
		r = 0;
	if (r < 0)
		return r;
	/* Bytes that nobody wrote read as zeroes; without a size nobody knows where the end is. */
	if ((uint32_t)r < op->len && !file->is_sparse && !file->is_writable)
		return -ESTALE;
	if (file->size) {
		memset(op->buffer + r, 0, op->len - (uint32_t)r);
		r = (int)op->len;
	}
	error = bounce_copy(block->region->base + block->region_off, op->buffer, (size_t)r, &done);
	return error ? -error : r;
}

static void buffer_free(struct rados_op *op)
{
	op->engine->room -= op->room;
	op->room = 0;
	free(TAKE_PTR(op->buffer));
}

/* Ends the op with what librados returned. */
static void op_end(struct rados_op *op, int r)
{
	struct engine_rados *e = op->engine;
	struct block *block = op->block;
	int64_t result = r;

	if (!block_is_write(block))
		result = read_result(op, r);
	else if (r == 0)
		result = op->len;
	block->is_unknown = block_is_write(block) && (r == -ETIMEDOUT || r == -ECANCELED);
	/* By these an engine says that it wants the block again. */
	if (result == -EAGAIN || result == -EOPNOTSUPP || result == -EINTR)
		result = -EIO;
	if (e->room > store_settings(e->store)->keys.inflight_max)
		buffer_free(op);
	e->op_bytes -= op->len;
	op->next = e->free_ops;
	e->free_ops = op;
	block_end(e, block, result);
}

/* ---- ops at librados, and those that wait for it ---- */

static void on_done(struct message *message);

/* One of librados' threads. */
static void on_complete(rados_completion_t completion, void *arg)
{
	struct rados_op *op = arg;

	(void)completion;
	mailbox_post(&op->engine->mailbox, &op->message, on_done);
}

/* Returns 0, or a negative errno if librados does not take it. */
static int op_submit(struct rados_op *op)
{
	const struct block *block = op->block;
	const struct rados_file *file = &block->target->rados;
	const uint64_t off = block->off & (file->object_bytes - 1);
	const rados_ioctx_t io = conn_io_next(op->conn, op->engine->turn++);
	char object[ENTRY_OBJECT_BYTES];

	op->was_submitted = true;
	entry_data_object(file->id, block->off / file->object_bytes, object);
	(void)rados_aio_create_completion2(op, on_complete, &op->completion); /* 0 */
	if (block_is_write(block))
		return rados_aio_write(io, object, op->completion, op->buffer, op->len, off);
	return rados_aio_read(io, object, op->completion, op->buffer, op->len, off);
}

/* It came back from librados, or was not taken. */
static void op_leave(struct rados_op *op)
{
	rados_aio_release(op->completion);
	conn_put(op->conn);
}

/* Submits the op as soon as that is possible. */
static void op_go(struct rados_op *op)
{
	static const struct itimerspec look = { .it_value.tv_nsec = LOOK_NSEC };
	struct engine_rados *e = op->engine;
	bool may_wait = false;
	int r;

	op->conn = clock_nsec() < op->deadline_nsec ? conn_try(e->store, &may_wait) : NULL;
	if (!op->conn && !may_wait) {
		op_end(op, op->was_submitted ? -ETIMEDOUT : -EHOSTDOWN);
	} else if (!op->conn) {
		if (!e->waiting)
			(void)timerfd_settime(e->timer_fd, 0, &look, NULL); /* a sound value */
		op->next = e->waiting;
		e->waiting = op;
	} else if ((r = op_submit(op)) < 0) {
		op_leave(op);
		op_end(op, r);
	}
}

static void on_done(struct message *message)
{
	struct rados_op *op = container_of(message, struct rados_op, message);
	int r = conn_note(op->conn, rados_aio_get_return_value(op->completion));

	op_leave(op);
	if (r == -ESHUTDOWN)
		op_go(op);
	else
		op_end(op, r);
}

/* ---- submit ---- */

/* How much of the block one op does: up to the end of its object, and a read up to the end of the file.  Or a negative
   errno. */
static int64_t block_reach(const struct block *block)
{
	const struct rados_file *file = &block->target->rados;
	const uint64_t end = file->size || !file->is_writable ? file->size
							      : rados_size_max(file->object_bytes);
	const uint64_t left = block->off < end ? end - block->off : 0;
	uint64_t reach = file->object_bytes - (block->off & (file->object_bytes - 1));

	if (block->len < reach)
		reach = block->len;
	if (!block_is_write(block))
		return (int64_t)(reach < left ? reach : left);
	if (!file->is_writable)
		return -EBADF;
	return block->len > left ? -EFBIG : (int64_t)reach;
}

static bool op_start(struct engine_rados *e, struct block *block, uint32_t len)
{
	const struct rados_config *keys = &store_settings(e->store)->keys;
	struct rados_op *op = e->free_ops;
	int r = 0;

	if (!op || (e->op_bytes && e->op_bytes + len > keys->inflight_max))
		return false;
	e->free_ops = op->next;
	e->op_bytes += len;
	op->block = block;
	op->len = len;
	op->deadline_nsec = clock_nsec() + keys->op_timeout_sec * NSEC_PER_SEC;
	op->was_submitted = false;
	if (op->room < len) {
		buffer_free(op);
		op->buffer = malloc(len);
		op->room = op->buffer ? len : 0;
		e->room += op->room;
	}
	if (!op->buffer)
		r = -ENOMEM;
	else if (block_is_write(block))
		r = -bounce_fetch(op->buffer, block->region->base + block->region_off, len);
	if (r < 0)
		op_end(op, r);
	else
		op_go(op);
	return true;
}

static int rados_submit(struct engine *engine, struct block **blocks, int n)
{
	struct engine_rados *e = rados(engine);

	for (int i = 0; i < n; i++) {
		struct block *block = blocks[i];
		int64_t reach = 0; /* of a sync: an op that ended is stable */

		block->is_unknown = false;
		if (block->operation == BLOCK_READ || block->operation == BLOCK_WRITE)
			reach = block_reach(block);
		if (reach <= 0)
			block_end(e, block, reach);
		else if (!op_start(e, block, (uint32_t)reach))
			return i;
		engine->n_in_flight++;
	}
	return n;
}

static int rados_reap(struct engine *engine, struct block **blocks, int n)
{
	struct engine_rados *e = rados(engine);
	uint64_t count;
	int done;

	if (mailbox_has_any(&e->mailbox))
		(void)mailbox_run(&e->mailbox);
	if (e->waiting && read(e->timer_fd, &count, sizeof(count)) > 0) {
		struct rados_op *next = TAKE_PTR(e->waiting);

		for (struct rados_op *op = next; op; op = next) {
			next = op->next;
			op_go(op);
		}
	}
	done = engine_take_ended(engine, blocks, n);
	engine->n_in_flight -= (uint32_t)done;
	return done;
}

/* The timer needs no look before a sleep: its descriptor is readable. */
static bool rados_is_ready(const struct engine *engine)
{
	return engine->ended || mailbox_has_any(&rados(engine)->mailbox);
}

/* ---- open, close ---- */

static void rados_close(struct engine *engine)
{
	struct engine_rados *e;

	if (!engine)
		return;
	e = rados(engine);
	assert(!engine->n_in_flight);
	while (e->free_ops) {
		free(e->free_ops->buffer);
		e->free_ops = e->free_ops->next;
	}
	mailbox_deinit(&e->mailbox);
	closep(&e->timer_fd);
	closep(&e->engine.event_fd);
	free(e);
}

static int rados_open(const struct engine_config *config, struct engine **ret_engine,
		      struct error *error)
{
	struct engine_rados *e = calloc(1, sizeof(*e) + config->depth * sizeof(*e->ops));
	struct epoll_event event = { .events = EPOLLIN };
	int r = e ? mailbox_init(&e->mailbox) : -ENOMEM;

	if (r < 0) {
		free(e);
		return error_set(error, r, "rados: engine");
	}
	e->engine.ops = &engine_rados;
	e->engine.depth = config->depth;
	e->store = config->rados_store;
	for (uint32_t i = 0; i < config->depth; i++) {
		e->ops[i] = (struct rados_op){ .engine = e, .next = e->free_ops };
		e->free_ops = &e->ops[i];
	}
	e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	e->engine.event_fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->timer_fd < 0 || e->engine.event_fd < 0 ||
	    epoll_ctl(e->engine.event_fd, EPOLL_CTL_ADD, e->timer_fd, &event) < 0 ||
	    epoll_ctl(e->engine.event_fd, EPOLL_CTL_ADD, e->mailbox.event_fd, &event) < 0) {
		r = error_set(error, -errno, "rados: engine");
		rados_close(&e->engine);
		return r;
	}
	*ret_engine = &e->engine;
	return 0;
}

const struct engine_ops engine_rados = {
	.name = "rados",
	.operations = 1u << BLOCK_READ | 1u << BLOCK_WRITE | 1u << BLOCK_FSYNC |
		      1u << BLOCK_FDATASYNC,
	.targets = 1u << TARGET_RADOS,
	.regions = 1u << REGION_HOST,
	.max_bytes = RADOS_OBJECT_MAX,
	.align = 1,
	.has_nowait = true,
	.has_unaligned = true,
	.window_regions = 1u << REGION_HOST,
	.open = rados_open,
	.close = rados_close,
	.submit = rados_submit,
	.reap = rados_reap,
	.is_ready = rados_is_ready,
};
