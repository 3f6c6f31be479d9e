#include "tests/bench/contest.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "tests/bench/statistics.h"

#define COMMAND_BYTES 6000

struct dsaio_profile deepnvme_point(unsigned i)
{
	struct dsaio_profile profile = point_profile(32);

	profile.block_size = (i % 2 == 0 ? 1u : 8u) << 20;
	profile.intra_op_parallelism = i / 2 == 0 ? 1 : 8;
	return profile;
}

void point_print(const struct row *row, const char *whose, const struct dsaio_profile *profile)
{
	printf("%s: %s best of %d points is block_size %u MiB, queue_depth %u, "
	       "intra_op_parallelism %u\n",
	       row->name, whose, DEEPNVME_POINTS, profile->block_size >> 20, profile->queue_depth,
	       profile->intra_op_parallelism);
}

int contest_add(struct contest *contest, const char *kind_name, const struct point *point)
{
	const struct side_kind *kind = side_kind_find(kind_name);
	struct side *side = &contest->sides[contest->n_sides];
	char command[COMMAND_BYTES];
	int r;

	assert(kind && contest->n_sides < CONTEST_SIDES_MAX);
	r = side_open(side, kind, point);
	if (r < 0) {
		fprintf(stderr, "bench: %s: %s\n", kind_name, side->why);
		return r;
	}
	if (kind->command && kind->command(point, command, sizeof(command)) == 0)
		printf("%s\n", command);
	return (int)contest->n_sides++;
}

void contest_close(struct contest *contest)
{
	while (contest->n_sides > 0)
		side_close(&contest->sides[--contest->n_sides]);
}

int contest_run(struct contest *contest, const struct row *row, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const unsigned round = contest->n_rounds;
		int r = round_begin(row, round);

		assert(round < ROUNDS_MAX);
		for (unsigned j = 0; r == 0 && j < contest->n_sides; j++) {
			const unsigned at = (round + j) % contest->n_sides;
			struct side *side = &contest->sides[at];

			if (contest->is_out[at])
				continue;
			r = side_run(side, &contest->results[round][at]);
			if (r < 0)
				fprintf(stderr, "bench: %s: %s\n", side->kind->name, side->why);
		}
		if (r < 0)
			return r;
		contest->n_rounds++;
	}
	return 0;
}

void contest_forget(struct contest *contest)
{
	contest->n_rounds = 0;
}

unsigned contest_best(struct contest *contest, unsigned first, unsigned n)
{
	double values[ROUNDS_MAX], best = 0;
	unsigned best_at = first;

	for (unsigned at = first; at < first + n; at++) {
		for (unsigned i = 0; i < contest->n_rounds; i++)
			values[i] = result_bytes_per_sec(&contest->results[i][at]);
		sort_values(values, contest->n_rounds);
		contest->is_out[at] = true;
		if (quantile(values, contest->n_rounds, 0.5) > best) {
			best = quantile(values, contest->n_rounds, 0.5);
			best_at = at;
		}
	}
	contest->is_out[best_at] = false;
	return best_at;
}

void contest_row(const struct contest *contest, struct row *row, unsigned ours, unsigned reference,
		 double (*value)(const struct result *))
{
	for (unsigned i = 0; i < contest->n_rounds; i++)
		row_add(row, value(&contest->results[i][ours]),
			value(&contest->results[i][reference]));
}

double result_megabytes_per_sec(const struct result *result)
{
	return result_bytes_per_sec(result) / 1e6;
}

double result_cpu_msec_per_gigabyte(const struct result *result)
{
	return result->cpu_seconds * 1e12 / (double)result->bytes;
}
