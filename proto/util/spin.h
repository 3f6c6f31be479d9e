/*
 * The decision to spin or to sleep.  Lanes and the library's waits share it.
 *
 * A spin pays only if recent waits took at most half of the allowed time on average: a spin that
 * just misses costs more than none.  It does not pay while it takes the core from another thread: a
 * thread that lost its core while it was spinning does not spin for a while.
 *
 * The caller passes in all times and owns the state, so it is used by one thread or under one lock.
 */
#ifndef DSAIO_PROTO_UTIL_SPIN_H
#define DSAIO_PROTO_UTIL_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_MEAN_WEIGHT 8 /* the mean covers about this many waits: a guess */
/*
 * If two polls of a spin are further apart, another thread has used the core, and the spin leaves it
 * the core for SPIN_REST_NSEC.  An interrupt takes less, the scheduler's shortest slice more.
 */
#define SPIN_LOST_NSEC UINT64_C(300000)
#define SPIN_REST_NSEC UINT64_C(100000000)

/* Adds a wait to the mean.  It counts as at most most_nsec, so a single one does not end all spinning. */
static inline void spin_note_wait(uint64_t *mean_nsec, uint64_t nsec, uint64_t most_nsec)
{
	if (nsec > most_nsec)
		nsec = most_nsec;
	*mean_nsec = (*mean_nsec * (SPIN_MEAN_WEIGHT - 1) + nsec) / SPIN_MEAN_WEIGHT;
}

/* A poll was due at due_nsec and ran at now_nsec.  There is no spinning until *rests_until_nsec. */
static inline void spin_note_look(uint64_t *rests_until_nsec, uint64_t due_nsec, uint64_t now_nsec)
{
	if (now_nsec > due_nsec && now_nsec - due_nsec > SPIN_LOST_NSEC)
		*rests_until_nsec = now_nsec + SPIN_REST_NSEC;
}

/* May this wait spin, if it is allowed at most allowed_nsec (0: never)? */
static inline bool spin_pays(uint64_t mean_nsec, uint64_t rests_until_nsec, uint64_t allowed_nsec,
			     uint64_t now_nsec)
{
	return allowed_nsec && now_nsec >= rests_until_nsec && mean_nsec <= allowed_nsec / 2;
}

#endif
