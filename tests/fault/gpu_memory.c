/*
 * GPU memory that the daemon imports, by hand: ops on it, handles that lie, clients that die, and a driver
 * that hangs.  Stand-ins for libcuda and libcufile take the place of the vendor's, here and in the daemon.
 */
#include "tests/gpu/host.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MEMORY_BYTES (4 * MIB)
#define FILE_BYTES (8 * MIB)

static CUipcMemHandle handle_of(CUdeviceptr memory)
{
	CUipcMemHandle handle;

	CHECK_EQ(gpu.lend.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
	return handle;
}

/* ---- requests ---- */

static uint64_t features(struct raw *raw, const struct daemon *daemon, Wire__GpuWay way,
			 const char *why)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = RAW_REQUEST(HELLO, hello, &hello);
	const Wire__HelloReply *reply;

	raw_connect(raw, daemon);
	hello.version_min = hello.version_max = 1;
	hello.features = UINT64_MAX;
	raw_call_ok(raw, &request, NULL, 0, &answer);
	reply = answer.reply->hello;
	CHECK_EQ(reply->gpu_way, way);
	CHECK_MSG(strstr(reply->gpu_why, why), "%s", reply->gpu_why);
	return reply->features;
}

/* The message has its own copies of UUID and handle. */
struct device_import {
	CUuuid uuid;
	CUipcMemHandle handle;
	Wire__DeviceImport message;
};

static void import_init(struct device_import *import, CUipcMemHandle handle, uint64_t size_bytes)
{
	*import = (struct device_import){ .handle = handle, .message = WIRE__DEVICE_IMPORT__INIT };
	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&import->uuid, 0), CUDA_SUCCESS);
	import->message.uuid = (ProtobufCBinaryData){ sizeof(import->uuid.bytes),
						      (uint8_t *)import->uuid.bytes };
	import->message.ipc_handle = (ProtobufCBinaryData){ sizeof(import->handle.reserved),
							    (uint8_t *)import->handle.reserved };
	import->message.size_bytes = size_bytes;
}

static uint32_t import_call(struct raw *raw, struct device_import *import)
{
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import->message);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_DEVICE_IMPORT);
	CHECK_EQ(answer.reply->device_import->size_bytes, import->message.size_bytes);
	CHECK_EQ(answer.n_fds, 0);
	return answer.reply->device_import->slab;
}

static void import_fails(struct raw *raw, struct device_import *import, int error,
			 const char *words)
{
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import->message);

	raw_call_fails(raw, &request, NULL, 0, error, words);
}

static void free_send(struct raw *raw, uint32_t slab)
{
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);

	slab_free.slab = slab;
	raw_send(raw, &request, NULL, 0);
}

static void free_call(struct raw *raw, uint32_t slab)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	free_send(raw, slab);
	raw_receive(raw, &answer);
	CHECK_MSG(answer.reply && !answer.reply->error, "%s",
		  answer.reply ? answer.reply->text : "closed");
}

/* ---- a client with GPU memory, and a file with a pattern ---- */

struct kit {
	struct daemon *daemon;
	struct raw raw;
	struct raw_file file;
	struct raw_channel channel;
	CUdeviceptr memory;
	uint32_t slab;
};

static void kit_connect(struct kit *kit, struct daemon *daemon)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileBuffered buffered = WIRE__FILE_BUFFERED__INIT;
	Wire__Request request = RAW_REQUEST(FILE_BUFFERED, file_buffered, &buffered);
	const char *path = daemon_path(daemon, "f");

	*kit = (struct kit){ .daemon = daemon, .raw = RAW_NONE };
	raw_open(&kit->raw, daemon);
	file_make_pattern(path, FILE_BYTES, 1);
	raw_file(&kit->raw, path, O_RDWR, &kit->file);
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	buffered.file = kit->file.id;
	raw_call_ok(&kit->raw, &request, &fd, 1, &answer);
	raw_channel(&kit->raw, raw_handle(&kit->raw), kit->file.store, 64, true, &kit->channel);
}

