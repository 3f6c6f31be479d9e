/* bench results: rows are read back as written, also from a rows file that a crash cut short. */
#include "client/ctl/bench/results.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_file(const char *name, const char *json)
{
	char path[PATH_MAX];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	(void)fputs(json, file);
	ck_assert_int_eq(fclose(file), 0);
}

static void remove_results(void)
{
	for (unsigned i = 0; i < BENCH_RESULTS_KINDS; i++)
		(void)unlinkat(dir_fd, bench_results_files[i].name, 0);
	(void)unlinkat(dir_fd, BENCH_ROWS_NAME, 0);
	remove_empty_dir();
}

static struct bench_row make_row(struct bench_repetition *repetitions)
{
	return (struct bench_row){
		.task = { .op = BENCH_WRITE,
			  .profile = { 1u << 20, 32, true, false, 8 },
			  .io_size = 4096,
			  .warmup_loops = 1,
			  .loops = 2 },
		.n_processes = 3,
		.served = { 512u << 10, 16, 300000.5, 7.25 },
		.repetitions = repetitions,
		.n_repetitions = 2,
		.total = { 0.1, 1.0 / 3, 0.2, 12.323337169333062, 8192 },
		.device_bytes = UINT64_MAX,
		.source = BENCH_FROM_BOTH,
		.others_bytes = 17,
		.is_disturbed = true,
		.error = "no\nroom",
		.log = "_aio_bench_write_logs/x.txt",
	};
}

static void assert_same_row(const struct bench_row *a, const struct bench_row *b)
{
	ck_assert_int_eq(a->task.op, b->task.op);
	ck_assert_uint_eq(a->task.profile.block_size, b->task.profile.block_size);
	ck_assert_uint_eq(a->task.profile.queue_depth, b->task.profile.queue_depth);
	ck_assert(a->task.profile.single_submit == b->task.profile.single_submit);
	ck_assert(a->task.profile.overlap_events == b->task.profile.overlap_events);
	ck_assert_uint_eq(a->task.profile.intra_op_parallelism,
			  b->task.profile.intra_op_parallelism);
	ck_assert_uint_eq(a->task.io_size, b->task.io_size);
	ck_assert_uint_eq(a->task.loops, b->task.loops);
	ck_assert_uint_eq(a->task.warmup_loops, b->task.warmup_loops);
	ck_assert_uint_eq(a->n_processes, b->n_processes);
	ck_assert_uint_eq(a->served.block_size, b->served.block_size);
	ck_assert_uint_eq(a->served.queue_depth, b->served.queue_depth);
	ck_assert(a->served.mean_block == b->served.mean_block);
	ck_assert(a->served.mean_depth == b->served.mean_depth);
	ck_assert_mem_eq(&a->total, &b->total, sizeof(a->total));
	ck_assert_uint_eq(a->device_bytes, b->device_bytes);
	ck_assert_int_eq(a->source, b->source);
	ck_assert_uint_eq(a->others_bytes, b->others_bytes);
	ck_assert(a->is_disturbed == b->is_disturbed);
	ck_assert_str_eq(a->error, b->error);
	ck_assert_str_eq(a->log, b->log);
}

