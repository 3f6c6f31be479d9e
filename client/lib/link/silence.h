/*
 * Silence: when does a daemon that does not answer count as stopped?
 *
 * After half of the limit without a word it is asked for a sign of life.  When the other half has
 * passed without an answer, it is silent.  A broken connection cannot ask: there it is silent when
 * the whole limit has passed without its end of file.  A silent session stays silent: the limit is
 * waited for once in a session.  conn_replace() resets all fields but the limit.
 *
 * All fields are under conn->lock.
 */
#ifndef DSAIO_CLIENT_LIB_LINK_SILENCE_H
#define DSAIO_CLIENT_LIB_LINK_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

struct silence {
	uint32_t limit_msec;
	uint64_t heard_nsec; /* when the last reply came; 0: none yet */
	uint64_t asked_nsec; /* when it was asked after that; 0: it was not */
	bool is_silent;
};

/* A reply came. */
void silence_heard(struct silence *silence, uint64_t now_nsec);

/*
 * How long a wait that began then may go on before it has to call this again, in milliseconds; 0: the
 * daemon is silent.  ret_must_ask: NULL if the connection cannot ask; else set to whether the caller
 * has to ask now.
 */
int silence_left(struct silence *silence, uint64_t began_nsec, uint64_t now_nsec,
		 bool *ret_must_ask);

#endif
