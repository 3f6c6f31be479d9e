/*
 * Ops of one client with a real file: bytes, profiles, order, and entries that are refused.
 */
#include "tests/unit/lane_parts.h"

TEST_TABLE(bytes_go_there_and_back_with_any_profile, profiles)
{
	setup(profiles[_i].profile, profiles[_i].spin_usec, true);
	fill(t.memory, FILE_BYTES, 1);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, FILE_BYTES, 0), FILE_BYTES);
	ck_assert_int_eq(do_op(RING_OP_FSYNC, 0, 0, 0), 0);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, FILE_BYTES, FILE_BYTES), FILE_BYTES);
	ck_assert_int_eq(memcmp(t.memory, t.memory + FILE_BYTES, FILE_BYTES), 0);
	ck_assert_int_eq(do_op(RING_OP_READ, 4096, 12288, 0), 12288);
	ck_assert_int_eq(memcmp(t.memory, t.memory + FILE_BYTES + 4096, 12288), 0);
	teardown(true);
}

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
	{ "intra_op_parallelism on one lane", { 65536, 16, false, true, 3 }, 18, 16, 0 },
};

TEST_TABLE(the_knobs_mean_what_they_say, knobs)
{
	setup_engine(knobs[_i].profile, 0, true, true);
	fill(t.memory, 1u << 20, 5);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, 1u << 20, 0), 1 << 20);
	if (t.store->n_lanes == 1) { /* else other lanes do a part of it */
		ck_assert_msg(seen.n_blocks == knobs[_i].n_blocks, "%s: %u blocks", knobs[_i].what,
			      seen.n_blocks);
		/* The device may be faster than the queue is filled, but with overlap off. */
		ck_assert_msg(seen.max_in_flight <= knobs[_i].max_in_flight, "%s: %u in flight",
			      knobs[_i].what, seen.max_in_flight);
		ck_assert_msg(!knobs[_i].n_fills || seen.n_fills >= knobs[_i].n_fills,
			      "%s: filled %u times", knobs[_i].what, seen.n_fills);
	}
	ck_assert_msg(seen.max_bytes == knobs[_i].profile.block_size ||
			      knobs[_i].profile.intra_op_parallelism > 1,
		      "%s: %u bytes", knobs[_i].what, seen.max_bytes);
	ck_assert_msg(seen.n_single == (knobs[_i].profile.single_submit ? seen.n_blocks : 0), "%s",
		      knobs[_i].what);
	teardown(true);
}

TEST(a_read_ends_at_the_end_of_the_file)
{
	setup(profiles[0].profile, 0, true);
	ck_assert_int_eq(do_op(RING_OP_READ, FILE_BYTES - 8192, 65536, 0), 8192);
	ck_assert_int_eq(do_op(RING_OP_READ, FILE_BYTES, 65536, 0), 0);
	ck_assert_int_eq(ftruncate(t.file.target.fd, 10000), 0);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 0), 10000);
	ck_assert_int_eq(do_op(RING_OP_READ, 8192, 4096, 0), 10000 - 8192);
	teardown(true);
}

TEST(many_reads_across_the_end_at_once)
{
	setup(profiles[0].profile, 0, true);
	ck_assert_int_eq(ftruncate(t.file.target.fd, 1000), 0);
	for (int round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 200; i++)
			put(i, RING_OP_READ, 0, 4096, i * 4096);
		submit();
		for (unsigned i = 0; i < 200; i++)
			ck_assert_int_eq(get().result, 1000);
	}
	teardown(true);
}

TEST_TABLE(conflicting_ops_run_in_order_of_submission, profiles)
{
	setup(profiles[_i].profile, profiles[_i].spin_usec, true);
	for (int round = 0; round < 20; round++) {
		int n = 0;

		/* Ten writes of the same pages, each followed by a read of it. */
		for (unsigned i = 0; i < 10; i++) {
			memset(t.memory + i * 65536, (int)(round * 10 + (int)i), 65536);
			put(i * 2, RING_OP_WRITE, 65536, 65536, i * 65536);
			put(i * 2 + 1, RING_OP_READ, 65536, 65536, (1 << 20) + i * 65536);
		}
		submit();
		for (; n < 20; n++)
			ck_assert_int_eq(get().result, 65536);
		for (unsigned i = 0; i < 10; i++)
			ck_assert_int_eq(memcmp(t.memory + i * 65536,
						t.memory + (1 << 20) + i * 65536, 65536),
					 0);
	}
	teardown(true);
}

