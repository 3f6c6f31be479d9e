/*
 * A RADOS store inside the plug-in: its settings and its connections.
 *
 * A connection (struct rados_conn) is one generation: settings.connections clusters with an I/O context each.  One that
 * is blocklisted never works again, so the keeper makes another and the old one is closed with its last reference.
 * While there is none that is fenced and connected, the store is offline.
 */
#ifndef DSAIO_DAEMON_RADOS_STORE_H
#define DSAIO_DAEMON_RADOS_STORE_H

#include "daemon/engine/rados.h"

#include <rados/librados.h>

struct rados_conn;

/* Fixed when the store is made: copies. */
const struct rados_settings *store_settings(const struct rados_store *store);

/*
 * Takes a reference to the present connection; waits for one up to op_timeout.  Worker threads and the keeper.
 * Returns 0, or -EHOSTDOWN with a message that says why the store is offline.
 */
int conn_take(struct rados_store *store, struct rados_conn **ret_conn, struct error *error);
void conn_put(struct rados_conn *conn);
/* For calls on names; the engine spreads blocks over all. */
rados_ioctx_t conn_io(const struct rados_conn *conn);
/* Every result of librados goes through it: -ESHUTDOWN (blocklisted) makes the keeper connect anew.  Returns r. */
int conn_note(struct rados_conn *conn, int r);

/* ---- names.c and sweep.c, called by the keeper ---- */

/* When it wants to be called next, CLOCK_MONOTONIC. */
uint64_t sweep_run(struct rados_store *store, struct rados_conn *conn, uint64_t now_nsec);

/* The files that are being written and are held: sweep.c renews them. */
struct held_files;
int held_files_new(struct held_files **ret_held);
void held_files_free(struct held_files *held); /* NULL is fine; it has none */
struct held_files *store_held(struct rados_store *store);
int sweep_hold(struct rados_store *store, const struct rados_file *file);
void sweep_release(struct rados_store *store, const struct rados_file *file);

#endif
