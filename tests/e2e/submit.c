/*
 * The portable path: the same table of ops by Submit on the socket and by the rings gives the
 * same results, the same bytes in memory and the same bytes in the file, errors included.
 */
#include "tests/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES ((uint64_t)65536)
#define SLAB_BYTES (4 * MIB)

enum { GOOD, READ_ONLY, WRITE_ONLY, NO_FILE, STALE_FILE };
enum { SLAB, NO_SLAB, ZERO_SLAB };

/* Writes use memory that no read changes: ops of a batch may run at the same time. */
static const struct {
	const char *what;
	uint8_t opcode;
	int file, slab;
	uint64_t off, len, slab_off;
	bool must_fail;
} rows[] = {
#define R RING_OP_READ
#define W RING_OP_WRITE
	{ "read", R, GOOD, SLAB, 0, 4096, 0, false },
	{ "read of many blocks", R, GOOD, SLAB, 4096, 57344, 4096, false },
	{ "read across the end", R, GOOD, SLAB, 61440, 8192, 0, false },
	{ "read from the end", R, GOOD, SLAB, 65536, 4096, 0, false },
	{ "read far behind the end", R, GOOD, SLAB, UINT64_C(1) << 40, 4096, 0, false },
	{ "read of nothing", R, GOOD, SLAB, 0, 0, 0, false },
	{ "write", W, GOOD, SLAB, 8192, 4096, 2 * MIB, false },
	{ "write that extends", W, GOOD, SLAB, 65536, 8192, 2 * MIB, false },
	{ "write of nothing", W, GOOD, SLAB, 0, 0, 0, false },
	{ "fsync", RING_OP_FSYNC, GOOD, ZERO_SLAB, 0, 0, 0, false },
	{ "fdatasync", RING_OP_FDATASYNC, GOOD, ZERO_SLAB, 0, 0, 0, false },
	{ "read-only file, read", R, READ_ONLY, SLAB, 0, 4096, 0, false },
	{ "read-only file, write", W, READ_ONLY, SLAB, 0, 4096, 0, true },
	{ "write-only file, read", R, WRITE_ONLY, SLAB, 0, 4096, 0, true },
	{ "write-only file, write", W, WRITE_ONLY, SLAB, 4096, 4096, 2 * MIB, false },
	{ "no such file", R, NO_FILE, SLAB, 0, 4096, 0, true },
	{ "a file that was removed", R, STALE_FILE, SLAB, 0, 4096, 0, true },
	{ "no such slab", R, GOOD, NO_SLAB, 0, 4096, 0, true },
	{ "slab 0", R, GOOD, ZERO_SLAB, 0, 4096, 0, true },
	{ "no opcode", 0, GOOD, SLAB, 0, 4096, 0, true },
	{ "opcode 5", 5, GOOD, SLAB, 0, 4096, 0, true },
	{ "opcode 255", 255, GOOD, SLAB, 0, 4096, 0, true },
	{ "ends behind the slab", R, GOOD, SLAB, 0, 8192, SLAB_BYTES - 4096, true },
	{ "starts behind the slab", R, GOOD, SLAB, 0, 4096, SLAB_BYTES, true },
	{ "slab range passes 2^64", R, GOOD, SLAB, 0, 8192, UINT64_MAX - 4095, true },
	{ "file range passes 2^63", R, GOOD, SLAB, (uint64_t)INT64_MAX - 4095, 8192, 0, true },
	{ "file range passes 2^64", W, GOOD, SLAB, UINT64_MAX - 4095, 8192, 0, true },
	{ "too long", R, GOOD, SLAB, 0, (uint64_t)RING_LEN_MAX + 4096, 0, true },
	{ "odd file offset, read", R, GOOD, SLAB, 1, 4096, 0, false },
	{ "odd memory offset, read", R, GOOD, SLAB, 0, 4096, 1, false },
	{ "odd length, read", R, GOOD, SLAB, 0, 4095, 0, false },
	{ "odd file offset, write, no buffered description", W, GOOD, SLAB, 1, 4096, 0, true },
	{ "odd memory offset, write, no buffered description", W, GOOD, SLAB, 0, 4096, 1, true },
	{ "odd length, write, no buffered description", W, GOOD, SLAB, 0, 4095, 0, true },
#undef R
#undef W
};

