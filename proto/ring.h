/*
 * The rings: one channel's memfd, mapped by the client and by the daemon, and the lane board.
 *
 * Each shared word has one writer.  The writer keeps a private copy and never reads the word back.
 * The other side treats the word as hostile: it copies it once, checks the copy, then uses the copy.
 *
 * Release/acquire pairs (writer -> reader, and what the word publishes):
 *   sq_tail    client -> lane     the entries before it
 *   cq_head    client -> lane     the completion slots before it may be written again
 *   cq_tail    lane -> client     the completions before it, and the bytes of these ops
 *   cq_bell    lane -> client     (futex word) cq_tail before it
 *   cq_wait    client -> lane     nothing: a hint, ordered by fences
 *   sq_park    lane -> client     nothing: a hint, ordered by fences
 *   lane_state lane -> client     nothing: a hint, ordered by fences
 *   client_nsec client -> daemon  nothing: only for status, relaxed
 *
 * Five fences (seq_cst) make sleeping safe.  Each stands between a store and a load of one side
 * and has a partner on the other side.  Without any one of them a wake-up is lost
 * (tests/model/ring.pml; `make ring-mutants`):
 *   RING_FENCE_SUBMIT    client: sq_tail | lane_state, sq_park  <-> SLEEP, PARK
 *   RING_FENCE_SLEEP     lane:   lane_state | every sq_tail     <-> SUBMIT
 *   RING_FENCE_PARK      lane:   sq_park | sq_tail              <-> SUBMIT
 *   RING_FENCE_COMPLETE  lane:   cq_tail | cq_wait              <-> WAIT
 *   RING_FENCE_WAIT      client: cq_wait | cq_tail              <-> COMPLETE
 *
 * The functions below are the whole protocol.  Lane, library and tests only call them.
 */
#ifndef DSAIO_PROTO_RING_H
#define DSAIO_PROTO_RING_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x64736972u	     /* "dsir" */
#define LANE_BOARD_MAGIC 0x6473626cu /* "dsbl" */
#define RING_VERSION 1u
#define RING_ENTRIES_MIN 4u
#define RING_ENTRIES_MAX 4096u		/* the deepest profile; each has an op slot */
#define RING_LEN_MAX (INT64_C(1) << 50) /* so that a result can hold errno and bytes done */

enum ring_opcode {
	RING_OP_READ = 1,
	RING_OP_WRITE = 2,
	RING_OP_FSYNC = 3,
	RING_OP_FDATASYNC = 4,
};

/*
 * The feature bits of Hello.  1, 2, 4, 8 and 16 are reserved: builds from before the first release had
 * them for grow_end, for absent fields of a profile, for pages and node of SlabNew, for DeviceImport without
 * FileGpu, and for GpuRates.
 */

/* DeviceImport makes slabs of GPU memory, and FileGpu says whether a file's ops can name them. */
#define RING_FEATURE_DEVICE UINT64_C(32)
/* RING_ENTRY_DSYNC. */
#define RING_FEATURE_DSYNC UINT64_C(64)
/* Wanted ids, SlabAdopt and Recovered: dsaio.proto. */
#define RING_FEATURE_RECOVERY UINT64_C(128)
/* RING_RESULT_UNKNOWN. */
#define RING_FEATURE_UNKNOWN UINT64_C(256)
/* FILE_BOARD_QUIET: the client knows what it has to do then. */
#define RING_FEATURE_QUIET UINT64_C(512)

enum ring_entry_flag {
	RING_ENTRY_DSYNC =
		1, /* a write is on the device at its end, with what its bytes need to be read (RWF_DSYNC) */
};

/* A slot of the submission ring. */
struct ring_entry {
	uint64_t id;	/* the client's own; echoed, never an index */
	uint8_t opcode; /* enum ring_opcode */
	uint8_t flags;	/* bits of enum ring_entry_flag */
	uint8_t zero0[2];
	uint32_t file; /* id from FileAddReply */
	uint64_t off;  /* byte in the file */
	uint64_t len;  /* 0 for syncs */
	uint64_t slab_off;
	uint32_t slab;	       /* id from SlabNewReply; 0 for syncs */
	uint32_t timeout_msec; /* 0: none; else the lane then cancels the op with -ETIMEDOUT */
	/* 0, or (writes only) at least off + len: the write may end beyond the file, and the
	   daemon may extend the file to this length for it and later writes.  A hint: it may be
	   wrong about the file. */
	uint64_t grow_end;
	uint64_t zero1;
};

