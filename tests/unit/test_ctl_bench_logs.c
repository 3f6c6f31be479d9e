/* bench logs: nothing that was there is lost, whatever step a crash or a planted link meets. */
#include "client/ctl/bench/logs.h"
#include "client/ctl/bench/text_logs.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READS "_aio_bench_read_logs"
#define WRITES "_aio_bench_write_logs"

static struct ctl ctl = { .command = "test" };
static bool has(const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Rows of a run: one read and one write of that depth, with logs. */
static void add_rows(struct bench_results *results, uint32_t depth)
{
	for (int op = BENCH_READ; op <= BENCH_WRITE; op++) {
		struct bench_row row = { .task = { .op = (enum bench_op)op,
						   .profile = PROFILE_DEFAULT },
					 .n_processes = 1 };

		row.task.profile.queue_depth = depth;
		row.total.e2e_speed = depth;
		text_logs_name(row.log, &row.task, 1);
		bench_results_append(results, "points", bench_row_json(&row));
	}
}

/* A run that measures two rows, and then is complete, interrupted (INTERRUPTED), or killed. */
enum end { COMPLETE, INTERRUPTED, KILLED };
static void run_once(uint32_t depth, enum end end)
{
	struct bench_results results;
	struct bench_logs *logs = NULL;

	bench_results_init(&results, "sweep");
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_begin(logs, &results), CTL_OK);
	add_rows(&results, depth);
	ck_assert_int_eq(bench_logs_add(logs, &results, "points"), CTL_OK);
	if (end != KILLED) {
		bench_results_set(&results, "is_complete",
				  json_object_new_boolean(end == COMPLETE));
		ck_assert_int_eq(bench_logs_end(logs, &results, end == COMPLETE), CTL_OK);
	}
	bench_logs_close(logs);
	bench_results_deinit(&results);
}

/* The depth of the first row there; 0: there are no results. */
static uint32_t depth_in(const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct bench_results results;
	struct bench_row row;
	char text[BENCH_TEXT_BYTES];
	int r;

	if (fd < 0)
		return 0;
	r = bench_results_load(fd, "results.json", &results, text, sizeof(text));
	ck_assert_int_eq(close(fd), 0);
	if (r == -ENOENT)
		return 0;
	ck_assert_msg(r == 0, "%s", text);
	ck_assert_int_eq(bench_results_row(&results, 0, &row), 0);
	bench_results_deinit(&results);
	return row.task.profile.queue_depth;
}

/* The results and both logs of that depth, behind the link "sweep" or in a run's directory. */
static void assert_whole(const char *where, uint32_t depth)
{
	char path[PATH_MAX];

	ck_assert_msg(depth_in(where) == depth, "%s: depth %" PRIu32 ", not %" PRIu32, where,
		      depth_in(where), depth);
	for (int op = BENCH_READ; op <= BENCH_WRITE; op++) {
		struct bench_task task = { .op = (enum bench_op)op, .profile = PROFILE_DEFAULT };
		char log[BENCH_TEXT_BYTES];

		task.profile.queue_depth = depth;
		text_logs_name(log, &task, 1);
		(void)snprintf(path, sizeof(path), "%s/%s", where, log);
		ck_assert_msg(has(path), "%s: is not there", path);
	}
}

/* The names that DeepSpeed's tools use lead there. */
static void assert_published(uint32_t depth)
{
	static const char *const names[] = { "results.json", READS, WRITES };

	assert_whole("sweep", depth);
	for (size_t i = 0; i < N_ROWS(names); i++) {
		char path[PATH_MAX];
		struct stat link, direct;

		(void)snprintf(path, sizeof(path), "sweep/%s", names[i]);
		ck_assert_int_eq(fstatat(dir_fd, names[i], &link, 0), 0);
		ck_assert_int_eq(fstatat(dir_fd, path, &direct, 0), 0);
		ck_assert_uint_eq(link.st_ino, direct.st_ino);
	}
}

