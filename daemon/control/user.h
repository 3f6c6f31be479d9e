/*
 * A user: all sessions of one uid.  They share a quota, a place in the run queue of the main thread, and
 * worker threads on which the daemon checks and closes the user's descriptors.  So a hung file system
 * of one user hangs only that user.  Others import and release its GPU memory, so a hung driver hangs
 * only that, and files that are registered with cuFile.
 *
 * Descriptors in replies that nobody has read: the kernel counts them for the daemon's uid, with those of
 * all clients and other programs of the uid.  Beyond RLIMIT_NOFILE the daemon could send no descriptor to
 * anybody, and nobody could connect.  So all clients together get a quarter of RLIMIT_NOFILE, and each user
 * at most a quarter of what all of them leave of that: with n users at this limit, each has one part of n + 4,
 * and four parts are left for newcomers.  Requests count like a descriptor until they are answered.
 *
 * A user exists from its first reference (a session, or a control socket that waits for its close)
 * to its last.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_CONTROL_USER_H
#define DSAIO_DAEMON_CONTROL_USER_H

#include "daemon/base/log.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/quota.h"
#include "daemon/base/work_queue.h"
#include "daemon/control/run_queue.h"
#include "daemon/engine/gpu_requests.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user;

struct users {
	struct list all;	 /* struct user */
	struct quota *quota;	 /* the daemon's: the parent of each user's */
	const uint64_t *limit;	 /* of one user; N_QUOTA_KINDS */
	unsigned n_unread_fds;	 /* of all users */
	bool has_waiting;	 /* users_room() has to look */
	struct mailbox *mailbox; /* the main thread's */
	/* The user is below the limit at which all its sessions waited. */
	void (*on_room)(struct user *user, void *arg);
	void *arg;
};

struct user {
	struct list_node node;
	struct users *users;
	uid_t uid;
	uint32_t n_refs;
	struct run_owner run_owner;
	struct quota quota;
	struct work_queue *slab_work_queue; /* slabs of the pool: no call of it can hang */
	struct work_queue *work_queue; /* calls file systems, also for imported memory and cuFile */
	struct work_queue *gpu_work_queue; /* calls the driver of GPUs: its hangs stop no file */
	unsigned n_closing_fds;		   /* waiting for close(2) on the work queue: closing.h */
	unsigned n_unread_fds;		   /* in replies that its clients have not read */
	bool is_waiting;		   /* user_must_wait() was true, and on_room() is to come */
	struct gpu_user gpu;
	uint32_t reclaim_failed_id;   /* the last client for which too few were found, */
	uint64_t reclaim_failed_nsec; /* and when */
	struct log_limit log_limit;   /* of lines that its clients cause */
};

/* Finds or makes the user with this uid.  Returns 0, -ENOMEM, or the error of thread creation. */
int user_ref(struct users *users, uid_t uid, struct user **ret_user);
void user_unref(struct user *user);

/* While this is true, no session of the user reads requests.  on_room() reports the end. */
bool user_must_wait(struct user *user);
/* Something that users wait for has become less. */
void users_room(struct users *users);

/* The number of descriptors in its clients' unread replies changes by n. */
void user_count_unread(struct user *user, int n);

#endif