TEST_LOOP(a_full_ring_goes_round_many_times, 4)
{
	uint32_t in_flight = 0, done = 0, next = 0;

	setup(profiles[_i].profile, profiles[_i].spin_usec, true);
	while (done < 20000) {
		while (next < 20000 && ring_client_room(&t.ring)) {
			put(next, RING_OP_READ, next % 2048 * 4096, 4096, next % 64 * 4096);
			next++;
			in_flight++;
		}
		submit();
		ck_assert_int_eq(get().result, 4096);
		in_flight--;
		done++;
	}
	ck_assert_uint_eq(in_flight, 0);
	teardown(true);
}

TEST(refused_entries_end_with_an_errno_and_hurt_no_other)
{
	setup(profiles[0].profile, 0, true);
	put(1, RING_OP_READ, 0, 4096, 0);
	put(2, 99, 0, 4096, 0);
	put(3, RING_OP_READ, 0, 4096, SLAB_BYTES);
	put(4, RING_OP_READ, 0, 4096, 4096);
	submit();
	for (int i = 0; i < 4; i++) {
		struct ring_completion completion = get();
		int want = completion.id == 2 ? EOPNOTSUPP : completion.id == 3 ? ERANGE : 0;

		ck_assert_int_eq(ring_result_errno(completion.result), want);
		ck_assert(want || completion.result == 4096);
	}
	teardown(true);
}

TEST(indices_that_jump_are_told_once)
{
	uint64_t one = 1;

	setup(profiles[0].profile, 0, true);
	atomic_store(&t.ring.shared->sq_tail, 1000000u);
	ck_assert_int_eq(write(t.channel->doorbell_fd, &one, sizeof(one)), sizeof(one));
	while (!t.why_broken)
		run_main_inbox();
	teardown(false);
}

TEST_TABLE(any_range_goes_there_and_back_with_any_profile, profiles)
{
	static const struct {
		uint64_t off, len, slab_off;
	} ranges[] = { { 0, 77, 0 },	      { 13, 3000000 + 77, 13 }, { 4095, 2, 1 },
		       { 1, 70000, 5 },	      { 512, 65536, 512 },	{ 100, 2500001, 7 },
		       { 8190, 300000, 8190 } };
	const char *half = t.memory;

	setup(profiles[_i].profile, profiles[_i].spin_usec, true);
	add_buffered();
	half = t.memory + FILE_BYTES;
	for (size_t i = 0; i < N_ROWS(ranges); i++) {
		uint64_t off = ranges[i].off, len = ranges[i].len, at = ranges[i].slab_off;

		fill(t.memory, FILE_BYTES, (unsigned)i);
		memset(t.memory + FILE_BYTES, 0x55, FILE_BYTES);
		ck_assert_int_eq(do_op(RING_OP_WRITE, off, len, at), (int64_t)len);
		ck_assert_int_eq(do_op(RING_OP_READ, off, len, FILE_BYTES + at), (int64_t)len);
		ck_assert_int_eq(memcmp(t.memory + at, half + at, len), 0);
		ck_assert(half[at + len] == 0x55 && (!at || half[at - 1] == 0x55));
	}
	ck_assert_int_eq(do_op(RING_OP_FSYNC, 0, 0, 0), 0);
	teardown(true);
	(void)close(t.file.target.buffered_fd);
}

TEST_LOOP(a_batch_without_rings_gets_its_results_in_order, 3)
{
	struct batch *batch;

	setup(profiles[_i].profile, profiles[_i].spin_usec, false);
	fill(t.memory, 65536, 9);
	ck_assert_int_eq(batch_new(t.channel, 4, on_done, NULL, &batch), 0);
	for (unsigned i = 0; i < 4; i++)
		batch->entries[i] = (struct ring_entry){
			.opcode = RING_OP_WRITE, .file = t.file_id, .slab = t.slab_id, .len = 65536
		};
	batch->entries[1].opcode = RING_OP_READ;
	batch->entries[1].slab_off = 65536;
	batch->entries[2].off = 1;
	batch->entries[3].opcode = RING_OP_FDATASYNC;
	batch->entries[3].slab = 0;
	batch->entries[3].len = 0;
	batch_is_done = false;
	lane_submit(batch);
	while (!batch_is_done)
		run_main_inbox();
	ck_assert_int_eq(batch->results[0], 65536);
	ck_assert_int_eq(batch->results[1], 65536);
	ck_assert_int_eq(ring_result_errno(batch->results[2]), EOPNOTSUPP); /* no edges of writes */
	ck_assert_int_eq(batch->results[3], 0);
	ck_assert_int_eq(memcmp(t.memory, t.memory + 65536, 65536), 0);
	batch_free(batch);
	teardown(true);
}

TEST_MAIN
