/*
 * Shared by the measures: the rows, a private daemon with its open objects, and the course of a
 * comparison.  bench.c has measures of the core, digest.c those beside fio and DeepNVMe,
 * control.c control calls beside a load of others, everyday.c those of any memory, any file and no
 * configuration, fresh.c the first use of memory, recorder.c an event of the flight recorder, restart.c
 * restarts of the daemon, gpu.c those of copies by a GPU, sharing.c those of programs side by side, small.c
 * the matrix of small ops.
 */
#ifndef DSAIO_TESTS_BENCH_BENCH_H
#define DSAIO_TESTS_BENCH_BENCH_H

#include <stdint.h>

#include "client/lib/dsaio.h"
#include "tests/bench/local.h"
#include "tests/bench/process.h"
#include "tests/bench/report.h"
#include "tests/bench/small_rows.h"
#include "tests/calls.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define READ_MIB 400u
#define READ_BYTES ((uint64_t)READ_MIB << 20)
#define FILE_BYTES (READ_BYTES + (1u << 20)) /* for what reads more, from an odd offset on */
#define LARGE_BYTES (1u << 20)
#define LARGE_DEPTH 32u
#define SMALL_BYTES ((uint64_t)4096)
#define SMALL_DEPTH LOCAL_DEPTH_MAX

/* A comparison ends after this time, once it has ROUNDS_MIN rounds. */
#define COMPARISON_NSEC INT64_C(5000000000)

/* Thousands of small reads, and still short against the swings of a disk that others share. */
#define SLICE_USEC INT64_C(250000)

#define GPU_ROWS 24
#define CONTROL_ROWS 36
#define RESTART_ROWS 49

enum {
	ROW_READ,
	ROW_READ_DEEPNVME,
	ROW_READ_CPU,
	ROW_WRITE,
	ROW_WRITE_DEEPNVME,
	ROW_WRITE_CPU,
	ROW_READ_HUGE,
	ROW_WRITE_HUGE,
	ROW_READ_MANY,
	ROW_WRITE_MANY,
	ROW_LATENCY,
	ROW_LATENCY_SLEEPING,
	ROW_IOPS,
	ROW_IOPS_LOCAL,
	ROW_IOPS_SOME,
	ROW_IOPS_MEMORY,
	ROW_IOPS_MEMORY_WRITE,
	ROW_PATH,
	ROW_FILES,
	ROW_FILES_DEEPNVME,
	ROW_PRIVATE,
	ROW_PRIVATE_COPY,
	ROW_PRIVATE_WRITE,
	ROW_PRIVATE_WRITE_COPY,
	ROW_ODD,
	ROW_ODD_ALIKE,
	ROW_AUTOSTART,
	ROW_REST_TICKS,
	ROW_REST_SWITCHES,
	ROW_MEMORY_ONE,
	ROW_MEMORY_FURTHER,
	ROW_MEMORY_HANDLE,
	ROW_FRESH,
	ROW_FRESH_WRITTEN,
	ROW_SMALL_BESIDE,
	ROW_BIG_BESIDE,
	ROW_SHARES,
	ROW_SHARES_WEIGHTED,
	ROW_SMALL_BESIDE_WRITES,
	ROW_WRITES_BESIDE,
	ROW_SHARES_WRITE,
	ROW_SHARES_WEIGHTED_WRITE,
	ROW_NEWCOMER_LARGE,
	ROW_NEWCOMER,
	ROW_GUEST_READ,
	ROW_GUEST_READ_SMALL,
	ROW_GUEST_READ_P99,
	ROW_GUEST_READ_BACK,
	ROW_GUEST_WRITE,
	ROW_GUEST_WRITE_SMALL,
	ROW_GUEST_WRITE_P99,
	ROW_GUEST_WRITE_BACK,
	ROW_READ_LOCAL,
	ROW_WRITE_LOCAL,
	ROW_NOWAIT_LATENCY,
	ROW_NOWAIT_IOPS,
	ROW_NOWAIT_STREAM,
	ROW_NOWAIT_IOPS_AMONG,
	ROW_NOWAIT_STREAM_AMONG,
	ROW_RECORDER,
	ROW_GPU,			  /* the first of GPU_ROWS, which gpu.c names */
	ROW_CONTROL = ROW_GPU + GPU_ROWS, /* the first of CONTROL_ROWS, which control.c names */
	ROW_RESTART = ROW_CONTROL +
		      CONTROL_ROWS, /* the first of RESTART_ROWS, which restart.c names */
	ROW_SMALL = ROW_RESTART + RESTART_ROWS, /* the first of SMALL_ROWS, which small.c names */
	N_ROWS = ROW_SMALL + SMALL_ROWS
};
extern struct row rows[N_ROWS];

