/*
 * Stores: automatic stores, profiles that are set and saved, and the rights that status needs.
 */
#include "tests/stores.h"
#include "tests/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NOBODY 65534

static char *config_make(const char *text)
{
	char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK(fflush(file) == 0);
	return path;
}

/* A daemon of which nothing is configured. */
static struct daemon *daemon_of_nothing(void)
{
	return daemon_start_with(&(struct daemon_options){ .store_dir = "" });
}

/* The tests' directory may be a container's overlayfs, which has to be named. */
static void needs_automatic(void)
{
	struct statfs fs;

	CHECK_SYS(statfs(test_dir(), &fs));
	if (fs.f_type == OVERLAYFS_SUPER_MAGIC)
		test_skip("%s is on overlayfs: TMPDIR may be elsewhere", test_dir());
}

/* Its account of the store with this path; what it points to is *ret_answer's. */
static const Wire__Store *store_at(const struct daemon *daemon, const char *path,
				   struct answer *ret_answer)
{
	daemon_status(daemon, ret_answer);
	for (size_t i = 0; i < ret_answer->reply->status->n_stores; i++)
		if (!strcmp(ret_answer->reply->status->stores[i]->path, path))
			return ret_answer->reply->status->stores[i];
	test_fail("status has no store at %s", path);
}

/* ---- settings ---- */

TEST(window_max, "window_max bounds the window of two clients that use the store together")
{
	enum { N = 64, BYTES = 256 << 10 };
	struct daemon *daemon = daemon_start_with(&(struct daemon_options){
		.store_dir = "",
		.args = DAEMON_ARGS("--config",
				    config_make(test_text("[store t]\npath = %s\nwindow_max = 1M\n",
							  test_dir()))) });
	const char *path = test_text("%s/f", test_dir());
	struct rig rigs[2] = { RIG_NONE, RIG_NONE };
	struct dsaio_op *ops[2][N];

	file_make_pattern(path, N * BYTES, 1);
	for (int i = 0; i < 2; i++) {
		struct rig *rig = &rigs[i];
		void *memory;

		rig->daemon = daemon;
		rig_open(rig, NULL);
		CHECK_CALL(
			dsaio_open(rig->client, path, O_RDONLY, NULL, &rig->files[rig->n_files++]));
		CHECK_CALL(dsaio_alloc(rig->client, N * BYTES, NULL, &memory));
		for (int k = 0; k < N; k++)
			CHECK_CALL(dsaio_pread_async(rig->handle, rig->files[0],
						     (char *)memory + k * BYTES, BYTES,
						     (uint64_t)k * BYTES, &ops[i][k]));
	}
	for (int k = 0; k < N; k++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const uint64_t bytes = store_at(daemon, test_dir(), &answer)->window_bytes;

		CHECK_MSG(bytes > 0 && bytes <= MIB, "%" PRIu64, bytes);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(op_wait(ops[i][k], -1), BYTES);
			dsaio_op_free(ops[i][k]);
		}
	}
	rig_close(&rigs[0]);
	rig_close(&rigs[1]);
}

/* ---- automatic stores ---- */

static void write_and_read(struct rig *rig, const char *path)
{
	struct dsaio_file *file = rig_file(rig, path, O_RDWR | O_CREAT);
	void *memory;

	CHECK_CALL(dsaio_alloc(rig->client, 65536, NULL, &memory));
	pattern_fill(memory, 65536, 1, 0);
	CHECK_EQ(dsaio_pwrite(rig->handle, file, memory, 65536, 0), 65536);
	memset(memory, 0, 65536);
	CHECK_EQ(dsaio_pread(rig->handle, file, memory, 65536, 0), 65536);
	pattern_check(memory, 65536, 1, 0, path);
	file_check_pattern(path, 0, 65536, 1, 0);
}

TEST(automatic, "a daemon of which nothing is configured serves the file system of a file")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon_of_nothing() };
	const Wire__StatusReply *status;

	needs_automatic();
	rig_open(&rig, NULL);
	write_and_read(&rig, test_text("%s/f", test_dir()));
	write_and_read(&rig, test_text("%s/g", test_dir()));
	daemon_status(rig.daemon, &answer);
	status = answer.reply->status;
	CHECK_EQ(status->n_stores, 1);
	CHECK(status->stores[0]->is_automatic);
	CHECK(status->stores[0]->name[0]);
	CHECK_EQ(strcmp(status->stores[0]->profile_source, "default"), 0);
	CHECK_EQ(strcmp(status->stores[0]->allowed, ""), 0);
	CHECK_EQ(status->stores[0]->clients, 1);
	daemon_log_wait(rig.daemon, "automatic, for user");
}

