/*
 * A file system that clients have used is unmounted: cached files keep it busy for 10 to 20 s, and no longer than
 * dsaio_file_drop() or a drain takes.  Hostile drains, and closes that hang, harm nobody.
 */
#include "tests/file_opens.h"
#include "tests/fuse.h"
#include "tests/restarting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS ((int64_t)1000000)
#define STORE_BYTES (64 * MIB)

/* An ext4 of its own, a daemon and a client that has read the file f there and closed it. */
struct scene {
	struct rig rig;
	struct store store;
	const char *path;
	void *memory;
};

static void scene_deinit(struct scene *scene)
{
	rig_close(&scene->rig);
}

static void scene_use(struct scene *scene)
{
	open_check_close(&scene->rig, scene->path, O_RDONLY, scene->memory, SEED);
}

/* is_automatic: the daemon's configured store is another one. */
static void scene_init(struct scene *scene, bool is_automatic)
{
	*scene = (struct scene){ .rig = RIG_NONE };
	store_make(&scene->store, STORE_EXT4, STORE_BYTES);
	scene->path = store_path(&scene->store, "f");
	file_make_pattern(scene->path, BLOCK, SEED);
	if (is_automatic)
		rig_open(&scene->rig, NULL);
	else
		store_rig_open(&scene->rig, &scene->store);
	CHECK_CALL(dsaio_alloc(scene->rig.client, BLOCK, NULL, &scene->memory));
	scene_use(scene);
}

static void check_busy(const struct scene *scene)
{
	CHECK_EQ(umount(scene->store.path), -1);
	CHECK_EQ(errno, EBUSY);
}

static void raw_drain(struct raw *raw, const char *name, int fd, struct answer *ret_answer)
{
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
	Wire__Request request = RAW_REQUEST(STORE_DRAIN, store_drain, &drain);

	drain.name = (char *)(uintptr_t)name;
	raw_call_ok(raw, &request, &fd, fd >= 0, ret_answer);
}

/* Drains the store of that path. */
static void drain_path(const struct daemon *daemon, const char *path, struct answer *ret_answer)
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_PATH | O_CLOEXEC));

	raw_open(&raw, daemon);
	raw_drain(&raw, "", fd, ret_answer);
}

