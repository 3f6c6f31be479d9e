/*
 * Ids that a client may name: index in the low 16 bits, the slot's generation above, never 0.
 * Bounds are checked first, then the generation, so a stale or invented id finds nothing.
 *
 * The main thread adds, removes and releases.  Lanes look up at any time: a slot holds its id
 * and object, shown by a release store and read with acquire.  A removed object may still be
 * in a lane's hands: the slot is used again only after idtable_release(), which the main
 * thread calls once every lane that could look has answered a message.
 */
#ifndef DSAIO_DAEMON_BASE_ID_TABLE_H
#define DSAIO_DAEMON_BASE_ID_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

#define IDTABLE_SLOTS_MAX 65536u
#define IDTABLE_CHUNK 256u

struct idtable_slot {
	_Atomic(void *) object; /* main: release; lanes: acquire */
	uint32_t id;		/* main writes while object is NULL and no lane can look */
	uint32_t next_free;
};

struct idtable {
	_Atomic(struct idtable_slot *) chunks[IDTABLE_SLOTS_MAX / IDTABLE_CHUNK];
	uint32_t n_slots;		/* ever used */
	uint32_t index_end;		/* see idtable_bound(); 0: none */
	uint32_t n_objects;		/* added and not released */
	uint32_t first_free, last_free; /* oldest first, so that generations last; index + 1 */
};

void idtable_init(struct idtable *table);
void idtable_deinit(struct idtable *table); /* all must have been released */

/* At most n objects will be there, added and not released: no index will reach n, either. */
static inline void idtable_bound(struct idtable *table, uint32_t n)
{
	table->index_end = n;
}

/* Returns 0 and the new id, or -ENOMEM, or -EMFILE when all slots are used. */
int idtable_add(struct idtable *table, void *object, uint32_t *ret_id);

/* The object, or NULL.  Any thread. */
void *idtable_get(const struct idtable *table, uint32_t id);

/* Lookups fail from now on; returns the object or NULL. */
void *idtable_remove(struct idtable *table, uint32_t id);
/* The slot of a removed id may be used again. */
void idtable_release(struct idtable *table, uint32_t id);

/* The next object from slot *cursor (0 at first) on, or NULL at the end. */
void *idtable_next(const struct idtable *table, uint32_t *cursor);

#endif
