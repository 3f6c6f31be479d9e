/*
 * A job file of bench mix: clients, in fio's words.
 *
 *     [global]              of all sections behind it
 *     runtime=5
 *     [loader]              a client
 *     rw=read
 *     bs=1M
 *     iodepth=8
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_MIX_JOB_H
#define DSAIO_CLIENT_CTL_BENCH_MIX_JOB_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MIX_CLIENTS_MAX 64u	  /* a guess: more are not readable */
#define MIX_DEPTH_MAX 256u	  /* entries that a handle has anyway are more */
#define MIX_BUFFER_MAX (1u << 30) /* bs * iodepth, in the pool: a guess */

struct mix_client {
	char name[52];
	uint64_t rw;		   /* mix_job.c's */
	uint64_t io_class;	   /* an enum dsaio_class */
	uint64_t block_size, size; /* bytes of an op and of its file */
	uint64_t depth;		   /* ops under way */
	uint64_t read_percent;
	uint64_t rate, rate_iops; /* bytes and ops a second at most; 0: any */
	uint64_t runtime_nsec;
};

struct mix_job {
	struct mix_client clients[MIX_CLIENTS_MAX];
	unsigned n;
};

int mix_is_random(const struct mix_client *client);

/* Nanoseconds from one op to the next; 0: at once. */
uint64_t mix_interval_nsec(const struct mix_client *client);

/* Returns 0, or -EINVAL, -EIO, and in text (of size bytes) which line is wrong, and why. */
int mix_job_read(FILE *file, struct mix_job *ret_job, char *text, size_t size);

#endif
