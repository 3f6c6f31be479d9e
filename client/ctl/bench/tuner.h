/*
 * The tuner decides which point to measure next and for how long, and judges the measurements.  It
 * knows points as numbers with costs, and measures nothing itself.
 *
 * Successive halving, for each of three goals: the fastest read, the fastest write, the largest sum
 * of both.  First all points are measured once, each by the shortest transfer that reaches the
 * point's queue depth, and an eighth of them stays.  Rounds of whole transfers follow, as a sweep
 * measures them, each in an order of its own, so a device that drifts favours no point.  Half of the
 * points stays after each round, until TUNER_FINALISTS are left.  These have TUNER_ROUNDS rounds.
 *
 * Half of those that stay are cheap: the cheapest point that is not clearly slower than the fastest,
 * then the cheapest of those that are faster than it, and so on.  The rest are the fastest of the
 * others.  So a cheap point that may be as fast as the fastest is not lost to luck.
 *
 * A measurement that did not reach its depth says nothing about the point.  It is repeated with a
 * whole transfer; a point that still does not reach its depth leaves all goals.
 *
 * Ranks rest on the logarithms of the speeds of whole transfers.  Intervals are Student's, of 95%:
 * of a point's own speed, and of its loss to the fastest in the same rounds, in which a disturbance
 * of a whole round cancels out.
 *
 * For the caller's thread alone.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_TUNER_H
#define DSAIO_CLIENT_CTL_BENCH_TUNER_H

#include "client/ctl/bench/point.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUNER_FINALISTS 4u
#define TUNER_ROUNDS 5u /* of whole transfers: fewer give no useful interval */

struct tuner;

enum tuner_goal { TUNER_READ = BENCH_READ, TUNER_WRITE = BENCH_WRITE, TUNER_SUM, N_TUNER_GOALS };

struct tuner_point {
	uint64_t cost;	     /* the least wins among points as fast as each other */
	uint64_t need_bytes; /* that reach its depth; more than io_size: no transfer does */
};

struct tuner_options {
	size_t n_points;
	const struct tuner_point *points; /* copied */
	bool reads, writes;		  /* at least one */
	uint64_t io_size;		  /* bytes of a whole transfer */
};

struct tuner_step {
	size_t point;
	enum bench_op op;
	uint64_t bytes;
};

struct tuner_interval {
	double mean, low, high;
};

/* A goal's result, after the last step. */
struct tuner_rank {
	size_t point;
	struct tuner_interval speed;
	struct tuner_interval loss; /* to the fastest, as a share of its speed */
	bool is_tied; /* with it: the loss's interval has 0 in it, or the two speeds' overlap */
};
struct tuner_verdict {
	struct tuner_rank ranks[TUNER_FINALISTS]; /* the fastest first */
	size_t n_ranks;				  /* 0: no point was left */
	size_t recommended;   /* in ranks: the cheapest that is tied and loses at most 5% */
	size_t n_dropped;     /* after a round, since faster or cheaper points stayed */
	size_t n_not_reached; /* since no transfer reached their depth */
	unsigned n_rounds;    /* that ranks rest on */
};

struct tuner *tuner_new(const struct tuner_options *options);
void tuner_free(struct tuner *tuner);

/* The next measurement.  Returns false if all is done, or no point is left. */
bool tuner_next(struct tuner *tuner, struct tuner_step *ret_step);

/*
 * The result of that step, in any unit; 0: it failed, and its point leaves all goals.
 * is_reached: the point's queue depth was.
 */
void tuner_add(struct tuner *tuner, double speed, bool is_reached);

/* About how many steps are still to come, and of how many bytes in all. */
void tuner_left(const struct tuner *tuner, size_t *ret_steps, uint64_t *ret_bytes);

/* Is the goal one that was asked for?  The sum is one only with reads and writes. */
bool tuner_has_goal(const struct tuner *tuner, enum tuner_goal goal);

/* When tuner_next() said false. */
struct tuner_verdict tuner_judge(const struct tuner *tuner, enum tuner_goal goal);

/* The speed of a point in the ranks of that goal or, if that is the sum, its reads or writes. */
struct tuner_interval tuner_speed(const struct tuner *tuner, enum tuner_goal goal, size_t point);

#endif