struct side {
	struct raw_channel channel;
	struct raw_slab slab;
	uint32_t files[5];
	const char *path;
};

static void side_open(struct side *side, struct raw *raw, const struct daemon *daemon, bool rings)
{
	struct raw_file f;
	Wire__FileRemove remove = WIRE__FILE_REMOVE__INIT;
	Wire__Request request = RAW_REQUEST(FILE_REMOVE, file_remove, &remove);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

	side->path = daemon_path(daemon, rings ? "by rings" : "by submit");
	file_make_pattern(side->path, FILE_BYTES, 1);
	raw_slab(raw, SLAB_BYTES, &side->slab);
	pattern_fill(side->slab.memory, SLAB_BYTES, 2, 0);

	raw_file(raw, side->path, O_RDWR, &f);
	side->files[STALE_FILE] = f.id;
	remove.file = f.id;
	raw_call(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->error, 0);
	raw_file(raw, side->path, O_RDWR, &f);
	side->files[GOOD] = f.id;
	raw_file(raw, side->path, O_RDONLY, &f);
	side->files[READ_ONLY] = f.id;
	raw_file(raw, side->path, O_WRONLY, &f);
	side->files[WRITE_ONLY] = f.id;
	side->files[NO_FILE] = 0x7fff1234;
	raw_channel(raw, raw_handle(raw), f.store, 64, rings, &side->channel);
}

static struct ring_entry side_entry(const struct side *side, int row)
{
	return (struct ring_entry){ .opcode = rows[row].opcode,
				    .file = side->files[rows[row].file],
				    .slab = rows[row].slab == SLAB	? side->slab.id
					    : rows[row].slab == NO_SLAB ? 0x7fff1234
									: 0,
				    .slab_off = rows[row].slab_off,
				    .off = rows[row].off,
				    .len = rows[row].len };
}

static void files_compare(const char *a, const char *b)
{
	uint64_t size = file_size(a);
	_cleanup_(freep) uint8_t *x = malloc(size), *y = malloc(size);
	_cleanup_(closep) int fa = (int)CHECK_SYS(open(a, O_RDONLY | O_CLOEXEC));
	_cleanup_(closep) int fb = (int)CHECK_SYS(open(b, O_RDONLY | O_CLOEXEC));

	CHECK_EQ(file_size(b), size);
	CHECK_EQ(pread(fa, x, size, 0), size);
	CHECK_EQ(pread(fb, y, size, 0), size);
	CHECK(!memcmp(x, y, size));
}

TEST_TABLE(submit, rows, "the same by Submit and by rings")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	struct side sides[2];
	int64_t results[2];

	raw_open(&raw, daemon);
	for (unsigned i = 0; i < 2; i++) {
		side_open(&sides[i], &raw, daemon, i == 0);
		results[i] = raw_run_one(&sides[i].channel, side_entry(&sides[i], row));
	}
	CHECK_EQ(results[0], results[1]);
	CHECK_MSG((results[0] < 0) == rows[row].must_fail, "result %" PRId64 ", errno %d",
		  results[0], ring_result_errno(results[0]));
	CHECK_EQ(ring_result_errno(results[0]) >= 0, 1);
	CHECK(!memcmp(sides[0].slab.memory, sides[1].slab.memory, SLAB_BYTES));
	files_compare(sides[0].path, sides[1].path);
	for (unsigned i = 0; i < 2; i++) {
		/* The channel still works. */
		CHECK_EQ(raw_run_one(&sides[i].channel,
				     (struct ring_entry){ .opcode = RING_OP_READ,
							  .file = sides[i].files[GOOD],
							  .slab = sides[i].slab.id,
							  .len = 4096 }),
			 4096);
		raw_slab_unmap(&sides[i].slab);
		raw_channel_unmap(&sides[i].channel);
	}
}

