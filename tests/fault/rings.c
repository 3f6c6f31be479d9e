/*
 * Hostile rings: indices that jump (C9), entries that change while the lane reads them (C10), a
 * client that never reads its completions (C20).  Positions that make no sense end the session,
 * with one line in the log; all else is an op's own error, or only its owner waits.
 */
#include "tests/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES 64

struct kit {
	struct raw raw;
	struct raw_slab slab;
	struct raw_file file;
	struct raw_channel channel;
	const char *path;
	int client_bell_fd;
};

static void kit_open(struct kit *kit, const struct daemon *daemon)
{
	uint32_t handle;

	*kit = (struct kit){ .raw = RAW_NONE, .client_bell_fd = -1 };
	raw_open(&kit->raw, daemon);
	kit->path = daemon_path(daemon, "f");
	file_make_pattern(kit->path, 65536, 1);
	raw_slab(&kit->raw, 65536, &kit->slab);
	raw_file(&kit->raw, kit->path, O_RDWR, &kit->file);
	handle = raw_handle_with_bell(&kit->raw, &kit->client_bell_fd);
	raw_channel(&kit->raw, handle, kit->file.store, ENTRIES, true, &kit->channel);
}

static void kit_close(struct kit *kit)
{
	raw_slab_unmap(&kit->slab);
	raw_channel_unmap(&kit->channel);
	raw_close(&kit->raw);
	closep(&kit->client_bell_fd);
}

static struct ring_entry kit_read(const struct kit *kit)
{
	return (struct ring_entry){
		.opcode = RING_OP_READ, .file = kit->file.id, .slab = kit->slab.id, .len = 4096
	};
}

static void bell_ring(struct kit *kit)
{
	uint64_t one = 1;

	CHECK_EQ(write(kit->channel.bell_fd, &one, sizeof(one)), sizeof(one));
}

/* ---- C9 ---- */

static const struct {
	const char *what;
	uint32_t tail, head; /* added to what would be right */
} jumps[] = {
	{ "sq_tail one entry too far", ENTRIES + 1, 0 },
	{ "sq_tail twice around", 2 * ENTRIES, 0 },
	{ "sq_tail half the numbers away", 1u << 31, 0 },
	{ "sq_tail backwards", (uint32_t)-1, 0 },
	{ "sq_tail far backwards", (uint32_t)-ENTRIES, 0 },
	{ "cq_head ahead of what was published", 1, 1 },
	{ "cq_head far ahead", 1, 1u << 31 },
	{ "cq_head backwards", 1, (uint32_t)-2 }, /* 4 is what the lane saw last */
	{ "cq_head far backwards", 1, (uint32_t)-3 * ENTRIES },
	{ "both ahead", ENTRIES, ENTRIES },
	{ "both by the largest number", UINT32_MAX, UINT32_MAX },
};

TEST_TABLE(c9_jump, jumps, "C9 ring indices that jump")
{
	struct daemon *daemon = daemon_start(NULL);
	struct kit kit;

	beside_start(daemon);
	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 5; i++) /* so that there is something behind */
		CHECK_EQ(raw_run_one(&kit.channel, kit_read(&kit)), 4096);
	for (unsigned i = 0; i < ENTRIES; i++) { /* entries that would be good */
		struct ring_entry entry = kit_read(&kit);

		kit.channel.ring.sq[i] = entry;
	}
	atomic_store(&kit.channel.ring.shared->cq_head, 5 + jumps[row].head);
	atomic_store(&kit.channel.ring.shared->sq_tail, 5 + jumps[row].tail);
	bell_ring(&kit);
	raw_wait_closed(&kit.raw);
	daemon_log_wait(daemon, "ring");
	kit_close(&kit);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
	beside_ok();
}

FAULT(c9_no_jump, "C9 positions that wrap at 2^32 by honest work are no jump")
{
	struct kit kit;

	/* Positions start at 0: 4096 rounds of a ring of 64 cross many wraps of the slots; that of
	   2^32 itself is in the ring's unit test. */
	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 4096; i++) {
		struct ring_entry entries[ENTRIES];
		int64_t results[ENTRIES];
		unsigned n = 1 + i % ENTRIES;

		for (unsigned k = 0; k < n; k++)
			entries[k] = kit_read(&kit);
		raw_run(&kit.channel, entries, n, results);
		for (unsigned k = 0; k < n; k++)
			CHECK_EQ(results[k], 4096);
		if (i == 512)
			beside_ok();
	}
	kit_close(&kit);
}

