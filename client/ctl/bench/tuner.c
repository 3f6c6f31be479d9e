#include "client/ctl/bench/tuner.h"

#include "client/ctl/bench/student.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 64u
/* Rounds of whole transfers, whatever the budget: fewer give no useful interval. */
#define FINAL_ROUNDS_MIN 5u
/* The first round's steps are no shorter than this part of a whole one: what a transfer costs at its
   start and end must not decide. */
#define STEP_PARTS_MAX 16u
/* Whole transfers that may miss the depth before the point is dropped: a process that waits for a
   processor lets a queue run empty, too. */
#define TRIES_MAX 3u
/* A goal keeps so many points that were fastest, and the cheapest points of so many groups. */
#define FASTEST_KEPT 2u
#define GROUPS_KEPT 3u
#define KEPT_MAX (FASTEST_KEPT + GROUPS_KEPT + 1u) /* and the cheapest of the fast ones */

/* A wide interval ties a point with the fastest, whatever its mean: this bounds what that may cost. */
#define LOSS_MAX 0.05

enum fate { RACES, SLOWER, NOT_FOLLOWED, NOT_REACHED, FAILED };

struct point {
	uint64_t cost, need;
	uint32_t group;
	unsigned n_tries; /* whole transfers that missed the depth */
	enum fate fates[N_TUNER_GOALS];
	float logs[2][ROUNDS_MAX]; /* of speeds, by op; NAN: not measured */
};

/* A group's points of one goal in the first round. */
struct group {
	size_t n;
	double mean;	 /* of the logarithms */
	size_t cheapest; /* point */
	bool is_slower, is_kept;
};

struct tuner {
	struct tuner_options options;
	struct point *points;
	struct group *groups; /* room for n_points */
	uint64_t used_bytes, random;
	bool is_final;
	unsigned round;		  /* 0: the first one, of all points */
	struct tuner_step *steps; /* of this round */
	size_t n_steps, at;
	bool is_done;
	bool *is_kept; /* thin_out()'s, for each point */
};

/* The statistics of a goal's rounds, for the points in its final. */
struct analysis {
	size_t n; /* that race */
	size_t best;
	unsigned n_rounds;
	double spread;	/* of one step, as a logarithm */
	size_t degrees; /* of freedom that it rests on */
};

/* xorshift64* */
static uint64_t random_next(struct tuner *tuner)
{
	tuner->random ^= tuner->random >> 12;
	tuner->random ^= tuner->random << 25;
	tuner->random ^= tuner->random >> 27;
	return tuner->random * UINT64_C(0x2545f4914f6cdd1d);
}

bool tuner_has_goal(const struct tuner *tuner, enum tuner_goal goal)
{
	switch (goal) {
	case TUNER_READ:
		return tuner->options.reads;
	case TUNER_WRITE:
		return tuner->options.writes;
	default:
		return tuner->options.reads && tuner->options.writes;
	}
}

/* The logarithm of the point's speed in a round, for this goal. */
static double value(const struct point *point, enum tuner_goal goal, unsigned round)
{
	const float r = point->logs[BENCH_READ][round], w = point->logs[BENCH_WRITE][round];

	if (goal == TUNER_READ)
		return (double)r;
	if (goal == TUNER_WRITE)
		return (double)w;
	return log(exp((double)r) + exp((double)w));
}

static bool races(const struct tuner *tuner, size_t point, enum tuner_goal goal)
{
	return tuner_has_goal(tuner, goal) && tuner->points[point].fates[goal] == RACES;
}

static bool is_measured(const struct tuner *tuner, size_t point, enum bench_op op)
{
	return races(tuner, point, op == BENCH_READ ? TUNER_READ : TUNER_WRITE) ||
	       races(tuner, point, TUNER_SUM);
}

/* ---- what the rounds say ---- */

/* The mean of a round over all that race. */
static double round_mean(const struct tuner *tuner, enum tuner_goal goal, unsigned round, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < tuner->options.n_points; i++)
		if (races(tuner, i, goal))
			sum += value(&tuner->points[i], goal, round);
	return sum / (double)n;
}

/* Analyses the rounds from first on, in which all points that race were measured.  means: of the
   logarithms; room for all points; NAN: the point does not race. */
