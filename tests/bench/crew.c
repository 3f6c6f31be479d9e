#include "tests/bench/crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/process.h"

/* All members must have read their command by then: a wake-up takes some 50 us each. */
#define START_NSEC INT64_C(3000000)
/* Longer than any open or slice: 400 MB from a file that got cold took 20 s. */
#define MEMBER_TIMEOUT_MSEC 120000

struct crew {
	unsigned n;
	pid_t *pids;
	int *fds;	   /* to each member */
	struct work *work; /* shared: one each */
};

/* ---- in the child ---- */

static int64_t cpu_nsec(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* cannot fail */
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Voluntary context switches: each is a sleep, in whatever call. */
static uint64_t sleeps(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u); /* cannot fail */
	return (uint64_t)u.ru_nvcsw;
}

static void sleep_until(int64_t nsec)
{
	const struct timespec t = { nsec / 1000000000, nsec % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

_Noreturn static void member_main(const struct crew_member *member, const struct point *point,
				  unsigned index, const void *argument, int fd, struct work *work)
{
	void *state = NULL;
	char byte;
	int r;

	(void)signal(SIGINT, SIG_IGN); /* the parent ends us when it is ready */
	r = member->open(point, index, argument, &state, work->why, sizeof(work->why));
	work->error = r;
	/* Each byte asks for a slice and each answer says that it is over; the first, that we are open. */
	while (send(fd, "", 1, MSG_NOSIGNAL) == 1 && r == 0 && read(fd, &byte, 1) == 1) {
		uint64_t n_sleeps;
		int64_t cpu;

		sleep_until(work->start_nsec);
		cpu = cpu_nsec();
		n_sleeps = sleeps();
		r = member->run(state, work);
		work->done_nsec = now_nsec();
		work->cpu_nsec = cpu_nsec() - cpu;
		work->sleeps = sleeps() - n_sleeps;
		work->error = r;
	}
	member->close(state);
	_exit(r < 0);
}

void offsets_init(struct offsets *offsets, const struct point *point)
{
	*offsets = (struct offsets){ .n = point->file_bytes / point->op_bytes,
				     .seed = random_seed() + (uint64_t)getpid() * 2,
				     .op_bytes = point->op_bytes,
				     .is_random = point->is_random };
}

uint64_t offsets_next(struct offsets *offsets)
{
	const uint64_t i = offsets->is_random ? random_next(&offsets->seed) : offsets->next++;

	return i % offsets->n * offsets->op_bytes;
}

/* ---- in the parent ---- */

static int member_wait(struct side *side, struct crew *crew, unsigned i)
{
	struct pollfd p = { .fd = crew->fds[i], .events = POLLIN };
	const struct work *work = &crew->work[i];
	char byte;
	int r;

	do
		r = poll(&p, 1, MEMBER_TIMEOUT_MSEC);
	while (r < 0 && errno == EINTR);
	if (r == 0) {
		(void)snprintf(side->why, sizeof(side->why), "process %u does not answer", i);
		return -ETIMEDOUT;
	}
	if (read(crew->fds[i], &byte, 1) != 1) {
		(void)snprintf(side->why, sizeof(side->why), "process %u ended unexpectedly", i);
		return -ECHILD;
	}
	if (work->error < 0)
		(void)snprintf(side->why, sizeof(side->why), "%s", work->why);
	return work->error;
}

static int member_start(struct crew *crew, const struct crew_member *member,
			const struct point *point, const void *argument)
{
	const pid_t parent = getpid();
	const unsigned i = crew->n;
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		closep(&fds[0]);
		member_main(member, point, i, argument, fds[1], &crew->work[i]);
	}
	closep(&fds[1]);
	if (pid < 0) {
		const int r = -errno;

		closep(&fds[0]);
		return r;
	}
	crew->fds[i] = fds[0];
	crew->pids[i] = pid;
	crew->n++;
	return 0;
}

static void crew_freep(struct crew **crew)
{
	crew_free(*crew);
}

int crew_new(struct side *side, const struct crew_member *member, const void *argument,
	     struct crew **ret_crew)
{
	const unsigned n = side->point.n_processes;
	_cleanup_(crew_freep) struct crew *crew = calloc(1, sizeof(*crew));
	void *map;
	int r = 0;

	*ret_crew = NULL;
	if (!crew)
		return -ENOMEM;
	crew->pids = calloc(n, sizeof(*crew->pids));
	crew->fds = calloc(n, sizeof(*crew->fds));
	map = mmap(NULL, n * sizeof(*crew->work), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	crew->work = map == MAP_FAILED ? NULL : map;
	if (!crew->pids || !crew->fds || !crew->work)
		r = -ENOMEM;
	while (r == 0 && crew->n < n)
		r = member_start(crew, member, &side->point, argument);
	if (r < 0) {
		(void)snprintf(side->why, sizeof(side->why), "cannot start processes: %s",
			       strerror(-r));
		return r;
	}
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = member_wait(side, crew, i);
	if (r == 0)
		*ret_crew = TAKE_PTR(crew);
	return r;
}

void crew_free(struct crew *crew)
{
	if (!crew)
		return;
	/* Processes of other crews, forked later, have copies of these sockets: close() is not enough. */
	for (unsigned i = 0; i < crew->n; i++) {
		(void)shutdown(crew->fds[i], SHUT_RDWR); /* it is a socket */
		closep(&crew->fds[i]);
	}
	for (unsigned i = 0; i < crew->n; i++)
		while (waitpid(crew->pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	if (crew->work)
		(void)munmap(crew->work, crew->n * sizeof(*crew->work)); /* it is a mapping */
	free(crew->fds);
	free(crew->pids);
	free(crew);
}

static void crew_sum(const struct side *side, const struct crew *crew, struct result *result)
{
	_cleanup_(freep) struct histogram *sum = calloc(1, sizeof(*sum));
	int64_t done = 0;

	result->cpu_seconds = result->daemon_cpu_seconds;
	result->sleeps = result->daemon_sleeps;
	result->block_bytes = crew->work[0].block_bytes;
	result->depth = crew->work[0].depth;
	for (unsigned i = 0; i < crew->n; i++) {
		const struct work *work = &crew->work[i];

		result->ops += work->ops;
		result->bytes += work->bytes;
		result->cpu_seconds += (double)work->cpu_nsec / 1e9;
		result->sleeps += work->sleeps;
		done = work->done_nsec > done ? work->done_nsec : done;
		if (sum)
			histogram_merge(sum, &work->histogram);
	}
	result->seconds = (double)(done - crew->work[0].start_nsec) / 1e9;
	if (result->block_bytes == 0) {
		result->block_bytes = (unsigned)point_block_bytes(&side->point);
		result->depth = side->point.depth;
	}
	if (sum) {
		result->mean_usec = histogram_mean(sum) / 1e3;
		result->p50_usec = histogram_quantile(sum, 0.5) / 1e3;
		result->p99_usec = histogram_quantile(sum, 0.99) / 1e3;
	}
}

static double process_cpu_seconds(clockid_t clock)
{
	struct timespec t = { 0 };

	(void)clock_gettime(clock, &t); /* 0 if it just ended: then the slice fails anyway */
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int crew_slice(struct side *side, struct crew *crew, pid_t other_pid, struct result *ret_result)
{
	const int64_t start = now_nsec() + START_NSEC;
	struct result result = { 0 };
	clockid_t clock = CLOCK_MONOTONIC;
	struct process_activity slept = { 0 }, slept_then = { 0 };
	double before = 0;
	int r = 0;

	if (other_pid > 0 && clock_getcpuclockid(other_pid, &clock) != 0) {
		(void)snprintf(side->why, sizeof(side->why), "the daemon is gone");
		return -ECHILD;
	}
	if (other_pid > 0) {
		before = process_cpu_seconds(clock);
		r = process_activity(other_pid, &slept);
	}
	for (unsigned i = 0; i < crew->n; i++) {
		crew->work[i] = (struct work){ .start_nsec = start,
					       .end_nsec = start + side->point.slice_usec * 1000 };
		/* One that is gone shows as the end of file in member_wait(). */
		(void)send(crew->fds[i], "", 1, MSG_NOSIGNAL);
	}
	for (unsigned i = 0; i < crew->n; i++) {
		const int failed = member_wait(side, crew, i);

		r = r < 0 ? r : failed;
	}
	if (r < 0)
		return r;
	if (other_pid > 0) {
		result.daemon_cpu_seconds = process_cpu_seconds(clock) - before;
		r = process_activity(other_pid, &slept_then);
		result.daemon_sleeps = slept_then.sleeps - slept.sleeps;
	}
	crew_sum(side, crew, &result);
	*ret_result = result;
	return 0;
}

int crew_side_open(struct side *side, const struct crew_member *member)
{
	struct crew *crew;
	const int r = crew_new(side, member, NULL, &crew);

	side->state = crew;
	return r;
}

int crew_side_run(struct side *side, struct result *ret_result)
{
	return crew_slice(side, side->state, 0, ret_result);
}

void crew_side_close(struct side *side)
{
	crew_free(side->state);
	side->state = NULL;
}
