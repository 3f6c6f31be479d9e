#include "client/ctl/bench/report.h"

#include "client/ctl/bench/report_parts.h"
#include "client/ctl/bench/student.h"
#include "client/ctl/bench/svg.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
				     row->repetitions[i].e2e_sec / REPORT_GB;

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
	svg_text(out, report_profile_name(name, sizeof(name), &row->task.profile));
	(void)fputs("</td>", out);
}

/* The profile that bench tune recommends for the goal, and how many are tied with the fastest. */
static void recommended_cells(FILE *out, struct json_object *goal)
{
	const size_t n = report_n_ranks(goal), at = report_recommended(goal);
	const struct report_rank rank = report_rank(goal, at < n ? at : 0);
	char name[64], speed[32], low[32], high[32];
	size_t n_tied = 0;

	for (size_t i = 0; i < n; i++)
		n_tied += report_rank(goal, i).is_tied;
	(void)fprintf(out, "<td class=\"n\">%s (%s-%s)</td><td class=\"mono\">",
		      svg_format(speed, SVG_GB_PER_SEC, rank.speed),
		      svg_format(low, SVG_GB_PER_SEC, rank.low),
		      svg_format(high, SVG_GB_PER_SEC, rank.high));
	svg_text(out, report_profile_name(name, sizeof(name), &rank.profile));
	(void)fprintf(out, "<br/>recommended, %zu tied</td>", n_tied);
}

static const struct bench_row *fastest(const struct report_run *run, enum bench_op op)
{
	const struct bench_row *best = NULL;

	for (size_t i = 0; i < run->n_rows; i++)
		if (report_is_measured(&run->rows[i]) && run->rows[i].task.op == op &&
		    (!best || run->rows[i].total.e2e_speed > best->total.e2e_speed))
			best = &run->rows[i];
	return best;
}

static void run_cells(FILE *out, const struct report_run *run, enum bench_op op)
{
	struct json_object *goal = report_goal(run, bench_op_name(op));

	if (goal)
		recommended_cells(out, goal);
	else
		best_cells(out, fastest(run, op));
}

/* The profile that bench tune recommends, else the one with the largest sum of read and write speed,
   as a DeepSpeed configuration. */
