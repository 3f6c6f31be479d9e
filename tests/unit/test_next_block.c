/*
 * The next block of the head op of a channel: its size and its path.
 */
#include "tests/unit/parts.h"

#include <errno.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define R RING_OP_READ
#define W RING_OP_WRITE

/* The rules, and the kind of file. */
enum {
	SHARED = 1,
	TMPFS = 2,
	FOREIGN = 4,
	NO_NOWAIT = 8,
	BLOCKING = 16,
	MULTI_USER = 32,
	BANNED = 64,
	GPU = 128, /* GPU memory */
	THROTTLED = 256,
	OTHER_BANNED = 512
};

static const struct {
	const char *what;
	unsigned how;
	uint8_t opcode;
	uint64_t off, len;
	uint64_t op_off; /* of the block */
	uint32_t block;	 /* its bytes */
	bool is_worker, is_bounce, is_nowait, is_unaligned;
} rows[] = {
	{ "a read", 0, R, 0, KIB(200), 0, KIB(64), false, false, false, false },
	{ "the same while others are active", SHARED, R, 0, KIB(200), 0, KIB(32), false, false,
	  true, false },
	{ "the head of an unaligned read", 0, R, 100, KIB(200), 0, 3996, false, true, false, true },
	{ "the head of an unaligned write", 0, W, 100, KIB(200), 0, 3996, true, false, false,
	  true },
	{ "within one unit", 0, R, 100, 50, 0, 50, false, true, false, true },
	{ "a foreign file may hang forever", FOREIGN, R, 0, KIB(200), 0, KIB(32), false, false,
	  true, false },
	{ "where RWF_NOWAIT is not known", SHARED | NO_NOWAIT, R, 0, KIB(200), 0, KIB(32), true,
	  false, true, false },
	{ "the same, alone", NO_NOWAIT, R, 0, KIB(200), 0, KIB(64), false, false, false, false },
	{ "and on a store of several users, workers are the engine",
	  SHARED | NO_NOWAIT | MULTI_USER, R, 0, KIB(200), 0, KIB(64), true, false, true, false },
	{ "io_submit would wait", BLOCKING, R, 0, KIB(200), 0, KIB(64), true, false, false, false },
	{ "tmpfs, alone", TMPFS, W, 0, KIB(200), 0, KIB(64), false, false, false, false },
	{ "a write to tmpfs while others are active", SHARED | TMPFS, W, 0, KIB(200), 0, KIB(32),
	  true, false, false, false },
	{ "memory that is banned, while others are active", SHARED | BANNED, R, 0, KIB(200), 0,
	  KIB(32), true, false, true, false },
	{ "whose copies could stall a lane, too", SHARED | BANNED, R, 100, KIB(200), 0, 3996, true,
	  false, true, true },
	{ "the same, alone", BANNED, R, 0, KIB(200), 0, KIB(64), false, false, false, false },
	{ "other memory of the same user", SHARED | OTHER_BANNED, R, 0, KIB(200), 0, KIB(32), false,
	  false, true, false },
	{ "a read of tmpfs", SHARED | TMPFS, R, 0, KIB(200), 0, KIB(32), false, false, false,
	  false },
	{ "beside a higher class", THROTTLED, R, 0, KIB(200), 0, KIB(48), false, false, false,
	  false },
	{ "the same where workers are the engine", THROTTLED | BLOCKING, R, 0, KIB(200), 0, KIB(48),
	  true, false, false, false },
	{ "GPU memory is cut as admission says", GPU, R, 0, KIB(200), 0, KIB(48), true, false,
	  false, false },
	{ "the same while others are active", SHARED | GPU, W, 0, KIB(200), 0, KIB(48), true, false,
	  true, false },
	{ "the same on tmpfs", GPU | TMPFS, R, 0, KIB(200), 0, KIB(48), true, false, false, false },
	{ "the head of an unaligned read to GPU memory has no page", GPU, R, 100, KIB(200), 0, 3996,
	  true, false, false, true },
	{ "the head of an unaligned write from GPU memory", GPU, W, 100, KIB(200), 0, 3996, true,
	  false, false, true },
};

