/*
 * A daemon on a host with GPUs: stand-ins for libcuda and libcufile take the place of the vendor's.
 */
#include "tests/places.h"

static const char *library(const char *name)
{
	const char *build = getenv("BUILD");
	char path[PATH_MAX];

	CHECK(realpath(test_text("%s/tests/gpu/%s", build && *build ? build : "build", name),
		       path));
	return test_text("%s", path);
}

/* Starts a daemon with such lines in its configuration. */
static struct daemon *start_with(const char *standin, const char *keys)
{
	const char *config = test_text("%s/gpus.conf", test_dir());

	places_write(config, test_text("[daemon]\n%s", keys));
	CHECK_SYS(setenv("STANDIN", standin, 1));
	return daemon_start(DAEMON_ARGS("--config", config));
}

static const char *libraries(void)
{
	return test_text("cuda_library = %s\ncufile_library = %s\n", library("libcuda.so"),
			 library("libcufile.so"));
}

/* Starts a daemon whose configuration names both. */
static struct daemon *start(const char *standin)
{
	return start_with(standin, libraries());
}

/* The daemon's only child; 0: none. */
static pid_t child_of(const struct daemon *daemon)
{
	_cleanup_(fclosep) FILE *file = fopen(
		test_text("/proc/%d/task/%d/children", daemon->pid, daemon->pid), "re");
	int pid = 0;

	if (!file)
		test_skip("this kernel does not list the children of a process");
	return fscanf(file, "%d", &pid) == 1 ? pid : 0;
}

/* Waits until the driver is in this call. */
static void wait_call(const struct daemon *daemon, const char *call)
{
	for (;;) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		const Wire__Gpus *gpus;

		daemon_status(daemon, &answer);
		gpus = answer.reply->status->gpus;
		CHECK(gpus);
		if (strncmp(gpus->call, call, strlen(call)) == 0)
			return;
		CHECK_MSG(child_of(daemon), "it has ended: %s%s", gpus->problem, gpus->cufile);
	}
}

TEST(found, "the GPUs of the host are in the status, and in one line of the log")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = start("gpus=2 nvfs=2.24");
	const Wire__Gpus *gpus;

	daemon_log_wait(daemon, "2 GPUs, CUDA 13.2, cuFile 1.17 with nvidia-fs 2.24");
	daemon_status(daemon, &answer);
	gpus = answer.reply->status->gpus;
	CHECK(gpus);
	CHECK_EQ(gpus->n_gpus, 2);
	CHECK_EQ(gpus->cuda_version, 13020);
	CHECK_EQ(gpus->gpus[1]->memory_bytes, 80 * GIB);
	CHECK(strcmp(gpus->gpus[1]->name, "Stand-in GPU 1") == 0);
	CHECK(strcmp(gpus->gpus[1]->uuid, "GPU-a1a2a3a4-a5a6-a7a8-a9aa-abacadaeafb0") == 0);
	CHECK(strcmp(gpus->cufile, "cuFile 1.17 with nvidia-fs 2.24") == 0);
	CHECK(!*gpus->problem && !*gpus->call);
	CHECK_EQ(child_of(daemon), 0);
}

TEST(none, "a host without a driver: nothing in status and log, and no process")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon;

	if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0)
		test_skip("this host has a driver");
	daemon = daemon_start(NULL);
	daemon_status(daemon, &answer);
	CHECK(!answer.reply->status->gpus);
	CHECK_EQ(child_of(daemon), 0);
	CHECK(!daemon_log_has(daemon, "GPU"));
}

static const struct {
	const char *what, *words;
	bool has_library;
} demanded[] = {
	{ "CUDA finds none", "cuInit=100", true },
	{ "there is no driver", "", false },
};

TEST_TABLE(none_demanded, demanded,
	   "gpu = direct on a host without a GPU: a line of the log and of status")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon;

	if (!demanded[row].has_library &&
	    (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0))
		test_skip("this host has a driver");
	daemon = start_with(
		demanded[row].words,
		test_text("gpu = direct\n%s", demanded[row].has_library ? libraries() : ""));
	daemon_log_wait(daemon, "gpu = direct, and this host has no GPU");
	daemon_status(daemon, &answer);
	CHECK(answer.reply->status->gpus);
	CHECK_EQ(answer.reply->status->gpus->n_gpus, 0);
	CHECK(strstr(answer.reply->status->gpus->why, "set gpu = auto"));
}

