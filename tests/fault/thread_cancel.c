/*
 * pthread_cancel(3) of a thread that is inside of a call: the call returns as if nothing had come, and
 * the thread ends after it.
 *
 * The daemon is stopped, so that each call blocks.  The handle's descriptor is armed, so that waits
 * sleep in poll(2), which is a cancellation point; futex(2) by syscall(2) is none.
 */
#include "tests/harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOTHING INT64_MIN /* the call has not returned */
#define N_IOS 2048	  /* more than a ring has entries */
#define WAIT_USEC 50000
#define POOL_MIB 256

struct kit {
	struct rig rig;
	struct dsaio_file *file;
	struct dsaio_op *op; /* open while the daemon is stopped */
	struct dsaio_io ios[N_IOS];
	void *memory, *large;
	int fd; /* a memfd, mapped at shared */
	void *shared;
	int64_t (*call)(struct kit *kit);
	_Atomic pid_t tid;
	int64_t result;
};

static int64_t call_op_wait(struct kit *kit)
{
	return op_wait(kit->op, -1);
}

static int64_t call_wait(struct kit *kit)
{
	return handle_wait(kit->rig.handle, -1) == 1 ? 4096 : -EIO;
}

static int64_t call_pread(struct kit *kit)
{
	return dsaio_pread(kit->rig.handle, kit->file, kit->memory, 4096, 0);
}

static int64_t call_pread_private(struct kit *kit)
{
	uint8_t bytes[4096];

	return dsaio_pread(kit->rig.handle, kit->file, bytes, sizeof(bytes), 0);
}

static int64_t call_pwrite(struct kit *kit)
{
	return dsaio_pwrite(kit->rig.handle, kit->file, kit->memory, 4096, 0);
}

static int64_t call_fsync(struct kit *kit)
{
	return dsaio_fsync(kit->rig.handle, kit->file, 0);
}

static int64_t call_op_cancel(struct kit *kit)
{
	return dsaio_op_cancel(kit->op);
}

static int64_t call_handle_open(struct kit *kit)
{
	struct dsaio_handle *handle;

	return dsaio_handle_open(kit->rig.client, NULL, &handle);
}

static int64_t call_handle_close(struct kit *kit)
{
	(void)dsaio_handle_close(kit->rig.handle, -1);
	kit->rig.handle = NULL;
	return 0;
}

static int64_t call_disconnect(struct kit *kit)
{
	(void)dsaio_disconnect(kit->rig.client);
	memset(&kit->rig, 0, offsetof(struct rig, files));
	return 0;
}

static int64_t call_connect(struct kit *kit)
{
	struct dsaio_client *client;
	int r = socket_connect(kit->rig.daemon->socket_path, &client);

	if (r == 0)
		(void)dsaio_disconnect(client);
	return r;
}

static int64_t call_alloc(struct kit *kit)
{
	void *memory;

	return dsaio_alloc(kit->rig.client, 64 * MIB, NULL, &memory);
}

static int64_t call_free(struct kit *kit)
{
	return dsaio_free(kit->rig.client, kit->large);
}

static int64_t call_import(struct kit *kit)
{
	return fd_register(kit->rig.client, kit->fd, 0, MIB, kit->shared);
}

static int64_t call_file_open(struct kit *kit)
{
	struct dsaio_file *file;

	return dsaio_open(kit->rig.client, daemon_path(kit->rig.daemon, "new"), O_RDWR | O_CREAT,
			  NULL, &file);
}

static int64_t call_connect_with(struct kit *kit)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_client *client;
	int r;

	options.socket_path = kit->rig.daemon->socket_path;
	options.name = "cancelled";
	r = dsaio_connect(&options, &client);
	if (r == 0)
		(void)dsaio_disconnect(client);
	return r;
}

