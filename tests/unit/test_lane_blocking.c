/*
 * Calls that may block: blocks that the kernel returns, unaligned writes, and worker threads that hang.
 */
#include "tests/unit/lane_second.h"

static const int refusals[] = { -EAGAIN, -EOPNOTSUPP };

TEST_TABLE(what_the_kernel_gives_back_a_helper_does, refusals)
{
	setup_engine((struct profile){ 65536, 8, false, true, 1 }, 0, true, true);
	t.file.facts.is_foreign = true; /* never without RWF_NOWAIT */
	wanted.refusal = refusals[_i];
	fill(t.memory, 1u << 20, 3);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, 1u << 20, 0), 1 << 20);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 1u << 20, 1u << 20), 1 << 20);
	ck_assert_int_eq(memcmp(t.memory, t.memory + (1u << 20), 1u << 20), 0);
	/* Ragged, too: its page is free again, and the work queue copies. */
	ck_assert_int_eq(do_op(RING_OP_READ, 100, 300000, (4u << 20) + 100), 300000);
	ck_assert_int_eq(memcmp(t.memory + 100, t.memory + (4u << 20) + 100, 300000), 0);
	ck_assert_int_eq(ftruncate(t.file.target.fd, 100000), 0);
	ck_assert_int_eq(do_op(RING_OP_READ, 65536, 65536, 1u << 20), 100000 - 65536);
	ck_assert_int_eq(do_op(RING_OP_READ, 99999, 10, 1u << 20), 1);
	/* A file without RWF_NOWAIT is not tried again.  A file that had to wait may not, next time. */
	if (refusals[_i] == -EOPNOTSUPP)
		ck_assert_uint_le(seen.n_blocks, 8);
	else
		ck_assert_uint_ge(seen.n_blocks, 35);
	ck_assert_uint_ge(atomic_load(&n_calls), 35);
	teardown(true);
}

TEST(a_call_that_hangs_holds_up_nobody_else)
{
	struct file other = { 0 };
	uint32_t other_id;

	setup_engine((struct profile){ 65536, 64, false, true, 1 }, 0, true, true);
	add_other(&other, &other_id);
	t.file.facts.is_foreign = true;
	wanted.refusal = -EAGAIN;
	atomic_store(&holds_calls, true);

	/* Six blocks at the work queue, half of them in its threads, do not come back. */
	for (unsigned i = 0; i < 6; i++)
		put(i, RING_OP_READ, i * 65536, 65536, i * 65536);
	submit();
	while (atomic_load(&n_held) < 4)
		(void)usleep(1000);
	t.file_id = other_id;
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(do_op(RING_OP_READ, i * 4096, 4096, 1u << 20), 4096);
	/* Queued work can be dropped; work in a thread is awaited. */
	for (unsigned i = 0; i < 6; i++)
		do_cancel(i);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(ring_result_errno(get().result), ECANCELED);
	ck_assert(!ring_client_ready(&t.ring));
	ck_assert_uint_eq(atomic_load(&n_held), 4);
	atomic_store(&holds_calls, false);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(get().result, 65536);
	teardown(true);
	ck_assert_uint_eq(other.n_refs, 1000000);
}

TEST(buffered_and_direct_writes_of_an_inode_take_turns)
{
	uint64_t off = 0;

	setup_engine((struct profile){ 16384, 8, false, true, 1 }, 0, true, true);
	add_buffered();
	fill(t.memory, FILE_BYTES, 5);
	for (unsigned round = 0; round < 10; round++) {
		uint64_t ends[30] = { 0 };

		/* Neighbours, each with an unaligned head and tail and a direct middle. */
		off = 0;
		for (unsigned i = 0; i < 30; i++) {
			ends[i] = 100001 + i * 7;
			put(i, RING_OP_WRITE, off, ends[i], off);
			off += ends[i];
		}
		submit();
		for (unsigned i = 0; i < 30; i++) {
			struct ring_completion completion = get();

			ck_assert_int_eq(completion.result, (int64_t)ends[completion.id]);
		}
		ck_assert_int_eq(do_op(RING_OP_FSYNC, 0, 0, 0), 0);
	}
	ck_assert_uint_eq(atomic_load(&seen.n_mixed), 0);
	ck_assert_uint_gt(seen.n_blocks, 1000);
	ck_assert_uint_ge(atomic_load(&n_calls), 500);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, off, FILE_BYTES), (int64_t)off);
	ck_assert_int_eq(memcmp(t.memory, t.memory + FILE_BYTES, off), 0);
	teardown(true);
	(void)close(t.file.target.buffered_fd);
}

