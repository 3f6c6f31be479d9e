/*
 * Clients are killed at random moments, in all that they do: the daemon has all back, and another client does not
 * notice.
 *
 * The clients are those of tests/mixed.h.  First the daemon stays: a client beside measures its reads, in turns
 * with kills and without.  Then the daemon is killed or stopped now and then, too, so that clients die while they
 * connect, reconnect and hand over what they have.
 *
 * $KILLS: how many of each (60); the proof takes 1000.  $TEST_SEED replays the choices.
 */
#include "tests/mixed.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_CLIENTS 4u
#define TURN 10u /* kills, before as long without any */
#define SAMPLES_MAX 65536u
/* An absurd p99, which only a client that is hung by others has. */
#define TIMES_MAX 50
#define P99_FLOOR_USEC 200000

static unsigned n_kills(void)
{
	const char *wanted = getenv("KILLS");

	return wanted ? (unsigned)strtoul(wanted, NULL, 10) : 60;
}

/* ---- the client beside ---- */

/* Shared. */
struct reader {
	_Atomic bool must_stop;
	_Atomic unsigned turn; /* 0: without kills */
	_Atomic unsigned n[2];
	int64_t usec[2][SAMPLES_MAX];
};

static void reader_main(const struct daemon *daemon, struct reader *reader)
{
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	struct dsaio_file *file;
	uint8_t *memory;

	file_make_pattern(daemon_path(daemon, "reader"), 4 * MIB, 7);
	rig_open(&rig, NULL);
	file = rig_file(&rig, "reader", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 16 * KIB, NULL, (void **)&memory));
	for (uint64_t i = 0; !atomic_load(&reader->must_stop); i++) {
		const uint64_t off = i % 256 * 16 * KIB;
		const unsigned turn = atomic_load(&reader->turn);
		const int64_t began = now_usec();
		int64_t took;
		unsigned n;

		CHECK_EQ(dsaio_pread(rig.handle, file, memory, 16 * KIB, off), 16 * KIB);
		took = now_usec() - began;
		pattern_check(memory, 16 * KIB, 7, off, "the client beside");
		n = atomic_load(&reader->n[turn]);
		if (n < SAMPLES_MAX) {
			reader->usec[turn][n] = took;
			atomic_store(&reader->n[turn], n + 1);
		}
		(void)poll(NULL, 0, 1);
	}
	rig_close(&rig);
}

static void reader_judge(struct reader *reader)
{
	int64_t p99[2], longest[2];

	for (unsigned turn = 0; turn < 2; turn++) {
		const unsigned n = atomic_load(&reader->n[turn]);

		p99[turn] = percentile(reader->usec[turn], n, 99);
		longest[turn] = reader->usec[turn][n - 1];
	}
	test_note("the client beside: p99 %" PRId64 " us of %u reads (longest %" PRId64
		  ") with kills, %" PRId64 " us of %u (longest %" PRId64 ") without",
		  p99[1], atomic_load(&reader->n[1]), longest[1], p99[0],
		  atomic_load(&reader->n[0]), longest[0]);
	CHECK_MSG(p99[1] < TIMES_MAX * p99[0] + (int64_t)(P99_FLOOR_USEC * test_time_factor()),
		  "kills disturb the client beside: p99 %" PRId64 " us instead of %" PRId64, p99[1],
		  p99[0]);
}

/* ---- kills ---- */

/* So many clients, each after a random moment. */
static void kill_some(unsigned n, uint64_t *random)
{
	for (unsigned i = 0; i < n; i++) {
		const unsigned slot = (unsigned)(test_random(random) % N_CLIENTS);

		(void)poll(NULL, 0, (int)(test_random(random) % 40)); /* any moment is good */
		mixed_kill(slot);
		mixed_replace(slot);
		mixed_look();
	}
}

