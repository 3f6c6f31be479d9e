/*
 * All checks of foreign entries: a table of entries and what each is answered.
 */
#include "daemon/lane/intake.h"

#include "daemon/store/store.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

#define SLAB_BYTES (1u << 20)

static struct store store, other_store;
static struct objects objects;
static struct slab slab;
static struct file readable, writable, elsewhere, big_sectors, buffered;
static struct channel channel;
static uint32_t ids[5], slab_id;

static void add(struct file *file, int i, struct store *on, bool can_read, bool can_write,
		uint32_t align)
{
	file->store = on;
	file->facts = (struct file_facts){ .can_read = can_read, .can_write = can_write };
	file->n_refs = 1;
	file->target = (struct target){ .offset_align = align, .memory_align = align };
	atomic_init(&file->target.buffered_fd, -1);
	ck_assert_int_eq(id_table_add(&objects.files, file, 0, &ids[i]), 0);
}

static void setup(void)
{
	memset(&objects.files, 0, sizeof(objects.files));
	memset(&objects.slabs, 0, sizeof(objects.slabs));
	add(&readable, 0, &store, true, false, 512);
	add(&writable, 1, &store, false, true, 512);
	add(&elsewhere, 2, &other_store, true, true, 512);
	add(&big_sectors, 3, &store, true, true, 8192);
	add(&buffered, 4, &store, true, true, 512);
	atomic_init(&buffered.target.buffered_fd, 99);
	slab = (struct slab){ .size_bytes = SLAB_BYTES, .n_refs = 1 };
	ck_assert_int_eq(id_table_add(&objects.slabs, &slab, 0, &slab_id), 0);
	lane_store_set_drained(&store.lane_store, false);
	channel = (struct channel){ .store = &store,
				    .lane_store = &store.lane_store,
				    .objects = &objects,
				    .profile = { 4096, 1, false, true, 1 } };
}

enum { READABLE, WRITABLE, ELSEWHERE, BIG_SECTORS, BUFFERED, STALE };
#define R RING_OP_READ
#define W RING_OP_WRITE
#define S RING_OP_FSYNC

static const struct {
	const char *what;
	uint8_t opcode;
	int file;
	uint64_t off, len, slab_off;
	bool no_slab, junk;
	int want;
} entries[] = {
	{ "a read", R, READABLE, 4096, 4096, 0, false, false, 0 },
	{ "a write", W, WRITABLE, 512, 1024, 512, false, false, 0 },
	{ "nothing", R, READABLE, 0, 0, 0, false, false, 0 },
	{ "the last bytes of the slab", R, READABLE, 0, 512, SLAB_BYTES - 512, false, false, 0 },
	{ "a sync", S, READABLE, 0, 0, 0, true, false, 0 },
	{ "opcode 0", 0, READABLE, 0, 512, 0, false, false, EOPNOTSUPP },
	{ "opcode 255", 255, READABLE, 0, 512, 0, false, false, EOPNOTSUPP },
	{ "reserved bytes set", R, READABLE, 0, 512, 0, false, true, EINVAL },
	{ "a stale file id", R, STALE, 0, 512, 0, false, false, EBADF },
	{ "a write to what is read-only", W, READABLE, 0, 512, 0, false, false, EBADF },
	{ "a read of what is write-only", R, WRITABLE, 0, 512, 0, false, false, EBADF },
	{ "a file on another store", R, ELSEWHERE, 0, 512, 0, false, false, EXDEV },
	{ "no such slab", R, READABLE, 0, 512, 0, true, false, EBADF },
	{ "past 2^64", R, READABLE, UINT64_MAX - 511, 1024, 0, false, false, EOVERFLOW },
	{ "past 2^63", R, READABLE, INT64_MAX - 511, 1024, 0, false, false, EOVERFLOW },
	{ "longer than anything", R, READABLE, 0, RING_LEN_MAX * 2, 0, false, false, EOVERFLOW },
	{ "past the slab", R, READABLE, 0, 1024, SLAB_BYTES - 512, false, false, ERANGE },
	{ "far past the slab", R, READABLE, 0, 512, UINT64_MAX - 511, false, false, ERANGE },
	{ "a read at an odd offset", R, READABLE, 1, 512, 0, false, false, 0 },
	{ "a read of an odd length", R, READABLE, 0, 513, 0, false, false, 0 },
	{ "a read to an odd address", R, READABLE, 0, 512, 1, false, false, 0 },
	{ "a read of less than a sector", R, BIG_SECTORS, 4096, 8192, 0, false, false, 0 },
	{ "the last odd byte", R, READABLE, INT64_MAX - 1, 1, 0, false, false, 0 },
	{ "a write at an odd offset", W, WRITABLE, 1, 512, 0, false, false, EOPNOTSUPP },
	{ "a write of an odd length", W, WRITABLE, 0, 513, 0, false, false, EOPNOTSUPP },
	{ "a write from an odd address", W, WRITABLE, 0, 512, 1, false, false, EOPNOTSUPP },
	{ "a large write of an odd length", W, WRITABLE, 0, 70001, 0, false, false, EOPNOTSUPP },
	{ "a large one from an odd address", W, WRITABLE, 0, 70000, 1, false, false, EOPNOTSUPP },
	{ "an odd write, buffered", W, BUFFERED, 1, 513, 1, false, false, 0 },
	{ "a large odd write, buffered", W, BUFFERED, 1, 70001, 1, false, false, 0 },
	{ "whole sectors", R, BIG_SECTORS, 8192, 8192, 8192, false, false, 0 },
	{ "a sync of a range", S, READABLE, 0, 512, 0, true, false, EINVAL },
	{ "a sync with a slab", S, READABLE, 0, 0, 0, false, false, EINVAL },
};

