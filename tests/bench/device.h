/*
 * The kernel's counters of the block device below a directory: the real size of the requests that
 * reached it, and the number in flight.
 */
#ifndef DSAIO_TESTS_BENCH_DEVICE_H
#define DSAIO_TESTS_BENCH_DEVICE_H

#include <stdint.h>

struct device {
	char path[64]; /* of its counters; "": it has none (tmpfs, a file system over a network) */
};
void device_find(const char *dir, struct device *ret_device);

/* Since the system's start; all 0 without counters. */
struct device_counters {
	uint64_t requests, bytes; /* reads and writes that ended */
	uint64_t waited_msec;	  /* the sum over all requests of their time */
};
void device_count(const struct device *device, struct device_counters *ret_counters);

/* Pure: the line of /sys/block/DEVICE/stat.  0 or -EBADMSG. */
int device_parse(const char *line, struct device_counters *ret_counters);

#endif
