/*
 * Transfers between files and imported GPU memory.
 */
#include "tests/unit/gds_parts.h"

#include <errno.h>

static struct gds_handle handle;
static struct gds_memory *memory;
static struct region region;

static void transfer_setup(void)
{
	setup();
	handle = exported(MEMORY_BYTES);
	memory = import(&handle, &region);
	target_register(&target);
}

static void transfer_teardown(void)
{
	gds_release(memory);
	nothing_is_left("a transfer");
	file_end();
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 0);
	teardown();
}

/* All at once, and in short transfers. */
static const char *const manners[] = { "", "most=3000" };

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len, done;
	uint64_t region_off;
} reads[] = {
	{ "aligned", 4096, 8192, 8192, 0 },
	{ "a byte", 5000, 1, 1, 0 },
	{ "across units, to any address", 4000, 9000, 9000, 77 },
	{ "up to the end", 190001, FILE_BYTES - 190001, FILE_BYTES - 190001, 1 },
	{ "across the end", 199990, 5000, 10, 0 },
	{ "behind it", 1 << 20, 5000, 0, 0 },
	{ "up to the end of the memory", 0, 50000, 50000, MEMORY_BYTES - 50000 },
};

/* The memory's bytes outside of a range are as they were exported. */
static void only_has_changed(const char *bytes, uint64_t off, uint64_t len, const char *what)
{
	for (uint64_t i = 0; i < MEMORY_BYTES; i++)
		if ((i < off || i >= off + len) && bytes[i] != (char)('a' + i % 26))
			ck_abort_msg("%s: byte %d", what, (int)i);
}

TEST_TABLE(reads_of_any_range, manners)
{
	const char *bytes = gpu.look.standin_bytes((uintptr_t)region.base);

	for (int row = 0; row < N_ROWS(reads); row++) {
		struct block block = make(BLOCK_READ, &region, reads[row].off, reads[row].len,
					  reads[row].region_off);

		block.is_bounced = reads[row].off % 512 || reads[row].len % 512;
		exporter_fill((char *)(uintptr_t)bytes, MEMORY_BYTES);
		words(manners[_i]);
		gds_transfer(&block);
		ck_assert_msg(block.result >= 0 && block.best == reads[row].done, "%s: %u, %d",
			      reads[row].what, block.best, (int)block.result);
		for (uint32_t i = 0; i < block.best; i++)
			if (bytes[reads[row].region_off + i] != byte_at(reads[row].off + i))
				ck_abort_msg("%s: byte %u", reads[row].what, i);
		only_has_changed(bytes, reads[row].region_off, reads[row].done, reads[row].what);
	}
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_files, 1);
	ck_assert_uint_gt(gpu.see.standin_cufile_counts().n_reads, 0);
}

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len;
	uint64_t region_off;
	bool is_buffered;
} writes[] = {
	{ "whole units", 4096, 8192, 0, false },
	{ "whole units from any address", 8192, 4096, 33, false },
	{ "sectors that are no units", 512, 512, 0, false },
	{ "a sector before units", 3584, 512 + 8192, 512, false },
	{ "units and a sector", 4096, 4096 + 512, 0, false },
	{ "sectors at both ends", 3584, 512 + 4096 + 1024, 0, false },
	{ "a byte", 4999, 1, 5, true },
	{ "much, at any place", 5001, 70001, 3, true },
	{ "behind the end", FILE_BYTES + 1, 100, 0, true },
};

TEST_TABLE(writes_change_their_range_only, manners)
{
	static char bytes[FILE_BYTES], now[FILE_BYTES];

	words(manners[_i]);
	for (int row = 0; row < N_ROWS(writes); row++) {
		struct block block = make(BLOCK_WRITE, &region, writes[row].off, writes[row].len,
					  writes[row].region_off);

		block.is_buffered = writes[row].is_buffered;
		for (size_t i = 0; i < FILE_BYTES; i++)
			bytes[i] = byte_at(i);
		ck_assert_int_eq(pwrite(buffered_fd, bytes, FILE_BYTES, 0), FILE_BYTES);
		ck_assert_int_eq(ftruncate(buffered_fd, FILE_BYTES), 0);
		ck_assert_int_eq(fsync(buffered_fd), 0);
		gds_transfer(&block);
		ck_assert_msg(block.result >= 0 && block.best == writes[row].len, "%s: %u, %d",
			      writes[row].what, block.best, (int)block.result);
		for (size_t i = 0; i < FILE_BYTES; i++)
			if (i - writes[row].off < writes[row].len)
				bytes[i] = (char)('a' +
						  (writes[row].region_off + i - writes[row].off) %
							  26);
		ck_assert_int_eq(pread(buffered_fd, now, FILE_BYTES, 0), FILE_BYTES);
		ck_assert_msg(memcmp(now, bytes, FILE_BYTES) == 0, "%s", writes[row].what);
	}
	/* cuFile has written whole units only, since it would change bytes around others. */
	ck_assert_uint_gt(gpu.see.standin_cufile_counts().n_writes, 0);
	if (_i != 1)
		ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unaligned_writes, 0);
}

