#include "daemon/base/id_table.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS 16
#define INDEX_MASK (ID_TABLE_SLOTS_MAX - 1)

/*
 * Slots of the first chunk, as far as the bound goes, are all used once before one is used again,
 * so that a client that frees and makes one object needs 16 million turns to see an id twice.
 */
static uint32_t n_fresh_first(const struct id_table *table)
{
	return table->index_end && table->index_end < ID_TABLE_CHUNK ? table->index_end
								     : ID_TABLE_CHUNK;
}

static struct id_table_slot *slot_at(const struct id_table *table, uint32_t index)
{
	struct id_table_slot *chunk = atomic_load_explicit(&table->chunks[index / ID_TABLE_CHUNK],
							   memory_order_acquire); /* see below */

	return chunk ? &chunk[index % ID_TABLE_CHUNK] : NULL;
}

/* The slot of an id that is or was the slot's newest, or NULL. */
static struct id_table_slot *slot_of(const struct id_table *table, uint32_t id)
{
	struct id_table_slot *slot = slot_at(table, id & INDEX_MASK);

	return slot && slot->id == id && id >> INDEX_BITS ? slot : NULL;
}

void id_table_deinit(struct id_table *table)
{
	assert(table->n_objects == 0);
	for (unsigned i = 0; i < ID_TABLE_SLOTS_MAX / ID_TABLE_CHUNK; i++)
		free(atomic_load_explicit(&table->chunks[i], memory_order_relaxed)); /* ours */
	memset(table, 0, sizeof(*table));
}

static void slot_free(struct id_table *table, struct id_table_slot *slot)
{
	slot->is_free = true;
	list_push(&table->free, &slot->node);
}

static void slot_take_free(struct id_table *table, struct id_table_slot *slot)
{
	slot->is_free = false;
	list_remove(&table->free, &slot->node);
}

/* A slot that was never used; its chunk is made when it is the first. */
static int slot_take_fresh(struct id_table *table, struct id_table_slot **ret_slot)
{
	uint32_t index = table->n_slots;

	if (!slot_at(table, index)) {
		struct id_table_slot *chunk = calloc(ID_TABLE_CHUNK, sizeof(*chunk));

		if (!chunk)
			return -ENOMEM;
		atomic_store_explicit(&table->chunks[index / ID_TABLE_CHUNK], chunk,
				      memory_order_release); /* lanes: slot_at() */
	}
	*ret_slot = slot_at(table, index);
	(*ret_slot)->id = 1u << INDEX_BITS | index;
	table->n_slots++;
	return 0;
}

static int slot_take_any(struct id_table *table, struct id_table_slot **ret_slot)
{
	struct id_table_slot *oldest = list_entry(table->free.first, struct id_table_slot, node);

	if (table->n_slots < n_fresh_first(table) ||
	    (!oldest && table->n_slots < ID_TABLE_SLOTS_MAX))
		return slot_take_fresh(table, ret_slot);
	if (!oldest)
		return -EMFILE;
	slot_take_free(table, oldest);
	*ret_slot = oldest;
	return 0;
}

static int slot_take_at(struct id_table *table, uint32_t id, struct id_table_slot **ret_slot)
{
	uint32_t index = id & INDEX_MASK;
	struct id_table_slot *slot;
	int r;

	if (!(id >> INDEX_BITS) || index >= id_table_end(table))
		return -EINVAL;
	while (table->n_slots <= index) {
		r = slot_take_fresh(table, &slot);
		if (r < 0)
			return r;
		slot_free(table, slot);
	}
	slot = slot_at(table, index);
	if (!slot->is_free)
		return -EEXIST;
	slot_take_free(table, slot);
	slot->id = id;
	*ret_slot = slot;
	return 0;
}

int id_table_add(struct id_table *table, void *object, uint32_t wanted_id, uint32_t *ret_id)
{
	struct id_table_slot *slot;
	int r;

	assert(object);
	r = wanted_id ? slot_take_at(table, wanted_id, &slot) : slot_take_any(table, &slot);
	if (r < 0)
		return r;
	table->n_objects++;
	*ret_id = slot->id;
	atomic_store_explicit(&slot->object, object, memory_order_release); /* lanes: get */
	return 0;
}

void *id_table_get(const struct id_table *table, uint32_t id)
{
	struct id_table_slot *slot = slot_at(table, id & INDEX_MASK);
	void *object;

	if (!slot)
		return NULL;
	/* First the object: only while there is one does the slot's id stand still. */
	object = atomic_load_explicit(&slot->object, memory_order_acquire); /* main: add */
	return object && slot->id == id ? object : NULL;
}

void *id_table_remove(struct id_table *table, uint32_t id)
{
	struct id_table_slot *slot = slot_of(table, id);
	void *object;

	if (!slot)
		return NULL;
	object = atomic_load_explicit(&slot->object, memory_order_relaxed); /* ours */
	atomic_store_explicit(&slot->object, NULL, memory_order_release);
	return object;
}

void id_table_release(struct id_table *table, uint32_t id)
{
	struct id_table_slot *slot = slot_of(table, id);
	uint32_t generation = id >> INDEX_BITS, index = id & INDEX_MASK;

	assert(slot && !atomic_load_explicit(&slot->object, memory_order_relaxed)); /* ours */
	generation = generation == UINT16_MAX ? 1 : generation + 1;
	slot->id = generation << INDEX_BITS | index;
	slot_free(table, slot);
	table->n_objects--;
}

void *id_table_next(const struct id_table *table, uint32_t *cursor)
{
	while (*cursor < table->n_slots) {
		void *object = atomic_load_explicit(&slot_at(table, (*cursor)++)->object,
						    memory_order_relaxed); /* main's own */

		if (object)
			return object;
	}
	return NULL;
}
