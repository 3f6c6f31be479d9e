/*
 * A client whose file lies on a FUSE file system of its own that stops to answer (E4): nobody else
 * notices; the log and status name user, mount and what frees it; that frees it.
 *
 * The daemon does not see the mount (fuse.h).
 */
#include "tests/fuse.h"
#include "tests/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLIENT 65534u /* the uid whose calls hang: not the daemon's */
#define OTHER 60600u  /* another one */

/* ---- the others ---- */

#define READS 200u
#define ROUNDS_BEFORE 5
#define ROUNDS_MAX 1000
/* Beside what hangs, ours may be so many times as slow as before, each time against plain reads. */
#define RATIO_MAX 4.0

struct others {
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	void *memory;
	int fd; /* of the same file */
};

/*
 * The median time of reads, by a client of its own on another store, as times that of pread(2) in
 * turns with them: what the device and the machine are up to counts for both.  On a busy machine the
 * slowest reads tell who was preempted; victims_check() limits those.
 */
static double others_round(const struct others *others)
{
	static int64_t ours[READS], plain[READS];

	for (size_t i = 0; i < READS; i++) {
		uint64_t off = i % 64 * 4096;
		int64_t start = now_usec(), middle;

		CHECK_EQ(dsaio_pread(others->handle, others->file, others->memory, 4096, off),
			 4096);
		middle = now_usec();
		CHECK_EQ(pread(others->fd, others->memory, 4096, (off_t)off), 4096);
		ours[i] = middle - start;
		plain[i] = now_usec() - middle;
	}
	return (double)percentile(ours, READS, 50) / (double)percentile(plain, READS, 50);
}

/*
 * The lowest ratio of some rounds, which end with the first that is good enough: other programs make
 * single rounds slow, since only ours need a processor for the daemon, and what hangs would make all slow.
 */
static double others_ratio(const struct others *others, unsigned n_rounds, double good)
{
	double lowest = others_round(others);

	for (unsigned i = 1; i < n_rounds && lowest > good; i++) {
		double ratio = others_round(others);

		if (ratio < lowest)
			lowest = ratio;
	}
	return lowest;
}

/* ---- E4 ---- */

#define CLIENT_REQUESTS 64u /* by default; further requests wait in the client's socket */
#define CPU_WALL_MSEC 2000  /* a main thread that never sleeps takes most of it */

static void send_file_add(struct raw *raw, int fd, const char *name)
{
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);

	file_add.name = (char *)(uintptr_t)name;
	raw_send(raw, &request, &fd, 1);
}

static void send_file_remove(struct raw *raw, uint32_t id)
{
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);

	remove.file = id;
	raw_send(raw, &request, NULL, 0);
}

/* A user's own daemon lets nobody else in, but by the mode of its socket. */
static void raw_open_as(struct raw *raw, const struct daemon *daemon, uid_t uid)
{
	CHECK_SYS(chmod(daemon->socket_path, 0666));
	CHECK_SYS(seteuid(uid)); /* as SO_PEERCRED tells it */
	raw_open(raw, daemon);
	CHECK_SYS(seteuid(0));
}

/* A user that is no administrator sees the hung calls of no other user. */
static void check_status_of_another(const struct daemon *daemon)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	raw_open_as(&raw, daemon, OTHER);
	raw_call_ok(&raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->status->n_hung, 0);
}