FAULT(c9_false_wait, "C9 a false cq_wait: at most the owner waits")
{
	struct ring_completion completion;
	struct kit kit;

	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 2000; i++) {
		struct ring_entry entry = kit_read(&kit);
		uint64_t random = i;

		raw_put(&kit.channel, &entry);
		atomic_store(&kit.channel.ring.shared->cq_wait, test_random(&random));
		raw_ring(&kit.channel);
		while (!ring_client_ready(&kit.channel.ring))
			(void)sched_yield();
		CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
		CHECK_EQ(completion.result, 4096);
	}
	kit_close(&kit);
}

FAULT(c9_bell, "C9 a bell that rings without end and a bell that is drained hurt nobody else")
{
	struct ring_entry entry;
	uint64_t count;
	struct kit kit;

	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 200000; i++)
		bell_ring(&kit);
	beside_ok();
	CHECK_EQ(read(kit.channel.bell_fd, &count, sizeof(count)), sizeof(count));
	/* The counter at its end: a further write blocks its writer, nobody else. */
	CHECK_SYS(fcntl(kit.channel.bell_fd, F_SETFL, O_NONBLOCK));
	count = UINT64_MAX - 1;
	CHECK_EQ(write(kit.channel.bell_fd, &count, sizeof(count)), sizeof(count));
	beside_ok();
	CHECK_EQ(read(kit.channel.bell_fd, &count, sizeof(count)), sizeof(count));
	/* Whether this channel is still looked at is its owner's risk; the session can end. */
	entry = kit_read(&kit);
	raw_put(&kit.channel, &entry);
	raw_ring(&kit.channel);
	kit_close(&kit);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

/* ---- C10 ---- */

#define SCRIBBLE_USEC 3000000

struct scribbler {
	pthread_t thread;
	struct kit *kit;
	_Atomic bool must_stop;
};

/* Rewrites random words of all entries, from good ops to nonsense, as fast as it can. */
static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	struct kit *kit = s->kit;
	uint64_t random = test_seed();
	_Atomic uint64_t *words = (_Atomic uint64_t *)kit->channel.ring.sq;
	struct ring_entry good = kit_read(kit);
	uint64_t good_words[8];

	while (!atomic_load_explicit(&s->must_stop, memory_order_relaxed)) {
		uint64_t r = test_random(&random);
		unsigned slot = (unsigned)(r % ENTRIES), word = (unsigned)(r >> 16) % 8;

		good.opcode = r >> 20 & 1 ? RING_OP_READ : RING_OP_WRITE;
		good.off = (r >> 24) % 16 * 4096;
		good.slab_off = (r >> 28) % 16 * 4096;
		good.len = ((r >> 32) % 4 + 1) * 4096;
		memcpy(good_words, &good, sizeof(good_words));
		if ((r >> 40) % 4) { /* most are whole and good, so that much gets through */
			for (unsigned i = 0; i < 8; i++)
				atomic_store_explicit(&words[slot * 8 + i], good_words[i],
						      memory_order_relaxed);
		} else {
			atomic_store_explicit(&words[slot * 8 + word], test_random(&random),
					      memory_order_relaxed);
		}
	}
	return NULL;
}

FAULT(c10_scribble, "C10 entries rewritten while the lane reads them: each still ends once")
{
	struct ring_completion completions[ENTRIES];
	struct scribbler scribbler = { 0 };
	uint64_t n_ok = 0, n_bad = 0;
	int64_t end = now_usec() + SCRIBBLE_USEC;
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, daemon);
	scribbler.kit = &kit;
	CHECK_EQ(pthread_create(&scribbler.thread, NULL, scribble, &scribbler), 0);
	for (uint64_t random = 5; now_usec() < end;) {
		unsigned n = (unsigned)(test_random(&random) % ENTRIES) + 1;

		/* As many as are taken are completed, whatever was in them. */
		kit.channel.ring.tail += n;
		if (ring_client_submit(&kit.channel.ring))
			bell_ring(&kit);
		CHECK(raw_reap(&kit.channel, n, completions, 20000000));
		for (unsigned i = 0; i < n; i++)
			if (ring_result_errno(completions[i].result))
				n_bad++;
			else
				n_ok++;
	}
	atomic_store(&scribbler.must_stop, true);
	CHECK_EQ(pthread_join(scribbler.thread, NULL), 0);
	test_note("scribbled over: %" PRIu64 " ops done, %" PRIu64 " refused", n_ok, n_bad);
	CHECK(n_ok > 0 && n_bad > 0);
	/* None is left over, and the channel is as good as new. */
	CHECK_EQ(ring_client_ready(&kit.channel.ring), 0);
	entry = kit_read(&kit);
	CHECK_EQ(raw_run_one(&kit.channel, entry), 4096);
	CHECK_EQ(file_size(kit.path) >= 65536, 1);
	kit_close(&kit);
	beside_ok();
}

