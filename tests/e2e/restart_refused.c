/*
 * Restarts of the daemon: what went wrong once during a hand-over, and must not again.
 *
 * Some need a failure, or an event, at one moment of recovery.  So fcntl(), mmap() and shutdown(), which the library
 * calls, are this program's.
 */
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECE (64 * KIB)
#define OP_USEC 8000000 /* an op that takes longer hangs */

/* ---- moments ---- */

static _Atomic unsigned
	failing_memfd;		     /* the duplicate that fails, as recovery makes them; 0: none */
static void (*_Atomic on_map)(void); /* called by mmap(), until it says that it was enough */
static void (*_Atomic on_replace)(void); /* called once, when recovery leaves the old connection */

static bool is_recovery(void)
{
	char name[16];

	CHECK_SYS(prctl(PR_GET_NAME, name));
	return strcmp(name, "dsaio-again") == 0;
}

int fcntl(int fd, int cmd, ...)
{
	va_list args;
	long arg;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	if (cmd == F_DUPFD_CLOEXEC && atomic_load(&failing_memfd) && is_recovery() &&
	    syscall(SYS_fcntl, fd, F_GET_SEALS) >= 0 && atomic_fetch_sub(&failing_memfd, 1) == 1) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t off)
{
	void (*hook)(void) = atomic_load(&on_map);

	if (hook)
		hook();
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, off);
}

int shutdown(int fd, int how)
{
	void (*hook)(void) = atomic_load(&on_replace);

	if (hook && is_recovery() && atomic_compare_exchange_strong(&on_replace, &hook, NULL))
		hook();
	return (int)syscall(SYS_shutdown, fd, how);
}

/* ---- helpers ---- */

static uint8_t *memory_new(struct rig *rig, size_t bytes)
{
	uint8_t *memory;

	CHECK_CALL(dsaio_alloc(rig->client, bytes, NULL, (void **)&memory));
	return memory;
}

/* Waits until the client has seen its daemon's end, or is with the next one. */
static void await_state(const struct rig *rig, bool is_connected)
{
	while ((dsaio_client_state(rig->client) == DSAIO_CONNECTED) != is_connected)
		(void)poll(NULL, 0, 1);
}

/* The daemon is killed, and the client has seen it. */
static void lose_daemon(struct rig *rig)
{
	daemon_kill(rig->daemon);
	await_state(rig, false);
}

/* The limit at which so many descriptors are free. */
static struct rlimit leave_descriptors(unsigned n)
{
	struct rlimit before, limit;
	unsigned n_free = 0;
	int fd = 0;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &before));
	for (; n_free < n; fd++)
		n_free += fcntl(fd, F_GETFD) < 0;
	limit = before;
	limit.rlim_cur = (rlim_t)fd;
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &limit));
	return before;
}

static void check_op(struct dsaio_op *op, int64_t result)
{
	CHECK_EQ(op_wait(op, OP_USEC), result);
	dsaio_op_free(op);
}

/* A file with bytes, which ops need a channel for; what all use is open. */
static struct dsaio_file *file_used(struct rig *rig, uint8_t **ret_memory)
{
	struct dsaio_file *file;

	file_make_pattern(daemon_path(rig->daemon, "f"), PIECE, 1);
	file = rig_file(rig, "f", O_RDWR);
	*ret_memory = memory_new(rig, PIECE);
	CHECK_EQ(dsaio_pread(rig->handle, file, *ret_memory, PIECE, 0), PIECE);
	return file;
}

/* ---- files ---- */

enum { N_OPENERS = 8, N_TRUNCATERS = 24 };

struct caller {
	struct rig *rig;
	const char *path;
	struct dsaio_file *file;
	pthread_t thread;
	int64_t result;
};

static void *open_main(void *arg)
{
	struct caller *caller = arg;

	caller->result = dsaio_open(caller->rig->client, caller->path, O_RDWR, NULL, &caller->file);
	return NULL;
}

static void *truncate_main(void *arg)
{
	struct caller *caller = arg;

	caller->result = dsaio_file_truncate(caller->file, 1);
	return NULL;
}

