/*
 * dsaioctl bench report: the results of one or more benches as one HTML page.
 *
 * A program of the Python package makes the page (client/python/dsaio/bench_report.py), since matplotlib draws the
 * pictures.  It takes the place of this process.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/memory.h"
#include "proto/dirs.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "bench_report.py"
#define INSTALL "apt-get install python3-matplotlib"

static const char *output;

static const struct flag flags[] = { FLAG_NAMES("output", "o", FLAG_STRING, &output, 0, 0) };

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
	"printed.  Points that others disturbed are marked.  Python 3 and matplotlib draw it:\n"
	"" INSTALL ", or pip install matplotlib.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

/* The program's path: in the build, in a wheel, in an installation.  NULL: none of them. */
static char *find_program(void)
{
	static const char *const places[] = { "python/dsaio", ".", "../lib/dsaio-python/dsaio",
					      DSAIO_PYTHONDIR "/dsaio" };
	_cleanup_(freep) char *self = realpath("/proc/self/exe", NULL);
	char *slash = self ? strrchr(self, '/') : NULL;
	char path[PATH_MAX + 64];

	if (!slash)
		return NULL;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/" PROGRAM,
			       places[i][0] == '/' ? "" : self, places[i]);
		if (access(path, R_OK) == 0)
			return text_new("%s", path);
	}
	return NULL;
}

static int run(struct ctl *ctl)
{
	_cleanup_(freep) char *program = NULL;
	_cleanup_(freep) char **argv = NULL;
	_cleanup_(freep) char *page = NULL;
	size_t n = 0;

	if (ctl->n_args == 0)
		return ctl_usage(ctl, "name a directory with results, as --log_dir was");
	program = find_program();
	if (!program)
		return ctl_fail(ctl, "the Python program of the page, " PROGRAM
				     ", is not beside dsaioctl: install both by make install, "
				     "or by the wheel");
	argv = NEW_ARRAY(char *, (size_t)ctl->n_args + 8);
	argv[n++] = (char *)(uintptr_t) "python3"; /* execvp(3) changes none of them */
	argv[n++] = program;
	if (ctl->is_json)
		argv[n++] = (char *)(uintptr_t) "--json";
	if (output)
		argv[n++] = page = text_new(
			"--output=%s", output); /* one argument: its value may begin with a dash */
	argv[n++] = (char *)(uintptr_t) "--";
	memcpy(&argv[n], ctl->args, (size_t)ctl->n_args * sizeof(*argv));
	(void)execvp(argv[0], argv);
	return ctl_fail(ctl, "python3, which makes the page, cannot be run: %s: " INSTALL,
			strerror(errno));
}

const struct command command_bench_report = COMMAND("bench report", run,
						    "results as one HTML page with pictures", help,
						    .flags = FLAG_TABLE(flags));
