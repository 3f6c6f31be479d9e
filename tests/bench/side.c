#include "tests/bench/side.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/crew.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"

const char *side_daemon_program;

static const struct side_kind side_kinds[] = {
	{ .name = "ours",
	  .open = ours_pinned_open,
	  .run = ours_side_run,
	  .close = ours_side_close },
	{ .name = "ours-not-spinning",
	  .open = ours_not_spinning_open,
	  .run = ours_side_run,
	  .close = ours_side_close },
	{ .name = "ours-spinning",
	  .open = ours_spinning_open,
	  .run = ours_side_run,
	  .close = ours_side_close },
	{ .name = "fio-libaio",
	  .open = fio_libaio_open,
	  .run = fio_side_run,
	  .close = fio_side_close,
	  .command = fio_libaio_command },
	{ .name = "fio-uring",
	  .open = fio_uring_open,
	  .run = fio_side_run,
	  .close = fio_side_close,
	  .command = fio_uring_command },
	{ .name = "fio-libaio-huge",
	  .open = fio_libaio_huge_open,
	  .run = fio_side_run,
	  .close = fio_side_close,
	  .command = fio_libaio_huge_command },
	{ .name = "fio-uring-huge",
	  .open = fio_uring_huge_open,
	  .run = fio_side_run,
	  .close = fio_side_close,
	  .command = fio_uring_huge_command },
	{ .name = "libaio",
	  .open = local_side_open,
	  .run = crew_side_run,
	  .close = crew_side_close },
	{ .name = "io_uring",
	  .open = uring_side_open,
	  .run = crew_side_run,
	  .close = crew_side_close },
	{ .name = "deepnvme",
	  .open = deepnvme_side_open,
	  .run = crew_side_run,
	  .close = crew_side_close },
	{ .name = NULL },
};

const struct side_kind *side_kind_find(const char *name)
{
	for (const struct side_kind *k = side_kinds; k->name; k++)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}

int side_open(struct side *side, const struct side_kind *kind, const struct point *point)
{
	int r;

	*side = (struct side){ .kind = kind, .point = *point };
	r = kind->open(side);
	if (r < 0) {
		kind->close(side);
		side->kind = NULL;
	}
	return r;
}

int side_run(struct side *side, struct result *ret_result)
{
	struct result result = { 0 };
	int r = side->kind->run(side, &result);

	if (r == 0)
		*ret_result = result;
	return r;
}

void side_close(struct side *side)
{
	if (side->kind)
		side->kind->close(side);
	side->kind = NULL;
}

uint64_t point_block_bytes(const struct point *point)
{
	return point->op_bytes < point->profile.block_size ? point->op_bytes
							   : point->profile.block_size;
}

unsigned point_ops_in_flight(const struct point *point)
{
	const uint64_t n_blocks = point->op_bytes / point_block_bytes(point);
	const uint64_t n_ops = point->depth / n_blocks;

	return n_ops > 0 ? (unsigned)n_ops : 1;
}

uint64_t point_memory_bytes(const struct point *point)
{
	return point_ops_in_flight(point) * point->op_bytes;
}

void point_path(const struct point *point, unsigned index, char *path)
{
	files_path(path, point->dir, point->is_one_file ? 0 : index);
}

int point_open(const struct point *point, unsigned index, char *why, size_t size)
{
	char path[FILES_PATH_BYTES];
	int fd, r;

	point_path(point, index, path);
	fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	r = -errno;
	(void)snprintf(why, size, "%s: %s", path, strerror(-r));
	return r;
}

struct dsaio_profile point_profile(unsigned depth)
{
	return (struct dsaio_profile){ .size = sizeof(struct dsaio_profile),
				       .block_size = 1u << 20,
				       .queue_depth = depth,
				       .single_submit = DSAIO_NO,
				       .overlap_events = DSAIO_YES,
				       .intra_op_parallelism = 1 };
}