static struct block_rules rules_of(unsigned how)
{
	p.file.facts.is_tmpfs = how & TMPFS;
	p.file.facts.is_foreign = how & FOREIGN;
	p.slab.region.kind = how & GPU ? REGION_GPU : REGION_HOST;
	p.file.no_nowait = how & NO_NOWAIT;
	p.store.is_multi_user = how & MULTI_USER;
	p.transfer.stalls.n = 0;
	p.transfer.stalls.until_nsec = 0;
	for (unsigned i = 0; i < STALLS_MAX && (how & (BANNED | OTHER_BANNED)); i++) {
		const struct inode_id id = { .dev = !!(how & OTHER_BANNED) };

		(void)stall_table_note(&p.transfer.stalls, &id, p.channel.uid, p.turn.now_nsec);
	}
	atomic_store(&p.store.is_blocking, how & BLOCKING);
	return (struct block_rules){
		.store = &p.store,
		.engine = &parts_engine_ops,
		.stalls = &p.transfer.stalls,
		.now_nsec = p.turn.now_nsec,
		.must_not_wait = how & SHARED,
		.max_bytes = KIB(32),
		.cut_bytes = KIB(48),
		.is_any_cut = how & THROTTLED,
	};
}

/* The op is ready, and nothing of it has started. */
static struct op *put(uint8_t opcode, uint64_t off, uint64_t len)
{
	parts_put(1, opcode, off, len);
	ck_assert_int_eq(intake_take(&p.intake), 1);
	ck_assert_uint_eq(p.channel.ops[0].state, OP_READY);
	return &p.channel.ops[0];
}

static struct op *setup(uint8_t opcode, uint64_t off, uint64_t len)
{
	parts_setup();
	atomic_store(&p.file.target.buffered_fd, 99);
	return put(opcode, off, len);
}

static void teardown(struct op *op)
{
	transfer_cancel(&p.transfer, op, ECANCELED);
	(void)parts_publish();
	parts_teardown();
}

TEST_TABLE(the_block_is_of_a_size_and_goes_a_way, rows)
{
	struct op *op = setup(rows[_i].opcode, rows[_i].off, rows[_i].len);
	const struct block_rules rules = rules_of(rows[_i].how);
	struct next_block next = next_block_look(&p.channel, &rules);

	ck_assert_ptr_eq(next.op, op);
	ck_assert_msg(next.op_off == rows[_i].op_off && next.len == rows[_i].block, "%s: %u bytes",
		      rows[_i].what, next.len);
	ck_assert_msg(next.is_worker == rows[_i].is_worker &&
			      next.is_bounce == rows[_i].is_bounce &&
			      next.is_nowait == rows[_i].is_nowait &&
			      next.is_unaligned == rows[_i].is_unaligned,
		      "%s: worker %d, bounce %d, nowait %d, unaligned %d", rows[_i].what,
		      next.is_worker, next.is_bounce, next.is_nowait, next.is_unaligned);
	ck_assert_msg(next.workers_are_engine == workers_are_engine(&p.store, op) &&
			      (next.workers_are_engine || !(rows[_i].how & GPU)),
		      "%s: workers are its engine: %d", rows[_i].what, next.workers_are_engine);
	teardown(op);
}

TEST(blocks_cover_the_op)
{
	struct op *op = setup(R, 100, KIB(200));
	const struct block_rules rules = rules_of(SHARED);
	uint64_t bytes = 0;
	bool is_last = false;

	while (!is_last) {
		struct next_block next = next_block_look(&p.channel, &rules);

		ck_assert_uint_gt(next.len, 0);
		ck_assert_uint_le(next.len, KIB(32));
		bytes += next.len;
		next_block_step_over(&next);
		is_last = next_block_is_over(op);
	}
	ck_assert_uint_eq(bytes, KIB(200));
	op->unaligned_left = 0;
	teardown(op);
}

