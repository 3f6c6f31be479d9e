/*
 * The options that bench sweep and bench tune have in common, with the names of DeepSpeed's
 * aio_bench_perf_sweep and ds_nvme_tune.
 *
 *     static struct bench_options options = BENCH_OPTIONS_INIT;
 *     static const struct flag flags[] = { BENCH_FLAGS(options), { "apply", ... } };
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_OPTIONS_H
#define DSAIO_CLIENT_CTL_BENCH_OPTIONS_H

#include "client/ctl/bench/gpu.h"
#include "client/ctl/bench/space.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/flags.h"

#define BENCH_IO_SIZE_MAX ((uint64_t)1 << 46)
#define BENCH_LOOPS_MAX 1000u	/* a guess: more is a mistake */
#define BENCH_FOLDERS_MAX 1024u /* likewise */
#define BENCH_LOG_DIR "_aio_bench_logs"

struct bench_options {
	struct flag_list nvme_dir; /* one process for each */
	const char *sweep_config;  /* NULL: the default space */
	const char *log_dir;
	uint64_t io_size;
	uint32_t loops, parallel; /* parallel 0: as the space has it */
	struct bench_gpu_options gpu;
	bool no_read, no_write, flush_page_cache, no_sudo, verbose, keep, resume, exclusive;
};

#define BENCH_OPTIONS_INIT                                                           \
	{                                                                            \
		.log_dir = BENCH_LOG_DIR, .io_size = (uint64_t)400 << 20, .loops = 1 \
	}

#define BENCH_FLAGS(o)                                                                    \
	FLAG_NAMES("dir", "nvme_dir", FLAG_LIST, &(o).nvme_dir, 0, 0),                    \
		{ "parallel", FLAG_COUNT, &(o).parallel, 1, PROFILE_PARALLELISM_MAX },    \
		{ "sweep_config", FLAG_STRING, &(o).sweep_config, 0, 0 },                 \
		{ "log_dir", FLAG_STRING, &(o).log_dir, 0, 0 },                           \
		{ "io_size", FLAG_SIZE, &(o).io_size, 1, BENCH_IO_SIZE_MAX },             \
		{ "loops", FLAG_COUNT, &(o).loops, 1, BENCH_LOOPS_MAX },                  \
		{ "no_read", FLAG_BOOL, &(o).no_read, 0, 0 },                             \
		{ "no_write", FLAG_BOOL, &(o).no_write, 0, 0 }, BENCH_GPU_FLAGS((o).gpu), \
		{ "flush_page_cache", FLAG_BOOL, &(o).flush_page_cache, 0, 0 },           \
		{ "no_sudo", FLAG_BOOL, &(o).no_sudo, 0, 0 },                             \
		{ "verbose", FLAG_BOOL, &(o).verbose, 0, 0 },                             \
		{ "keep", FLAG_BOOL, &(o).keep, 0, 0 },                                   \
		{ "resume", FLAG_BOOL, &(o).resume, 0, 0 },                               \
	{                                                                                 \
		"exclusive", FLAG_BOOL, &(o).exclusive, 0, 0                              \
	}

/* The lines of --help for these, except --loops, which each explains. */
#define BENCH_OPTIONS_HELP                                                                              \
	"    --dir, --nvme_dir DIR ...\n"                                                               \
	"                           where the test files lie: a process for each\n"                     \
	"    --sweep_config FILE    the space, as JSON (below)\n"                                       \
	"    --parallel N           the io_parallel of all points, in place of the space's\n"           \
	"    --no_read, --no_write  leave reads, or writes, out\n"                                      \
	"    --io_size N[K|M|G|T]   bytes that one loop of one process moves (400M)\n"                  \
	"    --flush_page_cache     empty the page cache before each point (needs root)\n"              \
	"    --no_sudo              taken, and without effect: nothing here uses sudo\n" BENCH_GPU_HELP \
	"    --log_dir DIR          for results and logs; earlier ones are kept\n"                      \
	"                           (_aio_bench_logs)\n"                                                \
	"    --resume               continue the last run in --log_dir\n"                               \
	"    --exclusive            refuse to begin while others use the store or its disk\n"           \
	"    --keep                 leave the test files there\n"                                       \
	"    --verbose              print a line for each point\n"

/* The description of --sweep_config in --help. */
#define BENCH_SPACE_HELP                                                                            \
	"The space, by default these 64 points, is a product; a list that is missing has ds_io's\n" \
	"default as its only value (1M, 32, false, false, 1):\n"                                    \
	"    {\"block_size\": [\"1M\", \"8M\"], \"queue_depth\": [32, 128],\n"                      \
	"     \"sequential_requests\": [true, false], \"single_submit\": [false, true],\n"          \
	"     \"io_parallel\": [1, 2, 4, 8]}\n"

/* Refuses what cannot be, and reads the space.  Returns CTL_OK, CTL_USAGE or CTL_FAILED (reported). */
int bench_options_check(const struct ctl *ctl, const struct bench_options *options,
			struct bench_space *ret_space);

#endif
