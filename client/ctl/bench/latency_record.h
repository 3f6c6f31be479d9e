/*
 * The latencies of all transfers of one size and direction: recorded without allocation, then shown
 * as DS-AIO-Benchmark shows them, or as JSON.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_LATENCY_RECORD_H
#define DSAIO_CLIENT_CTL_BENCH_LATENCY_RECORD_H

#include "client/ctl/bench/histogram.h"
#include "client/ctl/bench/point.h"

#include <stdio.h>

struct json_object;

#define LATENCY_SLICES 200u /* of the series over time */

/* Memory of zeros is an empty record.  May be shared: one process writes, another reads later. */
struct latency_record {
	uint64_t took_nsec, bytes; /* until the end of the last one */
	uint64_t starting_nsec;	   /* open loop: from the first start to the last one */
	struct {
		double sum_nsec;
		uint64_t n, at_nsec;
	} slices[LATENCY_SLICES];
	double speed_sum, speed_squares; /* of each transfer's bandwidth, in MB/s */
	struct bench_histogram histogram;
};

/* Adds a transfer of size bytes: when it began, since the first one, and how long it took. */
void latency_record_add(struct latency_record *record, uint64_t size, uint32_t n_iterations,
			uint64_t at_nsec, uint64_t nsec);

/* Transfers of the open loop that began in a second; 0: there was only one. */
double latency_record_rate(const struct latency_record *record);

/*
 * The rows of DS-AIO-Benchmark, with the units of all commands.  rate: the one asked for; 0: closed loop.  A
 * transfer's bandwidth falls as its latency grows, so the 99th percentile of the bandwidth belongs
 * to the first of the latency.
 */
void latency_record_print(const struct latency_record *record, enum bench_op op, uint64_t size,
			  uint32_t rate, FILE *out);

/* The element of latency.json's array "latency" (cmd/bench_latency.c); the caller's. */
struct json_object *latency_record_json(const struct latency_record *record, enum bench_op op,
					uint64_t size, uint32_t rate);

#endif
