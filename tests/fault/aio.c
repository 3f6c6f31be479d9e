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

/* Reads from a file that is made there, on a handle of its own. */
static void read_once(struct dsaio_client *client, const char *dir, uint32_t depth)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;
	const char *path = test_text("%s/f", dir);
	struct dsaio_file *file;
	uint8_t buf[4096];

	file_make_pattern(path, sizeof(buf), 1);
	profile.queue_depth = depth;
	CHECK_CALL(dsaio_handle_open(client, &profile, &handle));
	CHECK_CALL(dsaio_file_open(client, path, O_RDONLY, &file));
	CHECK_EQ(dsaio_pread(handle, file, buf, sizeof(buf), 0), sizeof(buf));
	pattern_check(buf, sizeof(buf), 1, 0, "what was read");
	dsaio_file_close(file); /* the handle stays open, and with it the channel */
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
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &buf));

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
	CHECK_CALL(dsaio_alloc(rig.client, 4096, &buf));
	contexts_take(); /* those of an earlier test may have ended only now */
	CHECK_FAILS(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDWR), buf, 4096, 0), -EAGAIN,
		    "fs.aio-max-nr");
	contexts_release();
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
}

TEST(c14_lanes, "C14 too few contexts for all parts of a profile: served with the lanes there are")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle *handle;
	void *memory;

	if (number_of("/proc/sys/fs/aio-max-nr") > 4 << 20)
		test_skip("fs.aio-max-nr is too large to be used up");
	rig_open(&rig, NULL);
	beside_start(rig.daemon);
	CHECK_CALL(dsaio_alloc(rig.client, 8 * MIB, &memory));
	pattern_fill(memory, 8 * MIB, 1, 0);
	rig_file(&rig, "f", O_RDWR | O_CREAT);
	contexts_take();
	profile.intra_op_parallelism = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, &profile, &handle));
	CHECK_EQ(dsaio_pwrite(handle, rig.files[0], memory, 8 * MIB, 0), 8 * MIB);
	contexts_release();
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, 8 * MIB, 1, 0);
	dsaio_handle_close(handle);
	beside_ok();
}

TEST_MAIN
