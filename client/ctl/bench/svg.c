#include "client/ctl/bench/svg.h"

#include "client/ctl/ui/units.h"

#include <math.h>
#include <string.h>

/* All in the units of the viewBox: at its own size a font of 12 has letters of about 7. */
#define PLOT_WIDTH 640.0
#define PLOT_HEIGHT 300.0
#define PLOT_LEFT 76.0
#define PLOT_RIGHT 20.0
#define PLOT_TOP 12.0
#define PLOT_BOTTOM 46.0
#define LEGEND_ROW 18.0
#define LEGEND_COLUMNS 3u
#define TICKS_MAX 16u

#define BAR_HEIGHT 9.0
#define BAR_PITCH 28.0
#define BAR_LEFT 205.0
#define BAR_RIGHT 60.0

#define CELL_WIDTH 58.0
#define CELL_HEIGHT 26.0
#define MAP_LEFT 54.0
#define MAP_TOP 26.0
#define MAP_BOTTOM 42.0

/* Lines differ in more than colour: for paper and for colour-blind readers. */
static const char *const dashes[SVG_COLOURS] = { "none", "6 3", "2 2", "8 3 2 3", "1 3", "12 4" };

void svg_text(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			(void)fputs("&lt;", out);
			break;
		case '>':
			(void)fputs("&gt;", out);
			break;
		case '&':
			(void)fputs("&amp;", out);
			break;
		case '"':
			(void)fputs("&quot;", out);
			break;
		case '\n':
			(void)fputc('\n', out);
			break;
		default:
			(void)fputc((unsigned char)*text < ' ' || *text == 127 ? '?' : *text, out);
		}
}

const char *svg_format(char *text, enum svg_unit unit, double value)
{
	switch (unit) {
	case SVG_NSEC:
		return units_format_nsec(text, value > 0 ? (uint64_t)value : 0);
	case SVG_SECONDS:
		(void)snprintf(text, UNITS_TEXT_BYTES, "%.6g s", value);
		return text;
	case SVG_SHARE:
		(void)snprintf(text, UNITS_TEXT_BYTES, "%.6g%%", value * 100);
		return text;
	case SVG_GB_PER_SEC:
		break;
	}
	(void)snprintf(text, UNITS_TEXT_BYTES,
		       value >= 99.5   ? "%.0f"
		       : value >= 9.95 ? "%.1f"
				       : "%.2f",
		       value);
	return text;
}

/* ---- axes ---- */

static size_t linear_ticks(double min, double max, size_t n_max, double *ret_ticks, double *ret_min,
			   double *ret_max)
{
	double step = pow(10, floor(log10((max - min) / (double)n_max)));
	size_t n = 0;

	while ((max - min) / step > (double)n_max - 2)
		step *= (max - min) / (step * 2) <= (double)n_max - 2	? 2
			: (max - min) / (step * 5) <= (double)n_max - 2 ? 5
									: 10;
	*ret_min = floor(min / step) * step;
	*ret_max = ceil(max / step) * step;
	while (n < n_max && *ret_min + (double)n * step <= *ret_max + step / 2) {
		ret_ticks[n] = *ret_min + (double)n * step;
		n++;
	}
	return n;
}

/* Ticks at 1, 2 and 5 of each decade (stride 1) or at 1 of every skip-th (3). */
static size_t decade_ticks(double min, double max, size_t n_max, size_t stride, int skip,
			   double *ret_ticks)
{
	static const double between[] = { 1, 2, 5 };
	const int last = (int)ceil(log10(max));
	size_t n = 0;

	for (int decade = (int)floor(log10(min)); decade <= last; decade += skip)
		for (size_t i = 0; i < 3; i += stride) {
			const double tick = between[i] * pow(10, decade);

			if (tick < min * 0.999 || tick > max * 1.001)
				continue;
			if (n < n_max)
				ret_ticks[n] = tick;
			n++;
		}
	return n;
}

static size_t log_ticks(double min, double max, size_t n_max, double *ret_ticks, double *ret_min,
			double *ret_max)
{
	size_t n = decade_ticks(min, max, n_max, 1, 1, ret_ticks);

	for (int skip = 1; n > n_max; skip++)
		n = decade_ticks(min, max, n_max, 3, skip, ret_ticks);
	*ret_min = min;
	*ret_max = max;
	return n;
}

size_t svg_ticks(const struct svg_axis *axis, size_t max, double *ret_ticks, double *ret_min,
		 double *ret_max)
{
	double low = axis->min, high = axis->max;

	if (axis->is_log) {
		if (!(high > 0))
			high = 1;
		if (!(low > 0))
			low = high / 10;
		if (!(high > low * 1.5)) {
			low /= 1.25;
			high = low * 2;
		}
		return log_ticks(low, high, max, ret_ticks, ret_min, ret_max);
	}
	if (!(high > low))
		high = low + (low > 0 ? low : 1);
	return linear_ticks(low, high, max, ret_ticks, ret_min, ret_max);
}

