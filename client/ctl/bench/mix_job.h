/*
 * A job file of bench mix: clients, in fio's words.
 *
 *     [global]              of all sections behind it
 *     runtime=5
 *     [loader]              a client
 *     rw=read
 *     bs=1M
 *     iodepth=8
 *     [others]
 *     numjobs=3             three of them: others.1, others.2, others.3
 *
 * Pure, except that it reads the file.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_MIX_JOB_H
#define DSAIO_CLIENT_CTL_BENCH_MIX_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MIX_CLIENTS_MAX 64u	  /* a guess: more are not readable */
#define MIX_DEPTH_MAX 256u	  /* entries that a handle has anyway are more */
#define MIX_BUFFER_MAX (1u << 30) /* bs * iodepth, in the pool: a guess */

enum mix_rw { MIX_READ, MIX_WRITE, MIX_RANDREAD, MIX_RANDWRITE, MIX_RW, MIX_RANDRW, N_MIX_RW };
extern const char *const mix_rw_names[N_MIX_RW + 1]; /* the last is NULL */
extern const char *const mix_class_names[];	     /* by enum dsaio_class */

struct mix_client {
	char name[48];
	uint64_t rw, io_class;		  /* enum mix_rw, enum dsaio_class */
	uint64_t block_size, size, depth; /* bytes of an op and of its file; ops under way */
	uint64_t read_percent;		  /* of MIX_RW and MIX_RANDRW */
	uint64_t rate, rate_iops;	  /* bytes and ops a second at most; 0: any */
	uint64_t runtime_nsec, weight, n_jobs;
};

struct mix_job {
	struct mix_client clients[MIX_CLIENTS_MAX];
	unsigned n;
};

static inline bool mix_is_random(const struct mix_client *client)
{
	return client->rw == MIX_RANDREAD || client->rw == MIX_RANDWRITE ||
	       client->rw == MIX_RANDRW;
}

/* How many of a hundred ops are reads. */
unsigned mix_read_percent(const struct mix_client *client);

/* Nanoseconds from one op to the next; 0: at once. */
uint64_t mix_interval_nsec(const struct mix_client *client);

/* Returns 0, or -EINVAL, -EIO, and in text (of size bytes) which line is wrong, and why. */
int mix_job_read(FILE *file, struct mix_job *ret_job, char *text, size_t size);

#endif
