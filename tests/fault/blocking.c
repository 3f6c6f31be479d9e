/*
 * A store where io_submit waits until the bytes are moved (FUSE): it is measured, worker threads, as
 * many as the profile's queue depth, are its engine, and files of one user that hang there stop
 * nobody else's.
 */
#include "tests/fuse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLIENT 65534u /* the uid whose ops hang: not the daemon's */

/* The store's entry in status, once words are in its text; answer_free() it. */
static const Wire__Store *store_wait(const struct daemon *daemon, const char *path,
				     const char *words, struct answer *answer)
{
	for (;;) {
		const Wire__StatusReply *status;

		daemon_status(daemon, answer);
		status = answer->reply->status;
		for (size_t i = 0; i < status->n_stores; i++)
			if (!strcmp(status->stores[i]->path, path) &&
			    strstr(status->stores[i]->engine_text, words))
				return status->stores[i];
		answer_free(answer);
		(void)usleep(10000); /* nobody tells when it is measured */
	}
}

static void check_engine(const struct daemon *daemon, const char *path, const char *words,
			 bool is_blocking)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__Store *store = store_wait(daemon, path, words, &answer);

	test_note("%s: %s", store->fs_type, store->engine_text);
	CHECK_EQ(store->is_blocking, is_blocking);
}

/* ---- what is measured ---- */

TEST(measured, "a store's io_submit is measured when the daemon starts")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	/* Else the server may be done before the daemon's thread sleeps. */
	atomic_store(&fs.control->delay_usec, 500);
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("f=%s", fs.dir)));
	check_engine(rig.daemon, fs.dir, "io_submit waits: measured ", true);
	check_engine(rig.daemon, rig.daemon->store_dir, "measured ", false);
	daemon_log_wait(rig.daemon, "store f: worker threads are its engine: io_submit waits");
	/* Nothing of it is left there. */
	CHECK(rmdir(rig.daemon->store_dir) == 0);
	CHECK_SYS(mkdir(rig.daemon->store_dir, 0700));
}

static const struct {
	const char *what;
	unsigned long flags;
	const char *words;
} unmeasured[] = {
	{ "read only", MS_RDONLY, "fuse: io_submit may wait; not measured: Read-only" },
};

TEST_TABLE(by_kind, unmeasured, "where nothing can be made the kind of file system decides")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, unmeasured[row].flags);
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("f=%s", fs.dir)));
	check_engine(rig.daemon, fs.dir, unmeasured[row].words, true);
}

TEST(hung_probe, "a store that never answers what is measured: the daemon serves the others")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t buf[4096];
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	atomic_store(&fs.control->is_io_hung, true);
	rig.daemon = daemon_start(DAEMON_ARGS("--store", test_text("f=%s", fs.dir)));
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "other"), 4096, 1);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "other", O_RDONLY), buf, 4096, 0), 4096);
	daemon_log_wait(rig.daemon, ": probe has not come back for");
	check_engine(rig.daemon, fs.dir, "fuse: io_submit may wait; not measured", true);
	fuse_free_as_reported(rig.daemon);
	daemon_log_wait(rig.daemon, ": probe came back after");
}

/* ---- depth ---- */

static const struct {
	const char *what;
	uint32_t depth, n_ops;
	size_t len;
} depths[] = {
	{ "1 of depth 1", 1, 4, 4 * KIB },
	{ "16 ops of depth 16", 16, 16, 4 * KIB },
	{ "64 ops at depth 16", 16, 64, 4 * KIB },
	{ "the blocks of one op at depth 8", 8, 1, MIB },
	{ "128 ops at depth 128", 128, 128, 4 * KIB },
};

/* With less than so many together the server never answers: the test's time limit. */
static void read_together(const struct rig *rig, const struct fuse *fs, uint32_t n_gather,
			  uint32_t n_ops, size_t len)
{
	struct dsaio_file *file;
	void *memory;

	CHECK_CALL(dsaio_open(rig->client, fuse_path(fs, 'a'), O_RDONLY, NULL, &file));
	CHECK_CALL(dsaio_alloc(rig->client, n_ops * len, NULL, &memory));
	atomic_store(&fs->control->max_together, 0); /* its check has read, too */
	atomic_store(&fs->control->n_gather, n_gather);
	for (uint32_t i = 0; i < n_ops; i++)
		CHECK_CALL(dsaio_pread_async(rig->handle, file, (char *)memory + i * len, len,
					     i * len % FUSE_FILE_BYTES, NULL));
	CHECK_EQ(handle_wait(rig->handle, -1), n_ops);
	CHECK_EQ(atomic_load(&fs->control->max_together), n_gather);
	atomic_store(&fs->control->n_gather, 0);
	dsaio_file_close(file);
	dsaio_free(rig->client, memory);
}

TEST_TABLE(depth, depths, "as many blocks are there together as the queue depth says")
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = fs.dir });
	check_engine(rig.daemon, fs.dir, "measured ", true);
	profile.queue_depth = depths[row].depth;
	profile.block_size = 64 * KIB; /* one request each */
	rig_open(&rig, &profile);
	read_together(&rig, &fs, depths[row].depth, depths[row].n_ops, depths[row].len);
}

/* ---- two users ---- */

#define STORE_DEPTH 128u /* the queue depth of a store without a profile */

