/*
 * dsaioctl bench tune: the best profile of a space, found in a fifth of a sweep's time.
 *
 * The tuner (tuner.h) chooses what to measure next and judges the results; each step is a row of
 * tune.json.  It chooses the same again for the same numbers, so an interrupted run continues with a
 * new tuner that gets the rows.
 *
 * tune.json has beside the rows
 *     "best": {"aio": {...}} as DeepSpeed's configuration has it,
 *     "tune": {"read": GOAL, "write": GOAL, "sum": GOAL}, GOAL: {
 *         "ranks": [{"profile": {...}, "speed", "speed_low", "speed_high", "loss", "loss_low",
 *                    "loss_high", "is_tied"}],		the fastest first
 *         "recommended": index in ranks, "n_dropped", "n_not_reached", "n_rounds" }
 */
#include "client/ctl/bench/bench.h"
#include "client/ctl/bench/tuner.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/table.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Mean depth of a transfer of n blocks with d of them in flight: the queue drains at the end, with
 * d / 2 blocks in the mean, so the mean over all is d * (1 - d / 2n).  That is three quarters of d
 * for n = 2d, and two thirds for n = 1.5d, the shortest transfer that counts as one of that depth.
 * A point below these shares was not limited by its depth.  With sequential requests each batch
 * drains before the next one: the mean of a queue that is always filled is half of its depth.
 */
#define NEED_DEPTHS 2u
#define NEED_HALF_DEPTHS_MIN 3u
#define REACHED_OVERLAP 0.6
#define REACHED_SEQUENTIAL 0.4

static struct bench_options options = BENCH_OPTIONS_INIT;
static bool apply;

static const struct flag flags[] = { BENCH_FLAGS(options), { "apply", FLAG_BOOL, &apply, 0, 0 } };

static const char help[] =
	"dsaioctl bench tune - find the best profile for reads, writes and their sum\n"
	"\n"
	"    dsaioctl bench tune --dir /nvme\n"
	"    dsaioctl bench tune --dir /nvme --apply\n"
	"    dsaioctl bench tune --dir /nvme0 /nvme1 --sweep_config space.json\n"
	"    dsaioctl bench tune --dir . --io_size 64M --no_write --private --json\n"
	"\n" BENCH_OPTIONS_HELP
	"    --loops N              move N times the bytes, in N times the time (1)\n"
	"    --apply                set the recommended profile on the stores, saved across\n"
	"                           restarts (administrators); undo: dsaioctl profile reset\n"
	"    --json                 tune.json on standard output\n"
	"    --socket PATH          the daemon's socket\n"
	"    --private              a daemon for this command alone\n"
	"\n" BENCH_SPACE_HELP "\n"
	"Each point is measured once, by a transfer that is long enough to reach its queue depth; a\n"
	"point that no transfer of --io_size brings to its depth is reported and not ranked.  An eighth\n"
	"of the points is then measured as a sweep does, in rounds with a new order each time, and each\n"
	"round halves them down to four for each goal.  A point that is not clearly slower than the\n"
	"fastest is tied with it; the cheapest of those (least memory in flight, then fewest parts)\n"
	"whose mean is at most 5% below the fastest is recommended.  The default space takes at most a\n"
	"fifth of the time of a sweep with five times as many loops a point.\n"
	"\n"
	"exit status: 0 done, 1 failed, also if no point could be measured, 2 wrong usage, 3 no\n"
	"daemon answers, 129, 130 and 143 interrupted (--resume goes on)\n";

/* The run: the space, the tuner, and the rows of an earlier run. */
struct tune {
	struct ctl *ctl;
	struct bench *bench;
	struct bench_space space;
	struct tuner *tuner;
	size_t n_old;		   /* rows of an earlier run */
	bool *is_added;		   /* for each of them: the tuner has it */
	uint64_t step_nsec, bytes; /* of the steps of this run */
};

/* ---- measuring ---- */

/* Blocks in flight at most; parts share the depth. */
static uint64_t memory_of(const struct profile *profile)
{
	return (uint64_t)profile->block_size * profile->queue_depth;
}

/* Less memory in flight is cheaper, then fewer parts, then the plainer way to submit. */
static uint64_t cost_of(const struct profile *profile)
{
	return memory_of(profile) << 12 | profile->intra_op_parallelism << 2 |
	       (uint64_t)profile->single_submit << 1 | (uint64_t)!profile->overlap_events;
}

