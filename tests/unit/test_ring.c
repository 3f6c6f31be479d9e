/*
 * The rings: layout, small functions, and both sides in turns.
 */
#include "tests/unit/ring_pair.h"

#include <errno.h>
#include <string.h>

/* ---- layout and small functions ---- */

TEST(the_memfd_holds_both_rings_in_whole_pages)
{
	for (uint32_t entries = RING_ENTRIES_MIN; entries <= RING_ENTRIES_MAX; entries *= 2) {
		size_t bytes = ring_bytes(entries);

		ck_assert_uint_eq(bytes % 4096, 0);
		ck_assert_uint_ge(bytes, 128 + (size_t)entries * 80);
		ck_assert_uint_lt(bytes, 128 + (size_t)entries * 80 + 4096);
	}
}

static const struct {
	int error;
	uint64_t done;
} results[] = {
	{ EIO, 0 },
	{ EIO, 1 },
	{ ENOSPC, 4096 },
	{ 1, RING_LEN_MAX },
	{ 2047, RING_LEN_MAX },
	{ ECANCELED, UINT64_C(400) << 20 },
};

TEST_TABLE(a_failed_result_tells_errno_and_bytes_done, results)
{
	int64_t result = ring_result_failed(results[_i].error, results[_i].done);

	ck_assert_int_lt(result, 0);
	ck_assert_int_eq(ring_result_errno(result), results[_i].error);
	ck_assert_uint_eq(ring_result_done(result), results[_i].done);
	ck_assert(!ring_result_is_unknown(result));
	result = ring_result_unknown(result);
	ck_assert(ring_result_is_unknown(result));
	ck_assert_int_eq(ring_result_errno(result), results[_i].error);
	ck_assert_uint_eq(ring_result_done(result), results[_i].done);
}

TEST(a_good_result_is_the_bytes_done)
{
	ck_assert_int_eq(ring_result_errno(0), 0);
	ck_assert_int_eq(ring_result_errno(RING_LEN_MAX), 0);
	ck_assert(!ring_result_is_unknown(RING_LEN_MAX));
	ck_assert_uint_eq(ring_result_done(RING_LEN_MAX), RING_LEN_MAX);
}

#define R RING_OP_READ
#define W RING_OP_WRITE
#define S RING_OP_FSYNC
#define D RING_OP_FDATASYNC

static const struct {
	const char *what;
	uint8_t first;
	uint64_t first_off, first_len;
	uint8_t then;
	uint64_t then_off, then_len;
	bool conflict;
} pairs[] = {
	{ "two reads", R, 0, 8192, R, 0, 8192, false },
	{ "read after write", W, 0, 8192, R, 4096, 4096, true },
	{ "write after read", R, 0, 8192, W, 4096, 4096, true },
	{ "write after write", W, 0, 8192, W, 0, 1, true },
	{ "neighbouring pages", W, 0, 4096, W, 4096, 4096, false },
	{ "neighbouring pages, the other way", W, 4096, 4096, R, 0, 4096, false },
	{ "two bytes of one page", W, 0, 1, R, 4095, 1, true },
	{ "the last byte of a page and the next page", W, 4095, 2, R, 4096, 1, true },
	{ "an empty write", W, 0, 0, R, 0, 4096, false },
	{ "an empty read", W, 0, 4096, R, 0, 0, false },
	{ "the end of all offsets", W, INT64_MAX - 4095, 4095, R, INT64_MAX - 1, 1, true },
	{ "sync after write", W, 0, 4096, S, 0, 0, true },
	{ "data sync after write elsewhere", W, 1 << 20, 1, D, 0, 0, true },
	{ "sync after read", R, 0, 4096, S, 0, 0, false },
	{ "sync after sync", S, 0, 0, S, 0, 0, false },
	{ "write after sync", S, 0, 0, W, 0, 4096, false },
};

TEST_TABLE(ops_conflict_if_one_writes_what_the_other_touches, pairs)
{
	ck_assert_msg(ring_ops_conflict(pairs[_i].first, pairs[_i].first_off, pairs[_i].first_len,
					pairs[_i].then, pairs[_i].then_off,
					pairs[_i].then_len) == pairs[_i].conflict,
		      "%s", pairs[_i].what);
}

/* ---- both sides over plain memory ---- */