/*
 * The user's own calls hang, so no worker begins with this write of one client.  It must not keep
 * another client's writes of the inode waiting.
 */
TEST(a_write_that_no_worker_has_begun_holds_no_mode_lock)
{
	const struct profile profile = { 65536, 8, false, true, 1 };
	struct batch *batch;

	setup_engine(profile, 0, true, true);
	add_buffered();
	second_open(profile);
	atomic_store(&holds_calls, true);
	for (unsigned i = 0; i < 4; i++)
		put(i, RING_OP_READ, 0, 131072, 1); /* misaligned: a worker's at once */
	submit();
	while (atomic_load(&n_held) < 4)
		(void)usleep(1000);
	put(4, RING_OP_WRITE, (3u << 20) + 100, 100, 0); /* buffered */
	submit();
	ck_assert_int_eq(do_op(RING_OP_READ, 4u << 20, 65536, 4u << 20), 65536); /* so it waits */
	second_submit_entry((struct ring_entry){ .opcode = RING_OP_WRITE,
						 .file = t.file_id,
						 .slab = t.slab_id,
						 .off = 1u << 20,
						 .slab_off = 1u << 20,
						 .len = 65536 },
			    &batch);
	second_wait(batch, 65536);

	/* Nor does a block that came back from the kernel. */
	wanted.refusal = -EAGAIN;
	put(5, RING_OP_WRITE, 2u << 20, 65536, 2u << 20);
	submit();
	while (!atomic_load(&seen.n_refused))
		(void)usleep(1000);
	second_submit_entry((struct ring_entry){ .opcode = 99 }, &batch);
	second_wait(batch, ring_result_failed(EOPNOTSUPP, 0)); /* a turn later */
	second_submit_entry((struct ring_entry){ .opcode = 99 }, &batch);
	second_wait(batch, ring_result_failed(EOPNOTSUPP, 0));
	ck_assert_uint_eq(t.file.inode->mode_lock.n_busy, 0);
	wanted.refusal = 0;
	atomic_store(&holds_calls, false);
	for (unsigned i = 0; i < 6; i++) {
		struct ring_completion completion = get();

		ck_assert_int_eq(completion.result, completion.id < 4	 ? 131072
						    : completion.id == 4 ? 100
									 : 65536);
	}
	second_close();
	teardown(true);
	(void)close(t.file.target.buffered_fd);
}

/* While it is set, the lane's next report to the main thread waits for this channel's report of room. */
static struct channel *_Atomic awaits_room;

/* In place of the C library's, as syscall() above: reports are announced by an eventfd. */
ssize_t write(int fd, const void *bytes, size_t n)
{
	struct channel *channel;

	if (fd == t.main_mailbox.event_fd && (channel = atomic_exchange(&awaits_room, NULL))) {
		atomic_store(&holds_calls, false);
		while (!engine_threads.is_ready(channel->workers.engine))
			(void)usleep(1000);
	}
	return syscall(SYS_write, fd, bytes, n);
}

static void hang(struct work *work)
{
	(void)work;
	call_wait();
}

static void no_room(struct work_room *room)
{
	(void)room;
}

/*
 * The closing channel cannot leave in the turn that ends its op, because a worker has just become free
 * and the report of that is on its way.  The turn that gets the report does nothing else.
 */