static int64_t alloc_with(struct kit *kit, size_t bytes, int64_t wait_usec)
{
	struct dsaio_alloc_options options = DSAIO_ALLOC_OPTIONS_INIT;
	void *memory;

	options.flags = DSAIO_ALLOC_NO_ZERO;
	options.wait_usec = wait_usec;
	return dsaio_alloc(kit->rig.client, bytes, &options, &memory);
}

static int64_t call_alloc_with(struct kit *kit)
{
	return alloc_with(kit, 64 * MIB, 0);
}

/* Less than the pool, but kit->large has a quarter of it. */
static int64_t call_alloc_wait(struct kit *kit)
{
	return alloc_with(kit, (POOL_MIB - 32) * MIB, WAIT_USEC);
}

static int64_t call_memory_register(struct kit *kit)
{
	struct dsaio_memory memory = DSAIO_MEMORY_INIT;

	memory.kind = DSAIO_MEMORY_FD;
	memory.fd = kit->fd;
	memory.start = kit->shared;
	memory.bytes = MIB;
	return dsaio_memory_register(kit->rig.client, &memory);
}

static int64_t call_open(struct kit *kit)
{
	struct dsaio_file *file;

	return dsaio_open(kit->rig.client, daemon_path(kit->rig.daemon, "new"), O_RDWR | O_CREAT,
			  NULL, &file);
}

/* The ring has no room for so many. */
static int64_t call_submit(struct kit *kit)
{
	for (unsigned i = 0; i < N_IOS; i++) {
		kit->ios[i].opcode = DSAIO_READ;
		kit->ios[i].file = kit->file;
		kit->ios[i].buf = kit->memory;
		kit->ios[i].len = 4096;
	}
	return dsaio_submit(kit->rig.handle, kit->ios, sizeof(struct dsaio_io), N_IOS, 0, NULL);
}

static int64_t call_submit_path(struct kit *kit)
{
	struct dsaio_io *io = &kit->ios[0];

	io->opcode = DSAIO_WRITE;
	io->path = daemon_path(kit->rig.daemon, "new");
	io->buf = kit->memory;
	io->len = 4096;
	return dsaio_submit(kit->rig.handle, io, sizeof(struct dsaio_io), 1, 0, NULL);
}

static int64_t call_reap_wait(struct kit *kit)
{
	struct dsaio_op *ended;

	return ops_reap(kit->rig.handle, &ended, 1, 1, -1);
}

static const struct {
	const char *what;
	int64_t (*call)(struct kit *kit);
	bool with_op; /* an op is open */
	int64_t result;
} calls[] = {
	{ "op_wait", call_op_wait, true, 4096 },
	{ "wait", call_wait, true, 4096 },
	{ "pread", call_pread, false, 4096 },
	{ "pread of private memory", call_pread_private, false, 4096 },
	{ "pwrite", call_pwrite, false, 4096 },
	{ "fsync", call_fsync, false, 0 },
	{ "op_cancel", call_op_cancel, true, 0 },
	{ "handle_open", call_handle_open, false, 0 },
	{ "handle_close", call_handle_close, true, 0 },
	{ "disconnect", call_disconnect, false, 0 },
	{ "connect", call_connect, false, 0 },
	{ "alloc", call_alloc, false, 0 },
	{ "free", call_free, false, 0 },
	{ "import", call_import, false, 0 },
	{ "file_open", call_file_open, false, 0 },
	{ "connect_with", call_connect_with, false, 0 },
	{ "alloc_with", call_alloc_with, false, 0 },
	{ "alloc_with that waits for room", call_alloc_wait, false, -ENOMEM },
	{ "memory_register", call_memory_register, false, 0 },
	{ "open", call_open, false, 0 },
	{ "submit to a full ring", call_submit, false, N_IOS },
	{ "submit of a path", call_submit_path, false, 1 },
	{ "reap_wait", call_reap_wait, true, 1 },
};

