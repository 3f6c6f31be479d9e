/*
 * A user: all sessions of one uid.  They share a quota, a place in the turns of the main thread, and
 * worker threads on which the daemon checks and closes the user's descriptors.  So a hung file system
 * of one user hangs only that user.  Others import and release its GPU memory, so a hung driver hangs
 * only that, and files that are registered with cuFile.
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
#include "daemon/control/turns.h"
#include "proto/util/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user;

/* Files of one user that cuFile registers at a time: half of the worker threads for its descriptors. */
#define USER_REGISTERING_MAX 32u

struct users {
	struct list all;	 /* struct user */
	struct quota *quota;	 /* the daemon's: the parent of each user's */
	const uint64_t *limit;	 /* of one user; N_QUOTA_KINDS */
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
	struct turn_owner turns;
	struct quota quota;
	struct work_queue *slab_work_queue; /* slabs of the pool: no call of it can hang */
	struct work_queue *work_queue; /* calls file systems, also for imported memory and cuFile */
	struct work_queue *gpu_work_queue; /* calls the driver of GPUs: its hangs stop no file */
	unsigned n_closing_fds;		   /* waiting for close(2) on the work queue: closing.h */
	uint32_t n_leaving;	    /* idle files taken from its clients and not yet closed */
	uint32_t n_imports;	    /* as in struct session: unanswered requests of its clients */
	struct list registering;    /* struct registering: gpu_requests.c */
	struct list adds;	    /* struct file_add: files that wait for that */
	uint32_t fruitless_id;	    /* the last client for which too few were found, */
	uint64_t fruitless_nsec;    /* and when */
	struct log_limit log_limit; /* of lines that its clients cause */
};

/* Finds or makes the user with this uid.  Returns 0, -ENOMEM, or the error of thread creation. */
int user_ref(struct users *users, uid_t uid, struct user **ret_user);
void user_unref(struct user *user);

/* While this is true, no session of the user reads requests. */
bool user_is_full(const struct user *user);

/* Resumes the sessions if the user was full and is not full any more. */
void user_room(struct user *user, bool was_full);

bool user_is_out_of_files(const struct user *user);

#endif