static void kit_import(struct kit *kit)
{
	struct device_import import;

	kit->memory = gpu_alloc(MEMORY_BYTES);
	import_init(&import, handle_of(kit->memory), MEMORY_BYTES);
	kit->slab = import_call(&kit->raw, &import);
}

static void kit_open(struct kit *kit, const char *standin, const char *keys)
{
	kit_connect(kit, gpu_start(standin, keys));
	kit_import(kit);
}

static void kit_close(struct kit *kit)
{
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

static struct ring_entry kit_entry(const struct kit *kit, uint8_t opcode, uint64_t off,
				   uint64_t len)
{
	return (struct ring_entry){
		.opcode = opcode, .file = kit->file.id, .slab = kit->slab, .off = off, .len = len
	};
}

/* Starts an op of 64 KiB, the place'th of its file and memory; its result comes by kit_result(). */
static void kit_start(struct kit *kit, uint8_t opcode, unsigned place)
{
	struct ring_entry entry = kit_entry(kit, opcode, place * 64 * KIB, 64 * KIB);

	entry.slab_off = entry.off;
	raw_put(&kit->channel, &entry);
	raw_ring(&kit->channel);
}

static int64_t kit_result(struct kit *kit)
{
	struct ring_completion completion;

	CHECK(raw_reap(&kit->channel, 1, &completion, 30000000));
	return completion.result;
}

/* It serves GPU memory. */
static void kit_check_works(struct kit *kit)
{
	memset(bytes_of(kit->memory), 0, MEMORY_BYTES);
	CHECK_EQ(raw_run_one(&kit->channel, kit_entry(kit, RING_OP_READ, 0, MEMORY_BYTES)),
		 MEMORY_BYTES);
	pattern_check(bytes_of(kit->memory), MEMORY_BYTES, 1, 0, "GPU memory");
}

/* ---- ops ---- */

static const struct {
	const char *what, *standin;
	uint64_t off, len, slab_off;
} ranges[] = {
	{ "aligned", "", 4096, MIB, 8192 },
	{ "a byte", "", 0, 1, 0 },
	{ "the last byte of the memory", "", 77, 1, MEMORY_BYTES - 1 },
	{ "several blocks", "", 0, MEMORY_BYTES, 0 },
	{ "all odd", "", 12345, 3 * MIB + 77, 4321 },
	{ "odd like each other", "", 4096 * 3 + 100, 2 * MIB + 1, 4096 * 5 + 100 },
	{ "within a sector", "", 4096 + 13, 77, 3 },
	{ "of whole sectors", "", 512, 1536, 512 },
	{ "all odd, and the driver moves less", "most=10000", 12345, MIB + 77, 4321 },
	{ "aligned, and the driver moves less", "most=65536", 0, MEMORY_BYTES, 0 },
};

TEST_TABLE(reads, ranges, "a read fills GPU memory, and nothing around it")
{
	const uint64_t off = ranges[row].off, len = ranges[row].len, at = ranges[row].slab_off;
	struct ring_entry entry;
	struct kit kit;
	char *bytes;

	kit_open(&kit, ranges[row].standin, "engine = gds\n");
	bytes = bytes_of(kit.memory);
	memset(bytes, 0xee, MEMORY_BYTES);
	entry = kit_entry(&kit, RING_OP_READ, off, len);
	entry.slab_off = at;
	CHECK_EQ(raw_run_one(&kit.channel, entry), len);
	pattern_check(bytes + at, len, 1, off, "GPU memory");
	for (uint64_t i = 0; i < MEMORY_BYTES; i++)
		CHECK_MSG((i >= at && i < at + len) || (uint8_t)bytes[i] == 0xee,
			  "byte %" PRIu64 " has changed", i);
	kit_close(&kit);
}

TEST_TABLE(writes, ranges, "a write takes the bytes of GPU memory, and changes none around them")
{
	const uint64_t off = ranges[row].off, len = ranges[row].len, at = ranges[row].slab_off;
	struct ring_entry entry;
	const char *path;
	struct kit kit;

	kit_open(&kit, ranges[row].standin, "engine = gds\n");
	path = daemon_path(kit.daemon, "f");
	pattern_fill(bytes_of(kit.memory) + at, len, 2, off);
	entry = kit_entry(&kit, RING_OP_WRITE, off, len);
	entry.slab_off = at;
	CHECK_EQ(raw_run_one(&kit.channel, entry), len);
	file_check_pattern(path, off, len, 2, off);
	file_check_pattern(path, 0, off, 1, 0);
	file_check_pattern(path, off + len, FILE_BYTES - off - len, 1, off + len);
	CHECK_EQ(file_size(path), FILE_BYTES);
	kit_close(&kit);
}

TEST(grows, "writes behind the end of the file, and a read that passes it")
{
	static const uint64_t lens[] = { 3 * MIB, 64 * KIB, 100001 };
	uint64_t end = FILE_BYTES;
	struct ring_entry entry;
	const char *path;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	path = daemon_path(kit.daemon, "f");
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		pattern_fill(bytes_of(kit.memory), lens[i], 3, end);
		entry = kit_entry(&kit, RING_OP_WRITE, end, lens[i]);
		entry.grow_end = end + lens[i];
		CHECK_EQ(raw_run_one(&kit.channel, entry), lens[i]);
		end += lens[i];
		CHECK_EQ(file_size(path), end);
	}
	file_check_pattern(path, FILE_BYTES, end - FILE_BYTES, 3, FILE_BYTES);
	entry = kit_entry(&kit, RING_OP_READ, end - 5000, 64 * KIB);
	CHECK_EQ(raw_run_one(&kit.channel, entry), 5000);
	pattern_check(bytes_of(kit.memory), 5000, 3, end - 5000, "GPU memory");
	kit_close(&kit);
}

