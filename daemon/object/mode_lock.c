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

static bool gate_is_idle(const struct gate *gate)
{
	return !gate->n_busy && !gate->n_promised;
}

bool gate_is_open(const struct gate *gate, enum gate_kind kind, uint64_t now_nsec)
{
	if (gate_is_idle(gate))
		return !gate->waiting.first;
	return gate->kind == kind &&
	       (!gate->waiting.first || now_nsec - gate->since_nsec < GATE_SLICE_NSEC);
}

void gate_start(struct gate *gate, enum gate_kind kind, bool is_promised)
{
	assert(gate_is_idle(gate) || gate->kind == kind);
	gate->kind = kind;
	gate->n_busy++;
	if (is_promised)
		gate_unpromise(gate);
}

void gate_end(struct gate *gate)
{
	assert(gate->n_busy);
	gate->n_busy--;
}

void gate_unpromise(struct gate *gate)
{
	assert(gate->n_promised);
	gate->n_promised--;
}

void gate_turn(struct gate *gate, uint64_t now_nsec, void (*let_in)(struct op *op, void *arg),
	       void *arg)
{
	struct op_list all = gate->waiting;

	if (!gate_is_idle(gate) || !all.first)
		return;
	gate->kind = op_gate_kind(all.first);
	gate->since_nsec = now_nsec;
	gate->waiting = (struct op_list){ 0 };
	for (struct op *op = all.first, *next; op; op = next) {
		next = op->next;
		if (op_gate_kind(op) != gate->kind) {
			op_list_push(&gate->waiting, op);
			continue;
		}
		gate->n_promised++;
		op->is_promised = true;
		let_in(op, arg);
	}
}
