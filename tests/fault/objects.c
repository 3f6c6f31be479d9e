/*
 * Bad objects: descriptors of the wrong kind (C5, C19, C23), ids that are stale or another
 * client's (C6, C7), ranges that overflow (C8), and what a client may not do to the memory that
 * it shares (C22).
 *
 * It is over 600 lines because the attacks share the raw client and the check that it is served on.
 */
#include "tests/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Everything that a session by hand needs for ops. */
struct kit {
	struct raw raw;
	struct raw_slab slab;
	struct raw_file file;
	struct raw_channel channel;
	uint32_t handle;
	const char *path;
};

static void kit_open(struct kit *kit, const struct daemon *daemon, const char *name, bool rings)
{
	*kit = (struct kit){ .raw = RAW_NONE };
	raw_open(&kit->raw, daemon);
	kit->path = daemon_path(daemon, name);
	file_make_pattern(kit->path, 65536, 1);
	raw_slab(&kit->raw, 65536, &kit->slab);
	raw_file(&kit->raw, kit->path, O_RDWR, &kit->file);
	kit->handle = raw_handle(&kit->raw);
	raw_channel(&kit->raw, kit->handle, kit->file.store, 16, rings, &kit->channel);
}

static void kit_close(struct kit *kit)
{
	raw_slab_unmap(&kit->slab);
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
}

static struct ring_entry kit_read(const struct kit *kit)
{
	return (struct ring_entry){
		.opcode = RING_OP_READ, .file = kit->file.id, .slab = kit->slab.id, .len = 4096
	};
}

static void kit_check_works(struct kit *kit)
{
	memset(kit->slab.memory, 0, 4096);
	CHECK_EQ(raw_run_one(&kit->channel, kit_read(kit)), 4096);
	pattern_check(kit->slab.memory, 4096, 1, 0, "the session works");
}

/* An op that names a slab that is not there. */
static void check_no_slab(int64_t result)
{
	int error = ring_result_errno(result);

	CHECK_MSG(error == EBADF || error == EFAULT, "%" PRId64, result);
	CHECK_EQ(ring_result_done(result), 0);
}

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

/* ---- C6 ---- */

FAULT(c6_file, "C6 a stale file id: the new file in its place is not reached")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);
	struct ring_entry entry;
	struct raw_file next;
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	entry = kit_read(&kit);
	remove.file = kit.file.id;
	raw_call_ok(&kit.raw, &request, NULL, 0, &answer);
	CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EBADF);
	for (unsigned i = 0; i < 300; i++) { /* until its slot must have been used again */
		_cleanup_(answer_free) struct answer removed = ANSWER_NONE;

		raw_file(&kit.raw, kit.path, O_RDWR, &next);
		CHECK(next.id && next.id != kit.file.id);
		CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EBADF);
		remove.file = next.id;
		raw_call_ok(&kit.raw, &request, NULL, 0, &removed);
	}
	remove.file = kit.file.id;
	raw_call_refused(&kit.raw, &request, NULL, 0, test_text("%u", kit.file.id));
	raw_file(&kit.raw, kit.path, O_RDWR, &kit.file);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c6_slab, "C6 a stale slab id: the new slab in its place is not reached")
{
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);
	struct ring_entry entry;
	struct raw_slab next;
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	entry = kit_read(&kit);
	raw_slab(&kit.raw, 4096, &next);
	entry.slab = next.id;
	CHECK_EQ(raw_run_one(&kit.channel, entry), 4096);
	for (unsigned i = 0; i < 100; i++) {
		_cleanup_(answer_free) struct answer freed = ANSWER_NONE;
		uint32_t old = next.id;

		slab_free.slab = next.id;
		raw_slab_unmap(&next);
		raw_call_ok(&kit.raw, &request, NULL, 0, &freed);
		check_no_slab(raw_run_one(&kit.channel, entry));
		raw_slab(&kit.raw, 4096, &next);
		CHECK(next.id && next.id != old && next.id != entry.slab);
		check_no_slab(raw_run_one(&kit.channel, entry));
		for (unsigned k = 0; k < 4096; k++)
			CHECK(!next.memory[k]);
	}
	slab_free.slab = entry.slab;
	raw_call_refused(&kit.raw, &request, NULL, 0, test_text("%u", entry.slab));
	kit_check_works(&kit);
	raw_slab_unmap(&next);
	kit_close(&kit);
}

