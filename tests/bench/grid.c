#include "tests/bench/grid.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tests/bench/statistics.h"

#define COMMAND_BYTES 6000
#define TEXT_BYTES 24 /* of a number */
/* Relative to the speed in the first round. */
#define COLD_RATIO 0.5

static double median(double *values, unsigned n)
{
	if (n == 0)
		return 0;
	sort_values(values, n);
	return quantile(values, n, 0.5);
}

static double cell_median(const struct cell *cell, double (*value)(const struct result *))
{
	double values[GRID_ROUNDS_MAX];

	for (unsigned i = 0; i < cell->n_rounds; i++)
		values[i] = value(&cell->results[i]);
	return median(values, cell->n_rounds);
}

static double cpu_per_gb(const struct result *r)
{
	return r->bytes > 0 ? r->cpu_seconds * 1e9 / (double)r->bytes : 0;
}

static double cpu_per_mops(const struct result *r)
{
	return r->ops > 0 ? r->cpu_seconds * 1e6 / (double)r->ops : 0;
}

static double p50(const struct result *r)
{
	return r->p50_usec;
}

static double p99(const struct result *r)
{
	return r->p99_usec;
}

static double block(const struct result *r)
{
	return r->block_bytes;
}

static double depth(const struct result *r)
{
	return r->depth;
}

/* Uses the rounds that both have; returns their number. */
static unsigned ratios(const struct cell *of, const struct cell *to, double *ret_sorted)
{
	unsigned n = 0;

	for (unsigned i = 0; i < of->n_rounds && i < to->n_rounds; i++)
		if (to->results[i].bytes > 0)
			ret_sorted[n++] = result_bytes_per_sec(&of->results[i]) /
					  result_bytes_per_sec(&to->results[i]);
	sort_values(ret_sorted, n);
	return n;
}

void cell_figures(const struct grid_row *row, unsigned i, struct figures *ret_figures)
{
	const struct cell *cell = &row->cells[i];
	double sorted[GRID_ROUNDS_MAX];
	struct figures s = { 0 };
	const unsigned n = ratios(&row->cells[0], cell, sorted);

	s.bytes_per_sec = cell_median(cell, result_bytes_per_sec);
	s.ops_per_sec = cell_median(cell, result_ops_per_sec);
	s.cpu_sec_per_gb = cell_median(cell, cpu_per_gb);
	s.cpu_sec_per_mops = cell_median(cell, cpu_per_mops);
	s.p50_usec = cell_median(cell, p50);
	s.p99_usec = cell_median(cell, p99);
	s.block_bytes = (unsigned)cell_median(cell, block);
	s.depth = cell_median(cell, depth);
	if (n > 0) {
		s.ratio = quantile(sorted, n, 0.5);
		s.ratio_q1 = quantile(sorted, n, 0.25);
		s.ratio_q3 = quantile(sorted, n, 0.75);
	}
	*ret_figures = s;
}

static const struct cell *cell_find(const struct grid_row *row, const char *name)
{
	for (unsigned i = 0; i < row->n_cells; i++)
		if (strcmp(row->cells[i].kind->name, name) == 0)
			return &row->cells[i];
	return NULL;
}

double row_ratio(const struct grid_row *row, const char *of, const char *to)
{
	const struct cell *a = cell_find(row, of), *b = cell_find(row, to);
	double sorted[GRID_ROUNDS_MAX];
	const unsigned n = a && b ? ratios(a, b, sorted) : 0;

	return n > 0 ? quantile(sorted, n, 0.5) : 0;
}

bool row_got_cold(const struct grid_row *row)
{
	unsigned n = 0, n_cold = 0;

	for (unsigned i = 0; i < row->n_cells; i++) {
		const struct cell *cell = &row->cells[i];
		double first, last;

		if (cell->n_rounds < 2)
			continue;
		first = result_bytes_per_sec(&cell->results[0]);
		last = result_bytes_per_sec(&cell->results[cell->n_rounds - 1]);
		n++;
		n_cold += last < COLD_RATIO * first || first < COLD_RATIO * last;
	}
	return n > 0 && 2 * n_cold > n;
}

