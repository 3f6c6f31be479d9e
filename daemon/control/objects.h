/*
 * Slabs of a session, and the way out of every object that lanes look up by id: slabs and files.
 *
 * Removal: the id is taken out of the table; each lane on which the session has a channel
 * answers a message, so no lane still looks; then the id is released and the object loses the
 * table's reference.  It is freed with its last reference (a block in flight may have one).
 *
 * session->n_objects counts slabs and files from the begin of their making until they are freed.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_OBJECTS_H
#define DSAIO_DAEMON_CONTROL_OBJECTS_H

#include "daemon/base/error.h"
#include "daemon/base/id_table.h"

#include <stdbool.h>
#include <stdint.h>

struct call;
struct gds_handle;
struct session;
struct slab;
struct slab_kind;
struct slab_place;

/* -EBADF with a message: the session has no such object. */
int session_no_such(struct error *error, const char *what, uint32_t id);

/*
 * Adds an object to a table of the session, with the id wanted by the client; 0: any.  name: "slab", "file NAME".
 * Returns 0, or with a message what id_table_add() says.
 */
int session_add(struct id_table *table, void *object, const char *name, uint32_t wanted_id,
		uint32_t *ret_id, struct error *error);

/* The requests below that make a slab give it call->wanted_id.
   on_done with call->slab; the descriptor is in the reply's. */
int session_slab_new(struct session *session, uint64_t size_bytes, const struct slab_place *place,
		     struct call *call, struct error *error);
/* Takes fd, also on error.  As session_slab_new(), but the reply has no descriptor.  kind: as of slab_import(). */
int session_slab_import(struct session *session, const struct slab_kind *kind, int fd, uint64_t off,
			uint64_t size_bytes, struct call *call, struct error *error);
/* The same of GPU memory: takes the handle's descriptor, also on error.  As gpu_import(). */
int session_slab_import_gpu(struct session *session, const struct gds_handle *handle,
			    bool must_import, struct call *call, struct error *error);
/* A slab that was made by slab_new_of(). */
void session_slab_start(struct session *session, struct slab *slab, struct call *call);
int session_slab_free(struct session *session, uint32_t id, struct call *call, struct error *error);

/* ---- for files.c and idle_files.c ---- */

/* Unreferences the object; on_freed(arg) when it is freed. */
void file_unref_for(void *file, void (*on_freed)(void *arg), void *arg);

/* Removes an id.  unref(object, on_freed, arg) follows when no lane looks any more.  0 or -errno. */
int session_remove(struct session *session, struct id_table *table, uint32_t id, const char *what,
		   void (*unref)(void *object, void (*on_freed)(void *arg), void *arg),
		   void (*on_freed)(void *arg), void *arg, struct error *error);

/* An object is freed: arg is the session. */
void session_object_gone(void *arg);
/* The same, and answers: arg is the call. */
void session_object_removed(void *arg);

/* The session ends and no lane looks any more: all slabs and files lose the tables' references. */
void session_drop_objects(struct session *session);

#endif