FAULT(c6_handle, "C6 stale handle and channel ids are refused")
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__HandleClose handle_close = WIRE__HANDLE_CLOSE__INIT;
	Wire__ChannelOpen channel_open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Cancel cancel = WIRE__CANCEL__INIT;
	Wire__Request close_request = RAW_REQUEST(HANDLE_CLOSE, handle_close, &handle_close);
	Wire__Request open_request = RAW_REQUEST(CHANNEL_OPEN, channel_open, &channel_open);
	Wire__Request submit_request = RAW_REQUEST(SUBMIT, submit, &submit);
	Wire__Request cancel_request = RAW_REQUEST(CANCEL, cancel, &cancel);
	uint32_t next;
	struct kit kit;

	kit_open(&kit, daemon, "f", false);
	handle_close.handle = kit.handle;
	raw_call_ok(&kit.raw, &close_request, NULL, 0, &answer);
	next = raw_handle(&kit.raw);
	CHECK(next != kit.handle);
	raw_call_refused(&kit.raw, &close_request, NULL, 0, "handle");
	channel_open.handle = kit.handle;
	channel_open.store = kit.file.store;
	raw_call_refused(&kit.raw, &open_request, NULL, 0, "handle");
	channel_open.handle = next;
	channel_open.store = 999;
	raw_call_refused(&kit.raw, &open_request, NULL, 0, "store;999");
	submit.channel = kit.channel.id;
	raw_call_refused(&kit.raw, &submit_request, NULL, 0, "channel");
	cancel.channel = kit.channel.id;
	raw_call_refused(&kit.raw, &cancel_request, NULL, 0, "channel");
	raw_channel_unmap(&kit.channel);
	raw_channel(&kit.raw, next, kit.file.store, 4, false, &kit.channel);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c6_reuse, "C6 a file and a slab that are taken away with ops in flight: the ops end well")
{
	enum { N = 32 };
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__Request remove_request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);
	Wire__Request free_request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);
	_cleanup_(answer_free) struct answer removed = ANSWER_NONE, freed = ANSWER_NONE;
	struct ring_completion completions[N];
	struct raw_channel channel;
	struct raw_slab slab;
	struct raw_file file;
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	file_make_pattern(daemon_path(daemon, "g"), N * MIB, 1);
	raw_file(&kit.raw, daemon_path(daemon, "g"), O_RDONLY, &file);
	raw_slab(&kit.raw, N * MIB, &slab);
	raw_channel(&kit.raw, raw_handle(&kit.raw), file.store, N, true, &channel);
	for (unsigned i = 0; i < N; i++)
		raw_put(&channel, &(struct ring_entry){ .opcode = RING_OP_READ,
							.file = file.id,
							.slab = slab.id,
							.off = i * MIB,
							.slab_off = i * MIB,
							.len = MIB });
	raw_ring(&channel);
	/* Both are answered when no block uses them any more. */
	remove.file = file.id;
	slab_free.slab = slab.id;
	raw_call_ok(&kit.raw, &remove_request, NULL, 0, &removed);
	raw_call_ok(&kit.raw, &free_request, NULL, 0, &freed);
	CHECK(raw_reap(&channel, N, completions, 20000000));
	for (unsigned i = 0; i < N; i++)
		CHECK(completions[i].result == (int64_t)MIB ||
		      ring_result_errno(completions[i].result) == EBADF);
	kit_check_works(&kit);
	raw_slab_unmap(&slab);
	raw_channel_unmap(&channel);
	kit_close(&kit);
}

/* ---- C7 ---- */

