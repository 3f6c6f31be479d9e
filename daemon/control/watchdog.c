#include "daemon/control/watchdog.h"

#include "daemon/base/event.h"
#include "daemon/base/log.h"
#include "daemon/base/systemd.h"
#include "daemon/lane/lane.h"
#include "daemon/store/registry.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>

/* Times that it looks within the limit: a guess. */
#define LOOKS 4u

const char *watchdog_look(struct watchdog *watchdog, uint64_t now_nsec)
{
	const char *name = NULL;

	LIST_EACH(const struct store, store, &watchdog->registry->stores, node)
		if (store->lane && lane_ping(store->lane, now_nsec) > watchdog->limit_nsec / 2)
			name = store->name;
	return name;
}

static void on_look(EVENT_ARG(arg))
{
	struct watchdog *watchdog = arg;
	const char *name = watchdog_look(watchdog, clock_nsec());

	if (!name) {
		(void)sd_notify(false, "WATCHDOG=1"); /* fails: the manager has gone */
		return;
	}
	log_error(
		"store %s: its lane has not answered for %" PRIu64
		" s, and is in no call: this is a bug: the watchdog ends this daemon, and clients go on "
		"with the next one",
		name, watchdog->limit_nsec / 2 / 1000000000u);
	(void)sd_notify(false, "WATCHDOG=trigger");
}

int watchdog_start(struct watchdog *watchdog, struct event_base *base,
		   const struct registry *registry)
{
	struct timeval period = { 0 };
	uint64_t usec;

	*watchdog = (struct watchdog){ .registry = registry };
	if (sd_watchdog_enabled(false, &usec) <= 0)
		return 0;
	watchdog->limit_nsec = usec * 1000;
	period.tv_sec = (time_t)(usec / LOOKS / 1000000);
	period.tv_usec = (suseconds_t)(usec / LOOKS % 1000000);
	watchdog->event = event_new(base, -1, EV_PERSIST, on_look, watchdog);
	return watchdog->event && event_add(watchdog->event, &period) == 0 ? 0 : -ENOMEM;
}

void watchdog_stop(struct watchdog *watchdog)
{
	event_freep(&watchdog->event);
}
