/*
 * Files that clients have registered with cuFile, by hand: ids that lie, floods, clients that die, and a
 * driver that refuses or hangs.  Stand-ins for libcuda and libcufile take the place of the vendor's.
 */
#include "tests/gpu/host.h"

/* The message has its own copy of the UUID. */
struct question {
	CUuuid uuid;
	Wire__FileGpu message;
};

static void question_init(struct question *question, uint32_t file)
{
	*question = (struct question){ .message = WIRE__FILE_GPU__INIT };
	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&question->uuid, 0), CUDA_SUCCESS);
	question->message.file = file;
	question->message.uuid = (ProtobufCBinaryData){ sizeof(question->uuid.bytes),
							(uint8_t *)question->uuid.bytes };
}

static void ask_ok(struct raw *raw, uint32_t file)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct question question;
	Wire__Request request = RAW_REQUEST(FILE_GPU, file_gpu, &question.message);

	question_init(&question, file);
	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY__NOT_SET);
	CHECK_EQ(answer.n_fds, 0);
}

static void ask_fails(struct raw *raw, uint32_t file, int error, const char *words)
{
	struct question question;
	Wire__Request request = RAW_REQUEST(FILE_GPU, file_gpu, &question.message);

	question_init(&question, file);
	raw_call_fails(raw, &request, NULL, 0, error, words);
}

static void ask_send(struct raw *raw, uint32_t file)
{
	struct question question;
	Wire__Request request = RAW_REQUEST(FILE_GPU, file_gpu, &question.message);

	question_init(&question, file);
	raw_send(raw, &request, NULL, 0);
}

static void remove_send(struct raw *raw, uint32_t file)
{
	Wire__FileRemove message = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(FILE_REMOVE, file_remove, &message);

	message.file = file;
	raw_send(raw, &request, NULL, 0);
}

/* A daemon, a client of it, and its file. */
struct kit {
	struct daemon *daemon;
	struct raw raw;
	struct raw_file file;
};

static void kit_open(struct kit *kit, const char *standin, const char *keys)
{
	*kit = (struct kit){ .daemon = gpu_start(standin, keys), .raw = RAW_NONE };
	probe_wait(kit->daemon);
	raw_open(&kit->raw, kit->daemon);
	file_make_pattern(daemon_path(kit->daemon, "f"), MIB, 1);
	raw_file(&kit->raw, daemon_path(kit->daemon, "f"), O_RDWR, &kit->file);
}

TEST(ids, "ids and UUIDs that lie are refused, and the session lives")
{
	struct raw other = RAW_NONE;
	struct raw_file others;
	struct question question;
	Wire__Request request = RAW_REQUEST(FILE_GPU, file_gpu, &question.message);
	struct kit kit;

	kit_open(&kit, "gpus=2", "");
	raw_open(&other, kit.daemon);
	for (unsigned i = 0; i < 3;
	     i++) /* its last one has an index that the first client has not */
		raw_file(&other, daemon_path(kit.daemon, "f"), O_RDWR, &others);
	ask_fails(&kit.raw, others.id, -EBADF, "file");
	ask_fails(&kit.raw, 0, -EBADF, "file");
	ask_fails(&kit.raw, UINT32_MAX, -EBADF, "file");
	question_init(&question, kit.file.id);
	question.message.uuid.len--;
	raw_call_fails(&kit.raw, &request, NULL, 0, -EINVAL, "a UUID of 15 bytes");
	question_init(&question, kit.file.id);
	question.uuid.bytes[3] ^= 0x55;
	raw_call_fails(&kit.raw, &request, NULL, 0, -ENODEV, "UUID");

	ask_ok(&kit.raw, kit.file.id);
	ask_ok(&kit.raw, kit.file.id);
	remove_send(&kit.raw, kit.file.id);
	raw_receive_ok(&kit.raw);
	ask_fails(&kit.raw, kit.file.id, -EBADF, "file");
	ask_ok(&other, others.id);
	raw_close(&other);
	raw_close(&kit.raw);
}

static const struct {
	const char *what, *words;
	int error;
	const char *text;
} refusals[] = {
	{ "it cannot do I/O there", "cuFileHandleRegister=5008", -EOPNOTSUPP,
	  "/f;CU_FILE_IO_NOT_SUPPORTED (5008)" },
	{ "an internal error", "cuFileHandleRegister=5030", -EIO,
	  "/f;CU_FILE_INTERNAL_ERROR (5030)" },
	{ "permission", "cuFileHandleRegister=5025", -EOPNOTSUPP, "CU_FILE_PERMISSION_DENIED" },
	{ "no memory", "cuFileHandleRegister=5036", -ENOMEM, "CU_FILE_GPU_MEMORY_PINNING_FAILED" },
	{ "no context", "cuCtxPushCurrent_v2=709", -EIO, "cuCtxPushCurrent_v2()" },
};

