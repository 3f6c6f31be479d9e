/*
 * The profile that a program asks for: struct dsaio_profile, in which zero means inherited.
 */
#ifndef DSAIO_CLIENT_LIB_API_PROFILE_H
#define DSAIO_CLIENT_LIB_API_PROFILE_H

#include "client/lib/dsaio.h"
#include "proto/profile.h"

/* given: NULL: all is inherited.  Numbers are checked by the daemon.  Returns 0, -EINVAL or -E2BIG, with a message. */
int asked_profile_read(const char *function, const struct dsaio_profile *given,
		       struct partial_profile *ret_profile);

/* Fills in a struct that the program has set the size of.  Returns 0 or -EINVAL, with a message. */
int asked_profile_write(const char *function, const struct partial_profile *profile,
			struct dsaio_profile *ret_given);

#endif
