#include "tests/victim.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define VICTIMS_MAX 4
#define VICTIM_UID 60011 /* no test attacks as this user */
#define FILE_BYTES (256 * KIB)
#define READ_BYTES 4096
#define READS 4 /* in a round */
#define SAMPLES_MAX 16384
/* A pause between rounds, so that victims leave the processors to daemon and attacker. */
#define PAUSE_MSEC 5
/* Far above what a loaded machine with two processors needs, and below the faults, which are of
   several seconds. */
#define P99_MAX_USEC INT64_C(1000000)
/* With fewer samples the p99 is the longest one, which has its own limit. */
#define P99_SAMPLES_MIN 100u
#define LONGEST_MAX_USEC INT64_C(5000000)
/* How often a call may have to wait as long as the test's own process once waited for the machine. */
#define MACHINE_WAITS 4

enum call { READ, CONNECT, OPEN, ALLOC, FIRST_READ, DISCONNECT, STATUS, N_CALLS, NONE = N_CALLS };

static const char *const call_names[N_CALLS] = { "read",       "connect",    "open",  "alloc",
						 "first read", "disconnect", "status" };

/* Shared with the victim's process, which writes; the test reads. */
struct victim {
	_Atomic int call; /* under way; or NONE */
	_Atomic int64_t since_usec;
	_Atomic uint32_t n_rounds;
	_Atomic bool must_stop;
	struct samples {
		_Atomic uint32_t n; /* all; the last SAMPLES_MAX are kept */
		int64_t usec[SAMPLES_MAX];
	} samples[N_CALLS];
	/* the test's */
	pid_t pid;
	const char *what;
	uint32_t n_before[N_CALLS]; /* samples from before the attack */
};

static struct victim *victims[VICTIMS_MAX];
static unsigned n_victims;
/*
 * The longest time, without the daemon, of a direct read of the victims' file and a sleep: a disk that others
 * load has stalled for 20 s.  The limits of calls are longer by some of it.
 */
static int64_t machine_usec;

/* ---- the victim's process ---- */

static void call_begin(struct victim *victim, enum call call)
{
	atomic_store(&victim->since_usec, now_usec());
	atomic_store(&victim->call, (int)call);
}

static void call_end(struct victim *victim)
{
	struct samples *samples = &victim->samples[atomic_load(&victim->call)];
	uint32_t n = atomic_load(&samples->n);

	samples->usec[n % SAMPLES_MAX] = now_usec() - atomic_load(&victim->since_usec);
	atomic_store(&samples->n, n + 1);
	atomic_store(&victim->call, NONE);
}

static void read_one(struct victim *victim, enum call call, struct rig *rig, void *memory,
		     uint64_t *random)
{
	uint64_t off = test_random(random) % (FILE_BYTES / READ_BYTES) * READ_BYTES;

	call_begin(victim, call);
	CHECK_EQ(dsaio_pread(rig->handle, rig->files[0], memory, READ_BYTES, off), READ_BYTES);
	call_end(victim);
	pattern_check(memory, READ_BYTES, 1, off, "what a victim read");
}

/* Connects, opens the file and takes memory for a read, which it returns. */
static void *arrive(struct victim *victim, struct rig *rig)
{
	void *memory;

	call_begin(victim, CONNECT);
	rig_open(rig, NULL);
	call_end(victim);
	call_begin(victim, OPEN);
	(void)rig_file(rig, "victim", O_RDONLY);
	call_end(victim);
	call_begin(victim, ALLOC);
	CHECK_CALL(dsaio_alloc(rig->client, READ_BYTES, NULL, &memory));
	call_end(victim);
	return memory;
}

static void newcomer(struct victim *victim, const struct rig *old, uint64_t *random)
{
	struct rig rig = { .daemon = old->daemon };
	void *memory;

	memory = arrive(victim, &rig);
	read_one(victim, FIRST_READ, &rig, memory, random);
	call_begin(victim, DISCONNECT);
	rig_close(&rig);
	call_end(victim);
}

static void victim_round(struct victim *victim, struct rig *rig, void *memory, uint64_t *random)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	for (unsigned i = 0; i < READS; i++)
		read_one(victim, READ, rig, memory, random);
	newcomer(victim, rig, random);
	call_begin(victim, STATUS);
	daemon_status(rig->daemon, &answer);
	call_end(victim);
}

static void victim_main(struct victim *victim, const struct daemon *daemon)
{
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	uint64_t random = test_seed();
	void *memory;

	if (geteuid() == 0)
		child_become(VICTIM_UID);
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	memory = arrive(victim, &rig);
	while (!atomic_load(&victim->must_stop)) {
		victim_round(victim, &rig, memory, &random);
		(void)atomic_fetch_add(&victim->n_rounds, 1);
		(void)poll(NULL, 0, PAUSE_MSEC);
	}
	rig_close(&rig);
}

/* ---- the test's process ---- */

/* Returns a descriptor of the file that victims read. */
static int file_open(const struct daemon *daemon)
{
	const char *path = daemon_path(daemon, "victim");
	bool is_new = access(path, F_OK) < 0;
	int fd;

	if (is_new)
		file_make_pattern(path, FILE_BYTES, 1);
	fd = open_direct(path, O_RDONLY);
	CHECK_SYS(fsync(fd)); /* dirty pages would be written when it is first read */
	if (is_new && geteuid() == 0) {
		CHECK_SYS(fchmod(fd, 0644));
		daemon_open_to_all(daemon);
	}
	return fd;
}