TEST(a_later_run_keeps_the_earlier_ones)
{
	make_dir();
	run_once(1, COMPLETE);
	assert_published(1);
	run_once(2, COMPLETE);
	run_once(3, COMPLETE);
	assert_published(3);
	assert_whole("sweep.1", 1);
	assert_whole("sweep.2", 2);
	assert_whole("sweep.3", 3);
	remove_dir();
}

TEST(an_interrupted_or_killed_run_leaves_the_complete_one)
{
	make_dir();
	run_once(1, COMPLETE);
	run_once(2, INTERRUPTED);
	assert_published(1);
	assert_whole("sweep.2", 2);
	run_once(3, KILLED);
	assert_published(1);
	ck_assert(has("sweep.3/" BENCH_ROWS_NAME));
	run_once(4, COMPLETE);
	assert_published(4);
	assert_whole("sweep.1", 1);
	assert_whole("sweep.2", 2);
	ck_assert(has("sweep.3/" BENCH_ROWS_NAME));
	remove_dir();
}

TEST(a_crash_before_the_rename_leaves_the_earlier_run_and_is_resumed)
{
	struct bench_results results;
	struct bench_logs *logs = NULL;
	char text[BENCH_TEXT_BYTES];
	int fd;

	make_dir();
	run_once(1, COMPLETE);
	run_once(2, INTERRUPTED);
	/* It was measured to its end, and saved. */
	fd = openat(dir_fd, "sweep.2", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(bench_results_load(fd, "results.json", &results, text, sizeof(text)), 0);
	bench_results_set(&results, "is_complete", json_object_new_boolean(true));
	ck_assert_int_eq(bench_results_save(&results, fd, false, text, sizeof(text)), 0);
	bench_results_deinit(&results);
	ck_assert_int_eq(close(fd), 0);
	assert_published(1);

	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_resume(logs, &results), CTL_OK);
	ck_assert_int_eq(bench_logs_end(logs, &results, true), CTL_OK);
	bench_logs_close(logs);
	bench_results_deinit(&results);
	assert_published(2);
	assert_whole("sweep.1", 1);
	remove_dir();
}

/* It has nothing to publish, and no run is made of it. */
TEST(a_complete_run_is_resumed_without_a_new_one)
{
	struct bench_results results;
	struct bench_logs *logs = NULL;

	make_dir();
	run_once(1, COMPLETE);
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_resume(logs, &results), CTL_OK);
	ck_assert_uint_eq(bench_results_n_rows(&results), 2);
	ck_assert_int_eq(bench_logs_end(logs, &results, true), CTL_OK);
	bench_logs_close(logs);
	bench_results_deinit(&results);
	assert_published(1);
	ck_assert(!has("sweep.2"));
	remove_dir();
}

TEST(a_run_that_measured_nothing_leaves_nothing)
{
	struct bench_results results;
	struct bench_logs *logs = NULL;
	char path[PATH_MAX];

	make_dir();
	bench_results_init(&results, "tune");
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "tune", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_begin(logs, &results), CTL_OK);
	ck_assert(has("tune.1/tune.json"));
	ck_assert_str_ne(bench_logs_path(logs, path), "");
	ck_assert_int_eq(bench_logs_end(logs, &results, false), CTL_OK);
	ck_assert_ptr_null(bench_logs_path(logs, path));
	bench_logs_close(logs);
	bench_results_deinit(&results);
	ck_assert_int_eq(close(dir_fd), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}

