/*
 * Order of the ops of one channel: an op starts after all earlier ops that it conflicts with
 * (proto/README.md "Submission, order, completion").  Each op costs O(log n) steps, whatever the other ops are.
 *
 * An op has a node from order_add() until order_end().  A node waits for at most 8 nodes by name, its
 * predecessors.  With more it waits for all earlier writes, or all earlier reads, of its file: these
 * are in lists in the order of their sequence numbers, so that only the first has to be compared.
 * A sync waits for all earlier writes in the same way.
 *
 * Two balanced trees for each file, of reads and of writes, find the nodes that overlap a range.  A
 * write takes the nodes out of the trees that lie within its range and that it waits for: whatever
 * conflicts with these conflicts with the write, which ends after them.  So a thousand writes of one
 * page form a chain, in which each waits for the one before it.
 *
 * A cancelled op does not wait for its predecessors.  Its node does: in a chain of three writes the
 * third may know only the second, and must not start before the first has ended.  For such nodes half
 * as many as there are ops are set aside.  When all of these are in use, a further cancelled op ends
 * after its predecessors.
 *
 * All memory is set aside by order_init().  Home lane only.
 */
#ifndef DSAIO_DAEMON_LANE_ORDER_H
#define DSAIO_DAEMON_LANE_ORDER_H

#include "daemon/lane/page_counts.h"

#include <stdbool.h>
#include <stdint.h>

#define ORDER_PREDECESSORS_MAX 8u
/* Nodes and edges have 16-bit numbers: a node has 8 edges, and there are 1.5 nodes for each op. */
#define ORDER_OPS_MAX 4096u

enum order_kind { ORDER_READ, ORDER_WRITE, ORDER_SYNC };

struct order_node;
struct order_links;
struct order_file;

struct order {
	struct order_node *nodes;	 /* owned; numbers begin at 1; 0: none */
	struct order_links *links;	 /* owned; one for each node, touched if it conflicts */
	struct order_file *files;	 /* owned; likewise; those with a node */
	uint16_t *buckets;		 /* owned; the first file of each value of the hash */
	struct page_counts touched[2];	 /* by reads, by writes */
	uint32_t n_nodes, n_files;	 /* in the arrays */
	uint32_t n_fresh, n_files_fresh; /* used at least once: the others have no memory yet */
	uint16_t free_node, free_file;
	uint16_t hash_shift;
	uint16_t n_abandoned, n_abandoned_max;
	uint64_t seq; /* of the last node */
};

/* For n_ops open ops at a time, at most ORDER_OPS_MAX.  Returns 0 or -ENOMEM. */
int order_init(struct order *order, uint32_t n_ops);
void order_deinit(struct order *order); /* zeroes are fine */

/*
 * Adds an op behind all others of the channel; file stands for its inode.  Returns its node.  The op
 * may start if order_may_start() says so; else ready() of an order_end() gets op.
 */
uint16_t order_add(struct order *order, const void *file, enum order_kind kind, uint64_t off,
		   uint64_t len, uint16_t op);
bool order_may_start(const struct order *order, uint16_t node);

/*
 * The op is cancelled while it waits.  True: it may end at once, and its node is no longer its own.
 * False: too many ops have done that, so the op has to wait until it is ready.
 */
bool order_abandon(struct order *order, uint16_t node);

/*
 * The op has ended and its completion is in the ring.  Ops that waited for it alone are handed to
 * ready(), which does not call the order again.
 */
void order_end(struct order *order, uint16_t node, void (*ready)(uint16_t op, void *arg),
	       void *arg);

#endif