/* Bytes of a transfer that reaches the depth; UINT64_MAX: no transfer of io_size does. */
static uint64_t need_of(const struct profile *profile)
{
	const uint64_t memory = memory_of(profile);

	if (NEED_HALF_DEPTHS_MIN * memory / 2 > options.io_size && profile->queue_depth > 1)
		return UINT64_MAX;
	return NEED_DEPTHS * memory < options.io_size ? NEED_DEPTHS * memory : options.io_size;
}

/* A depth of one is always reached.  A mean depth of 0 is not known. */
static bool is_reached(const struct tune *tune, const struct bench_row *row)
{
	const struct profile *profile = &row->task.profile;
	const double share = profile->overlap_events ? REACHED_OVERLAP : REACHED_SEQUENTIAL;

	return profile->queue_depth == 1 || row->served.mean_depth <= 0 ||
	       row->served.mean_depth >= share * profile->queue_depth * tune->bench->n_places;
}

static void start_tuner(struct tune *tune)
{
	const size_t n = bench_space_points(&tune->space);
	_cleanup_(freep) struct tuner_point *points = NEW_ARRAY(struct tuner_point, n);
	const struct tuner_options tuner = { .n_points = n,
					     .points = points,
					     .reads = !options.no_read,
					     .writes = !options.no_write,
					     .io_size = options.io_size };

	tune->n_old = bench_results_n_rows(&tune->bench->results);
	tune->is_added = NEW_ARRAY(bool, tune->n_old);
	for (size_t i = 0; i < n; i++) {
		const struct profile profile = bench_space_point(&tune->space, i);

		points[i] = (struct tuner_point){ cost_of(&profile), need_of(&profile) };
	}
	tune->tuner = tuner_new(&tuner);
}

static void add_to_tuner(struct tune *tune, const struct bench_row *row)
{
	tuner_add(tune->tuner, row->error[0] ? 0 : row->total.e2e_speed, is_reached(tune, row));
}

/* Gives the tuner the row of an earlier run for this step, if there is one. */
static bool add_old(struct tune *tune, const struct bench_task *task)
{
	for (size_t i = 0; i < tune->n_old; i++) {
		struct bench_row row;

		if (tune->is_added[i] || bench_results_row(&tune->bench->results, i, &row) < 0 ||
		    row.task.op != task->op || row.task.io_size != task->io_size ||
		    !bench_same_profile(&row.task.profile, &task->profile))
			continue;
		tune->is_added[i] = true;
		add_to_tuner(tune, &row);
		return true;
	}
	return false;
}

static void update_estimate(struct tune *tune)
{
	const double nsec_per_byte = (double)tune->step_nsec / (double)tune->bytes;
	size_t n_left;
	uint64_t bytes_left;

	tuner_left(tune->tuner, &n_left, &bytes_left);
	progress_points_estimate(&tune->bench->progress, n_left,
				 (uint64_t)(nsec_per_byte * (double)bytes_left));
}

static int measure_step(struct tune *tune, const struct bench_task *task)
{
	const uint64_t start = clock_nsec();
	struct bench *bench = tune->bench;
	struct bench_row row;
	int r;

	progress_points_begin(&bench->progress);
	r = bench_measure(bench, task, &row);
	if (r == CTL_OK)
		r = bench_add(bench, &row);
	if (r == CTL_OK) {
		add_to_tuner(tune, &row);
		tune->step_nsec += clock_nsec() - start;
		tune->bytes += task->io_size;
		update_estimate(tune);
		bench_end_point(bench, &row, is_reached(tune, &row) ? "" : ", depth not reached");
	}
	bench_row_deinit(&row);
	return r;
}

/* The tuner gets the results of an earlier run; all other steps are measured. */
static int measure_all(struct tune *tune)
{
	struct tuner_step step;
	bool is_prepared = false;
	int r = CTL_OK;

	while (r == CTL_OK && tuner_next(tune->tuner, &step)) {
		const struct bench_task task = { .op = step.op,
						 .profile = bench_space_point(&tune->space,
									      step.point),
						 .io_size = step.bytes,
						 .loops = options.loops };

		if (add_old(tune, &task))
			continue;
		if (!is_prepared) {
			r = bench_prepare(tune->bench);
			if (r != CTL_OK)
				return r;
			is_prepared = true;
			progress_points_start(&tune->bench->progress, "tune",
					      bench_results_n_rows(&tune->bench->results), 0,
					      options.verbose);
		}
		r = measure_step(tune, &task);
	}
	if (r == CTL_OK && !is_prepared)
		bench_note_complete(tune->bench);
	return r;
}

/* ---- the verdict ---- */

static const char *const goal_names[N_TUNER_GOALS] = { "read", "write", "sum" };

