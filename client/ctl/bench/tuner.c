#include "client/ctl/bench/tuner.h"

#include "client/ctl/bench/random.h"
#include "client/ctl/bench/student.h"
#include "client/ctl/ui/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define ROUNDS_MAX 16u /* the first one too: enough for the halving of BENCH_SPACE_POINTS_MAX */
/* The first round's steps are no shorter than this part of a whole one: what a transfer costs at its
   start and end must not decide. */
#define STEP_PARTS_MAX 16u
#define STEP_ALIGN 4096u /* a step that is no multiple would be copied in part */
/* Measurements that may miss the depth before the point is dropped: a process that waits for a
   processor lets a queue run empty, too. */
#define TRIES_MAX 4u
/* A point is clearly slower if it is slower by more than this, divided by the number of rounds so far.
   Single measurements of one point were seen to differ by so much. */
#define SLACK 0.2
/* A wide interval ties a point with the fastest, whatever its mean: this bounds what that may cost. */
#define LOSS_MAX 0.05

enum fate { RACES, STAYS, DROPPED, NOT_REACHED, FAILED }; /* STAYS: in halve() alone */

struct point {
	uint64_t cost;
	uint64_t first_bytes; /* of the first round's steps */
	unsigned n_missed;    /* measurements of the present step that missed the depth */
	enum fate fates[N_TUNER_GOALS];
	float logs[2][ROUNDS_MAX]; /* of speeds, by op */
};

struct tuner {
	struct tuner_options options;
	struct point *points;
	uint64_t random;
	unsigned round;		  /* 0: the first one, of all points */
	struct tuner_step *steps; /* of this round */
	size_t n_steps, at;
	bool is_done;
};

bool tuner_has_goal(const struct tuner *tuner, enum tuner_goal goal)
{
	return (goal == TUNER_WRITE || tuner->options.reads) &&
	       (goal == TUNER_READ || tuner->options.writes);
}

/* The logarithm of the point's speed in a round, for this goal. */
static double value(const struct point *point, enum tuner_goal goal, unsigned round)
{
	const double r = (double)point->logs[BENCH_READ][round];
	const double w = (double)point->logs[BENCH_WRITE][round];

	return goal == TUNER_READ ? r : goal == TUNER_WRITE ? w : log(exp(r) + exp(w));
}

static bool is_measured(const struct point *point, enum bench_op op)
{
	return point->fates[op] == RACES || point->fates[TUNER_SUM] == RACES;
}

static size_t count(const struct tuner *tuner, enum tuner_goal goal, enum fate fate)
{
	size_t n = 0;

	for (size_t i = 0; i < tuner->options.n_points; i++)
		n += tuner->points[i].fates[goal] == fate;
	return n;
}

/* ---- the points that stay ---- */

/* So many of n points stay after this round. */
static size_t n_to_stay(size_t n, unsigned round)
{
	const size_t n_kept = round == 0 ? n / 8 : n / 2;

	return n_kept > TUNER_FINALISTS ? n_kept : n < TUNER_FINALISTS ? n : TUNER_FINALISTS;
}

/* Was this round the last one, in which n points raced? */
static bool is_last(size_t n, unsigned round)
{
	return n == 0 || (n <= TUNER_FINALISTS && round >= TUNER_ROUNDS);
}

/* The mean over the rounds of whole transfers or, before there are any, the first round. */
static double mean(const struct tuner *tuner, const struct point *point, enum tuner_goal goal)
{
	double sum = 0;

	if (tuner->round == 0)
		return value(point, goal, 0);
	for (unsigned r = 1; r <= tuner->round; r++)
		sum += value(point, goal, r);
	return sum / tuner->round;
}

/* The fastest point that races, or the cheapest, of those with a mean above that; NULL: there is none. */
static struct point *find(const struct tuner *tuner, enum tuner_goal goal, double above,
			  bool by_cost)
{
	struct point *found = NULL;

	for (size_t i = 0; i < tuner->options.n_points; i++) {
		struct point *point = &tuner->points[i];

		if (point->fates[goal] != RACES || mean(tuner, point, goal) <= above)
			continue;
		if (!found || (by_cost ? point->cost < found->cost
				       : mean(tuner, point, goal) > mean(tuner, found, goal)))
			found = point;
	}
	return found;
}

