/*
 * Which stores take libaio contexts, and how large they are.  C14: the kernel's budget of them, fs.aio-max-nr, is used
 * up by somebody else.
 *
 * Run alone: for a moment no other daemon on this machine can start a lane.
 */
#include "tests/stores.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static aio_context_t contexts[4096];
static unsigned n_contexts;

static void contexts_release(void)
{
	while (n_contexts)
		(void)syscall(SYS_io_destroy, contexts[--n_contexts]); /* they die with us anyway */
}

static uint64_t number_of(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	uint64_t n = 0;

	CHECK_MSG(file, "%s", path);
	CHECK_EQ(fscanf(file, "%" SCNu64, &n), 1);
	return n;
}

/* Takes all that is left, in halves; the kernel frees them when this process ends. */
static void contexts_take(void)
{
	for (unsigned n = 1u << 20; n; n /= 2)
		while (n_contexts < ARRAY_SIZE(contexts) &&
		       !syscall(SYS_io_setup, n, &contexts[n_contexts]))
			n_contexts++;
	test_note("aio-nr %" PRIu64 " of aio-max-nr %" PRIu64, number_of("/proc/sys/fs/aio-nr"),
		  number_of("/proc/sys/fs/aio-max-nr"));
}

/* Takes all but so many. */
static void contexts_leave(uint64_t n_left)
{
	const uint64_t used = number_of("/proc/sys/fs/aio-nr");
	const uint64_t max = number_of("/proc/sys/fs/aio-max-nr");

	CHECK_MSG(used + n_left <= max, "aio-nr %" PRIu64 " of aio-max-nr %" PRIu64, used, max);
	if (used + n_left < max)
		CHECK_SYS(syscall(SYS_io_setup, max - used - n_left, &contexts[n_contexts++]));
}

/* Events that the kernel keeps for the daemon's contexts: the size of their rings, 32 bytes for each.  It makes a ring
   for more than asked for: twice as many, in whole pages. */
static uint64_t daemon_events(const struct daemon *daemon, unsigned *ret_n_contexts)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/maps", (int)daemon->pid), "re");
	uint64_t start, end, bytes = 0;
	char line[512];

	CHECK(file);
	*ret_n_contexts = 0;
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, "/[aio]"))
			continue;
		CHECK_EQ(sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end), 2);
		bytes += end - start;
		*ret_n_contexts += 1;
	}
	return bytes / 32;
}

/* Reads from a file or device that gets a pattern first, on a handle of its own. */
static void read_from(struct dsaio_client *client, const char *path, uint32_t depth)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t buf[4096];

	file_make_pattern(path, sizeof(buf), 1);
	profile.queue_depth = depth;
	CHECK_CALL(profile_open(client, &profile, &handle));
	CHECK_CALL(dsaio_open(client, path, O_RDONLY, NULL, &file));
	CHECK_EQ(dsaio_pread(handle, file, buf, sizeof(buf), 0), sizeof(buf));
	pattern_check(buf, sizeof(buf), 1, 0, "what was read");
	dsaio_file_close(file); /* the handle stays open, and with it the channel */
}

/* The same from a file in dir. */
static void read_once(struct dsaio_client *client, const char *dir, uint32_t depth)
{
	read_from(client, test_text("%s/f", dir), depth);
}

TEST(tmpfs, "16 stores of tmpfs take no contexts")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	unsigned n;

	mounts_private();
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = "" });
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < 16; i++) {
		const char *dir = test_text("%s/%u", test_dir(), i);

		CHECK_SYS(mkdir(dir, 0755));
		CHECK_SYS(mount("tmpfs", dir, "tmpfs", 0, "size=1m"));
		read_once(rig.client, dir, 128);
	}
	CHECK_EQ(daemon_events(rig.daemon, &n), 0);
	CHECK_EQ(n, 0);
}

