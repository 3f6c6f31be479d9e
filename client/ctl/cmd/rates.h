/*
 * How fast stores and clients are: the difference of two replies to Status.
 *
 * A counter only grows as long as its object is there: a store's until the daemon ends, a channel's until it is
 * closed.  A client's counters are those of its channels, so these are compared one by one, by their ids.  An object
 * that the earlier reply lacks, or whose counter is smaller now, counts from 0.  Replies of two daemons have no
 * difference.  Pure functions.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_RATES_H
#define DSAIO_CLIENT_CTL_CMD_RATES_H

#include "proto/dsaio.pb-c.h"

#include <stdint.h>

struct json_object;

struct rates {
	uint64_t nsec; /* between both replies; 0: not known, and the next four neither */
	uint64_t read_bytes, write_bytes, ops, errors; /* of that time */
	/* For the ops that ended in that time, or, where the daemon counts none by latency (a channel's, an older
	   daemon's), since the object is there; the slowest channel's of a client; 0: none has ended. */
	uint64_t p99_nsec;
	uint64_t all_errors; /* since the object is there */
	uint64_t open_ops;   /* now */
};

/* before: NULL: there is no earlier reply.  The store and the client are of now. */
struct rates rates_of_store(const Wire__StatusReply *before, const Wire__StatusReply *now,
			    const Wire__Store *store);
struct rates rates_of_client(const Wire__StatusReply *before, const Wire__StatusReply *now,
			     const Wire__Client *client);

/* A number of that time as one for each second; 0 if that is not known. */
double rates_per_sec(const struct rates *rates, uint64_t number);

/* NULL: they are not known. */
struct json_object *rates_json(const struct rates *rates);

#endif