static void halve(struct tuner *tuner, enum tuner_goal goal)
{
	const size_t n = count(tuner, goal, RACES), n_stay = n_to_stay(n, tuner->round);
	struct point *point = find(tuner, goal, -INFINITY, false);
	size_t n_left = n_stay;
	double above;

	if (n == n_stay)
		return;
	above = mean(tuner, point, goal) + log(1 - SLACK / (tuner->round + 1));
	while (n_left > n_stay / 2 && (point = find(tuner, goal, above, true))) {
		above = mean(tuner, point, goal);
		point->fates[goal] = STAYS;
		n_left--;
	}
	for (; n_left; n_left--)
		find(tuner, goal, -INFINITY, false)->fates[goal] = STAYS;
	for (size_t i = 0; i < tuner->options.n_points; i++) {
		enum fate *fate = &tuner->points[i].fates[goal];

		*fate = *fate == RACES ? DROPPED : *fate == STAYS ? RACES : *fate;
	}
}

/* ---- rounds ---- */

/* A round is over: the next one, or the end. */
static void advance(struct tuner *tuner)
{
	tuner->is_done = true;
	for (unsigned g = 0; g < N_TUNER_GOALS; g++)
		tuner->is_done &= is_last(count(tuner, g, RACES), tuner->round);
	for (unsigned g = 0; g < N_TUNER_GOALS && !tuner->is_done; g++)
		halve(tuner, g);
	tuner->round++;
	assert(tuner->round < ROUNDS_MAX);
}

/* Lists all steps of the round, in a random order. */
static void fill_round(struct tuner *tuner)
{
	tuner->n_steps = tuner->at = 0;
	for (size_t i = 0; i < tuner->options.n_points; i++)
		for (unsigned op = BENCH_READ; op <= BENCH_WRITE; op++)
			if (is_measured(&tuner->points[i], op))
				tuner->steps[tuner->n_steps++] = (struct tuner_step){
					i, op,
					tuner->round == 0 ? tuner->points[i].first_bytes
							  : tuner->options.io_size
				};
	for (size_t i = tuner->n_steps; i > 1; i--) {
		const size_t j = random_next(&tuner->random) % i;
		const struct tuner_step step = tuner->steps[i - 1];

		tuner->steps[i - 1] = tuner->steps[j];
		tuner->steps[j] = step;
	}
}

bool tuner_next(struct tuner *tuner, struct tuner_step *ret_step)
{
	while (!tuner->is_done) {
		for (; tuner->at < tuner->n_steps; tuner->at++) {
			*ret_step = tuner->steps[tuner->at];
			/* The point may have failed in the other direction meanwhile. */
			if (is_measured(&tuner->points[ret_step->point], ret_step->op))
				return true;
		}
		advance(tuner);
		fill_round(tuner);
	}
	return false;
}

static void drop(struct point *point, enum fate fate)
{
	for (unsigned g = 0; g < N_TUNER_GOALS; g++)
		if (point->fates[g] == RACES)
			point->fates[g] = fate;
}

void tuner_add(struct tuner *tuner, double speed, bool is_reached)
{
	struct tuner_step *step = &tuner->steps[tuner->at];
	struct point *point = &tuner->points[step->point];

	assert(tuner->at < tuner->n_steps);
	if (speed > 0 && !is_reached && ++point->n_missed < TRIES_MAX) {
		step->bytes = tuner->options.io_size;
		return; /* the same step again */
	}
	point->n_missed = 0;
	point->logs[step->op][tuner->round] = (float)log(speed);
	tuner->at++;
	if (speed <= 0)
		drop(point, FAILED);
	else if (!is_reached)
		drop(point, NOT_REACHED);
}

/* The rest of this round is exact.  A later round is assumed to have a step for each point of each
   goal, which is the mean of goals that have all points in common and goals that have none. */
void tuner_left(const struct tuner *tuner, size_t *ret_steps, uint64_t *ret_bytes)
{
	*ret_steps = tuner->n_steps - tuner->at;
	*ret_bytes = 0;
	for (size_t i = tuner->at; i < tuner->n_steps; i++)
		*ret_bytes += tuner->steps[i].bytes;
	for (unsigned g = 0; g < N_TUNER_GOALS; g++) {
		size_t n = count(tuner, g, RACES);

		for (unsigned round = tuner->round; !is_last(n, round); round++) {
			n = n_to_stay(n, round);
			*ret_steps += n;
			*ret_bytes += n * tuner->options.io_size;
		}
	}
}

/* ---- the verdict ---- */

