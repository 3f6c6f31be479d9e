/*
 * While the daemon is away: calls that return at once, forks, a user's own daemon that the library starts, a next
 * daemon that ends or sleeps in the middle, and many clients that wait for it.
 */
#include "tests/places.h"
#include "tests/restarting.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PIECE (64 * KIB)

/* A file with what was read from it before. */
struct kit {
	struct rig rig;
	struct dsaio_file *file;
	uint8_t *memory;
};

static void kit_use(struct kit *kit)
{
	memset(kit->memory, 0, PIECE);
	CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, kit->memory, PIECE, 0), PIECE);
	pattern_check(kit->memory, PIECE, 1, 0, "what was read");
}

static void kit_open(struct kit *kit, struct daemon *daemon, const char *socket_path,
		     const char *path)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;

	*kit = (struct kit){ .rig = { .daemon = daemon } };
	options.socket_path = daemon ? daemon->socket_path : socket_path;
	CHECK_CALL(dsaio_connect(&options, &kit->rig.client));
	CHECK_CALL(profile_open(kit->rig.client, NULL, &kit->rig.handle));
	CHECK_CALL(dsaio_open(kit->rig.client, path, O_RDWR, NULL, &kit->file));
	CHECK_CALL(dsaio_alloc(kit->rig.client, PIECE, NULL, (void **)&kit->memory));
	kit_use(kit);
}

static void kit_close(struct kit *kit)
{
	dsaio_file_close(kit->file);
	CHECK_CALL(dsaio_disconnect(kit->rig.client));
}

static char *data_make(const struct daemon *daemon)
{
	char *path = daemon ? daemon_path(daemon, "f") : test_text("%s/f", test_dir());

	file_make_pattern(path, PIECE, 1);
	return path;
}

/* ---- calls that do not wait ---- */

static void call_free(struct kit *kit)
{
	CHECK_CALL(dsaio_free(kit->rig.client, kit->memory));
	kit->memory = NULL;
}

static void call_file_close(struct kit *kit)
{
	dsaio_file_close(kit->file);
	kit->file = NULL;
	CHECK_CALL(dsaio_file_drop(kit->rig.client, NULL));
}

static void call_handle_close(struct kit *kit)
{
	CHECK_CALL(dsaio_handle_close(kit->rig.handle, -1));
	kit->rig.handle = NULL;
}

static void call_disconnect(struct kit *kit)
{
	CHECK_CALL(dsaio_disconnect(kit->rig.client));
	kit->rig.client = NULL;
}

static const struct {
	const char *what;
	void (*call)(struct kit *kit);
} calls[] = {
	{ "dsaio_free", call_free },
	{ "dsaio_file_close, dsaio_file_drop", call_file_close },
	{ "dsaio_handle_close", call_handle_close },
	{ "dsaio_disconnect", call_disconnect },
};

TEST_TABLE(at_once, calls, "a call that ends something does not wait for the next daemon")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;
	int64_t began;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	daemon_kill(daemon);
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	began = now_usec();
	calls[row].call(&kit);
	CHECK((double)(now_usec() - began) < 2000000 * test_time_factor());
	daemon = daemon_start(NULL);
	if (!kit.rig.client)
		return;
	if (!kit.memory)
		CHECK_CALL(dsaio_alloc(kit.rig.client, PIECE, NULL, (void **)&kit.memory));
	if (!kit.file)
		CHECK_CALL(dsaio_open(kit.rig.client, daemon_path(daemon, "f"), O_RDWR, NULL,
				      &kit.file));
	if (!kit.rig.handle)
		CHECK_CALL(profile_open(kit.rig.client, NULL, &kit.rig.handle));
	kit_use(&kit);
	kit_close(&kit);
}

/* ---- fork ---- */

