#include "daemon/lane/op.h"

#include "daemon/object/file.h"
#include "proto/ring.h"

#include <stddef.h>

#define BIT(state) (1u << (state))

static const uint8_t may_follow[N_OP_STATES] = {
	[OP_FREE] = BIT(OP_WAITS_ORDER),
	[OP_WAITS_ORDER] = BIT(OP_READY) | BIT(OP_ENDED),
	[OP_READY] = BIT(OP_DEFERRED) | BIT(OP_RUNNING),
	[OP_DEFERRED] = BIT(OP_READY) | BIT(OP_RUNNING),
	[OP_RUNNING] = BIT(OP_READY) | BIT(OP_ENDED),
	[OP_ENDED] = BIT(OP_FREE),
};

void op_set_state(struct op *op, enum op_state state)
{
	assert(may_follow[op->state] & BIT(state));
	op->state = (uint8_t)state;
}

void op_stop_at(struct op *op, uint64_t pos, int error)
{
	if (pos > op->end || (pos == op->end && !error))
		return;
	op->end = pos;
	op->error = (uint16_t)error;
}

int64_t op_result(const struct op *op)
{
	return op->error ? ring_result_failed(op->error, op->end) : (int64_t)op->end;
}