TEST_TABLE(refused, refusals,
	   "a refusal of cuFile's is an errno and a message, and the next try counts")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	words_set(refusals[row].words);
	for (unsigned i = 0; i < 2; i++)
		ask_fails(&kit.raw, kit.file.id, refusals[row].error, refusals[row].text);
	words_set("");
	ask_ok(&kit.raw, kit.file.id);
	raw_close(&kit.raw);
}

TEST(unused, "a daemon that uses no GPU memory says why")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = copy\n");
	ask_fails(&kit.raw, kit.file.id, -EOPNOTSUPP, "/f;gpu = copy");
	raw_close(&kit.raw);
}

TEST(hung, "questions that hang cost one line, leave room for other requests, and stop nobody else")
{
	enum { N = 16, N_WAIT = N / 4 / 2 }; /* all of them are for one store */
	struct raw other = RAW_NONE;
	struct raw_file files[N_WAIT + 1], others;
	struct raw_slab slab;
	struct kit kit;

	kit_open(&kit, "", test_text("client_handles = %u\n", 4u * N));
	for (unsigned i = 0; i <= N_WAIT; i++)
		raw_file(&kit.raw, daemon_path(kit.daemon, "f"), O_RDWR, &files[i]);
	words_set("cuFileHandleRegister=hold");
	ask_send(&kit.raw, files[0].id);
	held_wait("cuFileHandleRegister", true);
	ask_fails(&kit.raw, files[0].id, -EAGAIN, "/f;already");
	for (unsigned i = 1; i < N_WAIT; i++)
		ask_send(&kit.raw, files[i].id);
	ask_fails(&kit.raw, files[N_WAIT].id, -EAGAIN, "/f;2 files of this user;2 of its store");
	raw_slab(&kit.raw, MIB, &slab);
	raw_slab_unmap(&slab);
	raw_open(&other, kit.daemon);
	raw_file(&other, daemon_path(kit.daemon, "f"), O_RDWR, &others);
	ask_fails(&other, others.id, -EAGAIN, "2 files of this user, of at most 4");
	daemon_log_wait(kit.daemon, "cuFileHandleRegister has not come back");
	CHECK_EQ(daemon_log_count(kit.daemon, "has not come back"), 1);
	words_set("");
	for (unsigned i = 0; i < N_WAIT; i++)
		raw_receive_ok(&kit.raw);
	ask_ok(&other, others.id);
	raw_close(&other);
	raw_close(&kit.raw);
}

TEST(removed, "a file that is removed while it is registered stays until then")
{
	struct kit kit;

	kit_open(&kit, "", "");
	words_set("cuFileHandleRegister=hold");
	ask_send(&kit.raw, kit.file.id);
	held_wait("cuFileHandleRegister", true);
	remove_send(&kit.raw, kit.file.id);
	CHECK(!wait_readable(kit.raw.fd, 300000)); /* no answer can come */
	words_set("");
	raw_receive_ok(&kit.raw);
	raw_receive_ok(&kit.raw);
	raw_close(&kit.raw);
}

TEST(killed, "a client that dies while its file is registered: the file goes after that")
{
	struct usage before;
	struct raw raw = RAW_NONE;
	struct raw_file file;
	struct kit kit;

	kit_open(&kit, "", "");
	ask_ok(&kit.raw, kit.file.id); /* what the driver opens once */
	before = daemon_usage_settled(kit.daemon);
	raw_open(&raw, kit.daemon);
	raw_file(&raw, daemon_path(kit.daemon, "f"), O_RDWR, &file);
	words_set("cuFileHandleRegister=hold");
	ask_send(&raw, file.id);
	held_wait("cuFileHandleRegister", true);
	raw_close(&raw);
	ask_ok(&kit.raw, kit.file.id);
	words_set("");
	CHECK(daemon_wait_clients(kit.daemon, 1, UINT64_MAX));
	daemon_usage_back(kit.daemon, &before);
	raw_close(&kit.raw);
}

TEST(probing, "a question while the GPUs are probed is refused, and one after that is not")
{
	struct kit kit;

	kit_open(&kit, "", "");
	raw_close(&kit.raw);
	daemon_stop(kit.daemon);
	words_set("cuFileDriverOpen=hold");
	kit.daemon = gpu_daemon_again();
	held_wait("cuFileDriverOpen", true);
	kit.raw = (struct raw)RAW_NONE;
	raw_open(&kit.raw, kit.daemon);
	raw_file(&kit.raw, daemon_path(kit.daemon, "f"), O_RDWR, &kit.file);
	ask_fails(&kit.raw, kit.file.id, -EAGAIN, "/f;has not answered yet");
	raw_close(&kit.raw);
	words_set("");
}

TEST_MAIN