TEST_TABLE(an_entry_is_checked_before_it_is_an_op, entries)
{
	struct ring_entry entry = {
		.id = 7,
		.opcode = entries[_i].opcode,
		.off = entries[_i].off,
		.len = entries[_i].len,
		.slab_off = entries[_i].slab_off,
	};
	struct op op = { 0 };
	uint32_t holds;
	int r;

	setup();
	entry.file = entries[_i].file == STALE ? ids[0] + 0x10000 : ids[entries[_i].file];
	entry.slab = entries[_i].no_slab ? 0 : slab_id;
	if (entries[_i].junk)
		entry.zero1 = 1;
	r = intake_check_entry(&channel, &entry, &op);
	ck_assert_msg(r == entries[_i].want, "%s: %s", entries[_i].what, strerror(r));

	holds = slab.n_refs + readable.n_refs + writable.n_refs + elsewhere.n_refs +
		big_sectors.n_refs + buffered.n_refs;
	ck_assert_msg(holds == (r		      ? 6u
				: entries[_i].no_slab ? 7u
						      : 8u),
		      "%s: holds", entries[_i].what);
	ck_assert(r ? !op.file : op.file != NULL);
}

static const struct {
	const char *what;
	uint8_t opcode;
	uint64_t len;
	int want;
} drained[] = {
	{ "a read", R, 512, ENOMEDIUM },
	{ "a write", W, 512, ENOMEDIUM },
	{ "a write of no bytes", W, 0, ENOMEDIUM },
	{ "a sync of what was written", S, 0, 0 },
};

TEST_TABLE(a_drained_store_takes_only_syncs, drained)
{
	struct ring_entry entry = { .id = 7, .opcode = drained[_i].opcode, .len = drained[_i].len };
	struct op op = { 0 };

	setup();
	lane_store_set_drained(&store.lane_store, true);
	entry.file = ids[BIG_SECTORS];
	entry.slab = drained[_i].opcode == S ? 0 : slab_id;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), drained[_i].want);
	ck_assert_uint_eq(big_sectors.n_refs, drained[_i].want ? 1 : 2);
}

