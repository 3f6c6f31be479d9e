/*
 * Calls that may hang: system calls on a client's files and memory, and calls of a GPU's driver.
 *
 * The server of a FUSE or network file system can block the daemon's calls forever: checks, closes,
 * syncs, blocking I/O.  Worker threads make these calls, and each call is recorded here while it lasts.
 * Lanes call io_submit(2), and on tmpfs pread(2) and pwrite(2), too often for that.  So each lane has one
 * record all the time, with the start time of the present call, or of the batch of calls on tmpfs.  Reports
 * name all of them io_submit.
 *
 * While calls are in progress, the main thread looks at the records once a second.  A call that has lasted for
 * HUNG_NSEC, or HUNG_LANE_NSEC in a lane, is hung and is reported: one log line names the user, the file, its
 * mount, and the command that frees it, and hung_each() has it for status.  Another line reports its return.  Calls of
 * a GPU's driver, which hang together, share these lines: those that move bytes of an op, and the others.  This
 * module never calls the file system itself: it finds mounts in /proc, which takes time where there are many.  So
 * a round of the main loop reports one call, and reads at most 64 KiB of the mounts of a client's own namespace.
 *
 * There is one list per process, like the log.  While no call is in progress there is no timer.
 *
 * hung_init(), hung_deinit(), hung_stopping(), hung_each(), hung_count(): main thread.  All else: any thread.
 */
#ifndef DSAIO_DAEMON_BASE_HUNG_H
#define DSAIO_DAEMON_BASE_HUNG_H

#include "proto/util/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct mailbox;

#define HUNG_NSEC 5000000000u
/* Shorter, because a lane must never block, and all users of the store wait for it. */
#define HUNG_LANE_NSEC 1000000000u

/* The client for which a call is made. */
struct hung_who {
	uid_t uid;
	pid_t pid;	 /* its mount namespace may have the mount; 0: not known */
	uint32_t client; /* number of the session; 0: none */
};

/* The description of a call. */
struct hung_about {
	const char *what;  /* as dsaio.proto's Hung lists them; NULL: cannot hang */
	const char *file;  /* its name, copied by hung_begin() */
	const char *store; /* of a lane: its name, borrowed, for the journal */
	int fd;		   /* with mount_id 0: gives the mount; open when the call begins */
	dev_t dev;	   /* of its file system; 0: not known */
	uint64_t mount_id;
	bool is_gpu;   /* a call of the GPU's driver: the driver has to answer, not a file system */
	bool is_block; /* of blocks in flight: bytes of an op may arrive until it returns */
	bool is_device;	 /* of a lane: no call, but a block that the device has not answered */
	bool is_cluster; /* a call of a RADOS store: the cluster has to answer */
	bool is_memory;	 /* of memory that a client maps: it waits for the memory's lock */
	struct hung_who who;
};

/* A call in progress.  It lies on the stack of the calling thread, for example. */
struct hung_call {
	struct list_node node;
	/* under the list's lock, except since_nsec */
	struct hung_about about;
	char file[128];
	bool is_lane;
	_Atomic uint64_t since_nsec;	   /* 0: the lane makes none */
	_Atomic uint32_t uid, pid, client; /* of a lane's call; set before since_nsec */
	uint64_t reported_nsec;		   /* since_nsec of the call that was reported; 0: none */
	/* of a call that was reported */
	struct hung_place {
		char mount[320]; /* mount point, type and device */
		char text[256];	 /* the command or event that frees the call */
	} place;
};

/* Without it nothing is reported.  Returns 0 or -ENOMEM. */
int hung_init(struct event_base *base, struct mailbox *main_mailbox);
/* All worker threads must have ended. */
void hung_deinit(void);

void hung_begin(struct hung_call *call, const struct hung_about *about);
void hung_end(struct hung_call *call);

/* The record of a lane, which makes many short calls, one at a time.  hung_end() removes it: no call may be in
   progress. */
void hung_add_lane(struct hung_call *call, const struct hung_about *about);
/* The lane brackets each call with these.  now_nsec: of clock_nsec(). */
void hung_enter(struct hung_call *call, const struct hung_who *who, uint64_t now_nsec);
void hung_leave(struct hung_call *call);

/* The daemon stops: from now on reports say that a hung call delays its exit.  Reports open ones again. */
void hung_stopping(void);

/* The calls in progress, also those that have just begun.  Equal counts at two times: no worker thread has begun
   or ended one in between. */
struct hung_counts {
	uint64_t n_begun;
	unsigned n_without_bytes; /* of an op */
	unsigned n_with_bytes;
};
void hung_count(struct hung_counts *ret_counts);

/* Calls each(call, arg) for the calls that have been reported, those of lanes first, then the oldest, until it
   returns false.  Under the list's lock: each() must not block. */
void hung_each(bool (*each)(const struct hung_call *call, void *arg), void *arg);

#endif