static void check_status(const struct daemon *daemon, const struct fuse *fs)
{
	static const char *const whats[] = { "read", "fsync", "check", "close" };
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__StatusReply *status;
	uint32_t n_of_stores = 0;

	daemon_status(daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_hung, ARRAY_SIZE(whats));
	for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
		const Wire__Hung *hung = NULL;

		for (size_t k = 0; k < status->n_hung; k++)
			if (!strcmp(status->hung[k]->what, whats[i]))
				hung = status->hung[k];
		CHECK_MSG(hung, "%s", whats[i]);
		CHECK_EQ(hung->uid, CLIENT);
		CHECK(hung->usec >= 5000000);
		CHECK_MSG(strstr(hung->mount, fs->dir) && strstr(hung->mount, "fuse.test"), "%s",
			  hung->mount);
		CHECK_MSG(strstr(hung->text, "abort"), "%s", hung->text);
	}
	for (size_t i = 0; i < status->n_users; i++)
		CHECK_EQ(status->users[i]->hung,
			 status->users[i]->uid == CLIENT ? ARRAY_SIZE(whats) : 0);
	for (size_t i = 0; i < status->n_stores; i++)
		n_of_stores += status->stores[i]->hung;
	CHECK(n_of_stores >= 2); /* the read and the fsync */
}

TEST(e4_hung, "E4 a FUSE file system that never answers: others go on, it is named, abort frees it")
{
	static const char *const whats[] = { "read", "fsync", "check", "close" };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int unchecked = -1;
	struct raw_file file, closed;
	struct raw_channel channel;
	struct raw_slab slab;
	struct ring_completion completions[2];
	struct others others;
	double before, hung, most;
	struct fuse fs;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user")); /* stores of all kinds, without asking */
	fuse_start(&fs, 0);
	victim_start(rig.daemon);
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "other"), MIB, 1);
	others = (struct others){ .handle = rig.handle,
				  .file = rig_file(&rig, "other", O_RDONLY),
				  .fd = open_direct(daemon_path(rig.daemon, "other"), O_RDONLY) };
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &others.memory));

	raw_open_as(&raw, rig.daemon, CLIENT);
	raw_slab(&raw, 65536, &slab);
	raw_file(&raw, fuse_path(&fs, 'a'), O_RDWR, &file);
	raw_file(&raw, fuse_path(&fs, 'b'), O_RDWR, &closed);
	raw_channel(&raw, raw_handle(&raw), file.store, 4, true, &channel);
	CHECK_EQ(raw_run_one(&channel, (struct ring_entry){ .opcode = RING_OP_READ,
							    .file = file.id,
							    .slab = slab.id,
							    .len = 4096 }),
		 4096);
	unchecked = open_direct(fuse_path(&fs, 'c'), O_RDWR);
	before = others_ratio(&others, ROUNDS_BEFORE, 0);
	most = RATIO_MAX * (before > 1 ? before : 1);

	/* The second victim closes the files that it has from here, and must not wait for the server. */
	atomic_store(&fs.control->hung_pid, rig.daemon->pid);
	raw_put(&channel,
		&(struct ring_entry){
			.opcode = RING_OP_READ, .file = file.id, .slab = slab.id, .len = 4096 });
	raw_put(&channel, &(struct ring_entry){ .opcode = RING_OP_FSYNC, .file = file.id });
	raw_ring(&channel);
	send_file_remove(&raw, closed.id);
	send_file_add(&raw, unchecked, fuse_path(&fs, 'c'));
	for (size_t i = 0; i < ARRAY_SIZE(whats); i++)
		daemon_log_wait(rig.daemon, test_text(": %s has not come back for", whats[i]));
	CHECK(daemon_log_has(rig.daemon, test_text("user %u: client", CLIENT)));
	CHECK(daemon_log_has(rig.daemon, test_text("on %s (fuse.test", fs.dir)));
	check_status(rig.daemon, &fs);
	check_status_of_another(rig.daemon);

	hung = others_ratio(&others, ROUNDS_MAX, most);
	test_note("others took %.1f times as long as plain reads, before %.1f times", hung, before);
	CHECK_MSG(hung <= most, "others took %.1f times as long as plain reads, before %.1f times",
		  hung, before);
	victims_check(rig.daemon, 3);

	fuse_free_as_reported(rig.daemon);
	CHECK(raw_reap(&channel, 2, completions, 20000000));
	for (size_t i = 0; i < ARRAY_SIZE(completions); i++)
		CHECK(ring_result_errno(completions[i].result) > 0);
	for (unsigned i = 0; i < 2; i++) { /* to both requests */
		_cleanup_(answer_free) struct answer reply = ANSWER_NONE;

		raw_receive(&raw, &reply);
		CHECK(reply.reply);
	}
	for (size_t i = 0; i < ARRAY_SIZE(whats); i++)
		daemon_log_wait(rig.daemon, test_text(": %s came back after", whats[i]));
	raw_channel_unmap(&channel);
	raw_slab_unmap(&slab);
}

