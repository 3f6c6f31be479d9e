/*
 * A client that locks the inode of its file delays no other: not the lane, where it is alone on
 * the store, and not the writes of other clients to another file.
 *
 * The client's other process holds the inode's lock for as long as it wants: its write(2) to the file
 * copies from a page of a FUSE file whose server does not answer.  A direct op by the ring then has
 * to wait for that lock.  It may wait in a thread of the client's user, not in io_submit of the lane,
 * where everybody else would wait, too.
 */
#include "tests/fuse.h"
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENT 65534u /* the uid of the client: not the daemon's */
#define LOCKED_BYTES (256 * KIB)
#define ATTACK_BYTES (512 * KIB) /* more than a worker thread writes without a step */

static const struct {
	const char *what;
	enum store_kind kind;
	uint32_t opcode;
} attacks[] = {
	{ "a read on ext4", STORE_EXT4, RING_OP_READ },
	{ "a write on ext4", STORE_EXT4, RING_OP_WRITE },
	{ "a write on tmpfs", STORE_TMPFS, RING_OP_WRITE },
};

/* A process whose write(2) to path holds the inode's lock and does not return. */
static pid_t lock_inode(const char *path, const struct fuse *fs)
{
	pid_t pid;

	atomic_store(&fs->control->hung_file, 'h');
	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		int from = (int)CHECK_SYS(open(fuse_path(fs, 'h'), O_RDONLY | O_CLOEXEC));
		int to = (int)CHECK_SYS(open(path, O_WRONLY | O_CLOEXEC));
		void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, from, 0);

		CHECK(page != MAP_FAILED);
		CHECK_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
		_exit(write(to, page, 4096) >= 0); /* it fails when the server is gone */
	}
	while (!atomic_load(&fs->control->n_hung)) {
		CHECK(waitpid(pid, NULL, WNOHANG) == 0);
		(void)poll(NULL, 0, 5); /* nobody reports that the page is asked for */
	}
	return pid;
}

/* The log suggests this: it ends the processes of the user, also the FUSE server. */
static void unlock_inode(const struct fuse *fs, pid_t writer)
{
	CHECK_SYS(kill(fs->pid, SIGKILL));
	CHECK_SYS(kill(writer, SIGKILL));
	CHECK_EQ(waitpid(writer, NULL, 0), writer);
}

struct attacker {
	struct raw raw;
	struct raw_slab slab;
	struct raw_channel channel;
};

static void attacker_open(struct attacker *attacker, const struct daemon *daemon, const char *path,
			  struct raw_file *ret_file)
{
	CHECK_SYS(chmod(daemon->socket_path, 0666));
	CHECK_SYS(seteuid(CLIENT)); /* as SO_PEERCRED tells it */
	raw_open(&attacker->raw, daemon);
	CHECK_SYS(seteuid(0));
	raw_slab(&attacker->raw, ATTACK_BYTES, &attacker->slab);
	raw_file(&attacker->raw, path, O_RDWR, ret_file);
	raw_channel(&attacker->raw, raw_handle(&attacker->raw), ret_file->store, 16, true,
		    &attacker->channel);
}

TEST_TABLE(lane, attacks,
	   "a client alone on a store whose file's inode is locked: others are served")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct attacker attacker = { .raw = RAW_NONE };
	struct ring_completion completion;
	struct ring_entry entry;
	struct raw_file file;
	struct store store;
	struct fuse fs;
	const char *path;
	pid_t writer;

	test_needs_root();
	store_make(&store, attacks[row].kind, 0);
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = store.path });
	path = store_path(&store, "locked");
	file_make_pattern(path, LOCKED_BYTES, 1);
	attacker_open(&attacker, rig.daemon, path, &file);
	writer = lock_inode(path, &fs);
	entry = (struct ring_entry){ .opcode = (uint8_t)attacks[row].opcode,
				     .file = file.id,
				     .slab = attacker.slab.id,
				     .len = 64 * KIB };
	raw_put(&attacker.channel, &entry);
	raw_ring(&attacker.channel);
	victims_check(rig.daemon, 2);
	CHECK(!raw_reap(&attacker.channel, 1, &completion, 0)); /* or it was no attack */

	/* It delays an orderly stop, and the daemon reports that; the delay is no longer than the lock. */
	CHECK_SYS(kill(rig.daemon->pid, SIGTERM));
	daemon_log_wait(rig.daemon, "stopping on");
	daemon_log_wait(rig.daemon, "delays the daemon's exit");
	CHECK(daemon_log_has(rig.daemon, test_text("user %u: client", CLIENT)));
	CHECK(daemon_log_has(rig.daemon, test_text("pkill -KILL -u %u", CLIENT)));
	unlock_inode(&fs, writer);
	daemon_wait_end(rig.daemon, 0);
	raw_channel_unmap(&attacker.channel);
	raw_slab_unmap(&attacker.slab);
	raw_close(&attacker.raw);
}