FAULT(c10_nonsense, "C10 entries of random bytes: each is refused, none crashes")
{
	struct kit kit;
	uint64_t random = test_seed() + 10;

	kit_open(&kit, daemon);
	for (unsigned round = 0; round < 500; round++) {
		struct ring_entry entries[ENTRIES];
		int64_t results[ENTRIES];

		pattern_fill(entries, sizeof(entries), test_random(&random), 0);
		for (unsigned i = 0; i < ENTRIES; i += 2) { /* half of them nearly right */
			struct ring_entry good = kit_read(&kit);
			uint8_t *bytes = (uint8_t *)&good;

			bytes[8 + test_random(&random) % 56] ^= (uint8_t)test_random(&random);
			entries[i] = good;
			entries[i].timeout_msec = 0; /* a write of a second is not the point */
		}
		raw_run(&kit.channel, entries, ENTRIES, results);
	}
	kit_close(&kit);
	beside_ok();
}

static const struct {
	const char *what;
	size_t at;
	uint8_t value;
} zeros[] = {
	{ "the flags of a read", offsetof(struct ring_entry, flags), RING_ENTRY_DSYNC },
	{ "flags that are none", offsetof(struct ring_entry, flags), 2 },
	{ "behind the flags", offsetof(struct ring_entry, zero0), 1 },
	{ "at the end", offsetof(struct ring_entry, zero1) + 7, 1 },
};

TEST_TABLE(c10_zero, zeros, "C10 bytes of an entry that must be zero and are not: EINVAL")
{
	struct daemon *daemon = daemon_start(NULL);
	struct ring_entry entry;
	struct kit kit;

	beside_start(daemon);
	kit_open(&kit, daemon);
	entry = kit_read(&kit);
	((uint8_t *)&entry)[zeros[row].at] = zeros[row].value;
	CHECK_EQ(ring_result_errno(raw_run_one(&kit.channel, entry)), EINVAL);
	CHECK_EQ(raw_run_one(&kit.channel, kit_read(&kit)), 4096);
	kit_close(&kit);
	beside_ok();
}

/* ---- C20 ---- */

FAULT(c20_completions, "C20 a client that never reads its completions: its ring stands, no other")
{
	struct ring_completion completions[ENTRIES];
	struct ring_entry entry;
	struct kit kit;

	kit_open(&kit, daemon);
	for (unsigned i = 0; i < ENTRIES; i++) {
		entry = kit_read(&kit);
		raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
	}
	beside_ok();
	CHECK_EQ(ring_client_room(&kit.channel.ring), 0);
	/* Not lost: they are there when it looks at last. */
	CHECK(raw_reap(&kit.channel, ENTRIES, completions, 20000000));
	for (unsigned i = 0; i < ENTRIES; i++)
		CHECK_EQ(completions[i].result, 4096);
	CHECK_EQ(raw_run_one(&kit.channel, kit_read(&kit)), 4096);
	/* And one that is gone with a full ring leaves nothing. */
	for (unsigned i = 0; i < ENTRIES; i++) {
		entry = kit_read(&kit);
		raw_put(&kit.channel, &entry);
		raw_ring(&kit.channel);
	}
	kit_close(&kit);
	CHECK(daemon_wait_clients(daemon, 1, UINT64_MAX));
}

FAULT(c20_bell, "C20 a client that never reads its doorbell socket: the lane does not wait for it")
{
	struct kit kit;

	kit_open(&kit, daemon);
	for (unsigned i = 0; i < 5000; i++) {
		struct ring_completion completion;
		struct ring_entry entry = kit_read(&kit);

		raw_put(&kit.channel, &entry);
		(void)ring_client_arm(&kit.channel.ring, true); /* a byte, please */
		raw_ring(&kit.channel);
		while (!ring_client_ready(&kit.channel.ring))
			(void)sched_yield();
		CHECK(raw_reap(&kit.channel, 1, &completion, 20000000));
		CHECK_EQ(completion.result, 4096);
		ring_client_disarm(&kit.channel.ring);
	}
	beside_ok();
	kit_close(&kit);
}

TEST_MAIN