TEST(wrong_file,
     "a truncate waits for the next daemon, which refuses the file: no other one, which gets its number, is cut")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct caller openers[N_OPENERS], truncaters[N_TRUNCATERS];
	const char *path;
	struct dsaio_file *file;
	struct rlimit before;

	reconnecting(&rig);
	path = daemon_path(rig.daemon, "a");
	file_make_pattern(path, PIECE, 1);
	file = rig_file(&rig, path, O_RDWR);
	before = leave_descriptors(1);
	(void)rig_file(&rig, "b", O_RDWR | O_CREAT); /* takes a's place */
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &before));
	CHECK_SYS(unlink(path));
	file_make_pattern(path, PIECE, 2);
	lose_daemon(&rig);
	for (unsigned i = 0; i < N_OPENERS; i++) {
		openers[i] = (struct caller){
			.rig = &rig, .path = daemon_path(rig.daemon, test_text("o%u", i))
		};
		file_make_pattern(openers[i].path, PIECE, i);
		CHECK_EQ(pthread_create(&openers[i].thread, NULL, open_main, &openers[i]), 0);
	}
	(void)poll(NULL, 0, 50); /* they wait, and are the first to go on */
	for (unsigned i = 0; i < N_TRUNCATERS; i++) {
		truncaters[i] = (struct caller){ .rig = &rig, .file = file };
		CHECK_EQ(pthread_create(&truncaters[i].thread, NULL, truncate_main, &truncaters[i]),
			 0);
	}
	(void)poll(NULL, 0, 50);
	rig.daemon = daemon_start(NULL);
	for (unsigned i = 0; i < N_TRUNCATERS; i++) {
		CHECK_EQ(pthread_join(truncaters[i].thread, NULL), 0);
		CHECK(truncaters[i].result < 0);
	}
	for (unsigned i = 0; i < N_OPENERS; i++) {
		CHECK_EQ(pthread_join(openers[i].thread, NULL), 0);
		CHECK_CALL(openers[i].result);
		CHECK_EQ(file_size(openers[i].path), PIECE);
		dsaio_file_close(openers[i].file);
	}
	CHECK_EQ(file_size(path), PIECE);
}

/* ---- memory ---- */

static const struct {
	const char *what;
	unsigned failing;
} duplicates[] = { { "first", 1 }, { "second", 2 } };

/* One of them takes more than half of the pool, and the daemon frees it before the next try. */
TEST_TABLE(
	no_descriptor, duplicates,
	"no descriptor is free for a moment, when memory is handed over: another try takes all of it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *config = test_text("[daemon]\npool_size = 64M\nclient_pool_max = 64M\n");
	uint8_t *memory[2];
	struct dsaio_file *file;
	struct dsaio_op *op;

	rig.daemon = next_daemon(config);
	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	memory[0] = memory_new(&rig, 34 * MIB);
	memory[1] = memory_new(&rig, 24 * MIB);
	for (unsigned i = 0; i < 2; i++) {
		pattern_fill(memory[i], PIECE, i, 0);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory[i], PIECE, i * PIECE), PIECE);
	}
	lose_daemon(&rig);
	atomic_store(&failing_memfd, duplicates[row].failing);
	rig.daemon = next_daemon(config);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory[i], PIECE, (2 + i) * PIECE,
					      &op));
		check_op(op, PIECE);
		file_check_pattern(daemon_path(rig.daemon, "f"), (2 + i) * PIECE, PIECE, i, 0);
	}
	CHECK_EQ(atomic_load(&failing_memfd), 0);
	CHECK_CALL(dsaio_free(rig.client, memory[0]));
	CHECK_CALL(dsaio_free(rig.client, memory[1]));
}

TEST(room_again, "memory that one daemon had no room for is handed over to a later one")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *large = "[daemon]\npool_size = 96M\nclient_pool_max = 96M\n";
	struct dsaio_file *file;
	uint8_t *memory;

	rig.daemon = next_daemon(large);
	reconnecting(&rig);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	memory = memory_new(&rig, 64 * MIB);
	pattern_fill(memory, PIECE, 1, 0);
	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, PIECE, 0), -ENOMEM,
				    "memory;restart;allocate");
		else
			CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, PIECE, i * PIECE), PIECE);
		lose_daemon(&rig);
		rig.daemon = next_daemon(i ? large : "[daemon]\npool_size = 48M\n");
		await_state(&rig, true);
		daemon_log_wait(rig.daemon,
				i ? "1 slab of 64 MiB, 1 file, 1 channel, 0 ops in "
				  : "1 could not be: client 1 has 0 B of at most 24 MiB");
	}
	file_check_pattern(daemon_path(rig.daemon, "f"), 2 * PIECE, PIECE, 1, 0);
	CHECK_CALL(dsaio_free(rig.client, memory));
	(void)daemon_wait_clients(rig.daemon, 1, 0);
}

/* ---- handles ---- */