/* ---- plots ---- */

struct scale {
	bool is_log;
	double min, max, from, to; /* values, and where they are drawn */
};

static double place(const struct scale *scale, double value)
{
	const double low = scale->is_log ? log(scale->min) : scale->min;
	const double high = scale->is_log ? log(scale->max) : scale->max;
	double at = (scale->is_log ? log(value > 0 ? value : scale->min) : value) - low;

	at = high > low ? at / (high - low) : 0;
	at = at < 0 ? 0 : at > 1 ? 1 : at;
	return scale->from + at * (scale->to - scale->from);
}

static void begin(FILE *out, const char *title, double width, double height)
{
	(void)fprintf(out,
		      "<svg role=\"img\" viewBox=\"0 0 %.0f %.0f\" style=\"max-width:%.0fpx\" "
		      "aria-label=\"",
		      width, height, width);
	svg_text(out, title);
	(void)fputs("\">\n", out);
}

static void label(FILE *out, const char *class, const char *anchor, double x, double y,
		  const char *text)
{
	(void)fprintf(out, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", class,
		      anchor, x, y);
	svg_text(out, text);
	(void)fputs("</text>\n", out);
}

static void axis_x(FILE *out, const struct svg_axis *axis, double from, double to, double top,
		   double bottom, size_t n_max, struct scale *ret_scale)
{
	struct scale s = { .is_log = axis->is_log, .from = from, .to = to };
	double ticks[TICKS_MAX];
	char text[UNITS_TEXT_BYTES];
	const size_t n = svg_ticks(axis, n_max, ticks, &s.min, &s.max);

	for (size_t i = 0; i < n; i++) {
		const double x = place(&s, ticks[i]);

		(void)fprintf(out,
			      "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
			      "y2=\"%.1f\"/>\n",
			      x, top, x, bottom);
		label(out, "tick", "middle", x, bottom + 15,
		      svg_format(text, axis->unit, ticks[i]));
	}
	label(out, "axis", "middle", (from + to) / 2, bottom + 33, axis->label);
	*ret_scale = s;
}

static void axis_y(FILE *out, const struct svg_axis *axis, double left, double right, double top,
		   double bottom, struct scale *ret_scale)
{
	struct scale s = { .is_log = axis->is_log, .from = bottom, .to = top };
	double ticks[TICKS_MAX];
	char text[UNITS_TEXT_BYTES];
	const size_t n = svg_ticks(axis, 8, ticks, &s.min, &s.max);

	for (size_t i = 0; i < n; i++) {
		const double y = place(&s, ticks[i]);

		(void)fprintf(out,
			      "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
			      "y2=\"%.1f\"/>\n",
			      left, y, right, y);
		label(out, "tick", "end", left - 6, y + 4, svg_format(text, axis->unit, ticks[i]));
	}
	(void)fprintf(out,
		      "<text class=\"axis\" text-anchor=\"middle\" "
		      "transform=\"translate(14 %.1f) rotate(-90)\">",
		      (top + bottom) / 2);
	svg_text(out, axis->label);
	(void)fputs("</text>\n", out);
	*ret_scale = s;
}

static void draw_line(FILE *out, const struct svg_series *series, const struct scale *x,
		      const struct scale *y)
{
	(void)fprintf(out,
		      "<polyline class=\"line\" style=\"stroke:var(--c%u)\" "
		      "stroke-dasharray=\"%s\" points=\"",
		      series->colour % SVG_COLOURS, dashes[series->colour % SVG_COLOURS]);
	for (size_t i = 0; i < series->n_points; i++)
		(void)fprintf(out, "%s%.1f,%.1f", i ? " " : "", place(x, series->points[i].x),
			      place(y, series->points[i].y));
	(void)fputs("\"/>\n", out);
}

/* Even colours are dots, odd ones squares. */
static void draw_mark(FILE *out, unsigned colour, double x, double y)
{
	if (colour % 2)
		(void)fprintf(out,
			      "<rect class=\"pt\" style=\"fill:var(--c%u)\" x=\"%.1f\" y=\"%.1f\" "
			      "width=\"5\" height=\"5\"/>\n",
			      colour % SVG_COLOURS, x - 2.5, y - 2.5);
	else
		(void)fprintf(out,
			      "<circle class=\"pt\" style=\"fill:var(--c%u)\" cx=\"%.1f\" "
			      "cy=\"%.1f\" r=\"2.8\"/>\n",
			      colour % SVG_COLOURS, x, y);
}