/* Runs dsaioctl drain, or undrain, with its options on the scene's directory; *ret_said: the output and the errors. */
static int ctl_drain(const struct scene *scene, const char *command, const char **ret_said)
{
	const char *build = getenv("BUILD"), *out = test_text("%s/said", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;
	static char said[4096];
	int status = system(test_text(
		"%s/dsaioctl --socket %s %s %s >%s 2>&1", build && *build ? build : "build",
		scene->rig.daemon->socket_path, command, scene->store.path, out));
	size_t n;

	file = fopen(out, "re");
	CHECK(file);
	n = fread(said, 1, sizeof(said) - 1, file);
	said[n] = '\0';
	*ret_said = said;
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST(by_itself, "a file system is busy with a cached file, and unmounted 10 to 20 s later")
{
	_cleanup_(scene_deinit) struct scene scene;
	int64_t start;

	scene_init(&scene, false);
	start = now_usec();
	check_busy(&scene);
	while (umount(scene.store.path) < 0) {
		CHECK_EQ(errno, EBUSY);
		CHECK(now_usec() - start < 60 * SECONDS);
		(void)poll(NULL, 0, 100); /* nobody tells of it */
	}
	test_note("unmounted after %" PRId64 " ms", (now_usec() - start) / 1000);
	CHECK(now_usec() - start >= 9 * SECONDS); /* the file was closed before the start */
}

TEST(dropped, "after dsaio_file_drop() of its files a file system is unmounted")
{
	_cleanup_(scene_deinit) struct scene scene;

	scene_init(&scene, true); /* the daemon's probe of a configured store takes a while */
	check_busy(&scene);
	CHECK_CALL(dsaio_file_drop(scene.rig.client, NULL));
	CHECK_SYS(umount(scene.store.path));
}

static const struct {
	const char *what;
	bool is_automatic;
} kinds[] = { { "of the configuration", false }, { "that is automatic", true } };

TEST_TABLE(drained, kinds, "after a drain a file system is unmounted: a store")
{
	_cleanup_(scene_deinit) struct scene scene;
	struct dsaio_file *file;
	const char *said;

	scene_init(&scene, kinds[row].is_automatic);
	check_busy(&scene);
	CHECK_EQ(ctl_drain(&scene, "drain --once", &said), 0);
	CHECK_MSG(strstr(said, "1 idle file closed") && strstr(said, "CHANNELS"), "%s", said);

	/* It is served as before. */
	scene_use(&scene);
	check_busy(&scene);
	CHECK_EQ(ctl_drain(&scene, "drain --json", &said), 0);
	CHECK_MSG(strstr(said, "\"closed\": 1") && strstr(said, "\"files\": 0"), "%s", said);

	/* Now it is not. */
	CHECK_FAILS(dsaio_open(scene.rig.client, scene.path, O_RDONLY, NULL, &file), -ENOMEDIUM,
		    "is drained");
	while (umount(scene.store.path) < 0) { /* the refused descriptor is being closed */
		CHECK_EQ(errno, EBUSY);
		(void)poll(NULL, 0, 10);
	}
}

TEST(in_use, "a drain says which clients have files open, and leaves these alone")
{
	_cleanup_(scene_deinit) struct scene scene;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct dsaio_file *file;
	const Wire__StoreDrainReply *drained;
	const char *said;

	scene_init(&scene, false);
	file = open_file(&scene.rig, scene.path, O_RDWR);
	drain_path(scene.rig.daemon, scene.store.path, &answer);
	drained = answer.reply->store_drain;
	CHECK(strcmp(drained->store, "t") == 0);
	CHECK(strcmp(drained->path, scene.store.path) == 0);
	CHECK_EQ(drained->closed, 1); /* the one for reading */
	CHECK_EQ(drained->closing, 0);
	CHECK_EQ(drained->files, 1);
	CHECK_EQ(drained->n_clients, 1);
	CHECK_EQ(drained->n_all_clients, 1);
	CHECK_EQ(drained->clients[0]->pid, (uint32_t)getpid());
	CHECK_EQ(drained->clients[0]->uid, geteuid());
	CHECK(strstr(drained->clients[0]->name, "umount"));
	CHECK_EQ(drained->clients[0]->files, 1);
	CHECK_EQ(drained->clients[0]->channels, 1);
	check_file(&scene.rig, file, scene.memory, SEED);
	check_busy(&scene);
	CHECK_EQ(ctl_drain(&scene, "drain --once", &said), 1);
	CHECK_MSG(strstr(said, test_text("%d", getpid())) && strstr(said, "0 idle files closed") &&
			  strstr(said, "1 file of clients there is still open: close them"),
		  "%s", said);
	check_file(&scene.rig, file, scene.memory, SEED);
	CHECK_EQ(ctl_drain(&scene, "drain", &said), 1);
	CHECK_FAILS(dsaio_pread(scene.rig.handle, file, scene.memory, BLOCK, 0), -ENOMEDIUM,
		    "its store is drained");
	CHECK_CALL(dsaio_fsync(scene.rig.handle, file, 0));
	CHECK_EQ(ctl_drain(&scene, "undrain", &said), 0);
	check_file(&scene.rig, file, scene.memory, SEED);
	dsaio_file_close(file);
	CHECK_EQ(ctl_drain(&scene, "drain", &said), 0);
	CHECK_SYS(umount(scene.store.path));
}

TEST(restarted,
     "a file that was open before a drain is handed over to the next daemon, and used after the drain")
{
	_cleanup_(scene_deinit) struct scene scene = { .rig = RIG_NONE };
	struct dsaio_file *file;
	const char *said;

	store_make(&scene.store, STORE_EXT4, STORE_BYTES);
	scene.path = store_path(&scene.store, "f");
	file_make_pattern(scene.path, BLOCK, SEED);
	scene.rig.daemon = daemon_start_with(
		&(struct daemon_options){ .store_dir = scene.store.path });
	reconnecting(&scene.rig);
	CHECK_CALL(dsaio_alloc(scene.rig.client, BLOCK, NULL, &scene.memory));
	file = open_file(&scene.rig, scene.path, O_RDWR);
	check_file(&scene.rig, file, scene.memory, SEED);
	CHECK_EQ(ctl_drain(&scene, "drain", &said), 1);
	daemon_stop(scene.rig.daemon);
	scene.rig.daemon = daemon_start_with(
		&(struct daemon_options){ .store_dir = scene.store.path });
	CHECK_CALL(dsaio_fsync(scene.rig.handle, file, 0));
	CHECK_FAILS(dsaio_pread(scene.rig.handle, file, scene.memory, BLOCK, 0), -ENOMEDIUM,
		    "its store is drained");
	CHECK_EQ(ctl_drain(&scene, "undrain", &said), 0);
	check_file(&scene.rig, file, scene.memory, SEED);
	dsaio_file_close(file);
}

TEST(many, "thousands of idle files of some clients are drained, and those of other stores stay")
{
	enum { N = 3000, N_CLIENTS = 3 };
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE, others = ANSWER_NONE;
	struct dsaio_client *clients[N_CLIENTS];
	struct dsaio_file *file;
	struct store store;
	const char *other;

	store_make(&store, STORE_EXT4, STORE_BYTES);
	count_opens();
	rig_open(&rig, NULL);
	for (unsigned i = 0; i < N; i++)
		file_make_sparse(store_path(&store, test_text("%u", i)), 4096);
	for (unsigned c = 0; c < N_CLIENTS; c++)
		clients[c] = client_open(rig.daemon);
	for (unsigned i = 0; i < N; i++) {
		CHECK_CALL(dsaio_open(clients[i % N_CLIENTS],
				      store_path(&store, test_text("%u", i)), O_RDONLY, NULL,
				      &file));
		dsaio_file_close(file);
	}
	other = daemon_path(rig.daemon, "other"); /* at last: it is not 10 s old at the drain */
	dsaio_file_close(open_file(&rig, other, O_RDWR | O_CREAT));
	drain_path(rig.daemon, store.path, &answer);
	test_note("%u of %u files were still there", answer.reply->store_drain->closed, N);
	CHECK_EQ(answer.reply->store_drain->files, 0);
	CHECK_EQ(answer.reply->store_drain->n_clients, 0);
	CHECK_SYS(umount(store.path));
	drain_path(rig.daemon, test_dir(), &others);
	CHECK_EQ(others.reply->store_drain->closed, 1);
	for (unsigned c = 0; c < N_CLIENTS; c++)
		CHECK_CALL(dsaio_disconnect(clients[c]));
}

FAULT(wrong, "drains of stores that are none, or by users who are no administrators")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
	Wire__Request request = RAW_REQUEST(STORE_DRAIN, store_drain, &drain);
	_cleanup_(closep) int fd = (int)CHECK_SYS(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
	const int fds[2] = { fd, fd };
	pid_t pid;

	raw_open(&raw, daemon);
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "not both");
	raw_call_fails(&raw, &request, &fd, 1, -ENXIO, "proc");
	raw_call_fails(&raw, &request, fds, 2, -EINVAL, "store_drain;2 descriptors");
	drain.name = (char *)(uintptr_t) "t";
	raw_call_fails(&raw, &request, &fd, 1, -EINVAL, "not both");
	drain.name = (char *)(uintptr_t) "nobody's";
	raw_call_fails(&raw, &request, NULL, 0, -ENXIO, "nobody's");
	if (geteuid() != 0)
		return;
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		_cleanup_(raw_close) struct raw theirs = RAW_NONE;

		CHECK_SYS(chmod(test_dir(), 0755));
		CHECK_SYS(chmod(daemon->socket_path, 0666));
		child_become(NOBODY);
		raw_open(&theirs, daemon);
		drain.name = (char *)(uintptr_t) "t";
		raw_call_fails(&theirs, &request, NULL, 0, -EPERM, "administrator;admin_group");
		_exit(0);
	}
	child_wait_ok(pid);
}

