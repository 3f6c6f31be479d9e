/*
 * Writes that extend their file: the step that allocates, and the ops that wait for it.
 */
#include "tests/unit/lane_second.h"

static void setup_growing(int error)
{
	setup_engine((struct profile){ 65536, 8, false, true, 1 }, 0, true, true);
	memset(&allocations, 0, sizeof(allocations));
	allocations.error = error;
	atomic_store(&allocations.is_watched, true);
	fill(t.memory, 4u << 20, 9);
}

static void teardown_growing(void)
{
	const struct extension *extension = &t.file.extension;

	atomic_store(&allocations.is_watched, false);
	teardown(true);
	ck_assert_uint_eq(extension->n_ops, 0);
	ck_assert_ptr_null(extension->waiting.first);
	ck_assert(!extension->is_running);
}

static struct ring_entry growing(uint32_t file_id, uint64_t off, uint64_t len, uint64_t grow_end)
{
	return (struct ring_entry){ .opcode = RING_OP_WRITE,
				    .file = file_id,
				    .off = off,
				    .len = len,
				    .slab = t.slab_id,
				    .grow_end = grow_end };
}

static void put_growing(uint64_t id, uint64_t off, uint64_t len, uint64_t grow_end)
{
	struct ring_entry entry = growing(t.file_id, off, len, grow_end);

	entry.id = id;
	ring_client_put(&t.ring, &entry);
	submit();
}

static void await_allocation(uint32_t n)
{
	while (atomic_load(&allocations.n) < n)
		(void)usleep(1000);
}

static off_t size_now(void)
{
	return lseek(t.file.target.fd, 0, SEEK_END);
}

TEST(a_write_that_grows_its_file_waits_for_that_and_others_do_not)
{
	setup_growing(0);
	atomic_store(&holds_calls, true);
	put_growing(1, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	await_allocation(1);
	ck_assert_int_eq(allocations.off, FILE_BYTES);
	ck_assert_int_eq(allocations.len, 1 << 20);
	/* Behind it in the same channel: a read, and another write that grows the file. */
	put_growing(2, FILE_BYTES + (1u << 20), 1u << 20, FILE_BYTES + (2u << 20));
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 8u << 20), 65536);
	ck_assert_uint_eq(seen.n_blocks, 1);
	ck_assert_uint_eq(atomic_load(&allocations.n), 1);
	atomic_store(&holds_calls, false);
	ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_uint_eq(atomic_load(&allocations.n), 2);
	ck_assert_uint_eq(seen.n_blocks, 1 + 32);
	ck_assert_int_eq(size_now(), FILE_BYTES + (2 << 20));
	ck_assert_int_eq(do_op(RING_OP_READ, FILE_BYTES, 1u << 20, 8u << 20), 1 << 20);
	ck_assert_int_eq(memcmp(t.memory, t.memory + (8u << 20), 1u << 20), 0);
	teardown_growing();
}

TEST(parts_of_a_larger_write_need_one_step)
{
	setup_growing(0);
	/* Held until all are there: each could be done before the next comes. */
	atomic_store(&wanted.holds_blocks, true);
	for (unsigned i = 0; i < 4; i++)
		put_growing(i, FILE_BYTES + i * (1u << 20), 1u << 20, FILE_BYTES + (4u << 20));
	await_allocation(1);
	ck_assert_int_eq(allocations.len, 4 << 20);
	atomic_store(&wanted.holds_blocks, false);
	put(4, RING_OP_READ, 0, 1u << 20, 8u << 20); /* wakes the lane */
	submit();
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_uint_eq(atomic_load(&allocations.n), 1);
	ck_assert_int_eq(size_now(), FILE_BYTES + (4 << 20));
	teardown_growing();
}

TEST(an_extension_that_fails_ends_its_op_alone)
{
	setup_growing(ENOSPC);
	atomic_store(&holds_calls, true);
	put_growing(1, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	await_allocation(1);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 4096, 8u << 20), 4096);
	atomic_store(&holds_calls, false);
	ck_assert_int_eq(get().result, ring_result_failed(ENOSPC, 0));
	ck_assert_uint_eq(atomic_load(&allocations.n), 1);
	ck_assert_int_eq(size_now(), FILE_BYTES);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, 1u << 20, 0), 1 << 20);
	allocations.error = 0;
	put_growing(2, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	ck_assert_int_eq(get().result, 1 << 20);
	teardown_growing();
}

TEST(a_write_whose_extension_hangs_can_be_cancelled)
{
	setup_growing(0);
	atomic_store(&holds_calls, true);
	put_growing(1, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	await_allocation(1);
	put_growing(2, FILE_BYTES + (1u << 20), 1u << 20, FILE_BYTES + (2u << 20));
	/* The one that waits for the other's step ends at once, the other when its call is back. */
	do_cancel(2);
	ck_assert_int_eq(get().result, ring_result_failed(ECANCELED, 0));
	do_cancel(1);
	ck_assert(!ring_client_ready(&t.ring));
	put_growing(3, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20)); /* behind it, by its range */
	atomic_store(&holds_calls, false);
	ck_assert_int_eq(get().result, ring_result_failed(ECANCELED, 0));
	ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_int_eq(size_now(), FILE_BYTES + (1 << 20)); /* nobody moved it back */
	teardown_growing();
}

