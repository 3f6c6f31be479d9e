/*
 * The server: holds the start lock and the socket, makes stores, accepts clients, and stops in
 * order.
 *
 * Start: the lock (SOCKET.lock, with the holder's pid and start time in it) comes first and is
 * held until the process is gone, so that no client is served while an earlier daemon may still
 * have blocks in flight.  Then a socket that nobody serves is taken over.
 * Stop: nothing new is accepted, the sessions end after the ops that were taken, then the lanes.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_SERVER_H
#define DSAIO_DAEMON_CONTROL_SERVER_H

#include "daemon/base/error.h"
#include "daemon/config/config.h"

struct event_base;
struct gpu_probe;
struct server;

/*
 * Borrows config, which a reload changes, and base for its life.  Returns 0, and the socket listens; or a negative
 * errno
 * with a message: -ENAMETOOLONG, -ENOENT (no such directory), -EADDRINUSE (a daemon serves it),
 * -EEXIST (another kind of file is there), or an error of a store or the kernel.
 */
int server_new(struct config *config, struct event_base *base, struct gpu_probe *gpu_probe,
	       struct server **ret_server, struct error *error);

/*
 * Begins the orderly stop: ops that were read complete.  A second call cancels ops that have not
 * started.  The event loop ends when the last session is freed, or waits for nothing but calls that hang
 * and move no bytes (stop_wait.h).
 */
void server_stop(struct server *server);

/* After a failed start, or server_end().  Removes the socket.  NULL is fine. */
void server_free(struct server *server);
/*
 * After the event loop: frees the server.  Returns false if calls that move no bytes have not returned: their
 * sessions remain, and so does the server, without its socket.  The process has to end then.
 */
bool server_end(struct server *server);

uint32_t server_n_clients(const struct server *server);
/* Ops of all clients that were read and have not ended. */
uint64_t server_n_open_ops(const struct server *server);

#endif
