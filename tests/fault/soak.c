/*
 * Clients and daemons are killed at random, and devices fail at random, for minutes: no byte may be what it may not be.
 *
 * Run by make soak.  $SOAK_SEC (600) is cut into rounds of 20 s.  Each has a seed of its own, $TEST_SEED and those
 * after it, which gives the number of clients, their ops, and what happens to them.  The output has the time of each
 * event, and a failure names its seed: TEST_SEED=N SOAK_SEC=20 makes the same choices again, at other moments of the
 * device.
 *
 * The clients, and what each byte of their files may be, are those of tests/mixed.h.
 */
#include "daemon/engine/fault.h"
#include "tests/mixed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUND_SEC 20
#define N_CLIENTS_MIN 2u
#define N_CLIENTS_MAX 6u

struct soak {
	struct daemon *daemon;
	const char *const *args;
	struct fault_plan *plan; /* NULL: no faults */
	uint64_t random;
	int64_t began_usec;
	unsigned n_clients;
	bool is_dead[N_CLIENTS_MAX];
	unsigned n_kills, n_crashes, n_stops, n_faults;
};

static uint64_t below(struct soak *soak, uint64_t n)
{
	return test_random(&soak->random) % n;
}

__attribute__((format(printf, 2, 3))) static void note(const struct soak *soak, const char *format,
						       ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	test_note("%9.3f s: %s", (double)(now_usec() - soak->began_usec) / 1e6, text);
}

/* Any moment is good. */
static void wait_some(struct soak *soak, unsigned msec_max)
{
	(void)poll(NULL, 0, (int)below(soak, msec_max));
}

/* ---- events ---- */

static void client_kill(struct soak *soak)
{
	const unsigned slot = (unsigned)below(soak, soak->n_clients);

	if (soak->is_dead[slot])
		return;
	note(soak, "kill -9 of client %u", slot);
	mixed_kill(slot);
	soak->is_dead[slot] = true;
	soak->n_kills++;
}

static void clients_replace(struct soak *soak)
{
	for (unsigned i = 0; i < soak->n_clients; i++)
		if (soak->is_dead[i])
			mixed_replace(i);
	for (unsigned i = 0; i < soak->n_clients; i++)
		soak->is_dead[i] = false;
}

static void plan_end(struct soak *soak)
{
	if (!soak->plan)
		return;
	soak->plan->kind = FAULT_NONE;
	atomic_fetch_add(&soak->plan->serial, 1);
}

/* The next requests of some kind get some fault, until plan_end(). */
static void plan_begin(struct soak *soak)
{
	static const int errors[] = { EIO, ENOSPC, EDQUOT, EAGAIN, EINTR };
	struct fault_plan *plan = soak->plan;

	plan->kind = 1 + (uint32_t)below(soak, N_FAULT_KINDS - 1);
	plan->error = (uint32_t)errors[below(soak, ARRAY_SIZE(errors))];
	plan->operations = 1 + (uint32_t)below(soak, (1u << N_BLOCK_OPERATIONS) - 1);
	plan->engines = 1u << ENGINE_LIBAIO | 1u << ENGINE_THREADS;
	plan->at_completion = (uint32_t)below(soak, 2);
	plan->skip = (uint32_t)below(soak, 20);
	plan->n = 1 + (uint32_t)below(soak, 4);
	plan->delay_usec = (uint32_t)below(soak, 30000);
	note(soak, "fault %u, errno %u, operations 0x%x, at the %s, %u after %u", plan->kind,
	     plan->error, plan->operations, plan->at_completion ? "completion" : "submission",
	     plan->n, plan->skip);
	atomic_fetch_add(&plan->serial, 1);
	soak->n_faults++;
}

