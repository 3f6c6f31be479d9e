#include "daemon/object/mode_lock.h"

#include "proto/util/cleanup.h"

#include <assert.h>
#include <stddef.h>

static bool mode_lock_is_idle(const struct mode_lock *mode_lock)
{
	return !mode_lock->n_busy && !mode_lock->n_reserved;
}

bool mode_lock_is_open(const struct mode_lock *mode_lock, enum write_mode kind, uint64_t now_nsec)
{
	if (mode_lock_is_idle(mode_lock))
		return !mode_lock->waiting.first;
	return mode_lock->kind == kind && (!mode_lock->waiting.first ||
					   now_nsec - mode_lock->since_nsec < MODE_LOCK_SLICE_NSEC);
}

void mode_lock_start(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		     enum write_mode kind)
{
	assert(mode_lock_is_idle(mode_lock) || mode_lock->kind == kind);
	mode_lock->kind = kind;
	mode_lock->n_busy++;
	if (waiter->is_reserved)
		mode_lock_unreserve(mode_lock, waiter);
}

void mode_lock_end(struct mode_lock *mode_lock)
{
	assert(mode_lock->n_busy);
	mode_lock->n_busy--;
}

void mode_lock_unreserve(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter)
{
	assert(mode_lock->n_reserved && waiter->is_reserved);
	mode_lock->n_reserved--;
	waiter->is_reserved = false;
}

void mode_lock_wait(struct mode_lock *mode_lock, struct mode_lock_waiter *waiter,
		    enum write_mode kind)
{
	waiter->mode = (uint8_t)kind;
	list_push(&mode_lock->waiting, &waiter->node);
}

void mode_lock_switch(struct mode_lock *mode_lock, uint64_t now_nsec,
		      void (*on_admitted)(struct mode_lock_waiter *waiter, void *arg), void *arg)
{
	struct list all = mode_lock->waiting;

	if (!mode_lock_is_idle(mode_lock) || !all.first)
		return;
	mode_lock->kind = list_entry(all.first, struct mode_lock_waiter, node)->mode;
	mode_lock->since_nsec = now_nsec;
	mode_lock->waiting = (struct list){ 0 };
	LIST_EACH(struct mode_lock_waiter, waiter, &all, node) {
		if (waiter->mode != mode_lock->kind) {
			list_push(&mode_lock->waiting, &waiter->node);
			continue;
		}
		mode_lock->n_reserved++;
		waiter->is_reserved = true;
		on_admitted(waiter, arg);
	}
}