static void draw_legend(FILE *out, const struct svg_series *series, size_t n_series, double top)
{
	for (size_t i = 0; i < n_series; i++) {
		const double x = PLOT_LEFT + (double)(i % LEGEND_COLUMNS) *
						     ((PLOT_WIDTH - PLOT_LEFT) / LEGEND_COLUMNS);
		const size_t row = i / LEGEND_COLUMNS;
		const double y = top + (double)row * LEGEND_ROW;

		if (series[i].is_line)
			(void)fprintf(out,
				      "<line class=\"line\" style=\"stroke:var(--c%u)\" "
				      "stroke-dasharray=\"%s\" x1=\"%.1f\" y1=\"%.1f\" "
				      "x2=\"%.1f\" y2=\"%.1f\"/>\n",
				      series[i].colour % SVG_COLOURS,
				      dashes[series[i].colour % SVG_COLOURS], x, y - 4, x + 24,
				      y - 4);
		else { /* no point of the series: only what it looks like */
			(void)fprintf(out, "<g class=\"key\" style=\"fill:var(--c%u)\">",
				      series[i].colour % SVG_COLOURS);
			(void)fprintf(out,
				      "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" "
				      "rx=\"%s\"/></g>\n",
				      x + 9, y - 7, series[i].colour % 2 ? "0" : "3");
		}
		label(out, "tick", "start", x + 30, y, series[i].name);
	}
}

