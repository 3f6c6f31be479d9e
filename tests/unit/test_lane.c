/*
 * Lanes with real files: this thread is the client, by the ring's client side on the same
 * mapping, and the daemon's main thread.  Under the thread sanitizer it is the test of the
 * rings as the lane uses them.
 *
 * It is over 600 lines because all its tests share one lane and its watched system calls.
 */
#include "daemon/lane/lane.h"

#include "daemon/store/store.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLAB_BYTES (16u << 20)
#define FILE_BYTES (8u << 20)

/* One client with a file and a slab on a store in a temporary directory. */
static struct {
	struct mailbox main_mailbox;
	struct store *store;
	struct quota quota;
	struct objects objects;
	struct sched_client client;
	struct inodes inodes;
	struct file file;
	struct slab slab;
	uint32_t file_id, slab_id;
	int bell[2];
	struct channel *channel;
	struct ring_client ring;
	bool was_removed;
	const char *why_broken;
	char *memory;
} t;

static void on_removed(struct channel *channel, void *arg)
{
	(void)channel;
	(void)arg;
	t.was_removed = true;
}

static void on_broken(struct channel *channel, const char *why, void *arg)
{
	(void)channel;
	(void)arg;
	t.why_broken = why;
}

static void run_main_inbox(void)
{
	struct pollfd fd = { .fd = t.main_mailbox.event_fd, .events = POLLIN };

	ck_assert_int_eq(poll(&fd, 1, 20000), 1);
	(void)mailbox_run(&t.main_mailbox);
}

/*
 * The libaio engine, watched: what the knobs make of it.
 */
static struct {
	_Atomic uint32_t n_blocks, n_single, max_bytes, max_in_flight;
	_Atomic uint32_t n_fills; /* blocks that were submitted when none was in flight */
	_Atomic uint32_t n_bounced, n_refused;
	_Atomic uint32_t max_shared_bytes;		     /* of those that may not wait */
	_Atomic uint32_t n_direct_writes, n_buffered_writes; /* under way */
	_Atomic uint32_t n_mixed;			     /* times that both were */
} seen;

/* And controlled: it refuses blocks with RWF_NOWAIT, or returns no completion. */
static struct {
	int refusal; /* negative errno of blocks with is_nowait; 0: none */
	struct block *refused;
	_Atomic bool holds_blocks;
	_Atomic int event_fd; /* the engine's, since its first block */
} told;

/* Blocking calls of worker threads, by whatever module: they wait while this is set. */
static _Atomic bool holds_calls;
static _Atomic uint32_t n_held, n_calls;

static void call_wait(void)
{
	(void)atomic_fetch_add(&n_calls, 1);
	(void)atomic_fetch_add(&n_held, 1);
	while (atomic_load(&holds_calls))
		(void)usleep(1000);
	(void)atomic_fetch_sub(&n_held, 1);
}

/* Instead of the C library's: the linker takes the first. */
long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
	long args[6], r;
	bool is_buffered;
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pread64 || number == SYS_pwrite64)
		call_wait();
	is_buffered = number == SYS_pwrite64 && args[0] == target_buffered_fd(&t.file.target);
	(void)atomic_fetch_add(&seen.n_buffered_writes, is_buffered);
	if (number == SYS_pwrite64 && atomic_load(&seen.n_buffered_writes) &&
	    atomic_load(&seen.n_direct_writes))
		(void)atomic_fetch_add(&seen.n_mixed, 1);
	r = next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
	(void)atomic_fetch_sub(&seen.n_buffered_writes, is_buffered);
	return r;
}

/* The same for fallocate(2), except the calls of the setup. */
static struct {
	_Atomic bool is_watched;
	int error; /* positive: what it fails with */
	_Atomic uint32_t n;
	off_t off, len; /* of the last */
} allocations;

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (atomic_load(&allocations.is_watched)) {
		allocations.off = off;
		allocations.len = len;
		(void)atomic_fetch_add(&allocations.n, 1);
		call_wait();
		if (allocations.error) {
			errno = allocations.error;
			return -1;
		}
	}
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

static const struct engine_ops *libaio_ops(void)
{
	return engine_ops_get(ENGINE_LIBAIO);
}

static bool is_bounced(const struct block *block)
{
	return block->region != &t.slab.region;
}

