/*
 * Others that use the device of a bench's store, by the daemon or without it: the benches see them in the
 * device's own counters, and name no more than these show.
 */
#include "tests/stores.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define STORE_BYTES (320 * MIB)
#define FILE_BYTES (16 * MIB)
#define PIECE_BYTES (4 * MIB)

static struct store store;

/* A daemon on a disk of the test's own, which DSAIO_SOCKET names. */
static void disk_open(enum store_kind kind)
{
	struct daemon_options options = { .args = NULL };
	struct daemon *daemon;

	store_make(&store, kind, STORE_BYTES);
	options.store_dir = store.path;
	daemon = daemon_start_with(&options);
	CHECK_SYS(setenv("DSAIO_SOCKET", daemon->socket_path, 1));
}

static const char *ctl_path(void)
{
	const char *build = getenv("BUILD");

	return test_text("%s/dsaioctl", build ? build : "build");
}

/* Its output lies in the files out and err of the test's directory. */
static pid_t ctl_start(const char *const *args)
{
	const char *argv[32] = { ctl_path() };
	pid_t pid;

	for (size_t i = 0; args[i]; i++) {
		CHECK(i + 2 < ARRAY_SIZE(argv));
		argv[i + 1] = args[i];
	}
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		const int flags = O_WRONLY | O_CREAT | O_TRUNC;
		int out = open(test_text("%s/out", test_dir()), flags, 0600);
		int err = open(test_text("%s/err", test_dir()), flags, 0600);

		if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
			(void)execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	return pid;
}

static int wait_status(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

/* Runs it; it must exit with that status. */
static void ctl_run(int wanted, const char *const *args)
{
	int status = wait_status(ctl_start(args));

	CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == wanted, "wait status 0x%x", status);
}

#define CTL(wanted, ...) ctl_run(wanted, (const char *const[]){ __VA_ARGS__, NULL })

static char *file_text(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = calloc(1, 4 * MIB);
	size_t n;

	CHECK(text);
	n = file ? fread(text, 1, 4 * MIB - 1, file) : 0;
	text[n] = '\0';
	if (file)
		(void)fclose(file);
	return text;
}

static bool file_says(const char *path, const char *words)
{
	_cleanup_(freep) char *text = file_text(path);

	return strstr(text, words);
}

static void check_says(const char *name, const char *words)
{
	_cleanup_(freep) char *text = file_text(test_text("%s/%s", test_dir(), name));

	CHECK_MSG(strstr(text, words), "\"%s\" is not in %s: %.600s", words, name, text);
}

/* A process that reads a file of the store, past the page cache, without end; it has begun. */
static pid_t reader_start(void)
{
	const char *path = store_path(&store, "theirs");
	int fds[2];
	pid_t pid;

	CHECK_SYS(pipe(fds));
	pid = (pid_t)CHECK_SYS(fork());
	if (pid == 0) {
		int fd = (int)CHECK_SYS(open_direct(path, O_RDONLY));
		void *memory = aligned_alloc(4096, PIECE_BYTES);

		CHECK(memory);
		for (uint64_t i = 0;; i++) {
			CHECK_EQ(pread(fd, memory, PIECE_BYTES,
				       (off_t)(i * PIECE_BYTES % FILE_BYTES)),
				 PIECE_BYTES);
			if (i == 0)
				CHECK_EQ(write(fds[1], "", 1), 1);
		}
	}
	CHECK(wait_readable(fds[0], 60000000));
	(void)close(fds[0]);
	(void)close(fds[1]);
	return pid;
}

static void reader_stop(pid_t pid)
{
	CHECK_SYS(kill(pid, SIGKILL));
	(void)wait_status(pid);
}

/* Slow on purpose, so that a neighbour of any speed is more than a hundredth of it. */
#define SLOW_IO                                                                              \
	"bench", "io", "--folder", store.path, "--read", "--io_size", "2M", "--loops", "10", \
		"--block_size", "16K", "--queue_depth", "1"

#define SLOW_IO_BYTES (20 * MIB)

