/*
 * The sides of a comparison.  Each does the same work in its own way.
 *
 * A point says what work, in plain numbers; a side is opened at a point (its processes, memory,
 * daemon: all that costs only once), runs slices of it on command, and says for each in plain
 * numbers what came of it.  Many sides may be open at once: an open one that does not run uses
 * memory, but no CPU.  The files, dir/data.0 and so on, one for each process (or one for all), are
 * made before, by files_make(), so that all sides touch the same ones.
 *
 * An op larger than a block is one request of a program (one tensor) that goes to the device in
 * blocks; the depth counts what is in flight there: ops, or blocks of such an op, as
 * DeepNVMe's queue_depth and fio's iodepth (with bs at the block) do.
 *
 * One thread.  Errors are written to side->why, nothing to stderr.
 */
#ifndef DSAIO_TESTS_BENCH_SIDE_H
#define DSAIO_TESTS_BENCH_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/dsaio.h"

struct point {
	const char *dir; /* borrowed; where the files lie */
	uint64_t op_bytes;
	uint64_t file_bytes; /* of each process's file; a multiple of op_bytes */
	bool is_one_file;    /* all processes use the first file */
	bool is_write;
	bool is_random; /* each op anywhere in the file; else one after the other, round and round */
	unsigned depth;
	unsigned n_processes;
	/*
	 * block_size and queue_depth: of an op in blocks, on all sides.  All five: of deepnvme.
	 * point_profile() has what fits a point.
	 */
	struct dsaio_profile profile;
	int64_t slice_usec;
	unsigned slice_ops; /* not 0: each process does exactly so many, whatever slice_usec says */
};

/* Result of a slice, over all processes of the side. */
struct result {
	uint64_t bytes, ops;
	double seconds;	    /* from the common start to the end of the last process's last op */
	double cpu_seconds; /* user and system, of the side's clients and (ours) its daemon */
	double daemon_cpu_seconds; /* the daemon's share of it; 0 without one */
	uint64_t sleeps,
		daemon_sleeps; /* context switches of a thread that waits: all; the daemon's */
	double mean_usec, p50_usec,
		p99_usec;     /* of an op's time, submission to result; 0: not known */
	unsigned block_bytes; /* as asked for */
	double depth;
};

struct side {
	const struct side_kind *kind;
	struct point point;
	void *state; /* the kind's own */
	char why[512];
};

struct side_kind {
	const char *name;
	/* 0, or a negative errno and side->why; -EOPNOTSUPP: this point is not for that kind. */
	int (*open)(struct side *side);
	int (*run)(struct side *side, struct result *ret_result);
	void (*close)(struct side *side); /* also after an open() that failed */
	/* A command line that can be typed, or NULL: it is no program of its own. */
	int (*command)(const struct point *point, char *ret_text, size_t size);
};

/* NULL: there is none. */
const struct side_kind *side_kind_find(const char *name);

/* The daemon that ours starts: a whole path.  Must be set before ours is opened. */
extern const char *side_daemon_program;

int side_open(struct side *side, const struct side_kind *kind, const struct point *point);
int side_run(struct side *side, struct result *ret_result);
void side_close(struct side *side); /* fine if it is not open */

/* Most ops in flight of a process of this point, and the bytes of their memory. */
unsigned point_ops_in_flight(const struct point *point);
uint64_t point_memory_bytes(const struct point *point);
/* The file of process index; path: FILES_PATH_BYTES. */
void point_path(const struct point *point, unsigned index, char *path);
/* The same file, opened with O_DIRECT; or a negative errno, and text in why (of size bytes). */
int point_open(const struct point *point, unsigned index, char *why, size_t size);
/* The bytes of one request to the device: op_bytes, or the profile's blocks of it. */
uint64_t point_block_bytes(const struct point *point);
/* Blocks of 1 MiB, depth of them, refilled as completions come, one part. */
struct dsaio_profile point_profile(unsigned depth);

static inline double result_bytes_per_sec(const struct result *r)
{
	return r->seconds > 0 ? (double)r->bytes / r->seconds : 0;
}

static inline double result_ops_per_sec(const struct result *r)
{
	return r->seconds > 0 ? (double)r->ops / r->seconds : 0;
}

#endif
