/*
 * Faults on purpose, for tests: stacks on every engine, and makes blocks fail, fall short, be late, never end or
 * end out of order, as a plan says.
 *
 * The plan is a file, which the tester changes while the daemon serves.  dsaiod --fault-plan FILE takes
 * one that only root can write, or for dsaiod --user the user.  Without the option no request passes here.
 * A fault is logged.
 */
#ifndef DSAIO_DAEMON_ENGINE_FAULT_H
#define DSAIO_DAEMON_ENGINE_FAULT_H

#include "daemon/engine/engine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
	FAULT_NONE,
	FAULT_ERROR,   /* fails with the plan's errno */
	FAULT_SHORT,   /* one byte is missing; at the submission one unit of direct I/O */
	FAULT_SCANT,   /* all but one byte is missing, or one unit */
	FAULT_DELAY,   /* later by delay_usec */
	FAULT_NEVER,   /* held until the plan changes */
	FAULT_REORDER, /* held until another request is back, or none is left */
	N_FAULT_KINDS
};

/* The file.  The tester fills it in, and changes the serial last. */
struct fault_plan {
	_Atomic uint32_t serial; /* counts start again with each */
	uint32_t kind;		 /* enum fault_kind */
	uint32_t error;		 /* of FAULT_ERROR */
	uint32_t operations;	 /* bits of enum block_operation */
	uint32_t engines;	 /* bits of enum engine_kind */
	uint32_t at_completion;	 /* 0: before the engine has the request; 1: when it is back */
	uint32_t skip;		 /* requests of these that pass first */
	uint32_t n;		 /* of the next, that get the fault */
	uint32_t delay_usec;
};

/* Stacks on these engines.  Before the first is opened; main thread.  Returns 0 or an error. */
int fault_start(const struct engine_ops *const engines[N_ENGINE_KINDS], const char *path,
		bool is_user, struct error *error);

/* The engine with faults, or NULL without a plan. */
const struct engine_ops *fault_ops(enum engine_kind kind);

#endif