TEST(hang, "a driver that hangs: the daemon serves, and stops in order")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	uint8_t buf[4096];
	pid_t child;

	rig.daemon = start("cuInit=hang");
	wait_call(rig.daemon, "cuInit() of ");
	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(rig.daemon, "f"), sizeof(buf), 1);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), buf, sizeof(buf), 0),
		 sizeof(buf));
	child = child_of(rig.daemon);
	CHECK(child > 0);
	daemon_stop(rig.daemon);
	CHECK_EQ(kill(child, 0), -1); /* the daemon has waited for it */
}

static bool status_has(pid_t pid, const char *line)
{
	_cleanup_(fclosep) FILE *file = fopen(test_text("/proc/%d/status", pid), "re");
	char text[256];

	while (file && fgets(text, sizeof(text), file))
		if (strncmp(text, line, strlen(line)) == 0)
			return true;
	return false;
}

TEST(descriptors,
     "the process that asks the driver has no descriptor of the daemon's, nor more rights")
{
	struct daemon *daemon = start("cuFileDriverOpen=hang");
	char path[PATH_MAX];
	ssize_t n;
	pid_t child;

	wait_call(daemon, "cuFileDriverOpen() of ");
	child = child_of(daemon);
	for (int fd = 0; fd < 256; fd++) {
		n = readlink(test_text("/proc/%d/fd/%d", child, fd), path, sizeof(path) - 1);
		path[n < 0 ? 0 : n] = 0;
		CHECK_MSG(strcmp(path, fd <= STDERR_FILENO ? "/dev/null" : "") == 0, "%d: %s", fd,
			  path);
	}
	CHECK(status_has(child, "NoNewPrivs:\t1"));
}

TEST(killed, "a killed daemon takes it along, and the next one starts meanwhile")
{
	struct daemon *daemon = start("cuInit=hang");
	_cleanup_(closep) int child = -1;

	wait_call(daemon, "cuInit() of ");
	child = (int)CHECK_SYS(syscall(SYS_pidfd_open, child_of(daemon), 0));
	daemon_kill(daemon);
	CHECK(wait_readable(child, 60000000));
	daemon_stop(start(""));
}

static const struct {
	const char *what, *standin, *words;
} faults[] = {
	{ "an error of libcuda", "cuInit=999", "GPUs cannot be used: cuInit() of " },
	{ "libcuda crashes", "cuDeviceGetCount=crash",
	  "GPUs cannot be used: cuDeviceGetCount() of " },
	{ "libcuda exits", "cuInit=exit", "has ended the process (exit status 3)" },
	{ "an error of libcufile", "cuFileDriverOpen=5001",
	  "1 GPU, CUDA 13.2, without cuFile: cuFileDriverOpen() of " },
};

TEST_TABLE(fault, faults, "one line, and a daemon that serves")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;

	rig.daemon = start(faults[row].standin);
	daemon_log_wait(rig.daemon, faults[row].words);
	rig_open(&rig, NULL);
}

TEST(spawned, "a daemon that the library starts gets the paths from the program's environment")
{
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(setenv("DSAIO_CUDA_LIBRARY", library("libcuda.so"), 1));
	CHECK_SYS(setenv("DSAIO_CUFILE_LIBRARY", library("libcufile.so"), 1));
	CHECK_CALL(dsaio_connect(NULL, &client));
	while (!places_log_count("1 GPU, CUDA 13.2, cuFile 1.17 in compatibility mode"))
		CHECK_SYS(usleep(10000));
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(spawned_file, "the configuration file takes precedence over the environment")
{
	struct dsaio_client *client;

	places_newcomer(30);
	places_write(test_text("%s/dsaiod/dsaiod.conf", getenv("XDG_CONFIG_HOME")),
		     test_text("[daemon]\ncuda_library = %s\n", library("libcuda.so")));
	CHECK_SYS(setenv("DSAIO_CUDA_LIBRARY", "/nonexistent/libcuda.so", 1));
	CHECK_SYS(setenv("DSAIO_CUFILE_LIBRARY", library("libcufile.so"), 1));
	CHECK_CALL(dsaio_connect(NULL, &client));
	while (!places_log_count("1 GPU, CUDA 13.2, cuFile 1.17"))
		CHECK_SYS(usleep(10000));
	(void)dsaio_disconnect(client);
	places_stop();
}

TEST(spawned_relative, "a relative path in the environment is refused, and named")
{
	struct dsaio_client *client;

	places_newcomer(30);
	CHECK_SYS(setenv("DSAIO_CUFILE_LIBRARY", "libcufile.so", 1));
	CHECK_FAILS(dsaio_connect(NULL, &client), -ECHILD,
		    "DSAIO_CUFILE_LIBRARY = libcufile.so;absolute path");
}

TEST_MAIN
