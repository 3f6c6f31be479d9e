#include "daemon/base/stall.h"

#include "proto/util/clock.h"

#include <sys/resource.h>

/* The calls of this thread. */
static _Thread_local struct {
	uint64_t watched_until_nsec;
	bool is_watched;	   /* the present call: its counts at its start are these */
	long n_switches, n_faults; /* of the thread */
} calls;

uint64_t stall_begin(void)
{
	const uint64_t now_nsec = clock_nsec();
	struct rusage usage;

	calls.is_watched = now_nsec < calls.watched_until_nsec;
	if (calls.is_watched) {
		(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail with these arguments */
		calls.n_switches = usage.ru_nvcsw;
		calls.n_faults = usage.ru_minflt + usage.ru_majflt;
	}
	return now_nsec;
}

bool stall_end(uint64_t since_nsec, bool has_failed)
{
	const uint64_t now_nsec = clock_nsec();
	struct rusage usage;

	if (now_nsec - since_nsec < STALL_NSEC)
		return false;
	calls.watched_until_nsec = now_nsec + STALLS_WITHIN_NSEC;
	if (!calls.is_watched)
		return false;
	(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail with these arguments */
	return usage.ru_nvcsw != calls.n_switches &&
	       (has_failed || usage.ru_minflt + usage.ru_majflt != calls.n_faults);
}

bool stalls_note(struct stalls *stalls, uint64_t now_nsec)
{
	const uint64_t last_nsec = stalls->banned_nsec;

	if (stalls_is_banned(stalls, now_nsec))
		return false; /* its block had started before */
	if (!stalls->n || now_nsec - stalls->since_nsec > STALLS_WITHIN_NSEC) {
		stalls->n = 0;
		stalls->since_nsec = now_nsec;
	}
	if (++stalls->n < STALLS_MAX)
		return false;
	stalls->n = 0;
	if (!last_nsec || now_nsec - stalls->banned_until_nsec > STALLS_BAN_MAX_NSEC)
		stalls->banned_nsec = STALLS_BAN_NSEC;
	else if (last_nsec < STALLS_BAN_MAX_NSEC)
		stalls->banned_nsec = 2 * last_nsec;
	stalls->banned_until_nsec = now_nsec + stalls->banned_nsec;
	return true;
}
