/*
 * Parking, in a real lane: this thread is the clients, by the ring's client side on the same
 * mapping, and the daemon's main thread.
 *
 * All ops are reads of no bytes, which end without an engine, so that a lane takes, ends, parks and
 * hears doorbells many times in the time of one block.  A wake-up that is lost shows as an op that does
 * not end.  tests/model/mutants.sh builds this with a lane that lacks the fence.
 */
#include "daemon/lane/lane.h"

#include "daemon/store/store.h"
#include "proto/util/clock.h"
#include "proto/util/cpu.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTRIES 64u
#define IDLE_BELLS_MAX 20u
#define LOST_NSEC UINT64_C(50000000000) /* an op that takes so long has not been rung for */

static struct {
	struct mailbox main_mailbox;
	struct store *store;
	struct quota quota;
	struct objects objects;
	struct inodes inodes;
	struct file file;
	struct slab slab;
	uint32_t file_id, slab_id;
	char *memory;
	const void *board;
} t;

static struct side {
	struct sched_client client;
	struct channel *channel;
	struct ring_client ring;
	bool was_removed;
} a, b;

static void on_removed(struct channel *channel, void *arg)
{
	(void)channel;
	((struct side *)arg)->was_removed = true;
}

static void on_broken(struct channel *channel, const char *why, void *arg)
{
	(void)channel;
	(void)arg;
	ck_abort_msg("%s", why);
}

static void run_main_inbox(void)
{
	struct pollfd fd = { .fd = t.main_mailbox.event_fd, .events = POLLIN };

	ck_assert_int_eq(poll(&fd, 1, 50000), 1);
	(void)mailbox_run(&t.main_mailbox);
}

static void side_open(struct side *side)
{
	struct channel_config config = { .store = &t.store->lane_store,
					 .objects = &t.objects,
					 .client = &side->client,
					 .quota = &t.quota,
					 .profile = PROFILE_DEFAULT,
					 .io_class = SCHED_NORMAL,
					 .weight = 1,
					 .entries = ENTRIES,
					 .has_rings = true,
					 .client_doorbell_fd = -1,
					 .owner = { on_removed, on_broken, side } };
	struct error error;

	sched_client_init(&side->client);
	ck_assert_int_eq(channel_new(&config, &side->channel, &error), 0);
	ck_assert_int_eq(
		ring_client_init(&side->ring, side->channel->ring.shared, t.board, ENTRIES), 0);
	lane_add_channel(side->channel->lane, side->channel);
}

static void side_close(struct side *side)
{
	lane_remove_channel(side->channel->lane, side->channel, true);
	while (!side->was_removed)
		run_main_inbox();
	channel_free(side->channel);
}