TEST(descriptor, "memory that a client maps by itself comes as a descriptor")
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	const CUmemAccessDesc access = { properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = -1, null = -1;
	CUmemGenericAllocationHandle handle;
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct usage before;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	CHECK_EQ(gpu.own.cuMemCreate(&handle, MEMORY_BYTES, &properties, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemAddressReserve(&kit.memory, MEMORY_BYTES, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemMap(kit.memory, MEMORY_BYTES, 0, handle, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemSetAccess(kit.memory, MEMORY_BYTES, &access, 1), CUDA_SUCCESS);
	CHECK_EQ(gpu.lend.cuMemExportToShareableHandle(&fd, handle,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	import_init(&import, (CUipcMemHandle){ 0 }, MEMORY_BYTES);
	import.message.ipc_handle.len = 0;
	before = daemon_usage_settled(kit.daemon);
	raw_call_ok(&kit.raw, &request, &fd, 1, &answer);
	free_call(&kit.raw, kit.slab);
	kit.slab = answer.reply->device_import->slab;
	kit_check_works(&kit);
	free_call(&kit.raw, kit.slab);
	/* Descriptors of something else. */
	null = (int)CHECK_SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
	raw_call_fails(&kit.raw, &request, &null, 1, -EFAULT, "GPU memory");
	raw_call_fails(&kit.raw, &request, &kit.channel.ring_fd, 1, -EFAULT, "GPU memory");
	daemon_usage_back(kit.daemon, &before);
	kit_close(&kit);
}

/* ---- handles that lie ---- */

TEST(handles, "forged and stale handles, wrong sizes and UUIDs are refused, and the session lives")
{
	CUdeviceptr memory, freed;
	struct device_import import;
	CUipcMemHandle of_dead;
	struct kit kit;
	int ends[2];
	pid_t pid;

	kit_open(&kit, "gpus=2", "engine = gds\n");
	memory = gpu_alloc(MIB);
	freed = gpu_alloc(MIB);

	import_init(&import, handle_of(memory), MIB);
	for (size_t i = 0; i < 32; i += 3) { /* the part that is not zero */
		import_init(&import, handle_of(memory), MIB);
		import.handle.reserved[i] ^= 0x55;
		import_fails(&kit.raw, &import, -EFAULT, "cuIpcOpenMemHandle()");
	}
	import_init(&import, (CUipcMemHandle){ 0 }, MIB);
	import_fails(&kit.raw, &import, -EFAULT, "");

	import_init(&import, handle_of(freed), MIB);
	gpu_free(freed);
	import_fails(&kit.raw, &import, -EFAULT, "");

	CHECK_SYS(pipe(ends));
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		of_dead = handle_of(gpu_alloc(MIB));
		CHECK_EQ(write(ends[1], &of_dead, sizeof(of_dead)), sizeof(of_dead));
		_exit(0);
	}
	CHECK_EQ(read(ends[0], &of_dead, sizeof(of_dead)), sizeof(of_dead));
	child_wait_ok(pid);
	import_init(&import, of_dead, MIB);
	import_fails(&kit.raw, &import, -EFAULT, "");

	import_init(&import, handle_of(memory), MIB + 1);
	import_fails(&kit.raw, &import, -ERANGE, "1048577;1048576");
	import_init(&import, handle_of(memory), UINT64_MAX);
	import_fails(&kit.raw, &import, -EINVAL, "slab of 18446744073709551615 bytes");

	import_init(&import, handle_of(memory), MIB);
	import.uuid.bytes[7] ^= 1;
	import_fails(&kit.raw, &import, -ENODEV, "");
	import_init(&import, handle_of(memory), MIB);
	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&import.uuid, 1), CUDA_SUCCESS);
	import_fails(&kit.raw, &import, -ENODEV, "");

	import_init(&import, handle_of(memory), MIB);
	free_call(&kit.raw, import_call(&kit.raw, &import));
	kit_check_works(&kit);
	imported_wait(kit.daemon, 1);
	kit_close(&kit);
}

TEST(ranges_beyond, "an op beyond the allocation, or after its end, is refused")
{
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	for (unsigned i = 0; i < 2; i++) {
		entry = kit_entry(&kit, i ? RING_OP_WRITE : RING_OP_READ, 0, 4096);
		entry.slab_off = MEMORY_BYTES - 4095;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), ERANGE);
		entry.slab_off = MEMORY_BYTES;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), ERANGE);
		entry.slab_off = UINT64_MAX - 4095;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), ERANGE);
	}
	kit_check_works(&kit);
	free_call(&kit.raw, kit.slab);
	CHECK_EQ(ring_result_errno(
			 raw_run_one(&kit.channel, kit_entry(&kit, RING_OP_READ, 0, 4096))),
		 EBADF);
	kit_close(&kit);
}

