#include "client/ctl/bench/logs.h"

#include "client/ctl/bench/own_dir.h"
#include "client/ctl/bench/text_logs.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

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

#define LOCK_NAME "results.lock"
#define LOCK_TRIES 100u /* a guess: each means that a bench just ended */
#define RUN_NAME_BYTES 48u
#define SYNC_NSEC 1000000000u /* of measuring that a crash of the system may lose */
#define SYNC_SHARE 100u	      /* syncing takes at most one part of so many of the time */

struct bench_logs {
	struct ctl *ctl;
	const char *path, *kind, *name; /* borrowed; name: of the results file */
	int fd, lock_fd;
	bool is_made;	    /* this process made the directory */
	uint64_t published; /* number of the run whose results are at the top; 0: none */
	bool has_published;

	/* this run */
	char run_name[RUN_NAME_BYTES]; /* "" until it has a directory */
	int run_fd, rows_fd;	       /* -1: none */
	bool is_ours;		       /* this process made its directory */
	bool is_published;
	uint64_t synced_nsec, syncing_nsec;
};

static int fail(const struct bench_logs *logs, const char *name, const char *what, int error)
{
	return ctl_fail(logs->ctl, "%s/%s: %s: %s", logs->path, name, what, strerror(error));
}

/* ---- the directory and its lock ---- */

static int make_dirs(char *path, bool *ret_is_made)
{
	struct stat st;

	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* One that is there may lie where nothing can be made. */
		if (mkdir(path, 0777) < 0 && errno != EEXIST && stat(path, &st) < 0)
			return -errno;
		*slash = '/';
	}
	*ret_is_made = mkdir(path, 0777) == 0;
	return !*ret_is_made && errno != EEXIST ? -errno : 0;
}

/* Root follows no link, because another user may have planted it. */
static int open_log_dir(struct bench_logs *logs)
{
	_cleanup_(freep) char *path = strdup(logs->path);
	size_t len = path ? strlen(path) : 0;
	int r;

	while (len > 1 && path[len - 1] == '/') /* O_NOFOLLOW would follow "link/" */
		path[--len] = '\0';
	r = path ? make_dirs(path, &logs->is_made) : -ENOMEM;
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

/* The process that has the lock, for a sentence. */
static void name_holder(int fd, char *text, size_t size)
{
	struct flock lock = { .l_type = F_WRLCK };

	(void)snprintf(text, size, "another process");
	if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0)
		(void)snprintf(text, size, "process %ld", (long)lock.l_pid);
}

