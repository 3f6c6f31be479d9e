#include "client/ctl/bench/text_logs.h"

#include "client/ctl/bench/measure.h"
#include "client/ctl/bench/own_dir.h"
#include "client/ctl/bench/space.h"
#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const text_logs_dirs[TEXT_LOGS_DIRS] = {
	[BENCH_READ] = "_aio_bench_read_logs", [BENCH_WRITE] = "_aio_bench_write_logs"
};

void text_logs_name(char *log, const struct bench_task *task, unsigned n_folders)
{
	char name[BENCH_LOG_NAME_BYTES];

	(void)snprintf(log, BENCH_TEXT_BYTES, "%s/%s.txt", text_logs_dirs[task->op],
		       bench_log_name(name, task->op, &task->profile, n_folders));
}

static int check_foreign(const struct ctl *ctl, int dir_fd, const char *path, const char *name,
			 struct json_object *known)
{
	char log[PATH_MAX], foreign[NAME_MAX + 1] = "";
	const struct dirent *entry;
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd < 0 && errno == ENOENT)
		return CTL_OK;
	if (fd < 0)
		return ctl_fail(ctl,
				"%s/%s: is no directory of ours: %s: choose another --log_dir, or "
				"move it away",
				path, name, strerror(errno));
	if (!dir) {
		(void)close(fd);
		return ctl_fail(ctl, "out of memory");
	}
	while (!foreign[0] && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		(void)snprintf(log, sizeof(log), "%s/%s", name, entry->d_name);
		if (!json_object_object_get_ex(known, log, NULL))
			(void)snprintf(foreign, sizeof(foreign), "%s", entry->d_name);
	}
	(void)closedir(dir);
	if (!foreign[0])
		return CTL_OK;
	return ctl_fail(ctl,
			"%s/%s/%s: dsaioctl bench did not make it, and it would be taken for a "
			"result: choose another --log_dir, or move it away",
			path, name, foreign);
}

/*
 * A log's name in its directory; NULL: the row's log is in no directory of text logs.  The name
 * comes from a file, so it must not lead out of the directory.
 */
static const char *find_log(const struct bench_row *row)
{
	const char *dir = text_logs_dirs[row->task.op];
	const char *slash = strchr(row->log, '/');

	if (!slash || strlen(dir) != (size_t)(slash - row->log) ||
	    strncmp(row->log, dir, strlen(dir)) != 0 || strchr(slash + 1, '/') ||
	    strcmp(slash + 1, "..") == 0)
		return NULL;
	return slash + 1;
}

static int write_log(int dir_fd, const char *name, const struct bench_row *row)
{
	_cleanup_(closep) int fd = -1;
	bool is_bad;
	FILE *out;

	if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		return -errno;
	(void)TAKE_FD(fd);
	measure_print(&row->total, row->task.op == BENCH_READ, out);
	is_bad = ferror(out);
	if (fclose(out) != 0)
		return -errno;
	return is_bad ? -EIO : 0;
}

int text_logs_check_foreign(const struct ctl *ctl, int dir_fd, const char *path,
			    struct json_object *known)
{
	int r = CTL_OK;

	for (size_t i = 0; i < TEXT_LOGS_DIRS && r == CTL_OK; i++)
		r = check_foreign(ctl, dir_fd, path, text_logs_dirs[i], known);
	return r;
}

/* Writes the logs of all rows of one op.  A run that continues replaces them. */
static int write_logs(int run_fd, const struct bench_results *results, enum bench_op op,
		      char *ret_name)
{
	_cleanup_(closep) int fd = -1;

	for (size_t i = 0; i < bench_results_n_rows(results); i++) {
		struct bench_row row;
		const char *name;
		int r;

		if (bench_results_row(results, i, &row) < 0)
			continue; /* no bench wrote it */
		bench_row_deinit(&row);
		name = row.task.op == op && row.log[0] ? find_log(&row) : NULL;
		if (!name)
			continue;
		(void)snprintf(ret_name, BENCH_TEXT_BYTES, "%s", row.log);
		if (fd < 0 && mkdirat(run_fd, text_logs_dirs[op], 0777) < 0 && errno != EEXIST)
			return -errno;
		if (fd < 0)
			fd = own_dir_open(run_fd, text_logs_dirs[op]);
		r = fd < 0 ? fd : write_log(fd, name, &row);
		if (r < 0)
			return r;
	}
	return 0;
}

int text_logs_write(int run_fd, const struct bench_results *results, char *ret_name)
{
	int r = write_logs(run_fd, results, BENCH_READ, ret_name);

	return r == 0 ? write_logs(run_fd, results, BENCH_WRITE, ret_name) : r;
}
