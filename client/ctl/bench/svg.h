/*
 * Pictures for the report: plots with axes, heat maps and bars, as SVG within HTML that is also
 * well-formed XML.  Colours are CSS variables of the page, so that they follow light and dark.
 *
 * A series is <g class="series" data-points="N"> and has N elements of class "pt", or a line of N
 * points; so a test can check that all of them are there.
 *
 * The functions only write to the stream; the caller checks ferror().
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_SVG_H
#define DSAIO_CLIENT_CTL_BENCH_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Text from elsewhere: "<", "&" and quotes are escaped, control characters become '?'. */
void svg_text(FILE *out, const char *text);

/* The unit of an axis, which decides the labels of its ticks. */
enum svg_unit { SVG_SECONDS, SVG_NSEC, SVG_GB_PER_SEC, SVG_SHARE };

struct svg_axis {
	const char *label;
	enum svg_unit unit;
	bool is_log;
	double min, max; /* of the data; both 0 or none: an axis from 0 to 1 */
};

struct svg_point {
	double x, y;
};

struct svg_series {
	const char *name;
	unsigned colour; /* --c0, --c1, ...: of SVG_COLOURS, each with a dash and mark of its own */
	bool is_line;	 /* else marks */
	struct svg_point *points;
	size_t n_points;
};
#define SVG_COLOURS 6u

/* title: for screen readers. */
void svg_plot(FILE *out, const char *title, const struct svg_axis *x, const struct svg_axis *y,
	      const struct svg_series *series, size_t n_series);

/* A row: a label and up to two bars, each with an interval (low == high: none). */
struct svg_bar {
	double value, low, high; /* value 0: there is none */
};
struct svg_bar_row {
	char label[64];
	struct svg_bar bars[2];
};
void svg_bars(FILE *out, const char *title, const char *axis_label, const char *const names[2],
	      const struct svg_bar_row *rows, size_t n_rows);

/* Cells row by row; value 0: none.  n_behind: how many measurements a cell stands for. */
struct svg_cell {
	double value;
	unsigned n_behind;
	char what[160]; /* shown on pointing at it */
};
struct svg_map {
	const char *title, *x_label, *y_label;
	char (*columns)[16], (*rows)[16];
	size_t n_columns, n_rows;
	const struct svg_cell *cells;
	double min, max; /* of the colours: the same for maps that are compared */
};
#define SVG_HEAT_STEPS 7u /* --heat0 to --heat6 */
void svg_map(FILE *out, const struct svg_map *map);

/* A number as an axis of that unit writes it.  text: 32 bytes. */
const char *svg_format(char *text, enum svg_unit unit, double value);

/*
 * Ticks for the axis, at most max of them: values in ret_ticks, and the axis' limits, rounded out,
 * in *ret_min and *ret_max.  Returns how many.
 */
size_t svg_ticks(const struct svg_axis *axis, size_t max, double *ret_ticks, double *ret_min,
		 double *ret_max);

#endif
