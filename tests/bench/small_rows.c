#include "tests/bench/small_rows.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
	uint64_t op_bytes;
	unsigned n_clients, depth;
} points[] = {
	{ 4096, 1, 1 },	 { 4096, 1, 8 },  { 4096, 1, 32 },     { 4096, 1, 128 },    { 4096, 4, 32 },
	{ 4096, 16, 4 }, { 4096, 32, 1 }, { 64 * 1024, 1, 8 }, { 64 * 1024, 4, 8 },
};
#define N_POINTS (sizeof(points) / sizeof(points[0]))
_Static_assert(SMALL_POINTS == 2 * N_POINTS, "each point is read and written");

static const struct {
	const char *side, *text;
} ways[SMALL_WAYS] = {
	[SMALL_OURS] = { "ours", "" },
	[SMALL_NOT_SPINNING] = { "ours-not-spinning", ", not spinning" },
	[SMALL_SPINNING] = { "ours-spinning", ", spinning" },
	[SMALL_URING] = { "io_uring", ", io_uring" },
};

static double iops(const struct result *result)
{
	return result_ops_per_sec(result);
}

static double mean(const struct result *result)
{
	return result->mean_usec;
}

static double p99(const struct result *result)
{
	return result->p99_usec;
}

static double usec_per_op(double seconds, const struct result *result)
{
	return result->ops > 0 ? seconds * 1e6 / (double)result->ops : 0;
}

static double cpu(const struct result *result)
{
	return usec_per_op(result->cpu_seconds, result);
}

static double cpu_daemon(const struct result *result)
{
	return usec_per_op(result->daemon_cpu_seconds, result);
}

static double per_op(uint64_t n, const struct result *result)
{
	return result->ops > 0 ? (double)n / (double)result->ops : 0;
}

static double sleeps(const struct result *result)
{
	return per_op(result->sleeps, result);
}

static double sleeps_daemon(const struct result *result)
{
	return per_op(result->daemon_sleeps, result);
}

static const struct {
	const char *text, *unit;
	double (*value)(const struct result *);
	int decimals;
} figures[SMALL_FIGURES] = {
	[SMALL_IOPS] = { "IOPS", "IOPS", iops, 0 },
	[SMALL_MEAN] = { "mean latency", "us", mean, 1 },
	[SMALL_P99] = { "p99 latency", "us", p99, 1 },
	[SMALL_CPU] = { "CPU per op", "us", cpu, 2 },
	[SMALL_CPU_DAEMON] = { "CPU of daemon", "us", cpu_daemon, 2 },
	[SMALL_SLEEPS] = { "sleeps per op", "", sleeps, 3 },
	[SMALL_SLEEPS_DAEMON] = { "daemon sleeps", "", sleeps_daemon, 3 },
};

void small_rows_point(unsigned i, const char *dir, struct point *ret_point)
{
	const size_t at = i % N_POINTS;

	*ret_point = (struct point){ .dir = dir,
				     .op_bytes = points[at].op_bytes,
				     .file_bytes = HOT_FILE_BYTES,
				     .is_one_file = true,
				     .is_write = i >= N_POINTS,
				     .is_random = true,
				     .depth = points[at].depth,
				     .n_processes = points[at].n_clients,
				     .profile = point_profile(points[at].depth) };
}

static bool is_one_by_one(const struct point *point)
{
	return point->n_processes == 1 && point->depth == 1;
}

bool small_has_way(const struct point *point, enum small_way way)
{
	return way == SMALL_OURS || way == SMALL_URING || is_one_by_one(point);
}

const char *small_side(enum small_way way)
{
	return ways[way].side;
}

bool small_has_row(enum small_way way, enum small_figure figure)
{
	return way != SMALL_URING || figure == SMALL_IOPS || figure == SMALL_CPU;
}

/*
 * 0: none.  With one op at a time the IOPS are only the reciprocal of the latency, and a client
 * that does not spin, or is asked to spin, chose between latency and CPU time itself.
 */
static double small_bar(const struct point *point, enum small_way way, enum small_figure figure)
{
	const bool is_default = way == SMALL_OURS;

	if (way == SMALL_URING)
		return 0;
	switch (figure) {
	case SMALL_IOPS:
		if (is_one_by_one(point))
			return 0;
		return point->n_processes == 1 && point->depth == 8 ? 0.90 : 0.95;
	case SMALL_MEAN:
		if (!is_one_by_one(point))
			return 0;
		return is_default ? 1.45 : way == SMALL_SPINNING ? 0.9 : 0;
	case SMALL_P99:
		return 1.2;
	case SMALL_CPU:
		if (!is_default)
			return 0;
		return point->depth > 1 ? 1.4 : 1.6;
	default:
		return 0;
	}
}

void small_row(const struct point *point, enum small_way way, enum small_figure figure, char *name,
	       struct row *ret_row)
{
	const double bar = small_bar(point, way, figure);

	(void)snprintf(name, SMALL_NAME_BYTES, "%" PRIu64 "K %s, %u x %u%s: %s",
		       point->op_bytes / 1024, point->is_write ? "write" : "read",
		       point->n_processes, point->depth, ways[way].text, figures[figure].text);
	*ret_row = (struct row){ .name = name,
				 .unit = figures[figure].unit,
				 .is_higher_better = figure == SMALL_IOPS,
				 .is_absolute = figure == SMALL_CPU_DAEMON ||
						figure == SMALL_SLEEPS_DAEMON,
				 .has_no_bar = bar == 0,
				 .bar = bar,
				 .decimals = figures[figure].decimals };
}

double small_value(const struct result *result, enum small_figure figure)
{
	return figures[figure].value(result);
}
