/*
 * The mode lock of an inode: direct writes and buffered writes of it are never under way together,
 * whoever's they are.
 *
 * A direct write that finds, when it ends, a dirty folio of the page cache over its range (folios
 * may be large, so the dirty bytes may be a neighbour's) can not invalidate it: the kernel then
 * makes the next fsync return EIO, though nothing was lost.  Reads are no trouble.
 *
 * One kind at a time is let in, block by block.  As soon as an op of the other kind waits, no more
 * of this kind start but for a short slice; when the last is done, the kind of the first that
 * waits has its turn, and all who wait with it.  They are promised a start: the mode lock does not turn
 * again before each has started something, so neither kind starves.
 *
 * Ops that wait stand in its list, in order, outside of their channels: a write of another client
 * may take long, and what else a channel has need not wait for it.  At most MODE_LOCK_OPS_MAX ops of a
 * channel do so (op.is_gated; ops that wait for an extension, extend.h, count, too).  With more, the
 * channel waits.  So nobody waits for more of another client's ops than its channels times that.
 *
 * Home lane of the store only.
 */
#ifndef DSAIO_DAEMON_OBJECT_MODE_LOCK_H
#define DSAIO_DAEMON_OBJECT_MODE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct op;

enum write_mode { MODE_DIRECT, MODE_BUFFERED };

/* How long a kind goes on while the other waits: a few blocks, so that turns are not all that is
   done.  A guess. */
#define MODE_LOCK_SLICE_NSEC 2000000u

/* Ops of one channel that may stand outside of it.  A guess. */
#define MODE_LOCK_OPS_MAX 8u

/* Each op is in one such list at most. */
struct op_list {
	struct op *first, *last;
};
void op_list_push(struct op_list *list, struct op *op);
void op_list_push_front(struct op_list *list, struct op *op);
/* It is there. */
void op_list_remove(struct op_list *list, struct op *op);

struct mode_lock {
	struct op_list waiting;
	uint32_t n_busy;      /* writes of its kind under way */
	uint32_t n_promised;  /* ops let in that have not started yet */
	enum write_mode kind; /* of those */
	uint64_t since_nsec;  /* when it last turned */
};

/* May an op that nothing was promised start a write of this kind now? */
bool mode_lock_is_open(const struct mode_lock *mode_lock, enum write_mode kind, uint64_t now_nsec);
/* A write of this kind starts; is_promised: it was promised to its op, which is met. */
void mode_lock_start(struct mode_lock *mode_lock, enum write_mode kind, bool is_promised);
/* A write is done. */
void mode_lock_end(struct mode_lock *mode_lock);
/* An op that was promised a start does not need it any more. */
void mode_lock_unpromise(struct mode_lock *mode_lock);

/*
 * After mode_lock_end() and mode_lock_unpromise(): if nothing holds the mode lock any more it turns, and let_in()
 * gets the ops whose turn it is, in order, each out of the list and promised a start.
 */
void mode_lock_turn(struct mode_lock *mode_lock, uint64_t now_nsec,
		    void (*let_in)(struct op *op, void *arg), void *arg);

#endif