FAULT(c7_ids, "C7 buffer, file, handle and channel ids of another client reach nothing")
{
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__HandleClose handle_close = WIRE__HANDLE_CLOSE__INIT;
	Wire__ChannelOpen channel_open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Cancel cancel = WIRE__CANCEL__INIT;
	Wire__Request requests[] = {
		RAW_REQUEST(FILE_REMOVE, file_remove, &remove),
		RAW_REQUEST(SLAB_FREE, slab_free, &slab_free),
		RAW_REQUEST(HANDLE_CLOSE, handle_close, &handle_close),
		RAW_REQUEST(CHANNEL_OPEN, channel_open, &channel_open),
		RAW_REQUEST(SUBMIT, submit, &submit),
		RAW_REQUEST(CANCEL, cancel, &cancel),
	};
	struct raw thief = RAW_NONE;
	struct kit kit;

	kit_open(&kit, daemon, "f", false);
	raw_open(&thief, daemon); /* has nothing of its own: any hit would be the other's */
	remove.file = kit.file.id;
	slab_free.slab = kit.slab.id;
	handle_close.handle = channel_open.handle = kit.handle;
	channel_open.store = kit.file.store;
	submit.channel = cancel.channel = kit.channel.id;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
		raw_call_refused(&thief, &requests[i], NULL, 0, "");
	raw_close(&thief);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c7_ops, "C7 ops that name another client's buffer or file reach only what is one's own")
{
	struct kit kit, thief;

	for (unsigned rings = 0; rings < 2; rings++) {
		struct raw_slab more;
		struct ring_entry entry;

		kit_open(&kit, daemon, "f", rings);
		kit_open(&thief, daemon, "g", rings);
		/* Further objects, so that the owner has ids that the thief has not. */
		for (unsigned i = 0; i < 4; i++) {
			raw_slab(&kit.raw, 4096, &more);
			memset(more.memory, 0x55, 4096);
			raw_file(&kit.raw, kit.path, O_RDWR, &kit.file);
		}
		entry = kit_read(&thief);
		entry.slab = more.id;
		check_no_slab(raw_run_one(&thief.channel, entry));
		entry = kit_read(&thief);
		entry.opcode = RING_OP_WRITE;
		entry.file = kit.file.id;
		CHECK_EQ(ring_result_errno(raw_run_one(&thief.channel, entry)), EBADF);
		/* The same number may be one's own object: then it is that one. */
		memset(kit.slab.memory, 0x77, 4096);
		entry = kit_read(&thief);
		entry.slab = kit.slab.id;
		(void)raw_run_one(&thief.channel, entry);
		for (unsigned i = 0; i < 4096; i++) {
			CHECK_EQ(more.memory[i], 0x55);
			CHECK_EQ(kit.slab.memory[i], 0x77);
		}
		file_check_pattern(kit.path, 0, 65536, 1, 0);
		kit_check_works(&kit);
		kit_check_works(&thief);
		raw_slab_unmap(&more);
		kit_close(&thief);
		kit_close(&kit);
	}
}

FAULT(c7_library, "C7 the library refuses a file of another client and tells why")
{
	_cleanup_(rig_close) struct rig a = { .daemon = daemon }, b = { .daemon = daemon };
	struct dsaio_op *op;
	uint8_t buf[4096];
	void *memory;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	rig_file(&a, "f", O_RDWR);
	CHECK_FAILS(dsaio_pread(b.handle, a.files[0], buf, 4096, 0), -EBADF, "client");
	CHECK_FAILS(dsaio_pread_async(b.handle, a.files[0], buf, 4096, 0, &op), -EBADF, "client");
	CHECK_FAILS(dsaio_fsync(b.handle, a.files[0]), -EBADF, "client");
	/* Pinned memory of the other client is just memory. */
	CHECK_CALL(dsaio_alloc(a.client, 4096, &memory));
	CHECK(!dsaio_is_pinned(b.client, memory, 4096));
	CHECK_EQ(dsaio_free(b.client, memory), -EINVAL);
	CHECK_EQ(dsaio_pread(b.handle, rig_file(&b, "f", O_RDONLY), memory, 4096, 0), 4096);
	pattern_check(memory, 4096, 1, 0, "the other's memory");
}

/* ---- C8 ---- */

static const struct {
	const char *what;
	uint64_t off, len, slab_off;
} ranges[] = {
	{ "off + len passes 2^63", (uint64_t)INT64_MAX - 4095, 8192, 0 },
	{ "off is 2^63", (uint64_t)1 << 63, 4096, 0 },
	{ "off + len passes 2^64", UINT64_MAX - 4095, 8192, 0 },
	{ "off and len are the largest", UINT64_MAX, UINT64_MAX, 0 },
	{ "len is 2^63", 0, (uint64_t)1 << 63, 0 },
	{ "len is the largest multiple", 0, UINT64_MAX - 4095, 0 },
	{ "one block more than the slab", 0, 65536 + 4096, 0 },
	{ "ends one block behind the slab", 0, 65536, 4096 },
	{ "starts at the slab's end", 0, 4096, 65536 },
	{ "slab_off passes 2^64", 0, 8192, UINT64_MAX - 4095 },
	{ "slab_off + len wraps to 0", 0, 4096, UINT64_MAX - 4095 },
	{ "all of it", UINT64_MAX, UINT64_MAX, UINT64_MAX },
};

