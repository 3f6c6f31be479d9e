#include "client/ctl/bench/report.h"

#include "client/ctl/bench/space.h"
#include "client/ctl/bench/student.h"
#include "client/ctl/bench/svg.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GB (1024.0 * 1024 * 1024)
#define BARS_MAX 12u /* profiles that are shown as bars: more are in the heat maps */

static const char style[] =
	":root{color-scheme:light dark;--page:#fff;--ink:#1c2430;--dim:#5b6675;--rule:#d5dae1;"
	"--card:#f6f8fa;--c0:#1f6fb4;--c1:#c2570c;--c2:#2a8a4a;--c3:#8a4bb0;--c4:#b03a58;"
	"--c5:#5d6a1f;"
	"--heat0:#eef4fb;--heat1:#d3e4f4;--heat2:#aecde9;--heat3:#7fb0db;--heat4:#4f90c9;"
	"--heat5:#2a6fb0;--heat6:#124f8c;--heat-text0:#1c2430;--heat-text1:#1c2430;"
	"--heat-text2:#1c2430;--heat-text3:#10161f;--heat-text4:#fff;--heat-text5:#fff;"
	"--heat-text6:#fff}\n"
	"@media screen and (prefers-color-scheme:dark){:root{--page:#12161c;--ink:#e4e9f0;"
	"--dim:#9aa6b5;--rule:#323b47;--card:#1a2029;--c0:#62aeea;--c1:#f0924e;--c2:#63c588;"
	"--c3:#c08be0;--c4:#ec7f9b;--c5:#b3c25a;"
	"--heat0:#1d2733;--heat1:#213a52;--heat2:#275074;--heat3:#2f6897;--heat4:#4186bb;"
	"--heat5:#6aaada;--heat6:#a5d0f0;--heat-text0:#e4e9f0;--heat-text1:#e4e9f0;"
	"--heat-text2:#fff;--heat-text3:#fff;--heat-text4:#0b1118;--heat-text5:#0b1118;"
	"--heat-text6:#0b1118}}\n"
	"@media print{:root{color-scheme:light}figure,article,table{break-inside:avoid}"
	"*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n"
	"body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;"
	"margin:0 auto;padding:1.5rem;max-width:90rem}\n"
	"h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2rem 0 .6rem}"
	"h3{font-size:1rem;margin:1.4rem 0 .4rem}p,.dim{color:var(--dim)}p{margin:.2rem 0 .8rem;"
	"max-width:60rem}\n"
	".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
	"th,td{text-align:left;vertical-align:top;padding:.25rem .9rem .25rem 0;"
	"border-bottom:1px solid var(--rule)}th{font-weight:600}td.n{text-align:right}td.n,td.mono{white-space:nowrap}\n"
	"code,pre,.mono{font-family:ui-monospace,\"DejaVu Sans Mono\",monospace;font-size:13px}"
	"code{overflow-wrap:anywhere}pre{background:var(--card);border:1px solid var(--rule);"
	"padding:.7rem;overflow-x:auto;margin:.4rem 0}\n"
	".runs{display:grid;gap:1rem 2.5rem;"
	"grid-template-columns:repeat(auto-fit,minmax(min(100%,36rem),1fr))}"
	"article{min-width:0}figure{margin:0 0 1.2rem}figcaption{color:var(--dim);"
	"font-size:.87rem;margin:.2rem 0}.maps{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem}"
	".maps svg{flex:0 1 auto}svg{display:block;width:100%;height:auto}\n"
	"svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .tick{fill:var(--dim);"
	"font-size:11px}svg .axis{font-size:12px}svg .mono{font:11px ui-monospace,\"DejaVu Sans "
	"Mono\",monospace}svg .value{font-size:10px}svg .cell{font-size:11.5px}"
	".grid{stroke:var(--rule);stroke-width:1}.line{fill:none;stroke-width:2}"
	".whisker{stroke:var(--ink);stroke-width:1.2;fill:none}.bad{color:var(--c4)}\n";

/* A run's rows, read once. */
struct run {
	const char *name;
	const struct bench_results *results;
	struct bench_row *rows;
	size_t n_rows;
};

/* A profile with its reads and writes. */
struct pair {
	const struct bench_row *rows[2]; /* by op; NULL: not measured, or failed */
};

/* ---- what is read from the results ---- */

