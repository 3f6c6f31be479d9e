/*
 * A probe: whether io_submit waits on a store until the bytes are moved.
 *
 * It should only start the I/O; FUSE, some network file systems and ZFS do all the work inside it,
 * so one thread never has more than one block under way there.  On such a store worker threads, as
 * many as a profile's queue depth, do the blocks instead of a lane's engine.
 *
 * What tells is the share of a block's time that passed inside io_submit: of some overwrites and
 * reads of a nameless file in the store's directory, or reads of a device.  A copy in memory (DAX)
 * is all inside, too, but so short that waking a thread for it would cost more.  Where nothing
 * could be measured the kind of the file system says what is to be feared.
 *
 * Where a nameless file can not be made it has a name until it is open, .dsaiod-probe-UID; one that a
 * daemon left is removed by the next.  A store that exists only since somebody opened a file there is
 * not measured: for a client the daemon opens no path.
 *
 * The measuring may block, for ever if the file system does, and runs on a worker thread.
 */
#ifndef DSAIO_DAEMON_STORE_PROBE_H
#define DSAIO_DAEMON_STORE_PROBE_H

#include "daemon/base/fs_type.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_TEXT_BYTES 120

struct probe {
	int error;		/* a negative errno: nothing was measured */
	uint32_t share_percent; /* median; of reads or writes, what is worse */
	uint64_t inside_nsec;	/* of a block, median, of the same */
	bool knows_nowait;	/* RWF_NOWAIT: so that a lane need not fear to wait */
};

/* Measures a directory's file system, or a device.  At most PROBE_NSEC, if every block comes back. */
#define PROBE_NSEC 500000000u
void probe_measure(const char *path, bool is_device, struct probe *ret_probe);

/*
 * What follows for a store whose file system is of this kind, and a sentence's end
 * that says why.  probe: NULL: there was no place to measure.
 */
bool probe_judge(const struct probe *probe, const struct fs_type *fs_type,
		 char text[PROBE_TEXT_BYTES]);

#endif