TEST_TABLE(c8_range, ranges, "C8 ranges that overflow")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	beside_start(daemon);
	for (unsigned rings = 0; rings < 2; rings++) {
		kit_open(&kit, daemon, "f", rings);
		memset(kit.slab.memory, 0x77, 65536);
		for (uint8_t opcode = RING_OP_READ; opcode <= RING_OP_WRITE; opcode++) {
			struct ring_entry entry = kit_read(&kit);
			int64_t r;

			entry.opcode = opcode;
			entry.off = ranges[row].off;
			entry.len = ranges[row].len;
			entry.slab_off = ranges[row].slab_off;
			r = raw_run_one(&kit.channel, entry);
			CHECK_MSG(ring_result_errno(r) == EINVAL ||
					  ring_result_errno(r) == ERANGE ||
					  ring_result_errno(r) == EOVERFLOW ||
					  ring_result_errno(r) == EFAULT,
				  "%" PRId64, r);
			CHECK_EQ(ring_result_done(r), 0);
		}
		for (unsigned i = 0; i < 65536; i++)
			CHECK_EQ(kit.slab.memory[i], 0x77);
		file_check_pattern(kit.path, 0, 65536, 1, 0);
		kit_check_works(&kit);
		kit_close(&kit);
	}
	beside_ok();
}

FAULT(c8_sizes, "C8 sizes that overflow: slabs, names")
{
	static const uint64_t sizes[] = { 0, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)1 << 63,
					  (uint64_t)1 << 50 };
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_NEW, slab_new, &slab_new);
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		slab_new.size_bytes = sizes[i];
		raw_call(&kit.raw, &request, NULL, 0, &answer);
		CHECK(answer.reply->error == -EINVAL || answer.reply->error == -ENOMEM);
		CHECK(*answer.reply->text);
		CHECK_EQ(answer.n_fds, 0);
	}
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c8_library, "C8 the library refuses what overflows and names the numbers")
{
	_cleanup_(rig_close) struct rig rig = { .daemon = daemon };
	uint8_t buf[4096];
	void *memory;

	rig_open(&rig, NULL);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	rig_file(&rig, "f", O_RDWR);
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], buf, 4096, UINT64_MAX), -EINVAL,
		    "18446744073709551615");
	CHECK_FAILS(dsaio_pwrite(rig.handle, rig.files[0], buf, 4096, (uint64_t)INT64_MAX), -EINVAL,
		    "9223372036854775807");
	CHECK_FAILS(dsaio_pread(rig.handle, rig.files[0], buf, SIZE_MAX, 1), -EINVAL, "f");
	CHECK(dsaio_alloc(rig.client, SIZE_MAX, &memory) < 0);
	CHECK(dsaio_alloc(rig.client, SIZE_MAX - 4096, &memory) < 0);
	CHECK(!dsaio_is_pinned(rig.client, buf, SIZE_MAX));
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
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

