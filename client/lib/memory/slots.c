#include "client/lib/memory/slots.h"

#include "client/lib/base/deadline.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define ASK_AGAIN_NSEC 1000000000u  /* after the pool was empty */
#define LOOK_NSEC 100000000u	    /* interval of looks whether the daemon is gone */
#define RESERVED_BYTES (256u << 10) /* of each client with views */

_Static_assert(SLOTS_SLAB_BYTES / SLOT_UNIT == 64, "a word of bits");

/* A thread without a slot that sleeps for one. */
struct slots_waiter {
	pthread_cond_t cond;
	struct list_node node;
};

void slots_init(struct slots *slots, struct buffers *buffers, void (*on_room)(struct slots *slots))
{
	*slots = (struct slots){ .buffers = buffers, .on_room = on_room };
	(void)pthread_mutex_init(&slots->lock, NULL); /* default attributes: cannot fail */
}

static uint64_t bits(unsigned n)
{
	return n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
}

/* The daemon does not have it. */
static bool is_refused(const struct slots_slab *slab)
{
	return atomic_load(&slab->mapped->slab.error);
}

unsigned slots_n_free(const struct slots *slots)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SLOTS_SLABS_MAX; i++)
		if (slots->slabs[i].n_units && !is_refused(&slots->slabs[i]))
			n += 64 - (unsigned)__builtin_popcountll(slots->slabs[i].used);
	return n;
}

void slots_deinit(struct slots *slots)
{
	for (unsigned i = 0; i < SLOTS_SLABS_MAX; i++)
		if (slots->slabs[i].n_units)
			slots->on_unmap(slots, slots->slabs[i].mapped->memory);
	(void)pthread_mutex_destroy(&slots->lock);
}

int slots_take_bits(uint64_t *used, unsigned n)
{
	for (unsigned i = 0; i < 64; i += n)
		if (!(*used & bits(n) << i)) {
			*used |= bits(n) << i;
			return (int)i;
		}
	return -1;
}

/* The smallest power of two of units that holds so many bytes, at most SLOT_BYTES_MAX. */
static unsigned units_for(uint64_t bytes)
{
	unsigned n = 1;

	while (n < SLOT_BYTES_MAX / SLOT_UNIT && (uint64_t)n * SLOT_UNIT < bytes)
		n *= 2;
	return n;
}

struct slots_share *slots_share_get(struct slots *slots, uint32_t store)
{
	struct slots_share *share = NULL;
	LOCKED(&slots->lock);

	LIST_EACH(struct slots_share, other, &slots->shares, node)
		if (other->store == store)
			share = other;
	if (!share) {
		share = calloc(1, sizeof(*share));
		if (share) {
			share->slots = slots;
			share->store = store;
			list_push(&slots->shares, &share->node);
		}
	}
	if (share)
		share->n_refs++;
	return share;
}

void slots_share_drop(struct slots_share *share)
{
	struct slots *slots;

	if (!share)
		return;
	slots = share->slots;
	LOCKED(&slots->lock);
	if (--share->n_refs == 0) {
		list_remove(&slots->shares, &share->node);
		free(share);
	}
}

/* See slots.h.  Under the lock. */
static bool is_in_share(const struct slots_share *share, unsigned n, bool is_further)
{
	unsigned n_free = slots_n_free(share->slots), n_used = share->n_units + n;

	if (n_free < n)
		return false;
	if (!share->n_units && n == 1)
		return true;
	return n_used <= (is_further ? 1 : 2) * (n_free - n);
}

/* Under the lock. */
static bool take_units(struct slots_share *share, unsigned n, bool is_further,
		       struct slot *ret_slot)
{
	struct slots *slots = share->slots;

	if (!is_in_share(share, n, is_further))
		return false;
	for (unsigned i = 0; i < SLOTS_SLABS_MAX; i++) {
		struct slots_slab *slab = &slots->slabs[i];
		int unit = -1;

		if (slab->n_units && !is_refused(slab))
			unit = slots_take_bits(&slab->used, n);
		if (unit < 0)
			continue;
		*ret_slot = (struct slot){ share, slab, (unsigned)unit, n };
		share->n_units += n;
		return true;
	}
	return false;
}

/* A client without any slab asks each time.  Under the lock. */
static bool may_grow(const struct slots *slots)
{
	return !slots->is_growing && slots->n_slabs < SLOTS_SLABS_MAX &&
	       (!slots->full_nsec || !slots->n_slabs ||
		clock_nsec() - slots->full_nsec >= ASK_AGAIN_NSEC);
}

