/*
 * A bench as a guest of the daemon: it asks what the bench's stores serve, and refuses to begin while
 * others use them (--exclusive).  The daemon excludes nobody later; place.h says how a point shows it.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_GUEST_H
#define DSAIO_CLIENT_CTL_BENCH_GUEST_H

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/ctl.h"
#include "proto/profile.h"

struct bench_guest;

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

/*
 * Connects, and finds the store of each place (filled in), which is that of folder i.
 * Returns CTL_OK or CTL_FAILED (reported).
 */
int bench_guest_start(struct ctl *ctl, const char *const *folders, struct bench_place *places,
		      unsigned n_places, struct bench_guest **ret_guest);
void bench_guest_free(struct bench_guest *guest);

/*
 * --exclusive: refuses if the stores have clients, or if the places' devices are busy.  Takes a
 * quarter of a second.  CTL_OK or CTL_FAILED (reported).
 */
int bench_guest_check_alone(struct bench_guest *guest, const struct bench_place *places,
			    unsigned n_places);

/* The work since the last look.  CTL_OK or CTL_FAILED (reported). */
int bench_guest_look(struct bench_guest *guest, struct bench_work *ret_work);

/* Asks the first place's store.  CTL_OK or CTL_FAILED, and then the message in text (of size). */
int bench_guest_ask_served(struct bench_guest *guest, const struct profile *profile,
			   struct bench_served *ret_served, char *text, size_t size);

/* "0.1.0" */
const char *bench_guest_daemon_version(const struct bench_guest *guest);

/* How the daemon's cuFile moves bytes: "cuFile 1.17 with nvidia-fs 2.24".  As of the last look; "": not known. */
const char *bench_guest_cufile(const struct bench_guest *guest);

/* May the user set profiles there?  As of the last look. */
bool bench_guest_is_admin(const struct bench_guest *guest);

#endif
