#include "client/ctl/bench/report_parts.h"

#include "client/ctl/bench/svg.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The results' "latency": an array; cmd/bench_latency.c writes it. */
static size_t n_latencies(const struct report_run *run)
{
	struct json_object *all = bench_results_get(run->results, "latency");

	return json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
}

static struct json_object *latency_at(const struct report_run *run, size_t i)
{
	return json_object_array_get_idx(bench_results_get(run->results, "latency"), i);
}

static double number(struct json_object *object, const char *key)
{
	return json_finite(json_object_object_get(object, key));
}

static void write_latency_table(FILE *out, const struct report_run *run)
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
		report_cell(out, op ? op : "");
		report_cell(out, units_format_size(text, (uint64_t)number(one, "size")));
		report_cell(out, units_format_count(text, (uint64_t)number(one, "n")));
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
static int write_latency_plot(FILE *out, const struct report_run *run, const char *key,
			      const char *title, struct svg_axis x, struct svg_axis y)
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

int report_write_latencies(FILE *out, const struct report_run *run)
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
