/*
 * Which memory is a GPU's, on the stand-in for libcuda.
 */
#include "client/lib/memory/device.h"

#include "tests/gpu/libcuda.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>

static void *library_open(const char *name)
{
	const char *build = getenv("BUILD");
	char path[4096];
	void *library;

	(void)snprintf(path, sizeof(path), "%s/tests/gpu/%s", build ? build : "build", name);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(library, "%s", dlerror());
	return library;
}

struct program {
	CUDA_COPY_FUNCTIONS(FUNCTION_POINTER)
	CUresult (*cuInit)(unsigned int flags);
	CUresult (*cuMemAlloc_v2)(CUdeviceptr *ret_memory, size_t bytes);
};

#define FUNCTION(result, name, parameters) { #name, offsetof(struct program, name) },
static const struct function functions[] = {
	CUDA_COPY_FUNCTIONS(FUNCTION){ "cuInit", offsetof(struct program, cuInit) },
	{ "cuMemAlloc_v2", offsetof(struct program, cuMemAlloc_v2) },
};

/* Memory of that GPU. */
static void *gpu_alloc(int number)
{
	struct program gpu;
	CUdeviceptr memory;
	CUcontext context;

	ck_assert_int_eq(setenv("STANDIN", "gpus=100", 1), 0);
	ck_assert_ptr_null(functions_find(library_open("libcuda.so"), functions,
					  (size_t)N_ROWS(functions), &gpu));
	ck_assert_int_eq(gpu.cuInit(0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.cuDevicePrimaryCtxRetain(&context, number), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
	return (void *)(uintptr_t)memory;
}

static const struct {
	int number, found;
} gpus[] = {
	{ 0, 0 }, { DEVICES_MAX - 1, DEVICES_MAX - 1 }, { DEVICES_MAX, -1 }, /* one too many */
};

START_TEST(memory_of_a_gpu_has_its_number) /* _i: the row */
{
	char *memory = gpu_alloc(gpus[_i].number);

	ck_assert_int_eq(devices_find(memory), gpus[_i].found);
	ck_assert_int_eq(devices_find(memory + 4095), gpus[_i].found);
	ck_assert_int_eq(devices_find(&memory), -1);
}
END_TEST

START_TEST(libcuda_is_seen_whenever_the_program_opens_it)
{
	char *memory = NULL;

	ck_assert_int_eq(devices_find(&memory), -1);
	(void)library_open("libcufile.so");
	ck_assert_int_eq(devices_find(&memory), -1);
	memory = gpu_alloc(1);
	ck_assert_int_eq(devices_find(memory), 1);
	ck_assert_int_eq(devices_find(&memory), -1);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, memory_of_a_gpu_has_its_number, 0, N_ROWS(gpus));
	tcase_add_test(tcase, libcuda_is_seen_whenever_the_program_opens_it);
}

SUITE("client_device", add_tests)
