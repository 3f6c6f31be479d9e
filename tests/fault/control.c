/*
 * One client's control socket does not delay the others: neither many legal requests, nor
 * descriptors whose close(2) waits.
 */
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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
	raw_file(&raw, daemon_path(daemon, "flood"), O_RDONLY, &file);
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
	{ "eight connections of one user", 8, 100 },
};

TEST_TABLE(pipelined_status, floods,
	   "pipelined Status requests on many channels delayed all others and SIGTERM")
{
	struct daemon *daemon = daemon_start(NULL);
	int started[2];
	char byte;

	file_make_pattern(daemon_path(daemon, "flood"), 4096, 1);
	victim_start(daemon);
	CHECK_SYS(pipe(started));
	for (unsigned i = 0; i < floods[row].n; i++) {
		if (CHECK_SYS(fork()))
			continue;
		CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
		flood(daemon, floods[row].n_channels, started[1]);
	}
	for (unsigned i = 0; i < floods[row].n; i++)
		CHECK_EQ(read(started[0], &byte, 1), 1);
	/* The attackers also take the processors; a call that waited for their requests took 26 s. */
	victims_check_p99(daemon, 2, 4000000);
	daemon_stop(daemon);
	CHECK_SYS(close(started[0]));
	CHECK_SYS(close(started[1]));
}

/* ---- descriptors whose close(2) waits ---- */

#define LINGER_SEC 600 /* longer than all limits here */

/*
 * A TCP socket with unsent data and SO_LINGER: the close(2) of its last descriptor waits until the
 * peer reads, or is closed, for LINGER_SEC at most.
 */
struct lingering {
	int fd, peer;
	unsigned port; /* of fd */
};

static void linger_open(struct lingering *linger)
{
	const struct linger option = { .l_onoff = 1, .l_linger = LINGER_SEC };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	_cleanup_(closep) int listen_fd = (int)CHECK_SYS(socket(AF_INET, SOCK_STREAM, 0));
	static const char bytes[65536];

	/* A small window: most of what fits into the send buffer stays unsent. */
	CHECK_SYS(setsockopt(listen_fd, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int)));
	CHECK_SYS(bind(listen_fd, (struct sockaddr *)&address, len));
	CHECK_SYS(listen(listen_fd, 1));
	CHECK_SYS(getsockname(listen_fd, (struct sockaddr *)&address, &len));
	linger->fd = (int)CHECK_SYS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	CHECK_SYS(setsockopt(linger->fd, SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int)));
	CHECK_SYS(connect(linger->fd, (struct sockaddr *)&address, len));
	linger->peer = (int)CHECK_SYS(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC));
	CHECK_SYS(getsockname(linger->fd, (struct sockaddr *)&address, &len));
	linger->port = ntohs(address.sin_port);
	CHECK_SYS(setsockopt(linger->fd, SOL_SOCKET, SO_LINGER, &option, sizeof(option)));
	while (send(linger->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	CHECK_EQ(errno, EAGAIN);
}

/* Whether its close(2) has begun: it is no longer in the state ESTABLISHED, 01. */
static bool linger_is_closing(const struct lingering *linger)
{
	char *wanted = test_text(" 0100007F:%04X ", linger->port), line[256];
	_cleanup_(fclosep) FILE *file = fopen("/proc/net/tcp", "re");
	unsigned state = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		const char *found = strstr(line, wanted);

		/* "0: LOCAL REMOTE STATE ..." */
		if (found && found - line < 8)
			CHECK_EQ(sscanf(found, " %*s %*s %x", &state), 1);
	}
	return state != 1;
}

static void linger_wait_closing(const struct lingering *linger)
{
	while (!linger_is_closing(linger)) /* the kernel tells nobody; the test's time is limited */
		(void)poll(NULL, 0, 10);
}