static struct analysis analyse(const struct tuner *tuner, enum tuner_goal goal, unsigned first,
			       double *means)
{
	struct analysis a = { .n_rounds = tuner->round - first };
	double all = 0, squares = 0;

	for (size_t i = 0; i < tuner->options.n_points; i++) {
		means[i] = NAN;
		if (!races(tuner, i, goal))
			continue;
		means[i] = 0;
		for (unsigned r = first; r < tuner->round; r++)
			means[i] += value(&tuner->points[i], goal, r);
		means[i] /= a.n_rounds;
		all += means[i];
		if (!a.n++ || means[i] > means[a.best])
			a.best = i;
	}
	if (!a.n)
		return a;
	all /= (double)a.n;
	/*
	 * Two-way analysis: the rest after the effects of points and rounds is the spread of one
	 * step.
	 */
	for (unsigned r = first; r < tuner->round; r++) {
		const double drift = round_mean(tuner, goal, r, a.n) - all;

		for (size_t i = 0; i < tuner->options.n_points; i++) {
			double rest;

			if (!races(tuner, i, goal))
				continue;
			rest = value(&tuner->points[i], goal, r) - means[i] - drift;
			squares += rest * rest;
		}
	}
	a.degrees = (a.n - 1) * (a.n_rounds - 1);
	a.spread = a.degrees ? sqrt(squares / (double)a.degrees) : 0;
	return a;
}

/*
 * Half of the interval of the difference of two means, for all differences to the best at once,
 * since the best of many points is partly the luckiest.  (Bonferroni; for a normal distribution the quantile of
 * 1 / n of the risk is about the root of the quantile's square + 2 ln n.)
 */
static double half_width(const struct analysis *a)
{
	const double normal = 1.96;

	if (a->n < 2)
		return 0;
	if (!a->degrees)
		return INFINITY;
	return student_95(a->degrees) * a->spread * sqrt(2.0 / a->n_rounds) *
	       sqrt(1 + 2 * log((double)(a->n - 1)) / (normal * normal));
}

/* ---- the points that stay ---- */

static bool is_cheaper(const struct tuner *tuner, size_t a, size_t b)
{
	return tuner->points[a].cost < tuner->points[b].cost;
}

/* Fills in the groups.  Returns the best one, n_points: no point races. */
static size_t find_groups(struct tuner *tuner, enum tuner_goal goal)
{
	const size_t n_points = tuner->options.n_points;
	size_t best = n_points;

	for (size_t k = 0; k < n_points; k++)
		tuner->groups[k] = (struct group){ .n = 0 };
	for (size_t i = 0; i < n_points; i++) {
		struct group *group = &tuner->groups[tuner->points[i].group];

		if (!races(tuner, i, goal))
			continue;
		if (!group->n++ || is_cheaper(tuner, i, group->cheapest))
			group->cheapest = i;
		group->mean += value(&tuner->points[i], goal, 0);
	}
	for (size_t k = 0; k < n_points; k++) {
		struct group *group = &tuner->groups[k];

		if (!group->n)
			continue;
		group->mean /= (double)group->n;
		if (best == n_points || group->mean > tuner->groups[best].mean)
			best = k;
	}
	return best;
}

/* The spread of single measurements around the means of their groups. */
static double find_swing(const struct tuner *tuner, enum tuner_goal goal, size_t *ret_degrees)
{
	double squares = 0;
	size_t n = 0;

	for (size_t i = 0; i < tuner->options.n_points; i++) {
		double off;

		if (!races(tuner, i, goal))
			continue;
		off = value(&tuner->points[i], goal, 0) -
		      tuner->groups[tuner->points[i].group].mean;
		squares += off * off;
		n++;
	}
	for (size_t k = 0; k < tuner->options.n_points; k++)
		n -= tuner->groups[k].n > 0;
	*ret_degrees = n;
	return n ? sqrt(squares / (double)n) : INFINITY;
}

/* The cheapest points of the fastest groups, and of the cheapest one, that are not slower. */
static void keep_groups(struct tuner *tuner)
{
	const size_t n_points = tuner->options.n_points;

	for (unsigned kept = 0; kept < GROUPS_KEPT; kept++) {
		const bool by_cost = kept == 0;
		size_t best = n_points;

		for (size_t k = 0; k < n_points; k++) {
			const struct group *group = &tuner->groups[k];

			if (!group->n || group->is_slower || group->is_kept)
				continue;
			if (best == n_points || (by_cost ? is_cheaper(tuner, group->cheapest,
								      tuner->groups[best].cheapest)
							 : group->mean > tuner->groups[best].mean))
				best = k;
		}
		if (best == n_points)
			return;
		tuner->groups[best].is_kept = true;
		tuner->is_kept[tuner->groups[best].cheapest] = true;
	}
}

