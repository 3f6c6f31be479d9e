/*
 * For fault tests: a client by hand whose GPU memory the daemon imports, on the stand-ins for libcuda and libcufile.
 */
#ifndef DSAIO_TESTS_GPU_IMPORTED_H
#define DSAIO_TESTS_GPU_IMPORTED_H

#include "tests/gpu/host.h"

#define MEMORY_BYTES (4 * MIB)
#define FILE_BYTES (8 * MIB)

static inline CUipcMemHandle handle_of(CUdeviceptr memory)
{
	CUipcMemHandle handle;

	CHECK_EQ(gpu.export.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
	return handle;
}

/* ---- requests ---- */

static inline uint64_t features(struct raw *raw, const struct daemon *daemon, Wire__GpuPath path,
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
	CHECK_EQ(reply->gpu_path, path);
	CHECK_MSG(strstr(reply->gpu_why, why), "%s", reply->gpu_why);
	return reply->features;
}

/* The message has its own copies of UUID and handle. */
struct device_import {
	CUuuid uuid;
	CUipcMemHandle handle;
	Wire__DeviceImport message;
};

static inline void import_init(struct device_import *import, CUipcMemHandle handle,
			       uint64_t size_bytes)
{
	*import = (struct device_import){ .handle = handle, .message = WIRE__DEVICE_IMPORT__INIT };
	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&import->uuid, 0), CUDA_SUCCESS);
	import->message.uuid = (ProtobufCBinaryData){ sizeof(import->uuid.bytes),
						      (uint8_t *)import->uuid.bytes };
	import->message.ipc_handle = (ProtobufCBinaryData){ sizeof(import->handle.reserved),
							    (uint8_t *)import->handle.reserved };
	import->message.size_bytes = size_bytes;
}

static inline uint32_t import_call(struct raw *raw, struct device_import *import)
{
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import->message);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->body_case, WIRE__REPLY__BODY_DEVICE_IMPORT);
	CHECK_EQ(answer.reply->device_import->size_bytes, import->message.size_bytes);
	CHECK_EQ(answer.n_fds, 0);
	return answer.reply->device_import->slab;
}

static inline void import_fails(struct raw *raw, struct device_import *import, int error,
				const char *words)
{
	Wire__Request request = RAW_REQUEST(DEVICE_IMPORT, device_import, &import->message);

	raw_call_fails(raw, &request, NULL, 0, error, words);
}

static inline void free_send(struct raw *raw, uint32_t slab)
{
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);

	slab_free.slab = slab;
	raw_send(raw, &request, NULL, 0);
}

static inline void free_call(struct raw *raw, uint32_t slab)
{
	free_send(raw, slab);
	raw_receive_ok(raw);
}

/* Asks whether cuFile takes the file. */
static inline void register_send(struct raw *raw, uint32_t file)
{
	Wire__FileGpu message = WIRE__FILE_GPU__INIT;
	Wire__Request request = RAW_REQUEST(FILE_GPU, file_gpu, &message);
	CUuuid uuid;

	CHECK_EQ(gpu.find.cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
	message.file = file;
	message.uuid = (ProtobufCBinaryData){ sizeof(uuid.bytes), (uint8_t *)uuid.bytes };
	raw_send(raw, &request, NULL, 0);
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

static inline void kit_connect(struct kit *kit, struct daemon *daemon)
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

static inline void kit_import(struct kit *kit)
{
	struct device_import import;

	kit->memory = gpu_alloc(MEMORY_BYTES);
	import_init(&import, handle_of(kit->memory), MEMORY_BYTES);
	kit->slab = import_call(&kit->raw, &import);
	register_send(&kit->raw, kit->file.id); /* no probe runs any more */
	raw_receive_ok(&kit->raw);
}

static inline void kit_open(struct kit *kit, const char *standin, const char *keys)
{
	kit_connect(kit, gpu_start(standin, keys));
	kit_import(kit);
}

static inline void kit_close(struct kit *kit)
{
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

static inline struct ring_entry kit_entry(const struct kit *kit, uint8_t opcode, uint64_t off,
					  uint64_t len)
{
	return (struct ring_entry){
		.opcode = opcode, .file = kit->file.id, .slab = kit->slab, .off = off, .len = len
	};
}

/* Starts an op of 64 KiB, the place'th of its file and memory; its result comes by kit_result(). */
static inline void kit_start(struct kit *kit, uint8_t opcode, unsigned place)
{
	struct ring_entry entry = kit_entry(kit, opcode, place * 64 * KIB, 64 * KIB);

	entry.slab_off = entry.off;
	raw_put(&kit->channel, &entry);
	raw_ring(&kit->channel);
}

static inline int64_t kit_result(struct kit *kit)
{
	struct ring_completion completion;

	CHECK(raw_reap(&kit->channel, 1, &completion, 30000000));
	return completion.result;
}

/* It serves GPU memory. */
static inline void kit_check_works(struct kit *kit)
{
	memset(bytes_of(kit->memory), 0, MEMORY_BYTES);
	CHECK_EQ(raw_run_one(&kit->channel, kit_entry(kit, RING_OP_READ, 0, MEMORY_BYTES)),
		 MEMORY_BYTES);
	pattern_check(bytes_of(kit->memory), MEMORY_BYTES, 1, 0, "GPU memory");
}

/* The output of dsaioctl has the text. */
static inline void ctl_says(const struct daemon *daemon, const char *command, const char *text)
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

#endif