/* Sends one byte with n descriptors.  The last is the lingering one, which this process then closes. */
static void send_linger(int socket_fd, struct lingering *linger, unsigned n, int flags)
{
	char control[CMSG_SPACE(FRAME_FDS_RECEIVED_MAX * sizeof(int))]
		__attribute__((aligned(8))) = { 0 };
	struct iovec iov = { .iov_base = control, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (unsigned i = 0; i < n; i++) /* the others: the socket itself */
		memcpy(CMSG_DATA(c) + i * sizeof(int), i + 1 < n ? &socket_fd : &linger->fd,
		       sizeof(int));
	CHECK_EQ(sendmsg(socket_fd, &msg, flags | MSG_NOSIGNAL), 1);
	closep(&linger->fd);
	linger->fd = -1;
}

static void too_many(struct daemon *daemon, struct raw *raw, struct lingering *linger)
{
	raw_open(raw, daemon);
	process_stop(daemon->pid); /* else our close(2) may be the last one, and wait */
	send_linger(raw->fd, linger, FRAME_FDS_MAX + 1, 0);
}

static void out_of_band(struct daemon *daemon, struct raw *raw, struct lingering *linger)
{
	raw_open(raw, daemon);
	process_stop(daemon->pid); /* the next byte comes before this one is read */
	send_linger(raw->fd, linger, 1, MSG_OOB);
	raw_send_bytes(raw, "x", 1, NULL, 0);
	CHECK_SYS(shutdown(raw->fd, SHUT_WR));
}

static void unread(struct daemon *daemon, struct raw *raw, struct lingering *linger)
{
	static const uint8_t garbage[FRAME_HEADER_BYTES] = { 255, 255, 255, 255 };

	raw_open(raw, daemon);
	process_stop(daemon->pid); /* all is there before the first is read */
	raw_send_bytes(raw, garbage, sizeof(garbage), (int[]){ raw->fd }, 1);
	send_linger(raw->fd, linger, 1, 0);
}

static void refused(struct daemon *daemon, struct raw *raw, struct lingering *linger)
{
	process_stop(daemon->pid); /* what is sent is there before the connection is refused */
	raw_connect(raw, daemon);
	send_linger(raw->fd, linger, 1, 0);
}

#define REFUSED_AFTER 8u /* more than the victims have */

static const struct {
	const char *what;
	/* Makes the daemon close the descriptor. */
	void (*attack)(struct daemon *daemon, struct raw *raw, struct lingering *linger);
	unsigned max_clients; /* that this user may have; 0: usual */
} closes[] = {
	{ "five in one message", too_many, 0 },
	{ "with a byte out of band", out_of_band, 0 },
	{ "unread at the end of the session", unread, 0 },
	{ "with a connection that is refused", refused, REFUSED_AFTER },
};

static struct daemon *daemon_with_clients(unsigned max_clients)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	if (!max_clients)
		return daemon_start(NULL);
	CHECK(file);
	CHECK(fprintf(file, "[daemon]\nuser_clients = %u\n", max_clients) > 0);
	CHECK(fflush(file) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

TEST_TABLE(close_waits, closes,
	   "the close of a descriptor that a client had sent delayed the main thread")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct raw others[REFUSED_AFTER];
	struct daemon *daemon;
	struct lingering linger;

	if (closes[row].max_clients)
		test_needs_root(); /* the victims are other users */
	daemon = daemon_with_clients(closes[row].max_clients);
	victim_start(daemon);
	linger_open(&linger); /* not before: the victim would have a copy */
	for (unsigned i = 0; i < closes[row].max_clients; i++)
		raw_open(&others[i], daemon);
	closes[row].attack(daemon, &raw, &linger);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	while (!linger_is_closing(
		&linger)) /* the kernel tells nobody; the test's time is limited */
		(void)poll(NULL, 0, 10);
	victims_check(daemon, 2);
	CHECK(linger_is_closing(&linger)); /* still */
	closep(&linger.peer);
	raw_wait_closed(&raw);
	for (unsigned i = 0; i < closes[row].max_clients; i++)
		raw_close(&others[i]);
}

#define BACKLOG 64u /* more than the daemon accepts at once */

TEST(backlog, "descriptors sent to connections that nobody accepted delayed the daemon's stop")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	struct raw waiting[BACKLOG];
	struct lingering linger;

	linger_open(&linger);
	raw_open(&raw, daemon);
	daemon_queue_long(daemon);
	process_stop(daemon->pid);
	for (unsigned i = 0; i < BACKLOG; i++)
		raw_connect(&waiting[i], daemon);
	send_linger(waiting[BACKLOG - 1].fd, &linger, 1, 0);
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	raw_wait_closed(&raw);
	linger_wait_closing(&linger); /* on a worker thread, which may be late */
	closep(&linger.peer);
	daemon_wait_end(daemon, 0);
	for (unsigned i = 0; i < BACKLOG; i++)
		raw_close(&waiting[i]);
}

