#include "daemon/base/stall.h"

#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

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

bool stall_is_watched(void)
{
	return calls.is_watched;
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

/* For how long the thread has waited for a processor; 0: the kernel does not tell.  Linux 6.18 counts one sleep in a
   hundred as such a wait, too (seen beside other load): such a stall is missed. */
static uint64_t waited_nsec(void)
{
	_cleanup_(closep) int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	char text[64] = "";
	uint64_t nsec = 0;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "%*u %" SCNu64, &nsec) != 1)
		return 0;
	return nsec;
}

void stall_step_begin(struct stall_step *step)
{
	struct rusage usage;

	step->waited_nsec = waited_nsec();
	(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail with these arguments */
	step->n_switches = usage.ru_nvcsw;
	step->cpu_nsec = clock_thread_nsec();
	step->since_nsec = clock_nsec();
}

uint64_t stall_step_end(const struct stall_step *step)
{
	uint64_t nsec = clock_nsec() - step->since_nsec, waited;
	struct rusage usage;

	if (nsec < STALL_STEP_NSEC)
		return 0;
	waited = waited_nsec() - step->waited_nsec;
	nsec -= waited < nsec ? waited : nsec;
	if (nsec < STALL_STEP_NSEC)
		return 0;
	(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail with these arguments */
	if (usage.ru_nvcsw == step->n_switches &&
	    clock_thread_nsec() - step->cpu_nsec < STALL_STEP_NSEC)
		return 0;
	return nsec;
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

/* The time at which the memory's stalls count no more, and its ban is over. */
static uint64_t until_nsec(const struct stalls *stalls)
{
	const uint64_t counts_until_nsec = stalls->since_nsec + STALLS_WITHIN_NSEC;

	return stalls->banned_until_nsec > counts_until_nsec ? stalls->banned_until_nsec
							     : counts_until_nsec;
}

/* The memory's place: its own, or a new one, or that of the memory whose stalls are the oldest. */
static struct stall_memory *memory_find(struct stall_table *table, const struct inode_id *id)
{
	struct stall_memory *oldest = table->memories;

	for (unsigned i = 0; i < table->n; i++) {
		struct stall_memory *memory = &table->memories[i];

		if (!inode_id_compare(&memory->id, id))
			return memory;
		if (until_nsec(&memory->stalls) < until_nsec(&oldest->stalls))
			oldest = memory;
	}
	if (table->n < STALL_MEMORIES_MAX)
		oldest = &table->memories[table->n++];
	*oldest = (struct stall_memory){ .id = *id };
	return oldest;
}

const struct stalls *stall_table_note(struct stall_table *table, const struct inode_id *id,
				      uid_t uid, uint64_t now_nsec)
{
	struct stall_memory *memory = memory_find(table, id);
	bool is_banned;

	if (!memory->stalls.since_nsec)
		memory->uid = uid;
	is_banned = stalls_note(&memory->stalls, now_nsec);
	if (until_nsec(&memory->stalls) > table->until_nsec)
		table->until_nsec = until_nsec(&memory->stalls);
	return is_banned ? &memory->stalls : NULL;
}

bool stall_table_bans(const struct stall_table *table, const struct inode_id *id, uid_t uid,
		      uint64_t now_nsec)
{
	unsigned n_of_user = 0;

	if (now_nsec >= table->until_nsec)
		return false;
	for (unsigned i = 0; i < table->n; i++) {
		const struct stall_memory *memory = &table->memories[i];

		if (!inode_id_compare(&memory->id, id) &&
		    stalls_is_banned(&memory->stalls, now_nsec))
			return true;
		n_of_user += memory->uid == uid && now_nsec < until_nsec(&memory->stalls);
	}
	return n_of_user >= STALL_USER_MEMORIES;
}
