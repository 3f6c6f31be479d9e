/*
 * A host with simulated GPUs for end-to-end tests: the stand-ins in the test and in its daemon, and words
 * that change how their calls go while the daemon runs.
 */
#ifndef DSAIO_TESTS_GPU_HOST_H
#define DSAIO_TESTS_GPU_HOST_H

#include "tests/gpu/program_gpu.h"
#include "tests/places.h"

/* ---- words of the stand-ins ---- */

/* The daemon may have another user, or no capabilities. */
static inline const char *words_path(const char *suffix)
{
	const char *dir = test_text("%s/standin", test_dir());

	if (mkdir(dir, 0777) == 0)
		CHECK_SYS(chmod(dir, 0777));
	return test_text("%s/words%s", dir, suffix);
}

/* Words that the stand-ins read from now on. */
static inline void words_set(const char *words)
{
	const char *path = words_path(""), *next = words_path(".next");

	places_write(next, words);
	CHECK_SYS(chmod(next, 0666));
	CHECK_SYS(rename(next, path)); /* a reader sees all of them, or none */
}

/* Waits until a call is held, or no longer. */
static inline void held_wait(const char *call, bool is_held)
{
	const char *path = words_path(test_text(".%s", call));

	while ((access(path, F_OK) == 0) != is_held)
		(void)usleep(1000); /* nobody tells; the test's time limit ends it */
}

/* ---- the daemon ---- */

/* Mappings of clients' GPU memory in the daemon: the stand-in's are segments of System V. */
static inline unsigned n_imported(const struct daemon *daemon)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/maps", daemon->pid), "re");
	char line[512];
	unsigned n = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "SYSV") != NULL;
	return n;
}

static inline void imported_wait(const struct daemon *daemon, unsigned n)
{
	while (n_imported(daemon) != n)
		(void)usleep(1000); /* likewise */
}

/* A daemon whose configuration names the stand-ins.  standin: words of both sides.  keys: further lines of
   its section [daemon]. */
static inline struct daemon *gpu_daemon_start(const char *standin, const char *keys)
{
	const char *config = test_text("%s/gpus.conf", test_dir());
	char cuda[PATH_MAX], cufile[PATH_MAX], path[PATH_MAX];

	CHECK(realpath(standins_path("libcuda", path), cuda));
	CHECK(realpath(standins_path("libcufile", path), cufile));
	words_set("");
	CHECK_SYS(setenv("STANDIN", test_text("%s file=%s", standin, words_path("")), 1));
	places_write(config, test_text("[daemon]\ncuda_library = %s\ncufile_library = %s\n%s", cuda,
				       cufile, keys));
	return daemon_start(DAEMON_ARGS("--config", config));
}

/* Another one of that configuration. */
static inline struct daemon *gpu_daemon_again(void)
{
	return daemon_start(DAEMON_ARGS("--config", test_text("%s/gpus.conf", test_dir())));
}

/* Waits for the end of the probe: the daemon refuses to register files before. */
static inline void probe_wait(const struct daemon *daemon)
{
	for (bool is_probing = true; is_probing;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__Gpus *gpus;

		daemon_status(daemon, &answer);
		gpus = answer.reply->status->gpus;
		is_probing = gpus && strstr(gpus->why, "not answered yet");
	}
}

/* Both, with a context of GPU 0 current. */
static inline struct daemon *gpu_start(const char *standin, const char *keys)
{
	struct daemon *daemon = gpu_daemon_start(standin, keys);

	gpu_open();
	gpu_enter(0);
	return daemon;
}

/* ---- memory of GPU 0 ---- */

static inline CUdeviceptr gpu_alloc(size_t bytes)
{
	CUdeviceptr memory;

	CHECK_EQ(gpu.own.cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
	return memory;
}

static inline void gpu_free(CUdeviceptr memory)
{
	CHECK_EQ(gpu.own.cuMemFree_v2(memory), CUDA_SUCCESS);
}

static inline char *bytes_of(CUdeviceptr memory)
{
	return gpu.look.standin_bytes(memory);
}

#endif
