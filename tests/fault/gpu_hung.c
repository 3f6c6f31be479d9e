/*
 * A GPU driver that hangs in any of its calls: other clients and ops go on, and the daemon ends.
 */
#include "tests/fuse.h"
#include "tests/gpu/imported.h"

#include <poll.h>
#include <sys/socket.h>

TEST(hung_transfer, "transfers that hang hold workers only: other clients' ops go on")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__Hung *hung = NULL;
	struct raw_slab slab;
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	beside_start(kit.daemon);
	words_set("cuFileRead=hold");
	for (unsigned i = 0; i < 32; i++)
		kit_start(&kit, RING_OP_READ, i);
	held_wait("cuFileRead", true);
	beside_ok();
	/* The same client's ops on its host memory, too. */
	raw_slab(&kit.raw, MIB, &slab);
	entry = kit_entry(&kit, RING_OP_READ, MIB, MIB);
	entry.slab = slab.id;
	CHECK_EQ(raw_run_one(&kit.channel, entry), MIB);
	pattern_check(slab.memory, MIB, 1, MIB, "host memory");
	daemon_log_wait(kit.daemon, "cuFileRead has not come back");
	/* Reads of a device that is loaded may hang, too. */
	CHECK_EQ(daemon_log_count(kit.daemon, "cuFileRead has not come back"), 1);
	daemon_status(kit.daemon, &answer);
	for (size_t i = 0; i < answer.reply->status->n_hung; i++)
		if (strcmp(answer.reply->status->hung[i]->what, "cuFileRead") == 0)
			hung = answer.reply->status->hung[i];
	CHECK(hung);
	CHECK_MSG(strstr(hung->text, "nvidia-smi"), "%s", hung->text);
	beside_ok();
	words_set("");
	for (unsigned i = 0; i < 32; i++)
		CHECK_EQ(kit_result(&kit), 64 * KIB);
	raw_slab_unmap(&slab);
	kit_close(&kit);
	beside_stop();
}

TEST(hung_user, "transfers of one user that hang do not delay ops of another user")
{
	enum { NOBODY = 65534, N_IMPORTS = 70 }; /* more imports than a user has threads for them */
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct kit kit, theirs;
	struct raw_slab slab;
	struct raw others[3] = { RAW_NONE, RAW_NONE, RAW_NONE };
	struct ring_entry entry;
	const char *path;
	pid_t pid;

	test_needs_root();
	kit_open(&kit, "", "gpu = direct\n");
	path = daemon_path(kit.daemon, "f");
	CHECK_SYS(chmod(path, 0644));
	words_set("cuFileRead=hold cuIpcOpenMemHandle_v2=hold");
	for (unsigned i = 0; i < 32; i++)
		kit_start(&kit, RING_OP_READ, i);
	held_wait("cuFileRead", true);
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
		raw_open(&others[i], kit.daemon);
	for (unsigned i = 0; i < N_IMPORTS; i++) {
		import_init(&import, handle_of(gpu_alloc(4096)), 4096);
		raw_send(&others[i % ARRAY_SIZE(others)], &request, NULL, 0);
	}
	held_wait("cuIpcOpenMemHandle_v2", true);

	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		CHECK_SYS(setresgid(NOBODY, NOBODY, NOBODY));
		CHECK_SYS(setresuid(NOBODY, NOBODY, NOBODY));
		theirs = (struct kit){ .daemon = kit.daemon, .raw = RAW_NONE };
		raw_open(&theirs.raw, kit.daemon);
		raw_file(&theirs.raw, path, O_RDONLY, &theirs.file);
		raw_channel(&theirs.raw, raw_handle(&theirs.raw), theirs.file.store, 64, true,
			    &theirs.channel);
		raw_slab(&theirs.raw, MIB, &slab);
		theirs.slab = slab.id;
		for (unsigned i = 0; i < 2; i++) { /* by a lane, and by a worker */
			entry = kit_entry(&theirs, RING_OP_READ, i * 513, MIB - 1000);
			CHECK_EQ(raw_run_one(&theirs.channel, entry), MIB - 1000);
			pattern_check(slab.memory, MIB - 1000, 1, i * 513, "host memory");
		}
		_exit(0);
	}
	child_wait_ok(pid);
	words_set("");
	for (unsigned i = 0; i < 32; i++)
		CHECK_EQ(kit_result(&kit), 64 * KIB);
	for (unsigned i = 0; i < N_IMPORTS; i++)
		raw_receive_ok(&others[i % ARRAY_SIZE(others)]);
	for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
		raw_close(&others[i]);
	kit_close(&kit);
}

