/*
 * The probe of GPUs, on the stand-ins for libcuda and libcufile.
 */
#include "daemon/engine/gpu_probe.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct event_base *base;
static struct gpu_probe *probe;
static char cuda[PATH_MAX], cufile[PATH_MAX];

static void setup(void)
{
	const char *build = getenv("BUILD");

	(void)snprintf(cuda, sizeof(cuda), "%s/tests/gpu/libcuda.so", build ? build : "build");
	(void)snprintf(cufile, sizeof(cufile), "%s/tests/gpu/libcufile.so",
		       build ? build : "build");
	ck_assert_int_eq(unsetenv("STANDIN"), 0);
	base = event_base_new();
}

static void teardown(void)
{
	gpu_probe_free(probe);
	event_base_free(base);
	ck_assert_msg(waitpid(-1, NULL, WNOHANG) < 0, "a child is left");
}

/* Runs one to its end. */
static const struct gpu_report *probe_run(const char *standin, const char *cuda_path,
					  const char *cufile_path, uint32_t limit_msec)
{
	/* The process of a test goes on as user: it drops no right that the next test needs. */
	const struct gpu_probe_options options = { cuda_path, cufile_path, true, limit_msec,
						   false };

	ck_assert_int_eq(setenv("STANDIN", standin, 1), 0);
	probe = gpu_probe_new(&options, base);
	ck_assert_ptr_nonnull(probe);
	ck_assert(gpu_probe_is_running(probe));
	while (gpu_probe_is_running(probe))
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	return gpu_probe_report(probe);
}

TEST(more_gpus_than_there_is_room_for)
{
	const struct gpu_report *report = probe_run("gpus=70", cuda, cufile, GPU_PROBE_MSEC);

	ck_assert_uint_eq(report->n_gpus, GPUS_MAX);
	ck_assert(report->has_cufile);
}

static const struct {
	const char *standin, *text;
} cufiles[] = {
	{ "nvfs=2.24", "cuFile 1.17 with nvidia-fs 2.24" },
	{ "nvfs=2.24 p2pdma=1", "cuFile 1.17 with nvidia-fs 2.24" },
	{ "p2pdma=1", "cuFile 1.17 with P2PDMA" },
	{ "", "cuFile 1.17 in compatibility mode, which copies in the daemon" },
	{ "cuFileDriverOpen=5001", "libcufile.so: CU_FILE_DRIVER_NOT_INITIALIZED (5001)" },
	{ "cuFileDriverOpen=5011", "libcufile.so: CUDA error 999" },
	{ "cuFileDriverOpen=4711", "libcufile.so: unknown error (4711)" },
	{ "cuFileGetVersion=5005", "without cuFile: cuFileGetVersion() of " },
	{ "cuFileDriverGetProperties=5002", "without cuFile: cuFileDriverGetProperties() of " },
	{ "cuFileDriverOpen=crash", "libcufile.so has crashed (Killed)" },
	{ "cuFileDriverOpen=exit", "libcufile.so has ended the process (exit status 3)" },
};

TEST_TABLE(cufile_is_described_and_never_costs_the_gpus, cufiles)
{
	const struct gpu_report *report = probe_run(cufiles[_i].standin, cuda, cufile,
						    GPU_PROBE_MSEC);
	char text[GPU_TEXT_BYTES];

	ck_assert_ptr_nonnull(report);
	ck_assert_str_eq(report->problem, "");
	ck_assert_uint_eq(report->n_gpus, 1);
	ck_assert_msg(strstr(gpu_report_cufile_text(report, text), cufiles[_i].text), "%s", text);
}

static const struct {
	const char *standin, *problem;
} problems[] = {
	{ "cuInit=802", "cuInit() of ;libcuda.so: unknown error (802)" },
	{ "cuInit=3", "libcuda.so: CUDA_ERROR_NOT_INITIALIZED (3)" },
	{ "cuDriverGetVersion=999", "cuDriverGetVersion() of " },
	{ "cuDeviceGetCount=999", "cuDeviceGetCount() of " },
	{ "gpus=2 cuDeviceGet=101", "cuDeviceGet() of " },
	{ "cuDeviceGetName=101", "cuDeviceGetName() of " },
	{ "cuDeviceGetUuid_v2=101", "cuDeviceGetUuid_v2() of " },
	{ "cuDeviceTotalMem_v2=101", "cuDeviceTotalMem_v2() of " },
	{ "cuInit=crash", "cuInit() of ;libcuda.so has crashed (Killed)" },
	{ "cuInit=exit", "cuInit() of ;libcuda.so has ended the process (exit status 3)" },
};

