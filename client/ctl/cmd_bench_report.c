/*
 * dsaioctl bench report: results.json of one or more benches as one HTML page.
 *
 * The page is written to a new file beside the wanted one, which is then replaced, so that a
 * report that is there stays whole if this one fails.
 */
#include "client/ctl/bench_report.h"
#include "client/ctl/ctl.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNS_MAX 32 /* more beside each other nobody reads */
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
	"    DIR ...          where results.json of a sweep, a tune or a latency bench lies, or\n"
	"                     that file; several are shown side by side\n"
	"    -o, --output F   the page (report.html in the first DIR); -: standard output\n"
	"    --json           which page it was, as JSON\n"
	"\n"
	"The page needs nothing else: no network, no scripts.  It follows light and dark, and can be\n"
	"printed.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

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

static int fail_write(const struct ctl *ctl, const char *path, int error)
{
	return ctl_fail(ctl, "%s: can not be written: %s: name another page with -o", path,
			strerror(error));
}

static int write_page(struct ctl *ctl, const char *path, const struct bench_report_run *runs,
		      size_t n_runs)
{
	_cleanup_(freep) char *new_path = NULL;
	FILE *out;
	int fd, r, error;

	if (asprintf(&new_path, "%s.XXXXXX", path) < 0)
		return ctl_fail(ctl, "%s: out of memory", path);
	fd = mkostemp(new_path, O_CLOEXEC);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out) {
		error = errno;
		if (fd >= 0) {
			(void)unlink(new_path);
			(void)close(fd); /* nothing was written */
		}
		return fail_write(ctl, path, error);
	}
	/* As others make files, not as mkostemp() does. */
	error = (int)umask(0);
	(void)umask((mode_t)error);
	(void)fchmod(fd, 0666 & ~(mode_t)error); /* else only its owner reads it */
	r = bench_report_write(out, runs, n_runs);
	error = ferror(out) ? EIO : -r;
	if (fclose(out) != 0 && !error)
		error = errno;
	if (!error && rename(new_path, path) < 0)
		error = errno;
	if (!error)
		return CTL_OK;
	(void)unlink(new_path);
	return fail_write(ctl, path, error);
}

static int tell(const struct ctl *ctl, const char *path, int n_runs)
{
	struct json_object *object;

	if (!ctl->is_json) {
		(void)printf("%s\n", path);
		return ctl_flush(ctl);
	}
	object = json_object_new_object();
	json_object_object_add(object, "report", json_object_new_string(path));
	json_object_object_add(object, "runs", json_object_new_int(n_runs));
	return ctl_print_json(ctl, object);
}

static int run(struct ctl *ctl)
{
	struct bench_report_run runs[RUNS_MAX];
	char path[PATH_MAX], text[PATH_MAX + 256];
	const char *page = output;
	int n = 0, status = CTL_OK;

	if (ctl->n_args == 0)
		return ctl_usage(ctl, "name a directory with results.json, as --log_dir was");
	if (ctl->n_args > RUNS_MAX)
		return ctl_usage(ctl, "%d runs: at most %d fit beside each other", ctl->n_args,
				 RUNS_MAX);
	if (!page)
		page = default_output(ctl->args[0], path);
	if (!page)
		return ctl_usage(ctl, "%s: %s", ctl->args[0], strerror(ENAMETOOLONG));
	for (; n < ctl->n_args; n++) {
		runs[n].name = ctl->args[n];
		if (bench_results_load(ctl->args[n], &runs[n].results, text, sizeof(text)) < 0) {
			status = ctl_fail(ctl, "%s", text);
			break;
		}
	}
	if (status == CTL_OK && strcmp(page, "-") == 0) {
		if (bench_report_write(stdout, runs, (size_t)n) < 0)
			status = ctl_fail(ctl, "out of memory");
		else
			status = ctl_flush(ctl);
	} else if (status == CTL_OK) {
		status = write_page(ctl, page, runs, (size_t)n);
		if (status == CTL_OK)
			status = tell(ctl, page, n);
	}
	while (n > 0)
		bench_results_deinit(&runs[--n].results);
	return status;
}

const struct command command_bench_report = {
	"bench report", run, "results as one HTML page with pictures", help, FLAG_TABLE(flags), NULL
};