/* A slot of the completion ring.  result: bytes done, or ring_result_failed(). */
struct ring_completion {
	uint64_t id;
	int64_t result;
};

struct ring_shared {
	/* line 0: the client writes */
	_Alignas(64) _Atomic uint32_t sq_tail;
	_Atomic uint32_t cq_head;
	_Atomic uint64_t cq_wait; /* bit 0 sleeps, bit 1 on the doorbell socket, above: a count */
	/* Time from submission to consumption, summed over all consumed ops; for the client's own
	   rows in status.  0: not reported. */
	_Atomic uint64_t client_nsec;
	uint8_t pad0[40];
	/* line 1: the daemon writes; the last four once, before it sends the memfd */
	_Atomic uint32_t cq_tail;
	_Atomic uint32_t cq_bell; /* the futex word */
	_Atomic uint64_t sq_park; /* odd: the lane reads sq_tail only after the doorbell */
	uint32_t magic;
	uint32_t version;
	uint32_t entries;
	uint8_t pad1[36];
	/* then entries x struct ring_entry, entries x struct ring_completion */
};

struct lane_board {
	_Alignas(64) _Atomic uint64_t lane_state; /* odd: the lane sleeps; new at each change */
	uint32_t magic;
	uint32_t version;
};

static_assert(sizeof(struct ring_entry) == 64, "an entry is one cache line");
static_assert(offsetof(struct ring_entry, file) == 12, "layout");
static_assert(offsetof(struct ring_entry, off) == 16, "layout");
static_assert(offsetof(struct ring_entry, len) == 24, "layout");
static_assert(offsetof(struct ring_entry, slab_off) == 32, "layout");
static_assert(offsetof(struct ring_entry, slab) == 40, "layout");
static_assert(offsetof(struct ring_entry, timeout_msec) == 44, "layout");
static_assert(offsetof(struct ring_entry, grow_end) == 48, "layout");
static_assert(sizeof(struct ring_completion) == 16, "four to a cache line");
static_assert(sizeof(struct ring_shared) == 128, "two cache lines");
static_assert(offsetof(struct ring_shared, cq_head) == 4, "layout");
static_assert(offsetof(struct ring_shared, cq_wait) == 8, "layout");
static_assert(offsetof(struct ring_shared, client_nsec) == 16, "layout");
static_assert(offsetof(struct ring_shared, cq_tail) == 64, "the daemon's line");
static_assert(offsetof(struct ring_shared, cq_bell) == 68, "layout");
static_assert(offsetof(struct ring_shared, sq_park) == 72, "layout");
static_assert(offsetof(struct ring_shared, magic) == 80, "layout");
static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "lock free");

/* Bytes of a channel's memfd. */
static inline size_t ring_bytes(uint32_t entries)
{
	size_t bytes = sizeof(struct ring_shared) +
		       entries * (sizeof(struct ring_entry) + sizeof(struct ring_completion));

	return (bytes + 4095) & ~(size_t)4095;
}

/*
 * A failed op's result contains the errno and the number of bytes done from the op's start, so a
 * program cannot mistake a half-written file for an empty one.
 */
#define RING_ERRNO_BITS 12 /* with RING_RESULT_UNKNOWN */
/* Bit 11 of a failed result: the op was a write whose bytes may still reach the store, at any time until its daemon
   has ended.  Errnos are below it. */
#define RING_RESULT_UNKNOWN (UINT64_C(1) << 11)
#define RING_ERRNO_MASK (RING_RESULT_UNKNOWN - 1)
static inline int64_t ring_result_failed(int error, uint64_t done)
{
	return -(int64_t)(done << RING_ERRNO_BITS | ((uint64_t)error & RING_ERRNO_MASK));
}
static inline int ring_result_errno(int64_t result) /* 0, or a positive errno */
{
	return result < 0 ? (int)((0 - (uint64_t)result) & RING_ERRNO_MASK) : 0;
}
static inline bool ring_result_is_unknown(int64_t result)
{
	return result < 0 && ((0 - (uint64_t)result) & RING_RESULT_UNKNOWN);
}
/* The same result with the flag. */
static inline int64_t ring_result_unknown(int64_t failed)
{
	return -(int64_t)((0 - (uint64_t)failed) | RING_RESULT_UNKNOWN);
}
static inline uint64_t ring_result_done(int64_t result)
{
	return result < 0 ? (0 - (uint64_t)result) >> RING_ERRNO_BITS : (uint64_t)result;
}

/* The page of a byte: the unit of order. */
#define RING_PAGE_BITS 12
static inline uint64_t ring_page(uint64_t off)
{
	return off >> RING_PAGE_BITS;
}

