/*
 * The path of GPU memory that the daemon names, and imports while the probe runs.
 */
#include "tests/gpu/imported.h"

/* ---- paths ---- */

static const struct {
	const char *what, *standin, *keys;
	Wire__GpuPath path;
	bool has_feature;
	const char *why;
} paths[] = {
	{ "auto with nvidia-fs", "nvfs=2.24", "", WIRE__GPU_PATH__GPU_AUTO, true,
	  "nvidia-fs 2.24" },
	{ "auto in compatibility mode", "", "", WIRE__GPU_PATH__GPU_COPY, true,
	  "compatibility mode" },
	{ "direct in compatibility mode", "", "gpu = direct\n", WIRE__GPU_PATH__GPU_DIRECT, true,
	  "compatibility mode" },
	{ "copy", "nvfs=2.24", "gpu = copy\n", WIRE__GPU_PATH__GPU_COPY, false, "gpu = copy" },
	{ "direct without cuFile", "cuFileDriverOpen=5001", "gpu = direct\n",
	  WIRE__GPU_PATH__GPU_DIRECT, false, "CU_FILE_DRIVER_NOT_INITIALIZED" },
	{ "auto without a GPU", "cuInit=100", "", WIRE__GPU_PATH__GPU_COPY, false, "no GPU" },
};

TEST_TABLE(path, paths, "Hello names the path of GPU memory, and an import follows it")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = gpu_start("", paths[row].keys);
	struct device_import import;
	const Wire__Gpus *gpus;

	daemon_stop(daemon);
	CHECK_SYS(setenv("STANDIN", paths[row].standin, 1));
	daemon = gpu_daemon_again();
	probe_wait(daemon);
	daemon_status(daemon, &answer);
	gpus = answer.reply->status->gpus;
	if (gpus) {
		CHECK_EQ(gpus->path, paths[row].path);
		CHECK_MSG(strstr(gpus->why, paths[row].why), "%s", gpus->why);
	}
	CHECK_EQ((features(&raw, daemon, paths[row].path, paths[row].why) & RING_FEATURE_DEVICE) !=
			 0,
		 paths[row].has_feature);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	if (paths[row].has_feature && paths[row].path == WIRE__GPU_PATH__GPU_COPY) {
		import_fails(&raw, &import, -EOPNOTSUPP, paths[row].why);
		import.message.must_import = true;
	}
	if (paths[row].has_feature)
		(void)import_call(&raw, &import);
	else
		import_fails(&raw, &import, -EOPNOTSUPP, paths[row].why);
}

/* A daemon whose driver is asked without end. */
static struct daemon *probing_start(const char *keys)
{
	struct daemon *daemon;

	daemon_stop(gpu_start("", keys));
	words_set("cuFileDriverOpen=hold");
	daemon = gpu_daemon_again();
	held_wait("cuFileDriverOpen", true);
	return daemon;
}

TEST(probing, "an import that comes while the driver is asked waits for its answer")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = probing_start("gpu = direct\n");

	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	CHECK(features(&raw, daemon, WIRE__GPU_PATH__GPU_DIRECT, "not answered yet") &
	      RING_FEATURE_DEVICE);
	raw_send(&raw, &request, NULL, 0);
	CHECK(!wait_readable(raw.fd, 300000)); /* no answer can come */
	words_set("");
	raw_receive_ok(&raw);
}

TEST(probing_others, "imports that wait for the driver leave room for other requests")
{
	enum { N = 8, N_WAIT = N / 2, N_CLIENTS = 4 }; /* which are all that a user may have */
	struct raw raws[N_CLIENTS], other = RAW_NONE;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = probing_start(
		test_text("gpu = direct\nclient_handles = %u\n", 4u * N));
	struct raw_slab slab;

	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	for (unsigned k = 0; k < N_CLIENTS; k++) {
		raws[k] = (struct raw)RAW_NONE;
		raw_open(&raws[k], daemon);
		for (unsigned i = 0; i < N_WAIT; i++)
			raw_send(&raws[k], &request, NULL, 0);
		raw_call_fails(&raws[k], &request, NULL, 0, -EAGAIN,
			       "4 requests of this client;nvidia-smi");
		raw_slab(&raws[k], MIB, &slab);
		raw_slab_unmap(&slab);
	}
	raw_open(&other, daemon);
	raw_call_fails(&other, &request, NULL, 0, -EAGAIN, "16 of its user");
	raw_slab(&other, MIB, &slab);
	raw_slab_unmap(&slab);
	words_set("");
	for (unsigned k = 0; k < N_CLIENTS; k++) {
		for (unsigned i = 0; i < N_WAIT; i++)
			raw_receive_ok(&raws[k]);
		raw_close(&raws[k]);
	}
	(void)import_call(&other, &import);
	raw_close(&other);
}

TEST(probing_stop,
     "a stop while imports wait for the driver: the answer says that the daemon stops")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct raw raw = RAW_NONE;
	struct raw_slab slab;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = probing_start("gpu = direct\n");

	raw_open(&raw, daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	raw_send(&raw, &request, NULL, 0);
	raw_slab(&raw, MIB, &slab); /* so the import was read */
	raw_slab_unmap(&slab);
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	raw_receive(&raw, &answer);
	answer_check_fails(&answer, -ESHUTDOWN,
			   "GPU memory: the daemon is stopping;started again;new connection");
	words_set("");
	daemon_wait_end(daemon, 0);
	raw_close(&raw);
}

TEST(probing_gone, "a client that closes its connection while its requests wait is noticed")
{
	struct raw raw = RAW_NONE, next = RAW_NONE;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = probing_start("gpu = direct\nclient_handles = 1\n");

	raw_open(&raw, daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	raw_send(&raw, &request, NULL, 0);
	raw_send(&raw, &request, NULL, 0); /* stays in the socket */
	raw_open(&next, daemon);	   /* the first is taken by now, or soon */
	raw_close(&next);
	raw_close(&raw); /* this process lives on */
	CHECK(daemon_wait_clients(daemon, 0, UINT64_MAX));
	words_set("");
}

TEST_MAIN
