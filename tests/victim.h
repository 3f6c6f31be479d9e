/*
 * Victims: clients that must not notice an attack on the daemon.
 *
 * A victim is a process of its own and, in a test that runs as root, of a user of its own.  It
 * repeats a round: small reads by a client that stays connected, then all that a newcomer does
 * (connect, open, alloc, first read, disconnect), then Status.  It measures each call.  A call that
 * has not returned when the victims are judged counts with the time that it has lasted so far.
 *
 *     victim_start(daemon);         // it is there before the attack
 *     ... the attack begins, and lasts ...
 *     victims_check(daemon, 20);    // another arrives now; both are measured for 20 s
 *
 * Without victim_start() the attacker is alone until victims_check().  Take 20 s for an attack whose
 * effect grows while it lasts, and 2 s for one that has its full effect at once.
 */
#ifndef DSAIO_TESTS_VICTIM_H
#define DSAIO_TESTS_VICTIM_H

#include "tests/harness.h"

/* Starts one, and waits until it has done a round. */
void victim_start(const struct daemon *daemon);

/*
 * The attack is under way.  Starts a further victim, measures all of them for so many seconds and
 * stops them.  The test fails if the p99 of at least 100 calls of a kind is over 1 s, or a call lasts over 5 s (both
 * stretched by the time factor, and longer by some times what the test's own process has to wait for the
 * disk and a processor meanwhile).
 */
void victims_check(const struct daemon *daemon, unsigned seconds);
/* The same with another limit for the p99, which the time factor does not stretch. */
void victims_check_p99(const struct daemon *daemon, unsigned seconds, int64_t p99_max_usec);

#endif