static int write_best_block(FILE *out, const struct report_run *run)
{
	struct json_object *best = bench_results_get(run->results, "best");
	_cleanup_(json_putp) struct json_object *fastest = NULL;
	size_t n_pairs = 0;
	_cleanup_(freep) struct report_pair *pairs = report_pairs(run, &n_pairs);
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

static int write_best(FILE *out, const struct report_run *runs, size_t n_runs)
{
	bool has_any = false;
	int r = 0;

	for (size_t i = 0; i < n_runs; i++)
		has_any |= runs[i].n_rows > 0 && report_is_of_points(&runs[i]);
	if (!has_any)
		return 0;
	(void)fputs(
		"<h2>Best profiles</h2>\n<p>GB/s, 1 GB being 1024<sup>3</sup> bytes, with the "
		"waits between processes. A profile: block size, queue depth (d), parts of a "
		"transfer side by side (p); overlap refills the queue as requests end, seq "
		"waits for all of it; single submits one by one. For a sweep this is the fastest "
		"profile, and the fastest of many is partly luck: see the intervals. For bench "
		"tune it is the profile that it recommends for reads or writes alone, the "
		"cheapest of those that are tied with the fastest, with its interval of "
		"95%.</p>\n<div class=\"wide\"><table>\n<tr><th>run</th>"
		"<th>read</th><th></th><th>write</th><th></th></tr>\n",
		out);
	for (size_t i = 0; i < n_runs; i++) {
		if (!report_is_of_points(&runs[i]))
			continue;
		(void)fputs("<tr>", out);
		report_cell(out, runs[i].name);
		run_cells(out, &runs[i], BENCH_READ);
		run_cells(out, &runs[i], BENCH_WRITE);
		(void)fputs("</tr>\n", out);
	}
	(void)fputs("</table></div>\n<div class=\"runs\">\n", out);
	for (size_t i = 0; i < n_runs && r == 0; i++) {
		if (!report_is_of_points(&runs[i]))
			continue;
		(void)fputs("<article>\n", out);
		r = write_best_block(out, &runs[i]);
		(void)fputs("</article>\n", out);
	}
	(void)fputs("</div>\n", out);
	return r;
}

/* ---- bars, time series, failures ---- */

/* A row of bars for the profile.  mark: "" or one that the caption explains. */
static void fill_bars(struct svg_bar_row *row, const char *mark, const struct profile *profile,
		      const struct report_pair *pair)
{
	char name[56];

	(void)snprintf(row->label, sizeof(row->label), "%s%s", mark,
		       report_profile_name(name, sizeof(name), profile));
	for (unsigned op = 0; op < 2; op++)
		row->bars[op] = bar_of(pair ? pair->rows[op] : NULL);
}

static const struct profile *pair_profile(const struct report_pair *pair)
{
	return &(pair->rows[0] ? pair->rows[0] : pair->rows[1])->task.profile;
}

static const struct report_pair *find_pair(const struct report_pair *pairs, size_t n,
					   const struct profile *p)
{
	for (size_t i = 0; i < n; i++)
		if (bench_same_profile(pair_profile(&pairs[i]), p))
			return &pairs[i];
	return NULL;
}

/* In the order of bench tune's ranks; the recommended one is shown wherever it stands. */
static size_t fill_ranked(struct svg_bar_row *rows, struct json_object *goal,
			  const struct report_pair *pairs, size_t n_pairs)
{
	const size_t n = report_n_ranks(goal) < BARS_MAX ? report_n_ranks(goal) : BARS_MAX;
	const size_t recommended = report_recommended(goal);

	for (size_t i = 0; i < n; i++) {
		const bool is_last = i == n - 1 && recommended > i &&
				     recommended < report_n_ranks(goal);
		const struct report_rank rank = report_rank(goal, is_last ? recommended : i);

		fill_bars(&rows[i],
			  rank.is_recommended ? "* "
			  : rank.is_tied      ? "= "
					      : "",
			  &rank.profile, find_pair(pairs, n_pairs, &rank.profile));
	}
	return n;
}

static int write_bars(FILE *out, const struct report_run *run)
{
	static const char *const names[2] = { "read", "write" };
	struct svg_bar_row rows[BARS_MAX];
	size_t n_pairs = 0, n;
	const char *goal_name = "";
	struct json_object *goal = report_main_goal(run, &goal_name);
	bool has_interval = false;
	_cleanup_(freep) struct report_pair *pairs = report_pairs(run, &n_pairs);

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
			n, report_n_ranks(goal), goal_name);
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
static int write_times(FILE *out, const struct report_run *run)
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
					r->e2e_sec > 0 ? (double)r->bytes / r->e2e_sec / REPORT_GB
						       : 0
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

static void write_failures(FILE *out, const struct report_run *run)
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
		svg_text(out, report_profile_name(name, sizeof(name), &row->task.profile));
		(void)fputs(": ", out);
		svg_text(out, row->error);
		(void)fputs("</li>\n", out);
	}
	(void)fputs(has_any ? "</ul>\n" : "", out);
}

/* ---- the page ---- */

static int write_run(FILE *out, const struct report_run *run)
{
	int r = 0;

	(void)fputs("<article class=\"run\">\n<h2>", out);
	svg_text(out, run->name);
	(void)fputs("</h2>\n", out);
	if (report_is_of_points(run)) {
		r = report_write_maps(out, run, BENCH_READ);
		if (r == 0)
			r = report_write_maps(out, run, BENCH_WRITE);
		if (r == 0)
			r = write_bars(out, run);
	}
	if (r == 0)
		r = report_write_latencies(out, run);
	if (r == 0)
		r = write_times(out, run);
	write_failures(out, run);
	(void)fputs("</article>\n", out);
	return r;
}

static int write_page(FILE *out, const struct report_run *runs, size_t n_runs)
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
	report_write_facts(out, runs, n_runs);
	(void)fputs("</body>\n</html>\n", out);
	return r;
}

int bench_report_write(FILE *out, const struct bench_report_run *from, size_t n_runs)
{
	_cleanup_(freep) struct report_run *runs = calloc(n_runs ? n_runs : 1, sizeof(*runs));
	size_t n = 0;
	int r = runs ? 0 : -ENOMEM;

	while (r == 0 && n < n_runs) {
		r = report_run_init(&runs[n], &from[n]);
		n++;
	}
	if (r == 0)
		r = write_page(out, runs, n_runs);
	for (size_t i = 0; runs && i < n; i++)
		report_run_deinit(&runs[i]);
	return r;
}
