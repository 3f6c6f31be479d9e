/*
 * A process that exports GPU memory to a test.
 */
#ifndef DSAIO_TESTS_UNIT_GPU_EXPORTER_H
#define DSAIO_TESTS_UNIT_GPU_EXPORTER_H

#include "tests/gpu/load.h"

#include <check.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct exporter {
	pid_t pid;
	int fd;
};

/* Commands: 'e' exports its memory, 'm' exports what it maps by itself, 'f' frees it, 'b' replies with its first
   byte.  It begins with "abc...", repeated. */
struct exporter_command {
	size_t what; /* a letter: a char would leave bytes between unset */
	size_t bytes;
};

static inline void exporter_send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec range = { &byte, 1 };
	struct msghdr message = { .msg_iov = &range,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	if (sendmsg(socket, &message, 0) != 1)
		_exit(1);
}

static inline void exporter_fill(char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)('a' + i % 26);
}

static inline void exporter_check(bool is)
{
	if (!is)
		_exit(1);
}

static inline CUdeviceptr exporter_map(const struct standins *gpu, size_t bytes, int *ret_fd)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	const CUmemAccessDesc access = { properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory = 0;

	exporter_check(gpu->own.cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
	exporter_check(gpu->map.cuMemAddressReserve(&memory, bytes, 0, 0, 0) == CUDA_SUCCESS);
	exporter_check(gpu->map.cuMemMap(memory, bytes, 0, handle, 0) == CUDA_SUCCESS);
	exporter_check(gpu->map.cuMemSetAccess(memory, bytes, &access, 1) == CUDA_SUCCESS);
	exporter_check(gpu->export.cuMemExportToShareableHandle(
			       ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
		       CUDA_SUCCESS);
	return memory;
}

static inline void exporter_run(const struct standins *gpu, int fd)
{
	struct exporter_command command;
	CUipcMemHandle handle;
	CUdeviceptr memory = 0;
	CUcontext context;
	char reply = 0;
	int shared;

	exporter_check(gpu->find.cuInit(0) == CUDA_SUCCESS);
	exporter_check(gpu->copy.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	exporter_check(gpu->copy.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
	while (read(fd, &command, sizeof(command)) == sizeof(command)) {
		switch (command.what) {
		case 'e':
			exporter_check(gpu->own.cuMemAlloc_v2(&memory, command.bytes) ==
				       CUDA_SUCCESS);
			exporter_check(gpu->export.cuIpcGetMemHandle(&handle, memory) ==
				       CUDA_SUCCESS);
			exporter_fill(gpu->look.standin_bytes(memory), command.bytes);
			exporter_check(write(fd, &handle, sizeof(handle)) == sizeof(handle));
			break;
		case 'm':
			memory = exporter_map(gpu, command.bytes, &shared);
			exporter_fill(gpu->look.standin_bytes(memory), command.bytes);
			exporter_send_fd(fd, shared);
			(void)close(shared);
			break;
		case 'f':
			exporter_check(gpu->own.cuMemFree_v2(memory) == CUDA_SUCCESS);
			exporter_check(write(fd, &reply, 1) == 1);
			break;
		default:
			exporter_check(write(fd, gpu->look.standin_bytes(memory), 1) == 1);
		}
	}
	_exit(0);
}

static inline struct exporter exporter_start(const struct standins *gpu)
{
	struct exporter exporter;
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	exporter.pid = fork();
	ck_assert_int_ge(exporter.pid, 0);
	if (!exporter.pid) {
		(void)close(ends[0]);
		exporter_run(gpu, ends[1]);
	}
	(void)close(ends[1]);
	exporter.fd = ends[0];
	return exporter;
}

/* Waits for its end. */
static inline void exporter_end(struct exporter *exporter)
{
	if (!exporter->pid)
		return;
	(void)close(exporter->fd);
	ck_assert_int_eq(waitpid(exporter->pid, NULL, 0), exporter->pid);
	exporter->pid = 0;
}

static inline char exporter_ask(const struct exporter *exporter, unsigned char what)
{
	const struct exporter_command command = { .what = what };
	char reply;

	ck_assert_int_eq(write(exporter->fd, &command, sizeof(command)), sizeof(command));
	ck_assert_int_eq(read(exporter->fd, &reply, 1), 1);
	return reply;
}

static inline CUipcMemHandle exporter_export(const struct exporter *exporter, size_t bytes)
{
	const struct exporter_command command = { 'e', bytes };
	CUipcMemHandle handle;

	ck_assert_int_eq(write(exporter->fd, &command, sizeof(command)), sizeof(command));
	ck_assert_int_eq(read(exporter->fd, &handle, sizeof(handle)), sizeof(handle));
	return handle;
}

static inline int exporter_export_mapped(const struct exporter *exporter, size_t bytes)
{
	const struct exporter_command command = { 'm', bytes };
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec range = { &byte, 1 };
	struct msghdr message = { .msg_iov = &range,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	int fd;

	ck_assert_int_eq(write(exporter->fd, &command, sizeof(command)), sizeof(command));
	ck_assert_int_eq(recvmsg(exporter->fd, &message, MSG_CMSG_CLOEXEC), 1);
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

#endif
