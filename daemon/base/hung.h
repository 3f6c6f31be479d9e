/*
 * Hung calls: system calls on a client's file system that do not return for a long time.
 *
 * The server of a FUSE or network file system can block the daemon's calls forever: checks, closes,
 * syncs, blocking I/O.  Worker threads make these calls, and each call is recorded here while it lasts.
 * After HUNG_NSEC one log line names the user, the file, its mount, and the command that frees it.
 * Another line reports the return of the call.  Calls of a GPU's driver, which hang together, share these
 * lines: those that move bytes of an op, and the others.  hung_list() is for status.  This module never calls
 * the file system itself: it finds mounts in /proc, which takes time where there are many.  So a turn of the main
 * thread reports one call, and reads at most 64 KiB of the mounts of a client's own namespace.
 *
 * There is one list per process, like the log.  While no call is recorded there is no timer.
 *
 * Lanes call io_submit(2), and on tmpfs pread(2) and pwrite(2), too often to record each call.  Each lane
 * has a watch, which has the start time of the present call, or of the batch of calls on tmpfs.  Reports name
 * all of them io_submit.  While lanes submit, the main thread reads the watches once a second, and records a
 * call that has lasted for HUNG_LANE_NSEC.  Idle lanes cost nothing.
 *
 * hung_begin(), hung_next(), hung_end(), hung_watch_*(): any thread.  All else: main thread.
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
	const char *what; /* as dsaio.proto's Stuck lists them; NULL: cannot hang */
	const char *file; /* its name, copied by hung_begin() */
	int fd;		  /* with mount_id 0: gives the mount; open when the call begins */
	dev_t dev;	  /* of its file system; 0: not known */
	uint64_t mount_id;
	bool is_gpu;   /* a call of the GPU's driver: the driver has to answer, not a file system */
	bool is_block; /* of blocks in flight */
	bool is_memory; /* of memory that a client maps: it waits for the memory's lock */
	struct hung_who who;
};

/* A recorded call.  It lies on the stack of the calling thread, for example. */
struct hung {
	struct list_node node;
	struct hung_about about;
	char file[128];
	uint64_t since_nsec, number;
	uint64_t limit_nsec; /* the call is reported when it has lasted so long */
	bool has_bytes;	     /* bytes of an op may arrive until it returns */
	bool is_told;	     /* it has been reported */
	bool is_quiet;	     /* it has no line: that of another call of the driver stands for it */
	bool has_place;	     /* place is set; it does not change while the call lasts */
	struct hung_place {
		char mount[320]; /* mount point, type and device */
		char text[256];	 /* the command or event that frees the call */
	} place;
};

/* Without it nothing is reported.  Returns 0 or -ENOMEM. */
int hung_init(struct event_base *base, struct mailbox *main_mailbox);
/* All worker threads must have ended. */
void hung_deinit(void);

void hung_begin(struct hung *stuck, const struct hung_about *about);
void hung_end(struct hung *stuck);
/*
 * This thread, between its hung_begin() and hung_end(), is about to make another call for the same purpose.
 * has_bytes: of a block.  A call that is made for no block has none.  Returns the name of the call until now,
 * for the way back.  NULL: nothing is recorded here, and nothing happens.
 */
const char *hung_next(const char *what, bool has_bytes);

/* The watch of a thread that makes many short calls, one at a time. */
struct hung_watch {
	struct list_node node;
	struct hung_about about;      /* of each call; file lives as long as the watch */
	_Atomic uint64_t since_nsec;  /* of the call under way; 0: none */
	_Atomic uint32_t uid, client; /* of the call; set before since_nsec */
	_Atomic bool is_watched;      /* the main thread will read it, or has a timer for it */
	/* the main thread's */
	uint64_t hung_since_nsec; /* of the call that is recorded in stuck; 0: none */
	struct hung stuck;
};
void hung_watch_add(struct hung_watch *watch, const struct hung_about *about);
/* No call may be under way. */
void hung_watch_remove(struct hung_watch *watch);
/* The thread brackets each call with these.  now_nsec: of clock_nsec(). */
void hung_enter(struct hung_watch *watch, const struct hung_who *who, uint64_t now_nsec);
void hung_leave(struct hung_watch *watch);

/* The daemon stops: from now on reports say that a hung call delays its exit.  Reports open ones again. */
void hung_stopping(void);

/* The recorded calls, also those that have just begun.  Equal counts at two times: none has begun or ended
   in between. */
struct hung_counts {
	uint64_t last_number;	  /* grows with each call */
	unsigned n_without_bytes; /* of an op */
	unsigned n_blocks;	  /* those among them that are made for a block in flight */
	unsigned n_with_bytes;
};
void hung_count(struct hung_counts *ret_counts);

/* A hung call as status reports it. */
struct hung_told {
	struct hung_who who;
	const char *what;
	char file[128];
	uint64_t usec; /* for how long */
	bool is_gpu, has_bytes;
	struct hung_place place;
};

/*
 * Lists at most max hung calls, the oldest first, of the users for which may_tell(uid, arg) returns
 * true (NULL: all users).  Looks up the mount of at most one that has not been reported.  Returns 0 and a list
 * for free(), or -ENOMEM.
 */
int hung_list(bool (*may_tell)(uid_t uid, const void *arg), const void *arg, size_t max,
	      struct hung_told **ret_list, size_t *ret_n);

#endif
