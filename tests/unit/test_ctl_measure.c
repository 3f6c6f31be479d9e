/* measure: ds_io's sums and its result lines. */
#include "client/ctl/bench/measure.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

TEST(bytes_add_up_and_the_slowest_process_counts)
{
	const struct measure_part parts[] = {
		{ .task_sec = 1.0, .e2e_sec = 2.5, .bytes = (uint64_t)1 << 30 },
		{ .task_sec = 2.0, .e2e_sec = 2.25, .bytes = (uint64_t)3 << 30 },
	};
	struct measure m;

	measure_sum(parts, 2, &m);
	ck_assert_uint_eq(m.bytes, (uint64_t)4 << 30);
	ck_assert_double_eq(m.task_sec, 2.0);
	ck_assert_double_eq(m.task_speed, 2.0);
	ck_assert_double_eq(m.e2e_sec, 2.5);
	ck_assert_double_eq(m.e2e_speed, 1.6);
}

TEST(no_time_gives_no_speed)
{
	const struct measure_part part = { .bytes = 1 };
	struct measure m;

	measure_sum(&part, 1, &m);
	ck_assert_double_eq(m.task_speed, 0);
	ck_assert_double_eq(m.e2e_speed, 0);
}

/* The lines as ds_io printed them, and as DeepSpeed's parse_nvme_stats reads them. */
TEST(result_lines_are_those_of_ds_io)
{
	_cleanup_(freep) char *text = NULL;
	struct measure m = { .task_sec = 0.031647682189941406,
			     .task_speed = 12.342926020792527,
			     .e2e_sec = 0.031697988510131836,
			     .e2e_speed = 12.323337169333062 };
	size_t size;
	FILE *out = open_memstream(&text, &size);

	measure_print(&m, true, out);
	m.task_sec = 2;
	measure_print(&m, false, out);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_str_eq(text, "Task Read Latency = 0.031647682189941406 sec\n"
			       "Task Read Speed = 12.342926020792527 GB/sec\n"
			       "E2E Read Latency = 0.031697988510131836 sec\n"
			       "E2E Read Speed = 12.323337169333062 GB/sec\n"
			       "Task Write Latency = 2.0 sec\n"
			       "Task Write Speed = 12.342926020792527 GB/sec\n"
			       "E2E Write Latency = 0.031697988510131836 sec\n"
			       "E2E Write Speed = 12.323337169333062 GB/sec\n");
}

TEST_MAIN