static void add_interval(struct json_object *object, const char *key,
			 const struct tuner_interval *interval)
{
	char low[16], high[16];

	(void)snprintf(low, sizeof(low), "%s_low", key);
	(void)snprintf(high, sizeof(high), "%s_high", key);
	json_add_float(object, key, interval->mean);
	json_add_float(object, low, interval->low);
	json_add_float(object, high, interval->high);
}

static struct json_object *verdict_json(const struct tune *tune,
					const struct tuner_verdict *verdict)
{
	struct json_object *object = json_object_new_object(), *ranks = json_object_new_array();

	for (size_t i = 0; i < verdict->n_ranks; i++) {
		const struct tuner_rank *rank = &verdict->ranks[i];
		const struct profile profile = bench_space_point(&tune->space, rank->point);
		struct json_object *element = json_object_new_object();

		json_object_object_add(element, "profile", json_profile(&profile));
		add_interval(element, "speed", &rank->speed);
		add_interval(element, "loss", &rank->loss);
		json_add_bool(element, "is_tied", rank->is_tied);
		(void)json_object_array_add(ranks, element);
	}
	json_object_object_add(object, "ranks", ranks);
	json_add_number(object, "recommended", verdict->recommended);
	json_add_number(object, "n_dropped", verdict->n_dropped);
	json_add_number(object, "n_not_reached", verdict->n_not_reached);
	json_add_number(object, "n_rounds", verdict->n_rounds);
	return object;
}

static void add_rank(struct table *table, const struct tune *tune, enum tuner_goal goal,
		     const struct tuner_verdict *verdict, size_t i)
{
	const struct tuner_rank *rank = &verdict->ranks[i];
	const struct profile profile = bench_space_point(&tune->space, rank->point);
	char text[UNITS_TEXT_BYTES];

	table_add(table, "%s", goal_names[goal]);
	table_add(table, "%s", bench_block_size_name(text, profile.block_size));
	table_add(table, "%" PRIu32, profile.queue_depth);
	table_add(table, "%s", profile.overlap_events ? "overlap" : "sequential");
	table_add(table, "%s", profile.single_submit ? "single" : "block");
	table_add(table, "%" PRIu32, profile.intra_op_parallelism);
	table_add(table, "%.3f", rank->speed.mean);
	table_add(table, "%.3f-%.3f", rank->speed.low, rank->speed.high);
	if (i == 0)
		table_add(table, "-");
	else
		table_add(table, "%.1f%%", rank->loss.mean * 100);
	table_add(table, "%s%s%s",
		  i == 0	  ? "fastest"
		  : rank->is_tied ? "tied"
				  : "slower",
		  i == verdict->recommended ? ", " : "",
		  i == verdict->recommended ? "recommended" : "");
}

/* Prints the last lines of DeepSpeed's tuner, which other programs parse: the speed of the fastest
   point, and the recommended profile. */
