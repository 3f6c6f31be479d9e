#include "client/ctl/bench/text_logs.h"

#include "client/ctl/bench/measure.h"
#include "client/ctl/bench/space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

const char *const text_logs_dirs[TEXT_LOGS_DIRS] = {
	[BENCH_READ] = "_aio_bench_read_logs", [BENCH_WRITE] = "_aio_bench_write_logs"
};

void text_logs_name(char *log, const struct bench_task *task, unsigned n_folders)
{
	char name[BENCH_LOG_NAME_BYTES];

	(void)snprintf(log, BENCH_TEXT_BYTES, "%s/%s.txt", text_logs_dirs[task->op],
		       bench_log_name(name, task->op, &task->profile, n_folders));
}

static int write_log(int run_fd, const char *name, const struct bench_row *row)
{
	int fd = openat(run_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	bool is_bad;

	if (!out)
		return -errno;
	measure_print(&row->total, row->task.op == BENCH_READ, out);
	is_bad = ferror(out);
	if (fclose(out) != 0)
		return -errno;
	return is_bad ? -EIO : 0;
}

int text_logs_write(int run_fd, const struct bench_results *results, char *ret_name)
{
	int r = 0;

	for (size_t i = 0; i < TEXT_LOGS_DIRS; i++) {
		(void)snprintf(ret_name, BENCH_TEXT_BYTES, "%s", text_logs_dirs[i]);
		if (mkdirat(run_fd, text_logs_dirs[i], 0777) < 0)
			return -errno;
	}
	for (size_t i = 0; r == 0 && i < bench_results_n_rows(results); i++) {
		struct bench_row row;

		if (bench_results_row(results, i, &row) < 0)
			continue; /* no bench wrote it */
		/* The row comes from a file, so its log's name is made anew. */
		text_logs_name(ret_name, &row.task, row.n_processes);
		r = row.log[0] ? write_log(run_fd, ret_name, &row) : 0;
	}
	return r;
}
