/*
 * The way of GPU memory that the daemon names, what clients have measured, and imports while the probe runs.
 */
#include "tests/gpu/imported.h"

/* ---- ways ---- */

static const struct {
	const char *what, *standin, *keys;
	Wire__GpuWay way;
	bool has_feature;
	const char *why;
} ways[] = {
	{ "auto with nvidia-fs", "nvfs=2.24", "", WIRE__GPU_WAY__GPU_AUTO, true, "nvidia-fs 2.24" },
	{ "auto in compatibility mode", "", "", WIRE__GPU_WAY__GPU_AUTO, true,
	  "compatibility mode" },
	{ "gds in compatibility mode", "", "engine = gds\n", WIRE__GPU_WAY__GPU_DIRECT, true,
	  "compatibility mode" },
	{ "libaio", "nvfs=2.24", "engine = libaio\n", WIRE__GPU_WAY__GPU_COPY, false,
	  "engine = libaio" },
	{ "gds without cuFile", "cuFileDriverOpen=5001", "engine = gds\n",
	  WIRE__GPU_WAY__GPU_DIRECT, false, "CU_FILE_DRIVER_NOT_INITIALIZED" },
	{ "auto without a GPU", "cuInit=100", "", WIRE__GPU_WAY__GPU_COPY, false, "no GPU" },
};

TEST_TABLE(way, ways, "Hello names the way of GPU memory, and an import follows it")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = gpu_start("", ways[row].keys);
	struct device_import import;
	const Wire__Gpus *gpus;

	daemon_stop(daemon);
	CHECK_SYS(setenv("STANDIN", ways[row].standin, 1));
	daemon = daemon_start(DAEMON_ARGS("--config", test_text("%s/gpus.conf", test_dir())));
	for (bool is_probing = true; is_probing;) { /* the reply to an import waits for the probe */
		struct raw first = RAW_NONE;

		raw_open(&first, daemon);
		raw_close(&first);
		daemon_status(daemon, &answer);
		gpus = answer.reply->status->gpus;
		is_probing = gpus && strstr(gpus->why, "not answered yet");
		if (!is_probing && gpus) {
			CHECK_EQ(gpus->way, ways[row].way);
			CHECK_MSG(strstr(gpus->why, ways[row].why), "%s", gpus->why);
		}
		answer_free(&answer);
		answer = (struct answer)ANSWER_NONE;
	}
	CHECK_EQ((features(&raw, daemon, ways[row].way, ways[row].why) & RING_FEATURE_DEVICE) != 0,
		 ways[row].has_feature);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	if (ways[row].has_feature)
		(void)import_call(&raw, &import);
	else
		import_fails(&raw, &import, -EOPNOTSUPP, ways[row].why);
}

/* ---- what clients have measured ---- */

struct rates {
	CUuuid uuid;
	Wire__GpuRate rate, *all;
	Wire__GpuRates message;
};

/* A report, or a question if n is 0. */
static void rates_init(struct rates *rates, uint32_t store, size_t n)
{
	*rates = (struct rates){ .rate = WIRE__GPU_RATE__INIT,
				 .all = &rates->rate,
				 .message = WIRE__GPU_RATES__INIT };
	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&rates->uuid, 0), CUDA_SUCCESS);
	rates->rate.direct_rate = 7;
	rates->rate.copied_rate = 5;
	rates->rate.is_direct = true;
	rates->message.store = store;
	rates->message.uuid = (ProtobufCBinaryData){ sizeof(rates->uuid.bytes),
						     (uint8_t *)rates->uuid.bytes };
	rates->message.n_rates = n;
	rates->message.rates = &rates->all;
}

static void rates_call(struct raw *raw, struct rates *rates, struct answer *answer)
{
	Wire__Request request = RAW_REQUEST(GPU_RATES, gpu_rates, &rates->message);

	raw_call_ok(raw, &request, NULL, 0, answer);
	CHECK_EQ(answer->reply->body_case, WIRE__REPLY__BODY_GPU_RATES);
}

static void rates_fail(struct raw *raw, struct rates *rates, int error, const char *words)
{
	Wire__Request request = RAW_REQUEST(GPU_RATES, gpu_rates, &rates->message);

	raw_call_fails(raw, &request, NULL, 0, error, words);
}

