/*
 * Whether copies by a GPU overlap with the I/O: an op on GPU memory beside the slower of its I/O alone
 * and its copies alone.
 *
 * GPU and disk are stand-ins (tests/gpu/).  Copies and I/O take the time that STANDIN says, and move no
 * bytes: the processors that would move them have the threads to run whose work is measured.
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/util/cuda.h"
#include "tests/bench/bench.h"
#include "tests/bench/clock.h"
#include "tests/bench/statistics.h"

/* 2 GB/s, and 100 us for a request alone. */
#define DISK "disk_nsec_per_kib=500 disk_nsec=100000"
#define TRIES 5u /* of the I/O alone, whose median tells how long copies shall take */

static const struct copies {
	uint64_t mib;
	bool is_write, is_async;
	double speed; /* time of the copies, of that of the I/O */
} all[GPU_ROWS] = {
	{ 16, false, false, 2 },  { 16, false, false, 1 },  { 16, false, false, 0.5 },
	{ 16, false, true, 2 },	  { 16, false, true, 1 },   { 16, false, true, 0.5 },
	{ 16, true, false, 2 },	  { 16, true, false, 1 },   { 16, true, false, 0.5 },
	{ 16, true, true, 2 },	  { 16, true, true, 1 },    { 16, true, true, 0.5 },
	{ 400, false, false, 2 }, { 400, false, false, 1 }, { 400, false, false, 0.5 },
	{ 400, false, true, 2 },  { 400, false, true, 1 },  { 400, false, true, 0.5 },
	{ 400, true, false, 2 },  { 400, true, false, 1 },  { 400, true, false, 0.5 },
	{ 400, true, true, 2 },	  { 400, true, true, 1 },   { 400, true, true, 0.5 },
};
static char names[GPU_ROWS][64];

static const struct copies *now; /* what is measured */
static double copies_msec;	 /* of it */
static char *gpu_memory;

struct program {
	CUresult (*cuInit)(unsigned int flags);
	CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *ret_context, CUdevice device);
	CUresult (*cuCtxPushCurrent_v2)(CUcontext context);
	CUresult (*cuCtxPopCurrent_v2)(CUcontext *ret_context);
	CUresult (*cuMemAlloc_v2)(CUdeviceptr *ret_memory, size_t bytes);
};
static const struct function functions[] = {
	{ "cuInit", offsetof(struct program, cuInit) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct program, cuDevicePrimaryCtxRetain) },
	{ "cuCtxPushCurrent_v2", offsetof(struct program, cuCtxPushCurrent_v2) },
	{ "cuCtxPopCurrent_v2", offsetof(struct program, cuCtxPopCurrent_v2) },
	{ "cuMemAlloc_v2", offsetof(struct program, cuMemAlloc_v2) },
};

static int standin_path(char path[PATH_MAX], const char *name)
{
	const char *build = getenv("BUILD");
	char found[PATH_MAX];

	(void)snprintf(found, sizeof(found), "%s/tests/gpu/%s", build && *build ? build : "build",
		       name);
	if (realpath(found, path))
		return 0;
	fprintf(stderr, "bench: no %s; run: make tests\n", found);
	return -ENOENT;
}

/* Opens all on a disk that is a stand-in. */
static int ours_open_disk(struct bench *b)
{
	char path[PATH_MAX];
	int r = standin_path(path, "libdisk.so");

	if (r == 0 && (setenv("LD_PRELOAD", path, 1) < 0 || setenv("STANDIN", DISK, 1) < 0))
		r = -errno;
	if (r == 0)
		r = ours_open_large(b);
	(void)unsetenv("LD_PRELOAD");
	return r;
}

/* Once: what a program has of libcuda lasts as long as the program. */
static int gpu_open(void)
{
	struct program program;
	CUdeviceptr memory;
	CUcontext context;
	char path[PATH_MAX];
	void *library;
	int r = standin_path(path, "libcuda.so");

	if (r < 0)
		return r;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library || functions_find(library, functions, ARRAY_SIZE(functions), &program) ||
	    program.cuInit(0) != CUDA_SUCCESS ||
	    program.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
	    program.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS ||
	    program.cuMemAlloc_v2(&memory, READ_BYTES) != CUDA_SUCCESS ||
	    program.cuCtxPopCurrent_v2(&context) != CUDA_SUCCESS) {
		fprintf(stderr, "bench: %s: %s\n", path, library ? "a call failed" : dlerror());
		return -EIO;
	}
	gpu_memory = (char *)(uintptr_t)memory;
	return 0;
}

static int run(struct bench *b, char *memory, double *ret_msec)
{
	const uint64_t len = now->mib << 20;
	const int64_t start = now_nsec();
	struct dsaio_op *op;
	int64_t n = 0;
	int r;

	if (now->is_async) {
		r = now->is_write ? dsaio_pwrite_async(b->handle, b->file, memory, len, 0, &op)
				  : dsaio_pread_async(b->handle, b->file, memory, len, 0, &op);
		if (r == 0) {
			(void)dsaio_op_wait(op, -1, &n); /* forever */
			dsaio_op_free(op);
		}
	} else if (now->is_write) {
		n = dsaio_pwrite(b->handle, b->file, memory, len, 0);
	} else {
		n = dsaio_pread(b->handle, b->file, memory, len, 0);
	}
	*ret_msec = (double)(now_nsec() - start) / 1e6;
	return n == (int64_t)len ? 0 : failed(now->is_write ? "write" : "read");
}

static int io_alone(struct bench *b, double *ret_msec)
{
	return run(b, b->memory, ret_msec);
}

static int on_gpu(struct bench *b, double *ret_msec)
{
	return run(b, gpu_memory, ret_msec);
}

/* The slower of the two. */
static int alone(struct bench *b, double *ret_msec)
{
	double msec;
	const int r = io_alone(b, &msec);

	*ret_msec = msec > copies_msec ? msec : copies_msec;
	return r;
}

/* Sets the copies' speed by that of the I/O. */
static int choose(struct bench *b)
{
	const uint64_t n_kib = now->mib << 10;
	uint64_t nsec_per_kib;
	double msec[TRIES];
	char word[64];
	int r = 0;

	for (unsigned i = 0; r == 0 && i < TRIES; i++)
		r = io_alone(b, &msec[i]);
	if (r < 0)
		return r;
	sort_values(msec, TRIES);
	nsec_per_kib = (uint64_t)(quantile(msec, TRIES, 0.5) * now->speed * 1e6 / (double)n_kib);
	copies_msec = (double)(nsec_per_kib * n_kib) / 1e6;
	(void)snprintf(word, sizeof(word), "no_bytes=1 nsec_per_kib=%" PRIu64, nsec_per_kib);
	return setenv("STANDIN", word, 1) < 0 ? -errno : 0;
}

int measure_gpu_copies(struct bench *b)
{
	int r = gpu_open();

	if (r == 0)
		r = ours_open_disk(b);
	for (unsigned i = 0; r == 0 && i < GPU_ROWS; i++) {
		now = &all[i];
		(void)snprintf(names[i], sizeof(names[i]), "%" PRIu64 " MiB %s%s, copies %s",
			       now->mib, now->is_async ? "async " : "",
			       now->is_write ? "write" : "read",
			       now->speed > 1	? "slower"
			       : now->speed < 1 ? "faster"
						: "as fast");
		rows[ROW_GPU + i] = (struct row){
			.name = names[i], .unit = "ms", .bar = 1.1, .decimals = 1
		};
		r = choose(b);
		if (r == 0)
			r = compare(b, &rows[ROW_GPU + i], 1, on_gpu, alone);
	}
	return r;
}
