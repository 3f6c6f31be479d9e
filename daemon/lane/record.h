/*
 * The events that a lane writes to its flight recorder.  An event has the time of the lane's turn, so it costs
 * no look at the clock: all events of a turn have the same time, and are in their order.
 *
 * Lane only.
 */
#ifndef DSAIO_DAEMON_LANE_RECORD_H
#define DSAIO_DAEMON_LANE_RECORD_H

#include "daemon/account/recorder.h"
#include "daemon/lane/channel.h"
#include "daemon/lane/turn.h"
#include "daemon/object/file.h"

/* The caller has set the fields in which events of the op differ. */
static inline void record(const struct lane_turn *turn, const struct op *op,
			  struct recording_event event)
{
	const struct channel *channel = op->channel;

	if (!turn->recording)
		return;
	event.nsec = turn->now_nsec;
	event.id = op->id;
	event.client = channel->who.client;
	event.channel = channel->id;
	event.pid = (uint32_t)channel->who.pid;
	event.uid = channel->uid;
	recorder_add(turn->recording, &event);
}

/* The entry as the client wrote it, also where it is refused. */
static inline void record_entry(const struct lane_turn *turn, const struct op *op,
				const struct ring_entry *entry)
{
	record(turn, op,
	       (struct recording_event){ .kind = RECORDING_TAKEN,
					 .opcode = entry->opcode,
					 .file = entry->file,
					 .off = entry->off,
					 .len = entry->len });
}

/* An op that was refused has no file and no range. */
static inline void record_op(const struct lane_turn *turn, enum recording_kind kind,
			     const struct op *op, int64_t result)
{
	record(turn, op,
	       (struct recording_event){ .kind = (uint8_t)kind,
					 .opcode = op->opcode,
					 .file = op->file ? op->file->id : 0,
					 .off = op->file ? op->off : 0,
					 .len = op->len,
					 .result = result });
}

static inline void record_block(const struct lane_turn *turn, enum recording_kind kind,
				const struct block *block)
{
	const struct op *op = block->op;
	int64_t result = 0;

	if (kind == RECORDING_BLOCK_DONE)
		result = block->result < 0 ? ring_result_failed((int)-block->result, block->best)
					   : block->best;
	record(turn, op,
	       (struct recording_event){ .kind = (uint8_t)kind,
					 .opcode = block->operation == BLOCK_EXTEND
							   ? RECORDING_OP_EXTEND
							   : op->opcode,
					 .file = op->file->id,
					 .off = block_start(block),
					 .len = block->bytes,
					 .result = result });
}

#endif