TEST(automatic_tmpfs, "automatic stores: tmpfs, beside the file system of another file")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon_of_nothing() };
	const Wire__Store *store;

	needs_automatic();
	rig_open(&rig, NULL);
	write_and_read(&rig, test_text("%s/f", test_dir_in("/dev/shm")));
	write_and_read(&rig, test_text("%s/f", test_dir()));
	store = store_at(rig.daemon, "/dev/shm", &answer);
	CHECK_EQ(answer.reply->status->n_stores, 2);
	CHECK(store->is_automatic);
	CHECK_EQ(strncmp(store->name, "tmpfs-", 6), 0);
	CHECK_EQ(strcmp(store->fs_type, "tmpfs"), 0);
}

TEST(automatic_beside, "automatic stores: beside one that is configured")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	const Wire__Store *store;

	write_and_read(&rig, daemon_path(rig.daemon, "f"));
	write_and_read(&rig, test_text("%s/f", test_dir_in("/dev/shm")));
	store = store_at(rig.daemon, rig.daemon->store_dir, &answer);
	CHECK(!store->is_automatic);
	CHECK_EQ(strcmp(store->name, "t"), 0);
	CHECK_EQ(answer.reply->status->n_stores, 2);
}

TEST(not_automatic, "auto_stores = no: a file of another file system is refused with what to add")
{
	_cleanup_(rig_close) struct rig rig = {
		.daemon = daemon_start(
			DAEMON_ARGS("--config", config_make("[daemon]\nauto_stores = no\n")))
	};
	const char *path = test_text("%s/f", test_dir_in("/dev/shm"));
	struct dsaio_file *file;

	file_make_pattern(path, 4096, 1);
	rig_open(&rig, NULL);
	write_and_read(&rig, daemon_path(rig.daemon, "f"));
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDONLY, NULL, &file), -ENXIO,
		    test_text("auto_stores = no;(it serves t=%s);[store NAME];path = /dev/shm;"
			      "dsaiod.conf;--store NAME=/dev/shm",
			      rig.daemon->store_dir));
}

TEST(overlay, "a file system that may lie on one that hangs has to be named; a user's own takes it")
{
	const char *dir, *path;
	struct dsaio_file *file;
	struct store store;

	store_make(&store, STORE_OVERLAY, 0);
	dir = store.path;
	path = store_path(&store, "f");
	{
		_cleanup_(rig_close) struct rig rig = { .daemon = daemon_of_nothing() };

		rig_open(&rig, NULL);
		CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR | O_CREAT, NULL, &file), -ENXIO,
			    test_text("overlayfs;path = %.40s", dir));
		rig_close(&rig);
		daemon_stop(rig.daemon);
	}
	{
		_cleanup_(rig_close) struct rig rig = {
			.daemon = daemon_start(DAEMON_ARGS("--store", test_text("o=%s", dir)))
		};

		rig_open(&rig, NULL);
		write_and_read(&rig, path);
		rig_close(&rig);
		daemon_stop(rig.daemon);
	}
	{
		_cleanup_(rig_close) struct rig rig = {
			.daemon = daemon_start_with(&(struct daemon_options){
				.store_dir = "", .args = DAEMON_ARGS("--user") })
		};

		rig_open(&rig, NULL);
		write_and_read(&rig, path);
	}
}

/* Its files then have the device numbers of the layers: the store could not be found, however it was named. */
TEST(overlay_layers,
     "a file is on the store of its overlayfs, whose layers are on two file systems")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const char *lower = test_text("%s/low", test_dir()),
		   *dir = test_text("%s/over", test_dir());
	struct stat on_lower, itself;
	struct store upper;
	char buf[4096];

	store_make(&upper, STORE_EXT4, 32 * MIB);
	CHECK_SYS(mkdir(lower, 0755));
	CHECK_SYS(mkdir(dir, 0755));
	CHECK_SYS(mkdir(store_path(&upper, "up"), 0755));
	CHECK_SYS(mkdir(store_path(&upper, "work"), 0755));
	file_make_pattern(test_text("%s/f", lower), 4096, 1);
	if (mount("none", dir, "overlay", 0,
		  test_text("xino=off,lowerdir=%s,upperdir=%s/up,workdir=%s/work", lower,
			    upper.path, upper.path)) < 0)
		test_skip("overlayfs on two file systems: %s", strerror(errno));
	CHECK_SYS(stat(dir, &itself));
	CHECK_SYS(stat(test_text("%s/f", dir), &on_lower));
	if (on_lower.st_dev == itself.st_dev)
		test_skip("this kernel gives files the device number of the overlayfs");

	rig.daemon = daemon_start_with(&(struct daemon_options){
		.store_dir = "", .args = DAEMON_ARGS("--store", test_text("o=%s", dir)) });
	rig_open(&rig, NULL);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, test_text("%s/f", dir), O_RDONLY), buf,
			     sizeof(buf), 0),
		 (int64_t)sizeof(buf));
	pattern_check(buf, sizeof(buf), 1, 0, "f");
	write_and_read(&rig, test_text("%s/g", dir));
	write_and_read(&rig, test_text("%s/f", dir)); /* copied to the upper layer */
	CHECK_EQ(store_at(rig.daemon, dir, &answer)->clients, 1);
	CHECK_EQ(answer.reply->status->n_stores, 1);
}

