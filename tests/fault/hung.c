/*
 * A request that hangs in the daemon, since a mount is dead: other calls of the same client return.
 *
 * The FUSE server answers everybody but the daemon, so that only the daemon hangs (fuse.h).
 */
#include "tests/fuse.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LATER_FILES 16u /* more than the client may have open */
#define HUNG_OPENS 6u	/* more than the threads that a user has without overflow threads */

struct hung {
	struct rig rig;
	struct fuse fs;
	struct dsaio_file *healthy;
	struct dsaio_op *op; /* a read that is open */
	void *memory;
};

static void hung_open(struct hung *hung)
{
	const char *config = test_text("%s/dsaiod.conf", test_dir());
	struct dsaio_file *file;
	FILE *f = fopen(config, "we");

	test_needs_root();
	CHECK(f);
	CHECK(fputs("[daemon]\nclient_files = 12\n", f) >= 0);
	CHECK_EQ(fclose(f), 0);
	*hung = (struct hung){ .rig = RIG_NONE };
	hung->rig.daemon = daemon_start(DAEMON_ARGS("--user", "--config", config));
	fuse_start(&hung->fs, 0);
	rig_open(&hung->rig, NULL);
	file_make_pattern(daemon_path(hung->rig.daemon, "healthy"), 4096, 1);
	hung->healthy = rig_file(&hung->rig, "healthy", O_RDONLY);
	CHECK_CALL(dsaio_alloc(hung->rig.client, 4096, NULL, &hung->memory));
	CHECK_EQ(dsaio_pread(hung->rig.handle, hung->healthy, hung->memory, 4096, 0), 4096);

	/* Its read stays open, and op_cancel() has something to ask the daemon for. */
	CHECK_CALL(dsaio_open(hung->rig.client, fuse_path(&hung->fs, 'r'), O_RDONLY, NULL, &file));
	atomic_store(&hung->fs.control->hung_file, 'r');
	CHECK_CALL(dsaio_pread_async(hung->rig.handle, file, hung->memory, 4096, 0, &hung->op));
}

/* All that asks the daemon, or frees what somebody else left.  A hang is the test's time limit. */
static void check_calls(struct hung *hung)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct dsaio_client *client = hung->rig.client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	void *memory;

	CHECK_EQ(dsaio_op_cancel(hung->op), 0);
	CHECK_EQ(op_is_done(hung->op), 0);
	CHECK_CALL(dsaio_alloc(client, 64 * MIB, NULL, &memory)); /* a slab of its own */
	CHECK_EQ(dsaio_free(client, memory), 0);
	for (unsigned i = 0; i < LATER_FILES; i++) { /* idle ones make room */
		const char *path = daemon_path(hung->rig.daemon, test_text("f%u", i));

		CHECK_CALL(dsaio_open(client, path, O_RDWR | O_CREAT, NULL, &file));
		dsaio_file_close(file);
	}
	CHECK_CALL(dsaio_handle_open(client, NULL, &handle));
	CHECK_EQ(dsaio_pread(handle, hung->healthy, hung->memory, 4096, 0), 4096);
	(void)dsaio_handle_close(handle, -1);
	daemon_status(hung->rig.daemon, &answer);
}

static void await_hung(const struct hung *hung, uint32_t n)
{
	while (atomic_load(&hung->fs.control->n_hung) < n)
		(void)usleep(1000); /* nobody tells when they are there */
}

/* Releases the hung calls, so that the daemon can end. */
static void hung_free(struct hung *hung)
{
	atomic_store(&hung->fs.control->hung_pid, 0);
	daemon_log_wait(hung->rig.daemon, " has not come back for");
	fuse_free_as_reported(hung->rig.daemon);
	CHECK(op_wait(hung->op, -1) < 0);
	dsaio_op_free(hung->op);
}

struct opener {
	struct dsaio_client *client;
	char *path;
	int result;
	pthread_t thread;
	_Atomic bool is_done;
};

static void *opener_main(void *arg)
{
	struct opener *opener = arg;
	struct dsaio_file *file;

	opener->result = dsaio_open(opener->client, opener->path, O_RDONLY, NULL, &file);
	atomic_store(&opener->is_done, true);
	return NULL;
}

static const struct {
	const char *what;
	unsigned n;
} opens[] = {
	{ "one open", 1 },
	{ "more opens than a user has threads at once", HUNG_OPENS },
};

