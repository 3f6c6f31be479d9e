#include "daemon/control/run_queue.h"

#include "daemon/base/event.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

/*
 * The event loop runs before the next entries.  A timer does that; event_active() from a callback
 * does not: libevent empties its queue of active events before it looks at any descriptor.
 */
static void run_queue_arm(struct run_queue *queue)
{
	static const struct timeval at_once = { 0 };

	if (evtimer_pending(queue->event, NULL))
		return;
	if (evtimer_add(queue->event, &at_once) < 0)
		event_active(queue->event, EV_TIMEOUT,
			     0); /* without memory: other events come late, but the queue goes on */
}

/* The next entry.  Its owner goes to the end of the list if it has another one. */
static struct run_entry *run_queue_pop(struct run_queue *queue)
{
	struct run_owner *owner = list_entry(list_pop(&queue->owners), struct run_owner, node);
	struct run_entry *entry = list_entry(list_pop(&owner->entries), struct run_entry, node);

	if (owner->entries.first)
		list_push(&queue->owners, &owner->node);
	entry->is_queued = false;
	return entry;
}

static void on_run_queue(EVENT_ARG(arg))
{
	struct run_queue *queue = arg;
	uint64_t end_nsec = clock_nsec() + RUN_QUEUE_NSEC;

	while (queue->owners.first) {
		struct run_entry *entry = run_queue_pop(queue);

		if (queue->serve(entry))
			run_queue_add(queue, entry);
		if (clock_nsec() >= end_nsec)
			break;
	}
	if (queue->owners.first)
		run_queue_arm(queue);
}

int run_queue_init(struct run_queue *queue, struct event_base *base,
		   bool (*serve)(struct run_entry *entry))
{
	*queue = (struct run_queue){ .serve = serve };
	queue->event = evtimer_new(base, on_run_queue, queue);
	return queue->event ? 0 : -ENOMEM;
}

void run_queue_deinit(struct run_queue *queue)
{
	assert(!queue->owners.first);
	event_freep(&queue->event);
}

void run_queue_add(struct run_queue *queue, struct run_entry *entry)
{
	struct run_owner *owner = entry->owner;

	if (entry->is_queued)
		return;
	entry->is_queued = true;
	if (!owner->entries.first)
		list_push(&queue->owners, &owner->node);
	list_push(&owner->entries, &entry->node);
	run_queue_arm(queue);
}
