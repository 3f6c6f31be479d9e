/*
 * A bench as a guest of the daemon: how busy its stores were with others meanwhile, whether it has
 * them for itself (--exclusive), what they serve of a profile.
 *
 * Others' work is what the stores' counters grew by, less what the bench itself moved; who they
 * are is known of clients of the same user, or, to administrators, of all.
 *
 * Nothing keeps the others away: --exclusive refuses to begin while a store has other clients, and
 * looks again behind each point, which then says by whom it was disturbed.
 */
#ifndef DSAIO_CTL_BENCH_GUEST_H
#define DSAIO_CTL_BENCH_GUEST_H

#include "client/ctl/bench_place.h"
#include "client/ctl/ctl.h"
#include "proto/profile.h"

#define BENCH_NAMES_BYTES 512u

struct bench_guest;

/* What others did on the stores between two looks. */
struct bench_others {
	uint64_t bytes, ops;
	/* Of all, ours too: bytes, requests to the device, and how many in flight, over time. */
	uint64_t all_bytes, all_blocks, all_blocks_nsec;
	unsigned n_clients;	       /* that have files or channels there now, ours not counted */
	char names[BENCH_NAMES_BYTES]; /* "python3 (pid 12, uid 1000), ..."; "": nobody's */
};

/* What a store serves of a profile; and what it did: among others blocks may be smaller, and fewer
   of them in flight. */
struct bench_served {
	uint32_t block_size, queue_depth, lanes; /* granted */
	double mean_block, mean_depth;		 /* of all on the stores meanwhile; 0: not known */
};

/*
 * Connects, and finds the store of each place (filled in).
 * Returns CTL_OK or CTL_FAILED (told).
 */
int bench_guest_start(struct ctl *ctl, struct bench_place *places, unsigned n_places,
		      struct bench_guest **ret_guest);
void bench_guest_free(struct bench_guest *guest);

/* --exclusive: refuses, naming who is there, if the stores have clients.  CTL_OK or CTL_FAILED. */
int bench_guest_check_alone(struct bench_guest *guest);

/*
 * Looks.  What others did since the last look goes to *ret_others; own_bytes and own_ops: what the
 * bench itself did since then, n_own: how many of its processes have files there.
 * Returns CTL_OK or CTL_FAILED (told).
 */
int bench_guest_look(struct bench_guest *guest, uint64_t own_bytes, uint64_t own_ops,
		     unsigned n_own, struct bench_others *ret_others);

/* Asks the first place's store.  CTL_OK or CTL_FAILED, and then the sentence in text (of size). */
int bench_guest_ask_served(struct bench_guest *guest, const struct profile *profile,
			   struct bench_served *ret_served, char *text, size_t size);

/* "0.1.0" */
const char *bench_guest_daemon_version(const struct bench_guest *guest);

/* May the user set profiles there?  As of the last look. */
bool bench_guest_is_admin(const struct bench_guest *guest);

#endif
