#include "client/ctl/bench_logs.h"

#include "client/ctl/bench_space.h"
#include "client/ctl/measure.h"
#include "proto/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "results.lock"
#define LOCK_TRIES 100u /* a guess: each means that a bench just ended */

static const char *const dir_names[] = {
	[BENCH_READ] = "_aio_bench_read_logs", [BENCH_WRITE] = "_aio_bench_write_logs"
};
#define N_DIRS (sizeof(dir_names) / sizeof(dir_names[0]))

static int make_dirs(char *path)
{
	struct stat st;

	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* One that is there may lie where nothing can be made. */
		if (mkdir(path, 0777) < 0 && errno != EEXIST && stat(path, &st) < 0)
			return -errno;
		*slash = '/';
	}
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return -errno;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int bench_logs_make_dir(struct ctl *ctl, const char *log_dir)
{
	_cleanup_(freep) char *path = strdup(log_dir);
	int r = path ? make_dirs(path) : -ENOMEM;

	if (r < 0)
		return ctl_fail(ctl, "--log_dir %s: can not be made: %s", log_dir, strerror(-r));
	if (access(log_dir, W_OK | X_OK) < 0)
		return ctl_fail(ctl, "--log_dir %s: can not be written: %s", log_dir,
				strerror(errno));
	return CTL_OK;
}

/* Who has the lock, for a sentence. */
static void name_holder(int fd, char *text, size_t size)
{
	struct flock lock = { .l_type = F_WRLCK };

	(void)snprintf(text, size, "another process");
	if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0)
		(void)snprintf(text, size, "process %ld", (long)lock.l_pid);
}

int bench_logs_lock(struct ctl *ctl, const char *log_dir, int *ret_fd)
{
	char path[PATH_MAX], holder[64];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", log_dir, LOCK_NAME) >= sizeof(path))
		return ctl_fail(ctl, "--log_dir %s: %s", log_dir, strerror(ENAMETOOLONG));
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		_cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
						0666);
		const struct flock lock = { .l_type = F_WRLCK };
		struct stat ours, named;

		if (fd < 0 || fstat(fd, &ours) < 0)
			return ctl_fail(ctl, "%s: %s", path, strerror(errno));
		if (fcntl(fd, F_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES)) {
			name_holder(fd, holder, sizeof(holder));
			return ctl_fail(ctl,
					"--log_dir %s: a dsaioctl bench is at work there (%s): "
					"choose another --log_dir, or wait until it is done",
					log_dir, holder);
		}
		/* Any other failure: the file system has no locks, and nothing is to be done.
		   The last one may have removed it between our two calls: then it locks nobody. */
		if (stat(path, &named) == 0 && named.st_ino == ours.st_ino &&
		    named.st_dev == ours.st_dev) {
			*ret_fd = TAKE_FD(fd);
			return CTL_OK;
		}
	}
	return ctl_fail(ctl, "%s: others remove it again and again", path);
}

void bench_logs_unlock(const char *log_dir, int fd)
{
	char path[PATH_MAX];

	if (fd < 0)
		return;
	/* Before the lock goes: so nobody else's is removed. */
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", log_dir, LOCK_NAME) < sizeof(path))
		(void)unlink(path); /* if it stays, it is free */
	(void)close(fd);
}

void bench_logs_name(char *log, const struct bench_task *task, unsigned n_folders)
{
	char name[BENCH_LOG_NAME_BYTES];

	(void)snprintf(log, BENCH_TEXT_BYTES, "%s/%s.txt", dir_names[task->op],
		       bench_log_name(name, task->op, &task->profile, n_folders));
}

/* known: its keys are the logs of ours. */
static int look_for_foreign(struct ctl *ctl, const char *log_dir, const char *name,
			    struct json_object *known)
{
	char path[PATH_MAX], log[PATH_MAX], foreign[NAME_MAX + 1] = "";
	const struct dirent *entry;
	DIR *dir;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", log_dir, name) >= sizeof(path))
		return ctl_fail(ctl, "--log_dir %s: %s", log_dir, strerror(ENAMETOOLONG));
	dir = opendir(path);
	if (!dir && errno == ENOENT)
		return CTL_OK;
	if (!dir)
		return ctl_fail(ctl, "%s: %s", path, strerror(errno));
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
	return ctl_fail(
		ctl,
		"%s/%s: dsaioctl bench did not make it, and it would be taken for a result: "
		"choose another --log_dir, or move it away",
		path, foreign);
}

/* A log's path; its name comes from a file: nothing outside our two directories is touched. */
static int find_log(const char *log_dir, const char *log, char *path, size_t size)
{
	const char *slash = strchr(log, '/');
	bool is_ours = false;

	for (size_t i = 0; slash && i < N_DIRS; i++)
		is_ours = is_ours || (strlen(dir_names[i]) == (size_t)(slash - log) &&
				      strncmp(log, dir_names[i], (size_t)(slash - log)) == 0);
	if (!is_ours || strchr(slash + 1, '/') || strcmp(slash + 1, "..") == 0)
		return -EINVAL;
	return (size_t)snprintf(path, size, "%s/%s", log_dir, log) < size ? 0 : -ENAMETOOLONG;
}

static int renew(struct ctl *ctl, const char *log_dir, const struct bench_results *old, bool keeps)
{
	for (size_t i = 0; i < bench_results_n_rows(old); i++) {
		char path[PATH_MAX];
		struct bench_row row;
		int r = CTL_OK;

		if (bench_results_row(old, i, &row) < 0)
			continue;
		bench_row_deinit(&row);
		if (!row.log[0] || find_log(log_dir, row.log, path, sizeof(path)) < 0)
			continue;
		if (!keeps && unlink(path) < 0 && errno != ENOENT)
			r = ctl_fail(ctl, "%s: can not be removed: %s", path, strerror(errno));
		if (keeps)
			r = bench_logs_write(ctl, log_dir, &row);
		if (r != CTL_OK)
			return r;
	}
	return CTL_OK;
}

int bench_logs_prepare(struct ctl *ctl, const char *log_dir, const struct bench_results *old,
		       bool keeps)
{
	struct json_object *known = old ? bench_results_logs(old) : NULL;
	int r = CTL_OK;

	for (size_t i = 0; r == CTL_OK && i < N_DIRS; i++)
		r = look_for_foreign(ctl, log_dir, dir_names[i], known);
	(void)json_object_put(known);
	if (r != CTL_OK)
		return r;
	return old ? renew(ctl, log_dir, old, keeps) : CTL_OK;
}

int bench_logs_write(struct ctl *ctl, const char *log_dir, const struct bench_row *row)
{
	char path[PATH_MAX], dir[PATH_MAX];
	bool is_bad;
	FILE *out;

	if ((size_t)snprintf(dir, sizeof(dir), "%s/%s", log_dir, dir_names[row->task.op]) >=
		    sizeof(dir) ||
	    find_log(log_dir, row->log, path, sizeof(path)) < 0)
		return ctl_fail(ctl, "%s/%s: %s", log_dir, row->log, strerror(EINVAL));
	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return ctl_fail(ctl, "%s: %s", dir, strerror(errno));
	out = fopen(path, "we");
	if (!out)
		return ctl_fail(ctl, "%s: %s", path, strerror(errno));
	measure_print(&row->total, row->task.op == BENCH_READ, out);
	is_bad = ferror(out);
	if (fclose(out) != 0 || is_bad)
		return ctl_fail(ctl, "%s: can not write all of it: %s", path, strerror(errno));
	return CTL_OK;
}
