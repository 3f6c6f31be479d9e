/*
 * Bad descriptors: of the wrong kind, with changed flags, of no store (C5, C19, C23).
 */
#include "tests/kit.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- C5 ---- */

static int open_directory(const struct daemon *daemon)
{
	return open(daemon->store_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}
static int open_pipe(const struct daemon *daemon)
{
	int fds[2];

	(void)daemon;
	CHECK_SYS(pipe2(fds, O_CLOEXEC));
	close(fds[1]);
	return fds[0];
}
static int open_socket(const struct daemon *daemon)
{
	(void)daemon;
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}
static int open_null(const struct daemon *daemon)
{
	(void)daemon;
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}
static int open_proc(const struct daemon *daemon)
{
	(void)daemon;
	return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}
static int open_path(const struct daemon *daemon)
{
	return open(daemon_path(daemon, "f"), O_PATH | O_CLOEXEC);
}
static int open_buffered(const struct daemon *daemon)
{
	return open(daemon_path(daemon, "f"), O_RDWR | O_CLOEXEC);
}
static int open_pidfd(const struct daemon *daemon)
{
	(void)daemon;
	return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

static const struct {
	const char *what;
	int (*open)(const struct daemon *daemon);
	int errors[2];
	const char *words;
} kinds[] = {
	{ "a directory", open_directory, { EOPNOTSUPP }, "director" },
	{ "a pipe", open_pipe, { EOPNOTSUPP }, "pipe" },
	{ "a socket", open_socket, { EOPNOTSUPP }, "socket" },
	{ "a character device", open_null, { EOPNOTSUPP }, "character" },
	{ "a file of /proc", open_proc, { EOPNOTSUPP, ENXIO }, "" },
	{ "a pidfd", open_pidfd, { EOPNOTSUPP, ENXIO }, "" },
	{ "opened with O_PATH", open_path, { EBADF }, "O_PATH" },
	{ "opened without O_DIRECT", open_buffered, { EOPNOTSUPP }, "O_DIRECT" },
};

TEST_TABLE(c5_kind, kinds, "C5 a descriptor of the wrong kind")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = -1;
	struct daemon *daemon = daemon_start(NULL);
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	struct usage before;
	struct kit kit;
	int error;

	beside_start(daemon);
	kit_open(&kit, daemon, "f", true);
	before = daemon_usage_settled(daemon);
	fd = (int)CHECK_SYS(kinds[row].open(daemon));
	file_add.name = (char *)(uintptr_t) "weights.bin";
	raw_call(&kit.raw, &request, &fd, 1, &answer);
	error = answer.reply->error;
	if (error != -kinds[row].errors[1] || !error)
		error = -kinds[row].errors[0];
	answer_check_fails(&answer, error, test_text("weights.bin;%s", kinds[row].words));
	kit_check_works(&kit);
	daemon_usage_back(daemon, &before); /* it is closed there */
	kit_close(&kit);
	beside_ok();
}

FAULT(c5_access, "C5 a read-only descriptor for a write, a write-only one for a read: EBADF")
{
	struct ring_entry entry;
	struct raw_file file;
	struct kit kit;

	for (unsigned rings = 0; rings < 2; rings++) {
		kit_open(&kit, daemon, "f", rings);
		raw_file(&kit.raw, kit.path, O_RDONLY, &file);
		entry = kit_read(&kit);
		entry.file = file.id;
		entry.opcode = RING_OP_WRITE;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EBADF);
		entry.opcode = RING_OP_READ;
		CHECK_EQ(raw_run_one(&kit.channel, entry), 4096);
		raw_file(&kit.raw, kit.path, O_WRONLY, &file);
		entry.file = file.id;
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EBADF);
		kit_check_works(&kit);
		file_check_pattern(kit.path, 0, 65536, 1, 0);
		kit_close(&kit);
	}
}

