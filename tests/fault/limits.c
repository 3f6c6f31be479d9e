/*
 * Limits: profiles out of range (C11), the pool (C12), locked memory (C13).  Each refusal names
 * the value, the limit and what to do.
 */
#include "tests/victim.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *config_make(const char *text)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK(fflush(file) == 0);
	CHECK_SYS(chmod(path, 0644));
	return path;
}

static struct daemon *daemon_with_config(const char *text)
{
	return daemon_start(DAEMON_ARGS("--config", config_make(text)));
}

/* ---- C11 ---- */

static const struct {
	const char *what;
	uint32_t block_size, queue_depth, parallelism;
	const char *words;
} profiles[] = {
	{ "block_size 0", 0, 128, 1, "block_size;0;512" },
	{ "block_size 256", 256, 128, 1, "block_size 256;512" },
	{ "block_size 4097", 4097, 128, 1, "block_size;4097;512" },
	{ "block_size 64 MiB + 512", (64u << 20) + 512, 128, 1, "block_size;67109376;64 MiB" },
	{ "block_size 4 GiB - 1", UINT32_MAX, 128, 1, "block_size;4294967295" },
	{ "queue_depth 0", 1u << 20, 0, 1, "queue_depth;0;1" },
	{ "queue_depth 4097", 1u << 20, 4097, 1, "queue_depth;4097;4096" },
	{ "intra_op_parallelism 0", 1u << 20, 128, 0, "intra_op_parallelism;0;1" },
	{ "intra_op_parallelism 65", 1u << 20, 128, 65, "intra_op_parallelism;65;64" },
	{ "intra_op_parallelism -1", 1u << 20, 128, UINT32_MAX, "intra_op_parallelism;4294967295" },
};

TEST_TABLE(c11_library, profiles, "C11 profile out of range, in the library")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;

	beside_start(rig.daemon);
	profile.block_size = profiles[row].block_size;
	profile.queue_depth = profiles[row].queue_depth;
	profile.intra_op_parallelism = profiles[row].parallelism;
	if (profile.block_size && profile.queue_depth && profile.intra_op_parallelism)
		CHECK_FAILS(profile_open(rig.client, &profile, &handle), -EINVAL,
			    profiles[row].words);
	else /* inherited; only the protocol can say 0 */
		CHECK_CALL(profile_open(rig.client, &profile, &handle));
	beside_ok();
}

TEST_TABLE(c11_daemon, profiles, "C11 profile out of range, in the daemon")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);

	beside_start(daemon);
	raw_open(&raw, daemon);
	handle_open.profile = &profile;
	profile.block_size = profiles[row].block_size;
	profile.queue_depth = profiles[row].queue_depth;
	profile.intra_op_parallelism = profiles[row].parallelism;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, profiles[row].words);
	(void)raw_handle(&raw);
	beside_ok();
}

FAULT(c11_options, "C11 handle options out of range: weight, class, entries")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct dsaio_handle_options o = DSAIO_HANDLE_OPTIONS_INIT;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);
	struct dsaio_handle *handle;

	rig_open(&rig, NULL);
	o.weight = 17;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL, "weight;17;16");
	o.weight = 1;
	o.entries = 4097;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL, "entries;4097;4096");
	o.entries = 3;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL, "entries;3;4");
	o.entries = 0;
	o.io_class = (enum dsaio_class)3;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL, "class;3");
	o.io_class = DSAIO_CLASS_NORMAL;
	o.size = 3;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL, "dsaio_handle_options;3");

	raw_open(&raw, daemon);
	handle_open.weight = 17;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "weight;17;16");
	handle_open.weight = 1;
	handle_open.io_class = (Wire__Class)99;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "class;99");
}

FAULT(c11_entries, "C11 channel entries out of range are granted within the limits")
{
	static const uint32_t wanted[] = { 0, 1, 5, 4096, 5000, UINT32_MAX };
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	struct raw_file file;

	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	raw_file(&raw, daemon_path(daemon, "f"), O_RDONLY, &file);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
		Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);
		uint32_t entries;

		open.handle = raw_handle(&raw);
		open.store = file.store;
		open.entries = wanted[i];
		raw_call(&raw, &request, NULL, 0, &answer);
		if (answer.reply->error) {
			answer_check_fails(&answer, -EINVAL, test_text("entries;%u", wanted[i]));
			continue;
		}
		entries = answer.reply->channel_open->entries;
		CHECK(entries >= RING_ENTRIES_MIN && entries <= RING_ENTRIES_MAX);
		CHECK_EQ(entries & (entries - 1), 0);
	}
}

/* ---- C12 ---- */