TEST(forked, "a child of a fork while the daemon is away can do nothing, and its parent goes on")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_op *op;
	struct kit kit;
	uint8_t buf[512];
	void *memory;
	pid_t pid;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	process_stop(daemon->pid);
	memset(kit.memory, 0, PIECE);
	CHECK_CALL(dsaio_pread_async(kit.rig.handle, kit.file, kit.memory, PIECE, 0, &op));
	daemon_kill(daemon);
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		CHECK_FAILS(dsaio_client_state(kit.rig.client), -EPERM, "fork");
		CHECK_FAILS(dsaio_pread(kit.rig.handle, kit.file, buf, 512, 0), -EPERM, "fork");
		CHECK_FAILS(dsaio_alloc(kit.rig.client, 4096, NULL, &memory), -EPERM, "fork");
		CHECK_FAILS(op_wait(op, -1), -EPERM, "fork");
		CHECK_FAILS(dsaio_op_cancel(op), -EPERM, "fork");
		dsaio_op_free(op);
		dsaio_file_close(kit.file);
		(void)dsaio_free(kit.rig.client, kit.memory);
		(void)dsaio_handle_close(kit.rig.handle, -1);
		(void)dsaio_disconnect(kit.rig.client);
		_exit(0);
	}
	child_wait_ok(pid);
	daemon = daemon_start(NULL);
	CHECK_EQ(op_wait(op, 20000000), PIECE);
	dsaio_op_free(op);
	pattern_check(kit.memory, PIECE, 1, 0, "what was read");
	kit_use(&kit);
	kit_close(&kit);
}

/* ---- a user's own daemon ---- */

/* Each connects, uses the daemon, and waits; then goes on with the next one. */
struct crowd {
	unsigned n;
	struct board {
		_Atomic unsigned n_ready, n_served;
		_Atomic bool is_killed;
		_Atomic int64_t last_usec;
	} * board;
	pid_t pids[512];
};

static void crowd_member(struct crowd *crowd, struct daemon *daemon, const char *path)
{
	struct kit kit;
	int64_t now, last;

	kit_open(&kit, daemon, NULL, path);
	atomic_fetch_add(&crowd->board->n_ready, 1);
	while (!atomic_load(&crowd->board->is_killed))
		(void)poll(NULL, 0, 5); /* nobody reports it */
	kit_use(&kit);
	now = now_usec();
	last = atomic_load(&crowd->board->last_usec);
	while (now > last && !atomic_compare_exchange_weak(&crowd->board->last_usec, &last, now))
		;
	atomic_fetch_add(&crowd->board->n_served, 1);
	kit_close(&kit);
}