TEST(twice, "an allocation that is imported twice is one mapping, until both are freed")
{
	struct device_import import;
	uint32_t second;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	import_init(&import, handle_of(kit.memory), MEMORY_BYTES);
	second = import_call(&kit.raw, &import);
	CHECK_EQ(n_imported(kit.daemon), 1);
	free_call(&kit.raw, kit.slab);
	CHECK_EQ(n_imported(kit.daemon), 1);
	kit.slab = second;
	kit_check_works(&kit);
	free_call(&kit.raw, second);
	CHECK_EQ(n_imported(kit.daemon), 0);
	kit_close(&kit);
}

TEST(freed_by_its_owner, "memory that its owner frees while it is imported: ops still end")
{
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	gpu_free(kit.memory);
	CHECK_EQ(raw_run_one(&kit.channel, kit_entry(&kit, RING_OP_READ, 0, MEMORY_BYTES)),
		 MEMORY_BYTES);
	free_call(&kit.raw, kit.slab);
	kit_import(&kit);
	kit_check_works(&kit);
	kit_close(&kit);
}

TEST(limits, "imports beyond the limits are refused, and room comes back")
{
	struct device_import import;
	CUdeviceptr memory;
	uint32_t slab;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\nclient_device_max = 6M\nclient_slabs = 3\n");
	memory = gpu_alloc(MEMORY_BYTES);
	import_init(&import, handle_of(memory), MEMORY_BYTES);
	import_fails(&kit.raw, &import, -EDQUOT, "4194304 of at most 6291456;client_device_max");
	memory = gpu_alloc(MIB);
	import_init(&import, handle_of(memory), MIB);
	slab = import_call(&kit.raw, &import);
	(void)import_call(&kit.raw, &import);
	import_fails(&kit.raw, &import, -EMFILE, "3 of at most 3;client_slabs");
	free_call(&kit.raw, slab);
	(void)import_call(&kit.raw, &import);
	kit_check_works(&kit);
	kit_close(&kit);
}

