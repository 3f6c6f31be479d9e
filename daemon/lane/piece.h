/*
 * A piece: a range of an op that a worker thread transfers with blocking calls, because a lane must not
 * block.  Pieces are the unaligned heads and tails of writes, ranges with misaligned memory, and
 * blocks that the kernel returned because they would block (RWF_NOWAIT).  Syncs, and steps of an
 * extension (extend.h), are pieces without a range.
 *
 * The lane fills it in, piece_do() runs on the work queue, and the lane takes the result.
 */
#ifndef DSAIO_DAEMON_LANE_PIECE_H
#define DSAIO_DAEMON_LANE_PIECE_H

#include "daemon/object/extend.h"
#include "daemon/base/work_queue.h"
#include "daemon/base/mailbox.h"

#include <stdbool.h>
#include <stdint.h>

struct transfer;
struct op;

/* The largest piece of a misaligned range: bounds the memory of a read, and the time of a thread. */
#define PIECE_BYTES (1u << 20)

enum piece_way {
	PIECE_DIRECT,	/* read or write by the direct description; all is aligned */
	PIECE_BUFFERED, /* write by the buffered description */
	PIECE_BOUNCE,	/* read whole units by the direct description, copy the wanted bytes */
	PIECE_SYNC,	/* fsync, of no bytes */
	PIECE_DATASYNC,
	PIECE_EXTEND, /* allocate; no bytes */
};

struct piece {
	/* for piece_do() */
	enum piece_way way;
	bool is_write;
	int fd;
	char *memory; /* never touched */
	uint64_t off;
	uint32_t len;
	uint32_t offset_align, memory_align; /* of the file: transfers continue at multiples */
	uint32_t done;			     /* bytes, with those that a returned block had done */
	int error;			     /* positive; 0 and done < len: the end of the file */
	struct extend_step step;	     /* of PIECE_EXTEND */

	/* the lane's */
	struct transfer *transfer;
	struct op *op;
	struct piece *next;
	struct work work;
	struct message message;
	uint32_t bytes;	       /* in flight, as counted */
	uint16_t channel_lane; /* whose depth it counts in */
	bool is_block;	       /* worker threads are its engine: it counts as its client's block */
};

void piece_do(struct piece *piece);

#endif
