/*
 * Stalls: calls in which a page fault put the calling thread to sleep for more than STALL_NSEC.
 *
 * A lane touches a client's memory only by system calls.  Such a call faults if the client has punched the
 * memory, and sleeps as long as a punch of that range lasts.
 *
 * Time alone does not tell: the scheduler may have preempted the thread, or the file system may have read
 * metadata.  So a long call is a stall only if the thread's counts of voluntary switches and of page faults
 * have both changed.  A fault that fails is not counted, but then the call fails.  The counts are read at the
 * first call after a sleep of the thread's own, and after long calls: short calls cost no further system
 * call.
 *
 * Each thread has its own state.
 */
#ifndef DSAIO_DAEMON_BASE_STALL_H
#define DSAIO_DAEMON_BASE_STALL_H

#include <stdbool.h>
#include <stdint.h>

/* Far above the 5 to 200 us that a call takes, also to touch new pages; far below what a client notices. */
#define STALL_NSEC 2000000u

/* Brackets each call: stall_begin() returns the start time for stall_end(), which returns whether it was a
   stall.  has_failed: the call may have failed with EFAULT. */
uint64_t stall_begin(void);
bool stall_end(uint64_t since_nsec, bool has_failed);
/* The thread has slept of its own accord. */
void stall_note_sleep(void);

#endif
