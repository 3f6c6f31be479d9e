#include "daemon/lane/op_ids.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

int op_ids_init(struct op_ids *ids, struct op *ops, uint32_t n_ops)
{
	uint64_t multiplier;
	uint16_t bits = 1;

	if (getrandom(&multiplier, sizeof(multiplier), 0) < 0)
		return -errno;
	while (1u << bits < n_ops)
		bits++;
	*ids = (struct op_ids){
		.ops = ops,
		.buckets = calloc((size_t)1 << bits, sizeof(*ids->buckets)),
		.multiplier = multiplier | 1,
		.shift = (uint16_t)(64 - bits),
	};
	return ids->buckets ? 0 : -ENOMEM;
}

void op_ids_deinit(struct op_ids *ids)
{
	free(ids->buckets);
	ids->buckets = NULL;
}

static uint16_t *bucket_of(const struct op_ids *ids, uint64_t id)
{
	return &ids->buckets[id * ids->multiplier >> ids->shift];
}

static struct op *op_at(const struct op_ids *ids, uint16_t number)
{
	return number ? &ids->ops[number - 1] : NULL;
}

void op_ids_add(struct op_ids *ids, struct op *op)
{
	uint16_t *bucket = bucket_of(ids, op->id);
	struct op *next = op_at(ids, *bucket);

	op->id_next = *bucket;
	op->id_prev = 0;
	*bucket = (uint16_t)(op - ids->ops + 1);
	if (next)
		next->id_prev = *bucket;
}

void op_ids_remove(struct op_ids *ids, struct op *op)
{
	struct op *next = op_at(ids, op->id_next), *prev = op_at(ids, op->id_prev);

	if (prev)
		prev->id_next = op->id_next;
	else
		*bucket_of(ids, op->id) = op->id_next;
	if (next)
		next->id_prev = op->id_prev;
}

static struct op *find(const struct op_ids *ids, uint16_t number, uint64_t id)
{
	struct op *op;

	for (op = op_at(ids, number); op && op->id != id; op = op_at(ids, op->id_next))
		;
	return op;
}

struct op *op_ids_first(const struct op_ids *ids, uint64_t id)
{
	return find(ids, *bucket_of(ids, id), id);
}

struct op *op_ids_next(const struct op_ids *ids, const struct op *op)
{
	return find(ids, op->id_next, op->id);
}
