/*
 * Clients whose wake-ups cost the daemon much CPU time: each epoll watch on a socket takes time of the thread
 * that sends to it.  Such a client delayed all clients of its store, and all that connect.
 */
#include "tests/victim.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_UID 60500u
#define USERS_MAX 3u
#define COPIES 1000u		  /* of a socket */
#define EPOLLS 120u		  /* that watch each copy: a wake-up takes about 10 ms */
#define EPOLLS_PIECE (6 * EPOLLS) /* a wake-up for room to write takes less */
#define EPOLLS_CALM 1u

enum way { BY_LANE, BY_REPLY, BY_PIECE, N_WAYS };

/* Watches the socket many times. */
static void watch(int fd, unsigned n_epolls)
{
	static int copies[COPIES];
	struct epoll_event event = { .events = EPOLLIN };
	struct rlimit limit;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	for (unsigned i = 0; i < COPIES; i++)
		copies[i] = (int)CHECK_SYS(dup(fd));
	for (unsigned i = 0; i < n_epolls; i++) {
		int epoll = (int)CHECK_SYS(epoll_create1(0));

		for (unsigned k = 0; k < COPIES; k++)
			CHECK_SYS(epoll_ctl(epoll, EPOLL_CTL_ADD, copies[k], &event));
	}
}

/* An op of which the lane wakes the client by the doorbell socket. */
static void wake_by_lane(struct raw_channel *channel, int bell_fd)
{
	struct ring_completion completion;
	char byte;

	CHECK(ring_client_arm(&channel->ring, true));
	raw_put(channel, &(struct ring_entry){ .opcode = 99 }); /* refused */
	raw_ring(channel);
	/* When its session ends, no completion comes. */
	while (!ring_client_ready(&channel->ring) && !wait_readable(channel->raw->fd, 1000))
		;
	ring_client_disarm(&channel->ring);
	if (ring_client_ready(&channel->ring))
		CHECK(raw_reap(channel, 1, &completion, 0));
	(void)recv(bell_fd, &byte, 1, MSG_DONTWAIT); /* a full socket would wake nobody */
}

/* A reply. */
static void wake_by_main_thread(struct raw *raw)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	raw_send(raw, &request, NULL, 0);
	raw_receive(raw, &answer);
}

/* A piece of a request: the client is woken when the daemon has read it. */
static void wake_by_piece(const struct raw *raw, unsigned n)
{
	static const uint8_t head[FRAME_HEADER_BYTES] = { 0, 16 }; /* 4096 bytes */

	int n_bytes = 0;

	(void)send(raw->fd, n < sizeof(head) ? &head[n] : head, 1, MSG_NOSIGNAL);
	do {
		(void)poll(NULL, 0, 1);
		CHECK_SYS(ioctl(raw->fd, SIOCOUTQ, &n_bytes));
	} while (n_bytes);
}

static bool is_closed(const struct raw *raw)
{
	struct pollfd end = { .fd = raw->fd, .events = POLLIN };

	return poll(&end, 1, 0) > 0; /* or about to be: it says why */
}

/* A process of that user that has itself woken until the daemon ends the session, or so many times. */
static pid_t sleeper_start(const struct daemon *daemon, uid_t uid, enum way way, unsigned n_epolls,
			   unsigned n_wakes)
{
	struct raw raw = RAW_NONE;
	struct raw_channel channel;
	struct raw_file file;
	pid_t pid;
	int bell_fd;

	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid > 0)
		return pid;
	child_become(uid);
	raw_open(&raw, daemon);
	raw_file(&raw, daemon_path(daemon, "f"), O_RDONLY, &file);
	raw_channel(&raw, raw_handle_with_bell(&raw, &bell_fd), file.store, 4, true, &channel);
	watch(way == BY_LANE ? bell_fd : raw.fd, n_epolls);
	for (unsigned i = 0; i < n_wakes && !is_closed(&raw); i++) {
		if (way == BY_LANE)
			wake_by_lane(&channel, bell_fd);
		else if (way == BY_REPLY)
			wake_by_main_thread(&raw);
		else
			wake_by_piece(&raw, i);
	}
	_exit(!is_closed(&raw));
}

static const struct {
	const char *what;
	enum way way;
	unsigned n_users;
	bool has_others; /* before the attack */
} attacks[] = {
	{ "of its lane", BY_LANE, 1, true },
	{ "of its lane, alone at first", BY_LANE, 1, false },
	{ "of its lane, by users in turn", BY_LANE, USERS_MAX, true },
	{ "of the main thread", BY_REPLY, 1, true },
	{ "of the main thread, alone at first", BY_REPLY, 1, false },
	{ "of the main thread, by users in turn", BY_REPLY, USERS_MAX, true },
	{ "of the main thread, which reads a request in pieces", BY_PIECE, 1, true },
};

TEST_TABLE(costly, attacks, "clients that are costly to wake took the time of all others")
{
	struct daemon *daemon;
	pid_t pids[USERS_MAX];

	test_needs_root();
	daemon = daemon_start(NULL);
	daemon_open_to_all(daemon);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	if (attacks[row].has_others)
		victim_start(daemon);
	for (unsigned i = 0; i < attacks[row].n_users; i++)
		pids[i] = sleeper_start(daemon, FIRST_UID + i, attacks[row].way,
					attacks[row].way == BY_PIECE ? EPOLLS_PIECE : EPOLLS, 1000);
	for (unsigned i = 0; i < attacks[row].n_users; i++)
		child_wait_ok(pids[i]);
	CHECK(daemon_log_has(daemon, "costly to wake"));
	victims_check(daemon, 2);
}

TEST(calm, "a client with many watches that are not too many is served")
{
	struct daemon *daemon;
	pid_t pid;
	int status;

	test_needs_root();
	daemon = daemon_start(NULL);
	daemon_open_to_all(daemon);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	for (enum way way = 0; way < N_WAYS; way++) {
		pid = sleeper_start(daemon, FIRST_UID, way, EPOLLS_CALM, 100);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	}
}

TEST_MAIN