static const struct {
	const char *what;
	uint8_t opcode;
	uint64_t off, len, grow_end;
	int want;
} grown[] = {
	{ "the file lies around the write", W, 512, 512, 0, 0 },
	{ "it may end with the write", W, 512, 512, 1024, 0 },
	{ "and behind it", W, 512, 512, INT64_MAX, 0 },
	{ "but not before its end", W, 512, 512, 1023, EINVAL },
	{ "nor past 2^63", W, 512, 512, (uint64_t)INT64_MAX + 1, EOVERFLOW },
	{ "for a read", R, 512, 512, 1024, EINVAL },
	{ "for a sync", S, 0, 0, 1024, EINVAL },
};

TEST_TABLE(a_write_may_say_how_long_the_file_may_become, grown)
{
	struct ring_entry entry = { .opcode = grown[_i].opcode,
				    .off = grown[_i].off,
				    .len = grown[_i].len,
				    .grow_end = grown[_i].grow_end };
	struct op op = { 0 };
	int r;

	setup();
	entry.file = ids[grown[_i].opcode == W ? WRITABLE : READABLE];
	entry.slab = grown[_i].opcode == S ? 0 : slab_id;
	r = intake_check_entry(&channel, &entry, &op);
	ck_assert_msg(r == grown[_i].want, "%s: %s", grown[_i].what, strerror(r));
	if (r == 0)
		ck_assert(op.may_grow == (grown[_i].grow_end != 0));
}

static const struct {
	const char *what;
	uint8_t opcode, flags;
	int want;
	bool is_dsync;
} flags[] = {
	{ "a write", W, 0, 0, false },
	{ "a write that syncs", W, RING_ENTRY_DSYNC, 0, true },
	{ "a write with another flag", W, RING_ENTRY_DSYNC << 1, EINVAL, false },
	{ "a write with both", W, RING_ENTRY_DSYNC | RING_ENTRY_DSYNC << 1, EINVAL, false },
	{ "a read that syncs", R, RING_ENTRY_DSYNC, EINVAL, false },
};

TEST_TABLE(only_a_write_can_sync, flags)
{
	struct ring_entry entry = { .opcode = flags[_i].opcode,
				    .flags = flags[_i].flags,
				    .len = 512 };
	struct op op = { 0 };

	setup();
	entry.file = ids[WRITABLE];
	entry.slab = slab_id;
	if (flags[_i].opcode == R)
		entry.file = ids[0];
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), flags[_i].want);
	ck_assert(op.is_dsync == flags[_i].is_dsync);
}

TEST(tmpfs_and_devices_are_not_extended_before)
{
	struct ring_entry entry = { .opcode = W, .len = 512, .grow_end = 512 };
	struct op op = { 0 };

	setup();
	entry.file = ids[WRITABLE];
	entry.slab = slab_id;
	writable.facts.is_tmpfs = true;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(!op.may_grow);
	writable.facts.is_tmpfs = false;
	writable.facts.is_block_device = true;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(!op.may_grow);
	writable.facts.is_block_device = false;
}

TEST(an_id_of_a_removed_object_finds_nothing)
{
	struct ring_entry entry = { .opcode = R, .len = 512 };
	struct op op = { 0 };

	setup();
	entry.file = ids[0];
	entry.slab = slab_id;
	ck_assert_ptr_eq(id_table_remove(&objects.slabs, slab_id), &slab);
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), EBADF);
	id_table_release(&objects.slabs, slab_id);
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), EBADF);
}

/* The parts of the op; the table of unaligned_cut() has the cuts. */
TEST(an_op_knows_its_ragged_ends)
{
	struct ring_entry entry = {
		.opcode = W, .off = 100, .len = 80000, .slab_off = 100, .slab = 0
	};
	struct op op = { 0 };

	setup();
	entry.file = ids[BUFFERED];
	entry.slab = slab_id;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert_uint_eq(op.head, 3996);
	ck_assert_uint_eq(op.tail, 80100 - 77824);
	ck_assert_uint_eq(op.unaligned_left, OP_HEAD | OP_TAIL);
	ck_assert_uint_eq(op_middle_len(&op), 77824 - 4096);

	entry.slab_off = 101;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(op.is_misaligned);
	ck_assert_uint_eq(op.head + op.tail + op.unaligned_left, 0);
	ck_assert_uint_eq(op_middle_len(&op), 80000);

	entry.off = entry.slab_off = 4096;
	entry.len = 8192;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(!op.is_misaligned);
	ck_assert_uint_eq(op.head + op.tail + op.unaligned_left, 0);
}

