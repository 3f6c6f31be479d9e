/*
 * The subject of a bench: its folders with their file systems and devices, and the machine.
 *
 * A folder's device is found by its device number, or, where the file system has one of its own
 * (btrfs, overlay), by the mount's source.  tmpfs and the like have none.
 *
 * The kernel's counters of the device show whether others used it while a point was measured, since they
 * then grow by more than the point's own transfers.  They do not tell whose bytes these are.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_PLACE_H
#define DSAIO_CLIENT_CTL_BENCH_PLACE_H

#include "proto/profile.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct json_object;

struct bench_place {
	char folder[PATH_MAX]; /* absolute */
	dev_t file_system;     /* st_dev */
	ino_t inode;	       /* of the folder */
	dev_t device;	       /* 0: none is known */
	dev_t disk;	       /* the device, or the whole disk of a partition */
	char device_name[64];  /* "nvme0n1p1"; "": none */
	char model[128];       /* "": the device has none */
	char fs_type[32], mount[PATH_MAX];
	uint64_t size_bytes, free_bytes;
	bool is_memory;		/* tmpfs, ramfs */
	bool is_virtual;	/* a virtual machine's: its host may cache what it says is read */
	uint32_t store, number; /* guest.c: of the daemon: its id, and its number for channels */
	char store_name[64], engine[32];
	struct profile profile; /* the store's own */
	uint64_t file_bytes;	/* of its test files (files.h); 0: as of all */
};

/* Returns 0, or a negative errno and in text (of size bytes) the message. */
int bench_place_find(const char *folder, struct bench_place *ret_place, char *text, size_t size);

/* Bytes read and written since boot, by the counters of the disks of these places. */
struct bench_traffic {
	uint64_t read_bytes, write_bytes;
	bool is_known; /* of each folder */
};
struct bench_traffic bench_place_traffic(const struct bench_place *places, size_t n_places);

/*
 * Bytes that these disks have moved since before beyond own, which are the bench's.  They include the
 * kernel's own traffic, such as a journal.  UINT64_MAX: there are no counters.
 */
uint64_t bench_place_others(const struct bench_place *places, size_t n_places,
			    const struct bench_traffic *before, const struct bench_traffic *own);

/* Is that more than the kernel's own traffic for own_bytes?  Not known: false. */
bool bench_is_disturbed(uint64_t others_bytes, uint64_t own_bytes);

/* For the results. */
struct json_object *bench_place_json(const struct bench_place *place);
struct json_object *bench_machine_json(void); /* host, kernel, CPU, memory */

#endif
