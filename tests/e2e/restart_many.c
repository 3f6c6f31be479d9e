/*
 * Many clients that wait for the next daemon return at once.
 *
 * Run alone: it measures how long that takes.
 */
#include "tests/crowd.h"

#include <sys/resource.h>

/* Huge pages wait until the kernel has run on all cores, which is beside what this is about. */
#define MANY_CONFIG "[daemon]\nuser_clients = 512\nclient_handles = 128\nhuge_pages = no\n"

/* Returns how long after the next daemon's "ready" the last one was served. */
static int64_t many_return(struct daemon **daemon, unsigned n)
{
	struct crowd crowd;
	int64_t ready;

	crowd_start(&crowd, n, *daemon, data_make(*daemon));
	daemon_kill(*daemon);
	atomic_store(&crowd.board->is_killed, true);
	(void)poll(NULL, 0, 1000); /* all wait, with the longest pause */
	*daemon = next_daemon(MANY_CONFIG);
	ready = now_usec();
	crowd_end(&crowd);
	CHECK_EQ(atomic_load(&crowd.board->n_served), n);
	return atomic_load(&crowd.board->last_usec) - ready;
}

TEST(many, "many clients that wait for the next daemon return at once")
{
	struct daemon *daemon = next_daemon(MANY_CONFIG);
	struct rlimit limit;
	unsigned n;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	/* One user's share of the daemon's descriptors has room for 512 slabs. */
	n = test_is_slow() ? 16 : limit.rlim_max < 16384 ? 128 : 512;
	/* Their processes may have to wait for the cores beside other work: one of three times counts. */
	for (unsigned i = 0; i < 3; i++) {
		const double usec = (double)many_return(&daemon, n);

		test_note("%u clients: the last one was served %.0f ms after the \"ready\"", n,
			  usec / 1000);
		if (usec < 2000000 * test_time_factor())
			return;
	}
	test_fail("three times in a row the last one of %u clients was not served within 2 s", n);
}

TEST_MAIN