/* ---- profiles ---- */

static void profile_set(const struct daemon *daemon, const char *name, int fd,
			const Wire__Profile *profile, struct answer *ret_answer)
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;
	Wire__Request request = RAW_REQUEST(PROFILE_SET, profile_set, &set);

	set.name = (char *)(uintptr_t)name;
	set.profile = (Wire__Profile *)(uintptr_t)profile;
	raw_call_ok(&raw, &request, &fd, fd >= 0, ret_answer);
	CHECK_EQ(ret_answer->reply->body_case, WIRE__REPLY__BODY_STORE_GET);
}

static void store_get(const struct daemon *daemon, const char *name, int fd,
		      struct answer *ret_answer)
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	Wire__StoreGet get = WIRE__STORE_GET__INIT;
	Wire__Request request = RAW_REQUEST(STORE_GET, store_get, &get);

	get.name = (char *)(uintptr_t)name;
	raw_call_ok(&raw, &request, &fd, fd >= 0, ret_answer);
	CHECK_EQ(ret_answer->reply->body_case, WIRE__REPLY__BODY_STORE_GET);
}

static void check_profile(const struct answer *answer, uint32_t queue_depth, const char *source)
{
	const Wire__Store *store = answer->reply->store_get;

	CHECK_EQ(store->profile->queue_depth, queue_depth);
	CHECK_MSG(!strcmp(store->profile_source, source), "the profile is from %s, not %s",
		  store->profile_source, source);
}

static Wire__Profile profile_of_depth(uint32_t queue_depth)
{
	Wire__Profile profile = WIRE__PROFILE__INIT;

	profile.block_size = 256u << 10;
	profile.queue_depth = queue_depth;
	profile.overlap_events = true;
	profile.intra_op_parallelism = 1;
	return profile;
}

/* The profile on a store of a handle without one. */
static uint32_t channel_depth(const struct daemon *daemon, const char *store)
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ChannelOpen open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &open);

	open.handle = raw_handle(&raw);
	open.store = raw_store(store);
	open.entries = 16;
	open.without_rings = true;
	raw_call_ok(&raw, &request, NULL, 0, &answer);
	return answer.reply->channel_open->queue_depth;
}

TEST(saved,
     "a profile that was set applies to new channels, is saved across restarts, and is reset")
{
	const Wire__Profile profile = profile_of_depth(17);
	struct daemon *daemon = daemon_start(NULL);

	for (unsigned round = 0; round < 2; round++) {
		_cleanup_(answer_free) struct answer set = ANSWER_NONE, before = ANSWER_NONE,
						     after = ANSWER_NONE, reset = ANSWER_NONE;

		store_get(daemon, "t", -1, &before);
		check_profile(&before, 128, "default");
		CHECK_EQ(channel_depth(daemon, "t"), 128);
		profile_set(daemon, "t", -1, &profile, &set);
		check_profile(&set, 17, "saved");
		CHECK_EQ(strcmp(set.reply->text, ""), 0);
		CHECK_EQ(channel_depth(daemon, "t"), 17);

		if (round == 0) /* it outlasts a kill, too */
			daemon_stop(daemon);
		else
			daemon_kill(daemon);
		daemon = daemon_start(NULL);
		store_get(daemon, "t", -1, &after);
		check_profile(&after, 17, "saved");
		CHECK_EQ(after.reply->store_get->profile->block_size, 256u << 10);
		CHECK_EQ(channel_depth(daemon, "t"), 17);

		profile_set(daemon, "t", -1, NULL, &reset);
		check_profile(&reset, 128, "default");
		daemon_stop(daemon);
		daemon = daemon_start(NULL);
	}
}

