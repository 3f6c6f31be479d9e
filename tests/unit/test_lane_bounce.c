/*
 * Unaligned reads and the bounce pages that they wait for.
 */
#include "tests/unit/lane_parts.h"

TEST(ragged_reads_wait_for_a_bounce_page)
{
	setup_engine((struct profile){ 4096, 256, false, true, 1 }, 0, true, true);
	fill(t.memory, FILE_BYTES, 6);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, FILE_BYTES, 0), FILE_BYTES);
	for (int round = 0; round < 3; round++) {
		atomic_store(&wanted.holds_blocks, round == 0);
		memset(t.memory + FILE_BYTES, 0, FILE_BYTES);
		for (unsigned i = 0; i < 250; i++)
			put(i, RING_OP_READ, i * 10001, 5001, FILE_BYTES + i * 8192 + i);
		submit();
		if (round == 0) {
			do_cancel(249); /* waits; the lane has taken all by now */
			ck_assert_uint_le(seen.n_bounced, 128);
			atomic_store(&wanted.holds_blocks, false);
			do_cancel(1000); /* nobody's: the lane looks again */
		}
		for (unsigned i = 0; i < 250; i++) {
			struct ring_completion completion = get();
			uint64_t id = completion.id;

			if (round == 0 && ring_result_errno(completion.result) == ECANCELED) {
				ck_assert_uint_eq(id, 249);
				continue;
			}
			ck_assert_int_eq(completion.result, 5001);
			ck_assert_int_eq(memcmp(t.memory + id * 10001,
						t.memory + FILE_BYTES + id * 8192 + id, 5001),
					 0);
			ck_assert_int_eq(t.memory[FILE_BYTES + id * 8192 + id + 5001], 0);
		}
	}
	ck_assert_uint_ge(seen.n_bounced, 749);
	teardown(true);
}

TEST(what_waits_for_a_bounce_page_can_be_cancelled)
{
	unsigned n_cancelled = 0;

	setup_engine((struct profile){ 4096, 256, false, true, 1 }, 0, true, true);
	atomic_store(&wanted.holds_blocks, true);
	for (unsigned i = 0; i < 200; i++)
		put(i, RING_OP_READ, i * 10001, 5001, i * 8192);
	put(200, RING_OP_READ, 0, 4096, 0); /* aligned, behind those */
	submit();
	do_cancel(1000); /* nobody's: the lane has taken them all */
	/* The head of those that wait, then all of them, from both ends. */
	for (unsigned i = 128; i < 164; i++) {
		do_cancel(i);
		do_cancel(327 - i);
	}
	for (; n_cancelled < 72; n_cancelled++)
		ck_assert_int_eq(ring_result_errno(get().result), ECANCELED);
	atomic_store(&wanted.holds_blocks, false);
	do_cancel(1000);
	for (unsigned i = 0; i < 129; i++) {
		struct ring_completion completion = get();

		ck_assert_int_eq(completion.result, completion.id == 200 ? 4096 : 5001);
	}
	ck_assert_uint_eq(seen.n_bounced, 128);
	teardown(true);
}

TEST_MAIN