/* The fastest point of those that are not kept yet; n_points: none. */
static size_t find_fastest(const struct tuner *tuner, enum tuner_goal goal)
{
	const size_t n_points = tuner->options.n_points;
	size_t fastest = n_points;

	for (size_t i = 0; i < n_points; i++)
		if (races(tuner, i, goal) && !tuner->is_kept[i] &&
		    (fastest == n_points ||
		     value(&tuner->points[i], goal, 0) > value(&tuner->points[fastest], goal, 0)))
			fastest = i;
	return fastest;
}

/* Keeps the fastest points, and the cheapest that one measurement cannot distinguish from them. */
static void keep_fastest(struct tuner *tuner, enum tuner_goal goal, double swing, size_t degrees)
{
	const size_t n_points = tuner->options.n_points, fastest = find_fastest(tuner, goal);
	const double half = degrees ? student_95(degrees) * swing * sqrt(2) : INFINITY;
	size_t cheapest = fastest, next = fastest;

	for (unsigned n = 0; n < FASTEST_KEPT && next < n_points; n++) {
		tuner->is_kept[next] = true;
		next = find_fastest(tuner, goal);
	}
	for (size_t i = 0; i < n_points; i++)
		if (races(tuner, i, goal) && is_cheaper(tuner, i, cheapest) &&
		    !tuner->groups[tuner->points[i].group].is_slower &&
		    value(&tuner->points[fastest], goal, 0) - value(&tuner->points[i], goal, 0) <=
			    half)
			cheapest = i;
	tuner->is_kept[cheapest] = true;
}

/* After the first round: drops points. */
static void thin_out(struct tuner *tuner, enum tuner_goal goal)
{
	const size_t n_points = tuner->options.n_points, best = find_groups(tuner, goal);
	size_t degrees, n = 0;
	double swing;

	for (size_t i = 0; i < n_points; i++)
		n += races(tuner, i, goal);
	if (n <= KEPT_MAX)
		return;
	swing = find_swing(tuner, goal, &degrees);
	for (size_t k = 0; degrees && k < n_points; k++) {
		struct group *group = &tuner->groups[k];
		/* The uncertainty of both means, and the resolution of the final rounds. */
		const double half = student_95(degrees) * swing *
				    (sqrt(1 / (double)(group->n ? group->n : 1) +
					  1 / (double)tuner->groups[best].n) +
				     sqrt(2.0 / FINAL_ROUNDS_MIN));

		group->is_slower = group->n && tuner->groups[best].mean - group->mean > half;
	}
	memset(tuner->is_kept, 0, n_points * sizeof(*tuner->is_kept));
	keep_fastest(tuner, goal, swing, degrees);
	keep_groups(tuner);
	for (size_t i = 0; i < n_points; i++)
		if (races(tuner, i, goal) && !tuner->is_kept[i])
			tuner->points[i].fates[goal] =
				tuner->groups[tuner->points[i].group].is_slower ? SLOWER
										: NOT_FOLLOWED;
}

/* ---- rounds ---- */

static size_t count_steps(const struct tuner *tuner)
{
	size_t n = 0;

	for (size_t i = 0; i < tuner->options.n_points; i++)
		n += (size_t)is_measured(tuner, i, BENCH_READ) +
		     (size_t)is_measured(tuner, i, BENCH_WRITE);
	return n;
}

static uint64_t step_bytes(const struct tuner *tuner, size_t point)
{
	const struct tuner_options *o = &tuner->options;
	uint64_t bytes = tuner->points[point].need;

	if (tuner->is_final)
		return o->io_size;
	if (bytes < o->io_size / STEP_PARTS_MAX)
		bytes = o->io_size / STEP_PARTS_MAX;
	bytes = (bytes + o->align - 1) / o->align * o->align;
	return bytes < o->io_size ? bytes : o->io_size;
}

static bool is_enough(const struct tuner *tuner)
{
	return tuner->round == ROUNDS_MAX ||
	       (tuner->round > FINAL_ROUNDS_MIN &&
		tuner->used_bytes + tuner->options.io_size * count_steps(tuner) >
			tuner->options.budget_bytes);
}

/* A round is over: the next one, or the end. */
static void advance(struct tuner *tuner)
{
	tuner->round++;
	if (tuner->is_final) {
		tuner->is_done = is_enough(tuner);
		return;
	}
	tuner->is_final = true;
	for (unsigned g = 0; g < N_TUNER_GOALS; g++)
		thin_out(tuner, (enum tuner_goal)g);
}

