#include "daemon/object/import_step.h"

#include "daemon/base/log.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

/* After a free that stalled, the next one of such memory waits for so many times as long, and at most for so
   long: guesses. */
#define PAUSE_TIMES 10u
#define PAUSE_MAX_NSEC UINT64_C(2000000000)
/* A step that lasts so long bans its memory at once: a guess.  A shorter one may have waited for a thread of the
   daemon that held the lock of the mappings and had to wait for a processor. */
#define STEP_BANS_NSEC (10 * STALL_STEP_NSEC)

static struct {
	pthread_mutex_t paced; /* before lock: an unmap of memory that is banned, and its pause */
	pthread_mutex_t lock;  /* during a call */
	struct stall_table stalls; /* under lock */
	/* After lock: for writing during a step, for reading during a call on a slab. */
	pthread_rwlock_t calls;
} steps = { .paced = PTHREAD_MUTEX_INITIALIZER,
	    .lock = PTHREAD_MUTEX_INITIALIZER,
	    .calls = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

/* Calls on slabs. */
static struct {
	pthread_mutex_t large; /* before lock: held by the call on a large slab that may run next */
	pthread_mutex_t lock;  /* of: */
	pthread_cond_t change;
	unsigned n_running;
	unsigned n_waiting[2]; /* on large slabs, one at a time; on small ones */
	bool was_first;	       /* the last that began */
} slab_calls = { .large = PTHREAD_MUTEX_INITIALIZER,
		 .lock = PTHREAD_MUTEX_INITIALIZER,
		 .change = PTHREAD_COND_INITIALIZER };

/* Else those of one kind could make the others wait forever. */
static bool may_run(bool is_first)
{
	const unsigned n_cores = cpu_count();

	return slab_calls.n_running < (n_cores > 3 ? n_cores / 2 : 1) &&
	       (slab_calls.was_first != is_first || !slab_calls.n_waiting[!is_first]);
}

void import_step_hold(bool is_first)
{
	if (!is_first)
		(void)pthread_mutex_lock(&slab_calls.large);
	(void)pthread_mutex_lock(&slab_calls.lock);
	slab_calls.n_waiting[is_first]++;
	while (!may_run(is_first))
		(void)pthread_cond_wait(&slab_calls.change, &slab_calls.lock);
	slab_calls.n_waiting[is_first]--;
	slab_calls.was_first = is_first;
	slab_calls.n_running++;
	(void)pthread_mutex_unlock(&slab_calls.lock);
	if (!is_first)
		(void)pthread_mutex_unlock(&slab_calls.large);
	(void)pthread_rwlock_rdlock(&steps.calls); /* fewer threads than it counts: cannot fail */
}

void import_step_go_on(void)
{
	(void)pthread_rwlock_unlock(&steps.calls);
	LOCKED(&slab_calls.lock);
	slab_calls.n_running--;
	(void)pthread_cond_broadcast(&slab_calls.change);
}

/* Under the lock. */
static void step_start(struct import_step *step)
{
	(void)pthread_rwlock_wrlock(&steps.calls);
	stall_step_begin(&step->stall);
}

/* Under the lock. */
static bool is_banned(const struct import_step *step)
{
	return stall_table_bans(&steps.stalls, step->memory, step->who->uid, clock_nsec());
}

/* Under the lock, which it leaves.  Returns for how long the call stalled. */
static uint64_t step_end(struct import_step *step)
{
	const uint64_t nsec = stall_step_end(&step->stall), now_nsec = clock_nsec();
	const struct hung_who *who = step->who;
	const struct stalls *stalls = NULL;

	(void)pthread_rwlock_unlock(&steps.calls);
	for (unsigned n = nsec < STEP_BANS_NSEC ? nsec > 0 : STALLS_MAX; n > 0 && !stalls; n--)
		stalls = stall_table_note(&steps.stalls, step->memory, who->uid, now_nsec);
	if (stalls) /* a line for each ban */
		log_notice("user %u: client %" PRIu32
			   ": its shared memory kept the daemon from mapping memory, %" PRIu64
			   " ms at last, for example because programs map it very often and punch "
			   "it: imports of this memory are refused for %" PRIu64 " s",
			   who->uid, who->client, nsec / 1000000,
			   stalls->banned_nsec / 1000000000u);
	(void)pthread_mutex_unlock(&steps.lock);
	return nsec;
}

/* Under the lock. */
static int check(const struct import_step *step, struct error *error)
{
	if (!is_banned(step))
		return 0;
	return error_set_plain(error, -EAGAIN,
			       "shared memory: it has kept the daemon from mapping memory, "
			       "as memory does that programs map very often and punch: try "
			       "again in some minutes, or use dsaio_alloc()");
}

int import_step_check(const struct import_step *step, struct error *error)
{
	LOCKED(&steps.lock);
	return check(step, error);
}

int import_step_begin(struct import_step *step, struct error *error)
{
	int r;

	(void)pthread_mutex_lock(&steps.lock);
	r = check(step, error);
	if (r < 0)
		(void)pthread_mutex_unlock(&steps.lock);
	else
		step_start(step);
	return r;
}

void import_step_end(struct import_step *step)
{
	(void)step_end(step);
}

static void sleep_for(uint64_t nsec)
{
	const struct timespec time = { .tv_sec = (time_t)(nsec / 1000000000u),
				       .tv_nsec = (long)(nsec % 1000000000u) };

	(void)nanosleep(&time, NULL); /* worker threads take no signals from outside */
}

bool import_step_unmap(struct import_step *step, void *start, size_t bytes,
		       const _Atomic bool *is_stopping)
{
	bool is_paced, is_unmapped;
	uint64_t nsec;

	(void)pthread_mutex_lock(&steps.lock);
	is_paced = is_banned(step);
	if (is_paced) {
		(void)pthread_mutex_unlock(&steps.lock);
		(void)pthread_mutex_lock(&steps.paced);
		(void)pthread_mutex_lock(&steps.lock);
	}
	step_start(step);
	is_unmapped = munmap(start, bytes) == 0;
	nsec = step_end(step);
	if (!is_paced)
		return is_unmapped;
	if (nsec && !atomic_load(is_stopping))
		sleep_for(nsec < PAUSE_MAX_NSEC / PAUSE_TIMES ? PAUSE_TIMES * nsec
							      : PAUSE_MAX_NSEC);
	(void)pthread_mutex_unlock(&steps.paced);
	return is_unmapped;
}