TEST(e4_stop,
     "E4 a stop gives up a close that never returns: the log names what ends the process then")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct raw raw = RAW_NONE;
	struct raw_file file;
	struct fuse fs;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	raw_open(&raw, rig.daemon);
	raw_file(&raw, fuse_path(&fs, 'a'), O_RDWR, &file);
	atomic_store(&fs.control->is_hung, true);
	raw_close(&raw);
	CHECK_SYS(kill(rig.daemon->pid, SIGTERM));
	daemon_log_wait(rig.daemon,
			"delays the daemon's exit by some seconds, or until it returns");
	daemon_log_wait(rig.daemon, "although 1 call without bytes");
	daemon_log_wait(rig.daemon, "stopped");
	CHECK_EQ(access(rig.daemon->socket_path, F_OK), -1);
	/* The kernel waits for the close at the end of the process, too. */
	fuse_free_as_reported(rig.daemon);
	daemon_wait_end(rig.daemon, 0);
}

TEST(e4_stop_read, "E4 a stop waits for a read that never returns: the log names what frees it")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct raw_file file;
	struct raw_channel channel;
	struct raw_slab slab;
	struct dsaio_client *client;
	struct fuse fs;
	int r;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	raw_open(&raw, rig.daemon);
	raw_slab(&raw, 65536, &slab);
	raw_file(&raw, fuse_path(&fs, 'a'), O_RDWR, &file);
	raw_channel(&raw, raw_handle(&raw), file.store, 4, true, &channel);
	atomic_store(&fs.control->is_io_hung, true);
	raw_put(&channel,
		&(struct ring_entry){
			.opcode = RING_OP_READ, .file = file.id, .slab = slab.id, .len = 4096 });
	raw_ring(&channel);
	daemon_log_wait(rig.daemon, ": read has not come back for");
	CHECK_SYS(kill(rig.daemon->pid, SIGTERM));
	daemon_log_wait(rig.daemon, "delays the daemon's exit until it returns");
	/* The line comes a moment before the socket is closed. */
	while ((r = socket_connect(rig.daemon->socket_path, &client)) != -ECONNREFUSED)
		if (r == 0)
			(void)dsaio_disconnect(client);
	/* Once it said that no daemon is there, and to start one. */
	CHECK_FAILS(r, -ECONNREFUSED, "is stopping;its log");
	fuse_free_as_reported(rig.daemon);
	daemon_wait_end(rig.daemon, 0);
	CHECK(!daemon_log_has(rig.daemon, "although"));
	raw_channel_unmap(&channel);
	raw_slab_unmap(&slab);
}

TEST(e4_descriptors,
     "E4 descriptors that cannot be closed: their user's clients wait, and take none from others")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = -1;
	struct usage before, now;
	struct fuse fs;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	raw_open(&raw, rig.daemon);
	fd = open_direct(fuse_path(&fs, 'a'), O_RDWR);
	before = daemon_usage_settled(rig.daemon);
	atomic_store(&fs.control->is_hung, true);
	for (unsigned i = 0; i < 200; i++) { /* refused: descriptors came with it */
		Wire__Status status = WIRE__STATUS__INIT;
		Wire__Request request = RAW_REQUEST(STATUS, status, &status);

		raw_send(&raw, &request, (const int[]){ fd, fd, fd, fd }, 4);
	}
	daemon_log_wait(rig.daemon, ": close has not come back for");
	now = daemon_usage_settled(rig.daemon);
	test_note("of 800 descriptors that came the daemon has taken %u", now.n_fds - before.n_fds);
	CHECK(now.n_fds < before.n_fds + 100);

	fuse_free_as_reported(rig.daemon);
	for (unsigned i = 0; i < 200; i++) { /* then all is read, answered and closed */
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&raw, &answer);
		answer_check_fails(&answer, -EINVAL, "4 descriptors");
	}
	daemon_usage_back(rig.daemon, &before);
}

