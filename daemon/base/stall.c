#include "daemon/base/stall.h"

#include "proto/util/clock.h"

#include <sys/resource.h>

/* The counts of this thread so far. */
static _Thread_local struct counts {
	bool is_known; /* it has not slept of its own accord since */
	long n_switches, n_faults;
} counts;

static struct counts count(void)
{
	struct rusage usage = { 0 };

	(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail with these arguments */
	return (struct counts){ true, usage.ru_nvcsw, usage.ru_minflt + usage.ru_majflt };
}

uint64_t stall_begin(void)
{
	if (!counts.is_known)
		counts = count();
	return clock_nsec();
}

bool stall_end(uint64_t since_nsec, bool has_failed)
{
	const struct counts before = counts;

	if (clock_nsec() - since_nsec < STALL_NSEC)
		return false;
	counts = count();
	return counts.n_switches != before.n_switches &&
	       (has_failed || counts.n_faults != before.n_faults);
}

void stall_note_sleep(void)
{
	counts.is_known = false;
}