TEST(rates, "the user's next client gets the rates that one has measured; lies are refused")
{
	_cleanup_(answer_free) struct answer none = ANSWER_NONE, kept = ANSWER_NONE;
	const Wire__GpuRate *rate;
	struct rates rates;
	struct raw next = RAW_NONE;
	struct kit kit;

	kit_open(&kit, "", "");
	rates_init(&rates, kit.file.store, 0);
	rates_call(&kit.raw, &rates, &none);
	CHECK_EQ(none.reply->gpu_rates->n_rates, 0);

	rates_init(&rates, kit.file.store + 1000, 1);
	rates_fail(&kit.raw, &rates, -ENXIO, "store;none with this id");
	rates_init(&rates, kit.file.store, 1);
	rates.rate.copied_rate = UINT64_MAX;
	rates_fail(&kit.raw, &rates, -EINVAL, "18446744073709551615;2^50");
	rates_init(&rates, kit.file.store, 1);
	for (unsigned i = 0; i < 300; i++) { /* GPUs that the host does not have cost nothing */
		rates.uuid.bytes[0] = (char)(rates.uuid.bytes[0] + 1);
		rates.uuid.bytes[1] = (char)i;
		rates_fail(&kit.raw, &rates, -ENODEV, "no GPU-");
	}

	for (unsigned i = 0; i < 3; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		rates_init(&rates, kit.file.store, 1);
		rates.rate.is_write = true;
		rates.rate.len_class = 2;
		rates.rate.direct_rate = 7 + i; /* the last one is kept */
		rates.rate.error = i;
		rates_call(&kit.raw, &rates, &answer);
	}
	raw_open(&next, kit.daemon);
	rates_init(&rates, kit.file.store, 0);
	rates_call(&next, &rates, &kept);
	CHECK_EQ(kept.reply->gpu_rates->n_rates, 1);
	rate = kept.reply->gpu_rates->rates[0];
	CHECK(rate->is_write && rate->is_direct);
	CHECK_EQ(rate->len_class, 2);
	CHECK_EQ(rate->direct_rate, 9);
	CHECK_EQ(rate->copied_rate, 5);
	CHECK_EQ(rate->error, 2);
	ctl_says(kit.daemon, "status", "direct 9 B/s, copy failed (No such file or directory)");
	ctl_says(kit.daemon, "status --json", "\"copied_rate\": null");
	raw_close(&next);
	kit_close(&kit);
}

TEST(rates_unwanted, "a daemon whose engine is configured keeps no rates")
{
	struct rates rates;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	rates_init(&rates, kit.file.store, 1);
	rates_fail(&kit.raw, &rates, -EOPNOTSUPP, "does not choose by them");
	kit_close(&kit);
}

TEST(probing, "an import that comes while the driver is asked waits for its answer")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = gpu_start("", "engine = gds\n");

	daemon_stop(daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	words_set("cuFileDriverOpen=hold");
	daemon = daemon_start(DAEMON_ARGS("--config", test_text("%s/gpus.conf", test_dir())));
	held_wait("cuFileDriverOpen", true);
	CHECK(features(&raw, daemon, WIRE__GPU_WAY__GPU_DIRECT, "not answered yet") &
	      RING_FEATURE_DEVICE);
	raw_send(&raw, &request, NULL, 0);
	CHECK(!wait_readable(raw.fd, 300000)); /* no answer can come */
	words_set("");
	raw_receive_ok(&raw);
}

/* A daemon whose driver is asked without end, and a client of it. */
static struct daemon *probing_start(const char *keys, struct raw *raw)
{
	struct daemon *daemon = gpu_start("", keys);

	daemon_stop(daemon);
	words_set("cuFileDriverOpen=hold");
	daemon = daemon_start(DAEMON_ARGS("--config", test_text("%s/gpus.conf", test_dir())));
	held_wait("cuFileDriverOpen", true);
	raw_open(raw, daemon);
	return daemon;
}

TEST(probing_others, "imports that wait for the driver leave room for other requests")
{
	enum { N = 8, N_WAIT = N / 2 };
	struct raw raw = RAW_NONE, other = RAW_NONE;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct daemon *daemon = probing_start(
		"engine = gds\nclient_requests = 8\nuser_requests = 8\n", &raw);
	struct raw_slab slab;

	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	for (unsigned i = 0; i < N_WAIT; i++)
		raw_send(&raw, &request, NULL, 0);
	raw_call_fails(&raw, &request, NULL, 0, -EAGAIN, "4 requests of this client;nvidia-smi");
	raw_slab(&raw, MIB, &slab);
	raw_slab_unmap(&slab);
	raw_open(&other, daemon);
	raw_call_fails(&other, &request, NULL, 0, -EAGAIN, "4 of its user");
	raw_slab(&other, MIB, &slab);
	raw_slab_unmap(&slab);
	words_set("");
	for (unsigned i = 0; i < N_WAIT; i++)
		raw_receive_ok(&raw);
	(void)import_call(&other, &import);
	raw_close(&raw);
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
	struct daemon *daemon = probing_start("engine = gds\n", &raw);

	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	raw_send(&raw, &request, NULL, 0);
	raw_slab(&raw, MIB, &slab); /* so the import was read */
	raw_slab_unmap(&slab);
	CHECK_SYS(kill(daemon->pid, SIGTERM));
	raw_receive(&raw, &answer);
	answer_check_fails(&answer, -ECANCELED,
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
	struct daemon *daemon = probing_start("engine = gds\nclient_requests = 1\n", &raw);

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