TEST(the_client_refuses_a_ring_that_is_not_as_promised)
{
	static const struct {
		uint32_t entries, promised;
		bool bad_magic, bad_version, bad_board;
	} cases[] = {
		{ 8, 16, false, false, false },	     { 8, 8, true, false, false },
		{ 8, 8, false, true, false },	     { 8, 8, false, false, true },
		{ 12, 12, false, false, false },     { 2, 2, false, false, false },
		{ 8192, 8192, false, false, false },
	};
	struct ring_client client;
	struct pair pair;

	pair_init(&pair, RING_ENTRIES_MAX);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair.lane.shared->entries = cases[i].entries;
		pair.lane.shared->magic = RING_MAGIC + cases[i].bad_magic;
		pair.lane.shared->version = RING_VERSION + cases[i].bad_version;
		pair.board.magic = LANE_BOARD_MAGIC + cases[i].bad_board;
		ck_assert_int_eq(
			ring_client_init(&client, pair.map, &pair.board, cases[i].promised),
			-EPROTO);
	}
	pair_deinit(&pair);
}

TEST(entries_and_completions_keep_content_and_order_over_many_turns)
{
	struct ring_entry in = { 0 }, out;
	struct ring_completion done;
	struct pair pair;

	pair_init(&pair, 4);
	for (uint64_t round = 0; round < 100; round++) {
		uint32_t n = 1 + (uint32_t)(round % 4);

		ck_assert_uint_eq(ring_client_room(&pair.client), 4);
		for (uint32_t i = 0; i < n; i++) {
			in = (struct ring_entry){ .id = round << 8 | i,
						  .opcode = RING_OP_WRITE,
						  .file = 0x10001,
						  .off = round,
						  .len = UINT64_MAX - i,
						  .slab_off = ~round,
						  .slab = 0x20002,
						  .timeout_msec = 77 };
			ring_client_put(&pair.client, &in);
		}
		ck_assert_int_eq(ring_lane_ready(&pair.lane), 0); /* not shown yet */
		ck_assert(!ring_lane_has_entries(&pair.lane));
		ck_assert(!ring_client_submit(&pair.client)); /* the lane is awake */
		ck_assert(ring_lane_has_entries(&pair.lane));
		ck_assert_int_eq(ring_lane_ready(&pair.lane), (int)n);
		for (uint32_t i = 0; i < n; i++) {
			ring_lane_take(&pair.lane, &out);
			in.id = round << 8 | i;
			in.len = UINT64_MAX - i;
			ck_assert_mem_eq(&in, &out, sizeof(in));
			ring_lane_complete(&pair.lane, out.id, -(int64_t)i);
		}
		ck_assert_uint_eq(ring_client_ready(&pair.client), 0);
		ck_assert(ring_lane_publish(&pair.lane));
		ck_assert(!ring_lane_publish(&pair.lane));
		ck_assert_uint_eq(ring_client_ready(&pair.client), n);
		ck_assert_uint_eq(ring_client_room(&pair.client), 4 - n);
		for (uint32_t i = 0; i < n; i++) {
			done = ring_client_peek(&pair.client, i);
			ck_assert_uint_eq(done.id, round << 8 | i);
			ck_assert_int_eq(done.result, -(int64_t)i);
		}
		ring_client_consume(&pair.client, n);
	}
	pair_deinit(&pair);
}

TEST(the_clients_time_adds_up)
{
	struct pair pair;

	pair_init(&pair, 4);
	ck_assert_uint_eq(ring_lane_client_nsec(&pair.lane), 0);
	ring_client_add_time(&pair.client, 40);
	ring_client_add_time(&pair.client, UINT64_C(1) << 40);
	ck_assert_uint_eq(ring_lane_client_nsec(&pair.lane), (UINT64_C(1) << 40) + 40);
	pair_deinit(&pair);
}

TEST(positions_wrap_around)
{
	struct ring_entry entry = { .id = 5 }, out;
	struct pair pair;

	pair_init(&pair, 4);
	pair.client.tail = pair.lane.taken = pair.lane.cq_tail = pair.lane.published =
		pair.lane.cq_head = UINT32_MAX - 1;
	atomic_store(&pair.client.head, UINT32_MAX - 1);
	atomic_store(&pair.lane.shared->sq_tail, UINT32_MAX - 1);
	atomic_store(&pair.lane.shared->cq_tail, UINT32_MAX - 1);
	atomic_store(&pair.lane.shared->cq_head, UINT32_MAX - 1);
	for (int i = 0; i < 8; i++) {
		ring_client_put(&pair.client, &entry);
		(void)ring_client_submit(&pair.client); /* the lane is awake */
		ck_assert_int_eq(ring_lane_ready(&pair.lane), 1);
		ring_lane_take(&pair.lane, &out);
		ring_lane_complete(&pair.lane, out.id, 0);
		ck_assert(ring_lane_publish(&pair.lane));
		ck_assert_uint_eq(ring_client_ready(&pair.client), 1);
		ring_client_consume(&pair.client, 1);
	}
	pair_deinit(&pair);
}

