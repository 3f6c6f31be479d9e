#include "daemon/engine/gpu_probe.h"

#include "daemon/base/event.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/engine/gds_driver.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A killed child ends at once, unless it hangs in the kernel: the daemon's end does not wait for that. */
#define KILL_WAIT_MSEC 1000

struct gpu_probe {
	struct gpu_probe_options options;
	pid_t pid;  /* 0: the child has ended */
	int pid_fd; /* readable when it has */
	bool is_late;
	struct gpu_report *shared; /* the child writes it */
	struct gpu_report report;  /* a copy, whose texts end */
	struct event *end_event, *late_event;
	void (*on_end)(void *arg); /* NULL: none */
	void *on_end_arg;
};

/* Fills a text of the report.  It may be cut. */
__attribute__((format(printf, 2, 3))) static void text_set(char text[GPU_TEXT_BYTES],
							   const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, GPU_TEXT_BYTES, format, args);
	va_end(args);
}

/* ---- in the child ---- */

struct asking {
	struct gpu_report *report;
	const char *path; /* of the library */
	char *problem;	  /* of GPU_TEXT_BYTES: gets the message */
};

/* Before each call: if it does not return, this is what the daemon reports. */
static void call_begins(const struct asking *asking, const char *call)
{
	text_set(asking->report->call, "%s of %.200s", call, asking->path);
}

static bool cuda_is_done(const struct asking *asking, const struct gpu_cuda *cuda, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return true;
	text_set(asking->problem, "%s: %s (%d)", asking->report->call,
		 cuda_error_name(cuda->cuGetErrorName, result), (int)result);
	return false;
}

