/*
 * The tuner decides which point to measure next and for how long, and analyses the measurements.  It
 * knows points as numbers with costs, and measures nothing itself.  It has no state except its memory.
 *
 * There are three goals: the fastest read, the fastest write, the largest sum of both.  First all
 * points are measured once, each by the shortest transfer that reaches the point's queue depth.
 * The points of a group (the same block size and depth) give the group's speed and the spread of
 * single measurements.  Groups that are clearly slower are dropped.  Each goal then keeps
 * a few points: the fastest, the cheapest that is tied with it, and the cheapest of
 * some groups.  These are measured in rounds of whole transfers, as a sweep measures them, each
 * round in an order of its own, so a device that drifts favours none.
 *
 * A measurement that did not reach its depth says nothing about the point.  It is repeated with a
 * longer transfer, up to a whole one; a point that still does not reach its depth leaves all goals.
 *
 * The tuner compares logarithms of speeds of the same rounds, so a disturbance of a whole round
 * cancels out.  It estimates the remaining spread from all points together.  Intervals are
 * Student's: 95% of a point's own speed, and of all the differences to the fastest at once.
 *
 * For the caller's thread alone.
 *
 * tuner.c has more than 600 lines: the rounds, the points that stay and the verdict all work on the
 * same table of measurements, and each is read with the other two in mind.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_TUNER_H
#define DSAIO_CLIENT_CTL_BENCH_TUNER_H

#include "client/ctl/bench/point.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tuner;

enum tuner_goal { TUNER_READ, TUNER_WRITE, TUNER_SUM, N_TUNER_GOALS };

struct tuner_options {
	size_t n_points;
	/* Arrays of n_points, copied. */
	const uint64_t *costs;	/* the least wins among points as fast as each other */
	const uint64_t *needs;	/* bytes that reach its depth; more than io_size: it cannot */
	const uint32_t *groups; /* points with the same number are a group: below n_points */
	bool reads, writes;	/* at least one */
	uint64_t io_size;	/* bytes of a whole measurement */
	uint64_t align;		/* steps are multiples of this, or io_size */
	uint64_t budget_bytes;	/* to be read and written in all; FINAL_ROUNDS_MIN may exceed it */
	uint64_t seed;		/* of the orders */
};

struct tuner_step {
	size_t point;
	enum bench_op op;
	uint64_t bytes;
};

/* A goal's result, after the last step. */
struct tuner_rank {
	size_t point;
	double speed, speed_low, speed_high; /* mean, and its interval */
	double loss, loss_low, loss_high;    /* to the fastest, as a share of its speed */
	bool is_tied; /* with it: the loss's interval has 0 in it, or the two speeds' overlap */
};
struct tuner_verdict {
	struct tuner_rank *ranks; /* measured to the end, the fastest first */
	size_t n_ranks, n_tied;	  /* 0: all failed */
	size_t recommended;	  /* in ranks: the cheapest that is tied and loses at most 5% */
	size_t n_slower;	  /* dropped since they were clearly slower */
	size_t n_not_followed;	  /* since others were as fast, or as cheap */
	size_t n_not_reached;	  /* since no transfer reached their depth */
	unsigned n_rounds;	  /* that ranks rest on */
};

/* 0 or -ENOMEM. */
int tuner_new(const struct tuner_options *options, struct tuner **ret_tuner);
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

/* When tuner_next() said false.  Returns 0 or -ENOMEM; ranks is the caller's, for free(). */
int tuner_judge(const struct tuner *tuner, enum tuner_goal goal, struct tuner_verdict *ret_verdict);

/*
 * A point's own speed, with its interval, over the rounds that the verdicts rest on (or, if it was
 * not in those, over its own).  False: it has none.
 */
bool tuner_speed(const struct tuner *tuner, size_t point, enum bench_op op, double *ret_speed,
		 double *ret_low, double *ret_high);

#endif
