/*
 * Refused entries without end, on 256 channels: what a user's rings cost in a turn of the lane is bounded for
 * all of its clients together.  The figures are notes, because they depend on the machine; unit/test_intake.c
 * tests the bounds.
 */
#include "tests/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_UID 60001
#define CLIENTS_MAX 16
#define N_CHANNELS 256u
#define ENTRIES 1024u
#define N_READS 1000u

static const struct {
	const char *what;
	unsigned n_users, n_clients; /* n_clients: of a user */
} crowds[] = {
	{ "one client", 1, 1 },
	{ "16 clients of one user", 1, 16 },
	{ "15 users", 15, 1 },
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

static void note_reads(struct rig *rig, struct dsaio_file *file, void *memory, const char *when)
{
	static int64_t usec[N_READS];

	for (unsigned i = 0; i < N_READS; i++) {
		const int64_t start = now_usec();

		CHECK_EQ(dsaio_pread(rig->handle, file, memory, 4096, i * 4096), 4096);
		usec[i] = now_usec() - start;
	}
	test_note("a read %s: p50 %" PRId64 " us, p99 %" PRId64 " us", when,
		  percentile(usec, N_READS, 50), percentile(usec, N_READS, 99));
}

TEST_TABLE(refused, crowds, "256 channels of refused entries, another reads on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	void *memory;
	pid_t pid;

	test_needs_root();
	rig_open(&rig, NULL);
	CHECK_SYS(chmod(test_dir(), 0755)); /* for the other users */
	file_make_pattern(daemon_path(rig.daemon, "f"), N_READS * 4096, 1);
	file = rig_file(&rig, "f", O_RDONLY);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &memory));
	connect_all(rig.daemon, row);
	note_reads(&rig, file, memory, "before");
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0)
		for (unsigned i = 0;; i = (i + 1) % N_CHANNELS)
			refuse_some(&channels[i]);
	while (!ring_client_ready(&channels[N_CHANNELS - 1].ring)) /* within the test's time */
		(void)poll(NULL, 0, 1);
	note_reads(&rig, file, memory, "meanwhile");
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

TEST_MAIN