#define CUDA_CALL(asking, cuda, name, ...)  \
	(call_begins((asking), #name "()"), \
	 cuda_is_done((asking), (cuda), (cuda)->name(__VA_ARGS__)))

/* As nvidia-smi does. */
static void gpu_uuid_print(const CUuuid *uuid, char text[GPU_UUID_BYTES])
{
	size_t n = (size_t)snprintf(text, GPU_UUID_BYTES, "GPU");

	for (unsigned i = 0; i < sizeof(CUuuid); i++)
		n += (size_t)snprintf(text + n, GPU_UUID_BYTES - n, "%s%02x",
				      i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				      (unsigned char)uuid->bytes[i]);
}

static bool gpu_ask(const struct asking *asking, const struct gpu_cuda *cuda, int ordinal)
{
	struct gpu_facts *gpu = &asking->report->gpus[ordinal];
	CUdevice device;
	CUuuid uuid;
	size_t bytes;

	if (!CUDA_CALL(asking, cuda, cuDeviceGet, &device, ordinal) ||
	    !CUDA_CALL(asking, cuda, cuDeviceGetName, gpu->name, sizeof(gpu->name), device) ||
	    !CUDA_CALL(asking, cuda, cuDeviceGetUuid_v2, &uuid, device) ||
	    !CUDA_CALL(asking, cuda, cuDeviceTotalMem_v2, &bytes, device))
		return false;
	gpu_uuid_print(&uuid, gpu->uuid);
	gpu->memory_bytes = bytes;
	return true;
}

static bool cuda_ask(const struct asking *asking)
{
	struct gpu_report *report = asking->report;
	struct error error;
	struct gpu_cuda cuda;
	CUresult result;
	int n;

	call_begins(asking, "dlopen()");
	if (gpu_library_cuda(asking->path, &cuda, &error) < 0) {
		text_set(asking->problem, "%s", error.text);
		return false;
	}
	call_begins(asking, "cuInit()");
	result = cuda.cuInit(0);
	if (result == CUDA_ERROR_NO_DEVICE) /* as a count of 0 */
		return false;
	if (!cuda_is_done(asking, &cuda, result) ||
	    !CUDA_CALL(asking, &cuda, cuDriverGetVersion, &report->cuda_version) ||
	    !CUDA_CALL(asking, &cuda, cuDeviceGetCount, &n))
		return false;
	for (int i = 0; i < n && i < GPUS_MAX; i++) {
		if (!gpu_ask(asking, &cuda, i))
			return false;
		report->n_gpus++;
	}
	return n > 0;
}

static bool cufile_is_done(const struct asking *asking, CUfileError_t error)
{
	if (error.err == CU_FILE_SUCCESS)
		return true;
	if (error.err == CU_FILE_CUDA_DRIVER_ERROR)
		text_set(asking->problem, "%s: CUDA error %d", asking->report->call,
			 (int)error.cu_err);
	else
		text_set(asking->problem, "%s: %s (%d)", asking->report->call,
			 gds_cufile_name(error.err), (int)error.err);
	return false;
}

#define CUFILE_CALL(asking, cufile, name, ...) \
	(call_begins((asking), #name "()"), cufile_is_done((asking), (cufile)->name(__VA_ARGS__)))

static void cufile_ask(const struct asking *asking)
{
	struct gpu_report *report = asking->report;
	CUfileDrvProps_t props = { 0 };
	struct error error;
	struct gpu_cufile cufile;

	report->is_at_cufile = true;
	call_begins(asking, "dlopen()");
	if (gpu_library_cufile(asking->path, &cufile, &error) < 0) {
		text_set(asking->problem, "%s", error.text);
		return;
	}
	if (!CUFILE_CALL(asking, &cufile, cuFileGetVersion, &report->cufile_version) ||
	    !CUFILE_CALL(asking, &cufile, cuFileDriverOpen) ||
	    !CUFILE_CALL(asking, &cufile, cuFileDriverGetProperties, &props))
		return;
	report->nvfs_major = props.nvfs.major_version;
	report->nvfs_minor = props.nvfs.minor_version;
	report->has_p2pdma = props.fflags & 1u << CU_FILE_P2P_SUPPORTED;
	report->has_cufile = true;
}

/* The libraries write to stdout, stderr and files of logs: the daemon's line has all that matters. */
static void descriptors_close(void)
{
	int fd = open("/dev/null", O_RDWR); /* not O_CLOEXEC: standard descriptors */

	for (int to = STDIN_FILENO; fd >= 0 && to <= STDERR_FILENO; to++)
		(void)dup2(fd, to); /* else the old one stays, which is no client's */
	(void)close_range(STDERR_FILENO + 1, ~0u, 0); /* cannot fail with these arguments */
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 1);
}

static void child_run(const struct gpu_probe *probe, pid_t daemon)
{
	const struct gpu_probe_options *options = &probe->options;
	struct gpu_report *report = probe->shared;
	const struct asking cuda = { report,
				     options->cuda_library ? options->cuda_library : CUDA_LIBRARY,
				     report->problem };
	const struct asking cufile = { report,
				       options->cufile_library ? options->cufile_library
							       : CUFILE_LIBRARY,
				       report->cufile_problem };
	const struct rlimit none = { 0 };
	struct error error;

	(void)prctl(PR_SET_NAME, "dsaiod-gpus");
	descriptors_close();
	/* The libraries get the rights that the daemon has when it calls them. */
	if (privileges_drop(options->is_user, &error) < 0) {
		text_set(report->problem, "%s", error.text);
		return;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of rights, which ends it */
	if (getppid() != daemon)
		return;
	/* The crash of a library is reported, and is not ours. */
	(void)setrlimit(RLIMIT_CORE, &none);
	if (cuda_ask(&cuda))
		cufile_ask(&cufile);
	report->call[0] = 0;
}

/* ---- in the daemon ---- */

/* Whether a driver is loaded: without its device, libcuda finds no GPU.  The second is WSL's. */
static bool has_driver(void)
{
	return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* The child may still write: its texts end where the daemon says. */
static void report_copy(struct gpu_probe *probe)
{
	struct gpu_report *report = &probe->report;

	*report = *probe->shared;
	if (report->n_gpus > GPUS_MAX)
		report->n_gpus = GPUS_MAX;
	for (int i = 0; i < GPUS_MAX; i++)
		report->gpus[i].uuid[GPU_UUID_BYTES - 1] =
			report->gpus[i].name[GPU_NAME_BYTES - 1] = 0;
	report->call[GPU_TEXT_BYTES - 1] = report->problem[GPU_TEXT_BYTES - 1] =
		report->cufile_problem[GPU_TEXT_BYTES - 1] = 0;
}

/* A message about the call in progress, which is the last. */
static void report_end(struct gpu_report *report, const char *message)
{
	text_set(report->is_at_cufile ? report->cufile_problem : report->problem, "%s %s",
		 report->call, message);
}

static void none_log(const struct gpu_probe_options *options)
{
	if (options->is_needed)
		log_warning(
			"dsaiod: gpu = direct, and this host has no GPU that CUDA finds: ops on "
			"GPU memory will fail: see whether nvidia-smi finds one and restart the "
			"daemon, or set gpu = auto");
}

static void report_log(const struct gpu_report *report, const struct gpu_probe_options *options)
{
	char text[GPU_TEXT_BYTES];

	if (*report->problem)
		log_warning("dsaiod: GPUs cannot be used: %s", report->problem);
	else if (report->n_gpus)
		log_notice("dsaiod: %" PRIu32 " GPU%s, CUDA %d.%d, %s", report->n_gpus,
			   report->n_gpus == 1 ? "" : "s", report->cuda_version / 1000,
			   report->cuda_version % 1000 / 10, gpu_report_cufile_text(report, text));
	else
		none_log(options);
}

/* The report does not change any more. */
static void probe_end(struct gpu_probe *probe)
{
	report_log(&probe->report, &probe->options);
	if (probe->on_end)
		probe->on_end(probe->on_end_arg);
}

static void on_late(EVENT_ARG(arg))
{
	struct gpu_probe *probe = arg;
	char text[160];

	if (!gpu_probe_is_running(probe))
		return;
	probe->is_late = true;
	report_copy(probe);
	(void)snprintf(text, sizeof(text),
		       "has not returned within %.3g s: its process %d is killed: see whether "
		       "nvidia-smi returns, and restart the daemon to try again",
		       probe->options.limit_msec / 1000.0, probe->pid);
	report_end(&probe->report, text);
	(void)kill(probe->pid, SIGKILL); /* our child, not waited for: it is there */
	probe_end(probe);
}

static void on_end(EVENT_ARG(arg))
{
	struct gpu_probe *probe = arg;
	char text[160] = "";
	int status;

	if (waitpid(probe->pid, &status, WNOHANG) != probe->pid)
		return;
	probe->pid = 0;
	(void)event_del(probe->end_event); /* both were added */
	(void)event_del(probe->late_event);
	if (probe->is_late)
		return;
	report_copy(probe);
	if (WIFSIGNALED(status))
		(void)snprintf(text, sizeof(text),
			       "has crashed (%s): see the versions of driver "
			       "and library",
			       strsignal(WTERMSIG(status)));
	else if (*probe->report.call)
		(void)snprintf(text, sizeof(text), "has ended the process (exit status %d)",
			       WEXITSTATUS(status));
	if (*text)
		report_end(&probe->report, text);
	probe_end(probe);
}

static int child_start(struct gpu_probe *probe)
{
	pid_t daemon = getpid();

	probe->shared = mmap(NULL, sizeof(*probe->shared), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (probe->shared == MAP_FAILED) {
		probe->shared = NULL;
		return -errno;
	}
	probe->pid = fork();
	if (probe->pid < 0) {
		probe->pid = 0;
		return -errno;
	}
	if (!probe->pid) {
		child_run(probe, daemon);
		_exit(0);
	}
	probe->pid_fd = (int)syscall(SYS_pidfd_open, probe->pid, 0);
	return probe->pid_fd < 0 ? -errno : 0;
}

static int events_add(struct gpu_probe *probe, struct event_base *base)
{
	const struct timeval limit = { .tv_sec = probe->options.limit_msec / 1000,
				       .tv_usec = probe->options.limit_msec % 1000 * 1000 };

	probe->end_event = event_new(base, probe->pid_fd, EV_READ | EV_PERSIST, on_end, probe);
	probe->late_event = evtimer_new(base, on_late, probe);
	return !probe->end_event || !probe->late_event || event_add(probe->end_event, NULL) < 0 ||
			       event_add(probe->late_event, &limit) < 0
		       ? -ENOMEM
		       : 0;
}

struct gpu_probe *gpu_probe_new(const struct gpu_probe_options *options, struct event_base *base)
{
	_cleanup_(gpu_probe_freep) struct gpu_probe *probe = NULL;
	int r;

	if (!options->cuda_library && !has_driver()) {
		none_log(options);
		return NULL;
	}
	probe = calloc(1, sizeof(*probe));
	if (probe) {
		probe->options = *options;
		probe->pid_fd = -1;
	}
	r = probe ? child_start(probe) : -ENOMEM;
	if (r == 0)
		r = events_add(probe, base);
	if (r < 0) {
		log_warning("dsaiod: GPUs cannot be used: the process that asks the driver cannot "
			    "start: %s",
			    strerrordesc_np(-r));
		return NULL;
	}
	return TAKE_PTR(probe);
}

void gpu_probe_on_end(struct gpu_probe *probe, void (*on_ended)(void *arg), void *arg)
{
	probe->on_end = on_ended;
	probe->on_end_arg = arg;
}

void gpu_probe_free(struct gpu_probe *probe)
{
	struct pollfd end;

	if (!probe)
		return;
	if (probe->pid) {
		end = (struct pollfd){ .fd = probe->pid_fd, .events = POLLIN };
		(void)kill(probe->pid, SIGKILL); /* our child, not waited for: it is there */
		(void)poll(&end, 1, KILL_WAIT_MSEC);
		(void)waitpid(probe->pid, NULL, WNOHANG); /* else init does */
	}
	event_freep(&probe->end_event);
	event_freep(&probe->late_event);
	closep(&probe->pid_fd);
	if (probe->shared)
		(void)munmap(probe->shared, sizeof(*probe->shared)); /* ours: cannot fail */
	free(probe);
}

bool gpu_probe_is_running(const struct gpu_probe *probe)
{
	return probe && probe->pid && !probe->is_late;
}

const struct gpu_report *gpu_probe_report(struct gpu_probe *probe)
{
	if (!probe)
		return NULL;
	if (gpu_probe_is_running(probe))
		report_copy(probe);
	return gpu_probe_is_running(probe) || probe->report.n_gpus || *probe->report.problem
		       ? &probe->report
		       : NULL;
}

bool gpu_report_copies(const struct gpu_report *report)
{
	return !report->nvfs_major && !report->nvfs_minor && !report->has_p2pdma;
}

const char *gpu_report_cufile_text(const struct gpu_report *report, char text[GPU_TEXT_BYTES])
{
	int major = report->cufile_version / 1000, minor = report->cufile_version % 1000 / 10;

	if (!report->has_cufile)
		text_set(text, "without cuFile: %s", report->cufile_problem);
	else if (gpu_report_copies(report))
		text_set(text, "cuFile %d.%d in compatibility mode, which copies in the daemon",
			 major, minor);
	else if (report->nvfs_major || report->nvfs_minor)
		text_set(text, "cuFile %d.%d with nvidia-fs %" PRIu32 ".%" PRIu32, major, minor,
			 report->nvfs_major, report->nvfs_minor);
	else
		text_set(text, "cuFile %d.%d with P2PDMA", major, minor);
	return text;
}
