/*
 * The daemon that holds the start lock of a socket path (SOCKET.lock has its pid and start time).
 *
 * A daemon that stops has closed its socket, but keeps the lock until its last call has returned.  So
 * where nobody listens, a holder is the daemon that was there, or one that is starting.
 *
 * Any thread.
 */
#ifndef DSAIO_CLIENT_LIB_LINK_HOLDER_H
#define DSAIO_CLIENT_LIB_LINK_HOLDER_H

#include <sys/types.h>

/*
 * Its pid; 0: nobody holds the lock, or this process cannot know.  Makes no file, and takes the lock
 * at most for an instant, of a process that is about to end.
 */
pid_t holder_find(const char *socket_path);

#endif
