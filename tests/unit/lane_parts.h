/*
 * A lane with a real file: this thread is the client, by the ring's client side on the same mapping, and
 * the daemon's main thread.  Under the thread sanitizer its tests are the test of the rings as the lane uses
 * them.
 *
 * The lane's engine is libaio or, in setup_engine(), libaio watched and controlled.  Blocking system calls of
 * worker threads are watched, too, and can be made to hang.
 */
#ifndef DSAIO_TESTS_UNIT_LANE_PARTS_H
#define DSAIO_TESTS_UNIT_LANE_PARTS_H

#include "daemon/lane/lane.h"
#include "daemon/store/store.h"
#include "tests/unit/suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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
	char *memory;
} t;

static inline void on_removed(struct channel *channel, void *arg)
{
	(void)channel;
	(void)arg;
	t.was_removed = true;
}

static inline void on_broken(struct channel *channel, const char *why, void *arg)
{
	(void)channel;
	(void)arg;
	ck_abort_msg("%s", why);
}

static inline void run_main_inbox(void)
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
	_Atomic bool holds_lane; /* in the engine's submit, */
	bool is_call;		 /* as in a call that may hang */
	_Atomic bool is_held;
	_Atomic int event_fd; /* the engine's, since its first block */
} wanted;

/* Blocking calls of worker threads, by whatever module: they wait while this is set. */
static _Atomic bool holds_calls;
static _Atomic uint32_t n_held, n_calls;

static inline void call_wait(void)
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

static inline const struct engine_ops *libaio_ops(void)
{
	return engine_ops_get(ENGINE_LIBAIO);
}

static inline bool is_bounced(const struct block *block)
{
	return block->region != &t.slab.region;
}

static inline void hold_lane(const struct engine *engine)
{
	if (wanted.is_call)
		hung_enter(engine->call, &(struct hung_who){ .uid = 1 }, 1);
	atomic_store(&wanted.is_held, true);
	while (atomic_load(&wanted.holds_lane))
		(void)usleep(1000);
	if (wanted.is_call)
		hung_leave(engine->call);
}

static inline int watched_submit(struct engine *engine, struct block **blocks, int n)
{
	uint32_t before = engine->n_in_flight;
	int r;

	if (atomic_load(&wanted.holds_lane))
		hold_lane(engine);

	atomic_store(&wanted.event_fd, engine->event_fd);
	if (wanted.refusal && blocks[0]->is_nowait) {
		blocks[0]->result = wanted.refusal;
		blocks[0]->next = wanted.refused;
		wanted.refused = blocks[0];
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

static inline int watched_reap(struct engine *engine, struct block **blocks, int n)
{
	int r;

	if (wanted.refused) {
		blocks[0] = wanted.refused;
		wanted.refused = blocks[0]->next;
		engine->n_in_flight--;
		return 1;
	}
	if (atomic_load(&wanted.holds_blocks))
		return 0;
	r = libaio_ops()->reap(engine, blocks, n);
	for (int i = 0; i < r; i++)
		(void)atomic_fetch_sub(&seen.n_direct_writes, block_is_write(blocks[i]));
	return r;
}

static inline bool watched_is_ready(const struct engine *engine)
{
	if (wanted.refused)
		return true;
	return !atomic_load(&wanted.holds_blocks) && libaio_ops()->is_ready(engine);
}

static struct engine_ops watched;

static inline int watched_open(const struct engine_config *config, struct engine **ret_engine,
			       struct error *error)
{
	int r = libaio_ops()->open(config, ret_engine, error);

	if (r == 0)
		(*ret_engine)->ops = &watched;
	return r;
}

/* Like store_start_lane(), with another engine. */
static inline void start_watched_lane(void)
{
	struct lane_config config = {
		.store = &t.store->lane_store, .engine = &watched, .depth = 128, .room = 128
	};
	struct error error;

	watched = *libaio_ops();
	watched.open = watched_open;
	watched.submit = watched_submit;
	watched.reap = watched_reap;
	watched.is_ready = watched_is_ready;
	memset(&seen, 0, sizeof(seen));
	memset(&wanted, 0, sizeof(wanted));
	ck_assert_int_eq(lane_start(&config, &t.store->lane, &error), 0);
}

static inline void setup_engine(struct profile profile, uint32_t spin_usec, bool has_rings,
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
	ck_assert_int_eq(mailbox_init(&t.main_mailbox), 0);
	store_config.path = dir;
	ck_assert_msg(store_new(1, &store_config, &t.main_mailbox, &t.store, &error) == 0, "%s",
		      error.text);
	if (is_watched)
		start_watched_lane();
	ck_assert_msg(store_start_lane(t.store, &profile, INT64_MAX, &error) == 0, "%s",
		      error.text);
	sched_client_init(&t.client);
	t.inodes.root = NULL;
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
	ck_assert_int_eq(id_table_add(&t.objects.files, &t.file, 0, &t.file_id), 0);

	t.memory = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	ck_assert_ptr_ne(t.memory, MAP_FAILED);
	t.slab = (struct slab){ .region = { .base = t.memory },
				.size_bytes = SLAB_BYTES,
				.n_refs = 1000000 };
	ck_assert_int_eq(id_table_add(&t.objects.slabs, &t.slab, 0, &t.slab_id), 0);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, t.bell), 0);
	config.store = &t.store->lane_store;
	config.client_doorbell_fd = t.bell[0];
	config.owner = (struct channel_owner){ on_removed, on_broken, NULL };
	ck_assert_msg(channel_new(&config, &t.channel, &error) == 0, "%s", error.text);
	if (has_rings)
		ck_assert_int_eq(ring_client_init(&t.ring, t.channel->ring.shared,
						  t.channel->lane
							  ? mmap(NULL, 4096, PROT_READ, MAP_SHARED,
								 lane_board_fd(t.channel->lane), 0)
							  : NULL,
						  t.channel->entries),
				 0);
	lane_add_channel(t.channel->lane, t.channel);
}

