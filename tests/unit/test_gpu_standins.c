/*
 * The stand-ins for libcuda and libcufile refuse and count misuse that is no error of an import or a transfer.  (Tests
 * of the product fail where they behave otherwise.)
 */
#include "tests/gpu/load.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES 10000u

static struct standins gpu;

static void setup(void)
{
	CUcontext context;
	const char *missing = standins_load(&gpu);

	ck_assert_msg(!missing, "%s", missing);
	ck_assert_int_eq(setenv("STANDIN", "gpus=2", 1), 0);
	ck_assert_int_eq(gpu.find.cuInit(0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.copy.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.copy.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
}

static void words(const char *standin)
{
	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
}

TEST(a_handle_does_not_open_in_its_own_process)
{
	CUipcMemHandle handle;
	CUdeviceptr memory, again;

	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.export.cuIpcGetMemHandle(&handle, memory + 1),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(gpu.export.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
	ck_assert_int_eq(
		gpu.map.cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- libcufile ---- */

static int temporary_file(int flags)
{
	const char *tmp = getenv("TMPDIR");
	int fd = open(tmp ? tmp : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static CUfileOpError file_register(int fd, CUfileHandle_t *ret_handle)
{
	CUfileDescr_t description = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD,
				      .handle = { .fd = fd } };

	return gpu.move.cuFileHandleRegister(ret_handle, &description).err;
}

static void *pointer(CUdeviceptr memory)
{
	return (void *)(uintptr_t)memory;
}

TEST(bytes_move_between_file_and_memory)
{
	const int fd = temporary_file(O_DIRECT);
	CUfileHandle_t handle;
	CUdeviceptr memory;
	char *bytes;

	ck_assert_int_eq(file_register(fd, &handle), CU_FILE_DRIVER_NOT_INITIALIZED);
	ck_assert_int_eq(gpu.driver.cuFileDriverOpen().err, CU_FILE_SUCCESS);
	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES), CUDA_SUCCESS);
	bytes = gpu.look.standin_bytes(memory);
	for (unsigned i = 0; i < MEMORY_BYTES; i++)
		bytes[i] = (char)(i * 7);
	ck_assert_int_eq(file_register(fd, &handle), CU_FILE_SUCCESS);
	ck_assert_int_eq(file_register(fd, &handle), CU_FILE_HANDLE_ALREADY_REGISTERED);
	ck_assert_int_eq(gpu.move.cuFileBufRegister(pointer(memory), MEMORY_BYTES, 0).err,
			 CU_FILE_SUCCESS);
	ck_assert_int_eq(gpu.move.cuFileBufRegister(pointer(memory), MEMORY_BYTES, 0).err,
			 CU_FILE_MEMORY_ALREADY_REGISTERED);
	ck_assert_int_eq(gpu.move.cuFileWrite(handle, pointer(memory), 4096, 8192, 4096), 4096);
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 8192, 0), 4096);
	ck_assert(memcmp(bytes, bytes + 4096, 4096) == 0);
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 100, 8192 + 4000, 1), 96);
	ck_assert(memcmp(bytes + 1, bytes + 4096 + 4000, 96) == 0);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unaligned_writes, 0);
	ck_assert_int_eq(gpu.move.cuFileWrite(handle, pointer(memory), 10, 1, 0), 10);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unaligned_writes, 1);
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 0, MEMORY_BYTES - 4095),
			 -CU_FILE_CUDA_POINTER_RANGE_ERROR);
	ck_assert_int_eq(gpu.move.cuFileBufDeregister(pointer(memory)).err, CU_FILE_SUCCESS);
	ck_assert_int_eq(gpu.move.cuFileBufDeregister(pointer(memory)).err, CU_FILE_INVALID_VALUE);
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 8192, 0), 4096);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unregistered, 1);

	words("most=1024");
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 8192, 0), 1024);
	words("cuFileRead=5");
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 8192, 0), -1);
	ck_assert_int_eq(errno, EIO);
	words("cuFileRead=5011");
	ck_assert_int_eq(gpu.move.cuFileRead(handle, pointer(memory), 4096, 8192, 0), -5011);
	gpu.move.cuFileHandleDeregister(handle);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
	ck_assert_int_eq(gpu.own.cuMemFree_v2(memory), CUDA_SUCCESS);
}

/* Does what ends the process, in a child. */
static void misuse(int which)
{
	const int fd = temporary_file(0);
	CUfileHandle_t handle;
	CUdeviceptr memory;

	(void)close(STDERR_FILENO);
	if (gpu.driver.cuFileDriverOpen().err != CU_FILE_SUCCESS ||
	    file_register(fd, &handle) != CU_FILE_SUCCESS ||
	    gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES) != CUDA_SUCCESS ||
	    gpu.move.cuFileBufRegister(pointer(memory), MEMORY_BYTES, 0).err != CU_FILE_SUCCESS)
		_exit(1);
	if (which == 0)
		(void)gpu.own.cuMemFree_v2(memory);
	if (which == 1) {
		(void)close(fd);
		gpu.move.cuFileHandleDeregister(handle);
	}
	if (which == 2)
		gpu.move.cuFileHandleDeregister(&memory);
	_exit(0);
}

TEST_LOOP(misuse_ends_the_process, 3)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		misuse(_i);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%d: status %d", _i,
		      status);
}

FIXTURE(setup, NULL)
TEST_MAIN
