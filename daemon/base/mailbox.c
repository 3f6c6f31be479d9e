#include "daemon/base/mailbox.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>

int inbox_init(struct inbox *inbox)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	*inbox = (struct inbox){ .event_fd = fd, .last_next = &inbox->first };
	(void)pthread_mutex_init(&inbox->lock, NULL); /* of the default kind: can not fail */
	atomic_init(&inbox->has_any, false);
	return 0;
}

void inbox_deinit(struct inbox *inbox)
{
	assert(!inbox->first);
	closep(&inbox->event_fd);
	(void)pthread_mutex_destroy(&inbox->lock); /* nobody has it */
}

void inbox_post(struct inbox *inbox, struct message *message)
{
	static const uint64_t one = 1;
	bool was_empty;

	message->next = NULL;
	(void)pthread_mutex_lock(&inbox->lock); /* of the default kind: can not fail */
	was_empty = !inbox->first;
	*inbox->last_next = message;
	inbox->last_next = &message->next;
	atomic_store_explicit(&inbox->has_any, true, memory_order_release);

	/*
	 * One wake-up for a list: the owner takes it whole.  Under the lock, since the message
	 * may be the last one that the owner waits for before it frees the inbox.
	 */
	if (was_empty && write(inbox->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN); /* full: readable all the same */
	(void)pthread_mutex_unlock(&inbox->lock);
}

static struct message *inbox_take(struct inbox *inbox)
{
	struct message *first;

	(void)pthread_mutex_lock(&inbox->lock);
	first = inbox->first;
	inbox->first = NULL;
	inbox->last_next = &inbox->first;
	atomic_store_explicit(&inbox->has_any, false, memory_order_relaxed); /* ours, under lock */
	(void)pthread_mutex_unlock(&inbox->lock);
	return first;
}

int inbox_run(struct inbox *inbox)
{
	uint64_t count;
	int n = 0;

	/* Emptied before the list is taken: a later message makes it readable again. */
	if (read(inbox->event_fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN || errno == EINTR);

	for (;;) {
		struct message *message = inbox_take(inbox);

		if (!message)
			return n;
		while (message) {
			struct message *next = message->next; /* it may be gone when it has run */

			message->run(message);
			message = next;
			n++;
		}
	}
}
