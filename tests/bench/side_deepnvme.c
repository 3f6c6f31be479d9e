/*
 * The side that does as DeepNVMe does: as many async ops as the depth, then wait(), and again.
 * The files are opened by their path for every op; the memory is page-aligned.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/deepnvme.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"

#define SECTOR_BYTES 512u /* below it O_DIRECT refuses everywhere */

/* State of a process. */
struct program {
	struct point point;
	struct deepnvme *handle;
	char *memory;
	struct offsets offsets;
	unsigned n_flying;
	int64_t *start_nsec; /* of each op of a batch */
	char path[FILES_PATH_BYTES];
};

static void program_close(void *state)
{
	struct program *p = state;

	if (!p)
		return;
	deepnvme_free(p->handle);
	free(p->memory);
	free(p->start_nsec);
	free(p);
}

static void program_closep(struct program **p)
{
	program_close(*p);
}

static int program_open(const struct point *point, unsigned index, const void *argument,
			void **ret_state, char *why, size_t size)
{
	_cleanup_(program_closep) struct program *p = calloc(1, sizeof(*p));
	int r;

	(void)argument;
	if (!p)
		return -ENOMEM;
	p->point = *point;
	p->n_flying = point_ops_in_flight(point);
	p->start_nsec = calloc(p->n_flying, sizeof(*p->start_nsec));
	if (!p->start_nsec)
		return -ENOMEM;
	offsets_init(&p->offsets, point);
	point_path(point, index, p->path);
	r = memory_new(point_memory_bytes(point), &p->memory);
	if (r == 0)
		r = deepnvme_new(&point->profile, &p->handle);
	if (r < 0) {
		(void)snprintf(why, size, "cannot set it up: %s", strerror(-r));
		return r;
	}
	*ret_state = TAKE_PTR(p);
	return 0;
}

/* A batch of n ops. */
static int program_batch(struct program *p, unsigned n, struct work *work)
{
	const uint64_t len = p->point.op_bytes;
	int64_t r = 0, now;
	unsigned i;

	for (i = 0; r == 0 && i < n; i++) {
		p->start_nsec[i] = now_nsec();
		r = deepnvme_submit(p->handle, p->point.is_write, p->path, p->memory + i * len, len,
				    offsets_next(&p->offsets));
	}
	if (r < 0)
		(void)deepnvme_wait(p->handle); /* the first error tells */
	else
		r = deepnvme_wait(p->handle);
	now = now_nsec();
	if (r != n) {
		(void)snprintf(work->why, sizeof(work->why), "an op failed: %s", strerror((int)-r));
		return r < 0 ? (int)r : -EIO;
	}
	for (i = 0; i < n; i++)
		histogram_add(&work->histogram, now - p->start_nsec[i]);
	work->ops += n;
	return 0;
}

static int program_run(void *state, struct work *work)
{
	struct program *p = state;
	const unsigned n_max = p->point.slice_ops;
	int r = 0;

	while (r == 0 &&
	       (n_max > 0 ? work->ops < n_max : work->ops == 0 || now_nsec() < work->end_nsec)) {
		const uint64_t left = n_max > 0 ? n_max - work->ops : p->n_flying;

		r = program_batch(p, left < p->n_flying ? (unsigned)left : p->n_flying, work);
	}
	work->bytes = work->ops * p->point.op_bytes;
	work->block_bytes = p->point.profile.block_size;
	work->depth = p->point.profile.queue_depth;
	return r;
}

static const struct crew_member program = { program_open, program_run, program_close };

int deepnvme_side_open(struct side *side)
{
	const struct point *p = &side->point;
	const unsigned n = p->profile.intra_op_parallelism;

	if (n == 0 || p->op_bytes % ((uint64_t)n * SECTOR_BYTES) != 0) {
		(void)snprintf(side->why, sizeof(side->why), "an op is not divisible by %u threads",
			       n);
		return -EOPNOTSUPP;
	}
	return crew_side_open(side, &program);
}