/* README "Submission, order, completion", rule 4: must the later of two ops on one inode wait for
   the earlier? */
static inline bool ring_ops_conflict(uint8_t first, uint64_t first_off, uint64_t first_len,
				     uint8_t then, uint64_t then_off, uint64_t then_len)
{
	if (then == RING_OP_FSYNC || then == RING_OP_FDATASYNC)
		return first == RING_OP_WRITE;
	if (first != RING_OP_WRITE && (then != RING_OP_WRITE || first != RING_OP_READ))
		return false;
	if (!first_len || !then_len)
		return false;
	return ring_page(first_off) <= ring_page(then_off + then_len - 1) &&
	       ring_page(then_off) <= ring_page(first_off + first_len - 1);
}

/* A mutant leaves one fence out; see tests/model/mutants.sh. */
#define RING_MUTANT_SUBMIT 1
#define RING_MUTANT_SLEEP 2
#define RING_MUTANT_PARK 3
#define RING_MUTANT_COMPLETE 4
#define RING_MUTANT_WAIT 5
#ifndef RING_MUTANT
#define RING_MUTANT 0
#endif
#define RING_FENCE_(name)                                          \
	do {                                                       \
		if (RING_MUTANT != RING_MUTANT_##name)             \
			atomic_thread_fence(memory_order_seq_cst); \
	} while (0)
#define RING_FENCE_SUBMIT() RING_FENCE_(SUBMIT)
#define RING_FENCE_SLEEP() RING_FENCE_(SLEEP)
#define RING_FENCE_PARK() RING_FENCE_(PARK)
#define RING_FENCE_COMPLETE() RING_FENCE_(COMPLETE)
#define RING_FENCE_WAIT() RING_FENCE_(WAIT)

/* ---- the client's side: one submitter and one consumer at a time (their locks) ---- */

struct ring_client {
	struct ring_shared *shared;
	struct ring_entry *sq;
	struct ring_completion *cq;
	const struct lane_board *board;
	uint32_t entries; /* a power of two */
	/* under the submit lock */
	uint32_t tail;	    /* private copy of sq_tail */
	uint64_t rung;	    /* the last lane_state that was rung for */
	uint64_t park_rung; /* the last sq_park that was rung for */
	/* under the consumer lock */
	_Atomic uint32_t head; /* copy of cq_head, stored after it; the submitter reads it: acquire,
				  pairs with ring_client_consume() */
	uint64_t wait_count;
	uint64_t nsec; /* private copy of client_nsec */
};

/*
 * Uses mappings of the daemon's memfds.  The client trusts them no further than these checks.
 * Returns 0, or -EPROTO if magic, version or entries differ from the promised ones.
 */
static inline int ring_client_init(struct ring_client *ring, void *map, const void *board,
				   uint32_t entries)
{
	struct ring_shared *shared = map;
	const struct lane_board *b = board;

	if (shared->magic != RING_MAGIC || shared->version != RING_VERSION ||
	    shared->entries != entries || entries < RING_ENTRIES_MIN ||
	    entries > RING_ENTRIES_MAX || (entries & (entries - 1)) ||
	    b->magic != LANE_BOARD_MAGIC || b->version != RING_VERSION)
		return -EPROTO;
	ring->shared = shared;
	ring->sq = (struct ring_entry *)(shared + 1);
	ring->cq = (struct ring_completion *)(ring->sq + entries);
	ring->board = b;
	ring->entries = entries;
	ring->tail = 0;
	ring->rung = 0;
	ring->park_rung = 0;
	atomic_init(&ring->head, 0);
	ring->wait_count = 0;
	ring->nsec = 0;
	return 0;
}

/* The number of entries that can be put now. */
static inline uint32_t ring_client_room(const struct ring_client *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

	return ring->entries - (ring->tail - head);
}

/* Writes one entry behind the tail; there must be room.  The lane does not see it yet. */
static inline void ring_client_put(struct ring_client *ring, const struct ring_entry *entry)
{
	uint64_t words[8];
	_Atomic uint64_t *slot = (_Atomic uint64_t *)&ring->sq[ring->tail & (ring->entries - 1)];

	__builtin_memcpy(words, entry, sizeof(words));
	for (unsigned i = 0; i < 8; i++) /* relaxed: sq_tail's release orders them */
		atomic_store_explicit(&slot[i], words[i], memory_order_relaxed);
	ring->tail++;
}

/* Publishes all entries that were put.  True: the caller must ring the lane's doorbell. */
static inline bool ring_client_submit(struct ring_client *ring)
{
	uint64_t state, park;
	bool must_ring = false;

	atomic_store_explicit(&ring->shared->sq_tail, ring->tail, memory_order_release);
	RING_FENCE_SUBMIT();
	state = atomic_load_explicit(&ring->board->lane_state, memory_order_relaxed);
	park = atomic_load_explicit(&ring->shared->sq_park, memory_order_relaxed);
	if ((state & 1) && state != ring->rung) {
		ring->rung = state;
		must_ring = true;
	}
	if ((park & 1) && park != ring->park_rung) {
		ring->park_rung = park;
		must_ring = true;
	}
	return must_ring;
}

/* The number of completions that can be consumed.  More than entries: the daemon is broken. */
static inline uint32_t ring_client_ready(const struct ring_client *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* ours */

	return atomic_load_explicit(&ring->shared->cq_tail, memory_order_acquire) - head;
}

/* Completion i of those. */
static inline struct ring_completion ring_client_peek(const struct ring_client *ring, uint32_t i)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* ours */
	_Atomic uint64_t *slot = (_Atomic uint64_t *)&ring->cq[(head + i) & (ring->entries - 1)];

	return (struct ring_completion){
		.id = atomic_load_explicit(&slot[0], memory_order_relaxed), /* cq_tail orders */
		.result = (int64_t)atomic_load_explicit(&slot[1], memory_order_relaxed),
	};
}

