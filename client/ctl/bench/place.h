/*
 * The subject of a bench: its folders with their file systems and devices, and the machine.
 *
 * A folder's device is found by its device number, or, where the file system has one of its own
 * (btrfs, overlay), by the mount's source.  tmpfs and the like have none.
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
	char device_name[64];  /* "nvme0n1p1"; "": none */
	char model[128];       /* "": the device has none */
	char fs_type[32], mount[PATH_MAX];
	uint64_t size_bytes, free_bytes;
	bool is_memory;	 /* tmpfs, ramfs */
	bool is_virtual; /* a virtual machine's: its host may cache what it says is read */
	uint32_t store;	 /* guest.c: of the daemon */
	char store_name[64], engine[32];
	struct profile profile; /* the store's own */
};

/* Returns 0, or a negative errno and in text (of size bytes) the sentence. */
int bench_place_find(const char *folder, struct bench_place *ret_place, char *text, size_t size);

/* Bytes read and written since boot, by the counters of the devices of these places. */
struct bench_traffic {
	uint64_t read_bytes, write_bytes;
	bool is_known; /* of each folder */
};
struct bench_traffic bench_place_traffic(const struct bench_place *places, size_t n_places);

/* For the results. */
struct json_object *bench_place_json(const struct bench_place *place);
struct json_object *bench_machine_json(void); /* host, kernel, CPU, memory */

#endif