static int watched_submit(struct engine *engine, struct block **blocks, int n)
{
	uint32_t before = engine->n_in_flight;
	int r;

	atomic_store(&told.event_fd, libaio_ops()->event_fd(engine));
	if (told.refusal && blocks[0]->is_nowait) {
		blocks[0]->result = told.refusal;
		blocks[0]->next = told.refused;
		told.refused = blocks[0];
		engine->n_in_flight++;
		seen.n_blocks++;
		seen.n_refused++;
		return 1;
	}
	for (int i = 0; i < n; i++) {
		(void)atomic_fetch_add(&seen.n_direct_writes, block_is_write(blocks[i]));
		seen.n_bounced += is_bounced(blocks[i]);
	}
	if (atomic_load(&seen.n_buffered_writes) && atomic_load(&seen.n_direct_writes))
		(void)atomic_fetch_add(&seen.n_mixed, 1);
	r = libaio_ops()->submit(engine, blocks, n);
	for (int i = r; i < n; i++) {
		(void)atomic_fetch_sub(&seen.n_direct_writes, block_is_write(blocks[i]));
		seen.n_bounced -= is_bounced(blocks[i]);
	}
	seen.n_fills += r > 0 && before == 0;
	for (int i = 0; i < r; i++) {
		seen.n_blocks++;
		seen.n_single += blocks[i]->is_single;
		if (blocks[i]->bytes > seen.max_bytes)
			seen.max_bytes = blocks[i]->bytes;
		if (blocks[i]->is_nowait && blocks[i]->bytes > seen.max_shared_bytes)
			seen.max_shared_bytes = blocks[i]->bytes;
	}
	if (before + (uint32_t)r > seen.max_in_flight)
		seen.max_in_flight = before + (uint32_t)r;
	return r;
}

static int watched_reap(struct engine *engine, struct block **blocks, int n)
{
	int r;

	if (told.refused) {
		blocks[0] = told.refused;
		told.refused = blocks[0]->next;
		engine->n_in_flight--;
		return 1;
	}
	if (atomic_load(&told.holds_blocks))
		return 0;
	r = libaio_ops()->reap(engine, blocks, n);
	for (int i = 0; i < r; i++)
		(void)atomic_fetch_sub(&seen.n_direct_writes, block_is_write(blocks[i]));
	return r;
}

static bool watched_is_ready(const struct engine *engine)
{
	if (told.refused)
		return true;
	return !atomic_load(&told.holds_blocks) && libaio_ops()->is_ready(engine);
}

static struct engine_ops watched;

/* Like store_start_lanes(), with another engine. */
static void start_watched_lane(void)
{
	struct lane_config config = {
		.store = &t.store->lane_store, .engine = &watched, .depth = 128, .depth_min = 32
	};
	struct error error;

	watched = *libaio_ops();
	watched.submit = watched_submit;
	watched.reap = watched_reap;
	watched.is_ready = watched_is_ready;
	memset(&seen, 0, sizeof(seen));
	memset(&told, 0, sizeof(told));
	ck_assert_int_eq(lane_start(&config, &t.store->lanes[0], &error), 0);
	t.store->n_lanes = 1;
}

static void setup_engine(struct profile profile, uint32_t spin_usec, bool has_rings,
			 bool is_watched)
{
	const char *dir = getenv("TMPDIR");
	struct store_config store_config = { .name = "test",
					     .profile = profile,
					     .spin_usec = spin_usec };
	struct channel_config config = { .objects = &t.objects,
					 .client = &t.client,
					 .quota = &t.quota,
					 .profile = profile,
					 .io_class = SCHED_NORMAL,
					 .weight = 1,
					 .entries = 256,
					 .has_rings = has_rings };
	struct error error = { 0 };
	char path[512];

	dir = dir ? dir : "/var/tmp";
	memset(&t, 0, sizeof(t));
	for (int i = 0; i < N_QUOTA_KINDS; i++)
		t.quota.limit[i] = UINT64_MAX;
	engine_init();
	ck_assert_int_eq(mailbox_init(&t.main_mailbox), 0);
	store_config.path = dir;
	ck_assert_msg(store_new(1, &store_config, &t.main_mailbox, &t.store, &error) == 0, "%s",
		      error.text);
	if (is_watched)
		start_watched_lane();
	ck_assert_msg(store_start_lanes(t.store, &profile, &error) == 0, "%s", error.text);
	sched_client_init(&t.client);
	inodes_init(&t.inodes);
	memset(&t.objects.files, 0, sizeof(t.objects.files));
	memset(&t.objects.slabs, 0, sizeof(t.objects.slabs));

	(void)snprintf(path, sizeof(path), "%s/dsaio-lane.XXXXXX", dir);
	t.file.target.fd = mkostemp(path, O_DIRECT);
	ck_assert_msg(t.file.target.fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(fallocate(t.file.target.fd, 0, 0, FILE_BYTES), 0);
	atomic_init(&t.file.target.buffered_fd, -1);
	ck_assert_int_eq(file_check(t.file.target.fd, path, &t.file.facts, &error), 0);
	t.file.target.offset_align = t.file.facts.offset_align;
	t.file.target.memory_align = t.file.facts.memory_align;
	t.file.n_refs = 1000000; /* ours: the last drop is not tested here */
	ck_assert_int_eq(file_attach(&t.file, t.store, &t.inodes, 1), 0);
	ck_assert_int_eq(id_table_add(&t.objects.files, &t.file, &t.file_id), 0);

	t.memory = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	ck_assert_ptr_ne(t.memory, MAP_FAILED);
	t.slab = (struct slab){ .region = { .base = t.memory },
				.size_bytes = SLAB_BYTES,
				.n_refs = 1000000 };
	ck_assert_int_eq(id_table_add(&t.objects.slabs, &t.slab, &t.slab_id), 0);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, t.bell), 0);
	config.store = &t.store->lane_store;
	config.client_doorbell_fd = t.bell[0];
	config.owner = (struct channel_owner){ on_removed, on_broken, NULL };
	ck_assert_msg(channel_new(&config, &t.channel, &error) == 0, "%s", error.text);
	if (has_rings)
		ck_assert_int_eq(ring_client_init(&t.ring, t.channel->ring.shared,
						  t.channel->home
							  ? mmap(NULL, 4096, PROT_READ, MAP_SHARED,
								 lane_board_fd(t.channel->home), 0)
							  : NULL,
						  t.channel->entries),
				 0);
	lane_add_channel(t.channel->home, t.channel);
}