TEST(wrong_handle,
     "a handle that the next daemon refused is closed: not another one, which got its number")
{
	enum { N = 6 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle *another;
	struct rig rigs[N];
	uint8_t *memories[N];
	struct dsaio_op *op;
	unsigned refused = N;

	rig.daemon = daemon_start(NULL);
	for (unsigned i = 0; i < N; i++) {
		rigs[i] = (struct rig){ .daemon = rig.daemon };
		reconnecting(&rigs[i]);
		(void)file_used(&rigs[i], &memories[i]);
	}
	daemon_kill(rig.daemon);
	rig.daemon = next_daemon("[daemon]\nclient_handles = 1\n"); /* 4 of a user */
	for (unsigned i = 0; i < N; i++)
		(void)dsaio_client_state(rigs[i].client); /* all at once */
	for (unsigned i = 0; i < N; i++) {
		rigs[i].daemon = rig.daemon;
		if (dsaio_pread(rigs[i].handle, rigs[i].files[0], memories[i], PIECE, 0) < 0)
			refused = i;
	}
	CHECK(refused < N);
	for (unsigned i = 0; i < N; i++)
		if (i != refused) {
			dsaio_file_close(rigs[i].files[0]);
			CHECK_CALL(dsaio_disconnect(rigs[i].client));
		}
	rig = rigs[refused];
	CHECK_CALL(profile_open(rig.client, NULL, &another));
	CHECK_EQ(dsaio_pread(another, rig.files[0], memories[refused], PIECE, 0), PIECE);
	CHECK_CALL(dsaio_handle_close(rig.handle, -1));
	rig.handle = another;
	CHECK_CALL(dsaio_pread_async(another, rig.files[0], memories[refused], PIECE, 0, &op));
	check_op(op, PIECE);
}

TEST(descriptor,
     "a handle's descriptor that is asked for while the daemon is away is not readable all the time")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_completion completion;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;
	int fd;

	reconnecting(&rig);
	file = file_used(&rig, &memory);
	lose_daemon(&rig);
	(void)poll(NULL, 0, 100); /* time for recovery to put the doorbell aside */
	fd = (int)CHECK_CALL(dsaio_handle_fd(rig.handle));
	CHECK_EQ(dsaio_handle_reap(rig.handle, &completion, sizeof(completion), 0, 1, 0), 0);
	CHECK(!wait_readable(fd, 50000));
	rig.daemon = daemon_start(NULL);
	await_state(&rig, true);
	while (wait_readable(fd, 0)) /* it may tell of the new state */
		CHECK_EQ(dsaio_handle_reap(rig.handle, &completion, sizeof(completion), 0, 1, 0),
			 0);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, PIECE, 0, &op));
	while (dsaio_handle_reap(rig.handle, &completion, sizeof(completion), 0, 1, 0) == 0)
		CHECK(wait_readable(fd, OP_USEC));
	dsaio_op_free(op);
}

/* ---- channels ---- */

static struct rig shown = RIG_NONE;

static void restart_now(void)
{
	atomic_store(&on_map, NULL);
	lose_daemon(&shown);
	shown.daemon = daemon_start(NULL);
	await_state(&shown, true);
}

TEST(channel_of_before,
     "the daemon is restarted while its reply to ChannelOpen is looked at: the channel is made again")
{
	struct dsaio_handle *another;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;

	reconnecting(&shown);
	file = file_used(&shown, &memory);
	CHECK_CALL(profile_open(shown.client, NULL, &another));
	atomic_store(&on_map, restart_now);
	CHECK_CALL(dsaio_pread_async(another, file, memory, PIECE, 0, &op));
	CHECK(!atomic_load(&on_map));
	check_op(op, PIECE);
	rig_close(&shown);
}

static const struct {
	const char *what;
	unsigned n;
} few[] = { { "1 free", 1 }, { "2 free", 2 }, { "3 free", 3 }, { "4 free", 4 }, { "5 free", 5 } };

TEST_TABLE(few_descriptors, few,
	   "few descriptors are free during the hand-over, and more after a while")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct rlimit before;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;

	reconnecting(&rig);
	file = file_used(&rig, &memory);
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, PIECE, 0, &op));
	lose_daemon(&rig);
	(void)poll(NULL, 0, 500); /* the pauses between tries are long by then */
	rig.daemon = daemon_start(NULL);
	before = leave_descriptors(few[row].n);
	(void)op_wait(op, 600000); /* some tries */
	CHECK_SYS(setrlimit(RLIMIT_NOFILE, &before));
	check_op(op, PIECE);
	CHECK_EQ(dsaio_pread(rig.handle, file, memory, PIECE, 0), PIECE);
}