TEST(a_row_comes_back_digit_for_digit)
{
	struct bench_repetition repetitions[] = { { 1795283201.0981426, 0.05, 0.1, 4096 },
						  { 1795283202.5, 0.05, 0.1, 4096 } };
	struct bench_row row = make_row(repetitions), back;
	struct bench_results results, loaded;
	char text[BENCH_TEXT_BYTES];

	make_dir();
	bench_results_init(&results, "tune");
	bench_results_set(&results, "best", json_object_new_string("x"));
	bench_results_append(&results, "points", bench_row_json(&row));
	ck_assert_int_eq(bench_results_save(&results, dir_fd, false, text, sizeof(text)), 0);
	ck_assert_int_eq(bench_results_load(dir_fd, "tune.json", &loaded, text, sizeof(text)), 0);
	ck_assert_str_eq(bench_results_kind(&loaded), "tune");
	ck_assert(!json_object_get_boolean(bench_results_get(&loaded, "is_complete")));
	ck_assert_str_eq(json_object_get_string(bench_results_get(&loaded, "best")), "x");
	ck_assert_uint_eq(bench_results_n_rows(&loaded), 1);
	ck_assert_int_eq(bench_results_row(&loaded, 0, &back), 0);
	assert_same_row(&row, &back);
	ck_assert_int_eq(bench_results_find(&loaded, BENCH_WRITE, &row.task.profile), 0);
	ck_assert_int_eq(bench_results_find(&loaded, BENCH_READ, &row.task.profile), -1);
	row.task.profile.queue_depth++;
	ck_assert_int_eq(bench_results_find(&loaded, BENCH_WRITE, &row.task.profile), -1);
	bench_results_deinit(&loaded);
	bench_results_deinit(&results);
	remove_results();
}

/* A row costs one line, and is there after a crash; one that was cut short is none. */
TEST(rows_are_read_from_the_rows_file_until_one_is_cut_short)
{
	struct bench_repetition repetitions[2] = { { .bytes = 1 }, { .bytes = 2 } };
	struct bench_row row = make_row(repetitions), back;
	struct bench_results results, loaded;
	char text[BENCH_TEXT_BYTES];
	int fd;

	make_dir();
	bench_results_init(&results, "sweep");
	bench_results_append(&results, "points", bench_row_json(&row));
	ck_assert_int_eq(bench_results_save(&results, dir_fd, true, text, sizeof(text)), 0);
	fd = openat(dir_fd, BENCH_ROWS_NAME, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	for (unsigned i = 0; i < 3; i++) {
		row.task.profile.queue_depth = 100 + i;
		bench_results_append(&results, "points", bench_row_json(&row));
		ck_assert_int_eq(
			bench_rows_write(fd, "points", bench_results_last(&results, "points")), 0);
	}
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &loaded, text, sizeof(text)),
			 0);
	ck_assert_uint_eq(bench_results_n_rows(&loaded), 4);
	ck_assert_int_eq(bench_results_row(&loaded, 3, &back), 0);
	assert_same_row(&row, &back);
	bench_results_deinit(&loaded);

	ck_assert_int_eq(ftruncate(fd, lseek(fd, 0, SEEK_END) - 2), 0);
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &loaded, text, sizeof(text)),
			 0);
	ck_assert_uint_eq(bench_results_n_rows(&loaded), 3);
	bench_results_deinit(&loaded);

	/* Written whole they name no rows file, and one that a crash left counts for nothing. */
	ck_assert_int_eq(bench_results_save(&results, dir_fd, false, text, sizeof(text)), 0);
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &loaded, text, sizeof(text)),
			 0);
	ck_assert_uint_eq(bench_results_n_rows(&loaded), 4);
	bench_results_deinit(&loaded);
	bench_results_deinit(&results);
	ck_assert_int_eq(close(fd), 0);
	remove_results();
}

