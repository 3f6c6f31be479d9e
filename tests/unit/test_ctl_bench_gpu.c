/* bench/gpu: how the bytes of GPU memory went, as text. */
#include "client/ctl/bench/gpu.h"
#include "tests/unit/suite.h"

#include <string.h>

#define CUFILE "cuFile 1.17 with nvidia-fs 2.24"

static const struct {
	struct bench_gpu_paths paths;
	const char *cufile, *text;
} rows[] = {
	{ { 0, 0, "" }, CUFILE, "no op has ended" },
	{ { 7, 0, "" }, CUFILE, "direct (" CUFILE ")" },
	{ { 7, 0, "" }, "", "direct" },
	{ { 0, 7, "no GPU" }, CUFILE, "copied: no GPU" },
	{ { 30, 10, "it is faster" },
	  CUFILE,
	  "30 of 40 ops direct (" CUFILE "), 10 copied: it is faster" },
};

TEST_TABLE(both_paths_are_reported_with_the_number_of_their_ops, rows) /* _i: the row */
{
	char text[BENCH_GPU_PATHS_BYTES];

	ck_assert_str_eq(bench_gpu_paths_text(&rows[_i].paths, rows[_i].cufile, text),
			 rows[_i].text);
}

TEST(the_ops_of_all_processes_are_summed)
{
	struct bench_gpu_paths sum = { 0 };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		bench_gpu_sum_paths(&sum, &rows[i].paths);
	ck_assert_uint_eq(sum.n_direct, 44);
	ck_assert_uint_eq(sum.n_copied, 17);
	ck_assert_str_eq(sum.why, "it is faster");
}

TEST(the_longest_reasons_fit)
{
	char text[BENCH_GPU_PATHS_BYTES], cufile[BENCH_GPU_WHY_BYTES];
	struct bench_gpu_paths paths = { UINT64_MAX / 2, UINT64_MAX / 2, "" };

	memset(paths.why, 'w', sizeof(paths.why) - 1);
	memset(cufile, 'c', sizeof(cufile) - 1);
	cufile[sizeof(cufile) - 1] = '\0';
	ck_assert_str_eq(strchr(bench_gpu_paths_text(&paths, cufile, text), 'w'), paths.why);
}

TEST_MAIN