TEST(the_last_run_with_rows_is_resumed)
{
	struct bench_results results = { NULL };
	struct bench_logs *logs = NULL;

	make_dir();
	run_once(1, COMPLETE);
	run_once(2, KILLED);
	/* One that was killed before its first row. */
	ck_assert_int_eq(mkdirat(dir_fd, "sweep.3", 0777), 0);
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_resume(logs, &results), CTL_OK);
	ck_assert_uint_eq(bench_results_n_rows(&results), 1);
	/* It continues in a directory of its own, and no row is there twice. */
	ck_assert_int_eq(bench_logs_begin(logs, &results), CTL_OK);
	add_rows(&results, 20);
	ck_assert_int_eq(bench_logs_add(logs, &results, "points"), CTL_OK);
	ck_assert(has("sweep.4/" BENCH_ROWS_NAME) && has("sweep.2/" BENCH_ROWS_NAME));
	bench_logs_close(logs);
	bench_results_deinit(&results);
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(bench_logs_resume(logs, &results), CTL_OK);
	ck_assert_uint_eq(bench_results_n_rows(&results), 2);
	bench_logs_close(logs);
	bench_results_deinit(&results);
	remove_dir();
}

/* Both were at work: each had looked for the other before it filled its test files. */
TEST(of_two_runs_that_start_at_once_the_second_is_refused)
{
	struct bench_results results;
	struct bench_logs *logs = NULL, *others = NULL;
	char byte = 0;
	int fds[2], status;
	pid_t pid;

	make_dir();
	bench_results_init(&results, "sweep");
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)close(fds[0]);
		if (bench_logs_open(&ctl, dir, "sweep", &others) == CTL_OK &&
		    bench_logs_begin(others, &results) == CTL_OK)
			(void)!write(fds[1], &byte, 1);
		(void)!read(fds[1], &byte, 1); /* until the parent closes it */
		_exit(0);
	}
	(void)close(fds[1]);
	ck_assert_int_eq(read(fds[0], &byte, 1), 1);
	ck_assert_int_eq(bench_logs_begin(logs, &results), CTL_FAILED);
	ck_assert(has("sweep.1") && !has("sweep.2"));
	(void)close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	bench_logs_close(logs);
	bench_results_deinit(&results);
	remove_dir();
}

/* A planted entry of the directory, and the target that it points to. */
static const struct {
	const char *name, *target;
} planted[] = {
	{ "results.json", "target/file" },
	{ READS, "target" },
	{ WRITES, "target" },
	{ "sweep", "target" },
	{ "sweep", "sweep.1/../target" },
	{ "sweep.1", "target" },
	{ "sweep.1.new", "target/file" },
};

/* The rename would replace it. */
TEST(a_file_that_has_the_links_name_stays)
{
	struct bench_logs *logs = NULL;
	int fd;

	make_dir();
	fd = openat(dir_fd, "latency", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "latency", &logs), CTL_FAILED);
	bench_logs_close(logs);
	ck_assert_int_eq(bench_logs_open(&ctl, dir, "sweep", &logs), CTL_OK);
	bench_logs_close(logs);
	remove_dir();
}

TEST_TABLE(no_planted_link_is_followed, planted)
{
	struct bench_results results;
	struct bench_logs *logs = NULL;
	struct stat st;
	int fd;

	make_dir();
	ck_assert_int_eq(mkdirat(dir_fd, "target", 0777), 0);
	fd = openat(dir_fd, "target/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, "theirs", 6), 6);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(symlinkat(planted[_i].target, dir_fd, planted[_i].name), 0);

	bench_results_init(&results, "sweep");
	if (bench_logs_open(&ctl, dir, "sweep", &logs) == CTL_OK &&
	    bench_logs_begin(logs, &results) == CTL_OK) {
		add_rows(&results, 1);
		ck_assert_int_eq(bench_logs_add(logs, &results, "points"), CTL_OK);
		(void)bench_logs_end(logs, &results, true);
	}
	bench_logs_close(logs);
	bench_results_deinit(&results);
	ck_assert_int_eq(fstatat(dir_fd, "target/file", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 6);
	ck_assert_int_eq(unlinkat(dir_fd, "target/file", 0), 0);
	ck_assert_int_eq(unlinkat(dir_fd, "target", AT_REMOVEDIR), 0); /* nothing new in it */
	remove_dir();
}

TEST_MAIN
