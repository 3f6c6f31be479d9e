/*
 * The engine rados: blocks become ops on one object each.
 *
 * The daemon never touches a client's memory, so a write is fetched into scratch memory, which librados copies, and a
 * read goes to a buffer, which is copied out when it is reaped.  Buffers are powers of two and are kept: all together at
 * most twice inflight_max.  An op that may not go to librados, because the store is offline, waits until it is online
 * or the op's time is over.  One that comes back with -ESHUTDOWN waits again, as the next connection may succeed.
 *
 * librados' threads only post the op to the mailbox; all else is the lane's.
 */
#include "daemon/base/mailbox.h"
#include "daemon/object/unaligned.h"
#include "daemon/rados/entry.h"
#include "daemon/rados/keeper.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BUFFER_MIN_BITS 12
#define N_BUFFER_SIZES (25 - BUFFER_MIN_BITS + 1)
_Static_assert(RADOS_OBJECT_MAX == 1u << 25, "the largest buffer");

struct buffer {
	struct buffer *next; /* of the free ones of its size */
	unsigned size;	     /* 1 << BUFFER_MIN_BITS + size bytes */
	char bytes[];
};

struct rados_op {
	union {
		struct rados_op *next_free;
		struct list_node node; /* in waiting */
	};
	struct message message;
	struct engine_rados *engine;
	struct block *block;
	struct rados_conn *conn; /* it is at librados */
	rados_completion_t completion;
	struct buffer *buffer; /* of a read */
	uint32_t len;	       /* of the block, as far as the object and the file reach */
	uint64_t deadline_nsec;
	bool was_given; /* to librados, so a write may have been carried out */
};

struct engine_rados {
	struct engine engine;
	struct rados_store *store;
	struct mailbox mailbox;
	int epoll_fd,
		timer_fd; /* readable for the mailbox, or when an op has waited for too long */
	struct rados_op *ops, *free_ops;
	uint32_t n_ops; /* in use */
	uint64_t op_bytes;
	struct list waiting;
	uint64_t wait_nsec; /* when the first of them has waited for too long */
	struct block *done, **done_next;
	char *scratch;
	struct buffer *buffers[N_BUFFER_SIZES];
	uint64_t buffer_bytes; /* of all, free and in use */
	unsigned turn;
};

static struct engine_rados *rados(const struct engine *engine)
{
	return container_of((uintptr_t)engine, struct engine_rados, engine);
}

/* ---- buffers ---- */

static uint64_t buffer_bytes(unsigned size)
{
	return UINT64_C(1) << (BUFFER_MIN_BITS + size);
}

static void buffers_free(struct engine_rados *e)
{
	for (unsigned size = 0; size < N_BUFFER_SIZES; size++) {
		while (e->buffers[size]) {
			struct buffer *buffer = e->buffers[size];

			e->buffers[size] = buffer->next;
			e->buffer_bytes -= buffer_bytes(size);
			free(buffer);
		}
	}
}

static struct buffer *buffer_take(struct engine_rados *e, uint32_t len)
{
	struct buffer *buffer;
	unsigned size = 0;

	while (buffer_bytes(size) < len)
		size++;
	buffer = e->buffers[size];
	if (buffer) {
		e->buffers[size] = buffer->next;
		return buffer;
	}
	/* Those of other sizes are free, as the ops in flight fit. */
	if (e->buffer_bytes + buffer_bytes(size) > 2 * store_settings(e->store)->inflight_max)
		buffers_free(e);
	buffer = malloc(sizeof(*buffer) + buffer_bytes(size));
	if (buffer) {
		buffer->size = size;
		e->buffer_bytes += buffer_bytes(size);
	}
	return buffer;
}

static void buffer_put(struct engine_rados *e, struct buffer *buffer)
{
	buffer->next = e->buffers[buffer->size];
	e->buffers[buffer->size] = buffer;
}

/* ---- the end of an op ---- */

static void block_end(struct engine_rados *e, struct block *block, int64_t result)
{
	block->result = result;
	block->next = NULL;
	*e->done_next = block;
	e->done_next = &block->next;
}

/* What the block's read has: r bytes of its object are in the buffer, or there is no object. */
static int64_t read_result(struct rados_op *op, int r)
{
	const struct block *block = op->block;
	const struct rados_file *file = &block->target->rados;
	size_t done;
	int error;

	if (r == -ENOENT)
		r = file->is_sparse || file->is_writable ? 0 : -ESTALE;
	if (r < 0)
		return r;
	/* What was not written reads as zeroes; without a size nobody knows where the end is. */
	if (file->size) {
		memset(op->buffer->bytes + r, 0, op->len - (uint32_t)r);
		r = (int)op->len;
	}
	error = bounce_copy(block->region->base + block->region_off, op->buffer->bytes, (size_t)r,
			    &done);
	return error ? -error : r;
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
	block->is_unknown = block_is_write(block) && op->was_given &&
			    (r == -ETIMEDOUT || r == -ECANCELED || r == -ESHUTDOWN);
	/* By these an engine says that it wants the block again. */
	if (result == -EAGAIN || result == -EOPNOTSUPP || result == -EINTR)
		result = -EIO;
	if (op->buffer)
		buffer_put(e, op->buffer);
	e->op_bytes -= op->len;
	e->n_ops--;
	store_ended(e->store, clock_nsec(), e->n_ops);
	op->next_free = e->free_ops;
	e->free_ops = op;
	block_end(e, block, result);
}