/* Adds the time that the ops being consumed have spent in the daemon. */
static inline void ring_client_add_time(struct ring_client *ring, uint64_t nsec)
{
	ring->nsec += nsec;
	/* relaxed: only for display, on a line that ring_client_consume() writes anyway */
	atomic_store_explicit(&ring->shared->client_nsec, ring->nsec, memory_order_relaxed);
}

/* Returns n slots.  The op slots already have their results. */
static inline void ring_client_consume(struct ring_client *ring, uint32_t n)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed) + n; /* ours */

	/* In this order: a submitter that sees room in head may submit, and the lane then reads
	   cq_head. */
	atomic_store_explicit(&ring->shared->cq_head, head, memory_order_release);
	atomic_store_explicit(&ring->head, head, memory_order_release);
}

/* The value to sleep on: read before ring_client_arm(). */
static inline uint32_t ring_client_bell(const struct ring_client *ring)
{
	return atomic_load_explicit(&ring->shared->cq_bell, memory_order_acquire);
}

/*
 * Announces a sleep on the futex word (ring_client_bell()) or on the doorbell socket.  False:
 * completions have arrived meanwhile, do not sleep.
 */
static inline bool ring_client_arm(struct ring_client *ring, bool on_socket)
{
	ring->wait_count++;
	atomic_store_explicit(&ring->shared->cq_wait, ring->wait_count << 2 | (on_socket ? 3u : 1u),
			      memory_order_release);
	RING_FENCE_WAIT();
	return ring_client_ready(ring) == 0;
}

static inline void ring_client_disarm(struct ring_client *ring)
{
	ring->wait_count++;
	atomic_store_explicit(&ring->shared->cq_wait, ring->wait_count << 2, memory_order_release);
}

/* ---- the lane's side: the channel's lane alone ---- */

struct ring_lane {
	struct ring_shared *shared;
	const struct ring_entry *sq;
	struct ring_completion *cq;
	uint32_t entries;
	uint32_t taken;	    /* entries copied */
	uint32_t cq_tail;   /* completions written */
	uint32_t published; /* completions published: private copy of shared cq_tail */
	uint32_t cq_head;   /* the last valid value read */
	uint32_t bell;	    /* private copy of cq_bell */
	uint64_t woken;	    /* the last cq_wait that was answered */
	uint64_t park;	    /* private copy of sq_park */
};

/* Lays out a fresh, zeroed memfd of ring_bytes(entries). */
static inline void ring_lane_init(struct ring_lane *ring, void *map, uint32_t entries)
{
	struct ring_shared *shared = map;

	shared->magic = RING_MAGIC;
	shared->version = RING_VERSION;
	shared->entries = entries;
	*ring = (struct ring_lane){ .shared = shared, .entries = entries };
	ring->sq = (const struct ring_entry *)(shared + 1);
	ring->cq = (struct ring_completion *)(uintptr_t)(ring->sq + entries);
}

/* The time that the client reports; not trustworthy.  Any thread of the daemon. */
static inline uint64_t ring_lane_client_nsec(const struct ring_lane *ring)
{
	return atomic_load_explicit(&ring->shared->client_nsec, memory_order_relaxed);
}

