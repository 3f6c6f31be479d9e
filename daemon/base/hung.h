/*
 * Stuck: what a file system of a client's has not answered for a while.
 *
 * Who serves a FUSE or network file system can hold whatever the daemon asks of it for ever: a
 * check, a close, a sync, blocking I/O.  All of that is done by helper threads, and each such call
 * is written down here for as long as it lasts.  After STUCK_NSEC the log names the user, the file,
 * its mount and what frees it, once, and again when the call has come back; stuck_list() tells
 * status.  Nothing here asks the file system itself: mounts are found in /proc.
 *
 * While no call lasts there is no timer.  One for the process, as the log is.
 *
 * Lanes make too many calls of io_submit to write each down.  Each lane has a watch, which says since
 * when it is inside one.  The main thread looks once a second while lanes submit, and writes down the
 * call of a lane that is inside for over STUCK_LANE_NSEC.  Lanes at rest cost nothing.
 *
 * stuck_begin(), stuck_end(), stuck_watch_*(): any thread.  All else: main thread.
 */
#ifndef DSAIO_DAEMON_BASE_HUNG_H
#define DSAIO_DAEMON_BASE_HUNG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct inbox;

#define STUCK_NSEC 5000000000u
/* In a lane nothing may wait, and all users of the store wait for it. */
#define STUCK_LANE_NSEC 1000000000u

/* For whom. */
struct stuck_who {
	uid_t uid;
	pid_t pid;	 /* whose mounts may show it; 0: not known */
	uint32_t client; /* number of the session; 0: none */
};

/* What is about to be done. */
struct stuck_about {
	const char *
		what; /* "check", "close", "fallocate", "fsync", "io_submit", "probe", "read", "write"; NULL: cannot get
			     stuck */
	const char *file; /* its name, copied by stuck_begin() */
	int fd;		  /* with mount_id 0: where to find it; open when the call begins */
	dev_t dev;	  /* of its file system; 0: not known */
	uint64_t mount_id;
	struct stuck_who who;
};

/* A call that lasts: where it is made, say on the thread's stack. */
struct stuck {
	struct stuck *next, **prev_next;
	struct stuck_about about;
	char file[128];
	uint64_t since_nsec, number;
	uint64_t limit_nsec; /* it is reported when it has lasted so long */
	bool is_told;
	bool has_place; /* found once: mount and what frees it do not change while it lasts */
	struct stuck_place {
		char mount[320]; /* where it is mounted, type and device */
		char text[256];	 /* what frees it */
	} place;
};

/* Before and without it nothing is told.  0 or -ENOMEM. */
int stuck_init(struct event_base *base, struct inbox *main_inbox);
/* When no helper is left. */
void stuck_deinit(void);

void stuck_begin(struct stuck *stuck, const struct stuck_about *about);
void stuck_end(struct stuck *stuck);

/* Of a thread that makes many short calls, one at a time. */
struct stuck_watch {
	struct stuck_watch *next, **prev_next;
	struct stuck_about about;     /* of each call; file lives as long as the watch */
	_Atomic uint64_t since_nsec;  /* of the call under way; 0: none */
	_Atomic uint32_t uid, client; /* for whom; set before since_nsec */
	_Atomic bool is_watched;      /* the main thread will look, or has a timer for it */
	/* the main thread's */
	uint64_t stuck_since_nsec; /* of the call that stuck is about; 0: none */
	struct stuck stuck;
};
void stuck_watch_add(struct stuck_watch *watch, const struct stuck_about *about);
/* No call is under way. */
void stuck_watch_remove(struct stuck_watch *watch);
/* Around each call. */
void stuck_enter(struct stuck_watch *watch, const struct stuck_who *who);
void stuck_leave(struct stuck_watch *watch);

/* From now on what is stuck also holds up the daemon's exit: says so of what there is. */
void stuck_stopping(void);

/* One thing that is stuck, as it is to be told. */
struct stuck_told {
	struct stuck_who who;
	const char *what;
	char file[128];
	uint64_t usec; /* for how long */
	struct stuck_place place;
};

/*
 * The oldest that are stuck now, at most max, oldest first, of those users of whom may_tell(uid, arg)
 * says so (NULL: of all): 0 and a list for free(), or -ENOMEM.
 */
int stuck_list(bool (*may_tell)(uid_t uid, const void *arg), const void *arg, size_t max,
	       struct stuck_told **ret_list, size_t *ret_n);

#endif
