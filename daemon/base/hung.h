/*
 * Stuck: what a file system of a client's has not answered for a while.
 *
 * Who serves a FUSE or network file system can hold whatever the daemon asks of it for ever: a
 * check, a close, a sync, blocking I/O.  All of that is done by worker threads, and each such call
 * is written down here for as long as it lasts.  After HUNG_NSEC the log names the user, the file,
 * its mount and what frees it, once, and again when the call has come back; hung_list() tells
 * status.  Nothing here asks the file system itself: mounts are found in /proc.
 *
 * While no call lasts there is no timer.  One for the process, as the log is.
 *
 * Lanes make too many calls of io_submit to write each down.  Each lane has a watch, which says since
 * when it is inside one.  The main thread looks once a second while lanes submit, and writes down the
 * call of a lane that is inside for over HUNG_LANE_NSEC.  Lanes at rest cost nothing.
 *
 * hung_begin(), hung_end(), hung_watch_*(): any thread.  All else: main thread.
 */
#ifndef DSAIO_DAEMON_BASE_HUNG_H
#define DSAIO_DAEMON_BASE_HUNG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct mailbox;

#define HUNG_NSEC 5000000000u
/* In a lane nothing may wait, and all users of the store wait for it. */
#define HUNG_LANE_NSEC 1000000000u

/* For whom. */
struct hung_who {
	uid_t uid;
	pid_t pid;	 /* whose mounts may show it; 0: not known */
	uint32_t client; /* number of the session; 0: none */
};

/* What is about to be done. */
struct hung_about {
	const char *
		what; /* "check", "close", "fallocate", "fsync", "io_submit", "probe", "read", "write"; NULL: cannot get
			     stuck */
	const char *file; /* its name, copied by hung_begin() */
	int fd;		  /* with mount_id 0: where to find it; open when the call begins */
	dev_t dev;	  /* of its file system; 0: not known */
	uint64_t mount_id;
	struct hung_who who;
};

/* A call that lasts: where it is made, say on the thread's stack. */
struct hung {
	struct hung *next, **prev_next;
	struct hung_about about;
	char file[128];
	uint64_t since_nsec, number;
	uint64_t limit_nsec; /* it is reported when it has lasted so long */
	bool is_told;
	bool has_place; /* found once: mount and what frees it do not change while it lasts */
	struct hung_place {
		char mount[320]; /* where it is mounted, type and device */
		char text[256];	 /* what frees it */
	} place;
};

/* Before and without it nothing is told.  0 or -ENOMEM. */
int hung_init(struct event_base *base, struct mailbox *main_mailbox);
/* When no worker is left. */
void hung_deinit(void);

void hung_begin(struct hung *stuck, const struct hung_about *about);
void hung_end(struct hung *stuck);

/* Of a thread that makes many short calls, one at a time. */
struct hung_watch {
	struct hung_watch *next, **prev_next;
	struct hung_about about;      /* of each call; file lives as long as the watch */
	_Atomic uint64_t since_nsec;  /* of the call under way; 0: none */
	_Atomic uint32_t uid, client; /* for whom; set before since_nsec */
	_Atomic bool is_watched;      /* the main thread will look, or has a timer for it */
	/* the main thread's */
	uint64_t hung_since_nsec; /* of the call that stuck is about; 0: none */
	struct hung stuck;
};
void hung_watch_add(struct hung_watch *watch, const struct hung_about *about);
/* No call is under way. */
void hung_watch_remove(struct hung_watch *watch);
/* Around each call. */
void hung_enter(struct hung_watch *watch, const struct hung_who *who);
void hung_leave(struct hung_watch *watch);

/* From now on what is stuck also holds up the daemon's exit: says so of what there is. */
void hung_stopping(void);

/* One thing that is stuck, as it is to be told. */
struct hung_told {
	struct hung_who who;
	const char *what;
	char file[128];
	uint64_t usec; /* for how long */
	struct hung_place place;
};

/*
 * The oldest that are stuck now, at most max, oldest first, of those users of whom may_tell(uid, arg)
 * says so (NULL: of all): 0 and a list for free(), or -ENOMEM.
 */
int hung_list(bool (*may_tell)(uid_t uid, const void *arg), const void *arg, size_t max,
	      struct hung_told **ret_list, size_t *ret_n);

#endif