TEST(a_step_that_has_not_begun_holds_up_no_other_client)
{
	const struct profile profile = { 65536, 8, false, true, 1 };
	struct file other = { 0 };
	struct batch *batch;
	uint32_t other_id;

	setup_growing(0);
	add_other(&other, &other_id);
	second_open(profile);
	/* All threads that the channel may use hang, so its step of the inode waits for one. */
	atomic_store(&holds_calls, true);
	for (unsigned i = 0; i < 4; i++)
		put(i, RING_OP_READ, 0, 131072, 1); /* misaligned: a worker's at once */
	put_growing(4, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 8u << 20), 65536);
	ck_assert_uint_eq(atomic_load(&allocations.n), 0);
	second_submit_entry(
		growing(other_id, FILE_BYTES + (1u << 20), 1u << 20, FILE_BYTES + (2u << 20)),
		&batch);
	await_allocation(1);
	ck_assert_int_eq(allocations.off, FILE_BYTES + (1 << 20));
	atomic_store(&holds_calls, false);
	second_wait(batch, 1 << 20);
	for (unsigned i = 0; i < 5; i++) {
		struct ring_completion completion = get();

		ck_assert_int_eq(completion.result, completion.id == 4 ? 1 << 20 : 131072);
	}
	ck_assert_int_eq(size_now(), FILE_BYTES + (2 << 20));
	second_close();
	teardown_growing();
	ck_assert_uint_eq(other.n_refs, 1000000);
}

/* How the op that a step is for ends before the step does. */
static const struct {
	const char *what;
	bool is_queued; /* no thread has the step yet */
	bool has_left;	/* by the end of its channel, not by a cancel */
} owners[] = {
	{ "cancelled while the step runs", false, false },
	{ "cancelled while the step is queued", true, false },
	{ "its channel ends while the step runs", false, true },
	{ "its channel ends while the step is queued", true, true },
};

TEST_TABLE(ops_that_wait_for_a_step_go_on_when_the_op_it_is_for_has_gone, owners)
{
	const struct profile profile = { 65536, 8, false, true, 1 };
	struct batch *batch, *empty;

	setup_growing(0);
	second_open(profile); /* another channel of the same client */
	atomic_store(&holds_calls, true);
	for (unsigned i = 0; i < (owners[_i].is_queued ? 4 : 0); i++)
		put(i, RING_OP_READ, 0, 131072, 1); /* misaligned: a worker's at once */
	put_growing(4, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	if (owners[_i].is_queued)
		ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 8u << 20), 65536);
	else
		await_allocation(1);
	second_submit_entry(
		growing(t.file_id, FILE_BYTES + (1u << 20), 1u << 20, FILE_BYTES + (2u << 20)),
		&batch);
	/* When an op behind it has ended, the write waits before the lane takes a message.  That op has no
	   block: the kernel may return a block that must not wait, and a worker would then hold it. */
	second_submit(0, &empty);
	second_wait(empty, 0);
	batch_is_done = false;
	if (owners[_i].has_left)
		lane_remove_channel(t.channel->lane, t.channel, false);
	else
		do_cancel(4);
	if (owners[_i].is_queued)
		await_allocation(1); /* the other's, although no call has come back */
	atomic_store(&holds_calls, false);
	second_wait(batch, 1 << 20);
	while (owners[_i].has_left && !t.was_removed)
		run_main_inbox();
	if (!owners[_i].has_left)
		for (unsigned i = 0; i < (owners[_i].is_queued ? 5 : 1); i++) {
			struct ring_completion completion = get();

			ck_assert_int_eq(completion.result,
					 completion.id == 4 ? ring_result_failed(ECANCELED, 0)
							    : 131072);
		}
	ck_assert_int_eq(size_now(), FILE_BYTES + (2 << 20));
	second_close();
	teardown_growing();
}

TEST(where_nothing_can_be_allocated_helpers_write)
{
	setup_growing(EOPNOTSUPP);
	put_growing(1, FILE_BYTES, 1u << 20, FILE_BYTES + (1u << 20));
	ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_int_eq(size_now(), FILE_BYTES + (1 << 20));
	put_growing(2, FILE_BYTES + (1u << 20), 1u << 20, FILE_BYTES + (2u << 20));
	ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_uint_eq(atomic_load(&allocations.n), 1); /* not asked again */
	ck_assert_uint_eq(seen.n_blocks, 0);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, 65536, 0), 65536); /* within the file */
	ck_assert_uint_eq(seen.n_blocks, 1);
	teardown_growing();
}

TEST(a_short_write_grows_its_file_by_itself)
{
	setup_growing(0);
	put_growing(1, FILE_BYTES, 65536, FILE_BYTES + 65536);
	ck_assert_int_eq(get().result, 65536);
	ck_assert_uint_eq(atomic_load(&allocations.n), 0);
	ck_assert_uint_eq(seen.n_blocks, 0);
	ck_assert_int_eq(size_now(), FILE_BYTES + 65536);
	teardown_growing();
}

TEST_MAIN
