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
};

extern const struct command command_status;
extern const struct command command_top;
extern const struct command command_stores;
extern const struct command command_clients;
extern const struct command command_wear;
extern const struct command command_metrics;
extern const struct command command_profile;
extern const struct command command_limit;
extern const struct command command_drain;
extern const struct command command_undrain;
extern const struct command command_reload;
extern const struct command command_doctor;
extern const struct command command_kill;
extern const struct command command_trace;
extern const struct command command_trace_record;
extern const struct command command_cp;
extern const struct command command_cat;
extern const struct command command_put;
extern const struct command command_bench;
extern const struct command command_completion;
extern const struct command command_bench_io;
extern const struct command command_bench_sweep;
extern const struct command command_bench_tune;
extern const struct command command_bench_latency;
extern const struct command command_bench_mix;
extern const struct command command_bench_report;
extern const struct command command_bench_replay;

#endif