static void setup(struct profile profile, uint32_t spin_usec, bool has_rings)
{
	setup_engine(profile, spin_usec, has_rings, false);
}

static void teardown(bool drain)
{
	if (!t.was_removed)
		lane_remove_channel(t.channel->home, t.channel, drain);
	while (!t.was_removed)
		run_main_inbox();
	ck_assert_uint_eq(t.channel->n_open, 0);
	ck_assert_uint_eq(t.channel->n_in_device, 0);
	/* With nothing open both ways to sum up how long ops were open agree, to the nanosecond. */
	ck_assert_uint_eq(t.channel->metrics.open_nsec, t.channel->metrics.ended_nsec);
	ck_assert_uint_le(t.channel->metrics.device_nsec, t.channel->metrics.open_nsec);
	ck_assert(!t.channel->metrics.read_bytes || t.channel->metrics.device_nsec);
	channel_free(t.channel);
	ck_assert_uint_eq(t.file.n_refs, 1000000);
	ck_assert_uint_eq(t.slab.n_refs, 1000000);
	ck_assert(quota_is_zero(&t.quota));
	store_free(t.store);
	ck_assert_uint_eq(t.client.blocks_in_flight, 0);
	mailbox_deinit(&t.main_mailbox);
	(void)close(t.file.target.fd);
	(void)munmap(t.memory, SLAB_BYTES);
}

static void submit(void)
{
	uint64_t one = 1;

	if (ring_client_submit(&t.ring))
		ck_assert_int_eq(write(t.channel->doorbell_fd, &one, sizeof(one)), sizeof(one));
}

static void put(uint64_t id, uint8_t opcode, uint64_t off, uint64_t len, uint64_t slab_off)
{
	bool is_sync = opcode == RING_OP_FSYNC || opcode == RING_OP_FDATASYNC;
	struct ring_entry entry = { .id = id,
				    .opcode = opcode,
				    .file = t.file_id,
				    .off = off,
				    .len = len,
				    .slab_off = slab_off,
				    .slab = is_sync ? 0 : t.slab_id };

	ring_client_put(&t.ring, &entry);
}

static struct ring_completion get(void)
{
	struct ring_completion completion;

	while (!ring_client_ready(&t.ring)) {
		uint32_t bell = ring_client_bell(&t.ring);
		struct timespec limit = { 50, 0 }; /* one op may be hundreds of blocks, in turn */

		if (ring_client_arm(&t.ring, false) &&
		    syscall(SYS_futex, &t.ring.shared->cq_bell, FUTEX_WAIT, bell, &limit, NULL, 0) <
			    0)
			ck_assert_msg(errno == EAGAIN || errno == EINTR, "no completion: %s",
				      strerror(errno));
		ring_client_disarm(&t.ring);
	}
	completion = ring_client_peek(&t.ring, 0);
	ring_client_consume(&t.ring, 1);
	return completion;
}

static int64_t do_op(uint8_t opcode, uint64_t off, uint64_t len, uint64_t slab_off)
{
	struct ring_completion completion;

	put(42, opcode, off, len, slab_off);
	submit();
	completion = get();
	ck_assert_uint_eq(completion.id, 42);
	return completion.result;
}

