/*
 * The disks below the folders of a bench, and the counters that the kernel keeps of them.
 *
 * A partition's own counters do not show its neighbours on the same disk, so the whole disk is
 * watched.  Below a stacked device (dm, md) that lies on one device only, the disk at the bottom is
 * watched too: another volume may lie on it.  An array of several devices writes more below than
 * above it (mirrors, parity), so only the array is watched.  So is a loop device: the file below
 * it may be written back later.
 *
 * The caller's thread alone.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_DISKS_H
#define DSAIO_CLIENT_CTL_BENCH_DISKS_H

#include "client/ctl/bench/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_SYSFS "/sys"
#define BENCH_DISKS_TEXT_BYTES 256u

struct bench_disks;

/* Bytes that were read from and written to disks since they exist. */
struct bench_moves {
	uint64_t read_bytes, write_bytes;
};
/* Disks that the folders lie on, and those at the bottom of the stack. */
struct bench_disk_counters {
	struct bench_moves top, bottom;
	bool is_known; /* of all folders */
};

/* sysfs: BENCH_SYSFS, or a test's.  Returns 0 or -ENOMEM. */
int bench_disks_find(const char *sysfs, const struct bench_place *places, size_t n_places,
		     struct bench_disks **ret_disks);
void bench_disks_free(struct bench_disks *disks); /* NULL is fine */

struct bench_disk_counters bench_disks_read(const struct bench_disks *disks);

/* "vda, sdb"; and why there are no counters, "": there are. */
const char *bench_disks_names(const struct bench_disks *disks);
const char *bench_disks_why_not(const struct bench_disks *disks);

/*
 * The growth of the counters less own, which is what the daemon moved meanwhile and what the bench
 * moved without it.  The excess includes the kernel's own traffic for these transfers.
 */
struct bench_moves bench_disks_excess(const struct bench_disk_counters *before,
				      const struct bench_disk_counters *now,
				      const struct bench_moves *own);

/* Is the excess larger than the kernel's own traffic for own_bytes? */
bool bench_disks_are_shared(const struct bench_moves *excess, uint64_t own_bytes);

#endif