/* The output of dsaioctl has the text. */
static void ctl_says(const struct daemon *daemon, const char *command, const char *text)
{
	const char *build = getenv("BUILD");
	static char said[16384];
	size_t n;
	FILE *pipe = popen(test_text("%s/dsaioctl %s --socket %s 2>&1",
				     build && *build ? build : "build", command,
				     daemon->socket_path),
			   "re");

	CHECK(pipe);
	n = fread(said, 1, sizeof(said) - 1, pipe);
	said[n] = 0;
	CHECK_EQ(pclose(pipe), 0);
	CHECK_MSG(strstr(said, text), "%s: not \"%s\": %s", command, text, said);
}

TEST(shown, "dsaioctl shows the GPU memory of each client")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const char *line;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	daemon_status(kit.daemon, &answer);
	line = test_text("client %u: 4 MiB of its GPU memory is used directly\n",
			 answer.reply->status->clients[0]->client);
	ctl_says(kit.daemon, "status", line);
	ctl_says(kit.daemon, "clients", line);
	ctl_says(kit.daemon, "status --json", "\"device_bytes\": 4194304");
	ctl_says(kit.daemon, "clients --json", "\"device_bytes\": 4194304");
	ctl_says(kit.daemon, "status --json", "\"pool_bytes\": 0");
	kit_close(&kit);
}

/* ---- the end of memory while it is in use ---- */

TEST(free_in_use, "SlabFree while the driver moves bytes: the answer comes after the op")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	words_set("cuFileRead=hold");
	kit_start(&kit, RING_OP_READ, 0);
	held_wait("cuFileRead", true);
	free_send(&kit.raw, kit.slab);
	CHECK(!wait_readable(kit.raw.fd, 300000)); /* no answer can come */
	CHECK_EQ(n_imported(kit.daemon), 1);
	words_set("");
	CHECK_EQ(kit_result(&kit), 64 * KIB);
	pattern_check(bytes_of(kit.memory), 64 * KIB, 1, 0, "GPU memory");
	raw_receive(&kit.raw, &answer);
	CHECK(answer.reply && !answer.reply->error);
	CHECK_EQ(n_imported(kit.daemon), 0);
	kit_close(&kit);
}

TEST(killed, "a client that is killed during ops: its memory goes with the last of them")
{
	struct daemon *daemon = gpu_start("", "engine = gds\n");
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct kit kit, other;
	pid_t pid;

	kit_connect(&other, daemon); /* before the fork, which copies no memory of the stand-in */
	kit_import(&other);
	pid = (pid_t)CHECK_SYS(fork());
	if (!pid) {
		kit_connect(&kit, daemon);
		kit_import(&kit);
		pattern_fill(bytes_of(kit.memory), MEMORY_BYTES, 1, 0);
		words_set("cuFileWrite=hold");
		kit_start(&kit, RING_OP_WRITE, 0);
		for (;;)
			(void)pause();
	}
	held_wait("cuFileWrite", true);
	CHECK_EQ(n_imported(daemon), 2);
	CHECK_SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	kit_check_works(&other); /* also while the driver still holds the dead one's */
	CHECK_EQ(n_imported(daemon), 2);
	words_set("");
	imported_wait(daemon, 1);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	daemon_status(daemon, &answer);
	CHECK_EQ(answer.reply->status->clients[0]->device_bytes, MEMORY_BYTES);
	kit_check_works(&other);
	kit_close(&other);
	imported_wait(daemon, 0);
}

