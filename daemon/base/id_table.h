/*
 * Ids that a client may name: index in the low 16 bits, the slot's generation above, never 0.
 * Bounds are checked first, then the generation, so a stale or invented id finds nothing.
 *
 * The main thread adds, removes and releases.  Lanes look up at any time: a slot holds its id
 * and object, shown by a release store and read with acquire.  A removed object may still be
 * in a lane's hands: the slot is used again only after id_table_release(), which the main
 * thread calls once every lane that could look has answered a message.
 */
#ifndef DSAIO_DAEMON_BASE_ID_TABLE_H
#define DSAIO_DAEMON_BASE_ID_TABLE_H

#include "proto/util/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ID_TABLE_SLOTS_MAX 65536u
#define ID_TABLE_CHUNK 256u

struct id_table_slot {
	_Atomic(void *) object; /* main: release; lanes: acquire */
	uint32_t id;		/* main writes while object is NULL and no lane can look */
	bool is_free;
	struct list_node node; /* is_free: in the table's list */
};

struct id_table {
	_Atomic(struct id_table_slot *) chunks[ID_TABLE_SLOTS_MAX / ID_TABLE_CHUNK];
	uint32_t n_slots;   /* ever used */
	uint32_t index_end; /* see id_table_bound(); 0: none */
	uint32_t n_objects; /* added and not released */
	struct list free;   /* slots, oldest first, so that generations last */
};

void id_table_deinit(struct id_table *table); /* all must have been released */

/* At most n objects will be there, added and not released: no index will reach n, either. */
static inline void id_table_bound(struct id_table *table, uint32_t n)
{
	table->index_end = n;
}

/*
 * Returns 0 and the new id, or -ENOMEM, or -EMFILE when all slots are used.  wanted_id: the one that it
 * has to be; 0: any.
 * The slot's later ids go on from its generation, and slots below it that were never used become free ones.  -EEXIST:
 * its slot is used by an object, or by one that was removed and not released.  -EINVAL: its generation is 0, or its
 * index has reached the bound.
 */
int id_table_add(struct id_table *table, void *object, uint32_t wanted_id, uint32_t *ret_id);
/* Indices of ids are below. */
static inline uint32_t id_table_end(const struct id_table *table)
{
	return table->index_end ? table->index_end : ID_TABLE_SLOTS_MAX;
}

/* The object, or NULL.  Any thread. */
void *id_table_get(const struct id_table *table, uint32_t id);

/* Lookups fail from now on; returns the object or NULL. */
void *id_table_remove(struct id_table *table, uint32_t id);
/* The slot of a removed id may be used again. */
void id_table_release(struct id_table *table, uint32_t id);

/* The next object from slot *cursor (0 at first) on, or NULL at the end. */
void *id_table_next(const struct id_table *table, uint32_t *cursor);

#endif