TEST(c19_no_store, "C19 a file on no store: -ENXIO, and the sentence names the stores")
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
	CHECK_FAILS(dsaio_file_open(rig.client, path, O_RDWR, &file), -ENXIO,
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

/* ---- C22 ---- */

static void check_sealed(int fd, int seals, size_t size, const char *what)
{
	int got = (int)CHECK_SYS(fcntl(fd, F_GET_SEALS));

	CHECK_MSG((got & seals) == seals, "%s: seals 0x%x, not 0x%x", what, got, seals);
	CHECK_MSG(ftruncate(fd, 0) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(ftruncate(fd, (off_t)(size / 2)) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(ftruncate(fd, (off_t)(2 * size)) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(fallocate(fd, 0, (off_t)size, 4096) < 0 && errno == EPERM, "%s", what);
	CHECK_MSG(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && (errno == EPERM || errno == EBUSY),
		  "%s", what);
	CHECK_MSG(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 && errno == EPERM, "%s", what);
}

FAULT(c22_seals, "C22 memory of the daemon cannot be shrunk, grown or sealed by a client")
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	check_sealed(kit.slab.fd, seals, kit.slab.size, "slab");
	check_sealed(kit.channel.ring_fd, seals, ring_bytes(kit.channel.entries), "ring");
	check_sealed(kit.channel.board_fd, seals | F_SEAL_FUTURE_WRITE, 4096, "lane board");
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_board, "C22 the lane board can only be read")
{
	_cleanup_(closep) int again = -1;
	uint8_t bytes[64] = { 0 };
	void *map;
	int fds[2];
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	fds[0] = kit.channel.board_fd;
	/* Another description of it, by /proc, helps nobody. */
	again = open(test_text("/proc/self/fd/%d", kit.channel.board_fd), O_RDWR | O_CLOEXEC);
	fds[1] = again;
	for (unsigned i = 0; i < 2; i++) {
		if (fds[i] < 0)
			continue;
		map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		CHECK(map == MAP_FAILED && (errno == EPERM || errno == EACCES));
		CHECK(write(fds[i], bytes, sizeof(bytes)) < 0);
		CHECK(pwrite(fds[i], bytes, sizeof(bytes), 0) < 0);
		CHECK(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
		CHECK(ftruncate(fds[i], 0) < 0);
	}
	CHECK(mprotect(kit.channel.board, 4096, PROT_READ | PROT_WRITE) < 0);
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_punch, "C22 a client that punches its slab and its ring away while ops run")
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct ring_completion completions[16];
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	for (unsigned round = 0; round < 200; round++) {
		struct ring_entry entry = kit_read(&kit);

		for (unsigned i = 0; i < 8; i++)
			raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
		CHECK_SYS(fallocate(kit.slab.fd, punch, 0, 65536));
		CHECK(raw_reap(&kit.channel, 8, completions, 20000000));
		for (unsigned i = 0; i < 8; i++)
			CHECK(completions[i].result == 4096 ||
			      ring_result_errno(completions[i].result) > 0);
	}
	kit_check_works(&kit);
	/* The ring itself: zeros in place of its words.  The session may end. */
	CHECK_SYS(fallocate(kit.channel.ring_fd, punch, 0, (off_t)ring_bytes(kit.channel.entries)));
	raw_put(&kit.channel, &(struct ring_entry){ .opcode = RING_OP_READ });
	(void)ring_client_submit(&kit.channel.ring);
	CHECK_EQ(write(kit.channel.bell_fd, &(uint64_t){ 1 }, 8), 8);
	beside_ok();
	kit_close(&kit);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

FAULT(c22_memfd, "C22 a memfd of the client's own, sealed or not, is no file of a store")
{
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__Request request = RAW_REQUEST(FILE_ADD, file_add, &file_add);
	static const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE,
				     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	file_add.name = (char *)(uintptr_t) "memfd";
	for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
		_cleanup_(closep) int fd = (int)CHECK_SYS(
			memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));

		CHECK_SYS(ftruncate(fd, 65536));
		if (seals[i])
			CHECK_SYS(fcntl(fd, F_ADD_SEALS, seals[i]));
		raw_call_refused(&kit.raw, &request, &fd, 1, "memfd;store");
	}
	kit_check_works(&kit);
	kit_close(&kit);
}

FAULT(c22_ring_words, "C22 a client that writes the daemon's words of its ring hurts only itself")
{
	struct kit kit;

	kit_open(&kit, daemon, "f", true);
	for (unsigned round = 0; round < 100; round++) {
		struct ring_entry entry = kit_read(&kit);
		struct ring_shared *shared = kit.channel.map;
		struct ring_completion completion;

		raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
		/* It may be parked, whatever we wrote there in the last round. */
		CHECK_SYS(eventfd_write(kit.channel.bell_fd, 1));
		atomic_store(&shared->cq_bell, (uint32_t)round * 77777);
		atomic_store(&shared->sq_park, (uint64_t)round);
		shared->magic = round;
		shared->version = round;
		shared->entries = round * 1000000;
		CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
		CHECK_EQ(completion.result, 4096);
		if (round % 8 == 7) { /* the tail: it is written anew with the next completion */
			raw_put(&kit.channel, &entry);
			raw_ring(&kit.channel);
			CHECK_SYS(eventfd_write(kit.channel.bell_fd, 1));
			CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
			CHECK_EQ(completion.result, 4096);
		}
	}
	beside_ok();
	kit_close(&kit);
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
	CHECK_FAILS(dsaio_file_open(rig.client, kit.path, O_RDWR | O_APPEND, &file), -EINVAL,
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
