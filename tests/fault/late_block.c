/*
 * A slow disk still has a block when the daemon is killed: it must not land after what the client does with the next
 * daemon.
 *
 * The disk is a file on FUSE below a loop device (fuse.h).  It holds the block of the daemon that is killed, and lets
 * the next one's pass, which is of the same op.
 */
#include "proto/util/process.h"
#include "tests/fuse.h"
#include "tests/restarting.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PF_EXITING 0x4ul /* include/linux/sched.h */
#define LEN (16 * KIB)
#define OFF (64 * KIB)

enum { SEED_BEFORE = 1, SEED_FIRST, SEED_SECOND };

/* Another process has /proc/PID/mem of the daemon open, or is in the middle of a read of it. */
enum look { NONE, OPEN, READING };

static const struct row {
	const char *what;
	bool is_raw, is_read;
	enum look look;
} rows[] = {
	{ "a write on ext4", false, false, NONE },
	{ "a read on ext4", false, true, NONE },
	{ "a write on a raw device", true, false, NONE },
	{ "a write on ext4, its /proc/PID/mem is open", false, false, OPEN },
	{ "a write on ext4, its memory is read", false, false, READING },
	{ "a read on ext4, its memory is read", false, true, READING },
	{ "a write on a raw device, its memory is read", true, false, READING },
};

/* The kernel holds the daemon's memory until it has what it read in our page, which FUSE does not bring. */
static void read_memory(int memory_fd, const struct fuse *fs, pid_t pid)
{
	_cleanup_(fclosep) FILE *maps = fopen(test_text("/proc/%d/maps", pid), "re");
	int fd = (int)CHECK_SYS(open(fuse_path(fs, 'a'), O_RDWR | O_CLOEXEC));
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	unsigned long start;

	CHECK(page != MAP_FAILED && maps && fscanf(maps, "%lx", &start) == 1);
	CHECK_EQ(pread(memory_fd, page, 4096, (off_t)start), 4096);
}

static pid_t look_start(enum look look, const struct fuse *fs, pid_t pid)
{
	int memory_fd = -1;
	pid_t reader = 0;

	if (look != NONE) /* it stays open */
		memory_fd = (int)CHECK_SYS(
			open(test_text("/proc/%d/mem", pid), O_RDONLY | O_CLOEXEC));
	if (look != READING)
		return 0;
	atomic_store(&fs->control->hung_file, 'a');
	(void)fflush(NULL); /* or the child prints it again */
	reader = (pid_t)CHECK_SYS(fork());
	if (reader == 0) {
		read_memory(memory_fd, fs, pid);
		_exit(0);
	}
	while (atomic_load(&fs->control->n_hung) < 2)
		(void)poll(NULL, 0, 5); /* nobody reports it */
	return reader;
}

/* A store on the slow disk, a client, and its file, all of SEED_BEFORE. */
static struct dsaio_file *slow_file(struct rig *rig, struct fuse *fs, bool is_raw)
{
	struct store store;
	const char *path;
	int fd;

	test_needs_root();
	fuse_start_disk(fs);
	store_make_on(&store, is_raw, fuse_path(fs, FUSE_DISK));
	store_make_pattern(&store, "f", 0, MIB, SEED_BEFORE);
	path = store_path(&store, "f");
	fd = (int)CHECK_SYS(open(path, O_WRONLY | O_CLOEXEC));
	CHECK_SYS(fsync(fd));
	(void)close(fd);
	rig->daemon = daemon_start_with(&(struct daemon_options){ .store_dir = store.path });
	reconnecting(rig);
	return rig_file(rig, path, O_RDWR);
}

/* An op whose block the disk holds. */
static struct dsaio_op *op_hold(struct rig *rig, struct dsaio_file *file, uint8_t *memory,
				bool is_read, const struct fuse *fs)
{
	struct dsaio_op *op;
	uint64_t first;

	/* The first write of a range may go to a worker thread, and no process ends before its threads. */
	pattern_fill(memory, LEN, SEED_BEFORE, OFF);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, memory, LEN, OFF), LEN);
	if (!is_read)
		pattern_fill(memory, LEN, SEED_FIRST, OFF);
	memcpy(&first, memory, sizeof(first));
	atomic_store(&fs->control->held, first);
	if (is_read)
		CHECK_CALL(dsaio_pread_async(rig->handle, file, memory, LEN, OFF, &op));
	else
		CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory, LEN, OFF, &op));
	while (!atomic_load(&fs->control->n_hung))
		(void)poll(NULL, 0, 5); /* nobody reports it */
	return op;
}

/* The disk holds the block until the next daemon says that it waits for it. */
static pid_t releaser_start(const struct fuse *fs, pid_t dying)
{
	struct daemon next = { .pid_fd = -1 };
	pid_t pid = (pid_t)CHECK_SYS(fork());

	if (pid)
		return pid;
	(void)snprintf(next.log_path, sizeof(next.log_path), "%s/daemon-1.log", test_dir());
	while (!daemon_log_has(&next, test_text("dying dsaiod with pid %d", dying)))
		(void)poll(NULL, 0, 10);
	fuse_answer_hung(fs);
	_exit(0);
}

TEST_TABLE(late_block, rows,
	   "a block that a slow disk has when the daemon is killed does not land later")
{
	const struct row *r = &rows[row];
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct daemon *dying;
	struct dsaio_file *file;
	struct dsaio_op *op;
	struct process process;
	bool has_waited;
	uint8_t *memory;
	pid_t reader;
	struct fuse fs;

	file = slow_file(&rig, &fs, r->is_raw);
	CHECK_CALL(dsaio_alloc(rig.client, LEN, NULL, (void **)&memory));
	op = op_hold(&rig, file, memory, r->is_read, &fs);
	dying = rig.daemon;
	reader = look_start(r->look, &fs, dying->pid);
	CHECK_SYS(kill(dying->pid, SIGKILL));
	if (reader) /* its descriptors are closed before its block is back */
		CHECK(wait_readable(dying->pid_fd, 60000000));
	while (process_look(dying->pid, &process) && process.state != 'Z' &&
	       !(process.flags & PF_EXITING))
		(void)poll(NULL, 0, 1); /* it has not yet run since the signal */
	(void)releaser_start(&fs, dying->pid);
	rig.daemon = daemon_start_with(&(struct daemon_options){ .store_dir = dying->store_dir });
	has_waited = !atomic_load(&fs.control->held);
	CHECK_EQ(op_wait(op, -1), LEN); /* again */
	dsaio_op_free(op);
	pattern_check(memory, LEN, r->is_read ? SEED_BEFORE : SEED_FIRST, OFF, "the op");

	/* The memory, and what was written, is replaced. */
	pattern_fill(memory, LEN, SEED_SECOND, OFF);
	if (!r->is_read)
		CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, LEN, OFF), LEN);
	if (!has_waited)
		fuse_answer_hung(&fs);
	if (reader)
		child_wait_ok(reader);
	daemon_kill(dying); /* it has ended */
	if (!r->is_read) {
		memset(memory, 0, LEN);
		CHECK_EQ(dsaio_pread(rig.handle, file, memory, LEN, OFF), LEN);
	}
	pattern_check(memory, LEN, SEED_SECOND, OFF, "after the second");
	CHECK(has_waited);
}

TEST_MAIN
