/*
 * Descriptors in replies that clients do not read.
 *
 * The kernel counts them for the daemon's uid.  Once they were more than the daemon's RLIMIT_NOFILE, and no
 * descriptor could be sent to anybody: nobody could connect, nor open a handle.
 *
 * The daemon runs as a user of its own, so these tests do not touch other programs of root.
 */
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAEMON_UID 60400u
#define NEWCOMER_UID 60401u
#define FIRST_UID 60402u /* of those that do not read */
#define USERS_MAX 15u
#define CLIENTS_MAX 4u /* of one user */
#define DESCRIPTORS 512u
#define REQUESTS 400u /* more than a socket holds */
#define HANDLES 12u
#define QUIET 5u

struct idler {
	struct raw raw;
	uint32_t file;
	unsigned n_asked;
};

static struct idler idlers[USERS_MAX * CLIENTS_MAX];
static unsigned n_idlers;

static void become_service(void)
{
	struct rlimit limit = { .rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS };

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(DAEMON_UID, DAEMON_UID, DAEMON_UID) < 0 ||
	    setresuid(DAEMON_UID, DAEMON_UID, DAEMON_UID) < 0)
		_exit(126);
}

static struct daemon *service_start(void)
{
	const char *build = getenv("BUILD");
	const char *program = test_text("%s/dsaiod", build && *build ? build : "build");
	const char *config = test_text("%s/dsaiod.conf", test_dir());
	struct daemon *daemon;
	FILE *file;
	int status;
	pid_t pid;

