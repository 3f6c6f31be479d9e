/*
 * dsaioctl bench report: the results of one or more benches as one HTML page.
 *
 * The page is written to a new file beside the wanted one, which is then replaced, so that a
 * report that is there stays whole if this one fails.
 */
#include "client/ctl/bench/logs.h"
#include "client/ctl/bench/report.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/newfile.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNS_MAX 32 /* a guess: more columns are not readable */
#define REPORT_NAME "report.html"

static const char *output;

static const struct flag flags[] = {
	{ "o", FLAG_STRING, &output, 0, 0 },
	{ "output", FLAG_STRING, &output, 0, 0 },
};

static const char help[] =
	"dsaioctl bench report - results of benches as one HTML page with pictures\n"
	"\n"
	"    dsaioctl bench report _aio_bench_logs\n"
	"    dsaioctl bench report before after -o compared.html\n"
	"\n"
	"    DIR ...          a --log_dir: its sweep, tune and latency results are shown side by\n"
	"                     side; or a run in it, as DIR/sweep.1, or a file of results\n"
	"    -o, --output F   the page (report.html in the first DIR); -: standard output\n"
	"    --json           which page it was, as JSON\n"
	"\n"
	"The page needs nothing else: no network, no scripts.  It follows light and dark, and can be\n"
	"printed.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

/* The runs of a page. */
struct runs {
	struct bench_report_run runs[RUNS_MAX];
	char *names[RUNS_MAX]; /* that are not the arguments themselves; NULL: none */
	size_t n;
};

static void runs_deinit(struct runs *runs)
{
	for (size_t i = 0; i < runs->n; i++) {
		bench_results_deinit(&runs->runs[i].results);
		free(runs->names[i]);
	}
}

/* Takes name; NULL: it is arg.  Returns CTL_OK or CTL_FAILED (reported). */
static int add_run(struct ctl *ctl, struct runs *runs, const char *arg, char *name, int dir_fd,
		   const char *file)
{
	char text[PATH_MAX + 256];
	struct bench_report_run *run = &runs->runs[runs->n];

	if (runs->n == RUNS_MAX) {
		free(name);
		return ctl_usage(ctl, "at most %d runs fit beside each other", RUNS_MAX);
	}
	if (bench_results_load(dir_fd, file, &run->results, text, sizeof(text)) < 0) {
		free(name);
		return ctl_fail(ctl, "%s: %s", arg, text);
	}
	run->name = name ? name : arg;
	runs->names[runs->n++] = name;
	return CTL_OK;
}

/*
 * Adds the published run of each kind of bench, or its last unfinished run.  A single run has the
 * directory's name; several have their files' names too.
 */
