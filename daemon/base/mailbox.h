/*
 * A mailbox: how other threads tell a thread what to do.  Messages are run by the owner, in
 * order, one at a time; the eventfd becomes readable when there are some.
 *
 * A message is embedded in the object that it is about; it is free for use again as soon as it
 * runs.  mailbox_post(): any thread; it wakes the owner.  All else: the owner.
 */
#ifndef DSAIO_DAEMON_BASE_MAILBOX_H
#define DSAIO_DAEMON_BASE_MAILBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct message {
	struct message *next;
	void (*run)(struct message *message);
};

struct mailbox {
	pthread_mutex_t lock;
	struct message *first, **last_next; /* under lock */
	_Atomic bool has_any;		    /* posters: release; owner: acquire */
	int event_fd;
};

int mailbox_init(struct mailbox *mailbox); /* 0 or -errno */
void mailbox_deinit(struct mailbox *mailbox);

void mailbox_post(struct mailbox *mailbox, struct message *message);

static inline bool mailbox_has_any(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->has_any, memory_order_acquire);
}

/* Runs all messages that are there, also those that come meanwhile; returns how many. */
int mailbox_run(struct mailbox *mailbox);

#endif