static struct victim *victim_fork(const struct daemon *daemon, const char *what)
{
	struct victim *victim = mmap(NULL, sizeof(*victim), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	CHECK(victim != MAP_FAILED);
	CHECK(n_victims < VICTIMS_MAX);
	victims[n_victims++] = victim;
	victim->what = what;
	atomic_store(&victim->call, NONE);
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		victim_main(victim, daemon);
		_exit(0);
	}
	victim->pid = pid; /* the child would write 0 there */
	return victim;
}

/* For how long the call under way has lasted; 0: there is none. */
static int64_t lasts_usec(const struct victim *victim, int *ret_call)
{
	/* In call_begin()'s reverse order: the time is that call's, or a later one's. */
	*ret_call = atomic_load(&victim->call);
	return *ret_call == NONE ? 0 : now_usec() - atomic_load(&victim->since_usec);
}

#define LOOK_MSEC 20

/* fd: the victims' file. */
static void machine_look(int fd)
{
	static _Alignas(READ_BYTES) uint8_t bytes[READ_BYTES];
	int64_t start = now_usec(), usec;

	CHECK_EQ(pread(fd, bytes, sizeof(bytes), 0), READ_BYTES);
	(void)poll(NULL, 0, LOOK_MSEC);
	usec = now_usec() - start - LOOK_MSEC * 1000;
	if (usec > machine_usec)
		machine_usec = usec;
}

static int64_t longest_max_usec(void)
{
	return (int64_t)((double)LONGEST_MAX_USEC * test_time_factor()) +
	       MACHINE_WAITS * machine_usec;
}

static void check_lasts(const struct victim *victim)
{
	int call, status;
	int64_t usec = lasts_usec(victim, &call);

	if (waitpid(victim->pid, &status, WNOHANG) == victim->pid)
		/* A failed check has said so first. */
		test_fail("the victim that %s died (status 0x%x)", victim->what, status);
	if (usec > longest_max_usec())
		test_fail("the victim that %s: %s has not returned for %" PRId64 " ms",
			  victim->what, call_names[call], usec / 1000);
}

/* Samples of the attack's time, and the call that is under way. */
static void check_call_times(struct victim *victim, enum call call, int64_t p99_max_usec,
			     char *text, size_t text_size)
{
	static int64_t usec[SAMPLES_MAX + 1];
	const struct samples *samples = &victim->samples[call];
	uint32_t end = atomic_load(&samples->n), first = victim->n_before[call], n = 0;
	int64_t lasts, p99, longest;
	size_t len = strlen(text);
	int now;

	if (end - first > SAMPLES_MAX)
		first = end - SAMPLES_MAX;
	while (first != end)
		usec[n++] = samples->usec[first++ % SAMPLES_MAX];
	lasts = lasts_usec(victim, &now);
	if (now == (int)call)
		usec[n++] = lasts;
	if (!n)
		return; /* its turn did not come: another call's has lasted */
	p99 = percentile(usec, n, 99);
	if (n < P99_SAMPLES_MIN)
		p99_max_usec = INT64_MAX; /* it is the longest: see there */
	longest = usec[n - 1];
	(void)snprintf(text + len, text_size - len, ", %s %" PRId64 " (%" PRId64 ")",
		       call_names[call], p99, longest);
	if (p99 > p99_max_usec || longest > longest_max_usec())
		test_fail("the victim that %s: p99 of %s is %" PRId64
			  " ms, the longest of %u %" PRId64 " ms",
			  victim->what, call_names[call], p99 / 1000, n, longest / 1000);
}

static void victim_judge(struct victim *victim, int64_t p99_max_usec)
{
	char text[512] = "";

	for (int call = 0; call < N_CALLS; call++)
		check_call_times(victim, (enum call)call, p99_max_usec, text, sizeof(text));
	test_note("the victim that %s: %u rounds, p99 (longest) in us: %s", victim->what,
		  atomic_load(&victim->n_rounds), *text ? text + 2 : "none");
}

static void victim_stop(struct victim *victim)
{
	atomic_store(&victim->must_stop, true);
	child_wait_ok(victim->pid);
	(void)munmap(victim, sizeof(*victim));
}

void victim_start(const struct daemon *daemon)
{
	_cleanup_(closep) int fd = file_open(daemon);
	struct victim *victim = victim_fork(daemon, "was there before");

	while (!atomic_load(&victim->n_rounds)) {
		machine_look(fd);
		check_lasts(victim);
	}
}

void victims_check_p99(const struct daemon *daemon, unsigned seconds, int64_t p99_max_usec)
{
	_cleanup_(closep) int fd = file_open(daemon);
	int64_t end = now_usec() + (int64_t)seconds * 1000000;

	for (unsigned i = 0; i < n_victims; i++)
		for (int call = 0; call < N_CALLS; call++)
			victims[i]->n_before[call] = atomic_load(&victims[i]->samples[call].n);
	(void)victim_fork(daemon, "arrived later");
	while (now_usec() < end) {
		machine_look(fd);
		for (unsigned i = 0; i < n_victims; i++)
			check_lasts(victims[i]);
	}
	test_note("the machine alone: at most %" PRId64 " us", machine_usec);
	for (unsigned i = 0; i < n_victims; i++)
		victim_judge(victims[i], p99_max_usec + MACHINE_WAITS * machine_usec);
	for (unsigned i = 0; i < n_victims; i++)
		victim_stop(victims[i]);
	n_victims = 0;
}

void victims_check(const struct daemon *daemon, unsigned seconds)
{
	victims_check_p99(daemon, seconds, (int64_t)((double)P99_MAX_USEC * test_time_factor()));
}