/* The daemon and what is open in it: of one measure. */
struct bench {
	char *program; /* dsaiod */
	char *dir;     /* our temporary directory: the store */
	char *path;    /* the file in it, the first of files.h */
	struct private_daemon daemon;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	char *memory;  /* pinned */
	bool is_write; /* small ops are writes */
	struct local local;
};

/* Says on stderr what the library said; -EIO. */
int failed(const char *what);

/* With all that is in it; says on stderr what stays. */
void dir_remove(const char *dir);

/* Starts a daemon with that configuration and opens all in it; memory: so many bytes. */
int ours_open(struct bench *b, const char *config, const struct dsaio_profile *profile,
	      uint64_t memory_bytes);
/* With the large profile and memory for the whole file. */
int ours_open_large(struct bench *b);
/* Also after an ours_open() that failed half way. */
void ours_close(struct bench *b);
/* READ_BYTES into b->memory. */
int ours_read_bandwidth(struct bench *b, double *ret_bandwidth);
/* And from there. */
int ours_write_bandwidth(struct bench *b, double *ret_bandwidth);

/* In-process libaio on the file's first READ_BYTES. */
int local_latency(struct bench *b, double *ret_usec);
int local_iops(struct bench *b, double *ret_iops);
int local_read_bandwidth(struct bench *b, double *ret_bandwidth);

/* Before a round of the row: says so, or -EINTR after a signal. */
int round_begin(const struct row *row, unsigned round);
/*
 * Runs each of the n sides once, another one first each round; values in the order of the sides.
 * 0 or -errno.
 */
int round_run(struct bench *b, const struct row *row, unsigned round,
	      int (*const sides[])(struct bench *, double *), unsigned n, double *ret_values);

/* Fills the row; unit: how many of what the functions give make one of the row's. */
int compare(struct bench *b, struct row *row, double unit, int (*ours)(struct bench *, double *),
	    int (*reference)(struct bench *, double *));
/* The same without a reference. */
int repeat(struct bench *b, struct row *row, int (*ours)(struct bench *, double *));

/* digest.c */
int measure_bandwidth(struct bench *b);
int measure_bandwidth_huge(struct bench *b);
int measure_bandwidth_many(struct bench *b);
int measure_iops(struct bench *b);

/* everyday.c */
int measure_files(struct bench *b);
int measure_path(struct bench *b);
int measure_private(struct bench *b);
int measure_odd(struct bench *b);
int measure_autostart(struct bench *b);
int measure_nowait(struct bench *b);

/* fresh.c */
int measure_fresh(struct bench *b);

/* control.c */
int measure_control_alloc(struct bench *b);
int measure_control_import(struct bench *b);
int measure_control_connect(struct bench *b);

/* recorder.c */
int measure_recorder(struct bench *b);

/* restart.c */
int measure_restart(struct bench *b);

/* gpu.c */
int measure_gpu_copies(struct bench *b);

/* small.c */
int measure_small_matrix(struct bench *b);

/* sharing.c */
int measure_neighbour(struct bench *b);
int measure_neighbour_write(struct bench *b);
int measure_shares(struct bench *b);
int measure_shares_write(struct bench *b);
int measure_guest(struct bench *b);
int measure_newcomer(struct bench *b);

#endif