/* ---- the search of the mount ---- */

#define MOUNT_DOUBLINGS 14u  /* 16,384 mounts */
#define REPORTS_CPU_MSEC 500 /* of 64 reports; with all mounts read each takes 20 ms or more */

/* Mounts that come before any later one in mountinfo. */
static void mounts_make_many(void)
{
	const char *dir = test_text("%s/many", test_dir());

	CHECK_SYS(mkdir(dir, 0755));
	CHECK_SYS(mount("many", dir, "tmpfs", 0, "size=4M"));
	for (unsigned i = 0; i < MOUNT_DOUBLINGS; i++) {
		const char *copy = test_text("%s/%u", dir, i);

		CHECK_SYS(mkdir(copy, 0755));
		if (mount(dir, copy, NULL, MS_BIND | MS_REC, NULL) < 0)
			test_skip("needs %u mounts: %s", 1u << MOUNT_DOUBLINGS, strerror(errno));
	}
}

/* Clock ticks count for too little here, so this reads what the scheduler has counted. */
static int64_t main_thread_cpu_msec(const struct daemon *daemon)
{
	_cleanup_(fclosep) FILE *file = fopen(
		test_text("/proc/%d/task/%d/schedstat", daemon->pid, daemon->pid), "re");
	int64_t nsec;

	if (!file)
		test_skip("the kernel has no schedstat");
	CHECK_EQ(fscanf(file, "%" SCNd64, &nsec), 1);
	return nsec / 1000000;
}

TEST(many_mounts, "64 opens hung in a namespace of many mounts: the main thread stalled")
{
	struct daemon *daemon;
	struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = -1;
	int64_t cpu_msec;
	struct fuse fs;

	test_needs_root();
	daemon = daemon_start(DAEMON_ARGS("--user"));
	mounts_private();
	mounts_make_many();
	fuse_start(&fs, 0);
	raw_open(&raw, daemon);
	fd = open_direct(fuse_path(&fs, 'a'), O_RDWR);
	cpu_msec = main_thread_cpu_msec(daemon);
	atomic_store(&fs.control->hung_pid, daemon->pid);
	for (unsigned i = 0; i < CLIENT_REQUESTS; i++)
		send_file_add(&raw, fd, fuse_path(&fs, 'a'));
	daemon_log_wait(daemon, ": check has not come back for");
	for (unsigned n = 0; n < CLIENT_REQUESTS;) { /* meanwhile all are reported */
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		daemon_status(daemon, &answer);
		n += answer.reply->status->n_hung == CLIENT_REQUESTS;
	}
	cpu_msec = main_thread_cpu_msec(daemon) - cpu_msec;
	test_note("%" PRId64 " ms of the main thread's CPU time", cpu_msec);
	CHECK((double)cpu_msec < REPORTS_CPU_MSEC * test_time_factor());

	CHECK(daemon_log_has(daemon, "a mount that was not looked up"));

	CHECK_SYS(kill(fs.pid, SIGKILL)); /* as the log says */
	raw_close(&raw);
}

