/*
 * Clients that are killed at random moments with ops in flight leave nothing behind: fds,
 * memfds, locked memory and threads of the daemon are as before, at once, also while a forked
 * child of a killed client lives on and still maps its memory.
 */
#include "tests/harness.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_CLIENTS 200
#define AT_ONCE 8
#define LIFE_MSEC_MAX 60 /* connecting takes some: both before, in and after its first ops */

#define PARALLELISM_MAX 3

/* Lanes, which the daemon keeps, start with the first channel that asks for them. */
static void lanes_start(struct daemon *daemon)
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	void *memory;

	profile.intra_op_parallelism = PARALLELISM_MAX;
	rig_open(&rig, &profile);
	rig_file(&rig, "lanes", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_EQ(dsaio_pwrite(rig.handle, rig.files[0], memory, 4096, 0), 4096);
}

/* Goes on until it is killed. */
_Noreturn static void client_main(const struct daemon *daemon, uint64_t seed)
{
	struct daemon theirs = *daemon;
	struct rig rig = { .daemon = &theirs };
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const size_t len = 8 * MIB;
	uint64_t random = seed << 20;
	void *memory;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	profile.intra_op_parallelism = 1 + (uint32_t)(seed % PARALLELISM_MAX);
	rig_open(&rig, &profile);
	rig_file(&rig, test_text("f%" PRIu64, seed % AT_ONCE), O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	for (;;) {
		size_t n = (test_random(&random) % 256 + 1) * 4096;
		uint64_t off = test_random(&random) % 1024 * 4096;
		char *at = (char *)memory + test_random(&random) % (len / 4096 - 256) * 4096;

		switch (test_random(&random) % 16) {
		case 0: {
			void *more;

			CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &more));
			CHECK_CALL(dsaio_free(rig.client, more));
			break;
		}
		case 1:
			CHECK_CALL(
				dsaio_fsync_async(rig.handle, rig.files[0], DSAIO_DATASYNC, NULL));
			break;
		case 2: /* through private memory, at an odd address */
			CHECK_CALL(
				dsaio_pread(rig.handle, rig.files[0], malloc(4096), 4095, off + 1));
			break;
		case 3:
			CHECK_CALL(handle_wait(rig.handle, -1));
			break;
		default:
			if (test_random(&random) % 2)
				CHECK_CALL(dsaio_pread_async(rig.handle, rig.files[0], at, n, off,
							     NULL));
			else
				CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], at, n, off,
							      NULL));
		}
	}
}

/* Idle worker threads of the daemon end after a second.  One that is late is only one more before. */
static struct usage usage_at_rest(const struct daemon *daemon)
{
	(void)poll(NULL, 0, 1500);
	return daemon_usage_settled(daemon);
}

/* Waits until the daemon has no more of anything than before; notes both. */
static void usage_back(const struct daemon *daemon, const struct usage *before, const char *when)
{
	struct usage after;

	daemon_usage_back(daemon, before);
	while ((after = daemon_usage(daemon)).n_threads > before->n_threads)
		(void)poll(NULL, 0, 20); /* the test's time is the limit */
	test_note("%s: fds %u -> %u, memfds %u -> %u, locked kB %" PRIu64 " -> %" PRIu64
		  ", threads %u -> %u",
		  when, before->n_fds, after.n_fds, before->n_memfds, after.n_memfds,
		  before->locked_kib, after.locked_kib, before->n_threads, after.n_threads);
}

static void wait_killed(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		  "a client ended by itself (status 0x%x)", status);
}

static void clients_kill(const struct daemon *daemon, unsigned n, uint64_t *random)
{
	pid_t pids[AT_ONCE] = { 0 };

	for (unsigned i = 0; i < n + AT_ONCE; i++) {
		pid_t *slot = &pids[i % AT_ONCE];

		if (*slot) {
			/* The moment is the point: any is good. */
			(void)poll(NULL, 0, (int)(test_random(random) % (LIFE_MSEC_MAX / 4)));
			CHECK_SYS(kill(*slot, SIGKILL));
			wait_killed(*slot);
			*slot = 0;
			/* A daemon that has to make their memory may be slower than they die. */
			if (i % AT_ONCE == 0)
				CHECK(daemon_wait_clients(daemon, 4 * AT_ONCE, UINT64_MAX));
		}
		if (i >= n)
			continue;
		*slot = (pid_t)CHECK_SYS(fork());
		if (*slot == 0)
			client_main(daemon, i);
	}
}

