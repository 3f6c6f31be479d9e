/*
 * A RADOS store inside the plug-in: its settings and its connection.
 *
 * A connection (struct rados_conn) is settings.connections clusters with an I/O context each.  There is one at a time.
 * The store is online while the cluster answers.  A connection that is blocklisted never works again: as soon as nobody
 * uses it any more the keeper closes it and makes another.
 */
#ifndef DSAIO_DAEMON_RADOS_STORE_H
#define DSAIO_DAEMON_RADOS_STORE_H

#include "daemon/engine/rados.h"

#include <rados/librados.h>

struct rados_conn;

/* Fixed when the store is made: copies. */
const struct rados_settings *store_settings(const struct rados_store *store);

/*
 * Begins to use the connection; waits for one, until the store has been offline for op_timeout.  Worker threads.
 * Returns 0, or -EHOSTDOWN with a message that says why the store is offline.
 */
int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error);
/* The same at once, for the engine; NULL: the store is offline, and whether that is worth waiting for. */
struct rados_conn *conn_try(struct rados_store *store, bool *ret_may_wait);
/* The end of each use.  While there are uses, pauses between their ends are counted. */
void conn_put(struct rados_conn *conn);
/* For calls on names: always the same one, as a lock has an owner. */
rados_ioctx_t conn_io(const struct rados_conn *conn);
/* For blocks: the I/O contexts take turns. */
rados_ioctx_t conn_io_next(const struct rados_conn *conn, unsigned turn);
/* Every result of librados goes through it.  By -ESHUTDOWN (blocklisted) and -ETIMEDOUT the store is offline, until the
   keeper has connected anew, or the cluster answers it.  Returns r. */
int conn_note(struct rados_conn *conn, int r);

/* ---- names.c and sweep.c, called by the keeper ---- */

/* When it wants to be called next, CLOCK_MONOTONIC; before that it does nothing. */
uint64_t sweep_run(struct rados_store *store, struct rados_conn *conn, uint64_t now_nsec);

/* The files that are being written and are held: sweep.c renews them. */
struct held_files;
int held_files_new(struct held_files **ret_held);
void held_files_free(struct held_files *held); /* NULL is fine; it has none */
struct held_files *store_held(struct rados_store *store);
int sweep_hold(struct rados_store *store, struct rados_file *file);
void sweep_release(struct rados_store *store, const struct rados_file *file);
/* It was committed or abandoned: nobody writes it any more. */
void sweep_ended(struct rados_store *store, uint64_t id);

/* ---- the plug-in's functions ---- */

int keeper_open(const struct rados_settings *settings, struct rados_store **ret_store,
		struct error *error);
void keeper_close(struct rados_store *store);
void keeper_state(struct rados_store *store, struct rados_state *ret_state);
extern const struct engine_ops engine_rados;

#endif