/* ---- the table ---- */

static const char *size_text(char text[TEXT_BYTES], uint64_t bytes)
{
	if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
		(void)snprintf(text, TEXT_BYTES, "%" PRIu64 "M", bytes >> 20);
	else if (bytes >= 1 << 10)
		(void)snprintf(text, TEXT_BYTES, "%" PRIu64 "K", bytes >> 10);
	else
		(void)snprintf(text, TEXT_BYTES, "%" PRIu64, bytes);
	return text;
}

static const char *number_text(char text[TEXT_BYTES], double value, int decimals)
{
	(void)snprintf(text, TEXT_BYTES, value > 0 ? "%.*f" : "-", decimals, value);
	return text;
}

void grid_print_head(FILE *f)
{
	fprintf(f, "%-5s %-5s %5s %5s %5s %-13s %8s %8s %8s %11s %7s %7s %9s %9s %6s %6s %10s\n",
		"place", "op", "size", "depth", "procs", "side", "MB/s", "ops/s", "ours/it",
		"quartiles", "s/GB", "s/Mops", "p50 us", "p99 us", "block", "queue", "uring/ours");
}

void grid_print_row(FILE *f, const struct grid_row *row)
{
	char a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES], e[TEXT_BYTES], spread[32];

	for (unsigned i = 0; i < row->n_cells; i++) {
		const struct cell *cell = &row->cells[i];
		struct figures s;

		fprintf(f, "%-5s %-5s %5s %5u %5u %-13s ", row->place,
			row->point.is_write ? "write" : "read", size_text(a, row->point.op_bytes),
			row->point.depth, row->point.n_processes, cell->kind->name);
		if (cell->n_rounds == 0) {
			fprintf(f, "not measured: %s\n", cell->skipped);
			continue;
		}
		cell_figures(row, i, &s);
		(void)snprintf(spread, sizeof(spread), i > 0 ? "%.2f-%.2f" : "-", s.ratio_q1,
			       s.ratio_q3);
		fprintf(f, "%8.1f %8.0f %8s %11s %7.3f %7.2f ", s.bytes_per_sec / 1e6,
			s.ops_per_sec, number_text(a, i > 0 ? s.ratio : 0, 3), spread,
			s.cpu_sec_per_gb, s.cpu_sec_per_mops);
		fprintf(f, "%9s %9s %6s %6s %10s\n", number_text(b, s.p50_usec, 1),
			number_text(c, s.p99_usec, 1),
			s.block_bytes > 0 ? size_text(a, s.block_bytes) : "-",
			number_text(d, s.depth, 1),
			i == 0 ? number_text(e, row_ratio(row, "fio-uring", cell->kind->name), 3)
			       : "");
	}
	if (row->is_cold)
		fprintf(f, "# the row above: its files got cold or hot while it was measured\n");
}

/* ---- JSON ---- */

static void add_number(struct json_object *o, const char *key, double value)
{
	(void)json_object_object_add(o, key, json_object_new_double(value));
}

