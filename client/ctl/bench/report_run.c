#include "client/ctl/bench/report_run.h"

#include "client/ctl/bench/space.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool report_is_measured(const struct bench_row *row)
{
	return !row->error[0] && row->total.e2e_speed > 0;
}

static bool same_profile(const struct bench_row *a, const struct bench_row *b)
{
	return bench_same_profile(&a->task.profile, &b->task.profile);
}

static double pair_speed(const struct report_pair *pair)
{
	return (pair->rows[0] ? pair->rows[0]->total.e2e_speed : 0) +
	       (pair->rows[1] ? pair->rows[1]->total.e2e_speed : 0);
}

/* Pairs with both ops come first, then those with the larger sum. */
static int compare_pairs(const void *a, const void *b)
{
	const struct report_pair *x = a, *y = b;
	const int n_x = !!x->rows[0] + !!x->rows[1], n_y = !!y->rows[0] + !!y->rows[1];

	if (n_x != n_y)
		return n_y - n_x;
	return (pair_speed(x) < pair_speed(y)) - (pair_speed(x) > pair_speed(y));
}

struct report_pair *report_pairs(const struct report_run *run, size_t *ret_n)
{
	struct report_pair *pairs = calloc(run->n_rows ? run->n_rows : 1, sizeof(*pairs));
	size_t n = 0;

	for (size_t i = 0; pairs && i < run->n_rows; i++) {
		const struct bench_row *row = &run->rows[i];
		size_t k = 0;

		if (!report_is_measured(row))
			continue;
		while (k < n &&
		       !same_profile(row, pairs[k].rows[0] ? pairs[k].rows[0] : pairs[k].rows[1]))
			k++;
		pairs[k].rows[row->task.op] = row;
		n += k == n;
	}
	if (pairs)
		qsort(pairs, n, sizeof(*pairs), compare_pairs);
	*ret_n = n;
	return pairs;
}

const char *report_profile_name(char *text, size_t size, const struct profile *profile)
{
	char block[UNITS_TEXT_BYTES];

	(void)snprintf(text, size, "%s d%" PRIu32 " p%" PRIu32 " %s%s",
		       bench_block_size_name(block, profile->block_size), profile->queue_depth,
		       profile->intra_op_parallelism, profile->overlap_events ? "overlap" : "seq",
		       profile->single_submit ? " single" : "");
	return text;
}

/* ---- the ranks of bench tune ---- */

static uint32_t u32_in(struct json_object *object, const char *key)
{
	const uint64_t value = json_object_get_uint64(json_object_object_get(object, key));

	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static bool bool_in(struct json_object *object, const char *key)
{
	return json_object_get_boolean(json_object_object_get(object, key));
}

struct json_object *report_goal(const struct report_run *run, const char *name)
{
	struct json_object *goal = json_object_object_get(bench_results_get(run->results, "tune"),
							  name);
	struct json_object *ranks = json_object_object_get(goal, "ranks");

	return json_object_is_type(ranks, json_type_array) && json_object_array_length(ranks) > 0
		       ? goal
		       : NULL;
}

size_t report_n_ranks(struct json_object *goal)
{
	return json_object_array_length(json_object_object_get(goal, "ranks"));
}

size_t report_recommended(struct json_object *goal)
{
	return (size_t)json_object_get_uint64(json_object_object_get(goal, "recommended"));
}

struct report_rank report_rank(struct json_object *goal, size_t i)
{
	struct json_object *o = json_object_array_get_idx(json_object_object_get(goal, "ranks"), i);
	struct json_object *profile = json_object_object_get(o, "profile");

	return (struct report_rank){
		.profile = { .block_size = u32_in(profile, "block_size"),
			     .queue_depth = u32_in(profile, "queue_depth"),
			     .single_submit = bool_in(profile, "single_submit"),
			     .overlap_events = bool_in(profile, "overlap_events"),
			     .intra_op_parallelism = u32_in(profile, "intra_op_parallelism") },
		.speed = json_finite(json_object_object_get(o, "speed")),
		.low = json_finite(json_object_object_get(o, "speed_low")),
		.high = json_finite(json_object_object_get(o, "speed_high")),
		.is_tied = bool_in(o, "is_tied"),
		.is_recommended = i == report_recommended(goal),
	};
}

struct json_object *report_main_goal(const struct report_run *run, const char **ret_name)
{
	static const char *const names[] = { "sum", "read", "write" };
	struct json_object *goal = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !goal; i++) {
		*ret_name = names[i];
		goal = report_goal(run, names[i]);
	}
	return goal;
}

bool report_is_of_points(const struct report_run *run)
{
	return strcmp(bench_results_kind(run->results), "latency") != 0;
}

/* ---- rows ---- */

void report_run_deinit(struct report_run *run)
{
	for (size_t i = 0; i < run->n_rows; i++)
		bench_row_deinit(&run->rows[i]);
	free(run->rows);
}

/* The row of that op and profile, or a new one. */
static struct bench_row *row_for(struct report_run *run, const struct bench_row *row)
{
	for (size_t i = 0; i < run->n_rows; i++)
		if (run->rows[i].task.op == row->task.op && same_profile(&run->rows[i], row))
			return &run->rows[i];
	run->rows[run->n_rows] = (struct bench_row){ .task = row->task };
	return &run->rows[run->n_rows++];
}

/* The steps of a tuner become the repetitions of one row, like those of a sweep. */
static int merge(struct bench_row *into, const struct bench_row *row)
{
	const size_t n = into->n_repetitions + row->n_repetitions;
	struct bench_repetition *all = reallocarray(into->repetitions, n ? n : 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	if (row->n_repetitions)
		memcpy(all + into->n_repetitions, row->repetitions,
		       row->n_repetitions * sizeof(*all));
	into->repetitions = all;
	into->n_repetitions = n;
	if (row->error[0])
		memcpy(into->error, row->error, sizeof(into->error));
	into->total.bytes += row->total.bytes;
	into->total.e2e_sec += row->total.e2e_sec;
	if (into->total.e2e_sec > 0)
		into->total.e2e_speed = (double)into->total.bytes / into->total.e2e_sec / REPORT_GB;
	return 0;
}

int report_run_init(struct report_run *run, const struct bench_report_run *from)
{
	const size_t n = bench_results_n_rows(&from->results);

	*run = (struct report_run){ .name = from->name, .results = &from->results };
	run->rows = calloc(n ? n : 1, sizeof(*run->rows));
	if (!run->rows)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct bench_row row;
		int r = bench_results_row(&from->results, i, &row);

		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue; /* it is no row */
		r = merge(row_for(run, &row), &row);
		bench_row_deinit(&row);
		if (r < 0)
			return r;
	}
	return 0;
}