/* A user's own daemon lets the lane of a client that is alone wait. */
TEST(reported, "a lane that hangs in io_submit is reported, with the user and what frees it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct attacker attacker = { .raw = RAW_NONE };
	const Wire__StatusReply *status;
	struct ring_completion completion;
	struct ring_entry entry;
	struct raw_file file;
	struct store store;
	struct fuse fs;
	const char *path;
	pid_t writer;

	test_needs_root();
	store_make(&store, STORE_EXT4, 0);
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(
		&(struct daemon_options){ .store_dir = store.path, .args = DAEMON_ARGS("--user") });
	path = store_path(&store, "locked");
	file_make_pattern(path, LOCKED_BYTES, 1);
	attacker_open(&attacker, rig.daemon, path, &file);
	writer = lock_inode(path, &fs);
	entry = (struct ring_entry){
		.opcode = RING_OP_READ, .file = file.id, .slab = attacker.slab.id, .len = 64 * KIB
	};
	raw_put(&attacker.channel, &entry);
	raw_ring(&attacker.channel);
	daemon_log_wait(rig.daemon, "store t, lane: io_submit has not come back for");
	CHECK(daemon_log_has(rig.daemon, test_text("user %u: client 1: store t", CLIENT)));
	CHECK(daemon_log_has(rig.daemon, test_text("pkill -KILL -u %u", CLIENT)));
	daemon_status(rig.daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_hung, 1);
	CHECK_EQ(status->hung[0]->uid, CLIENT);
	CHECK(!strcmp(status->hung[0]->what, "io_submit"));
	CHECK(strstr(status->hung[0]->mount, "ext4"));
	CHECK(status->hung[0]->usec >= 1000000);

	unlock_inode(&fs, writer);
	CHECK(raw_reap(&attacker.channel, 1, &completion, 20000000));
	daemon_log_wait(rig.daemon, "store t, lane: io_submit came back after");
	raw_channel_unmap(&attacker.channel);
	raw_slab_unmap(&attacker.slab);
	raw_close(&attacker.raw);
}

/* Pieces of one channel that worker threads have at a time. */
#define PIECES_AT_ONCE 4u

TEST(extension,
     "an extension of a file that is queued behind calls that hang: others extend the file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct attacker attacker = { .raw = RAW_NONE };
	struct ring_completion completions[PIECES_AT_ONCE + 1];
	struct raw_file locked, shared;
	struct ring_entry entry;
	struct dsaio_op *op;
	struct store store;
	struct fuse fs;
	void *memory;
	pid_t writer;

	test_needs_root();
	store_make(&store, STORE_EXT4, 0);
	fuse_start(&fs, 0);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = store.path });
	file_make_pattern(store_path(&store, "locked"), LOCKED_BYTES, 1);
	file_make_pattern(store_path(&store, "shared"), MIB, 1);
	attacker_open(&attacker, rig.daemon, store_path(&store, "locked"), &locked);
	raw_file(&attacker.raw, store_path(&store, "shared"), O_RDWR, &shared);
	rig.client = client_open(rig.daemon);
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &rig.handle));
	CHECK_CALL(dsaio_alloc(rig.client, 4 * MIB, NULL, &memory));
	pattern_fill(memory, 4 * MIB, 2, 8 * MIB);
	rig_file(&rig, store_path(&store, "shared"), O_RDWR);

	writer = lock_inode(store_path(&store, "locked"), &fs);
	for (unsigned i = 0; i < PIECES_AT_ONCE; i++) { /* misaligned: each is a piece */
		entry = (struct ring_entry){ .opcode = RING_OP_READ,
					     .file = locked.id,
					     .slab = attacker.slab.id,
					     .slab_off = 1,
					     .len = LOCKED_BYTES };
		raw_put(&attacker.channel, &entry);
	}
	entry = (struct ring_entry){ .opcode = RING_OP_WRITE,
				     .file = shared.id,
				     .slab = attacker.slab.id,
				     .len = ATTACK_BYTES,
				     .off = MIB,
				     .grow_end = MIB + ATTACK_BYTES };
	raw_put(&attacker.channel, &entry);
	raw_ring(&attacker.channel);
	/* Each ends in a turn of the lane of its own, and each turn starts four of the others. */
	entry = (struct ring_entry){ .opcode = RING_OP_READ,
				     .file = shared.id,
				     .slab = attacker.slab.id };
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(raw_run_one(&attacker.channel, entry), 0);

	CHECK_CALL(dsaio_pwrite_async(rig.handle, rig.files[0], memory, 4 * MIB, 8 * MIB, &op));
	CHECK_EQ(op_wait(op, 20000000), 4 * MIB);
	dsaio_op_free(op);
	file_check_pattern(store_path(&store, "shared"), 8 * MIB, 4 * MIB, 2, 8 * MIB);
	CHECK(!raw_reap(&attacker.channel, 1, completions, 0)); /* or it was no attack */

	unlock_inode(&fs, writer);
	CHECK(raw_reap(&attacker.channel, PIECES_AT_ONCE + 1, completions, 20000000));
	raw_channel_unmap(&attacker.channel);
	raw_slab_unmap(&attacker.slab);
	raw_close(&attacker.raw);
}

TEST_MAIN
