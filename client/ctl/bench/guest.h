/*
 * A bench as a guest of the daemon.  It measures the traffic of other clients and programs on the
 * bench's stores and disks, checks for it (--exclusive), and asks how much of a profile a store serves.
 *
 * The traffic of other clients is the growth of the stores' counters less the bench's own bytes.
 * Names are known of clients of the same user; administrators see all names.  The traffic of
 * programs without the daemon is the growth of the disk's counters less all that the daemon moved
 * (disks.h).
 *
 * The daemon does not exclude other clients.  --exclusive refuses to begin while a store has other
 * clients or a disk is busy.  It checks again after each point, and a disturbed point's row names the
 * clients.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_GUEST_H
#define DSAIO_CLIENT_CTL_BENCH_GUEST_H

#include "client/ctl/bench/disks.h"
#include "client/ctl/bench/place.h"
#include "client/ctl/ui/ctl.h"
#include "proto/profile.h"

#define BENCH_NAMES_BYTES 512u

struct bench_guest;

/* The bench's own traffic since the last look. */
struct bench_own {
	uint64_t bytes, ops;  /* by the daemon */
	uint64_t past_bytes;  /* direct reads without the daemon */
	unsigned n_processes; /* that have files on the stores */
	bool is_unaligned;    /* transfers are no multiples of 4096: part of them is buffered */
};

/* Foreign traffic between two looks: of other clients, and (excess) of programs without the daemon. */
struct bench_others {
	uint64_t bytes, ops;
	struct bench_moves
		excess; /* since bench_guest_begin(), the kernel's own traffic included */
	bool is_excess_known;
	bool is_shared; /* the excess is more than the kernel's: other programs used the disks */
	/* Sums over all clients and the bench: bytes, device requests, and their time in flight. */
	uint64_t all_bytes, all_blocks, all_blocks_nsec;
	unsigned n_clients;	       /* that have files or channels there now, ours not counted */
	char names[BENCH_NAMES_BYTES]; /* "python3 (pid 12, uid 1000), ..."; "": there are none */
};

/* The part of a profile that a store grants, and the measured means: while other clients are active,
   blocks may be smaller, and fewer of them in flight. */
struct bench_served {
	uint32_t block_size, queue_depth, lanes; /* granted */
	double mean_block, mean_depth;		 /* of all on the stores meanwhile; 0: not known */
};

/*
 * Connects, and finds the store of each place (filled in).
 * Returns CTL_OK or CTL_FAILED (reported).
 */
int bench_guest_start(struct ctl *ctl, struct bench_place *places, unsigned n_places,
		      struct bench_guest **ret_guest);
void bench_guest_free(struct bench_guest *guest);

/*
 * --exclusive: refuses, naming who is there, if the stores have clients or other programs use the
 * disks.  Takes a quarter of a second.  CTL_OK or CTL_FAILED (printed).
 */
int bench_guest_check_alone(struct bench_guest *guest);

/* The disks are watched from here on: right before the transfers that the next look is about. */
void bench_guest_begin(struct bench_guest *guest);

/*
 * Computes the foreign traffic since the last look.
 * Returns CTL_OK or CTL_FAILED (printed).
 */
int bench_guest_look(struct bench_guest *guest, const struct bench_own *own,
		     struct bench_others *ret_others);

bool bench_others_disturb(const struct bench_others *others);

/* All looks of a run. */
struct bench_total {
	uint64_t own_bytes, others_bytes;
	char names[BENCH_NAMES_BYTES]; /* of the last client that did something */
	struct bench_moves excess;     /* of the intervals in which it is known */
	bool is_shared;		       /* in an interval, or by the sum of many small ones */
	unsigned n_unknown;
};
void bench_total_add(struct bench_total *total, uint64_t own_bytes,
		     const struct bench_others *others);
/* Prints the other users of stores and disks, or that there were none, or what is not known. */
void bench_guest_report(const struct bench_guest *guest, const struct bench_total *total);

/* Asks the first place's store.  CTL_OK or CTL_FAILED, and then the sentence in text (of size). */
int bench_guest_ask_served(struct bench_guest *guest, const struct profile *profile,
			   struct bench_served *ret_served, char *text, size_t size);

/* "0.1.0" */
const char *bench_guest_daemon_version(const struct bench_guest *guest);

/* How the daemon's cuFile moves bytes: "cuFile 1.17 with nvidia-fs 2.24".  As of the last look; "": not known. */
const char *bench_guest_cufile(const struct bench_guest *guest);

/* May the user set profiles there?  As of the last look. */
bool bench_guest_is_admin(const struct bench_guest *guest);

#endif
