/*
 * A probe measures whether io_submit(2) on a store blocks until the bytes are moved.
 *
 * io_submit should only start the I/O.  On FUSE, some network file systems and ZFS it does all the
 * work, so one thread never has more than one block in flight there.  On such a store worker threads
 * move the blocks instead of the lanes' engine.  A profile's queue depth is the number of threads.
 *
 * The probe overwrites and reads blocks of an unnamed file in the store's directory, or reads blocks
 * of the device.  A block has waited if it was done when io_submit returned, and the thread slept in
 * io_submit or worked there for long.  These are causes, not times, because a busy host takes the
 * processor away anywhere in io_submit, and a fast disk is done by then.  A copy in memory (DAX) is
 * done inside, too, but it is so short that waking a thread would cost more.  The verdict is that of
 * most blocks.  If the probe can measure nothing, the kind of the file system decides.
 *
 * If the file system has no unnamed files (O_TMPFILE), the file is named .dsaiod-probe-UID until it is
 * open.  The next daemon removes a file that a crashed daemon left.  Automatic stores are not measured,
 * because the daemon opens no path for a client.
 *
 * The probe blocks as long as the file system does, possibly forever, so it runs on a worker thread.
 */
#ifndef DSAIO_DAEMON_STORE_PROBE_H
#define DSAIO_DAEMON_STORE_PROBE_H

#include "daemon/base/fs_type.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_TEXT_BYTES 120

#define PROBE_BLOCKS 16 /* in each direction; a guess */

struct probe_block {
	bool was_done;	   /* when io_submit returned */
	bool has_slept;	   /* in io_submit: not only since another thread got the processor */
	uint64_t cpu_nsec; /* the thread's, in io_submit */
};

struct probe {
	int error;	   /* a negative errno: nothing was measured */
	bool knows_nowait; /* the file system accepts RWF_NOWAIT, so a lane does not block */
	unsigned n_blocks[2];
	struct probe_block blocks[2][PROBE_BLOCKS]; /* reads, writes */
};

/* Measures a directory's file system, or a device.  Takes about PROBE_NSEC at most if no block hangs. */
#define PROBE_NSEC 500000000u
void probe_measure(const char *path, bool is_device, struct probe *ret_probe);

/*
 * Returns whether io_submit blocks on a store with this file system.  text gets the reason, as the end
 * of a message.  probe: NULL if nothing could be measured.
 */
bool probe_judge(const struct probe *probe, const struct fs_type *fs_type,
		 char text[PROBE_TEXT_BYTES]);

#endif