static int take_lock(struct bench_logs *logs)
{
	char holder[64];

	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		_cleanup_(closep) int fd = openat(logs->fd, LOCK_NAME,
						  O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
		const struct flock lock = { .l_type = F_WRLCK };
		struct stat ours, named;

		if (fd < 0 || fstat(fd, &ours) < 0)
			return fail(logs, LOCK_NAME, "cannot be opened", errno);
		if (fcntl(fd, F_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES)) {
			name_holder(fd, holder, sizeof(holder));
			return ctl_fail(logs->ctl,
					"--log_dir %s: a dsaioctl bench is at work there (%s): "
					"choose another --log_dir, or wait until it is done",
					logs->path, holder);
		}
		/* Any other failure: the file system has no locks, and nothing can be done.
		   The last bench may have removed the file between our two calls: then it locks
		   nobody. */
		if (fstatat(logs->fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
		    named.st_ino == ours.st_ino && named.st_dev == ours.st_dev) {
			logs->lock_fd = TAKE_FD(fd);
			return CTL_OK;
		}
	}
	return ctl_fail(logs->ctl, "%s/%s: others remove it again and again", logs->path,
			LOCK_NAME);
}

/* ---- runs ---- */

static const char *run_name(char *name, const char *kind, uint64_t run)
{
	(void)snprintf(name, RUN_NAME_BYTES, "%s.%" PRIu64, kind, run);
	return name;
}

/* The largest number of a run's directory below the limit; 0: there is none. */
static uint64_t last_run(int dir_fd, const char *kind, uint64_t below)
{
	const size_t len = strlen(kind);
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t last = 0;

	if (fd >= 0 && !dir)
		(void)close(fd);
	while (dir && (entry = readdir(dir))) {
		char name[RUN_NAME_BYTES];
		uint64_t run;

		if (strncmp(entry->d_name, kind, len) != 0 || entry->d_name[len] != '.' ||
		    sscanf(entry->d_name + len + 1, "%" SCNu64, &run) != 1 ||
		    strcmp(entry->d_name, run_name(name, kind, run)) != 0)
			continue;
		if (run > last && run < below)
			last = run;
	}
	if (dir)
		(void)closedir(dir);
	return last;
}

static int make_run_dir(struct bench_logs *logs)
{
	for (uint64_t run = last_run(logs->fd, logs->kind, UINT64_MAX);;) {
		run = (run > logs->published ? run : logs->published) + 1;
		(void)run_name(logs->run_name, logs->kind, run);
		if (mkdirat(logs->fd, logs->run_name, 0777) == 0)
			break;
		if (errno != EEXIST)
			return fail(logs, logs->run_name, "cannot be made", errno);
	}
	logs->run_fd = own_dir_open(logs->fd, logs->run_name);
	if (logs->run_fd < 0)
		return fail(logs, logs->run_name, "cannot be opened", -logs->run_fd);
	logs->is_ours = true;
	return CTL_OK;
}

static uint64_t run_number(const struct bench_logs *logs)
{
	return strtoull(logs->run_name + strlen(logs->kind) + 1, NULL, 10);
}

/* ---- publishing ---- */

static bool is_there(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Renames unless something has that name in the other directory.  -ENOENT: nothing to rename. */
static int move(int from_fd, int to_fd, const char *name)
{
	if (renameat2(from_fd, name, to_fd, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* The file system cannot do that in one call. */
	if (is_there(to_fd, name))
		return -EEXIST;
	return renameat(from_fd, name, to_fd, name) < 0 ? -errno : 0;
}

/* The results file moves last: it shows that all has moved.  *ret_name: what failed. */
static int move_all(const struct bench_logs *logs, int from_fd, int to_fd, const char **ret_name)
{
	const bool has_dirs = strcmp(logs->kind, "sweep") == 0;
	int r = 0;

	for (size_t i = 0; i < TEXT_LOGS_DIRS && has_dirs && r == 0; i++) {
		*ret_name = text_logs_dirs[i];
		r = move(from_fd, to_fd, text_logs_dirs[i]);
		r = r == -ENOENT ? 0 : r;
	}
	if (r < 0)
		return r;
	*ret_name = logs->name;
	return move(from_fd, to_fd, logs->name);
}

/* Moves the results at the top to the directory of their run. */
static int put_aside(struct bench_logs *logs)
{
	_cleanup_(closep) int fd = -1;
	char name[RUN_NAME_BYTES];
	const char *what = NULL;
	int r;

	(void)run_name(name, logs->kind, logs->published);
	if (mkdirat(logs->fd, name, 0777) < 0 && errno != EEXIST)
		return fail(logs, name, "cannot be made for the earlier results", errno);
	fd = own_dir_open(logs->fd, name);
	if (fd < 0)
		return fail(logs, name, "cannot take the earlier results", -fd);
	r = move_all(logs, logs->fd, fd, &what);
	if (r < 0)
		return ctl_fail(logs->ctl, "%s/%s: cannot take %s of the earlier results: %s",
				logs->path, name, what, strerror(-r));
	logs->has_published = false;
	return CTL_OK;
}

/* Moves the complete run in run_fd to the top; also one that a crash left half moved. */
static int publish(struct bench_logs *logs, int fd, const char *name)
{
	const char *what = NULL;
	int r = logs->has_published ? put_aside(logs) : CTL_OK;

	if (r != CTL_OK)
		return r;
	r = move_all(logs, fd, logs->fd, &what);
	if (r < 0)
		return ctl_fail(logs->ctl,
				"%s/%s: %s: the results stay in %s/%s: move away what is in the "
				"way",
				logs->path, what, strerror(-r), logs->path, name);
	(void)unlinkat(logs->fd, name, AT_REMOVEDIR); /* it stays if others put something there */
	if (fsync(logs->fd) < 0 && errno != EINVAL)
		return fail(logs, logs->name, "fsync", errno);
	return CTL_OK;
}

/* The number of the run at the top goes to logs->published. */
static int look_at_top(struct bench_logs *logs, struct bench_results *ret_top)
{
	char text[BENCH_TEXT_BYTES];
	int r = bench_results_load(logs->fd, logs->name, ret_top, text, sizeof(text));

	if (r == -ENOENT)
		return CTL_OK;
	if (r == 0 && strcmp(bench_results_kind(ret_top), logs->kind) != 0) {
		r = -EINVAL;
		(void)snprintf(text, sizeof(text), "%s: is of bench %s", logs->name,
			       bench_results_kind(ret_top));
	}
	if (r < 0)
		return ctl_fail(logs->ctl, "%s/%s: choose another --log_dir, or move it away",
				logs->path, text);
	logs->has_published = true;
	logs->published = bench_results_run(ret_top);
	return CTL_OK;
}

/*
 * Only the last run can have been left half published: every bench begins with this.
 * *top: as look_at_top() left it; made anew if that has changed.
 */
static int finish_publishing(struct bench_logs *logs, struct bench_results *top)
{
	const uint64_t run = last_run(logs->fd, logs->kind, UINT64_MAX);
	struct bench_results results = { NULL, NULL };
	char name[RUN_NAME_BYTES], text[BENCH_TEXT_BYTES];
	_cleanup_(closep) int fd = -1;
	bool is_complete;
	int r;

	if (!run || run <= logs->published)
		return CTL_OK;
	fd = own_dir_open(logs->fd, run_name(name, logs->kind, run));
	if (fd < 0 || bench_results_load(fd, logs->name, &results, text, sizeof(text)) < 0)
		return CTL_OK; /* nothing that we could publish */
	is_complete = bench_results_is_complete(&results);
	bench_results_deinit(&results);
	if (!is_complete)
		return CTL_OK;
	r = publish(logs, fd, name);
	bench_results_deinit(top);
	return r == CTL_OK ? look_at_top(logs, top) : r;
}

/* ---- a run ---- */

int bench_logs_open(struct ctl *ctl, const char *log_dir, const char *kind,
		    struct bench_logs **ret_logs)
{
	struct bench_logs *logs = calloc(1, sizeof(*logs));
	struct bench_results top = { NULL, NULL };
	struct json_object *known;
	int r;

	if (!logs)
		return ctl_fail(ctl, "out of memory");
	*logs = (struct bench_logs){ .ctl = ctl,
				     .path = log_dir,
				     .kind = kind,
				     .name = bench_results_name(kind),
				     .fd = -1,
				     .lock_fd = -1,
				     .run_fd = -1,
				     .rows_fd = -1 };
	*ret_logs = logs;
	r = open_log_dir(logs);
	if (r == CTL_OK)
		r = take_lock(logs);
	if (r == CTL_OK)
		r = look_at_top(logs, &top);
	if (r == CTL_OK)
		r = finish_publishing(logs, &top);
	known = top.root ? bench_results_logs(&top) : NULL;
	if (r == CTL_OK && strcmp(kind, "sweep") == 0)
		r = text_logs_check_foreign(ctl, logs->fd, log_dir, known);
	(void)json_object_put(known);
	bench_results_deinit(&top);
	return r;
}

/* The last run that has rows and is not complete becomes this one. */
static int resume_unfinished(struct bench_logs *logs, struct bench_results *ret_old)
{
	uint64_t run = UINT64_MAX;
	char name[RUN_NAME_BYTES], text[BENCH_TEXT_BYTES];

	while ((run = last_run(logs->fd, logs->kind, run)) > logs->published) {
		_cleanup_(closep) int fd = own_dir_open(logs->fd, run_name(name, logs->kind, run));
		struct bench_results results;
		int r;

		if (fd < 0)
			return ctl_fail(logs->ctl, "--resume: %s/%s: %s", logs->path, name,
					fd == -EPERM ? "belongs to another user" : strerror(-fd));
		r = bench_results_load(fd, logs->name, &results, text, sizeof(text));
		if (r < 0 && r != -ENOENT)
			return ctl_fail(logs->ctl, "--resume: %s/%s/%s", logs->path, name, text);
		if (r == 0 && bench_results_n_rows(&results) > 0) {
			memcpy(logs->run_name, name, sizeof(name));
			logs->run_fd = TAKE_FD(fd);
			*ret_old = results;
			return CTL_OK;
		}
		if (r == 0)
			bench_results_deinit(&results);
	}
	return CTL_OK;
}

int bench_logs_resume(struct bench_logs *logs, struct bench_results *ret_old)
{
	int r = resume_unfinished(logs, ret_old);

	if (r != CTL_OK || ret_old->root)
		return r;
	return look_at_top(logs, ret_old);
}

static int save(struct bench_logs *logs, struct bench_results *results, bool has_rows_file)
{
	char text[BENCH_TEXT_BYTES];

	if (bench_results_save(results, logs->run_fd, has_rows_file, text, sizeof(text)) < 0)
		return ctl_fail(logs->ctl, "%s/%s/%s", logs->path, logs->run_name, text);
	return CTL_OK;
}

/*
 * Rows that the rows file has go into the results file first.  Only then is it made anew, and only
 * then do the results name it again: so no crash loses a row or makes it count twice.
 */
int bench_logs_begin(struct bench_logs *logs, struct bench_results *results)
{
	uint64_t start;
	int r = logs->run_fd < 0 ? make_run_dir(logs) : CTL_OK;

	if (r != CTL_OK)
		return r;
	bench_results_set(results, "run", json_object_new_uint64(run_number(logs)));
	if (!logs->is_ours)
		r = save(logs, results, false);
	if (r != CTL_OK)
		return r;
	if (unlinkat(logs->run_fd, BENCH_ROWS_NAME, 0) < 0 && errno != ENOENT)
		return fail(logs, logs->run_name, BENCH_ROWS_NAME, errno);
	logs->rows_fd = openat(logs->run_fd, BENCH_ROWS_NAME,
			       O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       0666);
	if (logs->rows_fd < 0)
		return fail(logs, logs->run_name, BENCH_ROWS_NAME, errno);
	start = clock_nsec();
	r = save(logs, results, true);
	if (r == CTL_OK && fsync(logs->run_fd) < 0 && errno != EINVAL)
		r = fail(logs, logs->run_name, "fsync", errno);
	if (r == CTL_OK && fsync(logs->fd) < 0 && errno != EINVAL)
		r = fail(logs, logs->run_name, "fsync", errno);
	logs->synced_nsec = clock_nsec();
	logs->syncing_nsec = logs->synced_nsec - start;
	return r;
}

int bench_logs_add(struct bench_logs *logs, const struct bench_results *results, const char *key)
{
	const uint64_t start = clock_nsec(), since = start - logs->synced_nsec;
	struct stat st = { 0 };
	int r = bench_rows_write(logs->rows_fd, key, bench_results_last(results, key));

	if (r == 0 && fstat(logs->rows_fd, &st) == 0 && st.st_nlink == 0)
		return ctl_fail(logs->ctl, "%s/%s/%s: was removed meanwhile", logs->path,
				logs->run_name, BENCH_ROWS_NAME);
	if (r == 0 && since >= SYNC_NSEC && since >= SYNC_SHARE * logs->syncing_nsec) {
		r = fdatasync(logs->rows_fd) < 0 && errno != EINVAL ? -errno : 0;
		logs->synced_nsec = clock_nsec();
		logs->syncing_nsec = logs->synced_nsec - start;
	}
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
	closep(&logs->run_fd);
	logs->run_fd = -1;
	logs->run_name[0] = '\0';
}

static int write_text_logs(const struct bench_logs *logs, const struct bench_results *results)
{
	char name[BENCH_TEXT_BYTES] = "";
	int r = text_logs_write(logs->run_fd, results, name);

	if (r < 0)
		return ctl_fail(logs->ctl, "%s/%s/%s: cannot be written: %s", logs->path,
				logs->run_name, name, strerror(-r));
	return CTL_OK;
}

int bench_logs_end(struct bench_logs *logs, struct bench_results *results, bool publishes)
{
	int r;

	if (logs->run_fd < 0 || (logs->rows_fd < 0 && !publishes))
		return CTL_OK; /* nothing was begun */
	if (bench_results_n_rows(results) == 0) {
		if (logs->is_ours)
			remove_run(logs);
		return CTL_OK;
	}
	r = save(logs, results, false);
	if (r == CTL_OK && unlinkat(logs->run_fd, BENCH_ROWS_NAME, 0) < 0 && errno != ENOENT)
		r = fail(logs, logs->run_name, BENCH_ROWS_NAME, errno);
	if (r == CTL_OK)
		r = write_text_logs(logs, results);
	if (r == CTL_OK && publishes) {
		r = publish(logs, logs->run_fd, logs->run_name);
		logs->is_published = r == CTL_OK;
	}
	return r;
}

const char *bench_logs_path(const struct bench_logs *logs, char *path)
{
	int n;

	if (logs->run_fd < 0 || !is_there(logs->is_published ? logs->fd : logs->run_fd, logs->name))
		return NULL;
	if (logs->is_published)
		n = snprintf(path, PATH_MAX, "%s/%s", logs->path, logs->name);
	else
		n = snprintf(path, PATH_MAX, "%s/%s", logs->path, logs->run_name);
	return n < PATH_MAX ? path : NULL;
}

void bench_logs_close(struct bench_logs *logs)
{
	if (!logs)
		return;
	/* Before the lock ends, so that no lock file of another bench is removed. */
	if (logs->lock_fd >= 0)
		(void)unlinkat(logs->fd, LOCK_NAME, 0); /* if it stays, it is free */
	if (logs->is_made)
		(void)rmdir(logs->path); /* only if nothing is in it: nothing was measured */
	closep(&logs->lock_fd);
	closep(&logs->rows_fd);
	closep(&logs->run_fd);
	closep(&logs->fd);
	free(logs);
}
