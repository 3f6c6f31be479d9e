/*
 * The table of commands: each file of this folder defines one row, and main.c lists them.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_COMMAND_H
#define DSAIO_CLIENT_CTL_CMD_COMMAND_H

#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/flags.h"

struct command {
	const char *name;
	int (*run)(struct ctl *ctl);
	const char *line; /* in dsaioctl --help */
	const char *help; /* the text of dsaioctl NAME --help */
	struct flag_table flags;
	/* The commands whose names begin with this one ("bench io"), up to NULL; run is NULL then.
	   NULL: this is a command of one word. */
	const struct command *const *parts;
};

extern const struct command command_status, command_stores, command_clients, command_pool,
	command_wear, command_metrics, command_profile, command_limit, command_drain,
	command_undrain, command_reload, command_doctor, command_kill, command_trace, command_cp,
	command_cat, command_put, command_bench, command_bench_io, command_bench_sweep,
	command_bench_tune, command_bench_latency, command_bench_report, command_completion;

#endif
