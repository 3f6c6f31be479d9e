/*
 * Extension: a file becomes long enough before direct blocks are written behind its end.
 *
 * A direct write that extends a file holds the inode's lock until the device is done, so such blocks
 * run one at a time, and io_submit waits for them.  So the range is allocated first: fallocate(2) on
 * a worker thread moves the size and reserves blocks, then the blocks go by the engine as any others.
 *
 * It advances in steps of at most EXTEND_BYTES (or a block of each part) for all parts of an op
 * together.  A step starts when all blocks within the step before have started, so a write that is
 * too large for the file system never holds more than one step of free space that it has no data
 * for.  It does not start earlier: fallocate(2) waits for the inode's direct I/O in flight, and holds
 * up what is started meanwhile.
 *
 * Nothing here, nor in the client library, shrinks a file after a failure: only the kernel knows
 * whether another process has written behind the end by then.  After the first step that fails the
 * op starts no further block and ends with that errno; the file keeps the size that it has.
 *
 * A file has one step at a time.  Ops that need one meanwhile wait outside of their channels, as at
 * the mode lock.  A file is one client's, and only that client waits for the step: it may be queued for as
 * long as other calls of the same user hang.  Steps of several clients for one inode run together;
 * the kernel puts them in order.  The step holds no mode lock: the kernel lets no direct I/O of the inode
 * run beside it.
 *
 * An op may be one piece of a larger write (ring_entry.grow_end): its step goes on to that end, and
 * the extension remembers the range for the pieces that follow.
 *
 * extend_step_do(): any thread; struct extension: home lane; the rest are pure functions.
 */
#ifndef DSAIO_DAEMON_OBJECT_EXTEND_H
#define DSAIO_DAEMON_OBJECT_EXTEND_H

#include "daemon/object/split.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

#define EXTEND_BYTES ((uint64_t)64 << 20)

struct extend_step {
	uint64_t off, len;   /* the first range, in the file */
	uint64_t own_len;    /* of it, what the op itself needs */
	uint64_t stride;     /* from the start of a range to that of the next */
	uint64_t end;	     /* no range goes beyond */
	uint32_t n_ranges;   /* one, or one for each part */
	uint32_t n_extended; /* blocks with lower numbers may start after it */
};

/*
 * The step that block number `block` needs.  off: where the split's first byte lies in the file;
 * grow_end: where the file may end, at least the op's end.
 */
struct extend_step extend_step(const struct split *split, uint32_t block, uint64_t off,
			       uint64_t grow_end);

/*
 * Allocates the step's ranges.  Where there is no room for more than the op needs, it tries that
 * and cuts the step.  May block.  Returns 0 or a positive errno.
 */
int extend_step_do(int fd, struct extend_step *step);

struct extension {
	struct list waiting; /* ops, for the step that runs; the op that it is for is among them */
	bool is_running;
	uint32_t n_ops;	   /* open ops that may need steps */
	uint64_t from, to; /* the range allocated last; of no use once all these ops have ended */
};

/* Is what the op needs of this step allocated? */
bool extension_has(const struct extension *extension, const struct extend_step *step);
/* The step was done. */
void extension_note(struct extension *extension, const struct extend_step *step);
void extension_add_op(struct extension *extension);
void extension_remove_op(struct extension *extension);

#endif
