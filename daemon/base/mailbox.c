#include "daemon/base/mailbox.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>

int mailbox_init(struct mailbox *mailbox)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	*mailbox = (struct mailbox){ .event_fd = fd, .last_next = &mailbox->first };
	(void)pthread_mutex_init(&mailbox->lock, NULL); /* of the default kind: cannot fail */
	atomic_init(&mailbox->has_any, false);
	return 0;
}

void mailbox_deinit(struct mailbox *mailbox)
{
	assert(!mailbox->first);
	closep(&mailbox->event_fd);
	(void)pthread_mutex_destroy(&mailbox->lock); /* nobody has it */
}

void mailbox_post(struct mailbox *mailbox, struct message *message,
		  void (*run)(struct message *message))
{
	static const uint64_t one = 1;
	bool was_empty;

	message->next = NULL;
	message->run = run;
	LOCKED(&mailbox->lock);
	was_empty = !mailbox->first;
	*mailbox->last_next = message;
	mailbox->last_next = &message->next;
	atomic_store_explicit(&mailbox->has_any, true, memory_order_release);

	/*
 * One wake-up per list, because the owner takes the whole list.  The write happens under the lock,
 * because the owner may free the mailbox after this message.
 */
	if (was_empty && write(mailbox->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN); /* full: readable all the same */
}

static struct message *mailbox_take(struct mailbox *mailbox)
{
	struct message *first;

	LOCKED(&mailbox->lock);
	first = mailbox->first;
	mailbox->first = NULL;
	mailbox->last_next = &mailbox->first;
	atomic_store_explicit(&mailbox->has_any, false,
			      memory_order_relaxed); /* ours, under lock */
	return first;
}

int mailbox_run(struct mailbox *mailbox)
{
	uint64_t count;
	int n = 0;

	/* Emptied before the list is taken: a later message makes it readable again. */
	if (read(mailbox->event_fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN || errno == EINTR);

	for (;;) {
		struct message *message = mailbox_take(mailbox);

		if (!message)
			return n;
		while (message) {
			struct message *next =
				message->next; /* the message may be freed when it has run */

			message->run(message);
			message = next;
			n++;
		}
	}
}
