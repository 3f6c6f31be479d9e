#include "daemon/lane/blocks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int blocks_prepare_lane(struct blocks *blocks, uint32_t lane)
{
	blocks->lanes[lane] = calloc(blocks->depth, sizeof(struct block));
	return blocks->lanes[lane] ? 0 : -ENOMEM;
}

void blocks_add_lane(struct blocks *blocks)
{
	blocks->n += blocks->depth;
}

void blocks_deinit(struct blocks *blocks)
{
	for (uint32_t i = 0; i < STORE_LANES_MAX; i++)
		free(blocks->lanes[i]);
}

/* The last block that was given, which is in the cache; NULL: none. */
static struct block *take_free(struct block **free_blocks)
{
	struct block *block = *free_blocks;

	if (block)
		*free_blocks = block->next;
	return block;
}

static void give_free(struct block **free_blocks, struct block *block)
{
	block->next = *free_blocks;
	*free_blocks = block;
}

struct block *block_take(struct blocks *blocks)
{
	struct block *block = take_free(&blocks->free);
	uint32_t i;

	if (block)
		return block;
	assert(blocks->n_fresh < blocks->n);
	i = blocks->n_fresh++;
	return &blocks->lanes[i / blocks->depth][i % blocks->depth];
}

void block_give(struct blocks *blocks, struct block *block)
{
	give_free(&blocks->free, block);
}

struct block *worker_block_take(struct worker_blocks *blocks)
{
	struct block *block = take_free(&blocks->free);

	if (block)
		return block;
	assert(blocks->n_fresh < blocks->n_max);
	return &blocks->blocks[blocks->n_fresh++].block;
}

void worker_block_give(struct worker_blocks *blocks, struct block *block)
{
	give_free(&blocks->free, block);
}