FAULT(c5_flags, "C5 flags of a descriptor that change after it was handed over")
{
	struct ring_entry entry;
	struct raw_file file;
	struct kit kit;
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(closep) int fd = -1;
	int64_t r;

	kit_open(&kit, daemon, "f", true);
	fd = open_direct(kit.path, O_RDWR);
	raw_call_ok(&kit.raw, &request, &fd, 1, &answer);
	file.id = answer.reply->file_add->file;
	/* O_DIRECT off, O_APPEND on: the description is shared.  No byte of others changes. */
	CHECK_SYS(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	entry = kit_read(&kit);
	entry.file = file.id;
	for (unsigned i = 0; i < 50; i++) {
		entry.opcode = i % 2 ? RING_OP_WRITE : RING_OP_READ;
		r = raw_run_one(&kit.channel, entry);
		CHECK(r == 4096 || ring_result_errno(r) > 0);
	}
	beside_ok();
	kit_close(&kit);
}

/* ---- C19 ---- */

/* A daemon that serves the store that it was given, and no other. */
static struct daemon *daemon_without_automatic_stores(void)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	_cleanup_(fclosep) FILE *file = fopen(path, "we");

	CHECK(file && fputs("[daemon]\nauto_stores = no\n", file) >= 0 && fflush(file) == 0);
	return daemon_start(DAEMON_ARGS("--config", path));
}

TEST(c19_no_store, "C19 a file on no store: -ENXIO, and the message names the stores")
{
	struct daemon *daemon = daemon_without_automatic_stores();
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	_cleanup_(closep) int fd = -1;
	const char *path = test_text("%s/elsewhere.bin", test_dir_in("/dev/shm"));
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	struct dsaio_file *file;
	uint8_t buf[4096];
	struct kit kit;

	file_make_pattern(path, 4096, 1);
	beside_start(daemon);
	rig_open(&rig, NULL);
	CHECK_FAILS(dsaio_open(rig.client, path, O_RDWR, NULL, &file), -ENXIO,
		    test_text("elsewhere.bin;store;t;%s", daemon->store_dir));
	fd = (int)CHECK_SYS(open(path, O_RDWR | O_CLOEXEC));
	CHECK_FAILS(dsaio_file_from_fd(rig.client, fd, &file), -ENXIO, "store;t");
	kit_open(&kit, daemon, "f", true);
	file_add.name = (char *)(uintptr_t) "elsewhere.bin";
	raw_call_fails(&kit.raw, &request, &fd, 1, -ENXIO, "elsewhere.bin;store;t");
	kit_check_works(&kit);
	kit_close(&kit);
	file_make_pattern(daemon_path(daemon, "g"), 4096, 1);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "g", O_RDONLY), buf, 4096, 0), 4096);
	beside_ok();
}

/* ---- C23 ---- */

FAULT(c23_append,
      "C23 O_APPEND: a writable file is refused with the reason, a read-only one served")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	_cleanup_(closep) int writable = -1, read_only = -1;
	struct dsaio_file *file;
	uint8_t buf[4096];
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	rig_open(&rig, NULL);
	CHECK_FAILS(dsaio_open(rig.client, kit.path, O_RDWR | O_APPEND, NULL, &file), -EINVAL,
		    "O_APPEND;f");
	writable = open_direct(kit.path, O_WRONLY | O_APPEND);
	read_only = open_direct(kit.path, O_RDONLY | O_APPEND);
	CHECK_FAILS(dsaio_file_from_fd(rig.client, writable, &file), -EINVAL, "O_APPEND");
	file_add.name = (char *)(uintptr_t) "log.bin";
	raw_call_fails(&kit.raw, &request, &writable, 1, -EINVAL, "O_APPEND;log.bin");
	{
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
		struct ring_entry entry = kit_read(&kit);

		raw_call_ok(&kit.raw, &request, &read_only, 1, &answer);
		entry.file = answer.reply->file_add->file;
		CHECK_EQ(raw_run_one(&kit.channel, entry), 4096);
	}
	CHECK_EQ(file_size(kit.path), 65536);
	file_check_pattern(kit.path, 0, 65536, 1, 0);
	CHECK_EQ(dsaio_pread(rig.handle, rig_file(&rig, "f", O_RDONLY), buf, 4096, 0), 4096);
	kit_check_works(&kit);
	kit_close(&kit);
}

TEST_MAIN