TEST(kill_200, "200 clients killed at random moments: the daemon has all back")
{
	struct daemon *daemon = daemon_start(NULL);
	uint64_t random = (uint64_t)test_seed() << 40;
	struct usage before;

	/* Threads and descriptors that are made once, for the first that need them. */
	lanes_start(daemon);
	clients_kill(daemon, 4 * AT_ONCE, &random);
	CHECK(daemon_wait_clients(daemon, 0, 0));
	before = usage_at_rest(daemon);

	beside_start(daemon);
	clients_kill(daemon, N_CLIENTS, &random);
	beside_ok();
	beside_stop();

	CHECK(daemon_wait_clients(daemon, 0, 0));
	usage_back(daemon, &before, test_text("%u clients killed", N_CLIENTS));
}

/* Pages of the range that are in memory. */
static uint32_t resident_pages(void *memory, size_t len)
{
	static unsigned char pages[64 * MIB / 4096];
	uint32_t n = 0;

	CHECK(len / 4096 <= sizeof(pages));
	CHECK_SYS(mincore(memory, len, pages));
	for (size_t i = 0; i < len / 4096; i++)
		n += pages[i] & 1;
	return n;
}

/* Keeps the socket and the mappings, and reports their pages each time that it is asked. */
_Noreturn static void child_main(void *memory, size_t len, int ask_fd, int tell_fd)
{
	char byte;

	for (;;) { /* dies with the test */
		uint32_t n = resident_pages(memory, len);

		CHECK_EQ(write(tell_fd, &n, sizeof(n)), sizeof(n));
		CHECK_EQ(read(ask_fd, &byte, 1), 1);
	}
}

TEST(child_lives, "the memory of a killed client is back although its forked child lives on")
{
	struct daemon *daemon = daemon_start(NULL);
	struct usage before;
	int tell[2], ask[2];
	uint32_t n_pages;
	pid_t pid;

	{ /* what is made once */
		_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
		void *memory;

		rig_open(&rig, NULL);
		CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
		CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory,
				      MIB, 0),
			 MIB);
	}
	CHECK(daemon_wait_clients(daemon, 0, 0));
	before = usage_at_rest(daemon);

	CHECK_SYS(pipe(tell));
	CHECK_SYS(pipe(ask));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		struct rig rig = { .daemon = daemon };
		void *memory;

		rig_open(&rig, NULL);
		CHECK_CALL(dsaio_alloc(rig.client, 64 * MIB, NULL, &memory));
		memset(memory, 0xaa, 64 * MIB);
		rig_file(&rig, "g", O_RDWR | O_CREAT);
		for (unsigned i = 0; i < 64; i++)
			CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0],
						      (char *)memory + i * MIB, MIB, i * MIB,
						      NULL));
		if (CHECK_SYS(fork()) == 0)
			child_main(memory, 64 * MIB, ask[0], tell[1]);
		for (;;)
			(void)pause();
	}
	CHECK_EQ(read(tell[0], &n_pages, sizeof(n_pages)), sizeof(n_pages));
	CHECK_EQ(n_pages, 64 * MIB / 4096);
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK(daemon_wait_clients(daemon, 0, 0));
	/* Closed alone, what the child maps would stay. */
	CHECK_EQ(write(ask[1], "", 1), 1);
	CHECK_EQ(read(tell[0], &n_pages, sizeof(n_pages)), sizeof(n_pages));
	CHECK_EQ(n_pages, 0);
	usage_back(daemon, &before, "its child lives on");
	for (unsigned i = 0; i < 2; i++) {
		close(tell[i]);
		close(ask[i]);
	}
}

TEST(punched, "who still maps a dead client's slab sees zeros, and holds no memory")
{
	struct daemon *daemon = daemon_start(NULL);
	struct raw raw = RAW_NONE;
	struct raw_slab slab;
	const size_t page = 4096;

	raw_open(&raw, daemon);
	raw_slab(&raw, 16 * MIB, &slab);
	memset(slab.memory, 0xaa, slab.size);
	raw_close(&raw); /* this session ends; we keep fd and mapping, as a child would */
	CHECK(daemon_wait_clients(daemon, 0, 0));
	for (size_t i = 0; i < slab.size; i += page)
		CHECK(!slab.memory[i]);
	raw_slab_unmap(&slab);
}

TEST_MAIN
