/*
 * Cancels, deadlines and the end of a channel, while its ops wait or are in flight.
 */
#include "tests/unit/lane_parts.h"

#include <sys/eventfd.h>

TEST(a_closing_channel_drops_what_has_not_started)
{
	setup(profiles[2].profile, 0, true); /* depth 1 */
	for (unsigned i = 0; i < 60; i++)
		put(i, RING_OP_READ, 0, 4u << 20, 0);
	submit();
	ck_assert_int_eq(get().result, 4 << 20);
	teardown(false);
}

TEST(a_draining_channel_that_has_to_hurry_drops_what_has_not_started)
{
	setup(profiles[2].profile, 0, true); /* depth 1, blocks of 4 KiB */
	for (unsigned i = 0; i < 60; i++)
		put(i, RING_OP_READ, 0, 8u << 20, 0);
	submit();
	ck_assert_int_eq(get().result, 8 << 20);
	lane_remove_channel(t.channel->lane, t.channel, true);
	lane_hurry_channel(t.channel);
	while (!t.was_removed)
		run_main_inbox();
	/* Far from all of it was read: 60 x 2048 blocks, one after the other. */
	ck_assert_uint_lt(metrics_get(&t.channel->metrics.read_bytes), UINT64_C(40) * (8u << 20));
	teardown(true);
}

TEST(a_cancelled_op_ends_once)
{
	int n_cancelled = 0, n_whole = 0;

	setup(profiles[2].profile, 0, true); /* depth 1, blocks of 4 KiB */
	for (unsigned i = 0; i < 8; i++)
		put(i, RING_OP_READ, 0, 4u << 20, 0);
	submit();
	for (unsigned i = 0; i < 8; i++)
		do_cancel(i);
	for (int i = 0; i < 8; i++) {
		int64_t result = get().result;

		n_cancelled += ring_result_errno(result) == ECANCELED;
		n_whole += result == 4 << 20;
	}
	ck_assert_int_eq(n_cancelled + n_whole, 8);
	ck_assert_int_ge(n_cancelled, 1);
	teardown(true);
}

/* Completions that came while they were held have used up the edge of the engine's eventfd. */
static void release_blocks(void)
{
	atomic_store(&wanted.holds_blocks, false);
	ck_assert_int_eq(eventfd_write(atomic_load(&wanted.event_fd), 1), 0);
}

/* A full channel: 256 writes of one page; the first is in flight. */
static void put_chain(void)
{
	setup_engine(profiles[0].profile, 0, true, true);
	atomic_store(&wanted.holds_blocks, true);
	for (unsigned i = 0; i < 256; i++)
		put(i, RING_OP_WRITE, 0, 4096, i * 4096);
	submit();
	wait_for_blocks(1);
}

TEST(a_write_waits_for_the_first_though_the_second_was_cancelled)
{
	put_chain();
	do_cancel(1);
	ck_assert_int_eq(ring_result_errno(get().result), ECANCELED);
	do_cancel(1000); /* nobody's: the lane looks again */
	ck_assert_uint_eq(seen.n_blocks, 1);
	atomic_store(&wanted.holds_blocks, false);
	do_cancel(1000);
	for (unsigned i = 0; i < 256; i++)
		if (i != 1)
			ck_assert_uint_eq(get().id, i);
	teardown(true);
}

TEST(a_whole_chain_can_be_cancelled)
{
	put_chain();
	for (unsigned i = 1; i < 255; i++)
		do_cancel(i);
	for (unsigned i = 1; i < 255; i++) {
		struct ring_completion completion = get();

		ck_assert_uint_eq(completion.id, i);
		ck_assert_int_eq(ring_result_errno(completion.result), ECANCELED);
	}
	do_cancel(200); /* once more */
	ck_assert(!ring_client_ready(&t.ring));
	ck_assert_uint_eq(seen.n_blocks, 1);
	atomic_store(&wanted.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	for (unsigned i = 0; i < 256; i += 255) {
		struct ring_completion completion = get();

		ck_assert_uint_eq(completion.id, i);
		ck_assert_int_eq(completion.result, 4096);
	}
	ck_assert_uint_eq(seen.n_blocks, 2);
	teardown(true);
}

TEST(a_channel_goes_with_a_chain)
{
	put_chain();
	do_cancel(128);
	lane_remove_channel(t.channel->lane, t.channel, false);
	release_blocks();
	while (!t.was_removed)
		run_main_inbox();
	ck_assert_uint_eq(seen.n_blocks, 1);
	teardown(false);
}

TEST(a_deadline_is_a_cancel)
{
	struct ring_entry entry = {
		.id = 1, .opcode = RING_OP_READ, .len = 8u << 20, .timeout_msec = 1
	};

	setup(profiles[2].profile, 0, true);
	entry.file = t.file_id;
	entry.slab = t.slab_id;
	ring_client_put(&t.ring, &entry);
	submit();
	ck_assert_int_eq(ring_result_errno(get().result), ETIMEDOUT);
	teardown(true);
}

TEST_MAIN
