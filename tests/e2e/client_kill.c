/*
 * An administrator ends a client: it gets the reason and does not come back, and others go on.
 */
#include "daemon/engine/fault.h"
#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS "an administrator (uid %u) has ended this session: wrong disk"

/* The numbers of clients with that pid, the one that asks too.  Returns how many. */
static unsigned clients_of(const struct daemon *daemon, pid_t pid, uint32_t *ret_first)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	unsigned n = 0;

	daemon_status(daemon, &answer);
	for (size_t i = 0; i < answer.reply->status->n_clients; i++)
		if (answer.reply->status->clients[i]->pid == (uint32_t)pid && !n++)
			*ret_first = answer.reply->status->clients[i]->client;
	return n;
}

static uint32_t client_of(const struct daemon *daemon, pid_t pid)
{
	uint32_t first = 0;

	CHECK(clients_of(daemon, pid, &first) > 0);
	return first;
}

static Wire__ClientKill kill_of(uint32_t client, const char *reason)
{
	Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;

	kill.client = client;
	kill.reason = (char *)(uintptr_t)reason; /* only read */
	return kill;
}

static void kill_client(const struct daemon *daemon, uint32_t client, const char *reason)
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ClientKill kill = kill_of(client, reason);
	Wire__Request request = RAW_REQUEST(CLIENT_KILL, client_kill, &kill);

	raw_call_ok(&raw, &request, NULL, 0, &answer);
	CHECK_MSG(strstr(answer.reply->text, test_text("client %" PRIu32 " (pid ", client)), "%s",
		  answer.reply->text);
}

static const struct client_case {
	const char *what;
	unsigned flags;
	bool is_bounced;
} clients[] = {
	{ "one that reconnects", 0, false },
	{ "one that does not", DSAIO_NO_RECONNECT, false },
	{ "one with private memory", 0, true },
};

/* Writes without end, and checks how that ends. */
static void killed_main(const struct daemon *daemon, const struct client_case *row, int ready_fd)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	const char *words = test_text(WORDS, (unsigned)geteuid());
	struct dsaio_client *client, *again;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *ops[8];
	void *memory = malloc(4 * MIB);
	unsigned n_failed = 0;
	uint32_t first;
	int64_t r = 0;

	options.socket_path = daemon->socket_path;
	options.flags = row->flags;
	CHECK_CALL(dsaio_connect(&options, &client));
	CHECK_CALL(profile_open(client, NULL, &handle));
	CHECK_CALL(
		dsaio_open(client, daemon_path(daemon, "killed"), O_RDWR | O_CREAT, NULL, &file));
	if (!row->is_bounced)
		CHECK_CALL(dsaio_alloc(client, 4 * MIB, NULL, &memory));
	for (unsigned n = 0; r >= 0; n++) {
		for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
			r = dsaio_pwrite_async(handle, file, memory, 4 * MIB, i * 4 * MIB, &ops[i]);
			if (r < 0) /* the end was seen between two ops */
				CHECK_FAILS(r, -ENOTCONN, words);
			if (r < 0)
				ops[i] = NULL;
		}
		if (n == 0)
			CHECK_EQ(write(ready_fd, "r", 1), 1);
		for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
			int64_t result = ops[i] ? op_wait(ops[i], -1) : 0;

			if (ops[i] && result < 0) {
				CHECK_EQ(result, -ECONNRESET);
				CHECK_MSG(strstr(dsaio_op_error(ops[i]), words), "%s",
					  dsaio_op_error(ops[i]));
				n_failed++;
				r = result;
			}
			dsaio_op_free(ops[i]);
		}
	}
	test_note("%u ops failed", n_failed);
	/* It stays so. */
	CHECK_FAILS(dsaio_alloc(client, 4096, NULL, &memory), -ENOTCONN, words);
	CHECK_FAILS(dsaio_pwrite(handle, file, "x", 1, 0), -ENOTCONN, words);
	while (clients_of(daemon, getpid(), &first) >
	       1) /* the session ends; the test's time is the limit */
		(void)poll(NULL, 0, 10);
	/* A program that wants may connect again. */
	CHECK_CALL(dsaio_connect(&options, &again));
	CHECK_EQ(clients_of(daemon, getpid(), &first), 2);
	dsaio_disconnect(again);
	dsaio_disconnect(client);
	_exit(0);
}