	test_needs_root();
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		become_service();
		_exit(access(program, X_OK) ? 1 : 0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (status)
		test_skip("user %u cannot reach %s", DAEMON_UID, program);
	CHECK_SYS(chmod(test_dir(), 0777));
	file = fopen(config, "we");
	CHECK(file && fputs("[daemon]\nuser_clients = 8\n", file) >= 0 && fclose(file) == 0);
	daemon = daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", config), .before_exec = become_service });
	CHECK_SYS(chmod(daemon->socket_path, 0666));
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	return daemon;
}

static void connect_as(struct raw *raw, const struct daemon *daemon, uid_t uid)
{
	CHECK_SYS(seteuid(uid)); /* as SO_PEERCRED reports it */
	raw_connect(raw, daemon);
	CHECK_SYS(seteuid(0));
}

static void send_hello(struct raw *raw)
{
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	hello.version_min = hello.version_max = 1;
	raw_send(raw, &request, NULL, 0);
}

/* One that has read all replies so far. */
static void idler_open(struct idler *idler, const struct daemon *daemon, uid_t uid)
{
	struct raw_file file;

	connect_as(&idler->raw, daemon, uid);
	send_hello(&idler->raw);
	raw_receive_ok(&idler->raw);
	raw_file(&idler->raw, daemon_path(daemon, "f"), O_RDONLY, &file);
	idler->file = file.id;
}

/* Asks for as many descriptors as the socket takes requests, and reads no reply. */
static void idler_ask(struct idler *idler)
{
	Wire__FileGet get = WIRE__FILE_GET__INIT;
	Wire__Request request = RAW_REQUEST(FILE_GET, file_get, &get);
	uint8_t bytes[64] = { 0 };

	get.file = idler->file;
	request.seq = 1;
	bytes[0] = (uint8_t)wire__request__get_packed_size(&request);
	CHECK(bytes[0] <= sizeof(bytes) - FRAME_HEADER_BYTES);
	(void)wire__request__pack(&request, bytes + FRAME_HEADER_BYTES);
	for (idler->n_asked = 0; idler->n_asked < REQUESTS; idler->n_asked++) {
		ssize_t n = send(idler->raw.fd, bytes, FRAME_HEADER_BYTES + bytes[0],
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			break;
		CHECK_EQ(n, FRAME_HEADER_BYTES + bytes[0]);
	}
	CHECK(idler->n_asked > 100);
}

/* Waits until the daemon reads no more of the requests: nobody reports that. */
static void requests_settle(void)
{
	for (unsigned n_quiet = 0, last = 0; n_quiet < QUIET; n_quiet++) {
		unsigned sum = 0;

		for (unsigned i = 0; i < n_idlers; i++) {
			int n_bytes;

			CHECK_SYS(ioctl(idlers[i].raw.fd, SIOCOUTQ, &n_bytes));
			sum += (unsigned)n_bytes;
		}
		if (sum != last)
			n_quiet = 0;
		last = sum;
		(void)poll(NULL, 0, 10);
	}
}

static void newcomer_check(const struct daemon *daemon)
{
	struct idler newcomer = { .raw = RAW_NONE };

	idler_open(&newcomer, daemon, NEWCOMER_UID);
	(void)raw_handle(&newcomer.raw);
	raw_close(&newcomer.raw);
}

/* Each request of every step-th idler has its reply, with the descriptor. */
static void idlers_read_all(unsigned first, unsigned step)
{
	for (unsigned n_open = 1; n_open;) {
		struct pollfd pollfds[ARRAY_SIZE(idlers)];

		n_open = 0;
		for (unsigned i = 0; i < n_idlers; i++) {
			bool is_open = i % step == first && idlers[i].n_asked;

			pollfds[i] = (struct pollfd){ .fd = is_open ? idlers[i].raw.fd : -1,
						      .events = POLLIN };
			n_open += is_open;
		}
		CHECK(!n_open || poll(pollfds, n_idlers, 20000) > 0);
		for (unsigned i = 0; i < n_idlers; i++) {
			_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

			if (!pollfds[i].revents)
				continue;
			raw_receive(&idlers[i].raw, &answer);
			CHECK(answer.reply && !answer.reply->error);
			CHECK_EQ(answer.n_fds, 1);
			idlers[i].n_asked--;
		}
	}
}

static void idlers_close(void)
{
	while (n_idlers)
		raw_close(&idlers[--n_idlers].raw);
}

static const struct {
	const char *what;
	unsigned n_users;
	bool has_others; /* before the attack */
} attacks[] = {
	{ "one user", 1, true },
	{ "one user, who is alone at first", 1, false },
	{ "15 users, as the subordinate ones of a user", USERS_MAX, true },
	{ "15 users, alone at first", USERS_MAX, false },
};

TEST_TABLE(unread, attacks, "clients that did not read their descriptors: nobody could connect")
{
	struct daemon *daemon = service_start();

	if (attacks[row].has_others)
		victim_start(daemon);
	for (; n_idlers < attacks[row].n_users * CLIENTS_MAX; n_idlers++)
		idler_open(&idlers[n_idlers], daemon, FIRST_UID + n_idlers / CLIENTS_MAX);
	for (unsigned i = 0; i < n_idlers; i++)
		idler_ask(&idlers[i]);
	requests_settle();
	newcomer_check(daemon);
	victims_check(daemon, 2);
	idlers_read_all(0, 1);
	for (unsigned i = 0; i < n_idlers; i++)
		idler_ask(&idlers[i]); /* the stop of the daemon waits for none of them */
}

TEST(ended,
     "descriptors that clients had not read at their end did not count: nobody could connect")
{
	struct daemon *daemon = service_start();

	for (; n_idlers < ARRAY_SIZE(idlers); n_idlers++) {
		struct raw *raw = &idlers[n_idlers].raw;

		connect_as(raw, daemon, FIRST_UID);
		send_hello(raw);
		for (unsigned i = 0; i < HANDLES; i++) {
			Wire__HandleOpen open = WIRE__HANDLE_OPEN__INIT;
			Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &open);

			raw_send(raw, &request, NULL, 0);
		}
		requests_settle();
		CHECK_SYS(shutdown(raw->fd, SHUT_WR)); /* the replies stay in the socket */
	}
	newcomer_check(daemon);

	/* One that reads to the end makes room for others of the user, as does one that closes. */
	raw_wait_closed(&idlers[0].raw);
	idlers_close();
	CHECK(daemon_wait_clients(daemon, 0, 0));
	idler_open(&idlers[0], daemon, FIRST_UID);
	raw_close(&idlers[0].raw);
}

TEST(turns, "two users in turn did not read their descriptors: nobody could connect")
{
	struct daemon *daemon = service_start();

	for (; n_idlers < 2 * CLIENTS_MAX; n_idlers++)
		idler_open(&idlers[n_idlers], daemon, FIRST_UID + n_idlers % 2);
	for (unsigned i = 0; i < n_idlers; i++)
		idler_ask(&idlers[i]);
	for (unsigned round = 0; round < 6; round++) {
		requests_settle();
		newcomer_check(daemon);
		idlers_read_all(round % 2, 2);
		for (unsigned i = round % 2; i < n_idlers; i += 2)
			idler_ask(&idlers[i]);
	}
	idlers_read_all(0, 1);
	idlers_close();
}

TEST_MAIN
