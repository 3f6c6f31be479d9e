/*
 * 10,000 small files that are read again and again cost no open(2) and no message but the first
 * time, as strace counts it.
 *
 * This program is also the one that is traced: cache_strace --read SOCKET DIR N PASSES reads the N
 * files of a directory that often.
 */
#include "tests/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((size_t)4096)
#define N_FILES 10000u
#define N_FILES_TEXT "10000"
#define AT_ONCE 100u
/* Files that are read before they are read again: in less than the 10 s after which a cached file is closed. */
#define GROUP 1000u

/* The traced program: exits without a word, or with 1. */
static int read_files(const char *socket_path, const char *dir, unsigned n, unsigned n_passes)
{
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	char path[PATH_MAX];
	uint8_t *memory;
	void *start;

	if (socket_connect(socket_path, &client) < 0 ||
	    dsaio_handle_open(client, NULL, &handle) < 0 ||
	    dsaio_alloc(client, AT_ONCE * BLOCK, NULL, &start) < 0)
		return 1;
	memory = start;
	for (unsigned i = 0; i < n * n_passes; i++) {
		const unsigned number = i / GROUP / n_passes * GROUP + i % GROUP;

		(void)snprintf(path, sizeof(path), "%s/%u", dir, number);
		if (dsaio_open(client, path, O_RDONLY, NULL, &file) < 0 ||
		    dsaio_pread_async(handle, file, memory + i % AT_ONCE * BLOCK, BLOCK, 0, NULL))
			return 1;
		dsaio_file_close(file);
		if ((i + 1) % AT_ONCE)
			continue;
		if (handle_wait(handle, -1) != AT_ONCE)
			return 1;
		for (unsigned k = 0; k < AT_ONCE; k++)
			if (pattern_compare(memory + k * BLOCK, BLOCK, number + 1 - AT_ONCE + k,
					    0) >= 0)
				return 1;
	}
	_exit(0); /* a leak check cannot run while traced */
}

struct calls {
	unsigned opens, messages;
};

/* Reads "% time seconds usecs/call calls [errors] syscall". */
static struct calls calls_read(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	struct calls calls = { 0, 0 };
	char line[256], *last;
	unsigned n;

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, ' ');
		if (!last || sscanf(line, "%*f %*f %*u %u", &n) != 1)
			continue;
		if (strncmp(last + 1, "open", 4) == 0)
			calls.opens += n;
		else if (strncmp(last + 1, "send", 4) == 0)
			calls.messages += n;
	}
	return calls;
}

/* False: strace could not begin. */
static bool trace_with(const char *option, const struct daemon *daemon, const char *n_passes,
		       struct calls *ret_calls)
{
	char *out = test_text("%s/strace.%s", test_dir(), n_passes);
	char *said = test_text("%s.said", out), self[PATH_MAX] = "";
	pid_t pid = (pid_t)CHECK_SYS(fork());
	int status;

	if (pid == 0) {
		CHECK_SYS(readlink("/proc/self/exe", self, sizeof(self) - 1));
		CHECK(freopen(said, "w", stderr));
		execlp("strace", "strace", "-f", "-c", "-o", out, "-e",
		       "trace=open,openat,openat2,sendmsg,sendto", option, self, "--read",
		       daemon->socket_path, daemon->store_dir, N_FILES_TEXT, n_passes, NULL);
		_exit(127);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (status == 127 << 8)
		test_skip("strace is not installed");
	if (status && (access(out, F_OK) < 0 || !calls_read(out).opens))
		return false;
	CHECK_MSG(status == 0, "status 0x%x, see %s", status, said);
	*ret_calls = calls_read(out);
	return true;
}

/* With a filter in the kernel only what is counted stops the program: since strace 5.3. */
static struct calls trace(const struct daemon *daemon, const char *n_passes)
{
	struct calls calls;

	if (!trace_with("--seccomp-bpf", daemon, n_passes, &calls) &&
	    !trace_with("-f", daemon, n_passes, &calls))
		test_skip("strace cannot trace here");
	return calls;
}

static void sync_dir(const char *path)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	CHECK_SYS(syncfs(fd));
}

/* Room for all files, whatever RLIMIT_NOFILE makes the default. */
static void config_make(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file);
	CHECK(fprintf(file, "[daemon]\nclient_files = %u\n", N_FILES * 3 / 2) > 0);
	CHECK(fflush(file) == 0);
}

TEST(strace, "10,000 small files are read a second time with no open(2) and no message")
{
	struct daemon *daemon;
	struct calls once, twice;
	const char *sanitizer = getenv("SANITIZE"); /* run.sh's */
	struct rlimit limit;
	char *config;

	CHECK_SYS(getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_max < N_FILES + N_FILES / 4)
		test_skip("needs RLIMIT_NOFILE %u", N_FILES + N_FILES / 4);
	config = test_text("%s/dsaiod.conf", test_dir());
	config_make(config);
	daemon = daemon_start(DAEMON_ARGS("--config", config));
	for (unsigned i = 0; i < N_FILES; i++)
		file_make_pattern(daemon_path(daemon, test_text("%u", i)), BLOCK, i);
	sync_dir(daemon->store_dir); /* together; else the reads do it, one by one */
	once = trace(daemon, "1");
	twice = trace(daemon, "2");
	test_note("strace -f -c: %u opens and %u messages in the first pass over %u files",
		  once.opens, once.messages, N_FILES);
	test_note("strace -f -c: %u opens and %u messages in the second pass",
		  twice.opens - once.opens, twice.messages - once.messages);
	CHECK(once.opens >= N_FILES && once.messages >= N_FILES);
	/* sanitizers look into /proc now and then */
	if (sanitizer && *sanitizer)
		CHECK(twice.opens < once.opens + 16);
	else
		CHECK_EQ(twice.opens, once.opens);
	CHECK_EQ(twice.messages, once.messages);
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "--read") == 0)
		return read_files(argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10),
				  (unsigned)strtoul(argv[5], NULL, 10));
	return tests_main(argc, argv);
}
