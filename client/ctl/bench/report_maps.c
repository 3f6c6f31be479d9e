#include "client/ctl/bench/report_parts.h"

#include "client/ctl/bench/space.h"
#include "client/ctl/bench/svg.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
		       report_profile_name(name, sizeof(name), &row->task.profile),
		       svg_format(speed, SVG_GB_PER_SEC, row->total.e2e_speed));
	cell->n_behind++;
	if (row->total.e2e_speed > cell->value)
		cell->value = row->total.e2e_speed;
}

struct heat_maps {
	const struct report_run *run;
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

static int heat_maps_init(struct heat_maps *maps, const struct report_run *run, enum bench_op op)
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

		if (row->task.op != op || !report_is_measured(row))
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

		if (row->task.op == maps->op && report_is_measured(row) &&
		    p->intra_op_parallelism == parallel)
			cell_add(&maps->cells[values_find(&maps->depths, p->queue_depth) *
						      maps->blocks.n +
					      values_find(&maps->blocks, p->block_size)],
				 row);
	}
	svg_map(out, &map);
}

int report_write_maps(FILE *out, const struct report_run *run, enum bench_op op)
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