static const struct {
	const char *what;
	uint32_t n_taken; /* and published */
	uint32_t sq_tail, cq_head;
	int ready;
} indices[] = {
	{ "nothing new", 2, 2, 0, 0 },
	{ "one more", 2, 3, 2, 1 },
	{ "all slots, all consumed", 2, 6, 2, 4 },
	{ "all slots, one not consumed", 2, 5, 1, 3 },
	{ "more entries than slots", 2, 7, 2, -EPROTO },
	{ "more open than slots", 2, 6, 1, -EPROTO },
	{ "tail goes back", 2, 1, 0, -EPROTO },
	{ "tail jumps far", 2, 0x80000000u, 2, -EPROTO },
	{ "head before what was seen", 2, 3, UINT32_MAX, -EPROTO },
	{ "head beyond what was published", 2, 4, 3, -EPROTO },
	{ "head jumps far", 2, 3, 0x80000002u, -EPROTO },
};

TEST_TABLE(indices_that_make_no_sense_are_reported, indices)
{
	struct ring_entry entry = { 0 };
	struct pair pair;

	pair_init(&pair, 4);
	for (uint32_t i = 0; i < indices[_i].n_taken; i++) {
		ring_client_put(&pair.client, &entry);
		(void)ring_client_submit(&pair.client); /* the lane is awake */
		ring_lane_take(&pair.lane, &entry);
		ring_lane_complete(&pair.lane, 0, 0);
		ck_assert(ring_lane_publish(&pair.lane));
	}
	atomic_store(&pair.lane.shared->sq_tail, indices[_i].sq_tail);
	atomic_store(&pair.lane.shared->cq_head, indices[_i].cq_head);
	ck_assert_msg(ring_lane_ready(&pair.lane) == indices[_i].ready, "%s", indices[_i].what);
	pair_deinit(&pair);
}

TEST(each_sleep_of_the_lane_is_rung_once)
{
	struct ring_entry entry = { 0 };
	struct pair pair;

	pair_init(&pair, 8);
	lane_board_set(&pair.board, 1);
	ring_client_put(&pair.client, &entry);
	ck_assert(ring_client_submit(&pair.client));
	ring_client_put(&pair.client, &entry);
	ck_assert(!ring_client_submit(&pair.client));
	lane_board_set(&pair.board, 2);
	ring_client_put(&pair.client, &entry);
	ck_assert(!ring_client_submit(&pair.client));
	lane_board_set(&pair.board, 3);
	ring_client_put(&pair.client, &entry);
	ck_assert(ring_client_submit(&pair.client));
	pair_deinit(&pair);
}

TEST(a_parked_channel_is_rung_though_the_lane_is_awake)
{
	struct ring_entry entry = { 0 };
	struct pair pair;

	pair_init(&pair, 8);
	ring_lane_park(&pair.lane);
	ck_assert(ring_lane_is_parked(&pair.lane));
	ring_client_put(&pair.client, &entry);
	ck_assert(ring_client_submit(&pair.client));
	ring_client_put(&pair.client, &entry);
	ck_assert(!ring_client_submit(&pair.client));
	ring_lane_unpark(&pair.lane);
	ring_client_put(&pair.client, &entry);
	ck_assert(!ring_client_submit(&pair.client));
	ring_lane_park(&pair.lane);
	lane_board_set(&pair.board, 1);
	ring_client_put(&pair.client, &entry);
	ck_assert(ring_client_submit(&pair.client)); /* one doorbell for both reasons */
	ring_client_put(&pair.client, &entry);
	ck_assert(!ring_client_submit(&pair.client));
	pair_deinit(&pair);
}

TEST(each_sleep_of_the_client_is_answered_once)
{
	struct pair pair;
	uint32_t bell;

	pair_init(&pair, 4);
	ck_assert_int_eq(ring_lane_wake(&pair.lane), RING_WAKE_NONE);

	bell = ring_client_bell(&pair.client);
	ck_assert(ring_client_arm(&pair.client, false));
	ck_assert_int_eq(ring_lane_wake(&pair.lane), RING_WAKE_FUTEX);
	ck_assert_uint_ne(ring_client_bell(&pair.client), bell);
	ck_assert_int_eq(ring_lane_wake(&pair.lane), RING_WAKE_NONE);

	ring_client_disarm(&pair.client);
	ck_assert_int_eq(ring_lane_wake(&pair.lane), RING_WAKE_NONE);

	bell = ring_client_bell(&pair.client);
	ck_assert(ring_client_arm(&pair.client, true));
	ck_assert_int_eq(ring_lane_wake(&pair.lane), RING_WAKE_SOCKET);
	ck_assert_uint_eq(ring_client_bell(&pair.client), bell);

	ring_lane_complete(&pair.lane, 1, 0);
	ck_assert(ring_lane_publish(&pair.lane));
	ck_assert(!ring_client_arm(&pair.client, false)); /* something is there already */
	pair_deinit(&pair);
}

TEST_MAIN
