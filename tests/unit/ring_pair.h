/*
 * For unit tests: both sides of a channel, over plain memory.
 */
#ifndef DSAIO_TESTS_UNIT_RING_PAIR_H
#define DSAIO_TESTS_UNIT_RING_PAIR_H

#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <string.h>
#include <sys/mman.h>

struct pair {
	void *map;
	size_t bytes;
	_Alignas(64) struct lane_board board;
	struct ring_client client;
	struct ring_lane lane;
};

static inline void pair_init(struct pair *pair, uint32_t entries)
{
	memset(pair, 0, sizeof(*pair));
	pair->bytes = ring_bytes(entries);
	pair->map = mmap(NULL, pair->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	ck_assert_ptr_ne(pair->map, MAP_FAILED);
	pair->board.magic = LANE_BOARD_MAGIC;
	pair->board.version = RING_VERSION;
	ring_lane_init(&pair->lane, pair->map, entries);
	ck_assert_int_eq(ring_client_init(&pair->client, pair->map, &pair->board, entries), 0);
}

static inline void pair_deinit(struct pair *pair)
{
	ck_assert_int_eq(munmap(pair->map, pair->bytes), 0);
}

#endif