static void crowd_start(struct crowd *crowd, unsigned n, struct daemon *daemon, const char *path)
{
	crowd->n = n;
	crowd->board = mmap(NULL, sizeof(*crowd->board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(crowd->board != MAP_FAILED);
	(void)fflush(NULL);
	for (unsigned i = 0; i < n; i++) {
		crowd->pids[i] = (pid_t)CHECK_SYS(fork());
		if (crowd->pids[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			crowd_member(crowd, daemon, path);
			_exit(0);
		}
	}
	while (atomic_load(&crowd->board->n_ready) < n) {
		CHECK(waitpid(-1, NULL, WNOHANG) == 0); /* else it has said why */
		(void)poll(NULL, 0, 5);
	}
}

static void crowd_end(struct crowd *crowd)
{
	for (unsigned i = 0; i < crowd->n; i++)
		child_wait_ok(crowd->pids[i]);
}

static void own_kill(void)
{
	const pid_t pid = places_pid();

	CHECK(pid > 0);
	CHECK_SYS(kill(pid, SIGKILL));
	places_wait_end(pid);
}

TEST(own, "a user's own daemon that was killed: 4 clients start exactly one")
{
	struct crowd crowd;

	places_newcomer(30);
	crowd_start(&crowd, 4, NULL, data_make(NULL));
	CHECK_EQ(places_log_count("ready:"), 1);
	own_kill();
	atomic_store(&crowd.board->is_killed, true);
	crowd_end(&crowd);
	CHECK_EQ(places_log_count("ready:"), 2);
	places_stop();
}

static const struct {
	const char *what;
	bool is_named, is_unset;
} not_started[] = {
	{ .what = "DSAIO_AUTOSTART=0", .is_unset = true },
	{ .what = "a socket_path", .is_named = true },
};

TEST_TABLE(own_waits, not_started,
	   "a client that may start no daemon waits for one that somebody starts")
{
	struct dsaio_client *client, *starter;
	struct kit kit;
	const char *path;

	places_newcomer(30);
	path = data_make(NULL);
	CHECK_CALL(dsaio_connect(NULL, &starter));
	(void)dsaio_disconnect(starter);
	kit_open(&kit, NULL, not_started[row].is_named ? places_own("dsaiod.sock") : NULL, path);
	if (not_started[row].is_unset)
		CHECK_SYS(setenv("DSAIO_AUTOSTART", "0", 1));
	own_kill();
	while (dsaio_client_state(kit.rig.client) == DSAIO_CONNECTED)
		(void)poll(NULL, 0, 1);
	(void)poll(NULL, 0, 300); /* time enough to start one */
	CHECK_EQ(dsaio_client_state(kit.rig.client), DSAIO_RECONNECTING);
	CHECK_EQ(places_log_count("ready:"), 1);
	if (not_started[row].is_unset) { /* another program, which may */
		pid_t pid = (pid_t)CHECK_SYS(fork());

		if (pid == 0) {
			CHECK_SYS(unsetenv("DSAIO_AUTOSTART"));
			CHECK_CALL(dsaio_connect(NULL, &client));
			(void)dsaio_disconnect(client);
			_exit(0);
		}
		child_wait_ok(pid);
	} else {
		CHECK_CALL(dsaio_connect(NULL, &client));
		(void)dsaio_disconnect(client);
	}
	kit_use(&kit);
	kit_close(&kit);
	CHECK_EQ(places_log_count("ready:"), 2);
	places_stop();
}

/* ---- the next daemon ends, or sleeps ---- */

static const struct {
	const char *what;
	int usec;
} moments[] = { { "0 ms", 0 },	    { "1 ms", 1000 },	{ "2 ms", 2000 },
		{ "4 ms", 4000 },   { "8 ms", 8000 },	{ "16 ms", 16000 },
		{ "32 ms", 32000 }, { "64 ms", 64000 }, { "128 ms", 128000 } };

/* It has much to hand over, so that this takes some milliseconds. */
enum { N_FILES = 16, N_SLABS = 24 };

static void ended_in_between(int usec, bool is_kill)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_op *ops[N_FILES];
	uint8_t *memory[N_SLABS];

	reconnecting(&rig);
	for (unsigned i = 0; i < N_SLABS; i++)
		CHECK_CALL(dsaio_alloc(rig.client, 4 * MIB, NULL, (void **)&memory[i]));
	for (unsigned i = 0; i < N_FILES; i++) {
		const char *name = test_text("f%u", i);

		file_make_pattern(daemon_path(rig.daemon, name), PIECE, i);
		(void)rig_file(&rig, name, O_RDWR);
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[i], memory[i], PIECE, 0), PIECE);
		memset(memory[i], 0, PIECE);
	}
	process_stop(rig.daemon->pid);
	for (unsigned i = 0; i < N_FILES; i++)
		CHECK_CALL(
			dsaio_pread_async(rig.handle, rig.files[i], memory[i], PIECE, 0, &ops[i]));
	daemon_kill(rig.daemon);
	rig.daemon = daemon_start(NULL);
	(void)usleep((useconds_t)usec); /* a moment that nobody reports */
	daemon_end(rig.daemon, is_kill);
	rig.daemon = daemon_start(NULL);
	for (unsigned i = 0; i < N_FILES; i++) {
		int64_t result = op_wait(ops[i], 20000000);

		if (result == -ECONNRESET && strstr(dsaio_op_error(ops[i]), "two crashes"))
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[i], memory[i], PIECE, 0), PIECE);
		else
			CHECK_EQ(result, PIECE);
		dsaio_op_free(ops[i]);
		pattern_check(memory[i], PIECE, i, 0, "what was read");
	}
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_CONNECTED);
	for (unsigned i = 0; i < N_SLABS; i++)
		CHECK_CALL(dsaio_free(rig.client, memory[i]));
}

TEST_TABLE(killed_in_between, moments,
	   "the next daemon is killed while it takes over, so long after its start")
{
	ended_in_between(moments[row].usec, true);
}

TEST_TABLE(terminated_in_between, moments,
	   "the next daemon gets SIGTERM while it takes over, so long after its start")
{
	ended_in_between(moments[row].usec, false);
}

static const struct {
	const char *what;
	int usec;
} stops[] = { { "0 ms", 0 }, { "3 ms", 3000 }, { "50 ms", 50000 } };

TEST_TABLE(stopped_in_between, stops,
	   "the next daemon is stopped for a second while it takes over, so long after its start")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	daemon_kill(daemon);
	daemon = daemon_start(NULL);
	(void)usleep((useconds_t)stops[row].usec);
	process_stop(daemon->pid);
	(void)usleep(1000000);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	kit_use(&kit);
	kit_close(&kit);
}

TEST(twice, "five restarts in a row, with hardly a moment between")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	kit_open(&kit, daemon, NULL, data_make(daemon));
	for (unsigned i = 0; i < 5; i++) {
		daemon_end(daemon, i % 2);
		daemon = daemon_start(NULL);
	}
	kit_use(&kit);
	kit_close(&kit);
}

/* ---- many ---- */

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