/* The speed of a point, or its ratio to another one's in the same rounds. */
static struct tuner_interval find_ratio(const struct tuner *tuner, enum tuner_goal goal,
					size_t point, const size_t *other)
{
	const unsigned n = tuner->round - 1;
	double values[ROUNDS_MAX], sum = 0, squares = 0, half;

	for (unsigned r = 1; r <= n; r++) {
		values[r] = value(&tuner->points[point], goal, r);
		if (other)
			values[r] -= value(&tuner->points[*other], goal, r);
		sum += values[r];
	}
	for (unsigned r = 1; r <= n; r++)
		squares += (values[r] - sum / n) * (values[r] - sum / n);
	half = student_95(n - 1) * sqrt(squares / (n - 1) / n);
	return (struct tuner_interval){ exp(sum / n), exp(sum / n - half), exp(sum / n + half) };
}

struct tuner_interval tuner_speed(const struct tuner *tuner, enum tuner_goal goal, size_t point)
{
	return find_ratio(tuner, goal, point, NULL);
}

static int compare_ranks(const void *a, const void *b)
{
	const struct tuner_rank *x = a, *y = b;

	return (x->speed.mean < y->speed.mean) - (x->speed.mean > y->speed.mean);
}

struct tuner_verdict tuner_judge(const struct tuner *tuner, enum tuner_goal goal)
{
	struct tuner_verdict v = { .n_dropped = count(tuner, goal, DROPPED),
				   .n_not_reached = count(tuner, goal, NOT_REACHED),
				   .n_rounds = tuner->round - 1 };
	uint64_t cost = UINT64_MAX;

	for (size_t i = 0; i < tuner->options.n_points; i++) {
		if (tuner->points[i].fates[goal] != RACES)
			continue;
		assert(v.n_ranks < TUNER_FINALISTS);
		v.ranks[v.n_ranks++] = (struct tuner_rank){ .point = i,
							    .speed = tuner_speed(tuner, goal, i) };
	}
	qsort(v.ranks, v.n_ranks, sizeof(v.ranks[0]), compare_ranks);
	for (size_t i = 0; i < v.n_ranks; i++) {
		struct tuner_rank *rank = &v.ranks[i];
		const struct tuner_interval ratio = find_ratio(tuner, goal, rank->point,
							       &v.ranks[0].point);

		rank->loss = (struct tuner_interval){ 1 - ratio.mean, 1 - ratio.high,
						      1 - ratio.low };
		rank->is_tied = rank->loss.low <= 0 || rank->speed.high >= v.ranks[0].speed.low;
		if (rank->is_tied && rank->loss.mean <= LOSS_MAX &&
		    tuner->points[rank->point].cost < cost) {
			cost = tuner->points[rank->point].cost;
			v.recommended = i;
		}
	}
	return v;
}

/* ---- begin and end ---- */

void tuner_free(struct tuner *tuner)
{
	if (!tuner)
		return;
	free(tuner->points);
	free(tuner->steps);
	free(tuner);
}

static uint64_t first_bytes(uint64_t need_bytes, uint64_t io_size)
{
	const uint64_t least = io_size / STEP_PARTS_MAX;
	const uint64_t bytes = need_bytes > least ? need_bytes : least;
	const uint64_t aligned = (bytes + STEP_ALIGN - 1) / STEP_ALIGN * STEP_ALIGN;

	return aligned < io_size ? aligned : io_size;
}

struct tuner *tuner_new(const struct tuner_options *options)
{
	const size_t n = options->n_points;
	struct tuner *tuner = NEW_ARRAY(struct tuner, 1);

	tuner->options = *options;
	tuner->options.points = NULL;
	tuner->random = 1; /* each run has the same orders: --resume needs them */
	tuner->points = NEW_ARRAY(struct point, n);
	tuner->steps = NEW_ARRAY(struct tuner_step, 2 * n);
	for (size_t i = 0; i < n; i++) {
		struct point *point = &tuner->points[i];

		point->cost = options->points[i].cost;
		point->first_bytes = first_bytes(options->points[i].need_bytes, options->io_size);
		for (unsigned g = 0; g < N_TUNER_GOALS; g++)
			point->fates[g] = tuner_has_goal(tuner, g) ? RACES : DROPPED;
		if (options->points[i].need_bytes > options->io_size)
			drop(point, NOT_REACHED);
	}
	fill_round(tuner);
	return tuner;
}
