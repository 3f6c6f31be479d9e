/*
 * A mailbox: a queue of messages from other threads to its owner.  The owner runs the messages in
 * order, one at a time.  The eventfd is readable while the mailbox has messages.
 *
 * A message is embedded in the object that it is about.  It may be posted again as soon as it runs.
 * mailbox_post(): any thread; it wakes the owner.  All else: the owner.
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

void mailbox_post(struct mailbox *mailbox, struct message *message,
		  void (*run)(struct message *message));

static inline bool mailbox_has_any(const struct mailbox *mailbox)
{
	return atomic_load_explicit(&mailbox->has_any, memory_order_acquire);
}

/* Runs all messages, also those that are posted meanwhile; returns their number. */
int mailbox_run(struct mailbox *mailbox);

#endif
