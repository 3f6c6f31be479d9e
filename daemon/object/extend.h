/*
 * Extension: the daemon extends a file before it writes direct blocks behind the file's end.
 *
 * A direct write that extends a file holds the inode's lock until the device is done.  Such blocks would
 * run one at a time, and io_submit would block.  So a worker thread allocates the range first:
 * fallocate(2) moves the size and reserves blocks.  Then the engine moves the blocks like others.
 *
 * It advances in steps of at most EXTEND_BYTES, or of a block.  A step starts when all blocks of the previous
 * step have started.  So a write that is too large for the file system never allocates more than one step
 * beyond its data.  A step does not start earlier, because fallocate(2) waits for the inode's direct I/O
 * in flight, and delays direct I/O that starts meanwhile.
 *
 * Neither the daemon nor the client library shrinks a file after a failure: only the kernel knows
 * whether another process has written behind the end by then.  After the first step that fails the
 * op starts no further block and ends with that errno; the file keeps the size that it has.
 *
 * A file has one step at a time.  Ops that need a step meanwhile wait outside of their channels, as at
 * the mode lock.  A file belongs to one client, and only that client waits for the step, which may be
 * queued while other calls of the same user hang.  Steps of several clients for one inode run
 * concurrently, and the kernel orders them.  The step takes no mode lock, because the kernel runs no
 * direct I/O of the inode at the same time.
 *
 * An op may be a part of a larger write (ring_entry.grow_end): its step extends to that end, and
 * the extension remembers the range for the parts that follow.
 *
 * extend_step_do(): any thread; struct extension: lane; the rest are pure functions.
 */
#ifndef DSAIO_DAEMON_OBJECT_EXTEND_H
#define DSAIO_DAEMON_OBJECT_EXTEND_H

#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>

#define EXTEND_BYTES ((uint64_t)64 << 20)

struct extend_step {
	uint64_t off, len; /* the range, in the file */
	uint64_t own_len;  /* the part of len that the op itself needs */
	uint64_t extended; /* so many bytes of the op may start after it; UINT64_MAX: all */
};

/*
 * The step that the block of byte `next` needs, in an op of len bytes which is cut at multiples of block_bytes.
 * off: where its first byte lies in the file; grow_end: where the file may end, at least the op's end.
 */
struct extend_step extend_step(uint64_t len, uint32_t block_bytes, uint64_t next, uint64_t off,
			       uint64_t grow_end);

/*
 * Allocates the step's range.  If there is no room for all of it, allocates only the op's own part and
 * cuts the step.  May block.  Returns 0 or a positive errno.
 */
int extend_step_do(int fd, struct extend_step *step);

struct extension {
	struct list waiting; /* ops that wait for the step that runs, also the op that needs it */
	bool is_running;
	struct extend_step step; /* while it runs, the worker's */
	uint32_t n_ops;		 /* open ops that may need steps */
	uint64_t from, to; /* the range allocated last; of no use once all these ops have ended */
};

/* Whether the part of this step that the op needs is allocated. */
bool extension_has(const struct extension *extension, const struct extend_step *step);
/* The step was done. */
void extension_note(struct extension *extension, const struct extend_step *step);
void extension_add_op(struct extension *extension);
void extension_remove_op(struct extension *extension);

#endif
