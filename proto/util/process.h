/*
 * A process as /proc/PID/stat has it.
 *
 * The daemon writes its pid and start time to its start lock (SOCKET.lock).  Together they name one
 * process forever, also after the kernel gave the pid to another.
 */
#ifndef DSAIO_PROTO_UTIL_PROCESS_H
#define DSAIO_PROTO_UTIL_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct process {
	char state;
	unsigned long flags;	    /* the kernel's PF_ */
	unsigned long long started; /* clock ticks since boot */
	unsigned long pending;	    /* signals of its first thread, from bit 0 on */
};

/* False if there is none, or it cannot be seen. */
bool process_look(pid_t pid, struct process *ret_process);

#endif