TEST(users, "what hangs of one user on a store leaves another's ops there their depth")
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	static struct ring_completion completions[512];
	struct raw_channel channel;
	struct raw_file file;
	struct raw_slab slab;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = fs.dir });
	check_engine(rig.daemon, fs.dir, "measured ", true);
	CHECK_SYS(chmod(rig.daemon->socket_path, 0666));
	CHECK_SYS(seteuid(CLIENT)); /* as SO_PEERCRED tells it */
	raw_open(&raw, rig.daemon);
	CHECK_SYS(seteuid(0));
	raw_slab(&raw, 65536, &slab);
	raw_file(&raw, fuse_path(&fs, 'h'), O_RDWR, &file);
	raw_channel(&raw, raw_handle(&raw), file.store, ARRAY_SIZE(completions), true, &channel);
	atomic_store(&fs.control->hung_file, 'h');
	for (unsigned i = 0; i < ARRAY_SIZE(completions); i++)
		raw_put(&channel, &(struct ring_entry){ .opcode = RING_OP_READ,
							.file = file.id,
							.slab = slab.id,
							.off = i % 16 * 4096,
							.len = 4096 });
	raw_ring(&channel);
	while (atomic_load(&fs.control->n_hung) < STORE_DEPTH)
		(void)usleep(1000); /* nobody tells when they are there */

	profile.queue_depth = 16;
	profile.block_size = 64 * KIB;
	rig_open(&rig, &profile);
	read_together(&rig, &fs, 16, 64, 4096);
	/* The others of his wait in the daemon, with no thread. */
	CHECK_EQ(atomic_load(&fs.control->n_hung), STORE_DEPTH);

	daemon_log_wait(rig.daemon, ": read has not come back for");
	fuse_free_as_reported(rig.daemon);
	CHECK(raw_reap(&channel, ARRAY_SIZE(completions), completions, 20000000));
	raw_channel_unmap(&channel);
	raw_slab_unmap(&slab);
}

/* ---- the mode lock ---- */

#define OTHERS_READS 200u /* more than the workers of a channel */

static const struct {
	const char *what;
	char hung, written;
} locks[] = {
	{ "calls on another inode hang", 'h', 'a' },
	{ "calls on the same inode hang", 'a', 'a' },
};

/*
 * A buffered write of another user waits for the mode lock, which a write of ours holds.  Then all of
 * that user's workers hang, and ours ends.  The lock is free again: no worker can begin with the other.
 */
TEST_TABLE(lock, locks,
	   "a write that no worker of its user can begin keeps no mode lock from others")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, other = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_file *file, *hung, *others;
	char *memory, *others_memory;
	struct dsaio_op *op;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = fs.dir });
	check_engine(rig.daemon, fs.dir, "measured ", true);
	CHECK_SYS(chmod(rig.daemon->socket_path, 0666));
	other.daemon = rig.daemon;
	CHECK_SYS(seteuid(CLIENT)); /* as SO_PEERCRED reports it */
	rig_open(&other, NULL);
	CHECK_SYS(seteuid(0));
	profile.queue_depth = 16;
	rig_open(&rig, &profile);
	file = rig_file(&rig, fuse_path(&fs, locks[row].written), O_RDWR);
	others = rig_file(&other, fuse_path(&fs, locks[row].written), O_RDWR);
	hung = rig_file(&other, fuse_path(&fs, locks[row].hung), O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 64 * KIB, NULL, (void **)&memory));
	CHECK_CALL(dsaio_alloc(other.client, 64 * KIB, NULL, (void **)&others_memory));

	atomic_store(&fs.control->max_together, 0);
	atomic_store(&fs.control->n_gather, 2);
	CHECK_CALL(dsaio_pwrite_async(rig.handle, file, memory, 4096, 0, &op));
	while (!atomic_load(&fs.control->max_together))
		(void)usleep(1000); /* the server does not report when it is there */
	CHECK_CALL(dsaio_pwrite_async(other.handle, others, others_memory + 100, 100, MIB + 100,
				      NULL));
	atomic_store(&fs.control->only_reads_hang, true);
	atomic_store(&fs.control->hung_file, locks[row].hung);
	for (unsigned i = 0; i < OTHERS_READS; i++)
		CHECK_CALL(dsaio_pread_async(other.handle, hung, others_memory, 4096, i % 16 * 4096,
					     NULL));
	while (atomic_load(&fs.control->n_hung) < STORE_DEPTH)
		(void)usleep(1000);
	atomic_store(&fs.control->n_gather, 0);
	/* The server answers ours, and the write before it. */
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, fuse_path(&fs, 'b'), O_RDONLY), memory,
			     4096, 0),
		 4096);
	CHECK_EQ(op_wait(op, -1), 4096);
	dsaio_op_free(op);

	/* If the lock were kept, these would end with the test's time limit. */
	for (unsigned i = 0; i < 10; i++) {
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 4096, i * 4096), 4096);
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory + 100, 100, 100), 100);
	}
	CHECK_EQ(atomic_load(&fs.control->n_hung), STORE_DEPTH);
	fuse_answer_hung(&fs);
	CHECK_EQ(handle_wait(other.handle, -1), OTHERS_READS + 1);
}

TEST_MAIN