TEST(batch, "a batch of all of them, in one Submit and in one turn of the ring")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	struct ring_entry entries[ARRAY_SIZE(rows)];
	int64_t results[2][ARRAY_SIZE(rows)];
	struct side sides[2];

	raw_open(&raw, daemon);
	for (unsigned i = 0; i < 2; i++) {
		side_open(&sides[i], &raw, daemon, i == 0);
		for (int k = 0; k < (int)ARRAY_SIZE(rows); k++)
			entries[k] = side_entry(&sides[i], k);
		raw_run(&sides[i].channel, entries, ARRAY_SIZE(rows), results[i]);
	}
	for (size_t k = 0; k < ARRAY_SIZE(rows); k++) {
		/* Whether a read meets the end before or after the extending write is open. */
		if (strstr(rows[k].what, "the end"))
			continue;
		CHECK_MSG(results[0][k] == results[1][k], "%s", rows[k].what);
	}
	files_compare(sides[0].path, sides[1].path);
	for (unsigned i = 0; i < 2; i++) {
		raw_slab_unmap(&sides[i].slab);
		raw_channel_unmap(&sides[i].channel);
	}
}

TEST(order, "conflicting ops of one Submit run in their order")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	struct ring_entry entries[64];
	int64_t results[64];
	struct side side;

	raw_open(&raw, daemon);
	side_open(&side, &raw, daemon, false);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 64; i++) {
			entries[i] = (struct ring_entry){ .opcode = i % 2 ? RING_OP_READ
									  : RING_OP_WRITE,
							  .file = side.files[GOOD],
							  .slab = side.slab.id,
							  .off = 4096,
							  .len = 8192,
							  .slab_off = i * 8192 };
			pattern_fill(side.slab.memory + i * 8192, 8192, i % 2 ? 0 : round * 64 + i,
				     0);
		}
		raw_run(&side.channel, entries, 64, results);
		for (unsigned i = 0; i < 64; i++) {
			CHECK_EQ(results[i], 8192);
			pattern_check(side.slab.memory + i * 8192, 8192, round * 64 + (i & ~1u), 0,
				      "written just before");
		}
	}
	raw_slab_unmap(&side.slab);
	raw_channel_unmap(&side.channel);
}

/* Each waits for the write before it. */
TEST(chain,
     "512 writes to one page, by rings and by one Submit: all end, the last one's bytes stay")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	static struct ring_entry entries[512];
	static int64_t results[ARRAY_SIZE(entries)];
	struct raw_slab slab;

	raw_open(&raw, daemon);
	raw_slab(&raw, ARRAY_SIZE(entries) * 4096, &slab);
	for (unsigned with_rings = 0; with_rings < 2; with_rings++) {
		const char *path = daemon_path(daemon, with_rings ? "rings" : "submit");
		struct raw_channel channel;
		struct raw_file file;

		file_make_pattern(path, 4096, 1);
		raw_file(&raw, path, O_RDWR, &file);
		raw_channel(&raw, raw_handle(&raw), file.store, ARRAY_SIZE(entries), with_rings,
			    &channel);
		for (unsigned i = 0; i < ARRAY_SIZE(entries); i++) {
			entries[i] = (struct ring_entry){ .opcode = RING_OP_WRITE,
							  .file = file.id,
							  .slab = slab.id,
							  .len = 4096,
							  .slab_off = i * 4096 };
			pattern_fill(slab.memory + i * 4096, 4096, i, 0);
		}
		raw_run(&channel, entries, ARRAY_SIZE(entries), results);
		for (unsigned i = 0; i < ARRAY_SIZE(entries); i++)
			CHECK_EQ(results[i], 4096);
		entries[0] = (struct ring_entry){
			.opcode = RING_OP_READ, .file = file.id, .slab = slab.id, .len = 4096
		};
		CHECK_EQ(raw_run_one(&channel, entries[0]), 4096);
		pattern_check(slab.memory, 4096, ARRAY_SIZE(entries) - 1, 0, "the last one's");
		raw_channel_unmap(&channel);
	}
	raw_slab_unmap(&slab);
}