TEST(c12_client, "C12 a client's share of the pool exhausted: the message tells, a free helps")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *memory, *more;
	uint8_t buf[4096];

	rig.daemon = daemon_with_config("[daemon]\npool_size = 64M\nclient_pool_max = 16M\n");
	beside_start(rig.daemon);
	rig_open(&rig, NULL);
	CHECK_FAILS(dsaio_alloc(rig.client, 17 * MIB, NULL, &memory), -ENOMEM,
		    "17 MiB;16 MiB;client_pool_max");
	CHECK_CALL(dsaio_alloc(rig.client, 12 * MIB, NULL, &memory));
	CHECK_FAILS(dsaio_alloc(rig.client, 12 * MIB, NULL, &more), -ENOMEM, "client_pool_max");
	/* Nothing was lost: I/O goes on, also with memory that is not pinned. */
	CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory, 12 * MIB,
			      0),
		 12 * MIB);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
	CHECK_EQ(dsaio_free(rig.client, memory), 0);
	CHECK_CALL(dsaio_alloc(rig.client, 12 * MIB, NULL, &memory));
	beside_ok();
}

TEST(c12_pool, "C12 the whole pool exhausted by others: the message tells, their end helps")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_client *greedy[3];
	struct daemon *daemon;
	void *memory;

	daemon = daemon_with_config("[daemon]\npool_size = 40M\nclient_pool_max = 16M\n"
				    "user_pool_max = 40M\n");
	beside_start(daemon);
	for (unsigned i = 0; i < 2; i++) {
		greedy[i] = client_open(daemon);
		CHECK_CALL(dsaio_alloc(greedy[i], 15 * MIB, NULL, &memory));
	}
	rig.daemon = daemon;
	rig_open(&rig, NULL);
	CHECK_FAILS(dsaio_alloc(rig.client, 15 * MIB, NULL, &memory), -ENOMEM, "user_pool_max");
	beside_ok();
	for (unsigned i = 0; i < 2; i++)
		(void)dsaio_disconnect(greedy[i]);
	CHECK(daemon_wait_clients(daemon, 2, 20 * MIB));
	CHECK_CALL(dsaio_alloc(rig.client, 15 * MIB, NULL, &memory));
	beside_ok();
}

TEST(c12_small, "C12 a client that takes all of its share in small pieces gets it all back")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	static void *parts[8192];
	unsigned n = 0, again = 0;

	rig.daemon = daemon_with_config("[daemon]\npool_size = 64M\nclient_pool_max = 16M\n");
	beside_start(rig.daemon);
	rig_open(&rig, NULL);
	while (n < ARRAY_SIZE(parts) && !dsaio_alloc(rig.client, 64 * KIB, NULL, &parts[n]))
		n++;
	CHECK_MSG(n >= 128 && n <= 256, "%u pieces of 64 KiB of 16 MiB", n);
	CHECK_FAILS(dsaio_alloc(rig.client, 64 * KIB, NULL, &parts[n]), -ENOMEM, "client_pool_max");
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(dsaio_free(rig.client, parts[i]), 0);
	while (again < ARRAY_SIZE(parts) && !dsaio_alloc(rig.client, 64 * KIB, NULL, &parts[again]))
		again++;
	CHECK_EQ(again, n);
	beside_ok();
}

TEST(c12_objects,
     "C12 files and handles without end: the limits are reported, and others have theirs")
{
	struct daemon *daemon = daemon_start(NULL);
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = -1;
	bool reported_files = false, reported_handles = false;

	victim_start(daemon);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	raw_open(&raw, daemon);
	fd = open_direct(daemon_path(daemon, "f"), O_RDONLY);
	for (unsigned i = 0; i < 30000 && !reported_handles; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
		Wire__Request request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);

		raw_call(&raw, &request, NULL, 0, &answer);
		if (answer.reply->error) {
			answer_check_fails(&answer, -EMFILE, "handles");
			reported_handles = true;
		}
	}
	CHECK(reported_handles);
	for (unsigned i = 0; i < 30000 && !reported_files; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
		Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

		raw_call(&raw, &request, &fd, 1, &answer);
		if (answer.reply->error) {
			answer_check_fails(&answer, -EMFILE, "files");
			reported_files = true;
		}
	}
	CHECK(reported_files);
	victims_check(daemon, 2); /* without root they are of the same user */
}

/* One connection, with its Hello; false if it was refused because there are too many. */
static bool session_try(struct raw *raw, const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);

	hello.version_min = hello.version_max = 1;
	raw_connect(raw, daemon);
	raw_send(raw, &request, NULL, 0);
	raw_receive(raw, &answer);
	CHECK_MSG(answer.reply, "closed without a word");
	if (answer.reply->error)
		answer_check_fails(&answer, -EUSERS, "connections");
	return !answer.reply->error;
}

