/*
 * Refused entries without end, on 256 channels: what a user's rings cost in a turn of the lane is bounded for
 * all of its clients together.  Another user's reads are compared with those of a control: the attacker uses a
 * processor as before, but no ring.  unit/test_intake.c tests the bounds.
 * Run alone: it compares times, and daemon, attacker and reader need both processors that a host may have.
 */
#include "tests/harness.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_UID 60001
#define CLIENTS_MAX 16
#define N_CHANNELS 256u
#define ENTRIES 1024u
#define N_READS 1000u
#define TURN_USEC 20000 /* some in the time of the reads */
/* Other programs make single rounds slow, so the best counts.  The limit is far above the ratios seen. */
#define ROUNDS 10
/* Code that counts its own lines, or is looked at, does not take the same times longer on both sides. */
#define RATIO_MAX (test_is_slow() ? 8.0 : 4.0)

static const struct {
	const char *what;
	unsigned n_users, n_clients; /* n_clients: of a user */
	bool is_alone;		     /* when the attack begins */
	bool takes_turns;
} crowds[] = {
	{ "one client", 1, 1, false, false },
	{ "16 clients of one user", 1, 16, false, false },
	{ "15 users", 15, 1, false, false },
	{ "one client, alone when it begins", 1, 1, true, false },
	{ "two users in turns", 2, 1, false, true },
};

static struct raw raws[CLIENTS_MAX];
static struct raw_channel channels[N_CHANNELS];

/* Fills its ring again, and says that it sleeps. */
static void refuse_some(struct raw_channel *channel)
{
	struct ring_client *ring = &channel->ring;
	struct ring_entry entry = { .opcode = 99 };

	ring_client_consume(ring, ring_client_ready(ring));
	while (ring_client_room(ring))
		raw_put(channel, &entry);
	raw_ring(channel);
	(void)ring_client_arm(ring, false);
}

static void connect_all(const struct daemon *daemon, int row)
{
	const unsigned n = crowds[row].n_users * crowds[row].n_clients;

	for (unsigned i = 0; i < n; i++) {
		struct raw_file file;

		raws[i] = (struct raw)RAW_NONE;
		CHECK_SYS(seteuid(FIRST_UID + i % crowds[row].n_users));
		raw_open(&raws[i], daemon);
		CHECK_SYS(seteuid(0));
		raw_file(&raws[i], daemon_path(daemon, "f"), O_RDONLY, &file);
		for (unsigned c = i; c < N_CHANNELS; c += n)
			raw_channel(&raws[i], raw_handle(&raws[i]), file.store, ENTRIES, true,
				    &channels[c]);
	}
}

/* Never returns. */
static void attack(int row, const _Atomic bool *is_control)
{
	CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	for (unsigned i = 0;; i = (i + 1) % N_CHANNELS)
		if (!atomic_load(is_control) &&
		    (!crowds[row].takes_turns || now_usec() / TURN_USEC % 2 == i % 2))
			refuse_some(&channels[i]);
}

/* The daemon has refused all entries there are. */
static void rings_settle(void)
{
	for (unsigned i = 0; i < N_CHANNELS; i++) {
		struct ring_shared *shared = channels[i].ring.shared;

		while (atomic_load(&shared->cq_tail) != atomic_load(&shared->sq_tail))
			(void)poll(NULL, 0, 1);
	}
}

static void victim_open(struct rig *rig, void **ret_memory)
{
	rig_open(rig, NULL);
	(void)rig_file(rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig->client, 4096, NULL, ret_memory));
}

/* Returns the median. */
static int64_t time_reads(const struct rig *rig, void *memory, const char *when)
{
	static int64_t usec[N_READS];
	int64_t median;

	for (unsigned i = 0; i < N_READS; i++) {
		const int64_t start = now_usec();

		CHECK_EQ(dsaio_pread(rig->handle, rig->files[0], memory, 4096, i * 4096), 4096);
		usec[i] = now_usec() - start;
	}
	median = percentile(usec, N_READS, 50);
	test_note("a read %s: p50 %" PRId64 " us, p99 %" PRId64 " us", when, median,
		  percentile(usec, N_READS, 99));
	return median;
}

TEST_TABLE(refused, crowds, "256 channels of refused entries, another reads on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	double ratio = INFINITY;
	_Atomic bool *is_control;
	void *memory;
	pid_t pid;

	test_needs_root();
	rig.daemon = daemon_start(NULL);
	daemon_open_to_all(rig.daemon);
	file_make_pattern(daemon_path(rig.daemon, "f"), N_READS * 4096, 1);
	is_control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(is_control != MAP_FAILED);
	if (!crowds[row].is_alone)
		victim_open(&rig, &memory);
	connect_all(rig.daemon, row);
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0)
		attack(row, is_control);
	while (!ring_client_ready(&channels[N_CHANNELS - 1].ring)) /* within the test's time */
		(void)poll(NULL, 0, 1);
	if (crowds[row].is_alone)
		victim_open(&rig, &memory);
	for (unsigned round = 0; round < ROUNDS && ratio > RATIO_MAX; round++) {
		double attacked = (double)time_reads(&rig, memory, "meanwhile"), plain;

		atomic_store(is_control, true);
		rings_settle();
		plain = (double)time_reads(&rig, memory, "of the control");
		atomic_store(is_control, false);
		if (attacked / plain < ratio)
			ratio = attacked / plain;
	}
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_MSG(ratio <= RATIO_MAX, "a read took %.1f times as long as without the attack",
		  ratio);
}

TEST_MAIN
