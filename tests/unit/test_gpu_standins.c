/*
 * The stand-ins for libcuda and libcufile refuse what the vendor's libraries refuse.
 *
 * A child exports memory to the test by the handles of IPC, or by a descriptor.
 */
#include "tests/unit/gpu_exporter.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES 10000u

static struct standins gpu;
static struct exporter exporter;

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

static void teardown(void)
{
	exporter_end(&exporter);
}

static void words(const char *standin)
{
	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
}

/* ---- memory of another process ---- */

static CUresult handle_open(const CUipcMemHandle *handle, CUdeviceptr *ret_memory)
{
	return gpu.map.cuIpcOpenMemHandle_v2(ret_memory, *handle,
					     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

START_TEST(exported_memory_is_the_same_bytes)
{
	CUipcMemHandle handle;
	CUdeviceptr memory, again, base;
	size_t bytes;
	int device;

	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	ck_assert_int_eq(handle_open(&handle, &memory), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.look.standin_bytes(memory)[27], 'b');
	*gpu.look.standin_bytes(memory) = 'x';
	ck_assert_int_eq(exporter_ask(&exporter, 'b'), 'x');
	ck_assert_int_eq(gpu.map.cuMemGetAddressRange_v2(&base, &bytes, memory + 5), CUDA_SUCCESS);
	ck_assert(base == memory && bytes == MEMORY_BYTES);
	ck_assert_int_eq(
		gpu.map.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory),
		CUDA_SUCCESS);
	ck_assert_int_eq(device, 0);

	/* Once more, and closed as often. */
	ck_assert_int_eq(handle_open(&handle, &again), CUDA_SUCCESS);
	ck_assert(again == memory);
	ck_assert_int_eq(gpu.map.cuIpcCloseMemHandle(memory), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(gpu.look.standin_bytes(memory));
	ck_assert_int_eq(gpu.map.cuIpcCloseMemHandle(memory), CUDA_SUCCESS);
	ck_assert_ptr_null(gpu.look.standin_bytes(memory));
	ck_assert_int_eq(gpu.map.cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 0);
}
END_TEST

START_TEST(a_handle_of_freed_memory_does_not_open)
{
	CUipcMemHandle handle, other;
	CUdeviceptr memory;

	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	(void)exporter_ask(&exporter, 'f');
	other = exporter_export(&exporter,
				MEMORY_BYTES); /* perhaps of the same address and number */
	ck_assert_int_eq(handle_open(&handle, &memory), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(handle_open(&other, &memory), CUDA_SUCCESS);
}
END_TEST

START_TEST(memory_stays_with_those_who_have_it_open)
{
	CUipcMemHandle handle;
	CUdeviceptr memory, again;

	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	ck_assert_int_eq(handle_open(&handle, &memory), CUDA_SUCCESS);
	(void)exporter_ask(&exporter, 'f');
	ck_assert_int_eq(*gpu.look.standin_bytes(memory), 'a');
	ck_assert_int_eq(handle_open(&handle, &again), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(a_handle_of_a_process_that_has_ended_does_not_open)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;

	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	exporter_end(&exporter);
	ck_assert_int_eq(handle_open(&handle, &memory), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(forged_handles_do_not_open)
{
	CUipcMemHandle handle, forged = { 0 };
	CUdeviceptr memory;

	ck_assert_int_eq(handle_open(&forged, &memory), CUDA_ERROR_INVALID_HANDLE);
	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	for (unsigned i = 0; i < 32; i++) { /* each byte of what the handle says */
		forged = handle;
		forged.reserved[i] = (char)(forged.reserved[i] ^ 1);
		ck_assert_msg(handle_open(&forged, &memory) != CUDA_SUCCESS, "byte %u", i);
	}
	ck_assert_int_eq(gpu.map.cuIpcOpenMemHandle_v2(&memory, handle, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(gpu.look.standin_counts().n_imported, 0);
}
END_TEST

START_TEST(a_handle_does_not_open_in_its_own_process)
{
	CUipcMemHandle handle;
	CUdeviceptr memory, again;

	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.export.cuIpcGetMemHandle(&handle, memory + 1),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(gpu.export.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
	ck_assert_int_eq(handle_open(&handle, &again), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

/* ---- allocations ---- */

static unsigned long long id_of(CUdeviceptr memory)
{
	unsigned long long id = 0;

	ck_assert_int_eq(gpu.map.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory),
			 CUDA_SUCCESS);
	return id;
}

START_TEST(an_address_recurs_with_another_id)
{
	CUdeviceptr first, second;
	unsigned long long id;

	words("reuse=1");
	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&first, MEMORY_BYTES), CUDA_SUCCESS);
	id = id_of(first);
	ck_assert_uint_eq(id_of(first + MEMORY_BYTES - 1), id);
	ck_assert_int_eq(gpu.own.cuMemFree_v2(first), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&second, MEMORY_BYTES), CUDA_SUCCESS);
	ck_assert(second == first);
	ck_assert_uint_ne(id_of(second), id);
}
END_TEST

static CUmemGenericAllocationHandle create(size_t bytes, bool may_export)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = may_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						   : (CUmemAllocationHandleType)0,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
	};
	CUmemGenericAllocationHandle handle;

	ck_assert_int_eq(gpu.own.cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
	return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes)
{
	const CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 1 },
					 CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr memory;

	ck_assert_int_eq(gpu.map.cuMemAddressReserve(&memory, bytes, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_ptr_null(gpu.look.standin_bytes(memory));
	ck_assert_int_eq(gpu.map.cuMemMap(memory, bytes, 0, handle, 0), CUDA_SUCCESS);
	ck_assert_ptr_null(gpu.look.standin_bytes(memory));
	ck_assert_int_eq(gpu.map.cuMemSetAccess(memory, bytes, &access, 1), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(gpu.look.standin_bytes(memory));
	return memory;
}

START_TEST(mapped_memory_is_lent_by_a_descriptor)
{
	const size_t bytes = 2 * (size_t)STANDIN_GRANULARITY;
	CUmemGenericAllocationHandle handle = create(bytes, true), other, imported;
	CUdeviceptr first = map(handle, bytes), second, third;
	int fd = -1;

	ck_assert_int_eq(gpu.map.cuMemRelease(handle), CUDA_SUCCESS);
	ck_assert_int_eq(
		gpu.export.cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)(first + 7)),
		CUDA_SUCCESS);
	ck_assert_int_eq(gpu.export.cuMemExportToShareableHandle(
				 &fd, other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_SUCCESS);
	ck_assert_int_eq(gpu.map.cuMemRelease(other), CUDA_SUCCESS);
	ck_assert_int_eq(
		gpu.map.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		CUDA_SUCCESS);
	(void)close(fd);

	/* More than it has is not mapped; less is. */
	ck_assert_int_eq(gpu.map.cuMemAddressReserve(&third, 2 * bytes, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.map.cuMemMap(third, 2 * bytes, 0, imported, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(gpu.map.cuMemAddressFree(third, 2 * bytes), CUDA_SUCCESS);
	second = map(imported, STANDIN_GRANULARITY);
	ck_assert_int_eq(gpu.map.cuMemRelease(imported), CUDA_SUCCESS);
	*gpu.look.standin_bytes(first) = 'c';
	ck_assert_int_eq(*gpu.look.standin_bytes(second), 'c');
	ck_assert_uint_eq(gpu.look.standin_counts().n_handles, 2);

	ck_assert_int_eq(gpu.map.cuMemAddressFree(second, STANDIN_GRANULARITY),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(gpu.map.cuMemUnmap(second, STANDIN_GRANULARITY), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.map.cuMemAddressFree(second, STANDIN_GRANULARITY), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.map.cuMemUnmap(first, bytes), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.map.cuMemAddressFree(first, bytes), CUDA_SUCCESS);
	ck_assert_uint_eq(gpu.look.standin_counts().n_handles, 0);
	ck_assert_uint_eq(gpu.look.standin_counts().n_reserved, 0);
}
END_TEST

START_TEST(other_descriptors_are_no_memory)
{
	CUmemGenericAllocationHandle handle = create(STANDIN_GRANULARITY, false), imported;
	int fds[] = { open("/dev/null", O_RDWR), memfd_create("other", 0), -1 }, fd;

	ck_assert_int_eq(ftruncate(fds[1], 1 << 20), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gpu.map.cuMemImportFromShareableHandle(
					 &imported, (void *)(intptr_t)fds[i],
					 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
				 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(gpu.export.cuMemExportToShareableHandle(
				 &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_ERROR_INVALID_VALUE);
}
END_TEST

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

START_TEST(bytes_move_between_file_and_memory)
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
END_TEST

START_TEST(exported_memory_can_be_refused)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;

	exporter = exporter_start(&gpu);
	handle = exporter_export(&exporter, MEMORY_BYTES);
	ck_assert_int_eq(gpu.driver.cuFileDriverOpen().err, CU_FILE_SUCCESS);
	ck_assert_int_eq(handle_open(&handle, &memory), CUDA_SUCCESS);
	words("buf_imported=no");
	ck_assert_int_eq(gpu.move.cuFileBufRegister(pointer(memory), MEMORY_BYTES, 0).err,
			 CU_FILE_CUDA_MEMORY_TYPE_INVALID);
	words("");
	ck_assert_int_eq(gpu.move.cuFileBufRegister(pointer(memory), MEMORY_BYTES, 0).err,
			 CU_FILE_SUCCESS);
	ck_assert_int_eq(gpu.move.cuFileBufDeregister(pointer(memory)).err, CU_FILE_SUCCESS);
}
END_TEST

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

START_TEST(misuse_ends_the_process)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		misuse(_i);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%d: status %d", _i,
		      status);
}
END_TEST

/* ---- the words of STANDIN ---- */

START_TEST(words_of_a_file_are_read_anew)
{
	char path[] = "/tmp/dsaio-standin-XXXXXX", standin[100], held[100];
	const int fd = mkstemp(path);
	CUdeviceptr memory;
	int status;
	pid_t pid;

	ck_assert_int_ge(fd, 0);
	(void)snprintf(standin, sizeof(standin), "gpus=1 file=%s", path);
	(void)snprintf(held, sizeof(held), "%s.cuMemAlloc_v2", path);
	words(standin);
	ck_assert_int_eq(pwrite(fd, "cuMemAlloc_v2=2\n", 16, 0), 16);
	ck_assert_int_eq(gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(pwrite(fd, "cuMemAlloc_v2=hold", 18, 0), 18);
	pid = fork();
	if (!pid)
		_exit(gpu.own.cuMemAlloc_v2(&memory, MEMORY_BYTES) == CUDA_SUCCESS ? 0 : 1);
	while (access(held, F_OK) < 0)
		(void)usleep(1000);
	ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_lt(access(held, F_OK), 0);
	ck_assert_int_eq(unlink(path), 0);
	(void)close(fd);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, exported_memory_is_the_same_bytes);
	tcase_add_test(tcase, a_handle_of_freed_memory_does_not_open);
	tcase_add_test(tcase, memory_stays_with_those_who_have_it_open);
	tcase_add_test(tcase, a_handle_of_a_process_that_has_ended_does_not_open);
	tcase_add_test(tcase, forged_handles_do_not_open);
	tcase_add_test(tcase, a_handle_does_not_open_in_its_own_process);
	tcase_add_test(tcase, an_address_recurs_with_another_id);
	tcase_add_test(tcase, mapped_memory_is_lent_by_a_descriptor);
	tcase_add_test(tcase, other_descriptors_are_no_memory);
	tcase_add_test(tcase, bytes_move_between_file_and_memory);
	tcase_add_test(tcase, exported_memory_can_be_refused);
	tcase_add_loop_test(tcase, misuse_ends_the_process, 0, 3);
	tcase_add_test(tcase, words_of_a_file_are_read_anew);
}

SUITE("gpu_standins", add_tests)
