/*
 * Bad objects: ids that are stale or another client's (C6, C7), and ranges that overflow (C8).
 */
#include "tests/kit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

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
	CHECK_FAILS(dsaio_fsync(b.handle, a.files[0], 0), -EBADF, "client");
	/* Pinned memory of the other client is just memory. */
	CHECK_CALL(dsaio_alloc(a.client, 4096, NULL, &memory));
	CHECK(!is_registered(b.client, memory, 4096));
	CHECK_EQ(dsaio_free(b.client, memory), -EINVAL);
	CHECK_EQ(dsaio_pread(b.handle, rig_file(&b, "f", O_RDONLY), memory, 4096, 0), 4096);
	pattern_check(memory, 4096, 1, 0, "the other's memory");
}

/* ---- objects that a lane may look at ---- */

static pid_t lane_thread(const struct daemon *daemon)
{
	const char *dir = test_text("/proc/%d/task", daemon->pid);
	const struct dirent *entry;
	DIR *tasks = opendir(dir);
	pid_t lane = 0;

	CHECK(tasks);
	while ((entry = readdir(tasks))) {
		_cleanup_(fclosep)
			FILE *file = fopen(test_text("%s/%s/comm", dir, entry->d_name), "re");
		char name[32] = "";

		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "lane t\n"))
			lane = (pid_t)atoi(entry->d_name);
	}
	(void)closedir(tasks);
	CHECK(lane);
	return lane;
}

static const struct {
	const char *what;
	bool is_file;
} objects[] = { { "a slab", false }, { "a file", true } };

TEST_TABLE(quiet, objects,
	   "an object that a lane may look at did not wait for the lane before it went")
{
	struct daemon *daemon = daemon_start(NULL);
	Wire__SlabFree slab_free = WIRE__SLAB_FREE__INIT;
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(SLAB_FREE, slab_free, &slab_free);
	struct kit kit;
	pid_t lane;

	kit_open(&kit, daemon, "f", true);
	slab_free.slab = kit.slab.id;
	remove.file = kit.file.id;
	if (objects[row].is_file)
		request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);
	lane = lane_thread(daemon);
	if (ptrace(PTRACE_SEIZE, lane, 0, 0) < 0)
		test_skip("ptrace: %s", strerror(errno));
	CHECK_SYS(ptrace(PTRACE_INTERRUPT, lane, 0, 0));
	CHECK_EQ(waitpid(lane, NULL, __WALL), lane);
	raw_send(&kit.raw, &request, NULL, 0);
	CHECK(!wait_readable(kit.raw.fd, 500000));
	CHECK_SYS(ptrace(PTRACE_DETACH, lane, 0, 0));
	raw_receive_ok(&kit.raw);
	kit_close(&kit);
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
	CHECK(dsaio_alloc(rig.client, SIZE_MAX, NULL, &memory) < 0);
	CHECK(dsaio_alloc(rig.client, SIZE_MAX - 4096, NULL, &memory) < 0);
	CHECK(!is_registered(rig.client, buf, SIZE_MAX));
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], buf, 4096, 0), 4096);
}

TEST_MAIN