/* ---- a driver that hangs ---- */

TEST(hung_transfer, "transfers that hang hold workers only: other clients' ops go on")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	const Wire__Stuck *stuck;
	struct raw_slab slab;
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
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
	CHECK_EQ(log_count(kit.daemon, "has not come back"), 1);
	daemon_status(kit.daemon, &answer);
	CHECK(answer.reply->status->n_stuck > 0);
	stuck = answer.reply->status->stuck[0];
	CHECK_MSG(strcmp(stuck->what, "cuFileRead") == 0, "%s", stuck->what);
	CHECK_MSG(strstr(stuck->text, "nvidia-smi"), "%s", stuck->text);
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
	kit_open(&kit, "", "engine = gds\n");
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
	for (unsigned i = 0; i < N_IMPORTS; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&others[i % ARRAY_SIZE(others)], &answer);
		CHECK_MSG(answer.reply && !answer.reply->error, "%s", answer.reply->text);
	}
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

	kit_open(&kit, "", "engine = gds\n");
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
	enum { HANG_AT_STOP, HANG_IN_IMPORT, HANG_IN_OPS } when;
	unsigned n_calls;
} stops[] = {
	{ "an import", "cuIpcOpenMemHandle_v2=hold", "cuIpcOpenMemHandle_v2", HANG_IN_IMPORT, 1 },
	{ "the registration of memory", "cuFileBufRegister=hold", "cuFileBufRegister",
	  HANG_IN_IMPORT, 1 },
	{ "the registration of a file", "cuFileHandleRegister=hold", "cuFileHandleRegister",
	  HANG_IN_OPS, 3 },
	{ "the release of memory", "cuFileBufDeregister=hold", NULL, HANG_AT_STOP, 1 },
	{ "the close of a handle", "cuIpcCloseMemHandle=hold", NULL, HANG_AT_STOP, 1 },
	{ "the release of a file", "cuFileHandleDeregister=hold", NULL, HANG_AT_STOP, 1 },
};

TEST_TABLE(hung_stops, stops, "a stop gives up a call of the driver that moves no bytes")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	if (stops[row].when == HANG_AT_STOP)
		kit_check_works(&kit);
	words_set(stops[row].words);
	if (stops[row].when == HANG_IN_IMPORT)
		raw_send(&kit.raw, &request, NULL, 0);
	for (unsigned i = 0; stops[row].when == HANG_IN_OPS && i < stops[row].n_calls; i++)
		kit_start(&kit, RING_OP_READ, i);
	if (stops[row].held)
		held_wait(stops[row].held, true);
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	daemon_wait_end(kit.daemon, 0); /* the driver never returns */
	CHECK(daemon_log_has(kit.daemon,
			     test_text("although %u call%s of the GPU's driver, without bytes",
				       stops[row].n_calls, stops[row].n_calls == 1 ? "" : "s")));
	CHECK(daemon_log_has(kit.daemon, "stopped"));
	CHECK_EQ(access(kit.daemon->socket_path, F_OK), -1);
	raw_wait_closed(&kit.raw);
	words_set("");
	kit_close(&kit);
}

TEST(closes, "a daemon that has opened cuFile closes it before it ends")
{
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
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

	kit_open(&kit, "", "engine = gds\n");
	words_set(failed_closes[row].words);
	CHECK_SYS(kill(kit.daemon->pid, SIGTERM));
	daemon_wait_end(kit.daemon, 0);
	daemon_log_wait(kit.daemon, failed_closes[row].log);
	CHECK_EQ(log_count(kit.daemon, "cuFile is not closed"), 1);
	kit_close(&kit);
}