TEST(a_closing_channel_leaves_after_the_report_of_room)
{
	const struct profile profile = { 65536, 8, false, true, 1 };
	static struct work works[300];
	struct work_room room = { .on_room = no_room };
	struct batch *waits, *batch;
	struct work_queue *queue;
	unsigned n = 0;

	setup_engine(profile, 0, true, true);
	second_open(profile);
	queue = second.channel->workers.user->queue;
	atomic_store(&holds_calls, true);
	do
		works[n].run = hang;
	while (work_queue_try_submit(queue, &works[n], &room) && ++n < 300);
	ck_assert_uint_lt(n, 300);
	ck_assert(work_queue_stop_waiting(queue, &room));
	second_submit_entry((struct ring_entry){ .opcode = RING_OP_FSYNC, .file = t.file_id },
			    &waits);
	for (unsigned i = 0; i < 2; i++) { /* a turn later */
		second_submit_entry((struct ring_entry){ .opcode = 99 }, &batch);
		second_wait(batch, ring_result_failed(EOPNOTSUPP, 0));
	}
	batch_is_done = false;
	atomic_store(&awaits_room, second.channel);
	lane_remove_channel(second.channel->lane, second.channel, false);
	second_wait(waits, ring_result_failed(ECANCELED, 0));
	ck_assert_ptr_null(atomic_load(&awaits_room));
	while (!second.was_removed)
		run_main_inbox();
	channel_free(second.channel);
	teardown(true);
}

TEST(an_op_that_waits_for_the_gate_can_be_cancelled)
{
	setup_engine((struct profile){ 16384, 8, false, true, 1 }, 0, true, true);
	add_buffered();
	atomic_store(&holds_calls, true);
	put(1, RING_OP_WRITE, 100, 100, 0);	      /* holds the mode lock */
	put(2, RING_OP_WRITE, 1u << 20, 65536, 4096); /* these wait before it */
	put(3, RING_OP_WRITE, 2u << 20, 65536, 4096);
	submit();
	while (!atomic_load(&n_held))
		(void)usleep(1000);
	do_cancel(2);
	ck_assert_int_eq(ring_result_errno(get().result), ECANCELED);
	ck_assert_uint_eq(seen.n_blocks, 0);
	do_cancel(1); /* in a thread: awaited */
	ck_assert(!ring_client_ready(&t.ring));
	atomic_store(&holds_calls, false);
	ck_assert_int_eq(get().result, 100);
	ck_assert_int_eq(get().result, 65536);
	ck_assert_uint_eq(seen.n_blocks, 4);

	/* And a channel can go while some wait. */
	atomic_store(&holds_calls, true);
	for (unsigned i = 0; i < 30; i++)
		put(i, RING_OP_WRITE, i * 131072 + 1, 99999, i * 131072 + 1);
	submit();
	while (atomic_load(&n_held) < 2) /* the first's ends; the others wait behind its middle */
		(void)usleep(1000);
	lane_remove_channel(t.channel->lane, t.channel, false);
	atomic_store(&holds_calls, false);
	while (!t.was_removed)
		run_main_inbox();
	teardown(false);
	(void)close(t.file.target.buffered_fd);
}

TEST(where_io_submit_waits_helpers_are_the_engine_as_deep_as_the_profile)
{
	struct ring_completion completion;

	setup_engine((struct profile){ 65536, 16, false, true, 1 }, 0, true, true);
	atomic_store(&t.store->lane_store.is_blocking, true);
	atomic_store(&holds_calls, true);
	put(1, RING_OP_READ, 0, 4u << 20, 0);
	submit();
	while (atomic_load(&n_held) < 16)
		(void)usleep(1000);
	do_cancel(99); /* no such op: the lane has ended the turn that started the last */
	/* As blocks they are its client's: or it lost its place while it waits for them. */
	ck_assert_uint_eq(t.client.blocks_in_flight, 16);
	atomic_store(&holds_calls, false);
	completion = get();
	ck_assert_int_eq(completion.result, 4 << 20);
	ck_assert_uint_eq(atomic_load(&n_calls), 64); /* a block each */
	ck_assert_uint_eq(seen.n_blocks, 0);
	teardown(true);
}

TEST_MAIN