static void fill(char *memory, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		memory[i] = (char)(i * 31 + (i >> 12) * 7 + seed);
}

static const struct {
	struct profile profile;
	uint32_t spin_usec;
} profiles[] = {
	{ { 1u << 20, 32, false, true, 1 }, 50 },    { { 1u << 20, 32, false, true, 1 }, 0 },
	{ { 4096, 1, false, true, 1 }, 0 },	     { { 4096, 8, false, false, 1 }, 50 },
	{ { 65536, 4, true, true, 3 }, 50 },	     { { 65536, 4, true, false, 64 }, 0 },
	{ { 64u << 20, 4096, false, true, 2 }, 50 },
};

START_TEST(bytes_go_there_and_back_with_any_profile)
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
END_TEST

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

START_TEST(the_knobs_mean_what_they_say)
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
END_TEST

START_TEST(a_read_ends_at_the_end_of_the_file)
{
	setup(profiles[0].profile, 0, true);
	ck_assert_int_eq(do_op(RING_OP_READ, FILE_BYTES - 8192, 65536, 0), 8192);
	ck_assert_int_eq(do_op(RING_OP_READ, FILE_BYTES, 65536, 0), 0);
	ck_assert_int_eq(ftruncate(t.file.target.fd, 10000), 0);
	ck_assert_int_eq(do_op(RING_OP_READ, 0, 65536, 0), 10000);
	ck_assert_int_eq(do_op(RING_OP_READ, 8192, 4096, 0), 10000 - 8192);
	teardown(true);
}
END_TEST

START_TEST(many_reads_across_the_end_at_once)
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
END_TEST

START_TEST(conflicting_ops_run_in_order_of_submission)
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
END_TEST

START_TEST(a_full_ring_goes_round_many_times)
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
END_TEST

START_TEST(refused_entries_end_with_an_errno_and_hurt_no_other)
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
END_TEST

START_TEST(indices_that_jump_are_told_once)
{
	uint64_t one = 1;

	setup(profiles[0].profile, 0, true);
	atomic_store(&t.ring.shared->sq_tail, 1000000u);
	ck_assert_int_eq(write(t.channel->doorbell_fd, &one, sizeof(one)), sizeof(one));
	while (!t.why_broken)
		run_main_inbox();
	teardown(false);
}
END_TEST

START_TEST(a_closing_channel_drops_what_has_not_started)
{
	setup(profiles[2].profile, 0, true); /* depth 1 */
	for (unsigned i = 0; i < 60; i++)
		put(i, RING_OP_READ, 0, 4u << 20, 0);
	submit();
	ck_assert_int_eq(get().result, 4 << 20);
	teardown(false);
}
END_TEST

static bool cancel_is_done;
static void on_cancelled(struct lane_cancel *cancel)
{
	(void)cancel;
	cancel_is_done = true;
}

static void do_cancel(uint64_t id)
{
	struct lane_cancel cancel = { .channel = t.channel, .id = id, .on_done = on_cancelled };

	cancel_is_done = false;
	lane_cancel(&cancel);
	while (!cancel_is_done)
		run_main_inbox();
}

START_TEST(a_draining_channel_that_has_to_hurry_drops_what_has_not_started)
{
	setup(profiles[2].profile, 0, true); /* depth 1, blocks of 4 KiB */
	for (unsigned i = 0; i < 60; i++)
		put(i, RING_OP_READ, 0, 8u << 20, 0);
	submit();
	ck_assert_int_eq(get().result, 8 << 20);
	lane_remove_channel(t.channel->home, t.channel, true);
	lane_hurry_channel(t.channel);
	while (!t.was_removed)
		run_main_inbox();
	/* Far from all of it was read: 60 x 2048 blocks, one after the other. */
	ck_assert_uint_lt(metrics_get(&t.channel->metrics.read_bytes), UINT64_C(40) * (8u << 20));
	teardown(true);
}
END_TEST

START_TEST(a_cancelled_op_ends_once)
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
END_TEST

/* Completions that came while they were held have used up the edge of the engine's eventfd. */
static void release_blocks(void)
{
	atomic_store(&told.holds_blocks, false);
	ck_assert_int_eq(eventfd_write(atomic_load(&told.event_fd), 1), 0);
}

static void wait_for_blocks(uint32_t n)
{
	while (atomic_load(&seen.n_blocks) < n)
		(void)usleep(1000);
}

