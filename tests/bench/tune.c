#include "tests/bench/tune.h"

#include <errno.h>
#include <stdio.h>

#define FINALISTS 8u
#define FINAL_SLICES 2u

struct dsaio_profile tune_candidate(unsigned i)
{
	struct dsaio_profile profile = point_profile(i & 4 ? 128 : 32);

	profile.intra_op_parallelism = 1u << (i & 3);
	profile.overlap_events = i & 8 ? DSAIO_NO : DSAIO_YES;
	profile.single_submit = i & 16 ? DSAIO_YES : DSAIO_NO;
	profile.block_size = i & 32 ? 8u << 20 : 1u << 20;
	return profile;
}

bool tune_is_same(const struct dsaio_profile *a, const struct dsaio_profile *b, uint64_t op_bytes)
{
	const uint64_t slice = op_bytes / a->intra_op_parallelism;
	const uint64_t n = (slice + a->block_size - 1) / a->block_size;

	if (a->intra_op_parallelism != b->intra_op_parallelism ||
	    n != (slice + b->block_size - 1) / b->block_size)
		return false;
	if (n <= 1)
		return true; /* a request for each thread: there is nothing to order */
	/* How often it waits differs even where all requests fit into the context at once. */
	return a->block_size == b->block_size && a->single_submit == b->single_submit &&
	       a->overlap_events == b->overlap_events &&
	       (a->queue_depth == b->queue_depth || (n <= a->queue_depth && n <= b->queue_depth));
}

struct candidate {
	struct dsaio_profile profile;
	double bytes_per_sec; /* the sum over its slices */
	unsigned n_slices;
};

static int candidate_run(const struct point *point, struct candidate *c, unsigned n_slices,
			 char *why)
{
	struct point p = *point;
	struct result result;
	struct side side;
	int r;

	p.profile = c->profile;
	r = side_open(&side, side_kind_find("deepnvme"), &p);
	for (unsigned i = 0; r == 0 && i < n_slices; i++) {
		r = side_run(&side, &result);
		if (r == 0) {
			c->bytes_per_sec += result_bytes_per_sec(&result);
			c->n_slices++;
		}
	}
	if (r < 0)
		(void)snprintf(why, sizeof(side.why), "%s", side.why);
	side_close(&side);
	return r;
}

static unsigned candidates_make(const struct point *point, unsigned n, struct candidate *ret)
{
	unsigned n_made = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct dsaio_profile profile = tune_candidate(i);
		bool is_new = true;

		for (unsigned j = 0; is_new && j < n_made; j++)
			is_new = !tune_is_same(&ret[j].profile, &profile, point->op_bytes);
		if (is_new)
			ret[n_made++] = (struct candidate){ .profile = profile };
	}
	return n_made;
}

static double mean(const struct candidate *c)
{
	return c->n_slices > 0 ? c->bytes_per_sec / c->n_slices : 0;
}

/* The best of those from first on is moved there. */
static void best_first(struct candidate *c, unsigned first, unsigned n)
{
	for (unsigned i = first + 1; i < n; i++)
		if (mean(&c[i]) > mean(&c[first])) {
			const struct candidate other = c[i];

			c[i] = c[first];
			c[first] = other;
		}
}

int tune_deepnvme(const struct point *point, unsigned n,
		  const volatile sig_atomic_t *is_interrupted, struct dsaio_profile *ret_profile,
		  char *why)
{
	struct candidate c[TUNE_CANDIDATES];
	unsigned n_made = candidates_make(point, n, c), n_final;
	int r;

	for (unsigned i = 0; i < n_made; i++) {
		r = *is_interrupted ? -EINTR : candidate_run(point, &c[i], 1, why);
		if (r < 0 && r != -EOPNOTSUPP)
			return r;
	}
	n_final = n_made < FINALISTS ? n_made : FINALISTS;
	for (unsigned i = 0; i < n_final; i++)
		best_first(c, i, n_made);
	for (unsigned i = 0; i < n_final; i++) {
		if (c[i].n_slices == 0)
			continue;
		r = *is_interrupted ? -EINTR : candidate_run(point, &c[i], FINAL_SLICES, why);
		if (r < 0)
			return r;
	}
	best_first(c, 0, n_final);
	if (c[0].n_slices == 0)
		return -EOPNOTSUPP;
	*ret_profile = c[0].profile;
	return 0;
}