static int add_dir(struct ctl *ctl, struct runs *runs, const char *arg, int dir_fd)
{
	struct {
		char dir[NAME_MAX + 1]; /* "": at the top */
		const char *file;
	} found[BENCH_RESULTS_KINDS] = { 0 };
	size_t n = 0;
	int r = CTL_OK;

	for (size_t i = 0; i < BENCH_RESULTS_KINDS; i++) {
		const struct bench_results_file *file = &bench_results_files[i];

		found[n].file = file->name;
		n += faccessat(dir_fd, file->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
		     bench_logs_find_unfinished(dir_fd, file->kind, found[n].dir);
	}
	if (n == 0)
		return ctl_fail(ctl, "%s: has no results of dsaioctl bench", arg);
	for (size_t i = 0; i < n && r == CTL_OK; i++) {
		const bool is_at_top = !found[i].dir[0];
		_cleanup_(closep) int fd = openat(dir_fd, is_at_top ? "." : found[i].dir,
						  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		char *name = NULL;

		if (fd < 0)
			return ctl_fail(ctl, "%s/%s: %s", arg, found[i].dir, strerror(errno));
		if ((n > 1 || !is_at_top) && asprintf(&name, "%s/%s%s%s", arg, found[i].dir,
						      is_at_top ? "" : "/", found[i].file) < 0)
			return ctl_fail(ctl, "out of memory");
		r = add_run(ctl, runs, arg, name, fd, found[i].file);
	}
	return r;
}

/* The directory of a path, and its last name (in path).  Returns a descriptor or a negative errno. */
static int open_parent(char *path, const char **ret_name)
{
	char *slash = strrchr(path, '/');
	int fd;

	*ret_name = slash ? slash + 1 : path;
	if (slash == path)
		fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	else if (!slash)
		fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	else {
		*slash = '\0';
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		*slash = '/';
	}
	return fd < 0 ? -errno : fd;
}

/* A directory, or a file of results. */
static int add_arg(struct ctl *ctl, struct runs *runs, const char *arg)
{
	_cleanup_(closep) int fd = open(arg, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(freep) char *path = NULL;
	const char *name;

	if (fd >= 0)
		return add_dir(ctl, runs, arg, fd);
	/* A link that the user names is followed; the results themselves are none. */
	path = realpath(arg, NULL);
	if (!path)
		return ctl_fail(ctl, "%s: %s", arg, strerror(errno));
	fd = open_parent(path, &name);
	if (fd < 0)
		return ctl_fail(ctl, "%s: %s", arg, strerror(-fd));
	return add_run(ctl, runs, arg, NULL, fd, name);
}

/* The default: beside the results.  path: of PATH_MAX. */
static const char *default_output(const char *dir, char *path)
{
	const char *slash = strrchr(dir, '/');
	struct stat st;
	int n;

	if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
		n = snprintf(path, PATH_MAX, "%s/" REPORT_NAME, dir);
	else
		n = snprintf(path, PATH_MAX, "%.*s" REPORT_NAME, slash ? (int)(slash + 1 - dir) : 0,
			     dir);
	return n < PATH_MAX ? path : NULL;
}

/* Returns 0 or a negative errno. */
static int write_file(int dir_fd, const char *name, const struct bench_report_run *runs,
		      size_t n_runs)
{
	struct newfile file;
	int r = newfile_open(dir_fd, name, 0666, &file), copy;
	FILE *out;

	if (r < 0)
		return r;
	copy = dup(file.fd); /* fclose() closes its own */
	out = copy < 0 ? NULL : fdopen(copy, "w");
	if (!out) {
		r = -errno;
		closep(&copy);
	} else {
		errno = 0;
		r = bench_report_write(out, runs, n_runs);
		if (r == 0 && ferror(out)) /* of the write that failed, unless it is lost */
			r = errno ? -errno : -EIO;
		if (fclose(out) != 0 && r == 0)
			r = -errno;
	}
	if (r == 0)
		r = newfile_commit(&file);
	newfile_discard(&file);
	return r;
}

static int write_page(struct ctl *ctl, const char *page, const struct bench_report_run *runs,
		      size_t n_runs)
{
	_cleanup_(freep) char *path = strdup(page);
	_cleanup_(closep) int dir_fd = -1;
	const char *name = NULL;
	struct stat st;
	int r = -ENOMEM;

	if (path)
		r = dir_fd = open_parent(path, &name);
	/*
	 * rename(2) would replace a device, too.  A link at the default place may be another user's
	 * trap, so it is replaced.  A link that -o names, such as /dev/stdout, is not.
	 */
	if (r >= 0 && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && (output || !S_ISLNK(st.st_mode)))
		return ctl_fail(ctl,
				"%s: is no regular file: name another page with -o; -o - writes to "
				"standard output",
				page);
	if (r >= 0)
		r = name[0] ? write_file(dir_fd, name, runs, n_runs) : -EISDIR;
	return r < 0 ? ctl_fail(ctl, "%s: cannot be written: %s: name another page with -o", page,
				strerror(-r))
		     : CTL_OK;
}

static int print_result(const struct ctl *ctl, const char *path, int n_runs)
{
	struct json_object *object;

	if (!ctl->is_json)
		return ctl_print_line(ctl, "%s", path);
	object = json_object_new_object();
	json_object_object_add(object, "report", json_object_new_string(path));
	json_object_object_add(object, "runs", json_object_new_int(n_runs));
	return ctl_print_json(ctl, object);
}

static int run(struct ctl *ctl)
{
	_cleanup_(runs_deinit) struct runs runs = { .n = 0 };
	char path[PATH_MAX];
	const char *page = output;
	int r = CTL_OK;

	if (ctl->n_args == 0)
		return ctl_usage(ctl, "name a directory with results, as --log_dir was");
	if (!page)
		page = default_output(ctl->args[0], path);
	if (!page)
		return ctl_usage(ctl, "%s: %s", ctl->args[0], strerror(ENAMETOOLONG));
	for (int i = 0; i < ctl->n_args && r == CTL_OK; i++)
		r = add_arg(ctl, &runs, ctl->args[i]);
	if (r != CTL_OK)
		return r;
	if (strcmp(page, "-") == 0)
		return bench_report_write(stdout, runs.runs, runs.n) < 0
			       ? ctl_fail(ctl, "out of memory")
			       : ctl_flush(ctl);
	r = write_page(ctl, page, runs.runs, runs.n);
	return r == CTL_OK ? print_result(ctl, page, (int)runs.n) : r;
}

const struct command command_bench_report = {
	"bench report", run, "results as one HTML page with pictures", help, FLAG_TABLE(flags), NULL
};