static void usage_note(const struct daemon *daemon, const struct usage *before)
{
	const struct usage after = daemon_usage(daemon);
	const struct mixed_sums sums = mixed_sums();

	test_note("%" PRIu64 " ops, %" PRIu64 " failed, %" PRIu64
		  " writes were killed or failed; fds %u -> %u, memfds %u -> %u, "
		  "locked kB %" PRIu64 " -> %" PRIu64 ", threads %u -> %u",
		  sums.n_ops, sums.n_failed, sums.n_uncertain, before->n_fds, after.n_fds,
		  before->n_memfds, after.n_memfds, before->locked_kib, after.locked_kib,
		  before->n_threads, after.n_threads);
}

/* Objects that a daemon makes once, for the first client that needs them, stay. */
static struct usage usage_warm(struct daemon *daemon)
{
	mixed_start(daemon, N_CLIENTS, 0);
	mixed_go_on(20);
	mixed_end();
	mixed_daemon_is_empty(daemon);
	return daemon_usage_settled(daemon);
}

TEST(killed,
     "clients killed at random moments: the daemon has all back, and another client goes on")
{
	struct daemon *daemon = daemon_start(NULL);
	struct reader *reader = mmap(NULL, sizeof(*reader), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t random = (uint64_t)test_seed() << 40;
	const unsigned n = n_kills();
	struct usage before;
	pid_t pid;

	CHECK(reader != MAP_FAILED);
	test_time_limit(300 + 2 * n);
	before = usage_warm(daemon);
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		reader_main(daemon, reader);
		_exit(0);
	}
	mixed_start(daemon, N_CLIENTS, 0);
	mixed_go_on(1);
	for (unsigned i = 0; i < n; i += TURN) {
		const int64_t began = now_usec();

		atomic_store(&reader->turn, 1);
		kill_some(n - i < TURN ? n - i : TURN, &random);
		atomic_store(&reader->turn, 0);
		(void)poll(NULL, 0, (int)((now_usec() - began) / 1000));
		CHECK_MSG(waitpid(pid, NULL, WNOHANG) == 0, "the client beside has ended");
	}
	mixed_go_on(1);
	mixed_end();
	atomic_store(&reader->must_stop, true);
	child_wait_ok(pid);
	mixed_daemon_is_empty(daemon);
	daemon_usage_back(daemon, &before);
	usage_note(daemon, &before);
	reader_judge(reader);
	(void)munmap(reader, sizeof(*reader));
}

/* Some clients die while there is no daemon, some while they reconnect. */
static void restart(struct daemon *daemon, uint64_t *random, unsigned *n_left)
{
	bool is_dead[N_CLIENTS] = { false };

	if (test_random(random) % 3)
		daemon_kill(daemon);
	else
		daemon_stop(daemon);
	for (unsigned when = 0; when < 2; when++) {
		const unsigned slot = (unsigned)(test_random(random) % N_CLIENTS);

		if (when)
			daemon_again(daemon, NULL);
		(void)poll(NULL, 0, (int)(test_random(random) % 12)); /* any moment is good */
		if (*n_left && !is_dead[slot]) {
			mixed_kill(slot);
			is_dead[slot] = true;
			--*n_left;
		}
	}
	for (unsigned i = 0; i < N_CLIENTS; i++)
		if (is_dead[i])
			mixed_replace(i);
}

TEST(reconnecting,
     "clients killed while they reconnect: the next daemon has all back, and no byte is wrong")
{
	struct daemon *daemon = daemon_start(NULL);
	uint64_t random = ((uint64_t)test_seed() << 40) + 1;
	unsigned n_left = n_kills(), n_restarts = 0;
	struct usage before;

	test_time_limit(300 + 5 * n_left);
	before = usage_warm(daemon);
	mixed_start(daemon, N_CLIENTS, 0);
	mixed_go_on(1);
	while (n_left) {
		restart(daemon, &random, &n_left);
		n_restarts++;
		mixed_look();
		if (n_left && test_random(&random) % 2) {
			kill_some(1, &random);
			n_left--;
		}
	}
	mixed_go_on(1);
	mixed_end();
	mixed_daemon_is_empty(daemon);
	test_note("%u restarts", n_restarts);
	daemon_usage_back(daemon, &before); /* the first daemon's, after such clients */
	usage_note(daemon, &before);
}

TEST_MAIN
