/*
 * The open ops of one channel by their ids, for a cancel.
 *
 * A hash table of lists.  A client chooses its ids, and several ops may have the same.  So the hash has
 * a secret multiplier for each channel, and adding and removing look at no other op.  Room for all ops
 * is set aside.  Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_OP_IDS_H
#define DSAIO_DAEMON_LANE_OP_IDS_H

#include "daemon/lane/op.h"

struct op_ids {
	struct op *ops;	   /* borrowed: the channel's; numbers begin at 1; 0: none */
	uint16_t *buckets; /* owned; the first op of each value of the hash */
	uint64_t multiplier;
	uint16_t shift;
};

/* Returns 0, -ENOMEM, or what getrandom(2) says. */
int op_ids_init(struct op_ids *ids, struct op *ops, uint32_t n_ops);
void op_ids_deinit(struct op_ids *ids); /* zeroes are fine */

void op_ids_add(struct op_ids *ids, struct op *op);
void op_ids_remove(struct op_ids *ids, struct op *op);

/* An op with that id, and another one; NULL: there is none. */
struct op *op_ids_first(const struct op_ids *ids, uint64_t id);
struct op *op_ids_next(const struct op_ids *ids, const struct op *op);

#endif