TEST_TABLE(an_error_of_libcuda_is_a_message, problems)
{
	const struct gpu_report *report = probe_run(problems[_i].standin, cuda, cufile,
						    GPU_PROBE_MSEC);
	_cleanup_(freep) char *words = strdup(problems[_i].problem);

	ck_assert_ptr_nonnull(report);
	for (char *rest = words, *word; (word = strsep(&rest, ";"));)
		ck_assert_msg(strstr(report->problem, word), "%s", report->problem);
	ck_assert_msg(!report->has_cufile, "libcufile is asked without a device");
	ck_assert_str_eq(report->cufile_problem, "");
}

static const char *const no_gpus[] = { "cuInit=100", "gpus=0" };

TEST_TABLE(a_driver_without_a_gpu_is_nothing_to_report, no_gpus)
{
	/* Without a device cuFileDriverOpen() would not return: the time limit is not that of the probe. */
	ck_assert_ptr_null(probe_run(no_gpus[_i], cuda, cufile, UINT32_MAX));
}

TEST(libraries_that_are_none)
{
	const struct gpu_report *report = probe_run("", "/nonexistent", cufile, GPU_PROBE_MSEC);
	char text[GPU_TEXT_BYTES];

	ck_assert_msg(strstr(report->problem, "/nonexistent: cannot open"), "%s", report->problem);
	gpu_probe_free(probe);
	report = probe_run("", cufile, cufile, GPU_PROBE_MSEC);
	ck_assert_msg(strstr(report->problem, "has no cuInit"), "%s", report->problem);
	gpu_probe_free(probe);
	report = probe_run("", cuda, "/nonexistent", GPU_PROBE_MSEC);
	ck_assert_str_eq(report->problem, "");
	ck_assert_uint_eq(report->n_gpus, 1);
	ck_assert_msg(strstr(gpu_report_cufile_text(report, text),
			     "without cuFile: /nonexistent: cannot open"),
		      "%s", text);
}

static const struct {
	const char *standin, *call;
	unsigned n_gpus;
} hangs[] = {
	{ "cuInit=hang", "cuInit() of ", 0 },
	{ "gpus=2 cuDeviceGetUuid_v2=hang", "cuDeviceGetUuid_v2() of ", 0 },
	{ "cuFileDriverOpen=hang", "cuFileDriverOpen() of ", 1 },
};

TEST_TABLE(a_call_that_does_not_return_is_named_and_its_process_killed, hangs)
{
	const struct gpu_report *report = probe_run(hangs[_i].standin, cuda, cufile, 1);
	siginfo_t info;
	const char *text;

	ck_assert_ptr_nonnull(report);
	text = report->n_gpus ? report->cufile_problem : report->problem;
	ck_assert_msg(strstr(text, "has not returned within 0.001 s: its process ") &&
			      strstr(text, " is killed: "),
		      "%s", text);
	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		(void)event_base_loop(base, EVLOOP_ONCE); /* reaps it, and then has no event */
	ck_assert_msg(!strstr(text, "has crashed"), "%s", text);
	gpu_probe_free(probe);
	/* The name is that of the call: the same, with time to get there. */
	probe = NULL;
	for (uint32_t limit_msec = 100;; limit_msec *= 2) {
		report = probe_run(hangs[_i].standin, cuda, cufile, limit_msec);
		text = report->n_gpus ? report->cufile_problem : report->problem;
		if (strncmp(text, hangs[_i].call, strlen(hangs[_i].call)) == 0)
			break;
		gpu_probe_free(probe);
		probe = NULL;
		ck_assert_msg(limit_msec < 20000, "%s", text);
	}
	ck_assert_uint_eq(report->n_gpus, hangs[_i].n_gpus);
	ck_assert(!report->has_cufile);
}

TEST(one_that_runs_says_where_it_is)
{
	const struct gpu_probe_options options = { cuda, cufile, true, GPU_PROBE_MSEC, false };
	const struct gpu_report *report;

	ck_assert_int_eq(setenv("STANDIN", "gpus=3 cuFileDriverOpen=hang", 1), 0);
	probe = gpu_probe_new(&options, base);
	do
		report = gpu_probe_report(probe);
	while (strncmp(report->call, "cuFileDriverOpen() of ", 22) != 0 && usleep(1000) == 0);
	ck_assert_uint_eq(report->n_gpus, 3);
}

TEST(a_host_without_a_driver_costs_no_process)
{
	const struct gpu_probe_options options = { .cufile_library = cufile,
						   .is_user = true,
						   .limit_msec = GPU_PROBE_MSEC };

	if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0)
		return;
	ck_assert_ptr_null(gpu_probe_new(&options, base));
	ck_assert_ptr_null(gpu_probe_report(NULL));
	ck_assert(!gpu_probe_is_running(NULL));
}

FIXTURE(setup, teardown)
TEST_MAIN
