/*
 * Order of the ops of one channel: an op starts after all earlier ops that it conflicts with
 * (proto/README.md "Submission, order, completion").
 *
 * An op that conflicts with no open op may start at once.  Any other waits in the queue of its file.  The
 * first of a queue may start when it conflicts with no op that has started.  Then these are the ops before
 * it, because a later op that conflicts with it waits behind it.  So an op of a queue waits for the ops that
 * it conflicts with, and for the start of the ops before it.
 *
 * A sync conflicts with all earlier writes of its file.  No op waits for a sync to end.
 *
 * Sorted arrays tell whether a range overlaps any other.  The ranges that begin after its end, and those
 * that end before its begin, do not overlap it, and no range does both.  So two binary searches count the
 * others, whatever their number and places are.  An op that comes or goes moves at most 8 bytes of each array
 * for each op of its kind: with 4096 open ops that takes less than a microsecond.
 *
 * All memory is set aside by order_init().  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_ORDER_H
#define DSAIO_DAEMON_LANE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#define ORDER_OPS_MAX 4096u /* bounds the work for one op, and the numbers of files */
/* Ops that the end of one lets start: bounds the work for it.  The end of each of them lets as many start. */
#define ORDER_READY_MAX 16u

enum order_kind { ORDER_READ, ORDER_WRITE, ORDER_SYNC };

struct order_node;
struct order_file;

/* Ranges of pages: of the ops of one kind that wait, or that have started. */
struct order_ranges {
	uint64_t *begins, *ends; /* sorted, each for itself */
	uint32_t n;
};

struct order {
	struct order_node *nodes; /* owned; of each op number */
	struct order_file *files; /* owned; those with a node; numbers begin at 1; 0: none */
	uint16_t *buckets;	  /* owned; the first file of each value of the hash */
	uint64_t *keys;		  /* owned; the arrays of all ranges */
	struct order_ranges
		ranges[2][2]; /* of ops that have started (1) or not; of reads, of writes */
	uint32_t n_files;     /* used at least once: the others have no memory yet */
	uint16_t free_file;
	uint16_t hash_shift;
};

/* For ops with numbers below n_ops, at most ORDER_OPS_MAX.  Returns 0 or -ENOMEM. */
int order_init(struct order *order, uint32_t n_ops);
void order_deinit(struct order *order); /* zeroes are fine */

/*
 * Adds an op behind all others of the channel; file stands for its inode.  True: the op may start.
 * False: an order_end() returns it when it may.
 */
bool order_add(struct order *order, uint16_t op, const void *file, enum order_kind kind,
	       uint64_t off, uint64_t len);

/* The op waits, and ends without a start: no order_end() returns it.  Its own order_end() is still to come. */
void order_cancel(struct order *order, uint16_t op);

/* The op has ended and its completion is in the ring.  Returns how many ops may start now, at most
   ORDER_READY_MAX: the numbers in ret_ready. */
unsigned order_end(struct order *order, uint16_t op, uint16_t *ret_ready);

#endif
