/*
 * When to spin before a sleep: the same for a lane and for a wait of the library's; no protocol.
 *
 * Only where what is waited for lately came within half of the time allowed, in the mean: a spin
 * that just misses costs more than none.  And not where it takes the core from somebody: who was
 * away from it while it spun rests from spinning for a while.
 *
 * Times are the caller's, so one thread's, or under its lock.
 */
#ifndef DSAIO_PROTO_UTIL_SPIN_H
#define DSAIO_PROTO_UTIL_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_MEAN_WEIGHT 8 /* the mean is over about so many waits: a guess */
/*
 * Two looks of a spin that lie further apart: something else had the core, and shall have it for a
 * while.  An interrupt takes less, the scheduler's shortest slice more.
 */
#define SPIN_LOST_NSEC UINT64_C(300000)
#define SPIN_REST_NSEC UINT64_C(100000000)

/*
 * So many small blocks in flight: what ends the wait is mostly a bunch of them, so each pays a small
 * part of a spin that is longer; and the wake-up that it saves holds all of them up.
 */
#define SPIN_MANY 8u
#define SPIN_MANY_TIMES 4
#define SPIN_MANY_BYTES (16u << 10) /* a mean; the device has enough of larger ones queued */

/* A wait has ended: into the mean.  It counts as most_nsec at most: one does not end all spinning. */
static inline void spin_note_wait(uint64_t *mean_nsec, uint64_t nsec, uint64_t most_nsec)
{
	if (nsec > most_nsec)
		nsec = most_nsec;
	*mean_nsec = (*mean_nsec * (SPIN_MEAN_WEIGHT - 1) + nsec) / SPIN_MEAN_WEIGHT;
}

/* A look at now_nsec came due at due_nsec.  Until *rests_until_nsec there is no spinning. */
static inline void spin_note_look(uint64_t *rests_until_nsec, uint64_t due_nsec, uint64_t now_nsec)
{
	if (now_nsec > due_nsec && now_nsec - due_nsec > SPIN_LOST_NSEC)
		*rests_until_nsec = now_nsec + SPIN_REST_NSEC;
}

/* May a wait spin that may do so for at most allowed_nsec (0: never)? */
static inline bool spin_pays(uint64_t mean_nsec, uint64_t rests_until_nsec, uint64_t allowed_nsec,
			     uint64_t now_nsec)
{
	return allowed_nsec && now_nsec >= rests_until_nsec && mean_nsec <= allowed_nsec / 2;
}

/* How long a lane may spin that may do so for allowed_nsec with one block in flight. */
static inline uint64_t spin_among(uint64_t allowed_nsec, uint32_t n_blocks, uint64_t bytes)
{
	bool is_many = n_blocks >= SPIN_MANY && bytes <= (uint64_t)n_blocks * SPIN_MANY_BYTES;

	return is_many ? SPIN_MANY_TIMES * allowed_nsec : allowed_nsec;
}

#endif