static const struct {
	const char *what;
	uint8_t opcode;
	int file;
	uint64_t off, len;
	uint32_t head, tail;
} whole_sectors[] = {
	{ "a read", R, BUFFERED, 512, 81920, 0, 0 },
	{ "a write", W, BUFFERED, 512, 81920, 3584, 512 },
	{ "a write of whole pages", W, BUFFERED, 4096, 81920, 0, 0 },
	{ "a write of one sector", W, BUFFERED, 512, 512, 512, 0 },
	{ "a write without a buffered description", W, WRITABLE, 512, 81920, 0, 0 },
};

TEST_TABLE(a_direct_write_ends_in_no_page_that_others_may_write, whole_sectors)
{
	struct ring_entry entry = { .opcode = whole_sectors[_i].opcode,
				    .off = whole_sectors[_i].off,
				    .len = whole_sectors[_i].len,
				    .slab_off = whole_sectors[_i].off };
	struct op op = { 0 };

	setup();
	entry.file = ids[whole_sectors[_i].file];
	entry.slab = slab_id;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert_msg(op.head == whole_sectors[_i].head && op.tail == whole_sectors[_i].tail &&
			      !op.is_misaligned,
		      "%s: head %u, tail %u", whole_sectors[_i].what, (unsigned)op.head,
		      (unsigned)op.tail);
}

TEST(tmpfs_has_no_unit_of_writes)
{
	struct ring_entry entry = { .opcode = W, .off = 1, .len = 80000 };
	struct op op = { 0 };

	setup();
	buffered.facts.is_tmpfs = true;
	buffered.target.offset_align = buffered.target.memory_align = 1;
	entry.file = ids[BUFFERED];
	entry.slab = slab_id;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(!op.head && !op.tail && !op.is_misaligned);
}

static const struct {
	const char *what;
	bool is_gpu;
	uint64_t slab_off;
	bool is_misaligned;
} addresses[] = {
	{ "a page", false, 8192, false },
	{ "less than a sector", false, 64, false },
	{ "an odd address", false, 3, true },
	{ "an odd address of GPU memory", true, 3, false },
};

TEST_TABLE(memory_has_an_alignment_of_its_own_and_gpu_memory_has_none, addresses)
{
	struct ring_entry entry = {
		.opcode = W, .off = 4096, .len = 81920, .slab_off = addresses[_i].slab_off
	};
	struct op op = { 0 };
	int r;

	setup();
	slab.region.kind = addresses[_i].is_gpu ? REGION_GPU : REGION_HOST;
	writable.target.memory_align = 4;
	entry.file = ids[WRITABLE];
	entry.slab = slab_id;
	r = intake_check_entry(&channel, &entry, &op);
	ck_assert_msg(r == (addresses[_i].is_misaligned ? EOPNOTSUPP : 0), "%s: %s",
		      addresses[_i].what, strerror(r));

	buffered.target.memory_align = 4;
	entry.file = ids[BUFFERED];
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert_msg(op.is_misaligned == addresses[_i].is_misaligned && !op.head && !op.tail,
		      "%s: %d, %u, %u", addresses[_i].what, op.is_misaligned, (unsigned)op.head,
		      (unsigned)op.tail);
}

TEST(gpu_memory_is_no_memory_of_a_rados_file_and_no_op_extends_one)
{
	struct ring_entry entry = {
		.opcode = W, .off = 100, .len = 513, .slab_off = 1, .grow_end = 1000
	};
	struct op op = { 0 };

	setup();
	writable.target.kind = TARGET_RADOS;
	writable.target.offset_align = writable.target.memory_align = 1;
	entry.file = ids[WRITABLE];
	entry.slab = slab_id;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), 0);
	ck_assert(!op.may_grow && !op.head && !op.tail && !op.is_misaligned);
	slab.region.kind = REGION_GPU;
	ck_assert_int_eq(intake_check_entry(&channel, &entry, &op), EOPNOTSUPP);
}

TEST_MAIN
