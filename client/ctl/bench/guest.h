/*
 * A bench as a guest of the daemon: it asks what the bench's stores serve, and refuses to begin while
 * others use them (--exclusive).  The daemon excludes nobody later; place.h says how a point shows it.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_GUEST_H
#define DSAIO_CLIENT_CTL_BENCH_GUEST_H

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/ctl.h"
#include "proto/profile.h"

/* The work of the stores for all clients: bytes, device requests, and their time in flight. */
struct bench_work {
	uint64_t bytes, blocks, blocks_nsec;
};

/* The part of a profile that a store grants, and the measured means: while other clients are active,
   blocks may be smaller, and fewer of them in flight. */
struct bench_served {
	uint32_t block_size, queue_depth; /* granted */
	double mean_block, mean_depth;	  /* of all on the stores meanwhile; 0: not known */
};

struct bench_guest {
	struct ctl *ctl;
	const struct bench_place *places; /* borrowed */
	unsigned n_places;
	char daemon_version[64]; /* "0.1.0" */
	/* As of the last look: */
	struct bench_work all,
		work;	    /* of the stores: since the daemon's start, and since the look before */
	unsigned n_clients; /* other clients of the stores */
	bool is_admin;	    /* the user may set profiles */
	char cufile
		[128]; /* how cuFile moves bytes: "cuFile 1.17 with nvidia-fs 2.24"; "": not known */
};

/*
 * Connects, finds the store of each place (filled in), which is that of folder i, and looks.
 * Returns CTL_OK or CTL_FAILED (reported).
 */
int bench_guest_start(struct ctl *ctl, const char *const *folders, struct bench_place *places,
		      unsigned n_places, struct bench_guest *ret_guest);

/*
 * --exclusive: refuses if the stores have clients, or if the places' devices are busy.  Takes a
 * quarter of a second.  CTL_OK or CTL_FAILED (reported).
 */
int bench_guest_check_alone(const struct bench_guest *guest);

/* CTL_OK or CTL_FAILED (reported). */
int bench_guest_look(struct bench_guest *guest);

/*
 * Asks the first place's store.  All fields are 0 if the daemon returns an error, which dsaio_error() has; a point with
 * that profile then fails with the same error.
 */
struct bench_served bench_guest_served(const struct bench_guest *guest,
				       const struct profile *profile);

#endif