/* A process of the client holds the lock of its slab's inode: it writes from a page that never comes. */
static pid_t lock_slab(const struct fuse *fs, struct raw *raw, const struct raw_slab *slab)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(fuse_path(fs, 'a'), O_RDONLY | O_CLOEXEC));
	const void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	pid_t pid;

	CHECK(page != MAP_FAILED);
	atomic_store(&fs->control->is_io_hung, true);
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		raw_close(raw); /* its end of the socket */
		_exit(write(slab->fd, page, 4096) < 0);
	}
	while (!atomic_load(&fs->control->n_hung))
		(void)poll(NULL, 0, 5);
	return pid;
}

TEST(e4_slab,
     "a client held the lock of its slab and left: the daemon could not stop, and did not say why")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__StatusReply *status;
	struct raw raw = RAW_NONE;
	struct daemon *daemon;
	struct raw_slab slab;
	struct fuse fs;
	pid_t pid;

	test_needs_root();
	daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	raw_open_as(&raw, daemon, CLIENT);
	raw_slab(&raw, 65536, &slab);
	pid = lock_slab(&fs, &raw, &slab);
	raw_close(&raw);
	daemon_log_wait(daemon, ": a slab: slab free has not come back for");
	daemon_status(daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_hung, 1);
	CHECK_EQ(status->hung[0]->uid, CLIENT);
	CHECK(!strcmp(status->hung[0]->what, "slab free"));
	CHECK_MSG(strstr(status->hung[0]->text, test_text("pkill -KILL -u %u", CLIENT)) &&
			  strstr(status->hung[0]->text, test_text("process %d", getpid())),
		  "%s", status->hung[0]->text);

	CHECK_SYS(kill(daemon->pid, SIGTERM));
	daemon_log_wait(daemon, "although 1 call without bytes");
	daemon_log_wait(daemon, "stopped");
	CHECK_SYS(kill(pid, SIGKILL)); /* what the log names, for these two only */
	CHECK_SYS(kill(fs.pid, SIGKILL));
	daemon_wait_end(daemon, 0);
	raw_slab_unmap(&slab);
}

static const struct {
	const char *what;
	bool is_half; /* shutdown(2), and the socket stays */
} ends[] = {
	{ "closed", false },
	{ "shut down for writing", true },
};

TEST_TABLE(end_unread, ends,
	   "a client ended with a reply unread, its requests hung: the main thread never slept")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = -1;
	struct usage before;
	struct raw_slab slab;
	struct fuse fs;
	int64_t cpu_msec;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	before = daemon_usage_settled(rig.daemon);
	raw_open(&raw, rig.daemon);
	raw_slab(&raw, 65536, &slab);
	fd = open_direct(fuse_path(&fs, 'a'), O_RDWR);
	atomic_store(&fs.control->is_hung, true);
	raw_send(&raw, &request, NULL, 0);
	CHECK(wait_readable(raw.fd, 20000000)); /* its reply stays unread: the close is a reset */
	for (unsigned i = 0; i < CLIENT_REQUESTS + 20; i++)
		send_file_add(&raw, fd, fuse_path(&fs, 'a'));
	daemon_log_wait(rig.daemon, ": check has not come back for");
	if (ends[row].is_half)
		CHECK_SYS(shutdown(raw.fd, SHUT_WR));
	else
		raw_close(&raw);

	/* Its memory is free at once: the session has ended.  Its requests still hang. */
	CHECK(daemon_wait_clients(rig.daemon, 1, 0));
	cpu_msec = daemon_cpu_msec(rig.daemon);
	(void)poll(NULL, 0, CPU_WALL_MSEC);
	cpu_msec = daemon_cpu_msec(rig.daemon) - cpu_msec;
	test_note("%" PRId64 " ms of CPU time in %d ms", cpu_msec, CPU_WALL_MSEC);
	CHECK(cpu_msec < CPU_WALL_MSEC / 10);

	fuse_free_as_reported(rig.daemon);
	raw_slab_unmap(&slab);
	raw_close(&raw);
	daemon_usage_back(rig.daemon, &before);
}

TEST_MAIN