#define CROWD 3u       /* an ordinary user may have 1024 descriptors in flight */
#define CROWD_FDS 252u /* with each */
#define SPARE_FDS 10u  /* that the daemon opens for a moment */

static void crowd_refused(struct daemon *daemon, struct raw *raw)
{
	raw_connect(raw, daemon);
}

/* It is over when the daemon reads this, and the next message is unread. */
static void crowd_ended(struct daemon *daemon, struct raw *raw)
{
	static const uint8_t garbage[FRAME_HEADER_BYTES] = { 255, 255, 255, 255 };

	raw_connect(raw, daemon);
	raw_send_bytes(raw, garbage, sizeof(garbage), (int[]){ raw->fd }, 1);
}

static const struct {
	const char *what;
	void (*connect)(struct daemon *daemon, struct raw *raw);
	unsigned max_clients;
} crowds[] = {
	{ "refused", crowd_refused, 1 },
	{ "ended", crowd_ended, 0 },
};

TEST_TABLE(crowd, crowds, "the daemon received the descriptors of connections that had ended")
{
	_cleanup_(raw_close) struct raw first = RAW_NONE;
	struct daemon *daemon = daemon_with_clients(crowds[row].max_clients);
	struct raw raws[CROWD];
	struct lingering lingers[CROWD];
	struct usage before, now;

	raw_open(&first, daemon);
	before = daemon_usage(daemon);
	process_stop(daemon->pid); /* what is sent is there before the connection is accepted */
	for (unsigned i = 0; i < CROWD; i++) {
		linger_open(&lingers[i]);
		raws[i] = (struct raw)RAW_NONE;
		crowds[row].connect(daemon, &raws[i]);
		send_linger(raws[i].fd, &lingers[i], CROWD_FDS + 1, 0);
	}
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	for (unsigned i = 0; i < CROWD; i++) {
		linger_wait_closing(&lingers[i]);
		raw_wait_closed(&raws[i]); /* its end does not wait for the close */
	}
	now = daemon_usage(daemon);
	CHECK_MSG(now.n_fds <= before.n_fds + CROWD + SPARE_FDS, "%u descriptors, %u before",
		  now.n_fds, before.n_fds);
	for (unsigned i = 0; i < CROWD; i++) {
		closep(&lingers[i].peer);
		raw_close(&raws[i]);
	}
	daemon_usage_back(daemon, &before);
}

TEST(refused_stop, "the close of a refused connection's descriptor kept the daemon from exiting")
{
	_cleanup_(raw_close) struct raw first = RAW_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_with_clients(1);
	struct lingering linger;

	linger_open(&linger);
	raw_open(&first, daemon);
	refused(daemon, &raw, &linger);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	linger_wait_closing(&linger);
	daemon_log_wait(daemon,
			"descriptors that a refused connection sent: close has not come back");
	CHECK(!daemon_log_has(daemon, "client 0"));
	CHECK(!daemon_log_has(daemon, "/sys/fs/fuse"));
	daemon_stop(daemon);
	closep(&linger.peer);
}

/* RLIMIT_NOFILE of the daemon: a quarter is more than a user has threads. */
#define BOUND_FILES 384u
#define BOUND_CLOSING (BOUND_FILES / 4 + 1)
#define BOUND_CROWD (BOUND_FILES + 10u)

static void limit_files(void)
{
	const struct rlimit limit = { BOUND_FILES, BOUND_FILES };

	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
}