TEST_TABLE(killed, clients, "a client that is killed during I/O says who did it and why")
{
	struct daemon *daemon = daemon_start(NULL);
	int fds[2];
	uint32_t number;
	pid_t pid;
	char byte;

	beside_start(daemon);
	CHECK_SYS(pipe(fds));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0)
		killed_main(daemon, &clients[row], fds[1]);
	(void)close(fds[1]);
	CHECK_EQ(read(fds[0], &byte, 1), 1);
	number = client_of(daemon, pid);
	kill_client(daemon, number, "wrong disk");
	child_wait_ok(pid);
	beside_ok();
	beside_stop();
	CHECK_EQ(daemon_log_count(daemon, "an administrator"), 1);
	CHECK(daemon_log_has(daemon, test_text("client %" PRIu32 " (pid %d", number, (int)pid)));
}

TEST(reason, "a hostile reason is bounded, and has no control characters")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(raw_close) struct raw victim = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const char *words = test_text(
		"an administrator (uid %u) has ended this session: a?[31mb??xxx",
		(unsigned)geteuid());
	char text[1000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "a\033[31mb\n\xff", 9);
	text[sizeof(text) - 1] = '\0';
	kill_client(daemon, client_of(daemon, getpid()), text);
	raw_receive(&victim, &answer);
	CHECK(answer.reply && answer.reply->seq == 0);
	answer_check_fails(&answer, -EPERM, words);
	CHECK(strlen(answer.reply->text) < 260);
	raw_wait_closed(&victim);
	CHECK(daemon_log_has(daemon, words));
}

TEST(no_reason, "a kill needs no reason")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(raw_close) struct raw victim = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	kill_client(daemon, client_of(daemon, getpid()), "");
	raw_receive(&victim, &answer);
	answer_check_fails(&answer, -EPERM, "has ended this session");
	CHECK(!strstr(answer.reply->text, "session:"));
}

static struct fault_plan *held_reads(const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	struct fault_plan *plan;

	CHECK_SYS(ftruncate(fd, sizeof(*plan)));
	plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(plan != MAP_FAILED);
	plan->kind = FAULT_NEVER;
	plan->operations = 1u << BLOCK_READ;
	plan->engines = UINT32_MAX;
	plan->n = 1;
	atomic_fetch_add(&plan->serial, 1);
	return plan;
}

TEST(in_flight,
     "a kill waits for blocks in flight, and refuses one that is ending, absent, or asks")
{
	const char *path = test_text("%s/plan", test_dir());
	struct fault_plan *plan = held_reads(path);
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon_start(
							DAEMON_ARGS("--fault-plan", path)) };
	_cleanup_(raw_close) struct raw asking = RAW_NONE;
	Wire__ClientKill kill;
	Wire__Request request = RAW_REQUEST(CLIENT_KILL, client_kill, &kill);
	struct dsaio_op *op;
	uint32_t number;
	void *memory;

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_CALL(
		dsaio_pread_async(rig.handle, rig_file(&rig, "f", O_RDONLY), memory, 4096, 0, &op));
	daemon_log_wait(rig.daemon, "held at the submission");
	number = client_of(rig.daemon, getpid());
	asking = raw_new(rig.daemon);
	kill_client(rig.daemon, number, "");
	kill = kill_of(number, "");
	raw_call_fails(&asking, &request, NULL, 0, -ESRCH, "has ended, and is waited for");
	CHECK_EQ(dsaio_op_wait(op, 0, &(int64_t){ 0 }), -ETIMEDOUT);
	plan->kind = FAULT_NONE;
	atomic_fetch_add(&plan->serial, 1);
	CHECK_EQ(op_wait(op, -1), -ECONNRESET);
	dsaio_op_free(op);
	CHECK(daemon_wait_clients(rig.daemon, 1, 0)); /* the one that asks */
	raw_call_fails(&asking, &request, NULL, 0, -ESRCH, "there is none of that number");
	kill.client = client_of(rig.daemon, getpid());
	raw_call_fails(&asking, &request, NULL, 0, -EINVAL, "the connection of this request");
}

TEST(rights, "another user ends no client")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(raw_close) struct raw victim = raw_new(daemon);
	Wire__ClientKill kill = kill_of(client_of(daemon, getpid()), "");
	Wire__Request request = RAW_REQUEST(CLIENT_KILL, client_kill, &kill);
	Wire__Request empty = WIRE__REQUEST__INIT;
	pid_t pid;

	test_needs_root();
	daemon_open_to_all(daemon);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		struct raw raw;

		child_become(65534);
		raw = raw_new(daemon);
		raw_call_fails(&raw, &request, NULL, 0, -EPERM, "administrators;admin_group");
		_exit(0);
	}
	child_wait_ok(pid);
	raw_call_fails(&victim, &empty, NULL, 0, -EOPNOTSUPP, "empty"); /* it lives */
}

TEST_MAIN
