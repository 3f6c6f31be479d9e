#include "client/lib/io/op.h"

#include "client/lib/base/debug.h"
#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"
#include "client/lib/io/vector.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OPS_PER_CHUNK 64 /* a guess: 13 KiB at a time */

struct op_chunk {
	struct op_chunk *next;
	struct dsaio_op ops[OPS_PER_CHUNK];
};

/* ---- state ---- */

#define TO(state) (1u << (state))
static const uint8_t next_states[] = {
	[OP_FREE] = TO(OP_PREPARED),
	[OP_PREPARED] = TO(OP_SUBMITTED) | TO(OP_WAITING) | TO(OP_BOUNCED) | TO(OP_ENDED),
	[OP_WAITING] = TO(OP_SUBMITTED) | TO(OP_ENDED),
	[OP_SUBMITTED] = TO(OP_ENDED),
	[OP_BOUNCED] = TO(OP_ENDED),
	[OP_ENDED] = TO(OP_FREE),
};

void op_change_state(struct dsaio_op *op, enum op_state state)
{
	assert(next_states[op_state(op)] & TO(state));
	/* release: pairs with op_state(); what led here is seen with the state */
	atomic_store_explicit(&op->state, (int)state, memory_order_release);
}

/* ---- filling in ---- */

void op_init(struct dsaio_op *op, struct dsaio_handle *handle, struct handle_channel *channel,
	     bool is_async, bool is_callers)
{
	op->handle = handle;
	op->channel = channel;
	op->is_async = is_async;
	op->is_callers = is_callers;
	op->timeout_msec = handle->settings.timeout_msec;
	op->began_nsec = debug_is_on() ? clock_nsec() : 0;
	/* relaxed: no other thread knows it yet */
	atomic_store_explicit(&op->n_refs, is_callers ? 2 : 1, memory_order_relaxed);
}

void op_set_io(struct dsaio_op *op, uint8_t opcode, uint64_t off, uint64_t len,
	       const struct buffer_place *buffer)
{
	op->opcode = opcode;
	op->off = off;
	op->len = len;
	op->buffer = *buffer;
}

/* The vectored op that it is a part of; NULL: it is none.  While further parts may come. */
static struct dsaio_op *whole_of(const struct dsaio_op *op)
{
	return op->vector && !op->is_vector ? op->vector->whole : NULL;
}

void op_set_path(struct dsaio_op *op, enum dsaio_path path)
{
	struct dsaio_op *whole = whole_of(op);

	op->path = (uint8_t)path;
	if (whole && whole->path < op->path)
		whole->path = op->path;
}

/* The op that has the reason. */
static struct dsaio_op *op_reported(struct dsaio_op *op)
{
	return whole_of(op) ? whole_of(op) : op;
}

void op_take_why(struct dsaio_op *op, char *why)
{
	struct dsaio_op *reported = op_reported(op);

	free(reported->why);
	reported->why = why;
}

bool op_has_why(struct dsaio_op *op)
{
	return op_reported(op)->why;
}

void op_set_file(struct dsaio_op *op, struct dsaio_file *file)
{
	file_add_ref(file);
	op->file = file;
}

/* ---- on its way ---- */

void op_set_cancelled(struct dsaio_op *op)
{
	atomic_store(&op->is_cancelled, true); /* seq_cst, as ring_id: one side sees the other's */
}

int op_refused(const struct dsaio_op *op, uint32_t session, const char **why)
{
	const struct slab_name *slab = op->buffer.slab;
	int r = atomic_load(&op->file->session.error);

	*why = "the file could not be handed over after a restart of the daemon: open it again";
	if (r < 0 || !slab)
		return r;
	if (slab->is_gpu && slab->session != session) {
		*why = "the daemon went away, and the next one does not take GPU memory over: submit it again";
		return -ECONNRESET;
	}
	*why = "its memory could not be handed over after a restart of the daemon: allocate it again";
	return atomic_load(&slab->error);
}

const char *op_verb(const struct dsaio_op *op)
{
	switch (op->opcode) {
	case RING_OP_READ:
		return "pread";
	case RING_OP_WRITE:
		return "pwrite";
	case RING_OP_FSYNC:
		return "fsync";
	default:
		return "fdatasync";
	}
}

/* ---- its end ---- */

void op_set_result(struct dsaio_op *op, int64_t result, uint64_t done)
{
	op->result = result;
	op->done = done;
}

void op_set_text(struct dsaio_op *op, char *text)
{
	free(op->text);
	op->text = text;
}

/* ---- objects ---- */

static bool pool_grow(struct op_pool *pool)
{
	struct op_chunk *chunk = calloc(1, sizeof(*chunk)); /* all OP_FREE */

	if (!chunk)
		return false;
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	for (int i = 0; i < OPS_PER_CHUNK; i++) {
		chunk->ops[i].node.next = pool->free ? &pool->free->node : NULL;
		pool->free = &chunk->ops[i];
	}
	return true;
}

struct dsaio_op *op_pool_take(struct op_pool *pool)
{
	struct dsaio_op *op;

	if (!pool->free && !pool_grow(pool))
		return NULL;
	op = pool->free;
	pool->free = op_next(op);
	pool->n_used++;
	memset(op, 0, sizeof(*op)); /* OP_FREE */
	op_change_state(op, OP_PREPARED);
	return op;
}

/* Frees what an op has apart. */
static void op_clear(struct dsaio_op *op)
{
	free(op->text);
	free(op->why);
	op->text = op->why = NULL;
	if (op->is_vector)
		free(op->vector);
	op->vector = NULL;
}

void op_pool_release(struct op_pool *pool, struct dsaio_op *op)
{
	op_clear(op);
	op_change_state(op, OP_FREE);
	op->node.next = pool->free ? &pool->free->node : NULL;
	pool->free = op;
	pool->n_used--;
}

struct dsaio_op *op_pool_next(const struct op_pool *pool, uint64_t *at)
{
	uint64_t n = 0;

	for (struct op_chunk *chunk = pool->chunks; chunk; chunk = chunk->next, n += OPS_PER_CHUNK)
		for (; *at < n + OPS_PER_CHUNK; ++*at) {
			struct dsaio_op *op = &chunk->ops[*at - n];
			const enum op_state state = op_state(op);

			if ((state != OP_SUBMITTED && !op_is_off_ring(op)) || op->part_of)
				continue;
			++*at;
			return op;
		}
	return NULL;
}

void op_pool_deinit(struct op_pool *pool)
{
	struct op_chunk *chunk, *next;

	for (chunk = pool->chunks; chunk; chunk = next) {
		next = chunk->next;
		for (int i = 0; i < OPS_PER_CHUNK; i++)
			op_clear(&chunk->ops[i]); /* nothing except for ops that a caller owns */
		free(chunk);
	}
}

void op_list_add(struct op_list *list, struct dsaio_op *op)
{
	op->node.next = NULL;
	if (list->last)
		list->last->node.next = &op->node;
	else
		list->first = op;
	list->last = op;
}
