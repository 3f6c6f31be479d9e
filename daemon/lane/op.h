/*
 * An op: one read, write or sync of an entry, from the moment it was copied to the moment its
 * completion is shown.  It ends exactly once.
 *
 * Slots are set aside for all entries of a channel when that is made; nothing is allocated on
 * the way.  Lane only.
 *
 * enum op_state says in which list an op is and what follows; op_set_state() alone moves it.
 */
#ifndef DSAIO_DAEMON_LANE_OP_H
#define DSAIO_DAEMON_LANE_OP_H

#include "daemon/lane/order.h"
#include "daemon/object/mode_lock.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct batch;
struct channel;
struct file;
struct slab;

/* Beside each state: its list, and the states that may follow (op.c has them as a table). */
enum op_state {
	/* In the channel's free list, or never used.  -> WAITS_ORDER */
	OP_FREE,
	/* In no list: being checked, or the channel's order makes it wait for earlier ops.
	   -> READY; ENDED: it was refused, is of no bytes, or was cancelled */
	OP_WAITS_ORDER,
	/* In the channel's ready list: it has blocks to start.  -> DEFERRED, RUNNING */
	OP_READY,
	/* Waits outside of the ready list: in its inode's mode lock, in its file's extension, or in its
	   channel's list of ops that wait for a worker.  -> READY; RUNNING: it was cancelled */
	OP_DEFERRED,
	/* In no list: it starts nothing more, and its blocks in flight are awaited.
	   -> ENDED; READY: one came back, and has to be started again */
	OP_RUNNING,
	/* In the channel's list of ended ops: its completion is written, not yet published, and it
	   still keeps order.  -> FREE */
	OP_ENDED,
	N_OP_STATES
};

/* Its unaligned ends, in unaligned_left until they have started. */
#define OP_HEAD 1u
#define OP_TAIL 2u

struct op {
	struct mode_lock_waiter waiter; /* its node: in the list that the state names */
	struct channel *channel;
	struct file *file; /* held; NULL: the entry was refused */
	struct slab *slab; /* held; NULL for syncs */
	uint64_t slab_off; /* where the range starts in the slab's region */
	uint64_t id;
	uint64_t off, len;
	uint64_t end; /* first byte of the range that is known not to be done */
	uint64_t taken_nsec;
	uint32_t head, tail; /* bytes of its unaligned ends: unaligned.h */
	uint64_t next;	     /* bytes of the middle that have started: blocks follow each other */
	uint32_t n_in_flight;
	uint16_t id_next, id_prev; /* op_ids.h */
	uint16_t error;		   /* positive errno of the failure with the lowest offset */
	uint8_t opcode;		   /* enum ring_opcode */
	uint8_t state;		   /* enum op_state */
	uint8_t cancel_error;	   /* positive errno: no block of it starts, nor starts again */
	uint8_t unaligned_left : 2;
	bool is_misaligned : 1; /* its memory is: all of it goes by worker threads */
	bool is_dsync : 1;	/* a write is on the device at its end */
	bool is_gated : 1;	/* was deferred; counted in the channel's n_gated */
	bool is_in_order : 1;	/* in the channel's order */
	/* These say which fields of its struct op_rare are valid. */
	bool is_submitted : 1; /* by Submit: batch, batch_index; else it came by the ring */
	bool may_grow : 1;     /* it may lie behind the end of the file: grow_end, extended */
	bool has_returned : 1; /* returned */
	bool has_deadline : 1; /* deadline_nsec, deadline_at */
	bool is_unknown : 1;   /* as one of its blocks */
};
static_assert(sizeof(struct op) == 128,
	      "two cache lines; each op of a full channel touches its own");

/*
 * Fields that most ops never need: a channel has an array of these, too, and most of its memory is
 * never touched.  op_rare() of channel.h finds it.
 */
struct op_rare {
	struct list *list;	/* DEFERRED: that list */
	struct block *returned; /* blocks to be started again, by workers */
	struct batch *batch;
	uint64_t deadline_nsec;
	uint64_t grow_end;    /* the file may become this long for it */
	uint64_t extended;    /* so many bytes of its middle may start: extend.h */
	uint16_t batch_index; /* 16 bits, as its neighbour: below RING_ENTRIES_MAX */
	uint16_t deadline_at; /* its place among the channel's: deadline.h */
};

/* Asserts that the state may follow the present one.  The caller moves it between lists. */
void op_set_state(struct op *op, enum op_state state);

/* The op of a node of one of the lists that its state names; NULL for NULL. */
static inline struct op *op_of_node(struct list_node *node)
{
	return node ? container_of(node, struct op, waiter.node) : NULL;
}

static inline bool op_is_sync(const struct op *op)
{
	return op->opcode == RING_OP_FSYNC || op->opcode == RING_OP_FDATASYNC;
}

static inline enum order_kind op_order_kind(const struct op *op)
{
	return op_is_sync(op) ? ORDER_SYNC : op->opcode == RING_OP_WRITE ? ORDER_WRITE : ORDER_READ;
}

/* The bytes between its unaligned ends, or all of an op whose memory is misaligned; 0: a sync. */
static inline uint64_t op_middle_len(const struct op *op)
{
	return op->len - op->head - op->tail;
}

/* Its unaligned ends, as bits. */
static inline uint8_t op_unaligned(const struct op *op)
{
	return ((op->head ? OP_HEAD : 0) | (op->tail ? OP_TAIL : 0)) & 3u;
}

/* The mode of its next write. */
static inline enum write_mode op_write_mode(const struct op *op)
{
	return op->unaligned_left || op->is_misaligned ? MODE_BUFFERED : MODE_DIRECT;
}

/* At byte pos of the op a transfer stopped: with a positive errno, or (0) at the end of file. */
void op_stop_at(struct op *op, uint64_t pos, int error);

/* The result in the completion: bytes done, or ring_result_failed(). */
int64_t op_result(const struct op *op);

#endif