/* A closed object counts until the daemon has seen it: asks each 10 ms, within the test's time. */
static void session_wait_room(const struct daemon *daemon)
{
	bool is_served = false;

	while (!is_served) {
		_cleanup_(raw_close) struct raw raw = RAW_NONE;

		is_served = session_try(&raw, daemon);
		if (!is_served)
			(void)poll(NULL, 0, 10);
	}
}

FAULT(c12_sessions, "C12 connections without end: -EUSERS is returned, and others keep theirs")
{
	static struct raw raws[5000];
	struct rlimit limit;
	unsigned n = 0;
	bool reported = false;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit)); /* ours; the daemon's is its own affair */
	limit.rlim_cur = limit.rlim_max;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur < ARRAY_SIZE(raws))
		test_skip("needs %zu descriptors", ARRAY_SIZE(raws));
	while (n < ARRAY_SIZE(raws) && !reported)
		reported = !session_try(&raws[n++], daemon);
	CHECK(reported);
	test_note("one user may have %u clients", n - 1);
	beside_ok();
	for (unsigned i = 0; i < n; i++)
		raw_close(&raws[i]);
	session_wait_room(daemon);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	(void)dsaio_disconnect(client_open(daemon));
}

static void few_descriptors(void)
{
	struct rlimit limit = { .rlim_cur = 48, .rlim_max = 48 };

	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, the test says so */
}

TEST(c12_descriptors,
     "C12 the daemon's descriptors exhausted: it neither spins nor drops who is there")
{
	struct daemon *daemon;
	struct raw raws[60];
	int64_t cpu_msec;

	daemon = daemon_start_with(&(struct daemon_options){ .before_exec = few_descriptors });
	{ /* One that was there before, and stays. */
		_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
		void *memory;

		rig_open(&rig, NULL);
		CHECK_CALL(dsaio_alloc(rig.client, 65536, NULL, &memory));
		CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory,
				      65536, 0),
			 65536);
		daemon_queue_long(daemon);
		for (unsigned i = 0; i < ARRAY_SIZE(raws); i++)
			raw_connect(&raws[i], daemon); /* the kernel's backlog holds the rest */
		cpu_msec = daemon_cpu_msec(daemon);
		for (unsigned i = 0; i < 50; i++) {
			CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 65536, 0), 65536);
			(void)poll(NULL, 0, 20);
		}
		cpu_msec = daemon_cpu_msec(daemon) - cpu_msec;
		test_note("%" PRId64 " ms of CPU time in a second without descriptors", cpu_msec);
		CHECK(cpu_msec < 500);
		for (unsigned i = 0; i < ARRAY_SIZE(raws); i++)
			raw_close(&raws[i]);
		CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, 65536, 0), 65536);
	}
	CHECK(daemon_wait_clients(daemon, 0, UINT64_MAX));
	(void)dsaio_disconnect(client_open(daemon));
}

#define IN_FLIGHT 100u /* more than few_descriptors() */

/* Leaves descriptors in a socket of this process: the kernel counts them for the uid. */
static void put_in_flight(int sockets[2])
{
	struct raw raw = RAW_NONE;
	int fds[IN_FLIGHT];

	for (unsigned i = 0; i < IN_FLIGHT; i++)
		fds[i] = STDERR_FILENO;
	CHECK_SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
	raw.fd = sockets[0];
	raw_send_bytes(&raw, "", 1, fds, IN_FLIGHT);
}

/* Without capabilities the daemon may send no descriptor while its uid has so many in flight. */
TEST(c12_in_flight,
     "C12 descriptors of another program in flight: a client is served late, not hung up on")
{
	struct daemon *daemon = daemon_start_with(
		&(struct daemon_options){ .before_exec = few_descriptors });
	struct raw raw = RAW_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	int sockets[2];

	put_in_flight(sockets);
	raw_connect(&raw, daemon);
	hello.version_min = hello.version_max = 1;
	raw_send(&raw, &request, NULL, 0);
	(void)wait_readable(raw.fd, 100000); /* time to hang up in */
	CHECK_SYS(close(sockets[0]));
	CHECK_SYS(close(sockets[1]));
	raw_receive(&raw, &answer);
	CHECK(answer.reply && answer.reply->error == 0);
	raw_close(&raw);
}

/* The lowest number that no descriptor of the process has. */
static rlim_t lowest_free(pid_t pid)
{
	rlim_t n = 0;

	while (faccessat(AT_FDCWD, test_text("/proc/%d/fd/%ju", pid, (uintmax_t)n), F_OK,
			 AT_SYMLINK_NOFOLLOW) == 0)
		n++;
	return n;
}