static int print_best(const struct tune *tune, enum tuner_goal goal, size_t fastest,
		      size_t recommended, struct json_object *best)
{
	const bool has[] = { goal != TUNER_WRITE, goal != TUNER_READ };

	(void)printf("Best performance (GB/sec):");
	for (unsigned op = BENCH_READ; op <= BENCH_WRITE; op++)
		if (has[op])
			(void)printf("%s %s = %5.2f", op == BENCH_WRITE && has[0] ? "," : "",
				     bench_op_name(op), tuner_speed(tune->tuner, op, fastest).mean);
	(void)printf("\n%s\n", json_object_to_json_string_ext(
				       best, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
	for (unsigned op = BENCH_READ; op <= BENCH_WRITE; op++) {
		struct tuner_interval speed;

		if (!has[op])
			continue;
		speed = tuner_speed(tune->tuner, op, recommended);
		(void)printf("recommended, %s: %.3f GB/sec, 95%% interval %.3f to %.3f\n",
			     bench_op_name(op), speed.mean, speed.low, speed.high);
	}
	return ctl_flush(tune->ctl);
}

static int apply_profile(struct tune *tune, const struct profile *profile)
{
	Wire__Profile wire = WIRE__PROFILE__INIT;

	profile_to_wire(profile, &wire);
	for (unsigned i = 0; i < tune->bench->n_places; i++) {
		const struct bench_place *place = &tune->bench->places[i];
		_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
		bool is_done = false;
		int r;

		for (unsigned k = 0; k < i; k++)
			is_done |= tune->bench->places[k].store == place->store;
		if (is_done)
			continue;
		r = ask_profile_set(tune->ctl, place->folder, &wire, &reply);
		if (r != CTL_OK)
			return r;
		ctl_note(tune->ctl, "store %s has the recommended profile now%s%s",
			 place->store_name, reply->text[0] ? "; " : ", saved across restarts",
			 reply->text);
	}
	return CTL_OK;
}

/* On a host with several users a request is never larger than the device takes at once. */
static void note_served(const struct tune *tune, const struct profile *profile)
{
	const struct bench_served served = bench_guest_served(&tune->bench->guest, profile);
	char asked[UNITS_TEXT_BYTES], used[UNITS_TEXT_BYTES];

	if (served.block_size && served.block_size != profile->block_size)
		ctl_note(tune->ctl, "blocks of %s go to the device as requests of at most %s",
			 units_format_size(asked, profile->block_size),
			 units_format_size(used, served.block_size));
}

/* The goals' tables, and the recommendation: of the sum, or of the only goal. */
static int print_verdict(struct tune *tune)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = "FOR|>BLOCK|>DEPTH|EVENTS|SUBMIT|>PARTS|>GB/S|>95%|>LOSS|"
	};
	struct json_object *all = json_object_new_object(), *best = json_object_new_object();
	struct tuner_verdict last = { .n_ranks = 0 }; /* of the goals with ranks */
	enum tuner_goal goal = TUNER_READ;	      /* of that verdict */
	struct profile profile;
	bool has_missed = false;
	int r = CTL_OK;

	bench_results_set(&tune->bench->results, "tune", all);
	bench_results_set(&tune->bench->results, "best", best);
	for (unsigned g = 0; g < N_TUNER_GOALS; g++) {
		const struct tuner_verdict verdict = tuner_judge(tune->tuner, g);

		if (!tuner_has_goal(tune->tuner, g))
			continue;
		json_object_object_add(all, goal_names[g], verdict_json(tune, &verdict));
		for (size_t i = 0; i < verdict.n_ranks; i++)
			add_rank(&table, tune, g, &verdict, i);
		if (verdict.n_ranks) {
			last = verdict;
			goal = g;
		}
		if (verdict.n_dropped)
			ctl_note(tune->ctl,
				 "%s: %zu other points are not ranked: faster or cheaper ones "
				 "took their place",
				 goal_names[g], verdict.n_dropped);
		if (verdict.n_not_reached)
			ctl_note(tune->ctl,
				 "%s: %zu points are not ranked: a transfer of --io_size did not "
				 "reach their queue depth",
				 goal_names[g], verdict.n_not_reached);
		has_missed |= verdict.n_not_reached > 0;
	}
	if (!last.n_ranks)
		return ctl_fail(
			tune->ctl,
			has_missed ? "no point reached its queue depth: --io_size has too few "
				     "blocks for it, or the device takes fewer requests; give a "
				     "larger --io_size, or a space with smaller blocks or depths"
				   : "no point could be measured: each row has its error");
	profile = bench_space_point(&tune->space, last.ranks[last.recommended].point);
	json_object_object_add(best, "aio", json_profile(&profile));
	if (!tune->ctl->is_json) {
		table_print(&table, stdout);
		r = print_best(tune, goal, last.ranks[0].point, last.ranks[last.recommended].point,
			       best);
	}
	note_served(tune, &profile);
	return r == CTL_OK && apply ? apply_profile(tune, &profile) : r;
}

static int run_tune(struct tune *tune, const struct bench_needs *needs)
{
	int r = bench_open(tune->ctl, needs, &tune->bench);

	if (r == CTL_OK) {
		start_tuner(tune);
		r = measure_all(tune);
	}
	progress_points_stop(&tune->bench->progress);
	if (r == CTL_OK)
		r = print_verdict(tune);
	return bench_close(tune->bench, r);
}

static int tune_run(struct ctl *ctl)
{
	struct tune tune = { .ctl = ctl };
	const struct bench_needs needs = {
		.kind = "tune", .options = &options, .space = &tune.space, .sets_profiles = apply
	};
	int r = bench_options_check(ctl, &options, &tune.space);

	if (r != CTL_OK)
		return r;
	if (apply && ctl->is_private)
		return ctl_usage(ctl, "--apply: a daemon of --private ends with the command: tune "
				      "the one that is in use");
	r = bench_finish(tune.bench, run_tune(&tune, &needs));
	tuner_free(tune.tuner);
	free(tune.is_added);
	free(options.nvme_dir.items);
	return r;
}

const struct command command_bench_tune = COMMAND("bench tune", tune_run,
						  "the best profile, in a fifth of a sweep's time",
						  help, .flags = FLAG_TABLE(flags));