static const char *text_at(const struct bench_results *results, const char *object, const char *key)
{
	struct json_object *value = bench_results_get(results, object);

	value = json_object_object_get(value, key);
	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

static uint64_t int_at(const struct bench_results *results, const char *object, const char *key)
{
	return json_object_get_uint64(
		json_object_object_get(bench_results_get(results, object), key));
}

static bool is_measured(const struct bench_row *row)
{
	return !row->error[0] && row->total.e2e_speed > 0;
}

static bool same_profile(const struct bench_row *a, const struct bench_row *b)
{
	return bench_same_profile(&a->task.profile, &b->task.profile);
}

static double pair_speed(const struct pair *pair)
{
	return (pair->rows[0] ? pair->rows[0]->total.e2e_speed : 0) +
	       (pair->rows[1] ? pair->rows[1]->total.e2e_speed : 0);
}

/* Both first, then by their sum, the fastest first. */
static int compare_pairs(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	const int n_x = !!x->rows[0] + !!x->rows[1], n_y = !!y->rows[0] + !!y->rows[1];

	if (n_x != n_y)
		return n_y - n_x;
	return (pair_speed(x) < pair_speed(y)) - (pair_speed(x) > pair_speed(y));
}

/* For free(); room for a pair for each row. */
static struct pair *pairs_of(const struct run *run, size_t *ret_n)
{
	struct pair *pairs = calloc(run->n_rows ? run->n_rows : 1, sizeof(*pairs));
	size_t n = 0;

	for (size_t i = 0; pairs && i < run->n_rows; i++) {
		const struct bench_row *row = &run->rows[i];
		size_t k = 0;

		if (!is_measured(row))
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

/* "1M x 32, 8 parts, overlap" */
static const char *profile_name(char *text, size_t size, const struct profile *profile)
{
	char block[UNITS_TEXT_BYTES];

	(void)snprintf(text, size, "%s d%" PRIu32 " p%" PRIu32 " %s%s",
		       bench_block_size_name(block, profile->block_size), profile->queue_depth,
		       profile->intra_op_parallelism, profile->overlap_events ? "overlap" : "seq",
		       profile->single_submit ? " single" : "");
	return text;
}

/* ---- what bench tune found ---- */

/* A profile of a goal's ranks. */
struct rank {
	struct profile profile;
	double speed, low, high;
	bool is_tied, is_recommended;
};

static uint32_t u32_in(struct json_object *object, const char *key)
{
	const uint64_t value = json_object_get_uint64(json_object_object_get(object, key));

	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static bool bool_in(struct json_object *object, const char *key)
{
	return json_object_get_boolean(json_object_object_get(object, key));
}

/* The ranks of a goal ("read", "write" or "sum"), the fastest first; NULL: there are none. */
static struct json_object *goal_of(const struct run *run, const char *name)
{
	struct json_object *goal = json_object_object_get(bench_results_get(run->results, "tune"),
							  name);
	struct json_object *ranks = json_object_object_get(goal, "ranks");

	return json_object_is_type(ranks, json_type_array) && json_object_array_length(ranks) > 0
		       ? goal
		       : NULL;
}

static size_t n_ranks(struct json_object *goal)
{
	return json_object_array_length(json_object_object_get(goal, "ranks"));
}

static size_t recommended_rank(struct json_object *goal)
{
	return (size_t)json_object_get_uint64(json_object_object_get(goal, "recommended"));
}

static struct rank rank_of(struct json_object *goal, size_t i)
{
	struct json_object *o = json_object_array_get_idx(json_object_object_get(goal, "ranks"), i);
	struct json_object *profile = json_object_object_get(o, "profile");

	return (struct rank){
		.profile = { .block_size = u32_in(profile, "block_size"),
			     .queue_depth = u32_in(profile, "queue_depth"),
			     .single_submit = bool_in(profile, "single_submit"),
			     .overlap_events = bool_in(profile, "overlap_events"),
			     .intra_op_parallelism = u32_in(profile, "intra_op_parallelism") },
		.speed = json_finite(json_object_object_get(o, "speed")),
		.low = json_finite(json_object_object_get(o, "speed_low")),
		.high = json_finite(json_object_object_get(o, "speed_high")),
		.is_tied = bool_in(o, "is_tied"),
		.is_recommended = i == recommended_rank(goal),
	};
}

/* The goal that the recommendation comes from. */
static struct json_object *main_goal(const struct run *run, const char **ret_name)
{
	static const char *const names[] = { "sum", "read", "write" };
	struct json_object *goal = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !goal; i++) {
		*ret_name = names[i];
		goal = goal_of(run, names[i]);
	}
	return goal;
}

/* The speed of a row with the interval that its repetitions give, if there are several. */
static struct svg_bar bar_of(const struct bench_row *row)
{
	struct svg_bar bar = { 0 };
	double sum = 0, squares = 0, half;
	const size_t n = row ? row->n_repetitions : 0;

	if (!row)
		return bar;
	bar.value = bar.low = bar.high = row->total.e2e_speed;
	if (n < 3) /* an interval of two says nothing */
		return bar;
	for (size_t i = 0; i < n; i++) {
		const double speed = (double)row->repetitions[i].bytes /
				     row->repetitions[i].e2e_sec / GB;

		if (!isfinite(speed)) /* a time of 0: not one of ours */
			return bar;
		sum += speed;
		squares += speed * speed;
	}
	squares -= sum * sum / (double)n;
	half = student_95(n - 1) * sqrt((squares > 0 ? squares : 0) / (double)(n - 1) / (double)n);
	bar.low = fmax(0, bar.value - half);
	bar.high = bar.value + half;
	return bar;
}

/* ---- facts ---- */

static void cell(FILE *out, const char *text)
{
	(void)fputs("<td>", out);
	svg_text(out, text[0] ? text : "-");
	(void)fputs("</td>", out);
}

static void command_cell(FILE *out, const struct bench_results *results)
{
	struct json_object *command = bench_results_get(results, "command");
	const size_t n = json_object_is_type(command, json_type_array)
				 ? json_object_array_length(command)
				 : 0;

	(void)fputs("<td><code>", out);
	for (size_t i = 0; i < n; i++) {
		const char *word = json_object_get_string(json_object_array_get_idx(command, i));
		const bool is_plain = word && word[0] &&
				      !strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;#~");

		(void)fputs(i ? is_plain ? " " : " '" : is_plain ? "" : "'", out);
		svg_text(out, word ? word : "");
		(void)fputs(is_plain ? "" : "'", out);
	}
	(void)fputs("</code></td>", out);
}

static void folders_cell(FILE *out, const struct bench_results *results, const char *const keys[],
			 size_t n_keys)
{
	struct json_object *folders = bench_results_get(results, "folders");
	const size_t n = json_object_is_type(folders, json_type_array)
				 ? json_object_array_length(folders)
				 : 0;

	(void)fputs("<td>", out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *folder = json_object_array_get_idx(folders, i);
		bool is_first = true;

		(void)fputs(i ? "<br/>" : "", out);
		for (size_t k = 0; k < n_keys; k++) {
			const char *text = json_object_get_string(
				json_object_object_get(folder, keys[k]));

			if (!text || !text[0])
				continue;
			(void)fputs(is_first ? "" : ", ", out);
			svg_text(out, text);
			is_first = false;
		}
	}
	(void)fputs("</td>", out);
}

/* A run that was resumed has several. */
static void buffers_cell(FILE *out, const struct bench_results *results)
{
	struct json_object *buffers = bench_results_get(results, "buffers");
	const size_t n = json_object_is_type(buffers, json_type_array)
				 ? json_object_array_length(buffers)
				 : 0;

	(void)fputs(n ? "<td>" : "<td>not known", out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(buffers, i), *huge;
		const uint64_t bytes = json_object_get_uint64(json_object_object_get(one, "bytes"));
		char text[UNITS_TEXT_BYTES];

		(void)fputs(i ? "<br/>" : "", out);
		huge = json_object_object_get(one, "huge_page_bytes");
		if (!huge)
			(void)fputs("not known", out);
		else if (json_object_get_uint64(huge) == bytes)
			(void)fputs("all", out);
		else if (json_object_get_uint64(huge) == 0)
			(void)fputs("none", out);
		else
			svg_text(out, units_format_size(text, json_object_get_uint64(huge)));
		(void)fprintf(out, " of %s", units_format_size(text, bytes));
	}
	(void)fputs("</td>", out);
}

static void write_facts(FILE *out, const struct run *runs, size_t n_runs)
{
	static const struct {
		const char *title, *object, *key;
	} facts[] = {
		{ "host", "machine", "host" },		 { "kernel", "machine", "kernel" },
		{ "processor", "machine", "cpu" },	 { "processors", "machine", "cpus" },
		{ "memory", "machine", "memory_bytes" }, { "dsaiod", "daemon", "version" },
	};
	static const char *const device_keys[] = { "device", "model" };
	static const char *const folder_keys[] = { "folder", "fs_type" };
	char text[UNITS_TEXT_BYTES];

	(void)fputs("<h2>What was measured, where, and how to do it again</h2>\n<div "
		    "class=\"wide\"><table>\n<tr><th>run</th>",
		    out);
	for (size_t i = 0; i < n_runs; i++) {
		(void)fputs("<th>", out);
		svg_text(out, runs[i].name);
		(void)fputs("</th>", out);
	}
	(void)fputs("</tr>\n<tr><th>bench</th>", out);
	for (size_t i = 0; i < n_runs; i++) {
		(void)fputs("<td>", out);
		svg_text(out, bench_results_kind(runs[i].results));
		(void)fputs(bench_results_is_complete(runs[i].results)
				    ? "</td>"
				    : ", <span class=\"bad\">not complete</span></td>",
			    out);
	}
	(void)fputs("</tr>\n<tr><th>began</th>", out);
	for (size_t i = 0; i < n_runs; i++) {
		const char *began = json_object_get_string(
			bench_results_get(runs[i].results, "began"));

		cell(out, began ? began : "");
	}
	(void)fputs("</tr>\n<tr><th>folders</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		folders_cell(out, runs[i].results, folder_keys, 2);
	(void)fputs("</tr>\n<tr><th>device</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		folders_cell(out, runs[i].results, device_keys, 2);
	for (size_t f = 0; f < sizeof(facts) / sizeof(facts[0]); f++) {
		(void)fprintf(out, "</tr>\n<tr><th>%s</th>", facts[f].title);
		for (size_t i = 0; i < n_runs; i++) {
			const uint64_t n = int_at(runs[i].results, facts[f].object, facts[f].key);

			if (strcmp(facts[f].key, "memory_bytes") == 0)
				cell(out, units_format_size(text, n));
			else if (strcmp(facts[f].key, "cpus") == 0)
				cell(out, units_format_count(text, n));
			else
				cell(out, text_at(runs[i].results, facts[f].object, facts[f].key));
		}
	}
	(void)fputs("</tr>\n<tr><th>buffers in huge pages</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		buffers_cell(out, runs[i].results);
	(void)fputs("</tr>\n<tr><th>command</th>", out);
	for (size_t i = 0; i < n_runs; i++)
		command_cell(out, runs[i].results);
	(void)fputs("</tr>\n</table></div>\n<p>Large transfers to and from huge pages cost the "
		    "kernel a fraction of the time: compare runs only where the same share of the "
		    "buffers is in huge pages. To see the difference, measure once with "
		    "<code>huge_pages = auto</code> and once with <code>huge_pages = no</code> in "
		    "dsaiod.conf, each into a directory of its own, and name both to bench "
		    "report.</p>\n",
		    out);
}

/* ---- best profiles ---- */

static void best_cells(FILE *out, const struct bench_row *row)
{
	char name[64], speed[32];

	if (!row) {
		(void)fputs("<td>-</td><td></td>", out);
		return;
	}
	(void)fprintf(out, "<td class=\"n\">%s</td><td class=\"mono\">",
		      svg_format(speed, SVG_GB_PER_SEC, row->total.e2e_speed));
	svg_text(out, profile_name(name, sizeof(name), &row->task.profile));
	(void)fputs("</td>", out);
}

/* Of bench tune: what it recommends for the goal, and how many it could not tell apart from the
   fastest. */
static void recommended_cells(FILE *out, struct json_object *goal)
{
	const size_t n = n_ranks(goal), at = recommended_rank(goal);
	const struct rank rank = rank_of(goal, at < n ? at : 0);
	char name[64], speed[32], low[32], high[32];
	size_t n_tied = 0;

	for (size_t i = 0; i < n; i++)
		n_tied += rank_of(goal, i).is_tied;
	(void)fprintf(out, "<td class=\"n\">%s (%s-%s)</td><td class=\"mono\">",
		      svg_format(speed, SVG_GB_PER_SEC, rank.speed),
		      svg_format(low, SVG_GB_PER_SEC, rank.low),
		      svg_format(high, SVG_GB_PER_SEC, rank.high));
	svg_text(out, profile_name(name, sizeof(name), &rank.profile));
	(void)fprintf(out, "<br/>recommended, %zu tied</td>", n_tied);
}

static const struct bench_row *fastest(const struct run *run, enum bench_op op)
{
	const struct bench_row *best = NULL;

	for (size_t i = 0; i < run->n_rows; i++)
		if (is_measured(&run->rows[i]) && run->rows[i].task.op == op &&
		    (!best || run->rows[i].total.e2e_speed > best->total.e2e_speed))
			best = &run->rows[i];
	return best;
}

static void run_cells(FILE *out, const struct run *run, enum bench_op op)
{
	struct json_object *goal = goal_of(run, bench_op_name(op));

	if (goal)
		recommended_cells(out, goal);
	else
		best_cells(out, fastest(run, op));
}

/* What bench tune recommends, or else the pair with the largest sum, as DeepSpeed's configuration
   has it. */
static int write_best_block(FILE *out, const struct run *run)
{
	struct json_object *best = bench_results_get(run->results, "best");
	_cleanup_(json_putp) struct json_object *fastest = NULL;
	size_t n_pairs = 0;
	_cleanup_(freep) struct pair *pairs = pairs_of(run, &n_pairs);
	const char *text;

	if (!pairs)
		return -ENOMEM;
	if (!best && !n_pairs)
		return 0;
	if (!best) {
		const struct bench_row *row = pairs[0].rows[0] ? pairs[0].rows[0]
							       : pairs[0].rows[1];

		fastest = json_object_new_object();
		json_object_object_add(fastest, "aio", json_profile(&row->task.profile));
	}
	(void)fputs("<h3>", out);
	svg_text(out, run->name);
	(void)fprintf(out, ": %s</h3>\n<pre>", best ? "recommended profile" : "fastest profile");
	text = json_object_to_json_string_ext(best ? best : fastest, JSON_C_TO_STRING_PRETTY);
	svg_text(out, text ? text : "");
	(void)fputs("</pre>\n", out);
	return 0;
}

/* Latencies are of several sizes: their profile is no point of a space. */
static bool is_of_points(const struct run *run)
{
	return strcmp(bench_results_kind(run->results), "latency") != 0;
}

static int write_best(FILE *out, const struct run *runs, size_t n_runs)
{
	bool has_any = false;
	int r = 0;

	for (size_t i = 0; i < n_runs; i++)
		has_any |= runs[i].n_rows > 0 && is_of_points(&runs[i]);
	if (!has_any)
		return 0;
	(void)fputs(
		"<h2>Best profiles</h2>\n<p>GB/s, 1 GB being 1024<sup>3</sup> bytes, with the "
		"waits between processes. A profile: block size, queue depth (d), parts of a "
		"transfer side by side (p); overlap refills the queue as requests end, seq "
		"waits for all of it; single submits one by one. Of a sweep this is the fastest "
		"profile, and the fastest of many is partly luck: see the intervals. Of bench "
		"tune it is the profile that it recommends for reads or writes alone, the "
		"cheapest of those that are tied with the fastest, with its interval of "
		"95%.</p>\n<div class=\"wide\"><table>\n<tr><th>run</th>"
		"<th>read</th><th></th><th>write</th><th></th></tr>\n",
		out);
	for (size_t i = 0; i < n_runs; i++) {
		if (!is_of_points(&runs[i]))
			continue;
		(void)fputs("<tr>", out);
		cell(out, runs[i].name);
		run_cells(out, &runs[i], BENCH_READ);
		run_cells(out, &runs[i], BENCH_WRITE);
		(void)fputs("</tr>\n", out);
	}
	(void)fputs("</table></div>\n<div class=\"runs\">\n", out);
	for (size_t i = 0; i < n_runs && r == 0; i++) {
		if (!is_of_points(&runs[i]))
			continue;
		(void)fputs("<article>\n", out);
		r = write_best_block(out, &runs[i]);
		(void)fputs("</article>\n", out);
	}
	(void)fputs("</div>\n", out);
	return r;
}

/* ---- heat maps ---- */

/* Values in ascending order, each once. */
struct values {
	uint32_t *values;
	size_t n;
};

static void values_add(struct values *values, uint32_t value)
{
	size_t i = values->n;

	for (size_t k = 0; k < values->n; k++)
		if (values->values[k] == value)
			return;
	for (; i > 0 && values->values[i - 1] > value; i--)
		values->values[i] = values->values[i - 1];
	values->values[i] = value;
	values->n++;
}

static size_t values_find(const struct values *values, uint32_t value)
{
	size_t i = 0;

	while (values->values[i] != value)
		i++;
	return i;
}

/* A cell stands for all ways to submit; it has the fastest of them. */
static void cell_add(struct svg_cell *cell, const struct bench_row *row)
{
	const size_t at = strlen(cell->what);
	char name[64], speed[32];

	(void)snprintf(cell->what + at, sizeof(cell->what) - at, "%s%s: %s",
		       cell->n_behind ? "; " : "",
		       profile_name(name, sizeof(name), &row->task.profile),
		       svg_format(speed, SVG_GB_PER_SEC, row->total.e2e_speed));
	cell->n_behind++;
	if (row->total.e2e_speed > cell->value)
		cell->value = row->total.e2e_speed;
}

struct heat_maps {
	const struct run *run;
	enum bench_op op;
	struct values blocks, depths, parallels;
	char (*columns)[16], (*rows)[16];
	struct svg_cell *cells;
	double min, max;
};

static void heat_maps_deinit(struct heat_maps *maps)
{
	free(maps->blocks.values);
	free(maps->depths.values);
	free(maps->parallels.values);
	free(maps->columns);
	free(maps->rows);
	free(maps->cells);
}

static int heat_maps_init(struct heat_maps *maps, const struct run *run, enum bench_op op)
{
	char text[UNITS_TEXT_BYTES];

	*maps = (struct heat_maps){ .run = run, .op = op };
	maps->blocks.values = calloc(run->n_rows + 1, sizeof(uint32_t));
	maps->depths.values = calloc(run->n_rows + 1, sizeof(uint32_t));
	maps->parallels.values = calloc(run->n_rows + 1, sizeof(uint32_t));
	if (!maps->blocks.values || !maps->depths.values || !maps->parallels.values)
		return -ENOMEM;
	for (size_t i = 0; i < run->n_rows; i++) {
		const struct bench_row *row = &run->rows[i];
		const double speed = row->total.e2e_speed;

		if (row->task.op != op || !is_measured(row))
			continue;
		values_add(&maps->blocks, row->task.profile.block_size);
		values_add(&maps->depths, row->task.profile.queue_depth);
		values_add(&maps->parallels, row->task.profile.intra_op_parallelism);
		maps->min = maps->max > 0 && maps->min < speed ? maps->min : speed;
		maps->max = maps->max > speed ? maps->max : speed;
	}
	maps->columns = calloc(maps->blocks.n + 1, sizeof(*maps->columns));
	maps->rows = calloc(maps->depths.n + 1, sizeof(*maps->rows));
	maps->cells = calloc(maps->blocks.n * maps->depths.n + 1, sizeof(*maps->cells));
	if (!maps->columns || !maps->rows || !maps->cells)
		return -ENOMEM;
	for (size_t i = 0; i < maps->blocks.n; i++)
		(void)snprintf(maps->columns[i], sizeof(maps->columns[i]), "%.15s",
			       bench_block_size_name(text, maps->blocks.values[i]));
	for (size_t i = 0; i < maps->depths.n; i++)
		(void)snprintf(maps->rows[i], sizeof(maps->rows[i]), "%" PRIu32,
			       maps->depths.values[i]);
	return 0;
}

static void write_map(FILE *out, struct heat_maps *maps, uint32_t parallel)
{
	char title[32];
	const struct svg_map map = { .title = title,
				     .x_label = "block size",
				     .y_label = "depth",
				     .columns = maps->columns,
				     .rows = maps->rows,
				     .n_columns = maps->blocks.n,
				     .n_rows = maps->depths.n,
				     .cells = maps->cells,
				     .min = maps->min,
				     .max = maps->max };

	(void)snprintf(title, sizeof(title), "%s, %" PRIu32 " part%s", bench_op_name(maps->op),
		       parallel, parallel == 1 ? "" : "s");
	memset(maps->cells, 0, maps->blocks.n * maps->depths.n * sizeof(*maps->cells));
	for (size_t i = 0; i < maps->run->n_rows; i++) {
		const struct bench_row *row = &maps->run->rows[i];
		const struct profile *p = &row->task.profile;

		if (row->task.op == maps->op && is_measured(row) &&
		    p->intra_op_parallelism == parallel)
			cell_add(&maps->cells[values_find(&maps->depths, p->queue_depth) *
						      maps->blocks.n +
					      values_find(&maps->blocks, p->block_size)],
				 row);
	}
	svg_map(out, &map);
}

static int write_maps(FILE *out, const struct run *run, enum bench_op op)
{
	_cleanup_(heat_maps_deinit) struct heat_maps maps;
	char low[32], high[32];

	if (heat_maps_init(&maps, run, op) < 0)
		return -ENOMEM;
	if (!maps.parallels.n)
		return 0;
	(void)fprintf(out, "<figure class=\"heat\"><div class=\"maps\">\n");
	for (size_t i = 0; i < maps.parallels.n; i++)
		write_map(out, &maps, maps.parallels.values[i]);
	(void)fprintf(out,
		      "</div><figcaption>%ss in GB/s, by block size, queue depth and parts of a "
		      "transfer side by side; the fastest way to submit counts. All lie between %s "
		      "and %s: the slowest is %.0f%% below the fastest.</figcaption></figure>\n",
		      op == BENCH_READ ? "Read" : "Write",
		      svg_format(low, SVG_GB_PER_SEC, maps.min),
		      svg_format(high, SVG_GB_PER_SEC, maps.max), (1 - maps.min / maps.max) * 100);
	return 0;
}

/* ---- bars, time series, failures ---- */

/* A row of bars for the profile.  mark: "" or one that the caption explains. */
static void fill_bars(struct svg_bar_row *row, const char *mark, const struct profile *profile,
		      const struct pair *pair)
{
	char name[56];

	(void)snprintf(row->label, sizeof(row->label), "%s%s", mark,
		       profile_name(name, sizeof(name), profile));
	for (unsigned op = 0; op < 2; op++)
		row->bars[op] = bar_of(pair ? pair->rows[op] : NULL);
}

static const struct profile *pair_profile(const struct pair *pair)
{
	return &(pair->rows[0] ? pair->rows[0] : pair->rows[1])->task.profile;
}

static const struct pair *find_pair(const struct pair *pairs, size_t n, const struct profile *p)
{
	for (size_t i = 0; i < n; i++)
		if (bench_same_profile(pair_profile(&pairs[i]), p))
			return &pairs[i];
	return NULL;
}

/* In the order of bench tune's ranks; the recommended one is shown wherever it stands. */
static size_t fill_ranked(struct svg_bar_row *rows, struct json_object *goal,
			  const struct pair *pairs, size_t n_pairs)
{
	const size_t n = n_ranks(goal) < BARS_MAX ? n_ranks(goal) : BARS_MAX;
	const size_t recommended = recommended_rank(goal);

	for (size_t i = 0; i < n; i++) {
		const bool is_last = i == n - 1 && recommended > i && recommended < n_ranks(goal);
		const struct rank rank = rank_of(goal, is_last ? recommended : i);

		fill_bars(&rows[i],
			  rank.is_recommended ? "* "
			  : rank.is_tied      ? "= "
					      : "",
			  &rank.profile, find_pair(pairs, n_pairs, &rank.profile));
	}
	return n;
}

static int write_bars(FILE *out, const struct run *run)
{
	static const char *const names[2] = { "read", "write" };
	struct svg_bar_row rows[BARS_MAX];
	size_t n_pairs = 0, n;
	const char *goal_name = "";
	struct json_object *goal = main_goal(run, &goal_name);
	bool has_interval = false;
	_cleanup_(freep) struct pair *pairs = pairs_of(run, &n_pairs);

	if (!pairs)
		return -ENOMEM;
	n = n_pairs < BARS_MAX ? n_pairs : BARS_MAX;
	if (!n)
		return 0;
	if (goal)
		n = fill_ranked(rows, goal, pairs, n_pairs);
	for (size_t i = 0; i < n && !goal; i++)
		fill_bars(&rows[i], "", pair_profile(&pairs[i]), &pairs[i]);
	for (size_t i = 0; i < n; i++)
		for (unsigned op = 0; op < 2; op++)
			has_interval |= rows[i].bars[op].high > rows[i].bars[op].low;
	(void)fputs("<figure class=\"bars\">\n", out);
	svg_bars(out, "the fastest profiles", "GB/s", names, rows, n);
	(void)fputs("<figcaption>", out);
	if (goal)
		(void)fprintf(
			out,
			"%zu of the %zu profiles that bench tune measured to the end, in the "
			"order of its ranking by %s; * is the one that it recommends, = those "
			"that are tied with the fastest. ",
			n, n_ranks(goal), goal_name);
	else
		(void)fprintf(out,
			      "The fastest %zu of %zu profiles, by the sum of reads and writes. ",
			      n, n_pairs);
	(void)fprintf(out, "%s</figcaption></figure>\n",
		      has_interval ? "The lines are intervals of 95% (Student's) from the "
				     "repetitions."
				   : "Each was measured once: there is no interval; repeat with "
				     "--loops 5, or use bench tune.");
	return 0;
}

/* Each repetition, when it was. */
static int write_times(FILE *out, const struct run *run)
{
	struct svg_series series[2] = { { .name = "read", .colour = 0 },
					{ .name = "write", .colour = 1 } };
	struct svg_axis x = { .label = "since the run began", .unit = SVG_SECONDS };
	struct svg_axis y = { .label = "GB/s", .unit = SVG_GB_PER_SEC };
	_cleanup_(freep) struct svg_point *points = NULL;
	double first = INFINITY;
	size_t n_points = 0, n_series = 0;

	for (size_t i = 0; i < run->n_rows; i++)
		for (size_t k = 0; k < run->rows[i].n_repetitions; k++) {
			n_points++;
			first = fmin(first, run->rows[i].repetitions[k].at_sec);
		}
	if (!n_points)
		return 0;
	points = calloc(n_points, sizeof(*points));
	if (!points)
		return -ENOMEM;
	n_points = 0;
	for (unsigned op = 0; op < 2; op++) {
		struct svg_series *s = &series[n_series];

		*s = series[op];
		s->points = points + n_points;
		for (size_t i = 0; i < run->n_rows; i++)
			for (size_t k = 0; run->rows[i].task.op == (enum bench_op)op &&
					   k < run->rows[i].n_repetitions;
			     k++) {
				const struct bench_repetition *r = &run->rows[i].repetitions[k];

				points[n_points] = (struct svg_point){
					r->at_sec - first,
					r->e2e_sec > 0 ? (double)r->bytes / r->e2e_sec / GB : 0
				};
				x.max = fmax(x.max, points[n_points].x);
				y.max = fmax(y.max, points[n_points].y);
				n_points++;
				s->n_points++;
			}
		n_series += s->n_points > 0;
	}
	(void)fputs("<figure class=\"times\">\n", out);
	svg_plot(out, "repetitions over time", &x, &y, series, n_series);
	(void)fputs("<figcaption>Every repetition when it was measured: a device that drifts shows "
		    "here.</figcaption></figure>\n",
		    out);
	return 0;
}

static void write_failures(FILE *out, const struct run *run)
{
	char name[64];
	bool has_any = false;

	for (size_t i = 0; i < run->n_rows; i++) {
		const struct bench_row *row = &run->rows[i];

		if (!row->error[0])
			continue;
		(void)fputs(has_any ? "" : "<h3 class=\"bad\">Failed</h3>\n<ul>\n", out);
		has_any = true;
		(void)fprintf(out, "<li>%s ", bench_op_name(row->task.op));
		svg_text(out, profile_name(name, sizeof(name), &row->task.profile));
		(void)fputs(": ", out);
		svg_text(out, row->error);
		(void)fputs("</li>\n", out);
	}
	(void)fputs(has_any ? "</ul>\n" : "", out);
}

/* ---- latencies ---- */

/* The results' "latency": an array; cmd_bench_latency.c says what is in it. */
static size_t n_latencies(const struct run *run)
{
	struct json_object *all = bench_results_get(run->results, "latency");

	return json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
}

static struct json_object *latency_at(const struct run *run, size_t i)
{
	return json_object_array_get_idx(bench_results_get(run->results, "latency"), i);
}

static double number(struct json_object *object, const char *key)
{
	return json_finite(json_object_object_get(object, key));
}

static void write_latency_table(FILE *out, const struct run *run)
{
	static const struct {
		const char *title, *key;
	} columns[] = { { "mean", "mean_nsec" },   { "median", "p50_nsec" }, { "90%", "p90_nsec" },
			{ "99%", "p99_nsec" },	   { "99.9%", "p999_nsec" }, { "max", "max_nsec" },
			{ "deviation", "sd_nsec" } };
	char text[UNITS_TEXT_BYTES];

	(void)fputs("<div class=\"wide\"><table>\n<tr><th>op</th><th>size</th><th>n</th>", out);
	for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
		(void)fprintf(out, "<th>%s</th>", columns[c].title);
	(void)fputs("</tr>\n", out);
	for (size_t i = 0; i < n_latencies(run); i++) {
		struct json_object *one = latency_at(run, i);
		const char *op = json_object_get_string(json_object_object_get(one, "op"));

		(void)fputs("<tr>", out);
		cell(out, op ? op : "");
		cell(out, units_format_size(text, (uint64_t)number(one, "size")));
		cell(out, units_format_count(text, (uint64_t)number(one, "n")));
		for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
			(void)fprintf(
				out, "<td class=\"n\">%s</td>",
				/* Too few transfers for it. */
				!json_object_object_get(one, columns[c].key)
					? "-"
					: units_format_nsec(text,
							    (uint64_t)number(one, columns[c].key)));
		(void)fputs("</tr>\n", out);
	}
	(void)fputs("</table></div>\n", out);
}

/* One line for each op and size, of the array under key: [x, y] pairs, scaled. */
static int write_latency_plot(FILE *out, const struct run *run, const char *key, const char *title,
			      struct svg_axis x, struct svg_axis y)
{
	const size_t n = n_latencies(run);
	_cleanup_(freep) struct svg_series *series = calloc(n + 1, sizeof(*series));
	_cleanup_(freep) char(*names)[48] = calloc(n + 1, sizeof(*names));
	_cleanup_(freep) struct svg_point *points = NULL;
	size_t n_points = 0;
	char size[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < n; i++)
		n_points += json_object_array_length(
			json_object_object_get(latency_at(run, i), key));
	points = calloc(n_points + 1, sizeof(*points));
	if (!series || !names || !points)
		return -ENOMEM;
	x.min = y.min = INFINITY;
	n_points = 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = latency_at(run, i);
		struct json_object *array = json_object_object_get(one, key);
		const char *op = json_object_get_string(json_object_object_get(one, "op"));

		(void)snprintf(names[i], sizeof(names[i]), "%.8s %s", op ? op : "",
			       units_format_size(size, (uint64_t)number(one, "size")));
		series[i] = (struct svg_series){ .name = names[i],
						 .colour = (unsigned)i,
						 .is_line = true,
						 .points = points + n_points,
						 .n_points = json_object_array_length(array) };
		for (size_t k = 0; k < series[i].n_points; k++) {
			struct json_object *pair = json_object_array_get_idx(array, k);
			struct svg_point *p = &points[n_points++];

			p->x = json_finite(json_object_array_get_idx(pair, 0));
			p->y = json_finite(json_object_array_get_idx(pair, 1));
			x.min = fmin(x.min, p->x);
			x.max = fmax(x.max, p->x);
			y.min = fmin(y.min, p->y);
			y.max = fmax(y.max, p->y);
		}
	}
	if (!x.is_log)
		x.min = 0;
	if (!y.is_log)
		y.min = 0;
	(void)fputs("<figure class=\"latency\">\n", out);
	svg_plot(out, title, &x, &y, series, n);
	(void)fprintf(out, "<figcaption>%s</figcaption></figure>\n", title);
	return 0;
}

static int write_latencies(FILE *out, const struct run *run)
{
	const struct svg_axis nsec = { .label = "latency", .unit = SVG_NSEC, .is_log = true };
	const struct svg_axis share = { .label = "ops that took no longer",
					.unit = SVG_SHARE,
					.max = 1 };
	const struct svg_axis sec = { .label = "since the measurement began", .unit = SVG_SECONDS };
	int r;

	if (!n_latencies(run))
		return 0;
	write_latency_table(out, run);
	r = write_latency_plot(out, run, "cdf", "Which share of the ops took no longer", nsec,
			       share);
	if (r < 0)
		return r;
	return write_latency_plot(out, run, "series", "Mean latency over time", sec, nsec);
}

/* ---- the page ---- */

static int write_run(FILE *out, const struct run *run)
{
	int r = 0;

	(void)fputs("<article class=\"run\">\n<h2>", out);
	svg_text(out, run->name);
	(void)fputs("</h2>\n", out);
	if (is_of_points(run)) {
		r = write_maps(out, run, BENCH_READ);
		if (r == 0)
			r = write_maps(out, run, BENCH_WRITE);
		if (r == 0)
			r = write_bars(out, run);
	}
	if (r == 0)
		r = write_latencies(out, run);
	if (r == 0)
		r = write_times(out, run);
	write_failures(out, run);
	(void)fputs("</article>\n", out);
	return r;
}

static void run_deinit(struct run *run)
{
	for (size_t i = 0; i < run->n_rows; i++)
		bench_row_deinit(&run->rows[i]);
	free(run->rows);
}

/* The row of that op and profile, or a new one. */
static struct bench_row *row_for(struct run *run, const struct bench_row *row)
{
	for (size_t i = 0; i < run->n_rows; i++)
		if (run->rows[i].task.op == row->task.op && same_profile(&run->rows[i], row))
			return &run->rows[i];
	run->rows[run->n_rows] = (struct bench_row){ .task = row->task };
	return &run->rows[run->n_rows++];
}

/* What a tuner measured in steps becomes one row, as if these were a sweep's repetitions. */
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
		into->total.e2e_speed = (double)into->total.bytes / into->total.e2e_sec / GB;
	return 0;
}

static int run_init(struct run *run, const struct bench_report_run *from)
{
	const size_t n = bench_results_n_rows(&from->results);

	*run = (struct run){ .name = from->name, .results = &from->results };
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

static int write_page(FILE *out, const struct run *runs, size_t n_runs)
{
	int r = 0;

	(void)fprintf(out,
		      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
		      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
		      "<title>dsaioctl bench report</title>\n<style>\n%s</style>\n</head>\n<body>\n"
		      "<h1>dsaioctl bench report</h1>\n<p>",
		      style);
	for (size_t i = 0; i < n_runs; i++) {
		(void)fputs(i ? ", " : "", out);
		svg_text(out, runs[i].name);
	}
	(void)fputs("</p>\n", out);
	r = write_best(out, runs, n_runs);
	(void)fputs("<div class=\"runs\">\n", out);
	for (size_t i = 0; i < n_runs && r == 0; i++)
		r = write_run(out, &runs[i]);
	(void)fputs("</div>\n", out);
	write_facts(out, runs, n_runs);
	(void)fputs("</body>\n</html>\n", out);
	return r;
}

int bench_report_write(FILE *out, const struct bench_report_run *from, size_t n_runs)
{
	_cleanup_(freep) struct run *runs = calloc(n_runs ? n_runs : 1, sizeof(*runs));
	size_t n = 0;
	int r = runs ? 0 : -ENOMEM;

	while (r == 0 && n < n_runs) {
		r = run_init(&runs[n], &from[n]);
		n++;
	}
	if (r == 0)
		r = write_page(out, runs, n_runs);
	for (size_t i = 0; runs && i < n; i++)
		run_deinit(&runs[i]);
	return r;
}
