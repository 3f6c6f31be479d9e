#include "daemon/object/split.h"

#include "tests/unit/suite.h"

/* Blocks of a few shapes by hand: part, offset, length in the order of their numbers. */
static const struct {
	const char *what;
	struct split split;
	uint32_t n_blocks;
	struct split_block blocks[6];
} shapes[] = {
	{ "one block", { 4096, 1, 1 << 20, 4096 }, 1, { { 0, 0, 4096 } } },
	{ "a short last block",
	  { 10000, 1, 4096, 4096 },
	  3,
	  { { 0, 0, 4096 }, { 0, 4096, 4096 }, { 0, 8192, 1808 } } },
	{ "two parts take turns",
	  { 16384, 2, 4096, 4096 },
	  4,
	  { { 0, 0, 4096 }, { 1, 8192, 4096 }, { 0, 4096, 4096 }, { 1, 12288, 4096 } } },
	{ "a part with fewer blocks",
	  { 12288, 2, 4096, 4096 },
	  4,
	  { { 0, 0, 4096 }, { 1, 8192, 4096 }, { 0, 4096, 4096 }, { 1, 0, 0 } } },
	{ "more parts than pages",
	  { 4096, 3, 4096, 4096 },
	  3,
	  { { 0, 0, 4096 }, { 1, 0, 0 }, { 2, 0, 0 } } },
	{ "one byte", { 1, 1, 4096, 4096 }, 1, { { 0, 0, 1 } } },
};

TEST_TABLE(blocks_are_numbered_across_parts, shapes)
{
	ck_assert_msg(split_n_blocks(&shapes[_i].split) == shapes[_i].n_blocks, "%s",
		      shapes[_i].what);
	for (uint32_t n = 0; n < shapes[_i].n_blocks; n++) {
		struct split_block block = split_block(&shapes[_i].split, n);
		const struct split_block *want = &shapes[_i].blocks[n];

		ck_assert_msg(block.part == want->part && block.len == want->len &&
				      (!block.len || block.off == want->off),
			      "%s: block %u", shapes[_i].what, n);
	}
}

TEST(every_byte_is_in_one_block_for_any_shape)
{
	static const uint64_t lens[] = { 1, 511, 4096, 4097, 1 << 20, (1 << 20) + 1, 3333333 };
	static const uint32_t parts[] = { 1, 2, 3, 7, 64 };
	static const uint32_t sizes[] = { 4096, 12288, 1 << 20 };

	for (size_t l = 0; l < sizeof(lens) / sizeof(*lens); l++)
		for (size_t p = 0; p < sizeof(parts) / sizeof(*parts); p++)
			for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
				struct split split = { lens[l], parts[p], sizes[s], 4096 };
				uint8_t *seen = calloc(1, lens[l]);
				uint64_t n_wrong = 0;

				ck_assert_ptr_nonnull(seen);
				for (uint32_t n = 0; n < split_n_blocks(&split); n++) {
					struct split_block block = split_block(&split, n);

					ck_assert_uint_le(block.len, sizes[s]);
					for (uint32_t i = 0; i < block.len; i++)
						n_wrong += seen[block.off + i]++ != 0;
					ck_assert(!block.len || block.off % 4096 == 0);
				}
				for (uint64_t i = 0; i < lens[l]; i++)
					n_wrong += seen[i] != 1;
				ck_assert_uint_eq(n_wrong, 0);
				free(seen);
			}
}

TEST(more_blocks_than_the_counter_holds_are_reported)
{
	struct split split = { UINT64_C(1) << 44, 1, 4096, 4096 };

	ck_assert(!split_is_countable(&split));
	split.block_size = 1 << 20;
	ck_assert(split_is_countable(&split));
}

TEST_MAIN