/* Lists all steps of the round, in a random order. */
static void fill_round(struct tuner *tuner)
{
	tuner->n_steps = tuner->at = 0;
	for (size_t i = 0; i < tuner->options.n_points; i++)
		for (int op = BENCH_READ; op <= BENCH_WRITE; op++)
			if (is_measured(tuner, i, (enum bench_op)op))
				tuner->steps[tuner->n_steps++] = (struct tuner_step){
					i, (enum bench_op)op, step_bytes(tuner, i)
				};
	for (size_t i = tuner->n_steps; i > 1; i--) {
		const size_t j = random_next(tuner) % i;
		const struct tuner_step step = tuner->steps[i - 1];

		tuner->steps[i - 1] = tuner->steps[j];
		tuner->steps[j] = step;
	}
}

bool tuner_next(struct tuner *tuner, struct tuner_step *ret_step)
{
	while (!tuner->is_done) {
		if (tuner->at < tuner->n_steps) {
			*ret_step = tuner->steps[tuner->at];
			/* The point may have failed in the other direction meanwhile. */
			if (is_measured(tuner, ret_step->point, ret_step->op))
				return true;
			tuner->at++;
			continue;
		}
		if (tuner->n_steps)
			advance(tuner);
		if (!tuner->is_done) {
			fill_round(tuner);
			tuner->is_done = !tuner->n_steps;
		}
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
	tuner->used_bytes += step->bytes;
	if (speed > 0 && !is_reached && step->bytes < tuner->options.io_size) {
		point->need = 2 * step->bytes;
		step->bytes = step_bytes(tuner, step->point);
		return; /* the same step again, longer */
	}
	if (speed > 0 && !is_reached && ++point->n_tries < TRIES_MAX)
		return;
	point->n_tries = 0;
	tuner->at++;
	point->logs[step->op][tuner->round] = (float)log(speed);
	if (speed <= 0)
		drop(point, FAILED);
	else if (!is_reached)
		drop(point, NOT_REACHED);
}

/* The rest of this round is exact.  The final rounds are estimated by the budget. */
void tuner_left(const struct tuner *tuner, size_t *ret_steps, uint64_t *ret_bytes)
{
	const struct tuner_options *o = &tuner->options;
	const size_t n_goals = o->reads && o->writes ? N_TUNER_GOALS : 1;
	size_t n = 0, n_final = count_steps(tuner);
	uint64_t bytes = 0, left = 0, least;

	*ret_steps = 0;
	*ret_bytes = 0;
	if (tuner->is_done)
		return;
	for (size_t i = tuner->at; i < tuner->n_steps; i++, n++)
		bytes += tuner->steps[i].bytes;
	if (!tuner->is_final && n_final > n_goals * KEPT_MAX)
		n_final = n_goals * KEPT_MAX;
	if (tuner->used_bytes + bytes < o->budget_bytes)
		left = o->budget_bytes - tuner->used_bytes - bytes;
	least = tuner->round < FINAL_ROUNDS_MIN
			? (FINAL_ROUNDS_MIN - tuner->round) * n_final * o->io_size
			: 0;
	left = left > least ? left : least;
	*ret_steps = n + (size_t)(left / o->io_size);
	*ret_bytes = bytes + left;
}

/* ---- the verdict ---- */

static int compare_ranks(const void *a, const void *b)
{
	const struct tuner_rank *x = a, *y = b;

	return (x->speed < y->speed) - (x->speed > y->speed);
}

struct interval {
	double mean, low, high;
	unsigned n; /* 0: there is none */
};

/* The interval of a point's own speed from a round on, with the drift of the device. */
static struct interval own_speed(const struct tuner *tuner, enum tuner_goal goal, size_t point,
				 unsigned first)
{
	double sum = 0, squares = 0, half;
	unsigned n = 0;

	for (unsigned r = first; r < tuner->round; r++) {
		const double v = value(&tuner->points[point], goal, r);

		if (!isfinite(v)) /* not measured then */
			continue;
		n++;
		sum += v;
		squares += v * v;
	}
	if (!n)
		return (struct interval){ .n = 0 };
	sum /= n;
	squares = squares - n * sum * sum;
	half = n > 1 ? student_95(n - 1) * sqrt((squares > 0 ? squares : 0) / (n - 1) / n)
		     : INFINITY;
	return (struct interval){ exp(sum), exp(sum - half), exp(sum + half), n };
}

bool tuner_speed(const struct tuner *tuner, size_t point, enum bench_op op, double *ret_speed,
		 double *ret_low, double *ret_high)
{
	const enum tuner_goal goal = op == BENCH_READ ? TUNER_READ : TUNER_WRITE;
	struct interval own = own_speed(tuner, goal, point, 1);

	if (!own.n)
		own = own_speed(tuner, goal, point, 0);
	*ret_speed = own.mean;
	*ret_low = own.low;
	*ret_high = own.high;
	return own.n > 0;
}

int tuner_judge(const struct tuner *tuner, enum tuner_goal goal, struct tuner_verdict *ret_verdict)
{
	struct tuner_verdict v = { .n_rounds = tuner->round > 1 ? tuner->round - 1 : 0 };
	_cleanup_(freep) double *means = calloc(tuner->options.n_points, sizeof(*means));
	struct analysis a;
	uint64_t cost = UINT64_MAX;
	double half;

	if (!means)
		return -ENOMEM;
	a = analyse(tuner, goal, 1, means);
	v.ranks = calloc(a.n ? a.n : 1, sizeof(*v.ranks));
	if (!v.ranks)
		return -ENOMEM;
	half = half_width(&a);
	for (size_t i = 0; i < tuner->options.n_points; i++) {
		const enum fate fate = tuner->points[i].fates[goal];
		struct tuner_rank *rank = &v.ranks[v.n_ranks];
		struct interval own;
		double below;

		v.n_slower += fate == SLOWER;
		v.n_not_followed += fate == NOT_FOLLOWED;
		v.n_not_reached += fate == NOT_REACHED;
		if (!races(tuner, i, goal))
			continue;
		below = means[a.best] - means[i];
		own = own_speed(tuner, goal, i, 1);
		rank->point = i;
		rank->speed = own.mean;
		rank->speed_low = own.low;
		rank->speed_high = own.high;
		rank->loss = 1 - exp(-below);
		if (i != a.best) {
			rank->loss_low = 1 - exp(half - below);
			rank->loss_high = 1 - exp(-half - below);
		}
		rank->is_tied = below <= half;
		v.n_ranks++;
	}
	qsort(v.ranks, v.n_ranks, sizeof(*v.ranks), compare_ranks);
	for (size_t i = 0; i < v.n_ranks; i++) {
		struct tuner_rank *rank = &v.ranks[i];

		rank->is_tied |= rank->speed_high >= v.ranks[0].speed_low;
		v.n_tied += rank->is_tied;
		if (rank->is_tied && rank->loss <= LOSS_MAX &&
		    tuner->points[rank->point].cost < cost) {
			cost = tuner->points[rank->point].cost;
			v.recommended = i;
		}
	}
	*ret_verdict = v;
	return 0;
}

/* ---- begin and end ---- */

void tuner_free(struct tuner *tuner)
{
	if (!tuner)
		return;
	free(tuner->points);
	free(tuner->steps);
	free(tuner->groups);
	free(tuner->is_kept);
	free(tuner);
}

int tuner_new(const struct tuner_options *options, struct tuner **ret_tuner)
{
	const size_t n = options->n_points;
	struct tuner *tuner = calloc(1, sizeof(*tuner));

	if (!tuner)
		return -ENOMEM;
	tuner->options = *options;
	tuner->options.costs = tuner->options.needs = NULL;
	tuner->options.groups = NULL;
	tuner->random = options->seed | 1;
	tuner->points = calloc(n, sizeof(*tuner->points));
	tuner->steps = calloc(2 * n, sizeof(*tuner->steps));
	tuner->groups = calloc(n, sizeof(*tuner->groups));
	tuner->is_kept = calloc(n, sizeof(*tuner->is_kept));
	if (!tuner->points || !tuner->steps || !tuner->groups || !tuner->is_kept) {
		tuner_free(tuner);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		tuner->points[i].cost = options->costs[i];
		tuner->points[i].need = options->needs[i];
		tuner->points[i].group = options->groups[i];
		if (options->needs[i] > options->io_size)
			drop(&tuner->points[i], NOT_REACHED);
		for (unsigned r = 0; r < ROUNDS_MAX; r++)
			tuner->points[i].logs[0][r] = tuner->points[i].logs[1][r] = NAN;
	}
	*ret_tuner = tuner;
	return 0;
}
