/*
 * Files that bench reads: a space (--sweep_config), and, the same bytes, results that lie in a
 * --log_dir.
 */
#include "client/ctl/bench/results.h"
#include "client/ctl/bench/space.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void read_space(int dir_fd)
{
	_cleanup_(closep) int fd = openat(dir_fd, "results.json", O_RDONLY | O_CLOEXEC);
	_cleanup_(json_putp) struct json_object *root = json_object_from_fd(fd);
	struct bench_space space;
	char text[512] = "";
	int r = bench_space_parse(root, &space, text, sizeof(text));

	assert(r <= 0 && (r == 0 || text[0]));
	if (r < 0)
		return;
	assert(bench_space_points(&space) > 0 &&
	       bench_space_points(&space) <= BENCH_SPACE_POINTS_MAX);
	for (size_t i = 0; i < bench_space_points(&space); i++) {
		struct profile profile = bench_space_point(&space, i);
		char name[BENCH_LOG_NAME_BYTES];

		assert(profile_check(&profile, text, sizeof(text)) == 0);
		assert(strlen(bench_log_name(name, BENCH_WRITE, &profile, 1024)) <
		       BENCH_LOG_NAME_BYTES - 1);
	}
	(void)json_object_put(bench_space_json(&space));
}

static void read_results(int dir_fd)
{
	struct profile profile = PROFILE_DEFAULT;
	struct bench_results results;
	char text[512] = "";
	int r = bench_results_load(dir_fd, "results.json", &results, text, sizeof(text));

	assert(r <= 0 && (r == 0 || text[0]));
	if (r < 0)
		return;
	for (size_t i = 0; i < bench_results_n_rows(&results); i++) {
		struct bench_row row;

		if (bench_results_row(&results, i, &row) < 0)
			continue;
		(void)bench_source_name(row.source);
	}
	(void)bench_results_find(&results, BENCH_READ, &profile);
	(void)bench_results_drop_failed(&results);
	bench_results_deinit(&results);
}

static char dir[] = "/tmp/dsaio-fuzz-XXXXXX";

static void remove_dir(void)
{
	char path[sizeof(dir) + 16];

	(void)snprintf(path, sizeof(path), "%s/results.json", dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/" BENCH_ROWS_NAME, dir);
	(void)unlink(path);
	(void)rmdir(dir);
}

/* The bytes as results, and as the rows file that they may name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1, dir_fd;

	if (fd < 0) {
		if (!mkdtemp(dir) || atexit(remove_dir) != 0)
			abort();
		dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		fd = openat(dir_fd, "results.json", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (linkat(dir_fd, "results.json", dir_fd, BENCH_ROWS_NAME, 0) < 0)
			abort();
	}
	if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	read_space(dir_fd);
	read_results(dir_fd);
	return 0;
}