/* A full channel: 256 writes of one page; the first is in flight. */
static void put_chain(void)
{
	setup_engine(profiles[0].profile, 0, true, true);
	atomic_store(&told.holds_blocks, true);
	for (unsigned i = 0; i < 256; i++)
		put(i, RING_OP_WRITE, 0, 4096, i * 4096);
	submit();
	wait_for_blocks(1);
}

START_TEST(a_write_waits_for_the_first_though_the_second_was_cancelled)
{
	put_chain();
	do_cancel(1);
	ck_assert_int_eq(ring_result_errno(get().result), ECANCELED);
	do_cancel(1000); /* nobody's: the lane looks again */
	ck_assert_uint_eq(seen.n_blocks, 1);
	atomic_store(&told.holds_blocks, false);
	do_cancel(1000);
	for (unsigned i = 0; i < 256; i++)
		if (i != 1)
			ck_assert_uint_eq(get().id, i);
	teardown(true);
}
END_TEST

/* Half as many as there are entries end at once, the others when their turn comes. */
START_TEST(a_whole_chain_can_be_cancelled)
{
	put_chain();
	for (unsigned i = 1; i < 255; i++)
		do_cancel(i);
	for (unsigned i = 1; i < 129; i++) {
		struct ring_completion completion = get();

		ck_assert_uint_eq(completion.id, i);
		ck_assert_int_eq(ring_result_errno(completion.result), ECANCELED);
	}
	do_cancel(200); /* once more */
	ck_assert(!ring_client_ready(&t.ring));
	ck_assert_uint_eq(seen.n_blocks, 1);
	atomic_store(&told.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	for (unsigned i = 0; i < 256; i = i ? i + 1 : 129) {
		struct ring_completion completion = get();

		ck_assert_uint_eq(completion.id, i);
		if (i == 0 || i == 255)
			ck_assert_int_eq(completion.result, 4096);
		else
			ck_assert_int_eq(ring_result_errno(completion.result), ECANCELED);
	}
	ck_assert_uint_eq(seen.n_blocks, 2);
	teardown(true);
}
END_TEST

START_TEST(a_channel_goes_with_a_chain)
{
	put_chain();
	do_cancel(128);
	lane_remove_channel(t.channel->home, t.channel, false);
	release_blocks();
	while (!t.was_removed)
		run_main_inbox();
	ck_assert_uint_eq(seen.n_blocks, 1);
	teardown(false);
}
END_TEST

START_TEST(a_deadline_is_a_cancel)
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
END_TEST

/* ---- what may block ---- */

static void add_buffered(void)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", t.file.target.fd);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	atomic_store(&t.file.target.buffered_fd, fd);
}

static const int refusals[] = { -EAGAIN, -EOPNOTSUPP };

