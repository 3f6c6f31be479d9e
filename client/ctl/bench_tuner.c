#include "client/ctl/bench_tuner.h"

#include "client/ctl/student.h"
#include "proto/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 64u
/* The last stage, whatever the budget: fewer give no interval that is worth something. */
#define FINAL_ROUNDS_MIN 5u
/* Its steps are cut so that about so many rounds fit: many short ones beat few long ones where a
   device's speed changes within seconds. */
#define FINAL_ROUNDS_WANTED 12u
/* Steps are no shorter than this part of a whole measurement: what a transfer costs at its begin
   and end must not decide. */
#define STEP_PARTS_MAX 32u
/* Points that lose less than this share of speed count as fast: then the cost decides. */
#define SAME_SPEED 0.015

/* Before the last stage: after so many rounds of steps of io_size / parts, a goal keeps n_kept. */
static const struct stage {
	unsigned parts, n_rounds;
	size_t n_kept;
} stages[] = { { 16, 2, 16 }, { 8, 3, 6 } };
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))

enum fate { RACES, SLOWER, NOT_FOLLOWED, FAILED };

struct point {
	uint64_t cost;
	enum fate fates[N_TUNER_GOALS];
	float logs[2][ROUNDS_MAX]; /* of speeds, by op; NAN: not measured */
};

struct tuner {
	struct tuner_options options;
	struct point *points;
	uint64_t used_bytes, random;
	size_t stage; /* N_STAGES: the last one */
	unsigned round, stage_round, final_round;
	uint64_t step_bytes;
	struct tuner_step *steps; /* of this round */
	size_t n_steps, at;
	bool is_done;
	double *means; /* thin_out()'s, for each point */
	bool *is_kept;
};

/* What a goal's rounds say of the points that race. */
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

/* What the point came to in a round, as the goal counts it: a logarithm. */
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