TEST(growth, "contexts are small first, and larger when more channels use them")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint64_t events;
	unsigned n;

	/* Automatic: the probe of a configured store has a context, too. */
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = "" });
	rig_open(&rig, NULL);
	read_once(rig.client, test_dir(), 64);
	events = daemon_events(rig.daemon, &n);
	if (!n)
		test_skip("worker threads are the engine of this file system");
	CHECK_EQ(n, 1);
	CHECK(events >= 64 && events < 4096);
	for (unsigned i = 0; i < 15; i++)
		read_once(rig.client, test_dir(), 64);
	CHECK_MSG(daemon_events(rig.daemon, &n) >= 1024, "%u contexts", n);
	read_once(rig.client, test_dir(), 4096);
	CHECK_MSG(daemon_events(rig.daemon, &n) >= 4096, "%u contexts", n);
	CHECK(n <= 8);
}

#define NOBODY 65534
#define SHARER_STORES 16u
/* A store gets at most a quarter of what is free at once; after three rounds the share, or all, is used. */
#define SHARER_ROUNDS 3u

/*
 * 16 stores of one user took 61,440 of 65,536 events, and another user's first read on a new store
 * failed.  Today worker threads would serve that read, so its success is not enough: the store must also
 * have a context.
 */
TEST(one_user_took_all,
     "a user who has used its share of contexts leaves one for another user's new store")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const uint64_t max = number_of("/proc/sys/fs/aio-max-nr"), share = max / 4;
	const char *devices[SHARER_STORES], *dir = test_text("%s/second", test_dir());
	unsigned n_before, n;
	pid_t pid;

	if (max > 65536)
		test_skip("fs.aio-max-nr is too large for these stores to use up a share");
	for (unsigned i = 0; i < SHARER_STORES; i++) {
		const char *image = test_text("%s/image%u", test_dir(), i);

		file_make_sparse(image, MIB);
		devices[i] = loop_device(image, 512);
	}
	CHECK_SYS(mkdir(dir, 0755));
	CHECK_SYS(chmod(dir, 0777)); /* whatever the umask */
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = "" });
	rig_open(&rig, NULL);

	/* The share of the first user, and the smallest context beside it. */
	contexts_leave(share + 64);
	for (unsigned i = 0; i < SHARER_ROUNDS * SHARER_STORES; i++)
		read_from(rig.client, devices[i % SHARER_STORES], 4096);
	/* Not fs.aio-nr: contexts of an earlier test's daemon may end only now. */
	CHECK_MSG(daemon_events(rig.daemon, &n_before) >= share, "%" PRIu64 " of %" PRIu64,
		  daemon_events(rig.daemon, &n_before), share);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		child_become(NOBODY);
		read_once(client_open(rig.daemon), dir, 128);
		_exit(0);
	}
	child_wait_ok(pid);
	CHECK(!daemon_log_has(rig.daemon, "worker threads are its engine: libaio: no context"));
	(void)daemon_events(rig.daemon, &n);
	if (n == n_before)
		test_skip("worker threads are the engine of this file system");
}

TEST(c14_store, "C14 aio-max-nr exhausted: tmpfs needs none, and a store that runs goes on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *dir = test_dir_in("/dev/shm");
	void *buf;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("m=%s", dir)));
	beside_start(rig.daemon);
	rig_open(&rig, NULL);
	file_make_pattern(test_text("%s/f", dir), 65536, 1);
	rig_file(&rig, test_text("%s/f", dir), O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &buf));

	contexts_take();
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
	pattern_check(buf, 4096, 1, 0, "what was read");
	beside_ok();
}

TEST(c14_automatic, "C14 aio-max-nr exhausted: worker threads serve a new automatic store")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	unsigned n;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = "" });
	rig_open(&rig, NULL);
	contexts_take();
	read_once(rig.client, test_dir(), 128);
	contexts_release();
	CHECK_EQ(daemon_events(rig.daemon, &n), 0);
	CHECK(daemon_log_has(rig.daemon, "worker threads are its engine: libaio: no context"));
}

TEST(c14_start, "C14 a daemon that starts while aio-max-nr is exhausted serves when there is room")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	void *buf;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	contexts_take();
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), 4096, 1);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &buf));
	contexts_take(); /* those of an earlier test may have ended only now */
	CHECK_FAILS(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR), buf, 4096, 0), -EAGAIN,
		    "fs.aio-max-nr");
	contexts_release();
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
}

TEST_MAIN
