/*
 * For make check-gpu: the vendor's libraries, memory of GPU 0, and a daemon that uses it.
 */
#ifndef DSAIO_TESTS_GPU_CHECK_PARTS_H
#define DSAIO_TESTS_GPU_CHECK_PARTS_H

#include "tests/gpu/libcufile.h"
#include "tests/harness.h"
#include "tests/places.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
#define FIELD(list, field, library)    \
	struct check_##field {         \
		list(FUNCTION_POINTER) \
	} field;
	GPU_LISTS(FIELD)
} gpu;

static inline const char *env_path(const char *name, const char *usual)
{
	const char *path = getenv(name);

	return path && *path ? path : usual;
}

/* A library that the caller has named must open; without a name, a host may lack it. */
static inline void missing_library(const char *variable, const char *library, const char *why)
{
	if (getenv(variable))
		test_fail("%s=%s: %s", variable, getenv(variable), why);
	test_skip("no %s: %s", library, why);
}

/* Before a fork: no call of libcuda's. */
static inline void needs_gpu(void)
{
	if (!getenv("CUDA_LIBRARY") && access("/dev/nvidiactl", F_OK) < 0)
		test_skip("no GPU: there is no /dev/nvidiactl");
}

/* NULL, or what is missing. */
static inline const char *load(bool is_cuda)
{
	/* Its usual place is the working directory. */
	int r = setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	void *cuda = dlopen(env_path("CUDA_LIBRARY", CUDA_LIBRARY), RTLD_NOW | RTLD_GLOBAL);
	void *cufile = is_cuda ? cuda
			       : dlopen(env_path("CUFILE_LIBRARY", CUFILE_LIBRARY), RTLD_NOW);
	const char *missing = NULL;
	void *address;

	if (r < 0 || !cuda || !cufile)
		return r < 0 ? strerror(errno) : dlerror();
#define FIND(result, name, parameters)       \
	address = dlsym(library, #name);     \
	missing = address ? missing : #name; \
	memcpy(&fields->name, &address, sizeof(fields->name));
#define FIND_ALL(list, field, from)                        \
	if (is_cuda == (strcmp(#from, "cuda") == 0)) {     \
		struct check_##field *fields = &gpu.field; \
		void *library = from;                      \
		list(FIND)                                 \
	}
	GPU_LISTS(FIND_ALL)
	return missing;
}

/* A context of GPU 0 is current from now on. */
static inline void gpu_open(void)
{
	const char *missing;
	CUcontext context;
	int n = 0;

	needs_gpu();
	missing = load(true);
	if (missing)
		missing_library("CUDA_LIBRARY", "libcuda", missing);
	if (gpu.find.cuInit(0) != CUDA_SUCCESS || gpu.find.cuDeviceGetCount(&n) != CUDA_SUCCESS ||
	    n == 0)
		test_skip("libcuda finds no GPU");
	CHECK_EQ(gpu.copy.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_EQ(gpu.copy.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
}

/* Behind gpu_open(); opens the driver, which may hang: the test's time limit ends that. */
static inline void cufile_open(void)
{
	const char *missing = load(false);

	if (missing)
		missing_library("CUFILE_LIBRARY", "libcufile", missing);
	CHECK_EQ(gpu.driver.cuFileDriverOpen().err, CU_FILE_SUCCESS);
}

static inline char *gpu_alloc(size_t bytes)
{
	CUdeviceptr memory;

	CHECK_EQ(gpu.own.cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
	return (char *)(uintptr_t)memory;
}

static inline CUdeviceptr address(const char *memory)
{
	return (CUdeviceptr)(uintptr_t)memory;
}

static inline void gpu_fill(char *memory, size_t len, uint64_t seed, uint64_t pos)
{
	char *host = malloc(len);

	CHECK(host);
	pattern_fill(host, len, seed, pos);
	CHECK_EQ(gpu.own.cuMemcpyHtoD_v2(address(memory), host, len), CUDA_SUCCESS);
	free(host);
}

static inline void gpu_check(const char *memory, size_t len, uint64_t seed, uint64_t pos)
{
	char *host = malloc(len);

	CHECK(host);
	CHECK_EQ(gpu.map.cuMemcpyDtoH_v2(host, address(memory), len), CUDA_SUCCESS);
	pattern_check(host, len, seed, pos, "GPU memory");
	free(host);
}

static const struct mode {
	const char *what;
} modes[] = { { "auto" }, { "copy" }, { "direct" } };

/* The configuration of a daemon with gpu = mode. */
static inline const char *config_make(const char *mode)
{
	const char *config = test_text("%s/%s.conf", test_dir(), mode),
		   *cuda = getenv("CUDA_LIBRARY"), *cufile = getenv("CUFILE_LIBRARY");

	places_write(config, test_text("[daemon]\ngpu = %s\n%s%s\n%s%s\n", mode,
				       cuda ? "cuda_library = " : "", cuda ? cuda : "",
				       cufile ? "cufile_library = " : "", cufile ? cufile : ""));
	return config;
}

/* Until then the client does not know how the bytes will go. */
static inline void wait_probe(const struct daemon *daemon)
{
	for (bool is_probing = true; is_probing;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__Gpus *gpus;

		daemon_status(daemon, &answer);
		gpus = answer.reply->status->gpus;
		is_probing = gpus && (*gpus->call || strstr(gpus->why, "has not answered yet"));
		if (is_probing)
			(void)usleep(10000); /* only leaves the processor to the probe */
	}
}

static inline void rig_mode(struct rig *rig, const char *mode)
{
	rig->daemon = daemon_start(DAEMON_ARGS("--config", config_make(mode)));
	wait_probe(rig->daemon);
	rig_open(rig, NULL);
}

/* Fails, or skips where this daemon cannot use GPU memory. */
static inline void check_op(int64_t result, uint64_t len, const char *mode)
{
	if (result < 0 && !strcmp(mode, "direct") && (result == -EOPNOTSUPP || result == -ENODEV))
		test_skip("gpu = direct: %s", dsaio_error());
	CHECK_EQ(result, len);
}

#endif