TEST(c12_named, "C12 the daemon's descriptors exhausted: the message names it, limit and cure")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct rlimit limit, before;
	void *memory;
	int r = 0;

	CHECK_SYS(prlimit(rig.daemon->pid, RLIMIT_NOFILE, NULL, &before));
	limit = before;
	/* A worker of the daemon may close a descriptor of its own after we looked: then there is room
	   for one slab, and the next look is exact.  The refused slab's is closed later, too. */
	for (int i = 0; i < 10 && r == 0; i++) {
		limit.rlim_cur = lowest_free(rig.daemon->pid);
		CHECK_SYS(prlimit(rig.daemon->pid, RLIMIT_NOFILE, &limit, NULL));
		r = dsaio_alloc(rig.client, 64 * MIB, NULL, &memory);
	}
	CHECK_FAILS(r, -EMFILE,
		    test_text("the daemon (pid %d);RLIMIT_NOFILE %ju;ulimit -n;LimitNOFILE=",
			      rig.daemon->pid, (uintmax_t)limit.rlim_cur));
	CHECK_SYS(prlimit(rig.daemon->pid, RLIMIT_NOFILE, &before, NULL));
	CHECK_CALL(dsaio_alloc(rig.client, 64 * MIB, NULL, &memory));
}

/* ---- C13 ---- */

#define NOBODY 65534

/* An unprivileged user with 64 KiB to lock, as before Linux 5.16. */
static void become_poor(void)
{
	struct rlimit limit = { .rlim_cur = 64 << 10, .rlim_max = 64 << 10 };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		_exit(126);
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		_exit(126);
}

/* Can that user reach the daemon's program, and does the limit hold?  Not under sanitizers: they
   make mlock() do nothing. */
static void check_poor(void)
{
	const char *build = getenv("BUILD");
	const char *program = test_text("%s/dsaiod", build && *build ? build : "build");
	pid_t pid = (pid_t)CHECK_SYS(fork());
	int status;

	if (pid == 0) {
		static char memory[MIB];

		become_poor();
		if (mlock(memory, sizeof(memory)) == 0)
			_exit(2);
		_exit(access(program, X_OK) ? 1 : 0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 2)
		test_skip("RLIMIT_MEMLOCK does not hold here");
	if (status)
		test_skip("user %d cannot reach %s", NOBODY, program);
}

static struct daemon *poor_daemon(const char *config)
{
	check_poor();
	CHECK_SYS(chmod(test_dir(), 0777));
	return daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", config_make(config)), .before_exec = become_poor });
}

TEST(c13_yes, "C13 RLIMIT_MEMLOCK too low, lock = yes: refused, the message says what to do")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t buf[4096];
	void *memory;
	int64_t r;

	rig.daemon = poor_daemon("[daemon]\nlock = yes\n");
	rig_open(&rig, NULL);
	r = dsaio_alloc(rig.client, 16 * MIB, NULL, &memory);
	CHECK_FAILS(r, -ENOMEM, "lock;RLIMIT_MEMLOCK is 64 KiB;lock = auto");
	/* Nothing is left of it, and what needs no slab works. */
	CHECK(daemon_wait_clients(rig.daemon, 1, 0));
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096 + 5, 1);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), buf, 4095, 3), 4095);
	pattern_check(buf, 4095, 1, 3, "read");
}

TEST(c13_silence,
     "C13 RLIMIT_MEMLOCK too low, lock = yes: the daemon says so before a client asks for memory")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = poor_daemon("[daemon]\nlock = yes\n");
	char *said;

	CHECK(daemon_log_has(daemon, "RLIMIT_MEMLOCK is 64 KiB, and CAP_IPC_LOCK is missing"));
	daemon_status(daemon, &answer);
	CHECK(!answer.reply->status->pool->is_locked);
	CHECK(strstr(answer.reply->status->pool->why_unlocked, "CAP_IPC_LOCK"));
	CHECK_EQ(daemon_start_fails(
			 &(struct daemon_options){
				 .args = DAEMON_ARGS("--config",
						     config_make("[daemon]\nlock = yes\n"),
						     "--check-config"),
				 .socket_path = test_text("%s/check.sock", test_dir()),
				 .before_exec = become_poor },
			 &said),
		 0);
	CHECK_MSG(strstr(said, "CAP_IPC_LOCK"), "%s", said);
}

