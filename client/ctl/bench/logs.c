#include "client/ctl/bench/logs.h"

#include "client/ctl/bench/text_logs.h"
#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_NAME_BYTES 48u
#define LINK_BYTES 64u /* of a link's target */

struct bench_logs {
	struct ctl *ctl;
	const char *path, *kind, *name; /* borrowed; name: of the results file */
	int fd;
	bool is_made;	      /* this process made the directory */
	bool has_unpublished; /* rows of such a run are resumed */

	/* this run */
	char run_name[RUN_NAME_BYTES]; /* "" until it has a directory */
	int run_fd, rows_fd;	       /* -1: none */
};

static int fail(const struct bench_logs *logs, const char *name, const char *what, int error)
{
	return ctl_fail(logs->ctl, "%s/%s: %s: %s", logs->path, name, what, strerror(error));
}

/* ---- the directory ---- */

static int make_dirs(char *path, bool *ret_is_made)
{
	struct stat st;

	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = '\0';
		r = mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
		/* One that is there may lie where nothing can be made. */
		if (r < 0 && stat(path, &st) < 0)
			return r;
		*slash = '/';
	}
	*ret_is_made = mkdir(path, 0777) == 0;
	return !*ret_is_made && errno != EEXIST ? -errno : 0;
}

/* Root follows no link, because another user may have planted it. */
static int open_log_dir(struct bench_logs *logs)
{
	_cleanup_(freep) char *path = text_new("%s", logs->path);
	size_t len = strlen(path);
	int r;

	while (len > 1 && path[len - 1] == '/') /* O_NOFOLLOW would follow "link/" */
		path[--len] = '\0';
	r = make_dirs(path, &logs->is_made);
	if (r < 0)
		return ctl_fail(logs->ctl, "--log_dir %s: cannot be made: %s", logs->path,
				strerror(-r));
	logs->fd = open(path,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | (geteuid() == 0 ? O_NOFOLLOW : 0));
	if (logs->fd < 0 && (errno == ENOTDIR || errno == ELOOP) && geteuid() == 0)
		return ctl_fail(logs->ctl,
				"--log_dir %s: is a symbolic link or no directory: root follows no "
				"link there: name the directory itself",
				logs->path);
	if (logs->fd < 0)
		return ctl_fail(logs->ctl, "--log_dir %s: %s", logs->path, strerror(errno));
	if (faccessat(logs->fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		return ctl_fail(logs->ctl, "--log_dir %s: cannot be written: %s", logs->path,
				strerror(errno));
	return CTL_OK;
}

/* ---- names ---- */

static const char *run_name(char *name, const char *kind, uint64_t run)
{
	(void)snprintf(name, RUN_NAME_BYTES, "%s.%" PRIu64, kind, run);
	return name;
}

/* The number of the run whose directory has that name; 0: it is none. */
static uint64_t run_of(const char *kind, const char *name)
{
	const size_t len = strlen(kind);
	char same[RUN_NAME_BYTES];
	uint64_t run;

	return strncmp(name, kind, len) == 0 && sscanf(name + len, ".%" SCNu64, &run) == 1 &&
			       strcmp(name, run_name(same, kind, run)) == 0
		       ? run
		       : 0;
}

/* The names of the last complete run's results, which lead through the link KIND; NULL behind the last. */
static const char *link_name(const struct bench_logs *logs, size_t i)
{
	if (i == 0)
		return logs->name;
	return i <= TEXT_LOGS_DIRS && strcmp(logs->kind, "sweep") == 0 ? text_logs_dirs[i - 1]
								       : NULL;
}

static const char *link_target(const struct bench_logs *logs, const char *name, char *target)
{
	(void)snprintf(target, LINK_BYTES, "%s/%s", logs->kind, name);
	return target;
}

/* Returns false if that is no link.  target: LINK_BYTES; a longer one is cut, and not ours. */
static bool read_link(const struct bench_logs *logs, const char *name, char *target)
{
	const ssize_t n = readlinkat(logs->fd, name, target, LINK_BYTES - 1);

	target[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

/* The last complete run; 0: there is none. */
static uint64_t published_run(const struct bench_logs *logs)
{
	char target[LINK_BYTES];

	return read_link(logs, logs->kind, target) ? run_of(logs->kind, target) : 0;
}

static int check_name(const struct bench_logs *logs, const char *name, bool is_ours)
{
	struct stat st;

	if (is_ours || fstatat(logs->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return CTL_OK;
	return ctl_fail(logs->ctl,
			"%s/%s: is no link to a run: an earlier version of dsaioctl, or another "
			"program, made it: choose another --log_dir, or move it away",
			logs->path, name);
}

/* Another program's files are not replaced. */
static int check_links(const struct bench_logs *logs)
{
	int r = check_name(logs, logs->kind, published_run(logs));
	char target[LINK_BYTES], is[LINK_BYTES];
	const char *name;

	for (size_t i = 0; r == CTL_OK && (name = link_name(logs, i)); i++)
		r = check_name(logs, name,
			       read_link(logs, name, is) &&
				       strcmp(is, link_target(logs, name, target)) == 0);
	return r;
}

/* The links that lead through KIND are there first, so all of them change by its rename. */
static int publish(const struct bench_logs *logs)
{
	char target[LINK_BYTES], new_name[RUN_NAME_BYTES + 8];
	const char *name;

	for (size_t i = 0; (name = link_name(logs, i)); i++)
		if (symlinkat(link_target(logs, name, target), logs->fd, name) < 0 &&
		    errno != EEXIST)
			return fail(logs, name, "cannot be made", errno);
	(void)snprintf(new_name, sizeof(new_name), "%s.new", logs->run_name);
	if (symlinkat(logs->run_name, logs->fd, new_name) < 0 ||
	    renameat(logs->fd, new_name, logs->fd, logs->kind) < 0) {
		const int error = errno;

		(void)unlinkat(logs->fd, new_name, 0);
		return ctl_fail(logs->ctl, "%s/%s: %s: the results stay in %s/%s", logs->path,
				logs->kind, strerror(error), logs->path, logs->run_name);
	}
	if (fsync(logs->fd) < 0 && errno != EINVAL)
		return fail(logs, logs->kind, "fsync", errno);
	return CTL_OK;
}

/* ---- runs ---- */

/* The largest number of a run's directory below the limit; 0: there is none. */
static uint64_t last_run(int dir_fd, const char *kind, uint64_t below)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t last = 0;

	if (fd >= 0 && !dir)
		(void)close(fd);
	while (dir && (entry = readdir(dir))) {
		const uint64_t run = run_of(kind, entry->d_name);

		if (run > last && run < below)
			last = run;
	}
	if (dir)
		(void)closedir(dir);
	return last;
}

static int open_run(const struct bench_logs *logs, const char *name)
{
	return openat(logs->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Refuses a run that a bench is making.  Its lock ends with the process, not with one that it forked. */
static int check_idle(const struct bench_logs *logs, uint64_t run)
{
	struct flock lock = { .l_type = F_WRLCK };
	char name[RUN_NAME_BYTES];
	_cleanup_(closep) int dir = open_run(logs, run_name(name, logs->kind, run));
	_cleanup_(closep) int fd = dir < 0 ? -1
					   : openat(dir, BENCH_ROWS_NAME,
						    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	/* A file system may have no locks. */
	if (fd < 0 || fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
		return CTL_OK;
	return ctl_fail(logs->ctl,
			"--log_dir %s: a dsaioctl bench is at work there (process %ld): choose "
			"another --log_dir, or wait until it is done",
			logs->path, (long)lock.l_pid);
}

/* Another user who may write to log_dir may have put another directory in its place. */
static int make_run_dir(struct bench_logs *logs)
{
	uint64_t run = last_run(logs->fd, logs->kind, UINT64_MAX);
	struct stat st;
	int r;

	do
		r = mkdirat(logs->fd, run_name(logs->run_name, logs->kind, ++run), 0777);
	while (r < 0 && errno == EEXIST);
	if (r == 0)
		logs->run_fd = open_run(logs, logs->run_name);
	if (r < 0 || logs->run_fd < 0 || fstat(logs->run_fd, &st) < 0)
		return fail(logs, logs->run_name, "cannot be made", errno);
	if (st.st_uid != geteuid())
		return fail(logs, logs->run_name, "belongs to another user", EPERM);
	return CTL_OK;
}

/* ---- a run ---- */

int bench_logs_open(struct ctl *ctl, const char *log_dir, const char *kind,
		    struct bench_logs **ret_logs)
{
	struct bench_logs *logs = NEW_ARRAY(struct bench_logs, 1);
	int r;

	*logs = (struct bench_logs){ .ctl = ctl,
				     .path = log_dir,
				     .kind = kind,
				     .name = bench_results_name(kind),
				     .fd = -1,
				     .run_fd = -1,
				     .rows_fd = -1 };
	*ret_logs = logs;
	r = open_log_dir(logs);
	if (r == CTL_OK)
		r = check_links(logs);
	return r == CTL_OK ? check_idle(logs, last_run(logs->fd, kind, UINT64_MAX)) : r;
}

int bench_logs_resume(struct bench_logs *logs, struct bench_results *ret_old)
{
	uint64_t run = UINT64_MAX;
	char name[RUN_NAME_BYTES], text[BENCH_TEXT_BYTES];

	while ((run = last_run(logs->fd, logs->kind, run))) {
		_cleanup_(closep) int fd = open_run(logs, run_name(name, logs->kind, run));
		int r = fd < 0 ? -errno
			       : bench_results_load(fd, logs->name, ret_old, text, sizeof(text));

		if (fd < 0)
			return fail(logs, name, "--resume", -r);
		if (r < 0 && r != -ENOENT)
			return ctl_fail(logs->ctl, "--resume: %s/%s/%s", logs->path, name, text);
		if (r == 0 && strcmp(bench_results_kind(ret_old), logs->kind) == 0 &&
		    bench_results_n_rows(ret_old) > 0) {
			logs->has_unpublished = run != published_run(logs);
			return check_idle(logs, run);
		}
		if (r == 0)
			bench_results_deinit(ret_old);
	}
	return CTL_OK;
}

static int save(struct bench_logs *logs, struct bench_results *results, bool has_rows_file)
{
	char text[BENCH_TEXT_BYTES];

	if (bench_results_save(results, logs->run_fd, has_rows_file, text, sizeof(text)) < 0)
		return ctl_fail(logs->ctl, "%s/%s/%s", logs->path, logs->run_name, text);
	return CTL_OK;
}

int bench_logs_begin(struct bench_logs *logs, struct bench_results *results)
{
	const struct flock lock = { .l_type = F_WRLCK };
	/* Another one may have begun while this one filled its test files. */
	int r = check_idle(logs, last_run(logs->fd, logs->kind, UINT64_MAX));

	if (r == CTL_OK)
		r = make_run_dir(logs);
	if (r != CTL_OK)
		return r;
	bench_results_set(results, "run",
			  json_object_new_uint64(run_of(logs->kind, logs->run_name)));
	logs->rows_fd = openat(logs->run_fd, BENCH_ROWS_NAME,
			       O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       0666);
	if (logs->rows_fd < 0)
		return fail(logs, logs->run_name, BENCH_ROWS_NAME, errno);
	(void)fcntl(logs->rows_fd, F_SETLK, &lock); /* a file system may have no locks */
	return save(logs, results, true);
}

int bench_logs_add(struct bench_logs *logs, const struct bench_results *results, const char *key)
{
	struct stat st = { 0 };
	int r = bench_rows_write(logs->rows_fd, key, bench_results_last(results, key));

	if (r == 0 && fstat(logs->rows_fd, &st) == 0 && st.st_nlink == 0)
		return ctl_fail(logs->ctl, "%s/%s/%s: was removed meanwhile", logs->path,
				logs->run_name, BENCH_ROWS_NAME);
	if (r < 0)
		return ctl_fail(logs->ctl, "%s/%s/%s: cannot be written: %s", logs->path,
				logs->run_name, BENCH_ROWS_NAME, strerror(-r));
	return CTL_OK;
}

/* Removes the directory of a run that measured nothing. */
static void remove_run(struct bench_logs *logs)
{
	(void)unlinkat(logs->run_fd, logs->name, 0); /* after a failure the directory only stays */
	(void)unlinkat(logs->run_fd, BENCH_ROWS_NAME, 0);
	(void)unlinkat(logs->fd, logs->run_name, AT_REMOVEDIR);
}

int bench_logs_end(struct bench_logs *logs, struct bench_results *results, bool publishes)
{
	char name[BENCH_TEXT_BYTES];
	int r = CTL_OK;

	if (logs->run_fd < 0 && publishes && logs->has_unpublished)
		r = bench_logs_begin(logs, results); /* it was killed behind the last row */
	if (r != CTL_OK || logs->run_fd < 0)
		return r;
	if (bench_results_n_rows(results) == 0) {
		remove_run(logs);
		return CTL_OK;
	}
	r = save(logs, results, false);
	if (r == CTL_OK && unlinkat(logs->run_fd, BENCH_ROWS_NAME, 0) < 0 && errno != ENOENT)
		r = fail(logs, logs->run_name, BENCH_ROWS_NAME, errno);
	if (r == CTL_OK && strcmp(logs->kind, "sweep") == 0) {
		r = text_logs_write(logs->run_fd, results, name);
		r = r < 0 ? fail(logs, logs->run_name, name, -r) : CTL_OK;
	}
	return r == CTL_OK && publishes ? publish(logs) : r;
}

const char *bench_logs_path(const struct bench_logs *logs, char *path)
{
	if (logs->run_fd < 0 || faccessat(logs->run_fd, logs->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return NULL;
	return snprintf(path, PATH_MAX, "%s/%s", logs->path, logs->run_name) < PATH_MAX ? path
											: NULL;
}

void bench_logs_close(struct bench_logs *logs)
{
	if (!logs)
		return;
	if (logs->is_made)
		(void)rmdir(logs->path); /* only if nothing is in it: nothing was measured */
	closep(&logs->rows_fd);
	closep(&logs->run_fd);
	closep(&logs->fd);
	free(logs);
}