TEST_TABLE(opens_hang, opens, "an open that hangs in the daemon blocked all calls of its client")
{
	struct opener openers[HUNG_OPENS];
	struct hung hung;
	uint32_t before;

	hung_open(&hung);
	await_hung(&hung, 1); /* the read */
	before = atomic_load(&hung.fs.control->n_hung);
	atomic_store(&hung.fs.control->hung_pid, hung.rig.daemon->pid);
	for (unsigned i = 0; i < opens[row].n; i++) {
		openers[i] = (struct opener){ .client = hung.rig.client,
					      .path = fuse_path(&hung.fs, (char)('a' + i)) };
		CHECK_EQ(pthread_create(&openers[i].thread, NULL, opener_main, &openers[i]), 0);
	}
	await_hung(&hung, before + opens[row].n);
	check_calls(&hung);
	for (unsigned i = 0; i < opens[row].n; i++)
		CHECK(!atomic_load(&openers[i].is_done));
	hung_free(&hung);
	for (unsigned i = 0; i < opens[row].n; i++) {
		CHECK_EQ(pthread_join(openers[i].thread, NULL), 0);
		CHECK(openers[i].result < 0);
	}
	rig_close(&hung.rig);
}

TEST(close_hangs,
     "the close of an idle file that hangs in the daemon blocked calls that needed its room")
{
	struct dsaio_file *file;
	struct hung hung;

	hung_open(&hung);
	CHECK_CALL(dsaio_open(hung.rig.client, fuse_path(&hung.fs, 'a'), O_RDONLY, NULL, &file));
	dsaio_file_close(file); /* idle for longest */
	await_hung(&hung, 1);	/* the read */
	atomic_store(&hung.fs.control->hung_pid, hung.rig.daemon->pid);
	check_calls(&hung);
	await_hung(&hung, 2);
	check_calls(&hung);
	hung_free(&hung);
	rig_close(&hung.rig);
}

/* close(2) of the descriptor that a request brings waits for the mount, in the program itself. */
TEST(flush_hangs, "a close that hangs in the client blocked all calls of its client")
{
	struct opener opener;
	struct hung hung;

	hung_open(&hung);
	await_hung(&hung, 1); /* the read */
	atomic_store(&hung.fs.control->is_flush_hung, true);
	opener = (struct opener){ .client = hung.rig.client, .path = fuse_path(&hung.fs, 'a') };
	CHECK_EQ(pthread_create(&opener.thread, NULL, opener_main, &opener), 0);
	await_hung(&hung, 2);
	check_calls(&hung);
	hung_free(&hung);
	CHECK_EQ(pthread_join(opener.thread, NULL), 0);
	rig_close(&hung.rig);
}

TEST(stop, "a stop logs how many clients and open ops it cuts off")
{
	struct hung hung;
	struct daemon *daemon;

	hung_open(&hung);
	daemon = hung.rig.daemon;
	await_hung(&hung, 1);
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	daemon_log_wait(daemon, "stopping on Terminated: disconnects 1 client with 1 open op:");
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	daemon_log_wait(daemon, "Terminated during the stop: cancels 1 open op:");
	hung_free(&hung);
	daemon_wait_end(daemon, 0);
}

/*
 * Where a thread blocks the signal of its crash, the kernel calls no handler.  The main thread gets a signal below; one
 * of a sanitizer has its name.
 */
static void check_masks(const struct daemon *daemon)
{
	const uint64_t crash = 1u << (SIGSEGV - 1) | 1u << (SIGBUS - 1) | 1u << (SIGABRT - 1) |
			       1u << (SIGILL - 1) | 1u << (SIGFPE - 1);
	const char *dir = test_text("/proc/%d/task", daemon->pid);
	DIR *tasks = opendir(dir);
	const struct dirent *entry;
	unsigned n = 0;

	CHECK(tasks);
	while ((entry = readdir(tasks))) {
		_cleanup_(fclosep)
			FILE *file = fopen(test_text("%s/%s/status", dir, entry->d_name), "re");
		bool is_other = true;
		char line[128];
		uint64_t blocked;

		while (file && fgets(line, sizeof(line), file)) {
			is_other &= strcmp(line, "Name:\tdsaiod\n") != 0;
			if (is_other && sscanf(line, "SigBlk: %" SCNx64, &blocked) == 1) {
				CHECK_EQ(blocked & crash, 0);
				n++;
			}
		}
	}
	(void)closedir(tasks);
	CHECK(n >= 2); /* a lane and a worker thread */
}

TEST(crash, "a crash did not log how many clients and open ops there were")
{
	struct hung hung;
	struct daemon *daemon;

	hung_open(&hung);
	daemon = hung.rig.daemon;
	await_hung(&hung, 1);
	daemon_log_wait(daemon, " has not come back for"); /* and how to free it, for hung_free() */
	check_masks(daemon);
	CHECK_SYS(kill(daemon->pid, SIGABRT)); /* no sanitizer's own */
	daemon_log_wait(daemon, "crashed (SIGABRT): had 1 client and 1 open op");
	hung_free(&hung);
	daemon_kill(daemon); /* it is gone */
}

TEST_MAIN