void svg_plot(FILE *out, const char *title, const struct svg_axis *x, const struct svg_axis *y,
	      const struct svg_series *series, size_t n_series)
{
	const size_t n_rows = (n_series + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
	struct scale sx, sy;

	begin(out, title, PLOT_WIDTH, PLOT_HEIGHT + LEGEND_ROW * (double)n_rows);
	axis_x(out, x, PLOT_LEFT, PLOT_WIDTH - PLOT_RIGHT, PLOT_TOP, PLOT_HEIGHT - PLOT_BOTTOM, 8,
	       &sx);
	axis_y(out, y, PLOT_LEFT, PLOT_WIDTH - PLOT_RIGHT, PLOT_TOP, PLOT_HEIGHT - PLOT_BOTTOM,
	       &sy);
	for (size_t i = 0; i < n_series; i++) {
		const struct svg_series *s = &series[i];

		(void)fprintf(out, "<g class=\"series\" data-points=\"%zu\" data-name=\"",
			      s->n_points);
		svg_text(out, s->name);
		(void)fputs("\">\n", out);
		if (s->is_line)
			draw_line(out, s, &sx, &sy);
		else
			for (size_t k = 0; k < s->n_points; k++)
				draw_mark(out, s->colour, place(&sx, s->points[k].x),
					  place(&sy, s->points[k].y));
		(void)fputs("</g>\n", out);
	}
	draw_legend(out, series, n_series, PLOT_HEIGHT + LEGEND_ROW - 6);
	(void)fputs("</svg>\n", out);
}

/* ---- bars ---- */

static void draw_bar(FILE *out, const struct svg_bar *bar, unsigned colour, double y,
		     const struct scale *x)
{
	const double end = place(x, bar->value);
	char text[UNITS_TEXT_BYTES];
	double right = end;

	(void)fprintf(out,
		      "<rect class=\"pt\" style=\"fill:var(--c%u)\" x=\"%.1f\" y=\"%.1f\" "
		      "width=\"%.1f\" height=\"%.1f\"/>\n",
		      colour, x->from, y, end - x->from, BAR_HEIGHT);
	if (bar->high > bar->low) {
		const double low = place(x, bar->low), high = place(x, bar->high);

		(void)fprintf(out,
			      "<path class=\"whisker\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f "
			      "%.1fv6\"/>\n",
			      low, y + BAR_HEIGHT / 2, high, low, y + BAR_HEIGHT / 2 - 3, high,
			      y + BAR_HEIGHT / 2 - 3);
		right = high > end ? high : end;
	}
	label(out, "value", "start", right + 5, y + BAR_HEIGHT - 1,
	      svg_format(text, SVG_GB_PER_SEC, bar->value));
}

void svg_bars(FILE *out, const char *title, const char *axis_label, const char *const names[2],
	      const struct svg_bar_row *rows, size_t n_rows)
{
	struct svg_axis axis = { .label = axis_label, .unit = SVG_GB_PER_SEC };
	const double bottom = PLOT_TOP + BAR_PITCH * (double)n_rows;
	struct scale x;

	for (size_t i = 0; i < n_rows; i++)
		for (unsigned b = 0; b < 2; b++)
			axis.max = fmax(axis.max,
					fmax(rows[i].bars[b].value, rows[i].bars[b].high));
	begin(out, title, PLOT_WIDTH, bottom + PLOT_BOTTOM + LEGEND_ROW);
	axis_x(out, &axis, BAR_LEFT, PLOT_WIDTH - BAR_RIGHT, PLOT_TOP, bottom, 8, &x);
	for (unsigned b = 0; b < 2; b++) {
		size_t n = 0;

		for (size_t i = 0; i < n_rows; i++)
			n += rows[i].bars[b].value > 0;
		(void)fprintf(out, "<g class=\"series\" data-points=\"%zu\" data-name=\"%s\">\n", n,
			      names[b]);
		for (size_t i = 0; i < n_rows; i++)
			if (rows[i].bars[b].value > 0)
				draw_bar(out, &rows[i].bars[b], b,
					 PLOT_TOP + BAR_PITCH * (double)i + 4 +
						 b * (BAR_HEIGHT + 1),
					 &x);
		(void)fputs("</g>\n", out);
	}
	for (size_t i = 0; i < n_rows; i++)
		label(out, "mono", "end", BAR_LEFT - 8, PLOT_TOP + BAR_PITCH * (double)i + 17,
		      rows[i].label);
	for (unsigned b = 0; b < 2; b++) {
		const double at = BAR_LEFT + 100.0 * b, y = bottom + PLOT_BOTTOM + 6;

		(void)fprintf(out,
			      "<rect style=\"fill:var(--c%u)\" x=\"%.1f\" y=\"%.1f\" width=\"18\" "
			      "height=\"9\"/>\n",
			      b, at, y - 8);
		label(out, "tick", "start", at + 24, y, names[b]);
	}
	(void)fputs("</svg>\n", out);
}

/* ---- heat maps ---- */

static unsigned heat(const struct svg_map *map, double value)
{
	const double share = map->max > map->min ? (value - map->min) / (map->max - map->min) : 0.5;
	const double step = floor(share * SVG_HEAT_STEPS);

	return step < 0 ? 0 : step >= SVG_HEAT_STEPS ? SVG_HEAT_STEPS - 1 : (unsigned)step;
}

static void draw_cell(FILE *out, const struct svg_map *map, const struct svg_cell *cell, double x,
		      double y)
{
	char text[UNITS_TEXT_BYTES];

	if (!cell->n_behind) {
		label(out, "tick", "middle", x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 4, "-");
		return;
	}
	(void)fprintf(out, "<g class=\"pt\" data-behind=\"%u\"><title>", cell->n_behind);
	svg_text(out, cell->what);
	(void)fprintf(out,
		      "</title><rect style=\"fill:var(--heat%u)\" x=\"%.1f\" y=\"%.1f\" "
		      "width=\"%.1f\" height=\"%.1f\"/>\n"
		      "<text class=\"cell\" style=\"fill:var(--heat-text%u)\" "
		      "text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text></g>\n",
		      heat(map, cell->value), x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2,
		      heat(map, cell->value), x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 4,
		      svg_format(text, SVG_GB_PER_SEC, cell->value));
}

void svg_map(FILE *out, const struct svg_map *map)
{
	/* The title has to fit, too. */
	const double cells = CELL_WIDTH * (double)map->n_columns;
	const double wanted = MAP_LEFT + (cells > 150 ? cells : 150) + 8;
	const double bottom = MAP_TOP + CELL_HEIGHT * (double)map->n_rows;
	size_t n = 0;

	for (size_t i = 0; i < map->n_rows * map->n_columns; i++)
		n += map->cells[i].n_behind > 0;
	begin(out, map->title, wanted, bottom + MAP_BOTTOM);
	label(out, "axis", "start", MAP_LEFT, 14, map->title);
	(void)fprintf(out, "<g class=\"series\" data-points=\"%zu\" data-name=\"", n);
	svg_text(out, map->title);
	(void)fputs("\">\n", out);
	for (size_t r = 0; r < map->n_rows; r++)
		for (size_t c = 0; c < map->n_columns; c++)
			draw_cell(out, map, &map->cells[r * map->n_columns + c],
				  MAP_LEFT + CELL_WIDTH * (double)c,
				  MAP_TOP + CELL_HEIGHT * (double)r);
	(void)fputs("</g>\n", out);
	for (size_t r = 0; r < map->n_rows; r++)
		label(out, "tick", "end", MAP_LEFT - 6,
		      MAP_TOP + CELL_HEIGHT * ((double)r + 0.5) + 4, map->rows[r]);
	for (size_t c = 0; c < map->n_columns; c++)
		label(out, "tick", "middle", MAP_LEFT + CELL_WIDTH * ((double)c + 0.5), bottom + 15,
		      map->columns[c]);
	label(out, "axis", "start", MAP_LEFT, bottom + 33, map->x_label);
	(void)fprintf(out,
		      "<text class=\"axis\" text-anchor=\"middle\" "
		      "transform=\"translate(12 %.1f) rotate(-90)\">",
		      (MAP_TOP + bottom) / 2);
	svg_text(out, map->y_label);
	(void)fputs("</text>\n</svg>\n", out);
}