TEST(a_link_is_neither_read_nor_written_through)
{
	struct bench_results results;
	char text[BENCH_TEXT_BYTES];
	struct stat st;

	make_dir();
	write_file("target", "theirs");
	ck_assert_int_eq(symlinkat("target", dir_fd, "results.json"), 0);
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &results, text, sizeof(text)),
			 -ELOOP);
	bench_results_init(&results, "sweep");
	ck_assert_int_eq(bench_results_save(&results, dir_fd, false, text, sizeof(text)), 0);
	bench_results_deinit(&results);
	ck_assert_int_eq(fstatat(dir_fd, "results.json", &st, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_int_eq(fstatat(dir_fd, "target", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 6);
	ck_assert_int_eq(unlinkat(dir_fd, "target", 0), 0);
	remove_results();
}

TEST(rows_that_failed_are_dropped_and_the_others_stay)
{
	struct bench_repetition repetitions[2] = { { .bytes = 1 }, { .bytes = 2 } };
	struct bench_row row = make_row(repetitions), back;
	struct bench_results results;

	bench_results_init(&results, "sweep");
	for (unsigned i = 0; i < 4; i++) {
		row.task.profile.queue_depth = i + 1;
		(void)snprintf(row.error, sizeof(row.error), "%s", i % 2 ? "" : "failed");
		bench_results_append(&results, "points", bench_row_json(&row));
	}
	row.task.profile.queue_depth = 1;
	ck_assert_int_eq(bench_results_find(&results, BENCH_WRITE, &row.task.profile), 0);
	ck_assert_uint_eq(bench_results_drop_failed(&results), 2);
	ck_assert_uint_eq(bench_results_n_rows(&results), 2);
	ck_assert_int_eq(bench_results_find(&results, BENCH_WRITE, &row.task.profile), -1);
	bench_results_append(&results, "points", bench_row_json(&row));
	ck_assert_int_eq(bench_results_find(&results, BENCH_WRITE, &row.task.profile), 2);
	ck_assert_int_eq(bench_results_row(&results, 1, &back), 0);
	ck_assert_uint_eq(back.task.profile.queue_depth, 4);
	bench_results_deinit(&results);
}

static const char *const foreign[] = {
	"",
	"{",
	"[]",
	"{\"points\": []}",
	"{\"format\": \"dsaioctl bench 1\"}",
	"{\"format\": \"dsaioctl bench 1\", \"kind\": \"sweep\", \"points\": {}}",
	"{\"format\": \"dsaioctl bench 1\", \"kind\": \"other\", \"points\": []}",
	"{\"format\": \"something else\", \"points\": []}",
	"{\"format\": 1, \"points\": []}",
};

TEST_TABLE(what_is_not_ours_is_refused, foreign)
{
	struct bench_results results;
	char text[BENCH_TEXT_BYTES];

	make_dir();
	write_file("results.json", foreign[_i]);
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &results, text, sizeof(text)),
			 -EINVAL);
	ck_assert_msg(strstr(text, "is no results of dsaioctl bench"), "%s", text);
	remove_results();
}

static const char *const strange[] = {
	"[1]",
	"[null]",
	"[{}]",
	"[{\"repetitions\": 5}]",
	"[{\"repetitions\": [null, 7, {}], \"block_size\": -1, \"served\": [], \"others_bytes\": []}]",
	"[{\"op\": 3, \"error\": {}, \"queue_depth\": 1e300, \"repetitions\": []}]",
};

TEST_TABLE(rows_that_are_none_do_no_harm, strange)
{
	struct profile profile = PROFILE_DEFAULT;
	struct bench_results results;
	struct bench_row row;
	char text[BENCH_TEXT_BYTES], json[512];

	make_dir();
	(void)snprintf(json, sizeof(json),
		       "{\"format\": \"dsaioctl bench 1\", \"kind\": \"sweep\", \"points\": %s}",
		       strange[_i]);
	write_file("results.json", json);
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &results, text, sizeof(text)),
			 0);
	(void)bench_results_row(&results, 0, &row);
	(void)bench_results_find(&results, BENCH_READ, &profile);
	(void)bench_results_drop_failed(&results);
	bench_results_deinit(&results);
	remove_results();
}

TEST(a_directory_without_results_is_enoent)
{
	struct bench_results results;
	char text[BENCH_TEXT_BYTES];

	make_dir();
	ck_assert_int_eq(bench_results_load(dir_fd, "results.json", &results, text, sizeof(text)),
			 -ENOENT);
	ck_assert_int_eq(rmdir(dir), 0);
	bench_results_init(&results, "sweep");
	ck_assert_int_eq(bench_results_save(&results, dir_fd, false, text, sizeof(text)), -ENOENT);
	bench_results_deinit(&results);
	ck_assert_int_eq(close(dir_fd), 0);
}

TEST_MAIN