TEST(hung_import, "an import that hangs costs one line, and other clients' imports go on")
{
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	beside_start(kit.daemon);
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	words_set("cuIpcOpenMemHandle_v2=hold");
	raw_send(&kit.raw, &request, NULL, 0);
	held_wait("cuIpcOpenMemHandle_v2", true);
	kit_check_works(&kit);
	daemon_log_wait(kit.daemon, "GPU import has not come back");
	CHECK_EQ(log_count(kit.daemon, "has not come back"), 1);
	CHECK(daemon_log_has(kit.daemon, "nvidia-smi"));
	beside_ok();
	words_set("");
	raw_receive(&kit.raw, &answer);
	CHECK(answer.reply && !answer.reply->error);
	daemon_log_wait(kit.daemon, "GPU import came back");
	kit_close(&kit);
	beside_stop();
}

TEST(hung_release,
     "a release that hangs keeps its own session, and the client has its socket closed after it")
{
	struct pollfd end;
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
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

	kit_open(&kit, "", "engine = gds\n");
	path = daemon_path(kit.daemon, "f");
	for (unsigned i = 0; i < N; i++) {
		import_init(&import, handle_of(gpu_alloc(4096)), 4096);
		(void)import_call(&kit.raw, &import);
		raw_file(&kit.raw, path, O_RDONLY, &files[i]);
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

/* ---- errors of the driver ---- */

static const struct {
	const char *what, *words;
	uint8_t opcode;
	int error;
	const char *log;
} failures[] = {
	{ "an error of the file system", "cuFileRead=5", RING_OP_READ, EIO, "Input/output error" },
	{ "no space", "cuFileWrite=28", RING_OP_WRITE, ENOSPC, "No space left" },
	{ "memory that cuFile does not know", "cuFileRead=5012", RING_OP_READ, EFAULT,
	  "CU_FILE_CUDA_POINTER_INVALID" },
	{ "no such transfer is possible", "cuFileWrite=5008", RING_OP_WRITE, EOPNOTSUPP,
	  "CU_FILE_IO_NOT_SUPPORTED" },
	{ "an internal error", "cuFileRead=5030", RING_OP_READ, EIO, "CU_FILE_INTERNAL_ERROR" },
	{ "the file cannot be registered", "cuFileHandleRegister=5018", RING_OP_READ, EOPNOTSUPP,
	  "CU_FILE_INVALID_FILE_TYPE" },
};

TEST_TABLE(driver_fails, failures,
	   "the op gets an errno, the log a sentence, and the daemon serves")
{
	struct kit kit;

	kit_open(&kit, "", "engine = gds\n");
	words_set(failures[row].words);
	kit_start(&kit, failures[row].opcode, 0);
	CHECK_EQ(ring_result_errno(kit_result(&kit)), failures[row].error);
	daemon_log_wait(kit.daemon, failures[row].log);
	words_set("");
	if (failures[row].opcode == RING_OP_READ)
		kit_check_works(&kit);
	kit_close(&kit);
}

TEST(import_fails_here, "cuFile that takes no imported memory refuses the import with the reason")
{
	struct device_import import;
	struct kit kit;

	kit_connect(&kit, gpu_start("buf_imported=no", "engine = gds\n"));
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	import_fails(&kit.raw, &import, -EOPNOTSUPP, "cuFileBufRegister()");
	imported_wait(kit.daemon, 0);
	kit_close(&kit);
}

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
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
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
	raw_receive(&raw, &answer);
	CHECK_MSG(answer.reply && !answer.reply->error, "%s", answer.reply->text);
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
	for (unsigned i = 0; i < N_WAIT; i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&raw, &answer);
		CHECK_MSG(answer.reply && !answer.reply->error, "%s", answer.reply->text);
	}
	(void)import_call(&other, &import);
	raw_close(&raw);
	raw_close(&other);
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
