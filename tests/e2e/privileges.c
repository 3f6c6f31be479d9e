/*
 * A daemon that root starts writes with no more rights than the client has: without capabilities,
 * and (the system's daemon) without the uid that ext4 lets into its reserved blocks.
 */
#include "tests/harness.h"
#include "tests/stores.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
#define SERVICE_UID 64999 /* of the user dsaiod that a test makes up */
#define RESERVED_BYTES (64 * MIB)

/* ---- clients ---- */

static void become_nobody(void)
{
	child_become(NOBODY);
}

/* Root without the right to keep set-user-ID bits. */
static void give_up_fsetid(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	CHECK_SYS(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1u << CAP_FSETID);
	data[0].permitted &= ~(1u << CAP_FSETID);
	CHECK_SYS(syscall(SYS_capset, &header, data));
}

static void in_child(void (*become)(void), void (*run)(struct daemon *daemon, const char *path),
		     struct daemon *daemon, const char *path)
{
	pid_t pid;

	(void)fflush(NULL); /* or the child prints it again */
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		become();
		run(daemon, path);
		_exit(0);
	}
	child_wait_ok(pid);
}

/* The daemon measures its store by a file of its own, as root: waits until that is over. */
static void probe_wait(const struct daemon *daemon)
{
	static const char before[] = "not measured";

	for (bool is_over = false; !is_over; usleep(1000)) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const char *text;

		daemon_status(daemon, &answer);
		CHECK(answer.reply->status->n_stores > 0);
		text = answer.reply->status->stores[0]->engine_text;
		is_over = strlen(text) < strlen(before) ||
			  strcmp(text + strlen(text) - strlen(before), before) != 0;
	}
}

/* ---- set-user-ID ---- */

/* off: 0 is direct, 1 is written through the page cache. */
static void write_set_id(struct daemon *daemon, const char *path, uint64_t off)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_file *file;
	struct stat st;
	void *memory;

	CHECK_SYS(chmod(path, 06755));
	rig.daemon = daemon;
	rig_open(&rig, NULL);
	file = rig_file(&rig, path, O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, 4096, NULL, &memory));
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 4096, off), 4096);
	CHECK_SYS(stat(path, &st));
	CHECK_MSG((st.st_mode & 07777) == 0755, "after a write the mode is %04o",
		  st.st_mode & 07777);
}

static void write_set_id_both(struct daemon *daemon, const char *path)
{
	write_set_id(daemon, path, 0);
	write_set_id(daemon, path, 1);
}

static void set_id_file(const struct daemon *daemon, uid_t owner, char **ret_path)
{
	*ret_path = daemon_path(daemon, "set-id");
	file_make_pattern(*ret_path, 64 * KIB, 1);
	CHECK_SYS(chown(*ret_path, owner, (gid_t)owner));
}

TEST(set_id_owner, "a set-user-ID file that its owner writes through root's daemon loses the bits")
{
	struct daemon *daemon;
	char *path;

	test_needs_root();
	daemon = daemon_start(NULL);
	set_id_file(daemon, NOBODY, &path);
	in_child(become_nobody, write_set_id_both, daemon, path);
}

TEST(set_id_user, "a root client without CAP_FSETID clears the bits through root's own daemon, too")
{
	struct daemon *daemon;
	char *path;

	test_needs_root();
	daemon = daemon_start(DAEMON_ARGS("--user"));
	set_id_file(daemon, 0, &path);
	in_child(give_up_fsetid, write_set_id_both, daemon, path);
}

/* ---- reserved blocks ---- */

/* A hole is filled by the daemon alone: the library allocates only what extends a file. */
static void write_hole(struct daemon *daemon, const char *path)
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	char byte = 0;
	struct dsaio_file *file;
	void *memory;
	ssize_t n;

	n = pwrite(fd, &byte, 1, (off_t)MIB / 2); /* what write(2) says */
	CHECK_MSG(n < 0 && errno == ENOSPC, "%zd, %s", n, strerror(errno));
	rig.daemon = daemon;
	rig_open(&rig, NULL);
	file = rig_file(&rig, path, O_RDWR);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	memset(memory, 1, MIB);
	CHECK_FAILS(dsaio_pwrite(rig.handle, file, memory, MIB, 0), -ENOSPC, "No space");
	CHECK_EQ(dsaio_pwrite(rig.handle, file, memory, 1000, 3), -ENOSPC);
}

/* Takes all blocks that are not reserved. */
static void fill_unreserved(const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	uint64_t off = 0;
	struct statvfs fs;

	for (;;) {
		CHECK_SYS(fstatvfs(fd, &fs));
		if (!fs.f_bavail)
			return;
		CHECK_SYS(posix_fallocate(fd, (off_t)off, (off_t)(fs.f_bavail * fs.f_frsize)));
		off += fs.f_bavail * fs.f_frsize;
	}
}

static void reserved_blocks(const char *const *args)
{
	struct store store;
	struct daemon *daemon;
	const char *path;
	struct statvfs fs;

	test_needs_root();
	store_make_reserved(&store, RESERVED_BYTES, 30);
	path = store_path(&store, "hole");
	file_make_sparse(path, MIB);
	CHECK_SYS(chown(path, NOBODY, NOBODY));
	daemon = daemon_start_with(
		&(struct daemon_options){ .store_dir = store.path, .args = args });
	probe_wait(daemon);
	fill_unreserved(store_path(&store, "filler"));
	in_child(become_nobody, write_hole, daemon, path);
	CHECK_SYS(statvfs(store.path, &fs));
	CHECK_MSG(fs.f_bfree * fs.f_frsize >= RESERVED_BYTES / 4, "%" PRIu64 " bytes are left",
		  (uint64_t)(fs.f_bfree * fs.f_frsize));
}