START_TEST(what_the_kernel_gives_back_a_helper_does)
{
	setup_engine((struct profile){ 65536, 8, false, true, 1 }, 0, true, true);
	t.file.facts.is_foreign = true; /* never without RWF_NOWAIT */
	told.refusal = refusals[_i];
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
END_TEST

/* Another file, as of another client, of the same inode. */
static void add_other(struct file *other, uint32_t *ret_id)
{
	other->target.fd = t.file.target.fd;
	other->target.offset_align = t.file.target.offset_align;
	other->target.memory_align = t.file.target.memory_align;
	other->facts = t.file.facts;
	other->store = t.store;
	other->n_refs = 1000000;
	atomic_init(&other->target.buffered_fd, -1);
	ck_assert_int_eq(file_attach(other, t.store, &t.inodes, 1), 0);
	ck_assert_int_eq(id_table_add(&t.objects.files, other, ret_id), 0);
}

START_TEST(a_call_that_hangs_holds_up_nobody_else)
{
	struct file other = { 0 };
	uint32_t other_id;

	setup_engine((struct profile){ 65536, 64, false, true, 1 }, 0, true, true);
	add_other(&other, &other_id);
	t.file.facts.is_foreign = true;
	told.refusal = -EAGAIN;
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
END_TEST

/* ---- a second client ---- */

static bool batch_is_done;
static void on_done(struct batch *batch)
{
	(void)batch;
	batch_is_done = true;
}

/* A second client, with a channel without rings and batches of one entry. */
static struct second {
	struct sched_client client;
	struct channel *channel;
	bool was_removed;
} second;

static void on_second_removed(struct channel *channel, void *arg)
{
	(void)channel;
	(void)arg;
	second.was_removed = true;
}

static void second_open(struct profile profile)
{
	struct channel_config config = { .store = &t.store->lane_store,
					 .objects = &t.objects,
					 .client = &second.client,
					 .quota = &t.quota,
					 .profile = profile,
					 .io_class = SCHED_NORMAL,
					 .weight = 1,
					 .entries = 16,
					 .owner = { on_second_removed, on_broken, NULL } };
	struct error error = { 0 };

	memset(&second, 0, sizeof(second));
	sched_client_init(&second.client);
	ck_assert_msg(channel_new(&config, &second.channel, &error) == 0, "%s", error.text);
	lane_add_channel(second.channel->home, second.channel);
}

static void second_close(void)
{
	lane_remove_channel(second.channel->home, second.channel, true);
	while (!second.was_removed)
		run_main_inbox();
	channel_free(second.channel);
}

static void second_submit_entry(struct ring_entry entry, struct batch **ret_batch)
{
	ck_assert_int_eq(batch_new(second.channel, 1, on_done, NULL, ret_batch), 0);
	(*ret_batch)->entries[0] = entry;
	batch_is_done = false;
	lane_submit(*ret_batch);
}

static void second_submit(uint64_t len, struct batch **ret_batch)
{
	second_submit_entry(
		(struct ring_entry){
			.opcode = RING_OP_READ, .file = t.file_id, .slab = t.slab_id, .len = len },
		ret_batch);
}

static void second_wait(struct batch *batch, int64_t want)
{
	while (!batch_is_done)
		run_main_inbox();
	ck_assert_int_eq(batch->results[0], want);
	batch_free(batch);
}

/* ---- files that grow ---- */

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

START_TEST(a_write_that_grows_its_file_waits_for_that_and_others_do_not)
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
END_TEST

START_TEST(parts_of_a_larger_write_need_one_step)
{
	setup_growing(0);
	/* Held until all are there: each could be done before the next comes. */
	atomic_store(&told.holds_blocks, true);
	for (unsigned i = 0; i < 4; i++)
		put_growing(i, FILE_BYTES + i * (1u << 20), 1u << 20, FILE_BYTES + (4u << 20));
	await_allocation(1);
	ck_assert_int_eq(allocations.len, 4 << 20);
	atomic_store(&told.holds_blocks, false);
	put(4, RING_OP_READ, 0, 1u << 20, 8u << 20); /* wakes the lane */
	submit();
	for (unsigned i = 0; i < 5; i++)
		ck_assert_int_eq(get().result, 1 << 20);
	ck_assert_uint_eq(atomic_load(&allocations.n), 1);
	ck_assert_int_eq(size_now(), FILE_BYTES + (4 << 20));
	teardown_growing();
}
END_TEST

START_TEST(an_extension_that_fails_ends_its_op_alone)
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
END_TEST

START_TEST(a_write_whose_extension_hangs_can_be_cancelled)
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
END_TEST

START_TEST(a_step_that_has_not_begun_holds_up_no_other_client)
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
END_TEST

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

START_TEST(ops_that_wait_for_a_step_go_on_when_the_op_it_is_for_has_gone)
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
		lane_remove_channel(t.channel->home, t.channel, false);
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
END_TEST

START_TEST(where_nothing_can_be_allocated_helpers_write)
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
END_TEST

START_TEST(a_short_write_grows_its_file_by_itself)
{
	setup_growing(0);
	put_growing(1, FILE_BYTES, 65536, FILE_BYTES + 65536);
	ck_assert_int_eq(get().result, 65536);
	ck_assert_uint_eq(atomic_load(&allocations.n), 0);
	ck_assert_uint_eq(seen.n_blocks, 0);
	ck_assert_int_eq(size_now(), FILE_BYTES + 65536);
	teardown_growing();
}
END_TEST

START_TEST(buffered_and_direct_writes_of_an_inode_take_turns)
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
END_TEST

/*
 * The user's own calls hang, so no worker begins with this write of one client.  It must not keep
 * another client's writes of the inode waiting.
 */
START_TEST(a_write_that_no_worker_has_begun_holds_no_mode_lock)
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
	told.refusal = -EAGAIN;
	put(5, RING_OP_WRITE, 2u << 20, 65536, 2u << 20);
	submit();
	while (!atomic_load(&seen.n_refused))
		(void)usleep(1000);
	second_submit_entry((struct ring_entry){ .opcode = 99 }, &batch);
	second_wait(batch, ring_result_failed(EOPNOTSUPP, 0)); /* a turn later */
	second_submit_entry((struct ring_entry){ .opcode = 99 }, &batch);
	second_wait(batch, ring_result_failed(EOPNOTSUPP, 0));
	ck_assert_uint_eq(t.file.inode->mode_lock.n_busy, 0);
	told.refusal = 0;
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
END_TEST

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
START_TEST(a_closing_channel_leaves_after_the_report_of_room)
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
	lane_remove_channel(second.channel->home, second.channel, false);
	second_wait(waits, ring_result_failed(ECANCELED, 0));
	ck_assert_ptr_null(atomic_load(&awaits_room));
	while (!second.was_removed)
		run_main_inbox();
	channel_free(second.channel);
	teardown(true);
}
END_TEST

START_TEST(an_op_that_waits_for_the_gate_can_be_cancelled)
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
	lane_remove_channel(t.channel->home, t.channel, false);
	atomic_store(&holds_calls, false);
	while (!t.was_removed)
		run_main_inbox();
	teardown(false);
	(void)close(t.file.target.buffered_fd);
}
END_TEST

