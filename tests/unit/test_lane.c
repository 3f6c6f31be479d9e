/*
 * The meaning of a profile's numbers.  Programs test bytes, order and refusals (e2e, fault/rings).
 */
#include "tests/unit/lane_parts.h"

static const struct {
	const char *what;
	struct profile profile;
	uint32_t n_blocks, max_in_flight, n_fills; /* of an op of 1 MiB; 0 fills: any number */
} knobs[] = {
	{ "block_size 4K, queue_depth 8", { 4096, 8, false, true, 1 }, 256, 8, 0 },
	{ "block_size 64K, queue_depth 1", { 65536, 1, false, true, 1 }, 16, 1, 16 },
	{ "overlap_events false", { 4096, 8, false, false, 1 }, 256, 8, 32 },
	{ "overlap_events false, and depth does not divide",
	  { 4096, 100, false, false, 1 },
	  256,
	  100,
	  3 },
	{ "single_submit", { 65536, 4, true, true, 1 }, 16, 4, 0 },
	{ "intra_op_parallelism", { 65536, 4, false, true, 3 }, 16, 12, 0 },
};

TEST_TABLE(the_knobs_mean_what_they_say, knobs)
{
	setup_engine(knobs[_i].profile, 0, true, true);
	fill(t.memory, 1u << 20, 5);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, 1u << 20, 0), 1 << 20);
	ck_assert_msg(seen.n_blocks == knobs[_i].n_blocks, "%s: %u blocks", knobs[_i].what,
		      seen.n_blocks);
	/* The device may be faster than the queue is filled, but with overlap off. */
	ck_assert_msg(seen.max_in_flight <= knobs[_i].max_in_flight, "%s: %u in flight",
		      knobs[_i].what, seen.max_in_flight);
	ck_assert_msg(!knobs[_i].n_fills || seen.n_fills >= knobs[_i].n_fills,
		      "%s: filled %u times", knobs[_i].what, seen.n_fills);
	ck_assert_msg(seen.max_bytes == knobs[_i].profile.block_size, "%s: %u bytes",
		      knobs[_i].what, seen.max_bytes);
	ck_assert_msg(seen.n_single == (knobs[_i].profile.single_submit ? seen.n_blocks : 0), "%s",
		      knobs[_i].what);
	teardown(true);
}

TEST_MAIN
