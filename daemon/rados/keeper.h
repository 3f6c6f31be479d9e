/*
 * What the engine needs of its store: store.h has the rest.
 */
#ifndef DSAIO_DAEMON_RADOS_KEEPER_H
#define DSAIO_DAEMON_RADOS_KEEPER_H

#include "daemon/rados/store.h"

int keeper_open(const struct rados_settings *settings, struct rados_store **ret_store,
		struct error *error);
void keeper_close(struct rados_store *store);
void keeper_state(const struct rados_store *store, struct rados_state *ret_state);

/* Takes a reference to the present connection, at once; NULL: the store is offline. */
struct rados_conn *conn_try(struct rados_store *store);
/* The I/O contexts of a connection take turns. */
rados_ioctx_t conn_io_next(const struct rados_conn *conn, unsigned turn);
bool store_is_online(const struct rados_store *store);
/* This eventfd is written to when the store is online again.  -1: none.  Afterwards the one before is not used. */
void store_wake(struct rados_store *store, int event_fd);

/* An op began or ended; is_busy: others are under way.  The engine's lane; pauses are counted by it. */
void store_began(struct rados_store *store, uint64_t now_nsec);
void store_ended(struct rados_store *store, uint64_t now_nsec, bool is_busy);

extern const struct engine_ops engine_rados;

#endif