TEST(saved_order,
     "a set profile takes precedence over the configuration's, and that over the default")
{
	const char *dir = test_text("%s/store", test_dir());
	const Wire__Profile profile = profile_of_depth(17);
	_cleanup_(answer_free) struct answer before = ANSWER_NONE, set = ANSWER_NONE,
					     after = ANSWER_NONE, reset = ANSWER_NONE;
	const struct daemon_options options = {
		.store_dir = "",
		.args = DAEMON_ARGS("--config", config_make(test_text("[store c]\npath = %s\n"
								      "queue_depth = 33\n",
								      dir)))
	};
	struct daemon *daemon;

	CHECK_SYS(mkdir(dir, 0755));
	daemon = daemon_start_with(&options);
	store_get(daemon, "c", -1, &before);
	check_profile(&before, 33, "configuration");
	profile_set(daemon, "c", -1, &profile, &set);
	check_profile(&set, 17, "saved");
	daemon_stop(daemon);
	daemon = daemon_start_with(&options);
	store_get(daemon, "c", -1, &after);
	check_profile(&after, 17, "saved");
	profile_set(daemon, "c", -1, NULL, &reset);
	check_profile(&reset, 33, "configuration");
}

TEST(saved_damaged, "a saved profile that is damaged is logged and left alone")
{
	const Wire__Profile profile = profile_of_depth(17);
	_cleanup_(answer_free) struct answer set = ANSWER_NONE, after = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);
	char *path;
	glob_t found;

	profile_set(daemon, "t", -1, &profile, &set);
	daemon_stop(daemon);
	CHECK_EQ(glob(test_text("%s/state/*.conf", test_dir()), 0, NULL, &found), 0);
	CHECK_EQ(found.gl_pathc, 1);
	path = test_text("%s", found.gl_pathv[0]);
	globfree(&found);
	CHECK_SYS(truncate(path, 100));

	daemon = daemon_start(NULL);
	daemon_log_wait(daemon, path);
	store_get(daemon, "t", -1, &after);
	check_profile(&after, 128, "default");
	CHECK_EQ(file_size(path), 100);
}

TEST(not_saved,
     "a profile that cannot be saved applies until the end, and the answer says for how long")
{
	const Wire__Profile profile = profile_of_depth(17);
	_cleanup_(answer_free) struct answer set = ANSWER_NONE;
	_cleanup_(closep) int fd = (int)CHECK_SYS(open("/dev/shm", O_PATH | O_CLOEXEC));
	struct daemon *daemon = daemon_of_nothing();

	profile_set(daemon, "", fd, &profile, &set);
	check_profile(&set, 17, "set");
	CHECK(set.reply->store_get->is_automatic);
	CHECK_MSG(strstr(set.reply->text, "not saved") && strstr(set.reply->text, "a minute"),
		  "it says: %s", set.reply->text);
	CHECK_EQ(channel_depth(daemon, set.reply->store_get->name), 17);
}