static inline void setup(struct profile profile, uint32_t spin_usec, bool has_rings)
{
	setup_engine(profile, spin_usec, has_rings, false);
}

static inline void teardown(bool drain)
{
	if (!t.was_removed)
		lane_remove_channel(t.channel->lane, t.channel, drain);
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

static inline void submit(void)
{
	uint64_t one = 1;

	if (ring_client_submit(&t.ring))
		ck_assert_int_eq(write(t.channel->doorbell_fd, &one, sizeof(one)), sizeof(one));
}

static inline void put(uint64_t id, uint8_t opcode, uint64_t off, uint64_t len, uint64_t slab_off)
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

static inline struct ring_completion get(void)
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

static inline int64_t do_op(uint8_t opcode, uint64_t off, uint64_t len, uint64_t slab_off)
{
	struct ring_completion completion;

	put(42, opcode, off, len, slab_off);
	submit();
	completion = get();
	ck_assert_uint_eq(completion.id, 42);
	return completion.result;
}

static inline void fill(char *memory, size_t n, unsigned seed)
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

static bool cancel_is_done;
static inline void on_cancelled(struct lane_cancel *cancel)
{
	(void)cancel;
	cancel_is_done = true;
}

static inline void do_cancel(uint64_t id)
{
	struct lane_cancel cancel = { .channel = t.channel, .id = id, .on_done = on_cancelled };

	cancel_is_done = false;
	lane_cancel(&cancel);
	while (!cancel_is_done)
		run_main_inbox();
}

static inline void wait_for_blocks(uint32_t n)
{
	while (atomic_load(&seen.n_blocks) < n)
		(void)usleep(1000);
}

static inline void add_buffered(void)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", t.file.target.fd);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	atomic_store(&t.file.target.buffered_fd, fd);
}

/* Another file, as of another client, of the same inode. */
static inline void add_other(struct file *other, uint32_t *ret_id)
{
	other->target.fd = t.file.target.fd;
	other->target.offset_align = t.file.target.offset_align;
	other->target.memory_align = t.file.target.memory_align;
	other->facts = t.file.facts;
	other->store = t.store;
	other->n_refs = 1000000;
	atomic_init(&other->target.buffered_fd, -1);
	ck_assert_int_eq(file_attach(other, t.store, &t.inodes, 1), 0);
	ck_assert_int_eq(id_table_add(&t.objects.files, other, 0, ret_id), 0);
}

static bool batch_is_done;
static inline void on_done(struct batch *batch)
{
	(void)batch;
	batch_is_done = true;
}

#endif