TEST(misuse, "Submit on a channel with rings, on none, with none and with too many entries")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__Entry entry = WIRE__ENTRY__INIT;
	Wire__Entry *entries[4096];
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Request request = RAW_REQUEST(SUBMIT, submit, &submit);
	struct side sides[2];

	raw_open(&raw, daemon);
	for (unsigned i = 0; i < 2; i++)
		side_open(&sides[i], &raw, daemon, i == 0);
	entry.opcode = RING_OP_FSYNC;
	entry.file = sides[1].files[GOOD];
	for (unsigned i = 0; i < ARRAY_SIZE(entries); i++)
		entries[i] = &entry;
	submit.entries = entries;

	submit.n_entries = 1;
	submit.channel = sides[0].channel.id;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, "ring");
	submit.channel = 0x7fff1234;
	raw_call_fails(&raw, &request, NULL, 0, -EBADF, "channel");
	submit.channel = sides[1].channel.id;
	submit.n_entries = sides[1].channel.entries + 1;
	raw_call_fails(&raw, &request, NULL, 0, -EINVAL, test_text("%u", sides[1].channel.entries));
	submit.n_entries = 0;
	raw_call(&raw, &request, NULL, 0, &answer);
	CHECK(answer.reply->error == -EINVAL || answer.reply->error == 0);
	for (unsigned i = 0; i < 2; i++) {
		raw_slab_unmap(&sides[i].slab);
		raw_channel_unmap(&sides[i].channel);
	}
}

TEST(cancel, "Cancel of an op that came by Submit")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	struct daemon *daemon = daemon_start(NULL);
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	Wire__Submit submit = WIRE__SUBMIT__INIT;
	Wire__Cancel cancel = WIRE__CANCEL__INIT;
	Wire__Entry entry = WIRE__ENTRY__INIT;
	Wire__Entry *entries[1] = { &entry };
	Wire__Request handle_request = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);
	Wire__Request submit_request = RAW_REQUEST(SUBMIT, submit, &submit);
	Wire__Request cancel_request = RAW_REQUEST(CANCEL, cancel, &cancel);
	struct raw_channel channel;
	struct raw_slab slab;
	struct raw_file file;
	bool cancelled = false;

	raw_open(&raw, daemon);
	profile.block_size = 4096; /* slow: one small block at a time */
	profile.queue_depth = 1;
	profile.intra_op_parallelism = 1;
	handle_open.profile = &profile;
	raw_slab(&raw, 128 * MIB, &slab);
	file_make_pattern(daemon_path(daemon, "f"), 128 * MIB, 1);
	raw_file(&raw, daemon_path(daemon, "f"), O_RDONLY, &file);
	{
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_call(&raw, &handle_request, NULL, 0, &answer);
		CHECK_EQ(answer.reply->error, 0);
		raw_channel(&raw, answer.reply->handle_open->handle, file.store, 4, false,
			    &channel);
	}
	entry.id = 0xfeedface12345678;
	entry.opcode = RING_OP_READ;
	entry.file = file.id;
	entry.slab = slab.id;
	entry.len = 128 * MIB;
	submit.channel = channel.id;
	submit.n_entries = 1;
	submit.entries = entries;
	cancel.channel = channel.id;
	cancel.id = entry.id;
	raw_send(&raw, &submit_request, NULL, 0);
	raw_send(&raw, &cancel_request, NULL, 0);
	for (unsigned i = 0; i < 2; i++) { /* in either order */
		_cleanup_(answer_free) struct answer answer = ANSWER_NONE;

		raw_receive(&raw, &answer);
		CHECK(answer.reply);
		CHECK_EQ(answer.reply->error, 0);
		if (answer.reply->body_case != WIRE__REPLY__BODY_SUBMIT)
			continue;
		CHECK_EQ(answer.reply->submit->n_results, 1);
		CHECK_EQ(ring_result_errno(answer.reply->submit->results[0]), ECANCELED);
		CHECK(ring_result_done(answer.reply->submit->results[0]) < 128 * MIB);
		cancelled = true;
	}
	CHECK(cancelled);
	raw_slab_unmap(&slab);
}

TEST_MAIN
