/*
 * Two clients on one store: the window, the size of blocks, and waits in io_submit(2).
 */
#include "tests/unit/lane_second.h"

/* Both have had an op: the store is shared, for a while. */
static void share(void)
{
	for (int i = 0; i < 2; i++) {
		struct batch *batch;

		ck_assert_int_eq(do_op(RING_OP_READ, 0, 4096, 0), 4096);
		second_submit(4096, &batch);
		second_wait(batch, 4096);
	}
}

TEST(a_guard_that_holds_back_ends_although_nothing_happens)
{
	struct batch *batch;
	uint32_t n;
	uint64_t start;

	setup_engine(profiles[1].profile, 0, true, true);
	second_open(profiles[1].profile);
	share();
	n = atomic_load(&seen.n_blocks);
	atomic_store(&wanted.holds_blocks, true);
	put(1, RING_OP_READ, 0, 4096, 0);
	submit();
	wait_for_blocks(n + 1);
	start = clock_nsec();
	while (clock_nsec() - start < 3 * WINDOW_LATE_NSEC / 2) /* it is late */
		(void)usleep(100);
	second_submit(1u << 20, &batch);
	wait_for_blocks(n + 2); /* or the test's time is over */
	atomic_store(&wanted.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	ck_assert_int_eq(get().result, 4096);
	second_wait(batch, 1 << 20);
	second_close();
	teardown(true);
}

/* Another client filled the device anew each time, and the next op waited as long. */
TEST(a_client_whose_op_waits_at_the_device_for_long_still_shares_the_store)
{
	struct batch *batch;
	uint64_t start;

	setup_engine(profiles[1].profile, 0, true, true);
	second_open(profiles[1].profile);
	atomic_store(&wanted.holds_blocks, true);
	second_submit(4096, &batch);
	wait_for_blocks(1);
	start = clock_nsec();
	while (clock_nsec() - start <
	       UINT64_C(150000000)) /* longer than it would count as active */
		(void)usleep(1000);
	put(1, RING_OP_READ, 0, FILE_BYTES, 0);
	submit();
	wait_for_blocks(2);
	atomic_store(&wanted.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	second_wait(batch, 4096);
	ck_assert_int_eq(get().result, FILE_BYTES);
	ck_assert_uint_gt(seen.max_shared_bytes, 0);
	second_close();
	teardown(true);
}

static const struct {
	uint64_t other_len;
	uint32_t max_bytes; /* of the blocks of an op of 1 MiB */
} cuts[] = {
	{ 4096, 512u << 10 },	/* beside small ops */
	{ 1u << 20, 1u << 20 }, /* beside large ones: as the profile says */
};

TEST_TABLE(blocks_are_cut_only_where_somebody_has_smaller_ops, cuts)
{
	setup_engine(profiles[1].profile, 0, true, true);
	second_open(profiles[1].profile);
	share();
	/* The ops of share() count for 0.1 s: waits for that, at most for the test's time. */
	do {
		struct batch *batch;

		seen.max_shared_bytes = 0;
		second_submit(cuts[_i].other_len, &batch);
		ck_assert_int_eq(do_op(RING_OP_READ, 0, 1u << 20, 1u << 20), 1 << 20);
		second_wait(batch, (int64_t)cuts[_i].other_len);
	} while (seen.max_shared_bytes != cuts[_i].max_bytes);
	second_close();
	teardown(true);
}

static const struct {
	bool is_multi_user;
	uint32_t max_bytes, max_shared_bytes; /* of blocks; of those that may not wait */
} alones[] = {
	{ false, 1u << 20, 0 },
	{ true, 256u << 10, 256u << 10 },
};

TEST_TABLE(only_a_users_own_daemon_lets_a_client_that_is_alone_wait_in_io_submit, alones)
{
	setup_engine(profiles[1].profile, 0, true, true);
	t.store->lane_store.is_multi_user = alones[_i].is_multi_user;
	t.store->lane_store.whole_bytes = 256u << 10; /* of the device, for one request */
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 1u << 20, 1u << 20), 1 << 20);
	ck_assert_uint_eq(seen.max_bytes, alones[_i].max_bytes);
	ck_assert_uint_eq(seen.max_shared_bytes, alones[_i].max_shared_bytes);
	ck_assert_uint_eq(store_block_bytes(t.store, &profiles[1].profile), alones[_i].max_bytes);
	/* A channel made now has as many bytes in flight. */
	second_open(profiles[1].profile);
	ck_assert_uint_eq(second.channel->admit.depth * alones[_i].max_bytes,
			  profiles[1].profile.queue_depth * profiles[1].profile.block_size);
	second_close();
	teardown(true);
}

TEST_MAIN