TEST(small_ring,
     "ops in a small ring whose places have gone round are submitted again in their order")
{
	enum { ENTRIES = 8, ROUNDS = 8, AT = 32 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *ops[ENTRIES], *slow, *quick;
	uint64_t random = test_seed();
	uint8_t *memory;

	reconnecting(&rig);
	options.entries = ENTRIES;
	CHECK_CALL(dsaio_handle_open(rig.client, &options, &handle));
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	memory = memory_new(&rig, 64 * 4096);
	for (unsigned round = 0; round < ROUNDS; round++) {
		const unsigned n = 2 + (unsigned)(test_random(&random) % (ENTRIES - 2));

		for (uint64_t i = test_random(&random) % 13; i > 0; i--) { /* ended out of order */
			CHECK_CALL(dsaio_pwrite_async(handle, file, memory + 60 * 4096, 3 * 4096,
						      100 * 4096, &slow));
			CHECK_CALL(dsaio_pread_async(handle, file, memory + AT * 4096, 4096, 0,
						     &quick));
			CHECK(op_wait(quick, OP_USEC) >= 0);
			check_op(slow, 3 * 4096);
			dsaio_op_free(quick);
		}
		process_stop(rig.daemon->pid);
		for (unsigned i = 0; i < n; i++) {
			memset(memory + i * 4096, (int)(round * ENTRIES + i + 1), 4096);
			CHECK_CALL(dsaio_pwrite_async(handle, file, memory + i * 4096, 4096, 0,
						      &ops[i]));
		}
		daemon_kill(rig.daemon);
		rig.daemon = daemon_start(NULL);
		for (unsigned i = 0; i < n; i++)
			check_op(ops[i], 4096);
		CHECK_EQ(dsaio_pread(handle, file, memory + AT * 4096, 4096, 0), 4096);
		CHECK_EQ(memory[AT * 4096], (uint8_t)(round * ENTRIES + n));
	}
	CHECK_CALL(dsaio_handle_close(handle, -1));
}

/* ---- the end on purpose ---- */

static struct daemon *asked; /* any of that socket */

/* An administrator ends all clients of this process, as soon as one of them is with the next daemon. */
static void kill_now(void)
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer status = ANSWER_NONE;
	Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;
	Wire__Request request = RAW_REQUEST(CLIENT_KILL, client_kill, &kill);

	if (!is_recovery())
		return;
	atomic_store(&on_map, NULL);
	raw = raw_new(asked);
	daemon_status(asked, &status);
	kill.reason = (char *)(uintptr_t) "wrong disk"; /* only read */
	for (size_t i = 0; i < status.reply->status->n_clients; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		kill.client = status.reply->status->clients[i]->client;
		raw_call(&raw, &request, NULL, 0, &answer); /* refused for this connection */
	}
}

TEST(killed, "a client that an administrator ends during its hand-over does not come back")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct dsaio_op *op;
	uint8_t *memory;

	reconnecting(&rig);
	file = file_used(&rig, &memory);
	asked = rig.daemon;
	process_stop(rig.daemon->pid);
	CHECK_CALL(dsaio_pread_async(rig.handle, file, memory, PIECE, 0, &op));
	lose_daemon(&rig);
	atomic_store(&on_map, kill_now);
	rig.daemon = daemon_start(NULL);
	CHECK_EQ(op_wait(op, OP_USEC), -ECONNRESET);
	CHECK(strstr(dsaio_op_error(op), "has ended this session: wrong disk"));
	dsaio_op_free(op);
	CHECK(!atomic_load(&on_map));
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_LOST);
}

/* ---- another user ---- */

static void become_stranger(void)
{
	child_become(65534);
}

TEST(stranger, "what listens after a restart belongs to another user: it gets nothing")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	const char *path = test_text("%s/stranger.sock", test_dir());
	struct daemon *stranger;
	uint8_t *memory;
	struct dsaio_file *file;

	test_needs_root();
	CHECK_SYS(chmod(test_dir(), 0777));
	rig.daemon = daemon_start_with(
		&(struct daemon_options){ .args = DAEMON_ARGS("--user"), .socket_path = path });
	options.socket_path = path;
	options.reconnect_timeout_usec = 500000;
	CHECK_CALL(dsaio_connect(&options, &rig.client));
	CHECK_CALL(profile_open(rig.client, NULL, &rig.handle));
	file = file_used(&rig, &memory);
	lose_daemon(&rig);
	CHECK_SYS(unlink(path));
	CHECK_SYS(unlink(test_text("%s.lock", path)));
	stranger = daemon_start_with(&(struct daemon_options){ .args = DAEMON_ARGS("--user"),
							       .socket_path = path,
							       .before_exec = become_stranger,
							       .store_dir = "",
							       .not_stopped = true });
	CHECK_SYS(chmod(path, 0777));	 /* the stranger can do that, too */
	for (unsigned i = 0; i < 2; i++) /* open when it is lost, and later */
		CHECK_FAILS(
			dsaio_pread(rig.handle, file, memory, PIECE, 0),
			i ? -ENOTCONN : -ECONNRESET,
			"no other came for;belongs to user 65534 now, not to user 0;connect again");
	CHECK(!daemon_log_has(stranger, "has gone on"));
}

TEST_MAIN