TEST(reserved, "a client's write through root's daemon does not enter ext4's reserved blocks")
{
	reserved_blocks(NULL);
}

/* ---- what the daemon has ---- */

/* Each thread's line "NAME:\tTEXT" of its status must be this text. */
static void check_thread(const char *path, const char *name, const char *wanted)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	size_t len = strlen(name);
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (strcmp(line, "Name:\tprobe\n") == 0)
			return; /* it uses files of the daemon's own only */
		if (strncmp(line, name, len) != 0 || line[len] != ':')
			continue;
		line[strcspn(line, "\n")] = 0;
		CHECK_MSG(strncmp(line + len + 2, wanted, strlen(wanted)) == 0 &&
				  !strtok(line + len + 2 + strlen(wanted), " "),
			  "%s: %s, not %s", path, line, wanted);
	}
}

static void check_threads(const struct daemon *daemon, const char *name, const char *wanted)
{
	const char *tasks = test_text("/proc/%d/task", daemon->pid);
	DIR *dir = opendir(tasks);
	const struct dirent *entry;
	unsigned n = 0;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		check_thread(test_text("%s/%s/status", tasks, entry->d_name), name, wanted);
		n++;
	}
	(void)closedir(dir);
	CHECK(n >= 2); /* a lane, too */
}

static void check_capabilities(const struct daemon *daemon)
{
	const char *lock = test_text("%016llx", 1ull << CAP_IPC_LOCK), *none = "0000000000000000";

	check_threads(daemon, "CapInh", none);
	check_threads(daemon, "CapAmb", none);
	check_threads(daemon, "CapPrm", lock);
	check_threads(daemon, "CapEff", lock);
	check_threads(daemon, "CapBnd", lock);
	check_threads(daemon, "NoNewPrivs", "1");
}

static void rig_used(struct rig *rig, struct daemon *daemon)
{
	void *memory;

	rig->daemon = daemon;
	rig_open(rig, NULL);
	CHECK_CALL(dsaio_alloc(rig->client, MIB, NULL, &memory));
	memset(memory, 1, MIB);
	CHECK_EQ(dsaio_pwrite(rig->handle, rig_file(rig, "f", O_RDWR | O_CREAT), memory, MIB, 0),
		 MIB);
	probe_wait(daemon);
}

TEST(dropped, "root's daemon has no capability but CAP_IPC_LOCK, and lends no thread root's uid")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct daemon *daemon;

	test_needs_root();
	daemon = daemon_start(NULL);
	rig_used(&rig, daemon);
	check_capabilities(daemon);
	check_threads(daemon, "Uid", test_text("0\t0\t0\t%d", NOBODY));
	check_threads(daemon, "Gid", test_text("0\t0\t0\t%d", NOBODY));
	CHECK(daemon_log_has(daemon, "stays uid 0"));
}

TEST(dropped_user, "root's own daemon has no capability but CAP_IPC_LOCK, and stays root")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct daemon *daemon;

	test_needs_root();
	daemon = daemon_start(DAEMON_ARGS("--user"));
	rig_used(&rig, daemon);
	check_capabilities(daemon);
	check_threads(daemon, "Uid", "0\t0\t0\t0");
}

/* ---- the user dsaiod ---- */

/* In a mount namespace of this test's own the host has a user dsaiod. */
static void make_service_user(void)
{
	const char *path = test_text("%s/passwd", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;

	mounts_private();
	file = fopen(path, "we");
	CHECK(file);
	CHECK(fprintf(file,
		      "root:x:0:0:root:/root:/bin/sh\n"
		      "dsaiod:x:%u:%u::/var/lib/dsaiod:/usr/sbin/nologin\n",
		      SERVICE_UID, SERVICE_UID) > 0);
	CHECK_EQ(fflush(file), 0);
	CHECK_SYS(chmod(path, 0644));
	CHECK_SYS(mount(path, "/etc/passwd", NULL, MS_BIND, NULL));
}

TEST(changes_user, "the system's daemon that root starts runs as user dsaiod, and leaves no socket")
{
	const char *run = test_text("%s/run", test_dir()), *store = test_text("%s/st", test_dir());
	const char *uid = test_text("%u\t%u\t%u\t%u", SERVICE_UID, SERVICE_UID, SERVICE_UID,
				    SERVICE_UID);
	struct daemon *daemon;
	struct stat st;

	test_needs_root();
	make_service_user();
	CHECK_SYS(mkdir(run, 0755));
	CHECK_SYS(chown(run, SERVICE_UID, SERVICE_UID));
	CHECK_SYS(mkdir(store, 0700)); /* root finds it, the daemon's user does not */
	daemon = daemon_start_with(&(struct daemon_options){
		.socket_path = test_text("%s/s.sock", run), .store_dir = store });
	{
		_cleanup_(rig_close) struct rig rig = RIG_NONE;

		rig_used(&rig, daemon);
		check_capabilities(daemon);
		check_threads(daemon, "Uid", uid);
		check_threads(daemon, "Gid", uid);
		check_threads(daemon, "Groups", "");
	}
	CHECK_SYS(stat(test_text("%s/state", test_dir()), &st));
	CHECK_EQ(st.st_uid, SERVICE_UID);
	daemon_stop(daemon);
	CHECK(stat(test_text("%s/s.sock", run), &st) < 0 && errno == ENOENT);
}

TEST(cannot_change_user, "a daemon that cannot run as user dsaiod says which directory keeps it")
{
	struct daemon *daemon;

	test_needs_root();
	make_service_user();
	daemon = daemon_start(NULL);
	CHECK(daemon_log_has(daemon, test_text("chown dsaiod %s", test_dir())));
}

TEST_MAIN