/*
 * Asks for a slab; may_be_small: one of any size helps.  Under the lock, which it lets go meanwhile.
 */
static int grow(struct slots *slots, uint64_t bytes, bool may_be_small)
{
	struct slots_slab *slab = slots->slabs;
	struct mapped_slab *mapped;
	int r;

	slots->is_growing = true;
	(void)pthread_mutex_unlock(&slots->lock);
	for (;;) {
		r = buffers_own_new(slots->buffers, bytes, &mapped);
		if (r != -ENOMEM || !may_be_small)
			break;
		if (bytes > SLOT_UNIT)
			bytes /= 4; /* 4 MiB, 1 MiB, 256 KiB, 64 KiB */
		else if (!buffers_trim(slots->buffers))
			break;
	}
	(void)pthread_mutex_lock(&slots->lock);
	slots->is_growing = false;
	if (r == -ESTALE) /* asks the next daemon */
		return 0;
	if (r < 0) {
		slots->full_nsec = clock_nsec();
		return r;
	}
	slots->full_nsec = 0;
	while (slab->n_units) /* there is a place */
		slab++;
	*slab = (struct slots_slab){ .mapped = mapped,
				     .n_units = (unsigned)(bytes / SLOT_UNIT),
				     .used = ~bits((unsigned)(bytes / SLOT_UNIT)) };
	slots->n_slabs++;
	debug_log("private memory: a slab of %s to copy through", SIZE_TEXT(bytes));
	return 0;
}

/* Wakes the first waiter of each store, and the bounce thread.  Under the lock. */
static void wake_next(struct slots *slots)
{
	LIST_EACH(struct slots_share, share, &slots->shares, node)
		if (share->waiters.first)
			(void)pthread_cond_signal(
				&list_entry(share->waiters.first, struct slots_waiter, node)->cond);
	if (slots->is_thread_short) {
		slots->is_thread_short = false;
		slots->on_room(slots);
	}
}

void slots_reserve(struct slots *slots)
{
	LOCKED(&slots->lock);

	slots->is_reserved = true;
	if (!slots->n_slabs && !slots->is_growing) {
		(void)grow(slots, RESERVED_BYTES, true); /* asked again when it is needed */
		wake_next(slots);
	}
}

/* Under the lock. */
static int take(struct slots_share *share, uint64_t bytes, bool is_further, struct slot *ret_slot)
{
	struct slots *slots = share->slots;
	unsigned n = units_for(bytes);

	while (!take_units(share, n, is_further, ret_slot)) {
		int r = -ENOMEM;

		if (may_grow(slots)) {
			r = grow(slots, SLOTS_SLAB_BYTES, !share->n_units && !slots_n_free(slots));
			wake_next(slots); /* whether it grew or not */
			/* The library's thread does not wait for the next daemon. */
			if (r == -ENOTCONN && slots->buffers->conn->on_gone &&
			    !conn_was_lost(slots->buffers->conn))
				return -EAGAIN;
			if (r < 0 && (r != -ENOMEM || !slots->n_slabs))
				return is_further ? -EAGAIN : r;
		}
		if (r < 0)
			n /= 2; /* less, where memory is short */
		if (!n)
			return -EAGAIN;
	}
	return 0;
}

int slots_take(struct slots_share *share, uint64_t bytes, bool is_further, struct slot *ret_slot)
{
	struct slots *slots = share->slots;
	int r;
	LOCKED(&slots->lock);

	r = is_further && share->waiters.first ? -EAGAIN : take(share, bytes, is_further, ret_slot);
	if (r == -EAGAIN && !is_further)
		slots->is_thread_short = true;
	return r;
}

int slots_await(struct slots_share *share, uint64_t bytes, uint64_t deadline_nsec,
		struct slot *ret_slot)
{
	struct slots *slots = share->slots;
	struct slots_waiter waiter = { .cond = PTHREAD_COND_INITIALIZER };
	int r = -EAGAIN;
	LOCKED(&slots->lock);