TEST(hung_stop,
     "a stop waits for a transfer that hangs, says so, and then for no import that hangs")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	words_set("cuFileRead=hold cuIpcOpenMemHandle_v2=hold");
	raw_send(&kit.raw, &request, NULL, 0);
	held_wait("cuIpcOpenMemHandle_v2", true);
	kit_start(&kit, RING_OP_READ, 0);
	daemon_log_wait(kit.daemon, "cuFileRead has not come back");
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	daemon_log_wait(kit.daemon, "and delays the daemon's exit until it returns");
	CHECK(daemon_log_has(kit.daemon, test_text("kill -9 %d", kit.daemon->pid)));
	CHECK(daemon_log_has(kit.daemon, "and delays the daemon's exit by some seconds"));
	words_set("cuIpcOpenMemHandle_v2=hold");
	CHECK_EQ(kit_result(&kit), 64 * KIB);
	daemon_wait_end(kit.daemon, 0);
	words_set("");
	kit_close(&kit);
}

static const struct {
	const char *what, *words, *held;
	enum { HANG_AT_STOP, HANG_IN_IMPORT, HANG_IN_FILE } when;
} stops[] = {
	{ "an import", "cuIpcOpenMemHandle_v2=hold", "cuIpcOpenMemHandle_v2", HANG_IN_IMPORT },
	{ "the registration of memory", "cuFileBufRegister=hold", "cuFileBufRegister",
	  HANG_IN_IMPORT },
	{ "the registration of a file", "cuFileHandleRegister=hold", "cuFileHandleRegister",
	  HANG_IN_FILE },
	{ "the release of memory", "cuFileBufDeregister=hold", NULL, HANG_AT_STOP },
	{ "the close of a handle", "cuIpcCloseMemHandle=hold", NULL, HANG_AT_STOP },
	{ "the release of a file", "cuFileHandleDeregister=hold", NULL, HANG_AT_STOP },
};

TEST_TABLE(hung_stops, stops, "a stop gives up a call of the driver that moves no bytes")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct raw_file other;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	raw_file(&kit.raw, daemon_path(kit.daemon, "f"), O_RDWR, &other);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	if (stops[row].when == HANG_AT_STOP)
		kit_check_works(&kit);
	words_set(stops[row].words);
	if (stops[row].when == HANG_IN_IMPORT)
		raw_send(&kit.raw, &request, NULL, 0);
	if (stops[row].when == HANG_IN_FILE)
		register_send(&kit.raw, other.id);
	if (stops[row].held)
		held_wait(stops[row].held, true);
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	daemon_wait_end(kit.daemon, 0); /* the driver never returns */
	CHECK(daemon_log_has(kit.daemon, "although 1 call without bytes of an op"));
	CHECK(daemon_log_has(kit.daemon, "stopped"));
	CHECK_EQ(access(kit.daemon->socket_path, F_OK), -1);
	raw_wait_closed(&kit.raw);
	words_set("");
	kit_close(&kit);
}

TEST(hung_stop_close, "a stop gives up an import and the close of a file that hang together")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct raw raw = RAW_NONE, other = RAW_NONE;
	struct daemon *daemon;
	struct raw_file file;
	struct fuse fs;

	test_needs_root();
	daemon_stop(gpu_start("nvfs=2.24", "gpu = direct\n")); /* its configuration is there now */
	daemon = daemon_start(
		DAEMON_ARGS("--user", "--config", test_text("%s/gpus.conf", test_dir())));
	fuse_start(&fs, 0);
	raw_open(&raw, daemon);
	raw_file(&raw, fuse_path(&fs, 'a'), O_RDWR, &file);
	raw_open(&other, daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	words_set("cuIpcOpenMemHandle_v2=hold");
	raw_send(&other, &request, NULL, 0);
	held_wait("cuIpcOpenMemHandle_v2", true);
	atomic_store(&fs.control->is_flush_hung, true);
	raw_close(&raw);
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	daemon_log_wait(daemon, "although 2 calls without bytes of an op");
	daemon_log_wait(daemon, "stopped");
	/* The kernel waits for the close at the end of the process, too. */
	fuse_free_as_reported(daemon);
	daemon_wait_end(daemon, 0); /* the driver never returns */
	raw_close(&other);
	words_set("");
}