TEST(c13_auto, "C13 RLIMIT_MEMLOCK too low, lock = auto: served unlocked, and status says so")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	void *memory;

	rig.daemon = poor_daemon("[daemon]\nlock = auto\n");
	beside_start(rig.daemon);
	rig_open(&rig, NULL);
	CHECK_EQ(dsaio_client_is_locked(rig.client), 1);
	CHECK_CALL(dsaio_alloc(rig.client, 16 * MIB, NULL, &memory));
	CHECK_EQ(dsaio_client_is_locked(rig.client), 0);
	pattern_fill(memory, 16 * MIB, 1, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory, 16 * MIB,
			      0),
		 16 * MIB);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 16 * MIB, 1, 0);
	daemon_status(rig.daemon, &answer);
	CHECK(!answer.reply->status->pool->is_locked);
	CHECK(strstr(answer.reply->status->pool->why_unlocked, "RLIMIT_MEMLOCK"));
	beside_ok();
}

/* ---- the memory limit of a container ---- */

#define GROUP_BYTES (96 * MIB)

static const char *group_dir;

static bool group_write(const char *name, const char *text)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("%s/%s", group_dir, name), "we");

	return file && fputs(text, file) >= 0 && fflush(file) == 0;
}

/* It is removed at the test's end. */
static void group_make(void)
{
	const char *bytes = test_text("%zu", GROUP_BYTES);

	test_needs_root();
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0)
		group_dir = test_dir_in("/sys/fs/cgroup");
	else if (access("/sys/fs/cgroup/memory/cgroup.procs", W_OK) == 0)
		group_dir = test_dir_in("/sys/fs/cgroup/memory");
	else
		test_skip("needs a control group that may be written to");
	if (!group_write("memory.max", bytes) && !group_write("memory.limit_in_bytes", bytes))
		test_skip("needs a control group that limits memory");
	CHECK_SYS(chmod(group_dir, 0755)); /* as all groups; the daemon reads it as nobody */
}

static void group_join(void)
{
	if (!group_write("cgroup.procs", "0"))
		_exit(125);
}

TEST(group_start, "the pool of a daemon under a memory limit is at most half of it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	void *memory;

	group_make();
	rig.daemon = daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", config_make("[daemon]\n"
							    "client_pool_max = 48M\n"
							    "user_pool_max = 48M\n")),
		.before_exec = group_join });
	daemon_status(rig.daemon, &answer);
	CHECK_EQ(answer.reply->status->pool->size_bytes, GROUP_BYTES / 2);
	rig_open(&rig, NULL);
	CHECK_FAILS(dsaio_alloc(rig.client, GROUP_BYTES, NULL, &memory), -ENOMEM, "");
	CHECK_CALL(dsaio_alloc(rig.client, GROUP_BYTES / 4, NULL, &memory));
}

static const struct {
	const char *what;
	const char *config;
	int64_t result; /* of more than half of the limit */
} later[] = {
	{ "the default pool_size", "[daemon]\nlock = auto\n", -ENOMEM },
	{ "a pool_size that is configured", "[daemon]\npool_size = 160M\n", 0 },
};

TEST_TABLE(group_later, later, "a memory limit that comes after the start bounds new slabs")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *memory;

	group_make();
	rig.daemon = daemon_with_config(later[row].config);
	rig_open(&rig, NULL);
	CHECK(group_write("cgroup.procs", test_text("%d", rig.daemon->pid)));
	CHECK_CALL(dsaio_alloc(rig.client, GROUP_BYTES / 4, NULL, &memory));
	if (later[row].result < 0)
		CHECK_FAILS(dsaio_alloc(rig.client, GROUP_BYTES / 3, NULL, &memory), -ENOMEM,
			    test_text("%zu MiB;%s;pool_size", GROUP_BYTES / MIB, group_dir));
	else
		CHECK_CALL(dsaio_alloc(rig.client, GROUP_BYTES / 3, NULL, &memory));
}

TEST(group_import, "imports that the memory limit refused left the client's descriptors open")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	struct usage before;
	void *memory;

	group_make();
	rig.daemon = daemon_with_config("[daemon]\nlock = auto\n");
	rig_open(&rig, NULL);
	CHECK(group_write("cgroup.procs", test_text("%d", rig.daemon->pid)));
	CHECK_SYS(ftruncate(fd, GROUP_BYTES));
	memory = mmap(NULL, GROUP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	before = daemon_usage_settled(rig.daemon);
	for (unsigned i = 0; i < 10; i++)
		CHECK_FAILS(fd_register(rig.client, fd, 0, GROUP_BYTES, memory), -ENOMEM,
			    "pool_size");
	daemon_usage_back(rig.daemon, &before);
	CHECK_SYS(munmap(memory, GROUP_BYTES));
}

TEST_MAIN
