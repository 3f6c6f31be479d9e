#include "daemon/object/mode_lock.h"

#include "daemon/lane/op.h"

#include <assert.h>
#include <stddef.h>

void op_list_push(struct op_list *list, struct op *op)
{
	op->next = NULL;
	op->prev = list->last;
	if (list->last)
		list->last->next = op;
	else
		list->first = op;
	list->last = op;
}

void op_list_push_front(struct op_list *list, struct op *op)
{
	op->next = list->first;
	op->prev = NULL;
	if (list->first)
		list->first->prev = op;
	else
		list->last = op;
	list->first = op;
}

void op_list_remove(struct op_list *list, struct op *op)
{
	if (op->prev)
		op->prev->next = op->next;
	else
		list->first = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		list->last = op->prev;
}

static bool mode_lock_is_idle(const struct mode_lock *mode_lock)
{
	return !mode_lock->n_busy && !mode_lock->n_promised;
}

bool mode_lock_is_open(const struct mode_lock *mode_lock, enum write_mode kind, uint64_t now_nsec)
{
	if (mode_lock_is_idle(mode_lock))
		return !mode_lock->waiting.first;
	return mode_lock->kind == kind && (!mode_lock->waiting.first ||
					   now_nsec - mode_lock->since_nsec < MODE_LOCK_SLICE_NSEC);
}

void mode_lock_start(struct mode_lock *mode_lock, enum write_mode kind, bool is_promised)
{
	assert(mode_lock_is_idle(mode_lock) || mode_lock->kind == kind);
	mode_lock->kind = kind;
	mode_lock->n_busy++;
	if (is_promised)
		mode_lock_unpromise(mode_lock);
}

void mode_lock_end(struct mode_lock *mode_lock)
{
	assert(mode_lock->n_busy);
	mode_lock->n_busy--;
}

void mode_lock_unpromise(struct mode_lock *mode_lock)
{
	assert(mode_lock->n_promised);
	mode_lock->n_promised--;
}

void mode_lock_turn(struct mode_lock *mode_lock, uint64_t now_nsec,
		    void (*let_in)(struct op *op, void *arg), void *arg)
{
	struct op_list all = mode_lock->waiting;

	if (!mode_lock_is_idle(mode_lock) || !all.first)
		return;
	mode_lock->kind = op_write_mode(all.first);
	mode_lock->since_nsec = now_nsec;
	mode_lock->waiting = (struct op_list){ 0 };
	for (struct op *op = all.first, *next; op; op = next) {
		next = op->next;
		if (op_write_mode(op) != mode_lock->kind) {
			op_list_push(&mode_lock->waiting, op);
			continue;
		}
		mode_lock->n_promised++;
		op->is_promised = true;
		let_in(op, arg);
	}
}