TEST(closes, "a daemon that has opened cuFile closes it before it ends")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	kit_check_works(&kit);
	words_set("cuFileDriverClose_v2=hold");
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	raw_wait_closed(&kit.raw);
	held_wait("cuFileDriverClose_v2", true);
	words_set("");
	daemon_wait_end(kit.daemon, 0);
	CHECK(!daemon_log_has(kit.daemon, "cuFile is not closed"));
	kit_close(&kit);
}

static const struct {
	const char *what, *words, *log;
} failed_closes[] = {
	{ "hangs", "cuFileDriverClose_v2=hang", "cuFileDriverClose() has not returned within 2 s" },
	{ "fails", "cuFileDriverClose_v2=5001", "CU_FILE_DRIVER_NOT_INITIALIZED (5001)" },
};

TEST_TABLE(closes_not, failed_closes,
	   "a close of cuFile that does not succeed costs one line, and no exit")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	words_set(failed_closes[row].words);
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	daemon_wait_end(kit.daemon, 0);
	daemon_log_wait(kit.daemon, failed_closes[row].log);
	CHECK_EQ(daemon_log_count(kit.daemon, "cuFile is not closed"), 1);
	kit_close(&kit);
}

TEST(hung_import, "an import that hangs costs one line, and other clients' imports go on")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	beside_start(kit.daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	words_set("cuIpcOpenMemHandle_v2=hold");
	raw_send(&kit.raw, &request, NULL, 0);
	held_wait("cuIpcOpenMemHandle_v2", true);
	kit_check_works(&kit);
	daemon_log_wait(kit.daemon, "GPU import has not come back");
	CHECK_EQ(daemon_log_count(kit.daemon, "has not come back"), 1);
	CHECK(daemon_log_has(kit.daemon, "nvidia-smi"));
	beside_ok();
	words_set("");
	raw_receive_ok(&kit.raw);
	daemon_log_wait(kit.daemon, "GPU import came back");
	kit_close(&kit);
	beside_stop();
}

TEST(hung_release,
     "a release that hangs keeps its own session, and the client has its socket closed after it")
{
	struct pollfd end;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	beside_start(kit.daemon);
	words_set("cuIpcCloseMemHandle=hold");
	CHECK_SYS(shutdown(kit.raw.fd, SHUT_WR));
	held_wait("cuIpcCloseMemHandle", true);
	beside_ok();
	end = (struct pollfd){ .fd = kit.raw.fd, .events = POLLIN };
	CHECK_EQ(poll(&end, 1, 300), 0); /* no end of file can come */
	words_set("");
	raw_wait_closed(&kit.raw);
	kit_close(&kit);
	beside_stop();
}

TEST(hung_releases, "releases of a dead client that hang stop no other client of the same user")
{
	enum { N = 100 }; /* more than a user has threads */
	struct device_import import;
	struct raw_file files[N], file;
	struct raw_slab slab;
	struct raw late = RAW_NONE;
	struct ring_entry entry;
	const char *path;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	path = daemon_path(kit.daemon, "f");
	for (unsigned i = 0; i < N; i++) {
		import_init(&import, handle_of(gpu_alloc(4096)), 4096);
		(void)import_call(&kit.raw, &import);
		raw_file(&kit.raw, path, O_RDONLY, &files[i]);
		register_send(&kit.raw, files[i].id);
		raw_receive_ok(&kit.raw);
		entry = kit_entry(&kit, RING_OP_READ, 0, 64 * KIB);
		entry.file = files[i].id;
		CHECK_EQ(raw_run_one(&kit.channel, entry), 64 * KIB);
	}
	words_set("cuIpcCloseMemHandle=hold cuFileHandleDeregister=hold");
	CHECK_SYS(shutdown(kit.raw.fd, SHUT_WR));
	held_wait("cuIpcCloseMemHandle", true);
	raw_open(&late, kit.daemon);
	raw_slab(&late, MIB, &slab);
	raw_file(&late, path, O_RDONLY, &file);
	raw_slab_unmap(&slab);
	raw_close(&late);
	words_set("");
	raw_wait_closed(&kit.raw);
	imported_wait(kit.daemon, 0);
	kit_close(&kit);
}

TEST_MAIN
