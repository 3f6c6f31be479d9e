#include "daemon/object/split.h"

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

uint64_t split_part_bytes(const struct split *split)
{
	uint64_t bytes = split->len / split->n_parts + (split->len % split->n_parts != 0);

	return round_up(bytes, split->align);
}

/* Blocks of the first part, which has the most. */
static uint64_t rows(const struct split *split)
{
	uint64_t part;

	if (split->len <= split->block_size)
		return split->len > 0; /* most ops: without divisions */
	part = split_part_bytes(split);
	if (part > split->len)
		part = split->len;
	return (part + split->block_size - 1) / split->block_size;
}

bool split_is_countable(const struct split *split)
{
	return rows(split) <= UINT32_MAX / split->n_parts;
}

uint32_t split_n_blocks(const struct split *split)
{
	return (uint32_t)(rows(split) * split->n_parts);
}

struct split_block split_block(const struct split *split, uint32_t n)
{
	struct split_block block = { 0 };
	uint64_t part_bytes, start, in_part, left;

	if (split->len <= split->block_size && split->n_parts == 1) {
		block.len = n ? 0 : (uint32_t)split->len;
		return block;
	}
	block.part = n % split->n_parts;
	part_bytes = split_part_bytes(split);
	start = block.part * part_bytes;
	in_part = (uint64_t)(n / split->n_parts) * split->block_size;
	if (start >= split->len || in_part >= part_bytes)
		return block;
	left = split->len - start;
	if (left > part_bytes)
		left = part_bytes;
	if (in_part >= left)
		return block;
	left -= in_part;
	block.off = start + in_part;
	block.len = left < split->block_size ? (uint32_t)left : split->block_size;
	return block;
}
