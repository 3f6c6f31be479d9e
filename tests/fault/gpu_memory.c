/*
 * GPU memory that the daemon imports, by hand: ops on it, handles that lie, clients that die, and errors of the
 * driver.
 */
#include "tests/gpu/imported.h"

#include <sys/mman.h>
#include <sys/wait.h>

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

	kit_open(&kit, ranges[row].standin, "gpu = direct\n");
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

	kit_open(&kit, ranges[row].standin, "gpu = direct\n");
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

	kit_open(&kit, "", "gpu = direct\n");
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

	kit_open(&kit, "", "gpu = direct\n");
	CHECK_EQ(gpu.own.cuMemCreate(&handle, MEMORY_BYTES, &properties, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemAddressReserve(&kit.memory, MEMORY_BYTES, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemMap(kit.memory, MEMORY_BYTES, 0, handle, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.map.cuMemSetAccess(kit.memory, MEMORY_BYTES, &access, 1), CUDA_SUCCESS);
	CHECK_EQ(gpu.export.cuMemExportToShareableHandle(
			 &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
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

	kit_open(&kit, "gpus=2", "gpu = direct\n");
	memory = gpu_alloc(MIB);
	freed = gpu_alloc(MIB);

	import_init(&import, handle_of(memory), MIB);
	for (size_t i = 0; i < 32; i += 3) { /* the part that is not zero */
		import_init(&import, handle_of(memory), MIB);
		import.handle.reserved[i] ^= 0x55;
		import_fails(&kit.raw, &import, -EFAULT, "cuIpcOpenMemHandle_v2()");
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
	import_fails(&kit.raw, &import, -EINVAL, "slab of 16777216 TiB");

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

TEST(made_up, "a made-up descriptor had the driver make a context before it was looked at")
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(memfd_create("test", MFD_CLOEXEC));
	struct device_import import;
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import.message);
	struct kit kit;

	kit_connect(&kit, gpu_start("", "gpu = direct\n"));
	words_set("cuDevicePrimaryCtxRetain=hold");
	import_init(&import, (CUipcMemHandle){ 0 }, MEMORY_BYTES);
	import.message.ipc_handle.len = 0;
	raw_call_fails(&kit.raw, &request, &fd, 1, -EFAULT, "cuMemImportFromShareableHandle()");
	kit_close(&kit);
}

TEST(ranges_beyond, "an op beyond the allocation, or after its end, is refused")
{
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
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

	kit_open(&kit, "", "gpu = direct\n");
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

	kit_open(&kit, "", "gpu = direct\n");
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

	kit_open(&kit, "", "gpu = direct\nclient_device_max = 7M\nclient_handles = 1\n");
	memory = gpu_alloc(MEMORY_BYTES);
	import_init(&import, handle_of(memory), MEMORY_BYTES);
	import_fails(&kit.raw, &import, -EDQUOT,
		     "4 MiB of at most 7 MiB of GPU memory;client_device_max");
	memory = gpu_alloc(MIB);
	import_init(&import, handle_of(memory), MIB);
	slab = import_call(&kit.raw, &import);
	(void)import_call(&kit.raw, &import);
	(void)import_call(&kit.raw, &import);
	import_fails(&kit.raw, &import, -EMFILE, "4 of at most 4 slabs;client_handles");
	free_call(&kit.raw, slab);
	(void)import_call(&kit.raw, &import);
	kit_check_works(&kit);
	kit_close(&kit);
}

TEST(shown, "dsaioctl shows the GPU memory of each client")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	ctl_says(kit.daemon, "clients", " 4 MiB\n"); /* the last column of its row */
	ctl_says(kit.daemon, "status --json --interval 0", "\"device_bytes\": 4194304");
	ctl_says(kit.daemon, "clients --json", "\"device_bytes\": 4194304");
	ctl_says(kit.daemon, "status --json --interval 0", "\"pool_bytes\": 0");
	kit_close(&kit);
}

/* ---- the end of memory while it is in use ---- */

TEST(free_in_use, "SlabFree while the driver moves bytes: the answer comes after the op")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	words_set("cuFileRead=hold");
	kit_start(&kit, RING_OP_READ, 0);
	held_wait("cuFileRead", true);
	free_send(&kit.raw, kit.slab);
	CHECK(!wait_readable(kit.raw.fd, 300000)); /* no answer can come */
	CHECK_EQ(n_imported(kit.daemon), 1);
	words_set("");
	CHECK_EQ(kit_result(&kit), 64 * KIB);
	pattern_check(bytes_of(kit.memory), 64 * KIB, 1, 0, "GPU memory");
	raw_receive_ok(&kit.raw);
	CHECK_EQ(n_imported(kit.daemon), 0);
	kit_close(&kit);
}

TEST(killed, "a client that is killed during ops: its memory goes with the last of them")
{
	struct daemon *daemon = gpu_start("", "gpu = direct\n");
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
};

TEST_TABLE(driver_fails, failures, "the op gets an errno, the log a message, and the daemon serves")
{
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	words_set(failures[row].words);
	kit_start(&kit, failures[row].opcode, 0);
	CHECK_EQ(ring_result_errno(kit_result(&kit)), failures[row].error);
	daemon_log_wait(kit.daemon, failures[row].log);
	words_set("");
	if (failures[row].opcode == RING_OP_READ)
		kit_check_works(&kit);
	kit_close(&kit);
}

TEST(unregistered, "ops on a file that the client has not registered fail, and write nothing")
{
	struct raw_file file;
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, "", "gpu = direct\n");
	raw_file(&kit.raw, daemon_path(kit.daemon, "f"), O_RDWR, &file);
	for (unsigned i = 0; i < 3; i++) { /* a read, a write by cuFile, and one of a copy */
		entry = kit_entry(&kit, i ? RING_OP_WRITE : RING_OP_READ, 0, i < 2 ? 4096 : 5);
		entry.file = file.id;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EOPNOTSUPP);
	}
	daemon_log_wait(kit.daemon, "has not asked whether cuFile takes the file");
	kit_check_works(&kit);
	kit_close(&kit);
}

TEST(import_fails_here, "cuFile that takes no imported memory refuses the import with the reason")
{
	struct device_import import;
	struct kit kit;

	kit_connect(&kit, gpu_start("buf_imported=no", "gpu = direct\n"));
	import_init(&import, handle_of(gpu_alloc(MIB)), MIB);
	import_fails(&kit.raw, &import, -EOPNOTSUPP, "cuFileBufRegister()");
	imported_wait(kit.daemon, 0);
	kit_close(&kit);
}

TEST_MAIN
