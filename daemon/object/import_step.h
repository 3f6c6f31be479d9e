/*
 * Calls that map or unmap memory of clients.
 *
 * A client can make such a call last for seconds: it maps the file a million times and punches it, and the call
 * waits for the walk over all of these mappings.  It holds the lock of the daemon's mappings meanwhile, for which all
 * threads wait that map memory.  No check before the call prevents that.
 *
 * So such calls are short steps that run one at a time, and one that lasts is a stall of the memory
 * (stall.h).  The calls on slabs that take long are not made meanwhile: with the lock of the mappings
 * held, they would make others' steps last.  Imports of memory that is banned for its stalls are refused to
 * all clients.  Its frees go on, but pause after each call that stalls, so that such frees of all users
 * take a small part of the time.
 *
 * Worker threads.
 */
#ifndef DSAIO_DAEMON_OBJECT_IMPORT_STEP_H
#define DSAIO_DAEMON_OBJECT_IMPORT_STEP_H

#include "daemon/base/error.h"
#include "daemon/base/hung.h"
#include "daemon/base/stall.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The memory of the calls: borrowed. */
struct import_step {
	const struct inode_id *memory;
	const struct hung_who *who;
	struct stall_step stall;
};

/* Returns 0, or -EAGAIN with a message: the memory is banned. */
int import_step_check(const struct import_step *step, struct error *error);
/* Brackets a call.  Returns the same, and then begins nothing. */
int import_step_begin(struct import_step *step, struct error *error);
void import_step_end(struct import_step *step);

/*
 * Brackets such a call on a slab.  It holds the lock on the process's mappings, also while its thread waits for a
 * processor, and then the main thread waits, too.  So at most half as many run as there are cores.  Where calls on
 * small slabs (is_first) and on large ones wait, they alternate.
 */
void import_step_hold(bool is_first);
void import_step_go_on(void);

/* munmap(2), also of memory that is banned.  is_stopping: it pauses no more.  Returns whether it succeeded. */
bool import_step_unmap(struct import_step *step, void *start, size_t bytes,
		       const _Atomic bool *is_stopping);

#endif