/* Bytes that the store's device has moved. */
static uint64_t device_bytes(void)
{
	_cleanup_(freep) char *text = NULL;
	uint64_t read_sectors, write_sectors;
	struct stat st;

	CHECK_SYS(stat(store.path, &st));
	text = file_text(
		test_text("/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev)));
	CHECK_EQ(sscanf(text, "%*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, &read_sectors,
			&write_sectors),
		 2);
	return (read_sectors + write_sectors) * 512;
}

/* Others go on, so it sees them sooner or later, however little they get. */
static void wait_disturbed(void)
{
	static const char key[] = "\"others_bytes\": ";
	_cleanup_(freep) char *out = NULL;
	const char *others;
	uint64_t before, moved;

	do {
		free(out);
		before = device_bytes();
		CTL(0, SLOW_IO, "--json");
		out = file_text(test_text("%s/out", test_dir()));
	} while (!strstr(out, "\"is_disturbed\": true"));
	check_says("err", "disturbed: others on this device moved ");
	others = strstr(out, key);
	CHECK(others);
	moved = device_bytes() - before;
	CHECK_MSG(strtoull(others + strlen(key), NULL, 10) + SLOW_IO_BYTES <= moved,
		  "the device moved %" PRIu64 " bytes: %s", moved, others);
}

TEST(reader, "a plain O_DIRECT reader of the disk is seen")
{
	pid_t reader;

	disk_open(STORE_EXT4);
	file_make_pattern(store_path(&store, "theirs"), FILE_BYTES, 1);
	reader = reader_start();
	wait_disturbed();
	reader_stop(reader);
}

/* Its bytes were once said to be of other programs. */
TEST(client, "a client of the daemon on the disk is seen, and not called another program")
{
	const char *theirs;
	pid_t client;

	disk_open(STORE_EXT4);
	theirs = store_path(&store, "client");
	CHECK_SYS(mkdir(theirs, 0700));
	client = ctl_start((const char *const[]){ "bench", "io", "--folder", theirs, "--io_size",
						  "4M", "--loops", "1000000", NULL });
	while (access(test_text("%s/_aio_write_4194304.pt.0_0", theirs), F_OK) < 0)
		(void)usleep(10000);
	wait_disturbed();
	CHECK(!file_says(test_text("%s/err", test_dir()), "programs"));
	CTL(1, SLOW_IO, "--exclusive");
	check_says("err", "--exclusive: the store is used by 1 other client: ");
	CHECK_SYS(kill(client, SIGKILL));
	(void)wait_status(client);
}

TEST(alone, "without others no point is disturbed, and nobody is ruled out")
{
	disk_open(STORE_EXT4);
	CTL(0, SLOW_IO, "--json");
	CHECK(!file_says(test_text("%s/err", test_dir()), "others"));
	check_says("out", "\"is_disturbed\": false");
	CTL(0, "bench", "io", "--folder", store.path, "--io_size", "8M", "--validate", "--json");
	check_says("out", "\"is_disturbed\": false");
	/* Two folders on one device count it once. */
	CHECK_SYS(mkdir(store_path(&store, "second"), 0700));
	CTL(0, "bench", "io", "--folder_to_device_mapping", test_text("%s:0", store.path),
	    test_text("%s/second:1", store.path), "--io_size", "8M", "--json");
	check_says("out", "\"is_disturbed\": false");
}

TEST(refused, "--exclusive refuses a disk that others use")
{
	pid_t reader;

	disk_open(STORE_EXT4);
	file_make_pattern(store_path(&store, "theirs"), FILE_BYTES, 1);
	reader = reader_start();
	CTL(1, SLOW_IO, "--exclusive");
	check_says("err", "--exclusive: others on this device moved ");
	CTL(1, "bench", "sweep", "--nvme_dir", store.path, "--io_size", "1M", "--exclusive",
	    "--log_dir", test_text("%s/logs", test_dir()));
	check_says("err", "--exclusive: others on this device moved ");
	reader_stop(reader);
}

/* Waits until the sweep's rows have it. */
static void results_wait(pid_t sweep, const char *words)
{
	const char *path = test_text("%s/logs/sweep.1/rows.jsonl", test_dir());

	while (!file_says(path, words)) {
		CHECK_MSG(waitpid(sweep, NULL, WNOHANG) == 0, "the sweep ended without %s", words);
		(void)usleep(10000);
	}
}

TEST(disturbed, "a sweep marks the points that a reader of the disk disturbed")
{
	const char *space = test_text("%s/space.json", test_dir());
	_cleanup_(fclosep) FILE *file = NULL;
	pid_t sweep, reader;

	disk_open(STORE_EXT4);
	file_make_pattern(store_path(&store, "theirs"), FILE_BYTES, 1);
	file = fopen(space, "we");
	CHECK(file && fprintf(file, "{\"block_size\": [\"16K\"], \"queue_depth\": [1") > 0);
	for (unsigned depth = 2; depth <= 250; depth++)
		CHECK(fprintf(file, ", %u", depth) > 0);
	CHECK(fprintf(file, "]}\n") > 0 && fflush(file) == 0);
	sweep = ctl_start((const char *const[]){
		"bench", "sweep", "--nvme_dir", store.path, "--io_size", "4M", "--log_dir",
		test_text("%s/logs", test_dir()), "--sweep_config", space, NULL });
	results_wait(sweep, "\"is_disturbed\":false");
	reader = reader_start();
	results_wait(sweep, "\"is_disturbed\":true");
	reader_stop(reader);
	CHECK_SYS(kill(sweep, SIGINT));
	(void)wait_status(sweep);
	check_says("out", "disturbed: others on this device moved ");
	check_says("err", "points were disturbed: others on this device moved ");
}

TEST(no_counters, "where the kernel counts nothing, nothing is said of others")
{
	disk_open(STORE_TMPFS);
	CTL(0, "bench", "io", "--folder", store.path, "--io_size", "1M", "--json");
	CHECK(!file_says(test_text("%s/err", test_dir()), "others"));
	check_says("out", "\"others_bytes\": null");
}

TEST_MAIN