static void *kit_main(void *arg)
{
	struct kit *kit = arg;

	atomic_store(&kit->tid, gettid());
	kit->result = kit->call(kit);
	for (;;)
		pthread_testcancel();
	return NULL;
}

/* The thread sleeps in the kernel: most likely in its call, and any other moment is as good. */
static bool is_asleep(pid_t tid)
{
	_cleanup_(fclosep) FILE *stat = fopen(test_text("/proc/self/task/%d/stat", tid), "re");
	char state;

	return stat && fscanf(stat, "%*d %*s %c", &state) == 1 && state == 'S';
}

static void kit_open(struct kit *kit)
{
	const char *path = test_text("%s/conf", test_dir());
	FILE *config = fopen(path, "we");

	*kit = (struct kit){ .rig = RIG_NONE, .result = NOTHING };
	CHECK(config && fprintf(config, "[daemon]\npool_size = %dM\nclient_pool_max = %dM\n",
				POOL_MIB, POOL_MIB) > 0);
	CHECK_EQ(fclose(config), 0);
	kit->rig.daemon = daemon_start(DAEMON_ARGS("--config", path));
	rig_open(&kit->rig, NULL);
	file_make_pattern(daemon_path(kit->rig.daemon, "f"), MIB, 1);
	kit->file = rig_file(&kit->rig, "f", O_RDWR);
	CHECK_CALL(dsaio_alloc(kit->rig.client, 4096, NULL, &kit->memory));
	CHECK_CALL(dsaio_alloc(kit->rig.client, 64 * MIB, NULL, &kit->large));
	CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, kit->memory, 4096, 0), 4096);
	CHECK_CALL(dsaio_handle_fd(kit->rig.handle));
	kit->fd = (int)CHECK_SYS(memfd_create("shared", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(kit->fd, MIB));
	kit->shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, kit->fd, 0);
	CHECK(kit->shared != MAP_FAILED);
}

static void kit_close(struct kit *kit)
{
	if (kit->rig.client) {
		uint8_t bytes[4096];

		if (!kit->rig.handle)
			CHECK_CALL(dsaio_handle_open(kit->rig.client, NULL, &kit->rig.handle));
		CHECK_EQ(dsaio_pread(kit->rig.handle, kit->file, bytes, sizeof(bytes), 0), 4096);
		pattern_check(bytes, sizeof(bytes), 1, 0, "read after the thread has ended");
		rig_close(&kit->rig);
	}
	CHECK_SYS(munmap(kit->shared, MIB));
	CHECK_SYS(close(kit->fd));
}

TEST_TABLE(cancelled, calls, "a thread cancelled in a call left locks behind")
{
	struct daemon *daemon;
	pthread_t thread;
	struct dsaio_op *ended_op;
	struct kit kit;
	void *ended;

	kit_open(&kit);
	daemon = kit.rig.daemon;
	process_stop(daemon->pid);
	if (calls[row].with_op)
		CHECK_CALL(
			dsaio_pread_async(kit.rig.handle, kit.file, kit.memory, 4096, 0, &kit.op));
	CHECK_EQ(ops_reap(kit.rig.handle, &ended_op, 0, 1, 0),
		 0); /* waits sleep in poll(2) from now on */
	kit.call = calls[row].call;
	CHECK_EQ(pthread_create(&thread, NULL, kit_main, &kit), 0);
	while (!atomic_load(&kit.tid) || !is_asleep(kit.tid))
		(void)usleep(1000); /* nobody tells when it sleeps */
	CHECK_EQ(pthread_cancel(thread), 0);
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	CHECK_EQ(pthread_join(thread, &ended), 0);
	CHECK(ended == PTHREAD_CANCELED);
	CHECK_EQ(kit.result, calls[row].result);
	if (kit.op && kit.rig.handle)
		CHECK(op_wait(kit.op, -1) == 4096 || calls[row].call == call_op_cancel);
	kit_close(&kit);
}

TEST_MAIN