static const struct {
	const char *words;
	bool is_write, is_buffered;
	int result;
} errors[] = {
	{ "cuFileRead=5", false, false, -EIO },
	{ "cuFileRead=28", false, false, -ENOSPC },
	{ "cuFileRead=4", false, false, -EINTR },
	{ "cuFileRead=5011", false, false, -EIO },
	{ "cuFileRead=5012", false, false, -EFAULT },
	{ "cuFileRead=5014", false, false, -EFAULT },
	{ "cuFileRead=5022", false, false, -EINVAL },
	{ "cuFileRead=5008", false, false, -EOPNOTSUPP },
	{ "cuFileRead=5036", false, false, -ENOMEM },
	{ "cuFileRead=2000000000", false, false, -EIO },
	{ "cuFileRead=5008", true, false, 0 },
	{ "cuFileWrite=28", true, false, -ENOSPC },
	{ "cuFileWrite=5044", true, false, -EIO },
	{ "cuFileWrite=5044", true, true, 0 },
	{ "cuMemcpyDtoH_v2=700", true, true, -EIO },
	{ "cuMemcpyDtoH_v2=700", true, false, 0 },
	{ "cuCtxPushCurrent_v2=709", false, false, -EIO },
	{ "cuCtxPushCurrent_v2=709", true, true, -EIO },
};

TEST_TABLE(an_error_of_a_transfer_is_an_errno, errors)
{
	struct block block = make(errors[_i].is_write ? BLOCK_WRITE : BLOCK_READ, &region, 4096,
				  8192, 0),
		     again = block;

	words(errors[_i].words);
	block.is_buffered = errors[_i].is_buffered;
	gds_transfer(&block);
	ck_assert_msg(errors[_i].result ? block.result == errors[_i].result && !block.best
					: block.result >= 0 && block.best == 8192,
		      "%s: %d", errors[_i].words, (int)block.result);
	words("");
	gds_transfer(&again);
	ck_assert(again.result >= 0 && again.best == 8192);
}

TEST(of_a_file_that_is_not_registered_no_byte_is_copied)
{
	struct target other = { .fd = target.fd,
				.offset_align = 512,
				.memory_align = 512,
				.about = { .file = "w1.bin" } };
	const uint64_t n_copies = gpu.look.standin_counts().n_copies;

	atomic_init(&other.buffered_fd, buffered_fd);
	/* By cuFile; a head, a tail, and a part of the buffered description. */
	for (int i = 0; i < 5; i++) {
		struct block block = make(i ? BLOCK_WRITE : BLOCK_READ, &region,
					  i < 2 || i == 3 ? 4096 : 4097, i < 2 ? 8192 : 5, 0);

		block.target = &other;
		block.is_buffered = i == 4;
		gds_transfer(&block);
		ck_assert_msg(block.result == -EOPNOTSUPP && !block.best, "%d: %d", i,
			      (int)block.result);
	}
	ck_assert_uint_eq(gpu.look.standin_counts().n_copies, n_copies);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_writes, 0);
}

TEST_LOOP(a_transfer_that_makes_no_progress_ends, 2)
{
	struct block block = make(_i ? BLOCK_WRITE : BLOCK_READ, &region, 4096, 8192, 0);

	words("most=0");
	gds_transfer(&block);
	ck_assert(block.result == 0 && block.best == 0);
}

TEST(memory_that_cannot_be_pinned_works_unregistered)
{
	struct block block = make(BLOCK_READ, &region, 4096, 8192, 100);

	gds_release(memory);
	words("cuFileBufRegister=5036");
	memory = import(&handle, &region);
	gds_transfer(&block);
	ck_assert(block.result >= 0 && block.best == 8192);
	ck_assert_uint_eq(gpu.see.standin_cufile_counts().n_unregistered, 1);
}

FIXTURE(transfer_setup, transfer_teardown)
TEST_MAIN
