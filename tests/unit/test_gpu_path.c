/*
 * The path of GPU memory, by the configuration and the report of a probe.
 */
#include "daemon/engine/gpu_requests.h"

#include "tests/unit/suite.h"

#include <string.h>

enum { NO_REPORT = 1, PROBLEM = 2, NO_CUFILE = 4, NVFS = 8, P2PDMA = 16, PROBING = 32 };

static const struct {
	const char *what;
	enum gpu_mode mode;
	unsigned how;
	Wire__GpuPath path;
	bool can_import;
	const char *why;
} paths[] = {
	{ "a host without a GPU", GPU_MODE_AUTO, NO_REPORT, WIRE__GPU_PATH__GPU_COPY, false,
	  "no GPU" },
	{ "the same, and copies are forbidden", GPU_MODE_DIRECT, NO_REPORT,
	  WIRE__GPU_PATH__GPU_DIRECT, false,
	  "no GPU on this host: see whether nvidia-smi finds one and restart the daemon" },
	{ "the driver fails", GPU_MODE_AUTO, PROBLEM, WIRE__GPU_PATH__GPU_COPY, false,
	  "cannot be used: cuInit" },
	{ "the same, and copies are forbidden", GPU_MODE_DIRECT, PROBLEM,
	  WIRE__GPU_PATH__GPU_DIRECT, false, "cannot be used: cuInit" },
	{ "no cuFile", GPU_MODE_AUTO, NO_CUFILE, WIRE__GPU_PATH__GPU_COPY, false,
	  "without cuFile: not there" },
	{ "no cuFile, and copies are forbidden", GPU_MODE_DIRECT, NO_CUFILE,
	  WIRE__GPU_PATH__GPU_DIRECT, false, "without cuFile: not there" },
	{ "nvidia-fs", GPU_MODE_AUTO, NVFS, WIRE__GPU_PATH__GPU_AUTO, true,
	  "cuFile 1.17 with nvidia-fs 2.24" },
	{ "P2PDMA", GPU_MODE_AUTO, P2PDMA, WIRE__GPU_PATH__GPU_AUTO, true,
	  "cuFile 1.17 with P2PDMA" },
	{ "compatibility mode", GPU_MODE_AUTO, 0, WIRE__GPU_PATH__GPU_COPY, true,
	  "cuFile 1.17 in compatibility mode" },
	{ "compatibility mode, and copies are forbidden", GPU_MODE_DIRECT, 0,
	  WIRE__GPU_PATH__GPU_DIRECT, true,
	  "cuFile 1.17 in compatibility mode, which copies in the daemon" },
	{ "the probe runs", GPU_MODE_AUTO, PROBING, WIRE__GPU_PATH__GPU_AUTO, true,
	  "not answered yet" },
	{ "the probe runs, and copies are forbidden", GPU_MODE_DIRECT, PROBING,
	  WIRE__GPU_PATH__GPU_DIRECT, true, "not answered yet" },
	{ "copies are wanted", GPU_MODE_COPY, NVFS, WIRE__GPU_PATH__GPU_COPY, false, "gpu = copy" },
	{ "the same while the probe runs", GPU_MODE_COPY, PROBING, WIRE__GPU_PATH__GPU_COPY, false,
	  "gpu = copy" },
};

TEST_TABLE(the_path_follows_from_the_configuration_and_the_probe, paths)
{
	const unsigned how = paths[_i].how;
	struct gpu_report report = { .n_gpus = 1,
				     .has_cufile = !(how & NO_CUFILE),
				     .cufile_version = 1170,
				     .nvfs_major = how & NVFS ? 2 : 0,
				     .nvfs_minor = how & NVFS ? 24 : 0,
				     .has_p2pdma = how & P2PDMA,
				     .cufile_problem = "not there" };
	struct gpu_path path;

	if (how & PROBLEM)
		(void)strcpy(report.problem, "cuInit() of libcuda.so.1: unknown error");
	path = gpu_path(paths[_i].mode, how & NO_REPORT ? NULL : &report, how & PROBING);
	ck_assert_msg(path.path == paths[_i].path && path.can_import == paths[_i].can_import &&
			      strstr(path.why, paths[_i].why),
		      "%s: %d, %d: %s", paths[_i].what, path.path, path.can_import, path.why);
}

TEST_MAIN