/* A client that says idle of a file with open ops, and one that hangs up: the drain ends all the same. */
FAULT(hangup, "a client that hangs up while its drain waits")
{
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
	Wire__Request request = RAW_REQUEST(STORE_DRAIN, store_drain, &drain);

	drain.name = (char *)(uintptr_t) "t";
	for (unsigned i = 0; i < 50; i++) {
		struct raw raw = RAW_NONE;

		raw_open(&raw, daemon);
		raw_send(&raw, &request, NULL, 0);
		raw_close(&raw);
	}
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

TEST(hung, "a close that hangs: drop and drain end after 10 s, and say so; other stores are served")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE, after = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int dir_fd = -1;
	const Wire__StoreDrainReply *drained;
	struct raw hangs_up = RAW_NONE;
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
	Wire__Request request = RAW_REQUEST(STORE_DRAIN, store_drain, &drain);
	const char *path;
	struct fuse fs;
	int64_t start;

	test_needs_root();
	rig.daemon = daemon_start(DAEMON_ARGS("--user"));
	fuse_start(&fs, 0);
	rig_open(&rig, NULL);
	raw_open(&raw, rig.daemon);
	raw_open(&hangs_up, rig.daemon);
	beside_start(rig.daemon);
	path = fuse_path(&fs, 'a');
	dir_fd = (int)CHECK_SYS(open(fs.dir, O_PATH | O_CLOEXEC));
	dsaio_file_close(open_file(&rig, path, O_RDONLY));
	atomic_store(&fs.control->is_flush_hung, true);

	start = now_usec();
	CHECK_FAILS(dsaio_file_drop(rig.client, path), -ETIMEDOUT, test_text("%s;10 s", path));
	CHECK(now_usec() - start >= 10 * SECONDS);
	raw_send(&hangs_up, &request, &dir_fd, 1);
	raw_close(&hangs_up);
	start = now_usec();
	raw_drain(&raw, "", dir_fd, &answer);
	CHECK(now_usec() - start >= 10 * SECONDS);
	drained = answer.reply->store_drain;
	CHECK_EQ(drained->closed, 0);
	CHECK_EQ(drained->closing, 1);
	CHECK_EQ(drained->files, 1);
	CHECK_EQ(drained->clients[0]->pid, (uint32_t)getpid());
	beside_ok();

	fuse_free_as_reported(rig.daemon);
	raw_drain(&raw, drained->store, -1, &after);
	CHECK_EQ(after.reply->store_drain->files, 0);
	beside_ok();
}

TEST_MAIN
