/*
 * The table of commands: each file of this folder defines one row, and main.c lists them.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_COMMAND_H
#define DSAIO_CLIENT_CTL_CMD_COMMAND_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/flags.h"

/* The ends of help texts. */
#define HELP_JSON "    --json         as JSON: all numbers, in bytes and nanoseconds\n"
#define HELP_SOCKET "    --socket PATH  the daemon's socket\n"
#define HELP_PRIVATE "    --private      a daemon for this command alone\n"
#define HELP_EXIT "\nexit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n"

struct command {
	const char *name;
	int (*run)(struct ctl *ctl);
	const char *line; /* in dsaioctl --help */
	const char *help; /* the text of dsaioctl NAME --help */
	struct flag_table flags;
	/* The commands whose names begin with this one ("bench io"), up to NULL; where it is none by
	   itself, run is NULL.  NULL: this is a command of one word. */
	const struct command *const *parts;
	/* main() refuses these before run. */
	bool no_arguments;
	bool of_all;	     /* it is about other clients, so --private is refused */
	const char *no_json; /* why; NULL: it has --json */
};

/* COMMAND(name, run, line, help, .flags = FLAG_TABLE(flags)) */
#define COMMAND(its_name, its_run, its_line, ...)                                             \
	{                                                                                     \
		.name = (its_name), .run = (its_run), .line = (its_line), .help = __VA_ARGS__ \
	}

/* Those of one word, in the order of dsaioctl --help, and the parts of these.  NAME is command_NAME. */
#define COMMANDS(x)                                                                             \
	x(status) x(top) x(stores) x(clients) x(wear) x(metrics) x(profile) x(limit) x(drain)   \
		x(undrain) x(reload) x(doctor) x(kill) x(trace) x(cp) x(cat) x(put) x(ls) x(rm) \
			x(stat) x(bench) x(completion)
#define COMMAND_PARTS(x)                                                                       \
	x(trace_record) x(bench_io) x(bench_sweep) x(bench_tune) x(bench_latency) x(bench_mix) \
		x(bench_report) x(bench_replay)

/* "io" of "bench io" */
static inline const char *command_word(const struct command *command)
{
	const char *space = strrchr(command->name, ' ');

	return space ? space + 1 : command->name;
}

#define COMMAND_EXTERN(name) extern const struct command command_##name;
COMMANDS(COMMAND_EXTERN)
COMMAND_PARTS(COMMAND_EXTERN)

#endif
