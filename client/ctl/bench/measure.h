/*
 * The result of a measurement of several processes, in ds_io's terms.  Bytes are the sum over all
 * processes, a latency is the slowest process's sum over its loops, and 1 GB is 1024^3 bytes.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_MEASURE_H
#define DSAIO_CLIENT_CTL_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The sums of one process over all loops that count. */
struct measure_part {
	double task_sec; /* the I/O calls alone */
	double e2e_sec;	 /* the wait for the other processes, too */
	uint64_t bytes;
};

struct measure {
	double task_sec, task_speed; /* GB/s */
	double e2e_sec, e2e_speed;
	uint64_t bytes;
};

void measure_sum(const struct measure_part *parts, size_t n_parts, struct measure *ret_measure);

/* The four lines that ds_io prints and programs read: digit for digit as Python writes them. */
void measure_print(const struct measure *measure, bool is_read, FILE *out);

#endif