/* Blocks of a few shapes by hand: offset and length in their order. */
static const struct {
	const char *what;
	uint64_t off, len;
	uint32_t align, block_size, max_bytes;
	struct {
		uint64_t off;
		uint32_t len;
	} blocks[8]; /* up to one of no byte */
} shapes[] = {
	{ "one byte", 0, 1, 1, 4096, UINT32_MAX, { { 0, 1 } } },
	{ "one block", 0, 4096, 1, 1 << 20, UINT32_MAX, { { 0, 4096 } } },
	{ "exactly one", 0, 1 << 20, 1, 1 << 20, UINT32_MAX, { { 0, 1 << 20 } } },
	{ "a short last block",
	  0,
	  10000,
	  1,
	  4096,
	  UINT32_MAX,
	  { { 0, 4096 }, { 4096, 4096 }, { 8192, 1808 } } },
	{ "a last byte",
	  0,
	  8193,
	  1,
	  4096,
	  UINT32_MAX,
	  { { 0, 4096 }, { 4096, 4096 }, { 8192, 1 } } },
	{ "the file's alignment exceeds the block size",
	  0,
	  16384,
	  8192,
	  4096,
	  UINT32_MAX,
	  { { 0, 8192 }, { 8192, 8192 } } },
	{ "blocks follow from the start of the middle",
	  100,
	  100000,
	  4096,
	  KIB(32),
	  UINT32_MAX,
	  { { 0, 3996 },
	    { 98204, 1796 },
	    { 3996, KIB(32) },
	    { 36764, KIB(32) },
	    { 69532, KIB(28) } } },
	{ "parts of a block, whose last ends with it",
	  0,
	  81920,
	  4096,
	  KIB(32),
	  KIB(12),
	  { { 0, KIB(12) },
	    { KIB(12), KIB(12) },
	    { KIB(24), KIB(8) },
	    { KIB(32), KIB(12) },
	    { KIB(44), KIB(12) },
	    { KIB(56), KIB(8) },
	    { KIB(64), KIB(12) },
	    { KIB(76), KIB(4) } } },
};

TEST_TABLE(blocks_follow_each_other, shapes)
{
	struct block_rules rules;
	struct op *op;
	int n = 0;

	parts_setup();
	p.file.target.offset_align = p.file.target.memory_align = shapes[_i].align;
	p.channel.profile.block_size = shapes[_i].block_size;
	op = put(R, shapes[_i].off, shapes[_i].len);
	rules = rules_of(SHARED);
	rules.max_bytes = shapes[_i].max_bytes;
	for (; !next_block_is_over(op); n++) {
		struct next_block next = next_block_look(&p.channel, &rules);

		ck_assert_int_lt(n, N_ROWS(shapes[_i].blocks));
		ck_assert_msg(next.op_off == shapes[_i].blocks[n].off &&
				      next.len == shapes[_i].blocks[n].len,
			      "%s: block %d: %u bytes at %ju", shapes[_i].what, n, next.len,
			      (uintmax_t)next.op_off);
		next_block_step_over(&next);
	}
	ck_assert_msg(n == N_ROWS(shapes[_i].blocks) || !shapes[_i].blocks[n].len, "%s: %d blocks",
		      shapes[_i].what, n);
	teardown(op);
}

TEST(an_op_may_have_more_blocks_than_a_counter_of_32_bits_holds)
{
	const uint64_t len = (UINT64_C(1) << 44) + 512;
	struct block_rules rules;
	struct next_block next;
	struct op *op;

	parts_setup();
	p.file.target.offset_align = 512;
	p.slab.size_bytes = len;
	p.channel.profile.block_size = 512;
	op = put(R, 0, len);
	rules = rules_of(0);
	op->next = len - 1024;
	for (int i = 2; i > 0; i--) {
		ck_assert(!next_block_is_over(op));
		next = next_block_look(&p.channel, &rules);
		ck_assert_uint_eq(next.op_off, len - (uint64_t)i * 512);
		ck_assert_uint_eq(next.len, 512);
		next_block_step_over(&next);
	}
	ck_assert(next_block_is_over(op));
	teardown(op);
}