/* True if sq_tail has moved.  For the check between announcing a sleep and sleeping. */
static inline bool ring_lane_has_entries(const struct ring_lane *ring)
{
	return atomic_load_explicit(&ring->shared->sq_tail, memory_order_acquire) != ring->taken;
}

/*
 * Parks a quiet channel: announces that the lane does not read sq_tail until the doorbell rings.
 * RING_FENCE_PARK() must follow, once for all channels parked in this turn.  After it the lane
 * calls ring_lane_has_entries(), and ring_lane_unpark() if that is true.
 */
static inline void ring_lane_park(struct ring_lane *ring)
{
	assert(!(ring->park & 1));
	atomic_store_explicit(&ring->shared->sq_park, ++ring->park, memory_order_release);
}

static inline bool ring_lane_is_parked(const struct ring_lane *ring)
{
	return ring->park & 1;
}

/* The doorbell rang, or there is another reason to read sq_tail in the next turn.  No fence. */
static inline void ring_lane_unpark(struct ring_lane *ring)
{
	assert(ring->park & 1);
	atomic_store_explicit(&ring->shared->sq_park, ++ring->park, memory_order_release);
}

/*
 * The number of entries that can be taken; -EPROTO if the client's positions are invalid (they are
 * compared, never used).
 */
static inline int ring_lane_ready(struct ring_lane *ring)
{
	uint32_t tail = atomic_load_explicit(&ring->shared->sq_tail, memory_order_acquire);
	uint32_t head;

	if (tail == ring->taken)
		return 0;
	head = atomic_load_explicit(&ring->shared->cq_head, memory_order_acquire);
	if (tail - ring->taken > ring->entries || tail - head > ring->entries ||
	    head - ring->cq_head > ring->published - ring->cq_head)
		return -EPROTO;
	ring->cq_head = head;
	return (int)(tail - ring->taken);
}

/* Copies the next entry, once. */
static inline void ring_lane_take(struct ring_lane *ring, struct ring_entry *ret_entry)
{
	uint64_t words[8];
	_Atomic uint64_t *slot =
		(_Atomic uint64_t *)(uintptr_t)&ring->sq[ring->taken & (ring->entries - 1)];

	for (unsigned i = 0; i < 8; i++) /* relaxed: sq_tail's acquire orders them */
		words[i] = atomic_load_explicit(&slot[i], memory_order_relaxed);
	__builtin_memcpy(ret_entry, words, sizeof(words));
	ring->taken++;
}

/* Writes one completion without publishing it.  There is room: one slot for each entry taken. */
static inline void ring_lane_complete(struct ring_lane *ring, uint64_t id, int64_t result)
{
	_Atomic uint64_t *slot = (_Atomic uint64_t *)&ring->cq[ring->cq_tail & (ring->entries - 1)];

	atomic_store_explicit(&slot[0], id, memory_order_relaxed); /* cq_tail's release orders */
	atomic_store_explicit(&slot[1], (uint64_t)result, memory_order_relaxed);
	ring->cq_tail++;
}

/* Publishes the completions; true if there was any.  RING_FENCE_COMPLETE() must follow. */
static inline bool ring_lane_publish(struct ring_lane *ring)
{
	if (ring->cq_tail == ring->published)
		return false;
	ring->published = ring->cq_tail;
	atomic_store_explicit(&ring->shared->cq_tail, ring->cq_tail, memory_order_release);
	return true;
}

enum ring_wake { RING_WAKE_NONE, RING_WAKE_FUTEX, RING_WAKE_SOCKET };

/*
 * After the fence: how to wake the client.  RING_WAKE_FUTEX: cq_bell has changed, call futex_wake()
 * on it.  RING_WAKE_SOCKET: send one byte on the handle's doorbell socket.
 */
static inline enum ring_wake ring_lane_wake(struct ring_lane *ring)
{
	uint64_t wait = atomic_load_explicit(&ring->shared->cq_wait, memory_order_relaxed);

	if (!(wait & 1) || wait == ring->woken)
		return RING_WAKE_NONE;
	ring->woken = wait;
	if (wait & 2)
		return RING_WAKE_SOCKET;
	atomic_store_explicit(&ring->shared->cq_bell, ++ring->bell, memory_order_release);
	return RING_WAKE_FUTEX;
}

/* state: the lane's private copy.  Odd: announces sleep; RING_FENCE_SLEEP() must follow. */
static inline void lane_board_set(struct lane_board *board, uint64_t state)
{
	atomic_store_explicit(&board->lane_state, state, memory_order_release);
}

#endif