TEST(asked_about, "a store is asked about by its name, or by anything that lies on it")
{
	_cleanup_(answer_free) struct answer by_name = ANSWER_NONE, by_file = ANSWER_NONE,
					     by_directory = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(closep) int fd = -1;
	_cleanup_(closep) int dir_fd = -1;
	Wire__StoreGet get = WIRE__STORE_GET__INIT;
	Wire__Request request = RAW_REQUEST(STORE_GET, store_get, &get);
	struct daemon *daemon = daemon_start(NULL);

	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	fd = (int)CHECK_SYS(open(daemon_path(daemon, "f"), O_RDONLY | O_CLOEXEC));
	dir_fd = (int)CHECK_SYS(open(daemon->store_dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	store_get(daemon, "t", -1, &by_name);
	store_get(daemon, "", fd, &by_file);
	store_get(daemon, "", dir_fd, &by_directory);
	CHECK_EQ(by_name.reply->store_get->store, 1);
	CHECK_EQ(by_file.reply->store_get->store, 1);
	CHECK_EQ(by_directory.reply->store_get->store, 1);

	raw_open(&raw, daemon);
	get.name = (char *)(uintptr_t) "u";
	raw_call_fails(&raw, &request, NULL, 0, -ENXIO, "store u;t=");
	get.name = (char *)(uintptr_t) "";
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "name;descriptor");
}

/* ---- status ---- */

TEST(status, "status tells one's own user's clients, and of others only how much they have")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer all = ANSWER_NONE;
	void *memory;
	pid_t pid;

	test_needs_root();
	rig_open(&rig, NULL);
	CHECK_CALL(dsaio_alloc(rig.client, MIB, NULL, &memory));
	(void)rig_file(&rig, "f", O_RDWR | O_CREAT);
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		_cleanup_(answer_free) struct answer own = ANSWER_NONE;
		const Wire__StatusReply *status;
		struct dsaio_client *client;

		child_become(NOBODY);
		client = client_open(rig.daemon);
		daemon_status(rig.daemon, &own);
		status = own.reply->status;
		CHECK(!status->is_admin);
		CHECK_EQ(status->n_clients, 2); /* that one, and the asking client */
		for (size_t i = 0; i < status->n_clients; i++)
			CHECK_EQ(status->clients[i]->uid, NOBODY);
		CHECK(status->others);
		CHECK_EQ(status->others->clients, 1);
		CHECK_EQ(status->others->slabs, 1);
		CHECK_EQ(status->others->files, 1);
		CHECK_EQ(status->others->handles, 1);
		CHECK(status->others->pool_bytes >= MIB);
		CHECK_EQ(status->n_stores, 1);
		(void)dsaio_disconnect(client);
		_exit(0);
	}
	child_wait_ok(pid);
	daemon_status(rig.daemon, &all);
	CHECK(all.reply->status->is_admin);
	CHECK(!all.reply->status->others);
	CHECK(all.reply->status->n_clients >= 2);
}

TEST(status_admin, "status tells all to a member of admin_group, and Hello says so")
{
	struct daemon *daemon;
	pid_t pid;

	test_needs_root();
	daemon = daemon_start(DAEMON_ARGS(
		"--config", config_make(test_text("[daemon]\nadmin_group = %d\n", NOBODY))));
	{
		_cleanup_(rig_close) struct rig rig = { .daemon = daemon };

		rig_open(&rig, NULL);
		pid = (pid_t)CHECK_SYS(fork());
		if (pid == 0) {
			_cleanup_(answer_free) struct answer all = ANSWER_NONE, set = ANSWER_NONE;
			const Wire__Profile profile = profile_of_depth(5);

			child_become(NOBODY);
			daemon_status(daemon, &all);
			CHECK(all.reply->status->is_admin);
			CHECK(!all.reply->status->others);
			CHECK_EQ(all.reply->status->n_clients, 2);
			profile_set(daemon, "t", -1, &profile, &set);
			check_profile(&set, 5, "saved");
			_exit(0);
		}
		child_wait_ok(pid);
	}
}

TEST(reload_hangs, "a reload that hung in a mount did not say in which, nor what frees it")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE, other = RAW_NONE;
	_cleanup_(answer_free) struct answer status = ANSWER_NONE, answer = ANSWER_NONE;
	Wire__Reload reload = WIRE__RELOAD__INIT;
	Wire__Request request = RAW_REQUEST(RELOAD, reload, &reload);
	const int64_t until_usec = now_usec() + 60000000;
	const Wire__Hung *hung;
	struct daemon *daemon;
	struct fuse fs;

	test_needs_root();
	fuse_start(&fs, 0);
	daemon = daemon_start(DAEMON_ARGS("--config", config_make("")));
	(void)config_make(test_text("[store dead]\npath = %s\n", fs.dir));
	atomic_store(&fs.control->hung_pid, daemon->pid);
	raw_open(&raw, daemon);
	raw_open(&other, daemon);
	raw_send(&raw, &request, NULL, 0);
	do {
		answer_free(&status);
		daemon_status(daemon, &status);
	} while (!status.reply->status->n_hung && !wait_readable(raw.fd, 100000) &&
		 now_usec() < until_usec);
	CHECK_EQ(status.reply->status->n_hung, 1);
	hung = status.reply->status->hung[0];
	CHECK_MSG(strcmp(hung->what, "check") == 0 && strcmp(hung->file, fs.dir) == 0 &&
			  strncmp(hung->mount, fs.dir, strlen(fs.dir)) == 0,
		  "%s %s %s", hung->what, hung->file, hung->mount);
	raw_call_fails(&other, &request, NULL, 0, -EBUSY, "another reload;dsaioctl status");
	fuse_free_as_reported(daemon);
	raw_receive(&raw, &answer);
	answer_check_fails(&answer, -EINVAL, "[store dead];fuse");
}

TEST_MAIN