TEST(refused_bound, "refused connections whose close hung took all of the daemon's descriptors")
{
	_cleanup_(raw_close) struct raw first = RAW_NONE;
	struct daemon *daemon;
	static struct lingering lingers[BOUND_CROWD];
	static struct raw raws[BOUND_CROWD];
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");
	struct raw_slab slab;
	struct usage before, now;

	CHECK(file);
	CHECK(fputs("[daemon]\nuser_clients = 1\n", file) >= 0);
	CHECK(fflush(file) == 0);
	daemon = daemon_start_with(&(struct daemon_options){ .args = DAEMON_ARGS("--config", path),
							     .before_exec = limit_files });
	raw_open(&first, daemon);
	before = daemon_usage(daemon);
	daemon_queue_long(daemon);
	process_stop(daemon->pid); /* once: a signal ends each close(2) that waits */
	for (unsigned i = 0; i < BOUND_CROWD; i++) {
		linger_open(&lingers[i]);
		raws[i] = (struct raw)RAW_NONE;
		raw_connect(&raws[i], daemon);
		send_linger(raws[i].fd, &lingers[i], 1, 0);
	}
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	daemon_log_wait(daemon, "the next client waits until one is closed");
	now = daemon_usage(daemon);
	CHECK_MSG(now.n_fds <= before.n_fds + BOUND_CLOSING + SPARE_FDS,
		  "%u descriptors, %u before", now.n_fds, before.n_fds);
	for (unsigned i = 0; i < BOUND_CROWD; i++)
		closep(&lingers[i].peer);
	for (unsigned i = 0; i < BOUND_CROWD; i++) {
		raw_wait_closed(&raws[i]);
		raw_close(&raws[i]);
	}
	raw_slab(&first, 4096, &slab); /* it is served */
	raw_slab_unmap(&slab);
}

#define HUNG_CLOSES 66u		  /* more than a user has threads */
#define PLAIN_CROWD BOUND_CLOSING /* with those that hang more than all users together may have */

TEST(plain_bound,
     "one user's unread bytes, behind closes that hang, kept other users from connecting")
{
	struct daemon *daemon;
	static struct lingering lingers[HUNG_CLOSES];
	static struct raw raws[HUNG_CLOSES], others[REFUSED_AFTER], raw;
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	test_needs_root(); /* the victims are other users */
	CHECK(file);
	CHECK(fprintf(file, "[daemon]\nuser_clients = %u\n", REFUSED_AFTER) > 0);
	CHECK(fflush(file) == 0);
	daemon = daemon_start_with(&(struct daemon_options){ .args = DAEMON_ARGS("--config", path),
							     .before_exec = limit_files });
	for (unsigned i = 0; i < REFUSED_AFTER; i++)
		raw_open(&others[i], daemon);
	daemon_queue_long(daemon);
	process_stop(daemon->pid); /* once: a signal ends each close(2) that waits */
	for (unsigned i = 0; i < HUNG_CLOSES; i++) {
		linger_open(&lingers[i]);
		raw_connect(&raws[i], daemon);
		send_linger(raws[i].fd, &lingers[i], 1, 0);
	}
	for (unsigned i = 0; i < PLAIN_CROWD; i++) {
		raw_connect(&raw, daemon);
		raw_send_bytes(&raw, "x", 1, NULL, 0);
		raw_close(&raw);
	}
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	victims_check(daemon, 2);
	for (unsigned i = 0; i < HUNG_CLOSES; i++) {
		closep(&lingers[i].peer);
		raw_close(&raws[i]);
	}
	for (unsigned i = 0; i < REFUSED_AFTER; i++)
		raw_close(&others[i]);
}

/* ---- connections without a request ---- */

#define WAITING 12u   /* fewer than the queue has room for */
#define QUEUE_MAX 64u /* each costs those behind it some 30 us */

/* A connection that does not wait for room in the queue; -1: there is none. */
static int connect_at_once(const struct daemon *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_(closep) int fd = -1;

	memcpy(address.sun_path, daemon->socket_path, sizeof(daemon->socket_path));
	fd = (int)CHECK_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return TAKE_FD(fd);
	CHECK_EQ(errno, EAGAIN);
	return -1;
}

TEST(queue, "a newcomer waited behind a thousand connections that a program had closed")
{
	struct daemon *daemon = daemon_start(NULL);
	unsigned n = 0;
	int fd;

	process_stop(daemon->pid);
	while (n <= QUEUE_MAX && (fd = connect_at_once(daemon)) >= 0) {
		(void)close(fd);
		n++;
	}
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	CHECK_MSG(n >= WAITING && n <= QUEUE_MAX, "%u connections wait", n);
	(void)dsaio_disconnect(client_open(daemon));
}