static void add_int(struct json_object *o, const char *key, uint64_t value)
{
	(void)json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_text(struct json_object *o, const char *key, const char *value)
{
	(void)json_object_object_add(o, key, json_object_new_string(value));
}

static struct json_object *profile_json(const struct dsaio_profile *p)
{
	struct json_object *o = json_object_new_object();

	add_int(o, "block_size", p->block_size);
	add_int(o, "queue_depth", p->queue_depth);
	(void)json_object_object_add(o, "single_submit",
				     json_object_new_boolean(p->single_submit == DSAIO_YES));
	(void)json_object_object_add(o, "overlap_events",
				     json_object_new_boolean(p->overlap_events == DSAIO_YES));
	add_int(o, "intra_op_parallelism", p->intra_op_parallelism);
	return o;
}

static struct json_object *result_json(const struct result *r)
{
	struct json_object *o = json_object_new_object();

	add_int(o, "bytes", r->bytes);
	add_int(o, "ops", r->ops);
	add_number(o, "seconds", r->seconds);
	add_number(o, "cpu_seconds", r->cpu_seconds);
	add_number(o, "p50_usec", r->p50_usec);
	add_number(o, "p99_usec", r->p99_usec);
	add_int(o, "device_block_bytes", r->block_bytes);
	add_number(o, "device_depth", r->depth);
	return o;
}

static struct json_object *cell_json(const struct grid_row *row, unsigned i)
{
	const struct cell *cell = &row->cells[i];
	struct json_object *o = json_object_new_object(), *rounds = json_object_new_array();
	struct point point = row->point;
	char command[COMMAND_BYTES];
	struct figures s;

	cell_figures(row, i, &s);
	point.profile = cell->profile;
	add_text(o, "side", cell->kind->name);
	if (cell->skipped[0])
		add_text(o, "not_measured", cell->skipped);
	if (cell->kind->command && cell->kind->command(&point, command, sizeof(command)) == 0)
		add_text(o, "command", command);
	(void)json_object_object_add(o, "profile", profile_json(&cell->profile));
	add_number(o, "bytes_per_sec", s.bytes_per_sec);
	add_number(o, "ops_per_sec", s.ops_per_sec);
	add_number(o, "first_over_it", s.ratio);
	add_number(o, "first_over_it_q1", s.ratio_q1);
	add_number(o, "first_over_it_q3", s.ratio_q3);
	add_number(o, "cpu_sec_per_gb", s.cpu_sec_per_gb);
	add_number(o, "cpu_sec_per_mops", s.cpu_sec_per_mops);
	add_number(o, "p50_usec", s.p50_usec);
	add_number(o, "p99_usec", s.p99_usec);
	add_int(o, "device_block_bytes", s.block_bytes);
	add_number(o, "device_depth", s.depth);
	for (unsigned j = 0; j < cell->n_rounds; j++)
		(void)json_object_array_add(rounds, result_json(&cell->results[j]));
	(void)json_object_object_add(o, "rounds", rounds);
	return o;
}

static struct json_object *row_json(const struct grid_row *row)
{
	struct json_object *o = json_object_new_object(), *sides = json_object_new_array();

	add_text(o, "place", row->place);
	add_text(o, "op", row->point.is_write ? "write" : "read");
	add_int(o, "op_bytes", row->point.op_bytes);
	add_text(o, "order", row->point.is_random ? "random" : "sequential");
	add_int(o, "depth", row->point.depth);
	add_int(o, "processes", row->point.n_processes);
	add_int(o, "file_bytes", row->point.file_bytes);
	add_number(o, "uring_over_ours", row_ratio(row, "fio-uring", "ours"));
	(void)json_object_object_add(o, "got_cold", json_object_new_boolean(row->is_cold));
	for (unsigned i = 0; i < row->n_cells; i++)
		(void)json_object_array_add(sides, cell_json(row, i));
	(void)json_object_object_add(o, "sides", sides);
	return o;
}

int grid_write_json(const char *path, const struct grid_row *rows, unsigned n, bool is_whole)
{
	struct json_object *all = json_object_new_object(), *list = json_object_new_array();
	struct utsname host = { 0 };
	int r = 0;

	(void)uname(&host); /* "" then */
	add_text(all, "kernel", host.release);
	add_int(all, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	add_text(all, "version", dsaio_version());
	(void)json_object_object_add(all, "whole", json_object_new_boolean(is_whole));
	for (unsigned i = 0; i < n; i++)
		(void)json_object_array_add(list, row_json(&rows[i]));
	(void)json_object_object_add(all, "rows", list);

	errno = 0;
	if (json_object_to_file_ext(path, all, JSON_C_TO_STRING_PRETTY) < 0) {
		r = errno ? -errno : -EIO;
		fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(-r));
	}
	(void)json_object_put(all);
	return r;
}