/* Of the rounds from first on: all who race were measured in each.  means: of the logarithms, NAN
   for who does not race; room for all points. */
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
	/* Two ways: points and rounds; what neither explains is the spread of one step. */
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
 * Half of the interval of the difference of two means, for all differences to the best at once:
 * who leads among many leads by luck, too.  (Bonferroni; for a normal distribution the quantile of
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

/* ---- who stays ---- */

/* The index of the best of those that are marked false, by mean or by cost; n_points: none. */
static size_t pick(const struct tuner *tuner, enum tuner_goal goal, const double *means,
		   const bool *is_kept, bool by_cost)
{
	size_t best = tuner->options.n_points;

	for (size_t i = 0; i < tuner->options.n_points; i++) {
		if (!races(tuner, i, goal) || is_kept[i])
			continue;
		if (best == tuner->options.n_points ||
		    (by_cost ? tuner->points[i].cost < tuner->points[best].cost
			     : means[i] > means[best]))
			best = i;
	}
	return best;
}

/*
 * Lets go of points, and leaves n_kept at most: the fastest, and for each three of them the cheapest
 * of the others, none of which is clearly slower.  (In simulations with points up to 30% apart and
 * steps that swing by 10%, half cheap ones lost 1.9% of speed in the mean, this loses 1.7%.)
 */
static void thin_out(struct tuner *tuner, enum tuner_goal goal, size_t n_kept)
{
	double *means = tuner->means;
	bool *is_kept = tuner->is_kept;
	const struct analysis a = analyse(tuner, goal, 0, means);
	const size_t n_points = tuner->options.n_points;
	size_t n = 0, i;

	if (!a.n)
		return;
	for (i = 0; i < n_points; i++) {
		is_kept[i] = false;
		if (races(tuner, i, goal) && means[a.best] - means[i] > half_width(&a))
			tuner->points[i].fates[goal] = SLOWER;
	}
	while (n < n_kept && (i = pick(tuner, goal, means, is_kept, n % 4 == 3)) < n_points) {
		is_kept[i] = true;
		n++;
	}
	for (i = 0; i < n_points; i++)
		if (races(tuner, i, goal) && !is_kept[i])
			tuner->points[i].fates[goal] = NOT_FOLLOWED;
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

static uint64_t step_bytes(const struct tuner *tuner, uint64_t wanted)
{
	const struct tuner_options *o = &tuner->options;
	uint64_t bytes = wanted < o->io_size / STEP_PARTS_MAX ? o->io_size / STEP_PARTS_MAX
							      : wanted;

	bytes = (bytes + o->align - 1) / o->align * o->align;
	return bytes < o->io_size ? bytes : o->io_size;
}

/* The budget that is left, for the last stage's rounds. */
static uint64_t final_step_bytes(const struct tuner *tuner, size_t n_steps)
{
	const struct tuner_options *o = &tuner->options;
	const uint64_t left = o->budget_bytes > tuner->used_bytes
				      ? o->budget_bytes - tuner->used_bytes
				      : 0;
	uint64_t bytes = left / FINAL_ROUNDS_WANTED / n_steps;

	if (bytes > o->io_size / 4)
		bytes = o->io_size / 4;
	return step_bytes(tuner, bytes);
}

static void begin_stage(struct tuner *tuner)
{
	const size_t n_steps = count_steps(tuner);

	tuner->stage_round = 0;
	if (tuner->stage < N_STAGES) {
		tuner->step_bytes = step_bytes(tuner,
					       tuner->options.io_size / stages[tuner->stage].parts);
	} else if (n_steps) {
		tuner->final_round = tuner->round;
		tuner->step_bytes = final_step_bytes(tuner, n_steps);
	}
}

/* Has any goal more points than the stage keeps?  Else there is nothing for it to do. */
static bool is_stage_needed(const struct tuner *tuner, const struct stage *stage)
{
	for (unsigned g = 0; g < N_TUNER_GOALS; g++) {
		size_t n = 0;

		for (size_t i = 0; i < tuner->options.n_points; i++)
			n += races(tuner, i, (enum tuner_goal)g);
		if (n > stage->n_kept)
			return true;
	}
	return false;
}

static void skip_stages(struct tuner *tuner)
{
	while (tuner->stage < N_STAGES && !is_stage_needed(tuner, &stages[tuner->stage]))
		tuner->stage++;
	begin_stage(tuner);
}

/* A round is over: the next one, the next stage, or the end. */
static void advance(struct tuner *tuner)
{
	tuner->round++;
	tuner->stage_round++;
	if (tuner->stage < N_STAGES) {
		const struct stage *stage = &stages[tuner->stage];

		if (tuner->stage_round < stage->n_rounds)
			return;
		for (unsigned g = 0; g < N_TUNER_GOALS; g++)
			thin_out(tuner, (enum tuner_goal)g, stage->n_kept);
		tuner->stage++;
		skip_stages(tuner);
		return;
	}
	tuner->is_done = tuner->round == ROUNDS_MAX ||
			 (tuner->stage_round >= FINAL_ROUNDS_MIN &&
			  tuner->used_bytes + tuner->step_bytes * count_steps(tuner) >
				  tuner->options.budget_bytes);
}

/* All steps of the round, in an order of their own. */
static void fill_round(struct tuner *tuner)
{
	tuner->n_steps = tuner->at = 0;
	for (size_t i = 0; i < tuner->options.n_points; i++)
		for (int op = BENCH_READ; op <= BENCH_WRITE; op++)
			if (is_measured(tuner, i, (enum bench_op)op))
				tuner->steps[tuner->n_steps++] = (struct tuner_step){
					i, (enum bench_op)op, tuner->step_bytes
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
			/* It may have failed in the other direction meanwhile. */
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

void tuner_tell(struct tuner *tuner, double speed)
{
	const struct tuner_step *step = &tuner->steps[tuner->at];
	struct point *point = &tuner->points[step->point];

	assert(tuner->at < tuner->n_steps);
	tuner->at++;
	tuner->used_bytes += step->bytes;
	point->logs[step->op][tuner->round] = (float)log(speed);
	if (speed <= 0)
		for (unsigned g = 0; g < N_TUNER_GOALS; g++)
			point->fates[g] = FAILED;
}

/*
 * The rest of this stage is known; of the later ones how many points they begin with, if nobody is
 * a clear loser and the goals keep different points by half.
 */
void tuner_left(const struct tuner *tuner, size_t *ret_steps, uint64_t *ret_bytes)
{
	const struct tuner_options *o = &tuner->options;
	const size_t n_ops = (size_t)o->reads + (size_t)o->writes;
	size_t n_points = count_steps(tuner) / n_ops, n = tuner->n_steps - tuner->at;
	uint64_t bytes = n * tuner->step_bytes, left;

	*ret_steps = 0;
	*ret_bytes = 0;
	if (tuner->is_done)
		return;
	for (size_t s = tuner->stage; s < N_STAGES; s++) {
		const unsigned rounds = stages[s].n_rounds -
					(s == tuner->stage ? tuner->stage_round + 1 : 0);
		const size_t n_stage = n_points * n_ops * rounds;

		n += n_stage;
		bytes += n_stage * step_bytes(tuner, o->io_size / stages[s].parts);
		if (n_points > stages[s].n_kept * (n_ops == 2 ? 2 : 1))
			n_points = stages[s].n_kept * (n_ops == 2 ? 2 : 1);
	}
	left = tuner->used_bytes + bytes < o->budget_bytes
		       ? o->budget_bytes - tuner->used_bytes - bytes
		       : 0;
	if (tuner->stage == N_STAGES) {
		n += (size_t)(left / tuner->step_bytes);
	} else if (n_points) {
		const uint64_t final_bytes = step_bytes(tuner, left / FINAL_ROUNDS_WANTED /
								       (n_points * n_ops));

		n += (size_t)(left / final_bytes);
	}
	*ret_steps = n;
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

/* Of a point's own speed from a round on: how far it swung, drift and all. */
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
	struct interval own = own_speed(tuner, goal, point, tuner->final_round);

	if (!own.n)
		own = own_speed(tuner, goal, point, 0);
	*ret_speed = own.mean;
	*ret_low = own.low;
	*ret_high = own.high;
	return own.n > 0;
}

int tuner_judge(const struct tuner *tuner, enum tuner_goal goal, struct tuner_verdict *ret_verdict)
{
	struct tuner_verdict v = { .n_rounds = tuner->round - tuner->final_round };
	_cleanup_(freep) double *means = calloc(tuner->options.n_points, sizeof(*means));
	struct analysis a;
	uint64_t cost = UINT64_MAX;
	double half;

	if (!means)
		return -ENOMEM;
	a = analyse(tuner, goal, tuner->final_round, means);
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
		if (!races(tuner, i, goal))
			continue;
		below = means[a.best] - means[i];
		own = own_speed(tuner, goal, i, tuner->final_round);
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
		v.n_tied += rank->is_tied;
		v.n_ranks++;
	}
	qsort(v.ranks, v.n_ranks, sizeof(*v.ranks), compare_ranks);
	for (size_t i = 0; i < v.n_ranks; i++) {
		const struct tuner_rank *rank = &v.ranks[i];

		if (rank->is_tied && rank->loss <= SAME_SPEED &&
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
	free(tuner->means);
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
	tuner->options.costs = NULL;
	tuner->random = options->seed | 1;
	tuner->points = calloc(n, sizeof(*tuner->points));
	tuner->steps = calloc(2 * n, sizeof(*tuner->steps));
	tuner->means = calloc(n, sizeof(*tuner->means));
	tuner->is_kept = calloc(n, sizeof(*tuner->is_kept));
	if (!tuner->points || !tuner->steps || !tuner->means || !tuner->is_kept) {
		tuner_free(tuner);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		tuner->points[i].cost = options->costs[i];
		for (unsigned r = 0; r < ROUNDS_MAX; r++)
			tuner->points[i].logs[0][r] = tuner->points[i].logs[1][r] = NAN;
	}
	skip_stages(tuner);
	*ret_tuner = tuner;
	return 0;
}