/* ---- ops at librados, and those that wait for it ---- */

static void timer_set(const struct engine_rados *e)
{
	struct itimerspec spec = { .it_value = { .tv_sec = (time_t)(e->wait_nsec / NSEC_PER_SEC),
						 .tv_nsec = (long)(e->wait_nsec % NSEC_PER_SEC) } };

	(void)timerfd_settime(e->timer_fd, TFD_TIMER_ABSTIME, &spec,
			      NULL); /* the values are sound */
}

static void op_wait(struct rados_op *op)
{
	struct engine_rados *e = op->engine;

	if (!e->waiting.first || op->deadline_nsec < e->wait_nsec) {
		e->wait_nsec = op->deadline_nsec;
		timer_set(e);
	}
	list_push(&e->waiting, &op->node);
}

static void on_done(struct message *message)
{
	struct rados_op *op = container_of(message, struct rados_op, message);
	int r = conn_note(op->conn, rados_aio_get_return_value(op->completion));

	rados_aio_release(op->completion);
	conn_put(op->conn);
	if (r == -ESHUTDOWN && clock_nsec() < op->deadline_nsec)
		op_wait(op);
	else
		op_end(op, r);
}

/* One of librados' threads. */
static void on_complete(rados_completion_t completion, void *arg)
{
	struct rados_op *op = arg;

	(void)completion;
	mailbox_post(&op->engine->mailbox, &op->message);
}

static int op_give(struct rados_op *op, rados_ioctx_t io)
{
	struct engine_rados *e = op->engine;
	const struct block *block = op->block;
	const struct rados_file *file = &block->target->rados;
	const uint64_t off = block->off & (file->object_bytes - 1);
	char object[ENTRY_OBJECT_BYTES];

	entry_data_object(file->id, block->off / file->object_bytes, object);
	if (block_is_write(block))
		return rados_aio_write(io, object, op->completion, e->scratch, op->len, off);
	return rados_aio_read(io, object, op->completion, op->buffer->bytes, op->len, off);
}

/* Takes the reference conn. */
static void op_start(struct rados_op *op, struct rados_conn *conn)
{
	struct engine_rados *e = op->engine;
	const struct block *block = op->block;
	int r = 0;

	if (block_is_write(block))
		r = -bounce_fetch(e->scratch, block->region->base + block->region_off, op->len);
	if (r == 0) {
		op->conn = conn;
		(void)rados_aio_create_completion2(op, on_complete, &op->completion); /* 0 */
		r = op_give(op, conn_io_next(conn, e->turn++));
		if (r == 0) {
			op->was_given = true;
			return;
		}
		rados_aio_release(op->completion);
	}
	conn_put(conn);
	op_end(op, r);
}

static void waiting_end(struct engine_rados *e, uint64_t now_nsec)
{
	uint64_t first_nsec = UINT64_MAX;

	LIST_EACH(struct rados_op, op, &e->waiting, node) {
		if (op->deadline_nsec <= now_nsec) {
			list_remove(&e->waiting, &op->node);
			op_end(op, op->was_given ? -ETIMEDOUT : -EHOSTDOWN);
		} else if (op->deadline_nsec < first_nsec) {
			first_nsec = op->deadline_nsec;
		}
	}
	e->wait_nsec = first_nsec;
	if (e->waiting.first)
		timer_set(e);
}

static bool waiting_is_ready(const struct engine_rados *e)
{
	return e->waiting.first && (store_is_online(e->store) || clock_nsec() >= e->wait_nsec);
}

static void waiting_run(struct engine_rados *e)
{
	struct rados_conn *conn;

	while (e->waiting.first && (conn = conn_try(e->store)))
		op_start(list_entry(list_pop(&e->waiting), struct rados_op, node), conn);
	if (e->waiting.first)
		waiting_end(e, clock_nsec());
}

/* ---- submit ---- */

/* How much of the block one op does: up to the end of its object, and a read up to the end of the file.  Or a negative
   errno. */
