/*
 * Mixed clients: programs that do all kinds of work, may be killed at any moment, and know what each byte of their
 * file may be.
 *
 * Each slot has a file and, at a time, one client: a process that reconnects.  It does ops of all sizes on pinned,
 * private and registered memory, aligned and not, some of them cancelled, and opens, closes, syncs and truncates.
 * The slot's shadow of the file outlives the client.  An op that was killed or that failed leaves its range old or
 * new, byte by byte; no other byte may change.  The next client of the slot begins with a look at the whole file.
 *
 *     mixed_start(daemon, 4, 0);
 *     ... mixed_kill(2); mixed_replace(2); ...
 *     mixed_end();
 *
 * $TEST_SEED, slot and life give the sequence of a client's ops.  A failure names them.
 */
#ifndef DSAIO_TESTS_MIXED_H
#define DSAIO_TESTS_MIXED_H

#include "tests/harness.h"

#define MIXED_MAX 8u
/* Flags: what else may happen to ops. */
#define MIXED_FAULTS 1u /* a device may fail them */

/* The daemon may be restarted, by daemon_again(). */
void mixed_start(struct daemon *daemon, unsigned n, unsigned flags);
/* SIGKILL, and waits for the process' end. */
void mixed_kill(unsigned slot);
/* Another client in the place of one that was killed, when the daemon has nothing of that one any more. */
void mixed_replace(unsigned slot);
/* No client has ended by itself. */
void mixed_look(void);
/* All have got on: some more batches of each.  Those that were killed must have been replaced. */
void mixed_go_on(uint64_t n);
/* They end by themselves. */
void mixed_end(void);

struct mixed_sums {
	uint64_t n_batches, n_ops, n_failed,
		n_uncertain; /* writes that were killed, or that failed */
};
struct mixed_sums mixed_sums(void);

/* Waits until the daemon has no client but the one that asks, no open op, and no byte of its pool in use. */
void mixed_daemon_is_empty(const struct daemon *daemon);

#endif
