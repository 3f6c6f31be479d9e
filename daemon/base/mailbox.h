/*
 * An inbox: how other threads tell a thread what to do.  Messages are run by the owner, in
 * order, one at a time; the eventfd becomes readable when there are some.
 *
 * A message is embedded in the object that it is about; it is free for use again as soon as it
 * runs.  inbox_post(): any thread; it wakes the owner.  All else: the owner.
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

struct inbox {
	pthread_mutex_t lock;
	struct message *first, **last_next; /* under lock */
	_Atomic bool has_any;		    /* posters: release; owner: acquire */
	int event_fd;
};

int inbox_init(struct inbox *inbox); /* 0 or -errno */
void inbox_deinit(struct inbox *inbox);

void inbox_post(struct inbox *inbox, struct message *message);

static inline bool inbox_has_any(const struct inbox *inbox)
{
	return atomic_load_explicit(&inbox->has_any, memory_order_acquire);
}

/* Runs all messages that are there, also those that come meanwhile; returns how many. */
int inbox_run(struct inbox *inbox);

#endif
