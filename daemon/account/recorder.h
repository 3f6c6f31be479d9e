/*
 * The flight recorder: each lane writes the events of its ops to a file in memory (proto/recording.h), which
 * a daemon that crashes leaves behind.
 *
 * The files lie beside the socket, where that is on tmpfs.  On a disk the kernel would now and then make a
 * lane wait that writes to the mapping, so there is no recorder then, as where a file cannot be made.  The log
 * has one line, and the daemon serves.  An orderly stop removes the files.  So files at the start are those of a
 * crash: they are renamed, in the place of those of the crash before.
 *
 * All blocks of a file are allocated when it is made, so a full tmpfs is no SIGBUS later.  Only the daemon's user
 * may read them, because they show what all users do.  When the registry frees a store, the file stays until
 * another lane takes its number.
 */
#ifndef DSAIO_DAEMON_ACCOUNT_RECORDER_H
#define DSAIO_DAEMON_ACCOUNT_RECORDER_H

#include "proto/recording.h"

#include <stdbool.h>

/* Main thread, after the start lock is taken, and before privileges are dropped. */
/* Returns whether the daemon before did not stop in order, as far as its files tell. */
bool recorder_start(const char *socket_path);
/* Main thread, at the end of an orderly stop: removes the files.  The thread has the daemon's own ids. */
void recorder_end(void);

/* A lane's file, mapped; NULL: there is none.  Main thread. */
struct recording *recorder_new(const char *store_name);
/* Its lane has ended.  Any thread.  NULL is fine. */
void recorder_free(struct recording *recording);

/* From the handler of a signal that ends the daemon. */
void recorder_note_crash(int number);

/* Lane only. */
static inline void recorder_add(struct recording *recording, const struct recording_event *event)
{
	/* relaxed: this thread alone writes it; release: a reader that sees it sees the event */
	const uint64_t n = atomic_load_explicit(&recording->n_written, memory_order_relaxed);

	recording->events[n % RECORDING_EVENTS] = *event;
	atomic_store_explicit(&recording->n_written, n + 1, memory_order_release);
	/* The ring is larger than a core's cache. */
	__builtin_prefetch(&recording->events[(n + 2) % RECORDING_EVENTS], 1);
}

#endif