TEST(a_stopped_op_is_done_up_to_its_first_block_that_has_not_started)
{
	struct op *op = setup(R, 0, KIB(200));
	const struct block_rules rules = rules_of(0);

	for (int i = 0; i < 2; i++) {
		struct next_block next = next_block_look(&p.channel, &rules);

		next_block_step_over(&next);
		ck_assert(!next_block_is_over(op));
	}
	next_block_stop(op, ECANCELED);
	ck_assert_uint_eq(op->end, KIB(128));
	ck_assert_uint_eq(op->error, ECANCELED);
	teardown(op);
}

static const struct {
	const char *what;
	uint64_t len, grow_end;
	bool no_fallocate, is_worker, is_step;
	unsigned how;
} growths[] = {
	{ "a long one: the file is extended first", KIB(512), KIB(512), false, false, true, 0 },
	{ "a short one extends the file itself", KIB(64), KIB(64), false, true, false, 0 },
	{ "a short part of a long one", KIB(64), KIB(512), false, false, true, 0 },
	{ "no fallocate(2)", KIB(512), KIB(512), true, true, false, 0 },
	{ "a long one from GPU memory", KIB(512), KIB(512), false, true, true, GPU },
	{ "a short one from GPU memory", KIB(64), KIB(64), false, true, false, GPU },
};

TEST_TABLE(a_write_behind_the_end_of_the_file, growths)
{
	struct op *op = setup(W, 0, growths[_i].len);
	const struct block_rules rules = rules_of(growths[_i].how);
	struct next_block next;

	op->may_grow = true;
	op_rare(op)->grow_end = growths[_i].grow_end;
	op_rare(op)->extended = 0;
	extension_add_op(&p.file.extension);
	p.file.no_fallocate = growths[_i].no_fallocate;
	next = next_block_look(&p.channel, &rules);
	ck_assert_msg(next.is_worker == growths[_i].is_worker &&
			      next.is_step == growths[_i].is_step,
		      "%s", growths[_i].what);
	/* Once it is allocated, the block goes to its engine. */
	op_rare(op)->extended = UINT64_MAX;
	next = next_block_look(&p.channel, &rules);
	ck_assert(!next.is_step && next.is_worker == (growths[_i].how == GPU));
	teardown(op);
}

/* A limit on ops counts it. */
TEST(the_first_block_of_an_op_is_known)
{
	struct op op = { .len = 8192, .head = 100, .tail = 50 };
	struct next_block next = { .op = &op, .len = 4096 };

	op.unaligned_left = OP_HEAD | OP_TAIL;
	ck_assert(next_block_is_first(&op));
	next.is_unaligned = true;
	next_block_step_over(&next);
	ck_assert(!next_block_is_first(&op));
	op = (struct op){ .len = 8192 };
	next.is_unaligned = false;
	ck_assert(next_block_is_first(&op));
	next_block_step_over(&next);
	ck_assert(!next_block_is_first(&op));
}

/* All in the lane, and without a bounce page. */
TEST(blocks_of_a_rados_file_end_where_its_objects_do)
{
	static const uint32_t lens[] = { KIB(32) - 100, KIB(32), 68 };
	struct engine_ops engine = parts_engine_ops;
	struct block_rules rules;
	struct op *op;

	parts_setup();
	p.file.target.kind = TARGET_RADOS;
	p.file.target.rados.object_bytes = KIB(32);
	p.file.target.offset_align = p.file.target.memory_align = 1;
	engine.targets = 1u << TARGET_RADOS;
	op = put(W, KIB(64) + 100, KIB(64) - 32);
	rules = rules_of(SHARED | MULTI_USER);
	rules.engine = &engine;
	for (unsigned i = 0; i < 3; i++) {
		const struct next_block next = next_block_look(&p.channel, &rules);

		ck_assert_uint_eq(next.len, lens[i]);
		ck_assert(!next.is_worker && !next.is_bounce && !next.is_unaligned);
		next_block_step_over(&next);
	}
	ck_assert(next_block_is_over(op));
	op->next = 0;
	rules.cut_bytes = KIB(8);
	rules.is_any_cut = true;
	ck_assert_uint_eq(next_block_look(&p.channel, &rules).len, KIB(8));
	teardown(op);
}

TEST_MAIN