static void setup(uint64_t park_nsec, uint32_t spin_usec)
{
	const char *dir = getenv("TMPDIR");
	struct store_config store_config = { .name = "test",
					     .profile = PROFILE_DEFAULT,
					     .spin_usec = spin_usec,
					     .window_max = 4u << 20 };
	struct lane_config config = { .engine = engine_ops_get(ENGINE_LIBAIO),
				      .depth = 32,
				      .room = 4,
				      .park_nsec = park_nsec,
				      .idle_doorbells_max = IDLE_BELLS_MAX };
	struct error error = { 0 };
	char path[512];

	store_config.path = dir ? dir : "/var/tmp";
	for (int i = 0; i < N_QUOTA_KINDS; i++)
		t.quota.limit[i] = UINT64_MAX;
	ck_assert_int_eq(mailbox_init(&t.main_mailbox), 0);
	ck_assert_msg(store_new(1, &store_config, &t.main_mailbox, &t.store, &error) == 0, "%s",
		      error.text);
	config.store = &t.store->lane_store;
	ck_assert_msg(lane_start(&config, &t.store->lane, &error) == 0, "%s", error.text);
	t.board = mmap(NULL, 4096, PROT_READ, MAP_SHARED, lane_board_fd(t.store->lane), 0);
	ck_assert_ptr_ne(t.board, MAP_FAILED);
	t.inodes.root = NULL;
	memset(&t.objects.files, 0, sizeof(t.objects.files));
	memset(&t.objects.slabs, 0, sizeof(t.objects.slabs));

	(void)snprintf(path, sizeof(path), "%s/dsaio-park.XXXXXX", store_config.path);
	t.file.target.fd = mkostemp(path, O_DIRECT);
	ck_assert_msg(t.file.target.fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(unlink(path), 0);
	atomic_init(&t.file.target.buffered_fd, -1);
	ck_assert_int_eq(file_check(t.file.target.fd, path, &t.file.facts, &error), 0);
	t.file.target.offset_align = t.file.facts.offset_align;
	t.file.target.memory_align = t.file.facts.memory_align;
	t.file.n_refs = 1u << 31; /* ours: the last drop is not tested here */
	ck_assert_int_eq(file_attach(&t.file, t.store, &t.inodes, 1), 0);
	ck_assert_int_eq(id_table_add(&t.objects.files, &t.file, 0, &t.file_id), 0);
	t.memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(t.memory, MAP_FAILED);
	t.slab = (struct slab){ .region = { .base = t.memory },
				.size_bytes = 4096,
				.n_refs = 1u << 31 };
	ck_assert_int_eq(id_table_add(&t.objects.slabs, &t.slab, 0, &t.slab_id), 0);
	side_open(&a);
	side_open(&b);
}

static void teardown(void)
{
	side_close(&a);
	side_close(&b);
	ck_assert(quota_is_zero(&t.quota));
	store_free(t.store);
	mailbox_deinit(&t.main_mailbox);
	(void)close(t.file.target.fd);
	(void)munmap(t.memory, 4096);
}

static void put(struct side *side, uint64_t id, uint64_t len)
{
	struct ring_entry entry = {
		.id = id, .opcode = RING_OP_READ, .file = t.file_id, .len = len, .slab = t.slab_id
	};

	ring_client_put(&side->ring, &entry);
}

/* As a client does; true if the doorbell had to be rung. */
static bool submit(struct side *side)
{
	bool must_ring = ring_client_submit(&side->ring);

	if (must_ring)
		ck_assert_int_eq(eventfd_write(side->channel->doorbell_fd, 1), 0);
	return must_ring;
}

static bool is_parked(const struct side *side)
{
	/* acquire: what is then seen of lane_state is no older */
	return atomic_load_explicit(&side->ring.shared->sq_park, memory_order_acquire) & 1;
}

/* Waits for what the lane does, awake; false: it has not. */
static bool wait_parked(const struct side *side, bool parked)
{
	uint64_t end = clock_nsec() + LOST_NSEC;

	while (is_parked(side) != parked) {
		(void)sched_yield(); /* cannot fail */
		if (clock_nsec() > end)
			return false;
	}
	return true;
}

/*
 * Waits until the lane has gone to sleep with the side parked.  An op submitted between parking
 * and the lane's second look un-parks it without a doorbell; a lane that sleeps has looked.
 */
static bool wait_asleep(const struct side *side)
{
	const struct lane_board *board = t.board;
	uint64_t end = clock_nsec() + LOST_NSEC;

	while (!is_parked(side) ||
	       !(atomic_load_explicit(&board->lane_state, memory_order_acquire) & 1)) {
		(void)sched_yield(); /* cannot fail */
		if (clock_nsec() > end)
			return false;
	}
	return true;
}

/* Consumes n completions; awake, and not forever. */
static bool get(struct side *side, uint32_t n)
{
	uint64_t end = clock_nsec() + LOST_NSEC;

	for (unsigned i = 1; ring_client_ready(&side->ring) < n; i++) {
		cpu_relax();
		if (i % 4096)
			continue;
		(void)sched_yield(); /* cannot fail */
		if (clock_nsec() > end)
			return false;
	}
	ring_client_consume(&side->ring, n);
	return true;
}

TEST(a_quiet_channel_is_parked_until_its_bell_rings)
{
	setup(0, 0);
	for (unsigned i = 0; i < 100; i++) {
		ck_assert(wait_parked(&b, true));
		ck_assert(wait_asleep(&a));
		put(&a, i, 0);
		ck_assert(submit(&a));
		ck_assert(get(&a, 1));
	}
	/* Nobody woke the other. */
	ck_assert_uint_eq(atomic_load(&b.ring.shared->sq_park), 1);
	teardown();
}

TEST(a_channel_in_use_is_not_parked)
{
	setup(UINT64_MAX / 2, 0);
	for (unsigned i = 0; i < 100; i++) {
		put(&a, i, 0);
		(void)submit(&a); /* the lane may sleep */
		ck_assert(get(&a, 1));
	}
	ck_assert_uint_eq(atomic_load(&a.ring.shared->sq_park), 0);
	teardown();
}

/* Keeps the lane from sleeping, and from spinning without work. */
static void *busy_main(void *arg)
{
	_Atomic bool *must_stop = arg;

	while (!atomic_load(must_stop)) {
		for (unsigned i = 0; i < ENTRIES / 2; i++)
			put(&b, i, 0);
		(void)submit(&b); /* parked now and then */
		if (!get(&b, ENTRIES / 2))
			break;
	}
	return NULL;
}

TEST(a_lane_that_never_sleeps_hears_bells)
{
	static _Atomic bool must_stop;
	pthread_t thread;
	bool is_lost = false;
	unsigned n_rung = 0;

	setup(0, 1000000); /* spins for a second */
	ck_assert_int_eq(pthread_create(&thread, NULL, busy_main, &must_stop), 0);
	for (unsigned i = 0; i < 1000 && !is_lost; i++) {
		is_lost = !wait_parked(&a, true);
		put(&a, i, 0);
		/* Not, if this was before the second look of the lane that parks it. */
		n_rung += submit(&a);
		is_lost = is_lost || !get(&a, 1);
	}
	atomic_store(&must_stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(!is_lost);
	ck_assert_uint_gt(n_rung, 0);
	teardown();
}

#define RACE_ROUNDS 200000u
#define RACE_NSEC UINT64_C(3000000000)
/* Long enough that the lane has looked at sq_tail since the client's last store to that line. */
#define RACE_PARK_NSEC 500u

TEST(no_wake_up_is_lost_between_parking_and_submitting)
{
	uint64_t end;

	setup(RACE_PARK_NSEC, 1000000);
	end = clock_nsec() + RACE_NSEC;
	for (uint32_t i = 0; i < RACE_ROUNDS && clock_nsec() < end; i++) {
		put(&a, i, 0);
		(void)submit(&a);
		ck_assert_msg(get(&a, 1), "in round %u a wake-up is lost", i);
		/* The lane parks a moment after it has published; now before that, now after. */
		for (volatile uint32_t k = i * 7 % 401; k; k--)
			;
	}
	teardown();
}

static bool is_cancel_done;

static void on_cancel_done(struct lane_cancel *cancel)
{
	(void)cancel;
	is_cancel_done = true;
}

TEST(a_cancel_looks_at_a_parked_channel)
{
	struct lane_cancel cancel = { .id = UINT64_MAX, .on_done = on_cancel_done };

	setup(0, 0);
	ck_assert(wait_asleep(&a));
	cancel.channel = a.channel;
	put(&a, 5, 0);
	ck_assert(ring_client_submit(&a.ring)); /* and does not ring */
	lane_cancel(&cancel);
	while (!is_cancel_done)
		run_main_inbox();
	ck_assert(get(&a, 1));
	teardown();
}

static bool is_quiet;

static void on_quiet(struct lane_quiesce *quiesce)
{
	(void)quiesce;
	is_quiet = true;
}

/* A turn of the lane. */
static void quiesce(void)
{
	struct lane_quiesce message = { .on_quiet = on_quiet };

	is_quiet = false;
	lane_quiesce(t.store->lane, &message);
	while (!is_quiet)
		run_main_inbox();
}

/* Rings the parked channel's doorbell, and waits until the lane has heard it: no bell is on its way
   before or after, so that what the lane writes for one may be read here. */
static void ring_idly(void)
{
	uint64_t park, end;

	ck_assert(wait_parked(&a, true));
	quiesce(); /* orders what was read here before what the lane writes now */
	park = atomic_load(&a.ring.shared->sq_park);
	ck_assert_int_eq(eventfd_write(a.channel->doorbell_fd, 1), 0);
	end = clock_nsec() + LOST_NSEC;
	while (atomic_load(&a.ring.shared->sq_park) == park) {
		(void)sched_yield(); /* cannot fail */
		ck_assert_msg(clock_nsec() < end, "a bell is not heard");
	}
}

TEST(a_doorbell_that_rings_idly_too_often_leaves_epoll_and_its_channel_is_never_parked)
{
	uint64_t end = clock_nsec() + LOST_NSEC;
	unsigned n_bells = 0;

	setup(0, 1000000);
	/* Each ring un-parks it, and the next turn parks it again.  Few are too many here, but they
	   have to come within a second. */
	while (!a.channel->has_left_epoll && clock_nsec() < end) {
		ring_idly();
		n_bells++;
	}
	ck_assert(a.channel->has_left_epoll);
	ck_assert_uint_gt(n_bells, IDLE_BELLS_MAX);
	for (unsigned i = 0; i < 3; i++)
		quiesce(); /* turns, each of which would park it */
	ck_assert(!is_parked(&a));
	teardown();
}

TEST(a_doorbell_that_rings_for_entries_stays_in_epoll)
{
	setup(0, 1000000);
	for (unsigned i = 0; i < 10 * IDLE_BELLS_MAX; i++) {
		ck_assert(wait_parked(&a, true));
		put(&a, i, 0);
		(void)submit(&a);
		ck_assert(get(&a, 1));
	}
	quiesce();
	ck_assert(!a.channel->has_left_epoll);
	teardown();
}

TEST_MAIN
