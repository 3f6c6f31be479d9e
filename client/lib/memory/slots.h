/*
 * Slots: bounce buffers, through which private memory is copied.
 *
 * They are cut from slabs of a few MiB (buffers_own_new()).  Slabs are taken from the daemon's pool one by one as they
 * are needed, at most SLOTS_SLABS_MAX of them.  They are kept until dsaio_alloc() finds the pool empty.  A
 * slot is a power of two of units of one slab, and starts at a multiple of its own size there.
 *
 * Slots are filled and emptied by pwrite(2) and pread(2) on the slab's memfd,
 * so that a wrong address of the program's is -EFAULT and never a signal.  (Copies of 4 KiB took
 * half the time of process_vm_readv() and writev() where this was measured, those of 1 MiB 0.6 to
 * 0.9 of it.)  Where pwrite(2) would exceed the program's RLIMIT_FSIZE, and so raise a signal, and
 * on hugetlbfs, which has no write(2), the slot is filled by process_vm_readv().
 *
 * Shares.  The slots in use are counted for each store.  With an op's further pieces a store may use as
 * much as remains free, with an op's first piece twice as much.  A store that uses nothing gets the
 * smallest slot in any case.  So a store that hangs holds at most two thirds of the memory, a second
 * one two thirds of the rest, and a store that works finds some.
 *
 * A thread that holds slots never waits for others.  It can wait for a first slot, in the order of the
 * store's waiters.  Further slots are taken only if they are free, and leave memory for first ones.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_SLOTS_H
#define DSAIO_CLIENT_LIB_MEMORY_SLOTS_H

#include "client/lib/memory/buffer.h"

#define SLOT_UNIT (64u << 10)	    /* the smallest slot, and the largest alignment of a file */
#define SLOT_BYTES_MAX (1u << 20)   /* a good block; the copy of one overlaps the I/O of others */
#define SLOTS_SLAB_BYTES (4u << 20) /* 64 units: a word of bits */
#define SLOTS_SLABS_MAX 8u	    /* a guess: 2 GB/s for 16 ms */

struct slots_slab {
	struct mapped_slab *mapped;
	_Atomic bool is_registered; /* gpu_copy.c's, relaxed: with libcuda, or refused there */
	unsigned n_units;	    /* 0: there is no slab here */
	uint64_t used;		    /* a bit for each unit */
};

/* A store's part of the slots; it exists while ops use it. */
struct slots_share {
	struct slots *slots;
	uint32_t store;

	/* slots.lock */
	unsigned n_refs, n_units; /* in use */
	struct list waiters;
	struct list_node node;

	/* the library's thread's */
	unsigned n_pieces; /* its own, with slots */
	uint64_t refused;  /* the round in which there was no slot */
};

struct slots {
	struct buffers *buffers;	      /* of the client; and its link */
	void (*on_room)(struct slots *slots); /* wakes the thread that takes and does not wait */
	void (*on_unmap)(struct slots *slots, void *map); /* before a slab is unmapped */
	pthread_mutex_t lock;				  /* of all below */
	struct slots_slab slabs[SLOTS_SLABS_MAX];
	unsigned n_slabs;   /* they may lie anywhere among the places */
	bool is_growing;    /* a thread asks for a slab, without the lock */
	bool is_reserved;   /* the last slab is kept */
	uint64_t full_nsec; /* when the pool last refused a slab; 0: it did not */
	struct list shares;
	bool is_thread_short; /* a thread that does not wait wants on_room() */
};

struct slot {
	struct slots_share *share;
	struct slots_slab *slab; /* NULL: none */
	unsigned unit, n_units;
};

static inline uint64_t slot_bytes(const struct slot *slot)
{
	return (uint64_t)slot->n_units * SLOT_UNIT;
}
static inline uint64_t slot_off(const struct slot *slot) /* in its slab */
{
	return (uint64_t)slot->unit * SLOT_UNIT;
}

/* Its byte at off. */
static inline char *slot_memory(const struct slot *slot, uint64_t off)
{
	return slot->slab->mapped->memory + slot_off(slot) + off;
}

void slots_init(struct slots *slots, struct buffers *buffers, void (*on_room)(struct slots *slots));
/* No slot is taken.  The slabs stay the session's. */
void slots_deinit(struct slots *slots);

/*
 * From now on there is a slab, if a small one can be had: for a client with views, whose shares grow beyond its limit
 * when other clients leave.
 */
void slots_reserve(struct slots *slots);

/* The share of a store, held until slots_share_drop(); NULL: no memory. */
struct slots_share *slots_share_get(struct slots *slots, uint32_t store);
/* No slot of it that the caller has taken is in use.  NULL is fine. */
void slots_share_drop(struct slots_share *share);

/*
 * Takes a slot of `bytes`, or of less where memory is short.  is_further: the caller holds one.
 * Returns 0, -EAGAIN (all is in use; not is_further: on_room() comes when it may have
 * changed), or -ENOMEM or conn_call()'s errors with a message: there is no slab to be had.
 */
int slots_take(struct slots_share *share, uint64_t bytes, bool is_further, struct slot *ret_slot);
/* The same, not is_further, and sleeps until there is one: -ETIMEDOUT, or -ECONNRESET. */
int slots_await(struct slots_share *share, uint64_t bytes, uint64_t deadline_nsec,
		struct slot *ret_slot);
void slots_release(struct slot *slot);

/*
 * Gives slabs back that nobody uses, but not the last one while a share exists or it is reserved; those that the daemon
 * does not have in any case, and only_refused: these alone.  Returns whether there was one.
 */
bool slots_trim(struct slots *slots, bool only_refused);

/* Under the lock. */
unsigned slots_n_free(const struct slots *slots);

/* Copies len bytes at off of the slot.  Returns 0 or a negative errno; *ret_done bytes were copied. */
int slot_fill(const struct slot *slot, uint64_t off, const void *from, uint64_t len,
	      uint64_t *ret_done);
int slot_empty(const struct slot *slot, uint64_t off, void *to, uint64_t len, uint64_t *ret_done);

/* Takes n (a power of two) free bits at a multiple of n; returns the first one's number, or -1. */
int slots_take_bits(uint64_t *used, unsigned n);

#endif