	if (!share->waiters.first)
		r = take(share, bytes, false, ret_slot);
	if (r == -EAGAIN) {
		list_push(&share->waiters, &waiter.node);
		while (r == -EAGAIN) {
			const uint64_t look = clock_nsec() + LOOK_NSEC;
			const struct timespec until = timespec_of(
				look < deadline_nsec ? look : deadline_nsec);

			(void)pthread_cond_clockwait(&waiter.cond, &slots->lock, CLOCK_MONOTONIC,
						     &until);
			(void)conn_is_gone(slots->buffers->conn);
			if (conn_was_lost(slots->buffers->conn))
				r = -ECONNRESET;
			else if (share->waiters.first == &waiter.node)
				r = take(share, bytes, false, ret_slot);
			if (r == -EAGAIN && deadline_is_over(deadline_nsec))
				r = -ETIMEDOUT;
		}
		list_remove(&share->waiters, &waiter.node);
		(void)pthread_cond_destroy(&waiter.cond);
		wake_next(slots);
	}
	return r;
}

void slots_release(struct slot *slot)
{
	struct slots_share *share = slot->share;
	bool has_refused;

	if (!slot->slab)
		return;
	(void)pthread_mutex_lock(&share->slots->lock);
	slot->slab->used &= ~(bits(slot->n_units) << slot->unit);
	has_refused = is_refused(slot->slab);
	share->n_units -= slot->n_units;
	slot->slab = NULL;
	wake_next(share->slots);
	(void)pthread_mutex_unlock(&share->slots->lock);
	if (has_refused)
		(void)slots_trim(share->slots, true);
}

bool slots_trim(struct slots *slots, bool only_refused)
{
	struct mapped_slab *spare[SLOTS_SLABS_MAX];
	unsigned n = 0;

	(void)pthread_mutex_lock(&slots->lock);
	for (unsigned i = 0; i < SLOTS_SLABS_MAX; i++) {
		struct slots_slab *slab = &slots->slabs[i];

		if (!slab->n_units || slab->used != ~bits(slab->n_units) ||
		    (!is_refused(slab) &&
		     (only_refused ||
		      (slots->n_slabs == 1 && (slots->shares.first || slots->is_reserved)))))
			continue;
		slots->n_slabs--;
		spare[n++] = slab->mapped;
		slab->n_units = 0;
	}
	(void)pthread_mutex_unlock(&slots->lock);
	for (unsigned i = 0; i < n; i++) {
		slots->on_unmap(slots, spare[i]->memory);
		buffers_own_free(slots->buffers, spare[i]);
	}
	return n;
}

/* pwrite(2) to more than the program's RLIMIT_FSIZE, which it may change, is a signal. */
static bool is_beyond_limit(uint64_t end)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur;
}

/* Copies through the mapping of the slab.  A wrong address of the program's is -EFAULT here, too. */
static int fill_mapped(const struct slot *slot, uint64_t off, const void *from, uint64_t len,
		       uint64_t *ret_done)
{
	while (*ret_done < len) {
		struct iovec to = { slot_memory(slot, off + *ret_done), len - *ret_done };
		struct iovec source = { (char *)(uintptr_t)from + *ret_done, to.iov_len };
		ssize_t n = process_vm_readv(getpid(), &to, 1, &source, 1, 0);

		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		*ret_done += (uint64_t)n;
	}
	return 0;
}

static int copy(const struct slot *slot, bool is_fill, uint64_t off, char *memory, uint64_t len,
		uint64_t *ret_done)
{
	*ret_done = 0;
	while (*ret_done < len) {
		const off_t at = (off_t)(slot_off(slot) + off + *ret_done);
		const uint64_t rest = len - *ret_done;
		ssize_t n = is_fill ? pwrite(slot->slab->mapped->fd, memory + *ret_done, rest, at)
				    : pread(slot->slab->mapped->fd, memory + *ret_done, rest, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		*ret_done += (uint64_t)n;
	}
	return 0;
}

int slot_fill(const struct slot *slot, uint64_t off, const void *from, uint64_t len,
	      uint64_t *ret_done)
{
	int r = -EINVAL;

	*ret_done = 0;
	if (!is_beyond_limit(slot_off(slot) + off + len))
		r = copy(slot, true, off, (char *)(uintptr_t)from, len, ret_done);
	/* hugetlbfs has no write(2) */
	return r == -EINVAL ? fill_mapped(slot, off, from, len, ret_done) : r;
}

int slot_empty(const struct slot *slot, uint64_t off, void *to, uint64_t len, uint64_t *ret_done)
{
	return copy(slot, false, off, to, len, ret_done);
}
