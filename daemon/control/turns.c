#include "daemon/control/turns.h"

#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stddef.h>

/*
 * The event loop runs before the next turns.  A timer does that; event_active() from a callback
 * does not: libevent empties its queue of active events before it looks at any descriptor.
 */
static void turns_arm(struct turns *turns)
{
	static const struct timeval at_once = { 0 };

	if (evtimer_pending(turns->event, NULL))
		return;
	if (evtimer_add(turns->event, &at_once) < 0)
		event_active(turns->event, EV_TIMEOUT,
			     0); /* without memory: other events come late, but the turns go on */
}

/* The next turn.  Its owner goes to the end of the list if it has another one. */
static struct turn *turns_pop(struct turns *turns)
{
	struct turn_owner *owner = list_entry(list_pop(&turns->owners), struct turn_owner, node);
	struct turn *turn = list_entry(list_pop(&owner->turns), struct turn, node);

	if (owner->turns.first)
		list_push(&turns->owners, &owner->node);
	turn->is_queued = false;
	return turn;
}

static void on_turns(evutil_socket_t fd, short what, void *arg)
{
	struct turns *turns = arg;
	uint64_t end_nsec = clock_nsec() + TURNS_NSEC;

	(void)fd;
	(void)what;
	while (turns->owners.first) {
		struct turn *turn = turns_pop(turns);

		if (turns->serve(turn))
			turns_add(turns, turn);
		if (clock_nsec() >= end_nsec)
			break;
	}
	if (turns->owners.first)
		turns_arm(turns);
}

int turns_init(struct turns *turns, struct event_base *base, bool (*serve)(struct turn *turn))
{
	*turns = (struct turns){ .serve = serve };
	turns->event = evtimer_new(base, on_turns, turns);
	return turns->event ? 0 : -ENOMEM;
}

void turns_deinit(struct turns *turns)
{
	assert(!turns->owners.first);
	if (turns->event)
		event_free(turns->event);
	turns->event = NULL;
}

void turns_add(struct turns *turns, struct turn *turn)
{
	struct turn_owner *owner = turn->owner;

	if (turn->is_queued)
		return;
	turn->is_queued = true;
	if (!owner->turns.first)
		list_push(&turns->owners, &owner->node);
	list_push(&owner->turns, &turn->node);
	turns_arm(turns);
}
