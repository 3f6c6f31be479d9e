#include "daemon/base/wakes.h"

#include "proto/util/clock.h"

/* The calls of this thread. */
static _Thread_local struct {
	uint64_t watched_until_nsec;
	uint64_t cpu_nsec; /* of the thread, at the start of the present call; 0: not watched */
} calls;

uint64_t wakes_begin(void)
{
	const uint64_t now_nsec = clock_nsec();

	calls.cpu_nsec = now_nsec < calls.watched_until_nsec ? clock_thread_nsec() : 0;
	return now_nsec;
}

bool wakes_end(struct wakes *wakes, uint64_t since_nsec)
{
	const uint64_t now_nsec = clock_nsec();

	if (now_nsec - since_nsec < WAKE_NSEC)
		return false;
	calls.watched_until_nsec = now_nsec + WAKES_WITHIN_NSEC;
	if (!calls.cpu_nsec || clock_thread_nsec() - calls.cpu_nsec < WAKE_NSEC ||
	    wakes_is_costly(wakes))
		return false;
	if (!wakes->n || now_nsec - wakes->since_nsec > WAKES_WITHIN_NSEC)
		*wakes = (struct wakes){ .since_nsec = now_nsec };
	return ++wakes->n == WAKES_MAX;
}
