/*
 * Wakes: calls that wake a client.
 *
 * A client decides what they cost.  Each of its epoll watches on a socket, and each of its threads that waits,
 * takes time of the caller: 490,000 watches take 130 ms (seen).  A client whose wake-ups take more than
 * WAKE_NSEC of the caller's CPU time WAKES_MAX times within WAKES_WITHIN_NSEC is costly, for good: its session
 * ends.
 *
 * CPU time, because the scheduler may preempt the caller for longer.  To read it takes 0.3 us.  So it is read
 * only while a wake-up by the thread was long within the last WAKES_WITHIN_NSEC: the first long one does not
 * count.
 */
#ifndef DSAIO_DAEMON_BASE_WAKES_H
#define DSAIO_DAEMON_BASE_WAKES_H

#include <stdbool.h>
#include <stdint.h>

/* Far above the 3 to 11 us that a wake-up takes. */
#define WAKE_NSEC 5000000u
/* A guess: few enough for the others. */
#define WAKES_MAX 3u
#define WAKES_WITHIN_NSEC UINT64_C(1000000000)

#define WAKES_WHY "it is costly to wake: it has too many epoll watches or threads that wait"

/* The long ones of a client.  One thread; zeroes: none so far. */
struct wakes {
	uint64_t since_nsec; /* the first of the n below */
	unsigned n;	     /* within WAKES_WITHIN_NSEC */
};

/* Brackets each call: wakes_begin() returns the start time for wakes_end(), which returns true once: when the
   client has become costly. */
uint64_t wakes_begin(void);
bool wakes_end(struct wakes *wakes, uint64_t since_nsec);

static inline bool wakes_is_costly(const struct wakes *wakes)
{
	return wakes->n >= WAKES_MAX;
}

#endif