/* Clients may die before, between and after. */
static void daemon_restart(struct soak *soak, bool is_crash)
{
	note(soak, "%s of the daemon", is_crash ? "kill -9" : "SIGTERM");
	if (below(soak, 3) == 0)
		client_kill(soak);
	if (is_crash)
		daemon_kill(soak->daemon);
	else
		daemon_stop(soak->daemon);
	if (below(soak, 3) == 0)
		client_kill(soak);
	wait_some(soak, below(soak, 4) ? 10 : 1000);
	daemon_again(soak->daemon, soak->args);
	note(soak, "the next daemon is ready");
	wait_some(soak, 20);
	if (below(soak, 3) == 0)
		client_kill(soak);
}

static void event(struct soak *soak)
{
	const bool has_fault = soak->plan && below(soak, 3) == 0;
	const uint64_t what = below(soak, 8);

	if (has_fault) {
		plan_begin(soak);
		wait_some(soak, 100);
	}
	if (what < 4)
		client_kill(soak);
	if (what == 4 || what == 5) {
		daemon_restart(soak, true);
		soak->n_crashes++;
	}
	plan_end(soak); /* a block that is held would delay a stop, and a dead client's end */
	if (what == 6) {
		daemon_restart(soak, false);
		soak->n_stops++;
	}
	clients_replace(soak);
	mixed_look();
	wait_some(soak, 300);
}

/* ---- rounds ---- */

static void round_run(struct soak *soak, unsigned seed)
{
	const int64_t end = now_usec() + (int64_t)ROUND_SEC * 1000000;
	struct mixed_sums sums;

	CHECK_SYS(setenv("TEST_SEED", test_text("%u", seed), 1)); /* for the clients */
	soak->random = (uint64_t)seed << 40;
	soak->n_clients = N_CLIENTS_MIN + (unsigned)below(soak, N_CLIENTS_MAX - N_CLIENTS_MIN + 1);
	note(soak, "TEST_SEED=%u: %u clients", seed, soak->n_clients);
	mixed_start(soak->daemon, soak->n_clients, soak->plan ? MIXED_FAULTS : 0);
	while (now_usec() < end)
		event(soak);
	mixed_go_on(1);
	mixed_end();
	mixed_daemon_is_empty(soak->daemon);
	sums = mixed_sums();
	note(soak,
	     "TEST_SEED=%u: %" PRIu64 " ops, %" PRIu64 " failed, %" PRIu64
	     " writes were killed or failed",
	     seed, sums.n_ops, sums.n_failed, sums.n_uncertain);
}

static void plan_new(struct soak *soak, const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	void *plan;

	CHECK_SYS(ftruncate(fd, sizeof(struct fault_plan)));
	plan = mmap(NULL, sizeof(struct fault_plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(plan != MAP_FAILED);
	soak->plan = plan;
}

TEST(soak, "kills on both sides, restarts and faults, at random: each byte is what it may be")
{
	const char *wanted = getenv("SOAK_SEC"), *path = test_text("%s/plan", test_dir());
	char *end = NULL;
	const unsigned long seconds = wanted ? strtoul(wanted, &end, 10) : 600;
	const unsigned first = test_seed();
	struct soak soak = { .began_usec = now_usec() };
	const char *const with_faults[] = { "--fault-plan", path, NULL };

	CHECK_MSG(seconds >= 1 && seconds <= 86400 && !(end && *end),
		  "SOAK_SEC=%s: seconds, from 1 to 86400", wanted);
	test_time_limit(600 + 3 * (unsigned)seconds);
	if (geteuid() != 0)
		test_note("no faults: only root's daemon takes them");
	if (geteuid() == 0) { /* whose plan a daemon takes */
		plan_new(&soak, path);
		soak.args = with_faults;
	}
	soak.daemon = daemon_start(soak.args);
	for (unsigned i = 0; i * ROUND_SEC < seconds; i++)
		round_run(&soak, first + i);
	note(&soak, "%u clients killed, %u crashes and %u stops of the daemon, %u faults",
	     soak.n_kills, soak.n_crashes, soak.n_stops, soak.n_faults);
}

TEST_MAIN