static int64_t block_reach(const struct block *block)
{
	const struct rados_file *file = &block->target->rados;
	const uint64_t max = entry_size_max(file->object_bytes);
	const uint64_t rest = file->object_bytes - (block->off & (file->object_bytes - 1));
	const uint64_t end = file->size || !file->is_writable ? file->size : max;
	uint64_t reach = block->len < rest ? block->len : rest;

	if (block_is_write(block)) {
		if (!file->is_writable)
			return -EBADF;
		return block->off > end || block->len > end - block->off ? -EFBIG : (int64_t)reach;
	}
	if (block->off >= end)
		return 0;
	return (int64_t)(reach < end - block->off ? reach : end - block->off);
}

static bool block_start_op(struct engine_rados *e, struct block *block, uint32_t len)
{
	const struct rados_settings *settings = store_settings(e->store);
	struct rados_op *op = e->free_ops;
	struct rados_conn *conn;
	uint64_t now = clock_nsec();

	if (!op || (e->n_ops && e->op_bytes + len > settings->inflight_max))
		return false;
	e->free_ops = op->next_free;
	*op = (struct rados_op){
		.message = { .run = on_done },
		.engine = e,
		.block = block,
		.len = len,
		.deadline_nsec = now + settings->op_timeout_msec * (NSEC_PER_SEC / 1000),
	};
	e->n_ops++;
	e->op_bytes += len;
	store_began(e->store, now);
	if (!block_is_write(block) && !(op->buffer = buffer_take(e, len)))
		op_end(op, -ENOMEM);
	else if ((conn = conn_try(e->store)))
		op_start(op, conn);
	else
		op_wait(op);
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
		else if (!block_start_op(e, block, (uint32_t)reach))
			return i;
		engine->n_in_flight++;
	}
	return n;
}

static int rados_reap(struct engine *engine, struct block **blocks, int n)
{
	struct engine_rados *e = rados(engine);
	int done = 0;

	if (mailbox_has_any(&e->mailbox))
		(void)mailbox_run(&e->mailbox);
	if (waiting_is_ready(e))
		waiting_run(e);
	while (done < n && e->done) {
		blocks[done++] = e->done;
		e->done = e->done->next;
	}
	if (!e->done)
		e->done_next = &e->done;
	engine->n_in_flight -= (uint32_t)done;
	return done;
}

static bool rados_is_ready(const struct engine *engine)
{
	const struct engine_rados *e = rados(engine);

	return e->done || mailbox_has_any(&e->mailbox) || waiting_is_ready(e);
}

static int rados_event_fd(const struct engine *engine)
{
	return rados(engine)->epoll_fd;
}

/* ---- open, close ---- */

static void rados_close(struct engine *engine)
{
	struct engine_rados *e;

	if (!engine)
		return;
	e = rados(engine);
	assert(!engine->n_in_flight);
	store_wake(e->store, -1);
	buffers_free(e);
	if (e->scratch)
		(void)munmap(e->scratch, RADOS_OBJECT_MAX); /* our own mapping: cannot fail */
	if (e->mailbox.event_fd >= 0)
		mailbox_deinit(&e->mailbox);
	closep(&e->timer_fd);
	closep(&e->epoll_fd);
	free(e->ops);
	free(e);
}

static int fds_open(struct engine_rados *e)
{
	struct epoll_event event = { .events = EPOLLIN };
	int r = mailbox_init(&e->mailbox);

	if (r < 0) {
		e->mailbox.event_fd = -1;
		return r;
	}
	e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->timer_fd < 0 || e->epoll_fd < 0 ||
	    epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->timer_fd, &event) < 0 ||
	    epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->mailbox.event_fd, &event) < 0)
		return -errno;
	return 0;
}

static int rados_open(const struct engine_config *config, struct engine **ret_engine,
		      struct error *error)
{
	struct engine_rados *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return error_set(error, -ENOMEM, "rados: engine");
	e->engine.ops = &engine_rados;
	e->engine.depth = config->depth;
	e->store = config->rados_store;
	e->done_next = &e->done;
	e->timer_fd = e->epoll_fd = -1;
	r = fds_open(e);
	e->ops = calloc(config->depth, sizeof(*e->ops));
	e->scratch = mmap(NULL, RADOS_OBJECT_MAX, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (e->scratch == MAP_FAILED)
		e->scratch = NULL;
	if (r == 0 && (!e->ops || !e->scratch))
		r = -ENOMEM;
	if (r < 0) {
		rados_close(&e->engine);
		return error_set(error, r, "rados: engine");
	}
	(void)madvise(e->scratch, RADOS_OBJECT_MAX, MADV_DONTDUMP); /* users' data; only advice */
	for (uint32_t i = 0; i < config->depth; i++) {
		e->ops[i].next_free = e->free_ops;
		e->free_ops = &e->ops[i];
	}
	store_wake(e->store, e->mailbox.event_fd);
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
	.event_fd = rados_event_fd,
};
