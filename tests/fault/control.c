/*
 * One client's control socket does not hold up the others: neither many legal requests, nor
 * descriptors whose close(2) waits.
 */
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the client that must not notice ---- */

/* Generous: without the faults of this file a call takes less than 0.5 s beside busy cores. */
#define CALL_MAX_USEC 5000000
#define ROUNDS 20u
#define READS 20u

struct latencies {
	int64_t calls[ROUNDS * 5], reads[ROUNDS * READS];
	size_t n_calls, n_reads;
};

static int64_t lap(int64_t *start)
{
	int64_t now = now_usec(), usec = now - *start;

	*start = now;
	return usec;
}

/* A client that arrives, makes each kind of control call, reads, and leaves. */
static void victim_round(struct daemon *daemon, struct latencies *latencies)
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	int64_t *calls = latencies->calls, start = now_usec();
	struct dsaio_file *file;
	void *memory;

	rig_open(&rig, NULL);
	calls[latencies->n_calls++] = lap(&start);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &memory));
	calls[latencies->n_calls++] = lap(&start);
	file = rig_file(&rig, "victim", O_RDONLY);
	calls[latencies->n_calls++] = lap(&start);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, 0), 4096); /* opens the channel */
	calls[latencies->n_calls++] = lap(&start);
	daemon_status(daemon, &answer);
	calls[latencies->n_calls++] = lap(&start);
	for (unsigned i = 0; i < READS; i++) {
		CHECK_EQ(dsaio_pread(rig.handle, file, memory, 4096, i * 4096), 4096);
		latencies->reads[latencies->n_reads++] = lap(&start);
	}
}

static void victim_run(struct daemon *daemon, const char *when)
{
	struct latencies latencies = { .n_calls = 0 };
	int64_t calls_p99, reads_p99;

	for (unsigned i = 0; i < ROUNDS; i++)
		victim_round(daemon, &latencies);
	calls_p99 = percentile(latencies.calls, latencies.n_calls, 99);
	reads_p99 = percentile(latencies.reads, latencies.n_reads, 99);
	test_note("%s: 99th percentile of control calls %" PRId64 " us, of 4 KiB reads %" PRId64
		  " us",
		  when, calls_p99, reads_p99);
	if (test_is_slow())
		return;
	CHECK_MSG(calls_p99 < CALL_MAX_USEC, "control calls: 99th percentile %" PRId64 " us",
		  calls_p99);
	CHECK_MSG(reads_p99 < CALL_MAX_USEC, "4 KiB reads: 99th percentile %" PRId64 " us",
		  reads_p99);
}

/* ---- legal requests without end ---- */

#define REPLIES_BYTES (4 * MIB) /* that come before the victim does */

/* Status requests as fast as the daemon reads them; their replies are read and dropped. */
_Noreturn static void flood(const struct daemon *daemon, unsigned n_channels, int started_fd)
{
	static const uint8_t status[] = { 5, 0, 0, 0, 0, 0, 0, 0, 0x08, 1, 0xa2, 0x01, 0 };
	static uint8_t requests[512 * sizeof(status)], replies[MIB];
	struct raw raw = RAW_NONE;
	struct raw_channel channel;
	struct raw_file file;
	size_t sent = 0, received = 0;

	raw_open(&raw, daemon);
	raw_file(&raw, daemon_path(daemon, "victim"), O_RDONLY, &file);
	for (unsigned i = 0; i < n_channels; i++)
		raw_channel(&raw, raw_handle(&raw), file.store, 4, false, &channel);
	for (size_t i = 0; i < 512; i++)
		memcpy(requests + i * sizeof(status), status, sizeof(status));
	CHECK_SYS(fcntl(raw.fd, F_SETFL, O_NONBLOCK));
	for (;;) {
		struct pollfd pollfd = { .fd = raw.fd, .events = POLLIN | POLLOUT };
		ssize_t n;

		CHECK_SYS(poll(&pollfd, 1, -1));
		n = send(raw.fd, requests + sent, sizeof(requests) - sent, MSG_NOSIGNAL);
		if (n > 0)
			sent = (sent + (size_t)n) % sizeof(requests);
		n = recv(raw.fd, replies, sizeof(replies), 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			_exit(0); /* the daemon has stopped */
		if (n > 0 && received < REPLIES_BYTES && received + (size_t)n >= REPLIES_BYTES)
			CHECK_EQ(write(started_fd, "", 1), 1);
		if (n > 0)
			received += (size_t)n;
	}
}

static const struct {
	const char *what;
	unsigned n, n_channels;
} floods[] = {
	{ "one connection", 1, 200 },
	{ "eight connections of the victim's own user", 8, 100 },
};

TEST_TABLE(pipelined_status, floods,
	   "pipelined Status requests on many channels held up all others and SIGTERM")
{
	struct daemon *daemon = daemon_start(NULL);
	int started[2];
	char byte;

	test_time_limit(120);
	file_make_pattern(daemon_path(daemon, "victim"), READS * 4096, 1);
	victim_run(daemon, "alone");
	CHECK_SYS(pipe(started));
	for (unsigned i = 0; i < floods[row].n; i++) {
		if (CHECK_SYS(fork()))
			continue;
		CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
		flood(daemon, floods[row].n_channels, started[1]);
	}
	for (unsigned i = 0; i < floods[row].n; i++)
		CHECK_EQ(read(started[0], &byte, 1), 1);
	victim_run(daemon, "beside the requests");
	daemon_stop(daemon);
	CHECK_SYS(close(started[0]));
	CHECK_SYS(close(started[1]));
}

TEST_MAIN