START_TEST(ragged_reads_wait_for_a_bounce_page)
{
	setup_engine((struct profile){ 4096, 256, false, true, 1 }, 0, true, true);
	fill(t.memory, FILE_BYTES, 6);
	ck_assert_int_eq(do_op(RING_OP_WRITE, 0, FILE_BYTES, 0), FILE_BYTES);
	for (int round = 0; round < 3; round++) {
		atomic_store(&told.holds_blocks, round == 0);
		memset(t.memory + FILE_BYTES, 0, FILE_BYTES);
		for (unsigned i = 0; i < 250; i++)
			put(i, RING_OP_READ, i * 10001, 5001, FILE_BYTES + i * 8192 + i);
		submit();
		if (round == 0) {
			do_cancel(249); /* waits; the lane has taken all by now */
			ck_assert_uint_le(seen.n_bounced, 128);
			atomic_store(&told.holds_blocks, false);
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
END_TEST

START_TEST(what_waits_for_a_bounce_page_can_be_cancelled)
{
	unsigned n_cancelled = 0;

	setup_engine((struct profile){ 4096, 256, false, true, 1 }, 0, true, true);
	atomic_store(&told.holds_blocks, true);
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
	atomic_store(&told.holds_blocks, false);
	do_cancel(1000);
	for (unsigned i = 0; i < 129; i++) {
		struct ring_completion completion = get();

		ck_assert_int_eq(completion.result, completion.id == 200 ? 4096 : 5001);
	}
	ck_assert_uint_eq(seen.n_bounced, 128);
	teardown(true);
}
END_TEST

START_TEST(any_range_goes_there_and_back_with_any_profile)
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
END_TEST

START_TEST(a_batch_without_rings_gets_its_results_in_order)
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
END_TEST

/* ---- several clients ---- */

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

START_TEST(a_guard_that_holds_back_ends_although_nothing_happens)
{
	struct batch *batch;
	uint32_t n;
	uint64_t start;

	setup_engine(profiles[1].profile, 0, true, true);
	second_open(profiles[1].profile);
	share();
	n = atomic_load(&seen.n_blocks);
	atomic_store(&told.holds_blocks, true);
	put(1, RING_OP_READ, 0, 4096, 0);
	submit();
	wait_for_blocks(n + 1);
	start = clock_nsec();
	while (clock_nsec() - start < 3 * WINDOW_LATE_NSEC / 2) /* it is late */
		(void)usleep(100);
	second_submit(1u << 20, &batch);
	wait_for_blocks(n + 2); /* or the test's time is over */
	atomic_store(&told.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	ck_assert_int_eq(get().result, 4096);
	second_wait(batch, 1 << 20);
	second_close();
	teardown(true);
}
END_TEST

/* Another client filled the device anew each time, and the next op waited as long. */
START_TEST(a_client_whose_op_waits_at_the_device_for_long_still_shares_the_store)
{
	struct batch *batch;
	uint64_t start;

	setup_engine(profiles[1].profile, 0, true, true);
	second_open(profiles[1].profile);
	atomic_store(&told.holds_blocks, true);
	second_submit(4096, &batch);
	wait_for_blocks(1);
	start = clock_nsec();
	while (clock_nsec() - start <
	       UINT64_C(150000000)) /* longer than it would count as active */
		(void)usleep(1000);
	put(1, RING_OP_READ, 0, FILE_BYTES, 0);
	submit();
	wait_for_blocks(2);
	atomic_store(&told.holds_blocks, false);
	do_cancel(1000); /* nobody's: the lane looks again */
	second_wait(batch, 4096);
	ck_assert_int_eq(get().result, FILE_BYTES);
	ck_assert_uint_gt(seen.max_shared_bytes, 0);
	second_close();
	teardown(true);
}
END_TEST

static const struct {
	uint64_t other_len;
	uint32_t max_bytes; /* of the blocks of an op of 1 MiB */
} cuts[] = {
	{ 4096, 512u << 10 },	/* beside small ops */
	{ 1u << 20, 1u << 20 }, /* beside large ones: as the profile says */
};

START_TEST(blocks_are_cut_only_where_somebody_has_smaller_ops)
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
END_TEST

static const struct {
	bool is_multi_user;
	uint32_t max_bytes, max_shared_bytes; /* of blocks; of those that may not wait */
} alones[] = {
	{ false, 1u << 20, 0 },
	{ true, 256u << 10, 256u << 10 },
};

START_TEST(only_a_users_own_daemon_lets_a_client_that_is_alone_wait_in_io_submit)
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
END_TEST

START_TEST(where_io_submit_waits_helpers_are_the_engine_as_deep_as_the_profile)
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
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, where_io_submit_waits_helpers_are_the_engine_as_deep_as_the_profile);
	tcase_add_loop_test(tcase, bytes_go_there_and_back_with_any_profile, 0, N_ROWS(profiles));
	tcase_add_loop_test(tcase, the_knobs_mean_what_they_say, 0, N_ROWS(knobs));
	tcase_add_test(tcase, a_read_ends_at_the_end_of_the_file);
	tcase_add_test(tcase, many_reads_across_the_end_at_once);
	tcase_add_loop_test(tcase, conflicting_ops_run_in_order_of_submission, 0, N_ROWS(profiles));
	tcase_add_loop_test(tcase, a_full_ring_goes_round_many_times, 0, 4);
	tcase_add_test(tcase, refused_entries_end_with_an_errno_and_hurt_no_other);
	tcase_add_test(tcase, indices_that_jump_are_told_once);
	tcase_add_test(tcase, a_closing_channel_drops_what_has_not_started);
	tcase_add_test(tcase, a_draining_channel_that_has_to_hurry_drops_what_has_not_started);
	tcase_add_test(tcase, a_cancelled_op_ends_once);
	tcase_add_test(tcase, a_write_waits_for_the_first_though_the_second_was_cancelled);
	tcase_add_test(tcase, a_whole_chain_can_be_cancelled);
	tcase_add_test(tcase, a_channel_goes_with_a_chain);
	tcase_add_test(tcase, a_deadline_is_a_cancel);
	tcase_add_loop_test(tcase, what_the_kernel_gives_back_a_helper_does, 0, N_ROWS(refusals));
	tcase_add_test(tcase, a_call_that_hangs_holds_up_nobody_else);
	tcase_add_test(tcase, a_write_that_grows_its_file_waits_for_that_and_others_do_not);
	tcase_add_test(tcase, parts_of_a_larger_write_need_one_step);
	tcase_add_test(tcase, an_extension_that_fails_ends_its_op_alone);
	tcase_add_test(tcase, a_write_whose_extension_hangs_can_be_cancelled);
	tcase_add_test(tcase, a_step_that_has_not_begun_holds_up_no_other_client);
	tcase_add_loop_test(tcase, ops_that_wait_for_a_step_go_on_when_the_op_it_is_for_has_gone, 0,
			    N_ROWS(owners));
	tcase_add_test(tcase, where_nothing_can_be_allocated_helpers_write);
	tcase_add_test(tcase, a_short_write_grows_its_file_by_itself);
	tcase_add_test(tcase, buffered_and_direct_writes_of_an_inode_take_turns);
	tcase_add_test(tcase, a_write_that_no_worker_has_begun_holds_no_mode_lock);
	tcase_add_test(tcase, a_closing_channel_leaves_after_the_report_of_room);
	tcase_add_test(tcase, an_op_that_waits_for_the_gate_can_be_cancelled);
	tcase_add_test(tcase, ragged_reads_wait_for_a_bounce_page);
	tcase_add_test(tcase, what_waits_for_a_bounce_page_can_be_cancelled);
	tcase_add_loop_test(tcase, any_range_goes_there_and_back_with_any_profile, 0,
			    N_ROWS(profiles));
	tcase_add_loop_test(tcase, a_batch_without_rings_gets_its_results_in_order, 0, 3);
	tcase_add_test(tcase, a_guard_that_holds_back_ends_although_nothing_happens);
	tcase_add_test(tcase,
		       a_client_whose_op_waits_at_the_device_for_long_still_shares_the_store);
	tcase_add_loop_test(tcase, blocks_are_cut_only_where_somebody_has_smaller_ops, 0,
			    N_ROWS(cuts));
	tcase_add_loop_test(tcase,
			    only_a_users_own_daemon_lets_a_client_that_is_alone_wait_in_io_submit,
			    0, N_ROWS(alones));
}

SUITE("lane", add_tests)