TEST(accepted, "a request waited until all of 12 connections had been accepted")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);
	struct daemon *daemon = daemon_start(NULL);
	int fds[WAITING];

	raw_open(&raw, daemon);
	process_stop(daemon->pid); /* the request and the connections come at once */
	for (unsigned i = 0; i < WAITING; i++)
		CHECK((fds[i] = connect_at_once(daemon)) >= 0);
	raw_send(&raw, &request, NULL, 0);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	raw_receive(&raw, &answer);
	CHECK(answer.reply && answer.reply->body_case == WIRE__REPLY__BODY_STATUS);
	CHECK_MSG(answer.reply->status->n_all_clients <= 1 + WAITING / 2, "%u clients",
		  answer.reply->status->n_all_clients);
	for (unsigned i = 0; i < WAITING; i++)
		(void)close(fds[i]);
}

TEST(ended, "connections that were closed before they were accepted became clients")
{
	struct raw raws[2];
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);
	const Wire__StatusReply *status;
	uint32_t ids[2] = { 0 };

	raw_open(&raws[0], daemon);
	process_stop(daemon->pid);
	for (unsigned i = 0; i < WAITING; i++)
		(void)close(connect_at_once(daemon));
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	raw_open(&raws[1], daemon);
	daemon_status(daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_clients, 3); /* and the one that asks */
	for (unsigned i = 0; i < 2; i++)
		ids[i] = status->clients[i]->client;
	CHECK_EQ(ids[1], ids[0] + 1);
	for (unsigned i = 0; i < 2; i++)
		raw_close(&raws[i]);
}

TEST(bell_socket, "a client queued descriptors in its doorbell socket, to be closed with it")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	int bell_fd;

	raw_open(&raw, daemon);
	(void)raw_handle_with_bell(&raw, &bell_fd);
	CHECK_EQ(send(bell_fd, "x", 1, MSG_NOSIGNAL), -1);
	CHECK_EQ(errno, EPIPE);
	CHECK_EQ(send(bell_fd, "x", 1, MSG_OOB | MSG_NOSIGNAL), -1);
	CHECK_EQ(errno, EPIPE);
	closep(&bell_fd);
}

/* ---- no threads ---- */

static const char *pids_group; /* a control group of the test's own */

static void pids_write(const char *name, const char *text)
{
	FILE *file = fopen(test_text("%s/%s", pids_group, name), "we");

	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK_EQ(fclose(file), 0);
}

static void pids_enter(void)
{
	pids_write("cgroup.procs", "0");
}

TEST(no_threads, "without threads a new user hung the main thread by a descriptor")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct lingering linger;
	struct daemon *daemon;
	char now[32];
	FILE *file;

	test_needs_root();
	pids_group = test_text("%s/dsaio-test-%d",
			       access("/sys/fs/cgroup/pids", F_OK) == 0 ? "/sys/fs/cgroup/pids"
									: "/sys/fs/cgroup",
			       getpid());
	if (mkdir(pids_group, 0755) < 0 || access(test_text("%s/pids.max", pids_group), W_OK) < 0) {
		(void)rmdir(pids_group);
		test_skip("no control group of pids can be made: %s", strerror(errno));
	}
	daemon = daemon_start_with(&(struct daemon_options){ .before_exec = pids_enter });
	daemon_open_to_all(daemon);
	victim_start(daemon);
	linger_open(&linger);
	file = fopen(test_text("%s/pids.current", pids_group), "re");
	CHECK(file && fgets(now, sizeof(now), file));
	CHECK_EQ(fclose(file), 0);
	pids_write("pids.max", now);
	process_stop(daemon->pid);
	CHECK_SYS(seteuid(60777));
	raw_connect(&raw, daemon);
	CHECK_SYS(seteuid(0));
	send_linger(raw.fd, &linger, 1,
		    0); /* it lies in the socket when the connection is refused */
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	linger_wait_closing(&linger);
	victims_check(daemon, 2);
	pids_write("pids.max", "max");
	closep(&linger.peer);
	linger.peer = -1;
	daemon_stop(daemon);
	(void)rmdir(pids_group);
}

TEST_MAIN
