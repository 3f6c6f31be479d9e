/*
 * The five numbers of a profile at their limits: the data is right whatever they are, and the handle says
 * which it has.  Fields that are left out are inherited from each store.  tests/fault/limits.c has the
 * values out of range.
 */
#include "proto/profile.h"
#include "tests/harness.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *what;
	struct dsaio_profile profile;
} profiles[] = {
#define P(...)                                               \
	{                                                    \
		sizeof(struct dsaio_profile), __VA_ARGS__, 0 \
	}
	/* block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism */
	{ "DeepNVMe's defaults", P(1u << 20, 128, DSAIO_NO, DSAIO_NO, 1) },
	{ "DeepSpeed's configuration", P(1u << 20, 8, DSAIO_NO, DSAIO_YES, 1) },
	{ "the smallest blocks", P(4u << 10, 128, DSAIO_NO, DSAIO_YES, 1) },
	{ "the smallest blocks, one at a time", P(4u << 10, 1, DSAIO_YES, DSAIO_NO, 1) },
	{ "odd blocks of 12 KiB", P(12u << 10, 7, DSAIO_NO, DSAIO_YES, 1) },
	{ "the largest blocks", P(64u << 20, 4, DSAIO_NO, DSAIO_YES, 1) },
	{ "the largest blocks, deepest queue", P(64u << 20, 4096, DSAIO_NO, DSAIO_YES, 1) },
	{ "depth 1", P(1u << 20, 1, DSAIO_NO, DSAIO_YES, 1) },
	{ "depth 1, no overlap", P(1u << 20, 1, DSAIO_NO, DSAIO_NO, 1) },
	{ "depth 4096", P(4u << 10, 4096, DSAIO_NO, DSAIO_YES, 1) },
	{ "depth 4096, no overlap", P(4u << 10, 4096, DSAIO_NO, DSAIO_NO, 1) },
	{ "single submit", P(64u << 10, 32, DSAIO_YES, DSAIO_YES, 1) },
	{ "single submit, no overlap", P(64u << 10, 32, DSAIO_YES, DSAIO_NO, 1) },
	{ "3 parts", P(1u << 20, 32, DSAIO_NO, DSAIO_YES, 3) },
	{ "3 parts, no overlap", P(64u << 10, 5, DSAIO_NO, DSAIO_NO, 3) },
	{ "7 parts", P(128u << 10, 16, DSAIO_NO, DSAIO_YES, 7) },
	{ "64 parts", P(4u << 10, 4, DSAIO_NO, DSAIO_YES, 64) },
	{ "64 parts of the largest blocks", P(64u << 20, 4096, DSAIO_YES, DSAIO_NO, 64) },
#undef P
};

/* Neither divides by 3, 7 or 64; the odd ones not by 512 either. */
static const size_t lens[] = { 4096,	       5 * 4096, 1 * MIB, 13 * MIB + 4096,
			       13 * MIB + 777, 100001,	 63,	  64 };

#define OPS 24
#define OPS_BYTES (256 * KIB)

/* One op at a time, of all lengths. */
static void check_lens(struct rig *rig, struct dsaio_file *file, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		_cleanup_(guarded_free) struct guarded g = { 0 };
		uint64_t off = i % 2 ? 4096 * i : 4096 * i + i;

		guarded_new(&g, rig->client, lens[i], 0);
		pattern_fill(g.memory, g.len, i, off);
		CHECK_EQ(dsaio_pwrite(rig->handle, file, g.memory, g.len, off), g.len);
		file_check_pattern(path, off, g.len, i, off);
		memset(g.memory, 0, g.len);
		CHECK_EQ(dsaio_pread(rig->handle, file, g.memory, g.len, off), g.len);
		pattern_check(g.memory, g.len, i, off, "read back");
		guarded_check(&g, "read back");
	}
}

/* Many at once. */
static void check_many(struct rig *rig, struct dsaio_file *file, const char *path)
{
	uint8_t *memory;
	void *start;

	CHECK_CALL(dsaio_alloc(rig->client, OPS * OPS_BYTES, NULL, &start));
	memory = start;
	pattern_fill(memory, OPS * OPS_BYTES, 77, 0);
	for (size_t i = 0; i < OPS; i++)
		CHECK_CALL(dsaio_pwrite_async(rig->handle, file, memory + i * OPS_BYTES, OPS_BYTES,
					      i * OPS_BYTES, NULL));
	CHECK_EQ(handle_wait(rig->handle, -1), OPS);
	file_check_pattern(path, 0, OPS * OPS_BYTES, 77, 0);
	memset(memory, 0, OPS * OPS_BYTES);
	for (size_t i = 0; i < OPS; i++)
		CHECK_CALL(dsaio_pread_async(rig->handle, file, memory + i * OPS_BYTES, OPS_BYTES,
					     i * OPS_BYTES, NULL));
	CHECK_EQ(handle_wait(rig->handle, -1), OPS);
	pattern_check(memory, OPS * OPS_BYTES, 77, 0, "read back");
	CHECK_CALL(dsaio_free(rig->client, start));
}

TEST_TABLE(profile, profiles, "profile")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	const struct dsaio_profile *wanted = &profiles[row].profile;
	struct dsaio_profile got = { .size = sizeof(got) };
	struct dsaio_file *file;
	const char *path;

	rig_open(&rig, wanted);
	CHECK_CALL(dsaio_handle_profile(rig.handle, NULL, &got, NULL));
	CHECK_EQ(got.block_size, wanted->block_size);
	CHECK_EQ(got.queue_depth, wanted->queue_depth);
	CHECK_EQ(got.single_submit, wanted->single_submit);
	CHECK_EQ(got.overlap_events, wanted->overlap_events);
	CHECK_EQ(got.intra_op_parallelism, wanted->intra_op_parallelism);

	path = daemon_path(rig.daemon, "f");
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	check_lens(&rig, file, path);
	check_many(&rig, file, path);
}

TEST(large_op, "one op of more blocks than the queue is deep, in 7 parts")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	const size_t len = 64 * MIB + 4096;
	void *memory;

	profile.block_size = 4096;
	profile.queue_depth = 16;
	profile.intra_op_parallelism = 7;
	rig_open(&rig, &profile);
	CHECK_CALL(dsaio_alloc(rig.client, len, NULL, &memory));
	pattern_fill(memory, len, 5, 0);
	CHECK_EQ(dsaio_pwrite(rig.handle, rig_file(&rig, "f", O_RDWR | O_CREAT), memory, len, 0),
		 len);
	file_check_pattern(daemon_path(rig.daemon, "f"), 0, len, 5, 0);
	memset(memory, 0, len);
	CHECK_EQ(dsaio_pread(rig.handle, rig.files[0], memory, len, 0), len);
	pattern_check(memory, len, 5, 0, "read back");
}

static const struct {
	const char *what;
	uint32_t entries, weight;
	enum dsaio_class io_class;
} options[] = {
	{ "4 entries", 4, 1, DSAIO_CLASS_NORMAL },
	{ "4096 entries", 4096, 1, DSAIO_CLASS_NORMAL },
	{ "5 entries, weight 16, demand", 5, 16, DSAIO_CLASS_DEMAND },
	{ "background", 64, 1, DSAIO_CLASS_BACKGROUND },
};

TEST_TABLE(option, options, "handle options")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle_options o = DSAIO_HANDLE_OPTIONS_INIT;

	(void)dsaio_handle_close(rig.handle, -1);
	rig.handle = NULL;
	o.entries = options[row].entries;
	o.weight = options[row].weight;
	o.io_class = options[row].io_class;
	CHECK_CALL(dsaio_handle_open(rig.client, &o, &rig.handle));
	check_many(&rig, rig_file(&rig, "f", O_RDWR | O_CREAT), daemon_path(rig.daemon, "f"));
}

TEST(store_profile, "a handle opened with NULL uses the store's own profile of the configuration")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	_cleanup_(fclosep) FILE *config = NULL;
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	const char *dir = test_dir_in(test_dir());
	const Wire__Store *store;

	config = fopen(path, "we");
	CHECK(config);
	CHECK(fprintf(config,
		      "[store t]\npath = %s\nblock_size = 64K\nqueue_depth = 9\n"
		      "single_submit = yes\noverlap_events = no\nintra_op_parallelism = 2\n",
		      dir) > 0);
	CHECK(fflush(config) == 0);
	rig.daemon = daemon_start_with(
		&(struct daemon_options){ .args = DAEMON_ARGS("--config", path), .store_dir = "" });
	CHECK(strlen(dir) < sizeof(rig.daemon->store_dir));
	memcpy(rig.daemon->store_dir, dir, strlen(dir) + 1);
	rig_open(&rig, NULL);
	check_many(&rig, rig_file(&rig, "f", O_RDWR | O_CREAT), daemon_path(rig.daemon, "f"));

	daemon_status(rig.daemon, &answer);
	CHECK_EQ(answer.reply->status->n_stores, 1);
	store = answer.reply->status->stores[0];
	CHECK(!strcmp(store->name, "t"));
	CHECK(store->profile);
	CHECK_EQ(store->profile->block_size, 64 << 10);
	CHECK_EQ(store->profile->queue_depth, 9);
	CHECK_EQ(store->profile->single_submit, 1);
	CHECK_EQ(store->profile->overlap_events, 0);
	CHECK_EQ(store->profile->intra_op_parallelism, 2);
	CHECK(store->counters && store->counters->writes >= OPS && store->counters->reads >= OPS);
	CHECK(store->counters->write_bytes >= OPS * OPS_BYTES);
}

/* ---- inherited fields ---- */

/* Two stores with profiles of their own: "t", and "u" on /dev/shm. */
static struct daemon *two_stores(const char **ret_other_dir)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	const char *dir = test_dir_in(test_dir()), *other_dir = test_dir_in("/dev/shm");
	_cleanup_(fclosep) FILE *config = fopen(path, "we");
	struct daemon *daemon;

	CHECK(config);
	CHECK(fprintf(config,
		      "[store t]\npath = %s\nblock_size = 64K\nqueue_depth = 9\n"
		      "single_submit = yes\noverlap_events = no\nintra_op_parallelism = 2\n"
		      "[store u]\npath = %s\nblock_size = 128K\nqueue_depth = 5\n"
		      "single_submit = no\noverlap_events = yes\n",
		      dir, other_dir) > 0);
	CHECK(fflush(config) == 0);
	daemon = daemon_start_with(
		&(struct daemon_options){ .args = DAEMON_ARGS("--config", path), .store_dir = "" });
	CHECK(strlen(dir) < sizeof(daemon->store_dir));
	memcpy(daemon->store_dir, dir, strlen(dir) + 1);
	*ret_other_dir = other_dir;
	return daemon;
}

static void check_used(struct dsaio_handle *handle, struct dsaio_file *file,
		       const struct dsaio_profile *wanted)
{
	struct dsaio_profile used = DSAIO_PROFILE_INIT;
	struct dsaio_granted granted = DSAIO_GRANTED_INIT;

	CHECK_CALL(dsaio_handle_profile(handle, file, &used, &granted));
	CHECK_EQ(used.block_size, wanted->block_size);
	CHECK_EQ(used.queue_depth, wanted->queue_depth);
	CHECK_EQ(used.single_submit, wanted->single_submit);
	CHECK_EQ(used.overlap_events, wanted->overlap_events);
	CHECK_EQ(used.intra_op_parallelism, wanted->intra_op_parallelism);
	CHECK(granted.block_size >= 4096 && granted.block_size <= wanted->block_size);
	CHECK_EQ(granted.queue_depth, wanted->queue_depth); /* fits any lane */
}

static const struct {
	const char *what;
	struct dsaio_profile asked, on_t, on_u;
} inherited[] = {
#define P(...)                                               \
	{                                                    \
		sizeof(struct dsaio_profile), __VA_ARGS__, 0 \
	}
	{ "all", DSAIO_PROFILE_INIT, P(64u << 10, 9, DSAIO_YES, DSAIO_NO, 2),
	  P(128u << 10, 5, DSAIO_NO, DSAIO_YES, 1) },
	{ "all but the depth", P(0, 3, DSAIO_INHERIT, DSAIO_INHERIT, 0),
	  P(64u << 10, 3, DSAIO_YES, DSAIO_NO, 2), P(128u << 10, 3, DSAIO_NO, DSAIO_YES, 1) },
	{ "the numbers", P(0, 0, DSAIO_NO, DSAIO_NO, 0), P(64u << 10, 9, DSAIO_NO, DSAIO_NO, 2),
	  P(128u << 10, 5, DSAIO_NO, DSAIO_NO, 1) },
	{ "yes or no", P(4096, 7, DSAIO_INHERIT, DSAIO_INHERIT, 3),
	  P(4096, 7, DSAIO_YES, DSAIO_NO, 3), P(4096, 7, DSAIO_NO, DSAIO_YES, 3) },
	{ "none", P(4096, 7, DSAIO_YES, DSAIO_YES, 3), P(4096, 7, DSAIO_YES, DSAIO_YES, 3),
	  P(4096, 7, DSAIO_YES, DSAIO_YES, 3) },
#undef P
};

TEST_TABLE(inherits, inherited, "a handle on two stores inherits the fields that it leaves out")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile asked = DSAIO_PROFILE_INIT;
	struct dsaio_file *file, *other;
	const char *other_dir;

	rig.daemon = two_stores(&other_dir);
	rig_open(&rig, &inherited[row].asked);
	file = rig_file(&rig, daemon_path(rig.daemon, "f"), O_RDWR | O_CREAT);
	other = rig_file(&rig, test_text("%s/f", other_dir), O_RDWR | O_CREAT);
	check_used(rig.handle, file, &inherited[row].on_t); /* before the first op */
	check_used(rig.handle, other, &inherited[row].on_u);
	check_many(&rig, file, daemon_path(rig.daemon, "f"));
	check_many(&rig, other, test_text("%s/f", other_dir));
	check_used(rig.handle, file, &inherited[row].on_t); /* after it */
	CHECK_CALL(dsaio_handle_profile(rig.handle, NULL, &asked, NULL));
	CHECK_EQ(memcmp(&asked, &inherited[row].asked, sizeof(asked)), 0);
}

/* The profile of store t; fields that are absent stay. */
static void profile_set(const struct daemon *daemon, Wire__Profile *profile)
{
	_cleanup_(raw_close) struct raw raw = raw_new(daemon);
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;
	Wire__Request request = RAW_REQUEST(PROFILE_SET, profile_set, &set);

	set.name = (char *)(uintptr_t) "t";
	set.profile = profile;
	raw_call_ok(&raw, &request, NULL, 0, &answer);
}

TEST(inherits_later, "a store's profile that changes is inherited from the next first use on")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE;
	struct dsaio_profile before = inherited[0].on_t, after = inherited[0].on_t;
	Wire__Profile depth = WIRE__PROFILE__INIT;
	struct dsaio_handle *early, *later;
	struct dsaio_file *file;
	const char *other_dir;

	rig.daemon = two_stores(&other_dir);
	rig_open(&rig, NULL);
	file = rig_file(&rig, daemon_path(rig.daemon, "f"), O_RDWR | O_CREAT);
	check_used(rig.handle, file, &before);
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &early));
	depth.queue_depth = 4;
	depth.absent = PROFILE_ALL & ~PROFILE_QUEUE_DEPTH;
	profile_set(rig.daemon, &depth);
	after.queue_depth = 4;
	CHECK_CALL(dsaio_handle_open(rig.client, NULL, &later));
	check_used(rig.handle, file, &before);
	check_used(early, file, &after); /* opened before, but not used */
	check_used(later, file, &after);
}

/* Checks what status has of the first handle of the client that asks. */
static void check_shown(struct raw *raw, uint32_t absent, uint32_t queue_depth)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__Request request = RAW_REQUEST(STATUS, status, &status);
	const Wire__Handle *handle;

	raw_call_ok(raw, &request, NULL, 0, &answer);
	CHECK_EQ(answer.reply->status->n_clients, 1);
	handle = answer.reply->status->clients[0]->handles[0];
	CHECK(handle->profile);
	CHECK_EQ(handle->profile->absent, absent);
	CHECK_EQ(handle->profile->queue_depth, queue_depth);
}

static const struct {
	const char *what;
	uint32_t absent, block_size;
	bool single_submit, overlap_events;
	uint32_t parallelism;
} on_wire[] = {
	/* It sends no field that is 0 or false, and has not heard of absent ones. */
	{ "a client of the previous version", 0, 4096, false, false, 1 },
	{ "a client of this one",
	  PROFILE_BLOCK_SIZE | PROFILE_SINGLE_SUBMIT | PROFILE_OVERLAP_EVENTS | PROFILE_PARALLELISM,
	  64u << 10, true, false, 2 },
};

TEST_TABLE(wire, on_wire, "fields on the wire")
{
	_cleanup_(raw_close) struct raw raw = RAW_NONE;
	_cleanup_(answer_free) struct answer opened = ANSWER_NONE, channel = ANSWER_NONE;
	Wire__Profile profile = WIRE__PROFILE__INIT;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__Request open = RAW_REQUEST(HANDLE_OPEN, handle_open, &handle_open);
	Wire__ChannelOpen channel_open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request on_store = RAW_REQUEST(CHANNEL_OPEN, channel_open, &channel_open);
	const Wire__Profile *used;
	const char *other_dir;

	raw_open(&raw, two_stores(&other_dir));
	profile.absent = on_wire[row].absent;
	profile.queue_depth = 6;
	if (!profile.absent) {
		profile.block_size = 4096;
		profile.intra_op_parallelism = 1;
	}
	handle_open.profile = &profile;
	raw_call_ok(&raw, &open, NULL, 0, &opened);
	check_shown(&raw, on_wire[row].absent, 6);
	channel_open.handle = opened.reply->handle_open->handle;
	channel_open.store = raw_store("t");
	channel_open.entries = 16;
	channel_open.without_rings = true;
	raw_call_ok(&raw, &on_store, NULL, 0, &channel);
	used = channel.reply->channel_open->profile;
	CHECK(used);
	CHECK_EQ(used->absent, 0);
	CHECK_EQ(used->block_size, on_wire[row].block_size);
	CHECK_EQ(used->queue_depth, 6);
	CHECK_EQ(used->single_submit, on_wire[row].single_submit);
	CHECK_EQ(used->overlap_events, on_wire[row].overlap_events);
	CHECK_EQ(used->intra_op_parallelism, on_wire[row].parallelism);
	CHECK_EQ(channel.reply->channel_open->queue_depth, 6);
}

TEST(used_arguments, "what a store uses: either result alone, sizes, and another client's file")
{
	_cleanup_(rig_close) struct rig rig = RIG_NONE, other = RIG_NONE;
	struct dsaio_profile used = DSAIO_PROFILE_INIT;
	struct dsaio_granted granted = DSAIO_GRANTED_INIT;
	struct dsaio_file *file;

	rig_open(&rig, NULL);
	file = rig_file(&rig, "f", O_RDWR | O_CREAT);
	CHECK_CALL(dsaio_handle_profile(rig.handle, file, &used, NULL));
	CHECK_EQ(used.queue_depth, 128);
	CHECK_CALL(dsaio_handle_profile(rig.handle, file, NULL, &granted));
	CHECK(granted.queue_depth >= 1 && granted.queue_depth <= 128);
	CHECK_CALL(dsaio_handle_profile(rig.handle, file, NULL, NULL));
	CHECK_FAILS(dsaio_handle_profile(NULL, file, &used, NULL), -EINVAL, "handle is NULL");
	CHECK_CALL(dsaio_handle_profile(rig.handle, NULL, &used, NULL));
	CHECK_EQ(used.queue_depth, 0); /* inherited */
	CHECK_FAILS(dsaio_handle_profile(rig.handle, NULL, NULL, &granted), -EINVAL,
		    "without a file");
	granted.size = 8;
	CHECK_FAILS(dsaio_handle_profile(rig.handle, file, NULL, &granted), -EINVAL,
		    "dsaio_granted;8");
	used.size = 8;
	CHECK_FAILS(dsaio_handle_profile(rig.handle, file, &used, NULL), -EINVAL,
		    "dsaio_profile;8");
	other.daemon = rig.daemon;
	rig_open(&other, NULL);
	CHECK_FAILS(dsaio_handle_profile(other.handle, file, NULL, NULL), -EBADF,
		    "different clients");
}

TEST(wrong_values, "a handle with a value out of range is refused, with the value and its limit")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct dsaio_handle_options o = DSAIO_HANDLE_OPTIONS_INIT;
	struct dsaio_handle *handle;

	o.weight = 17;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL,
		    "handle_open;weight 17;from 1 to 16");
	o.weight = 16;
	o.profile = &profile;
	profile.block_size = 12345;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL,
		    "handle_open;block_size 12345;512");
	profile.block_size = 0;
	profile.queue_depth = 5000;
	CHECK_FAILS(dsaio_handle_open(rig.client, &o, &handle), -EINVAL,
		    "handle_open;queue_depth 5000;from 1 to 4096");
	profile.queue_depth = 4096;
	CHECK_CALL(dsaio_handle_open(rig.client, &o, &handle));
	(void)dsaio_handle_close(handle, -1);
}

/* A program that was built with a later version has larger structs. */
struct later_profile {
	struct dsaio_profile now;
	uint64_t later;
};
struct later_options {
	struct dsaio_handle_options now;
	uint64_t later;
};

TEST(newer, "fields of a later version were ignored without a word")
{
	struct later_profile profile = { DSAIO_PROFILE_INIT, 0 };
	struct later_options asked = { DSAIO_HANDLE_OPTIONS_INIT, 0 };
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	struct dsaio_handle *handle;

	profile.now.size = sizeof(profile);
	profile.now.queue_depth = 7;
	asked.now.size = sizeof(asked);
	asked.now.profile = &profile.now;
	CHECK_CALL(dsaio_handle_open(rig.client, &asked.now, &handle));
	profile.later = UINT64_MAX;
	CHECK_CALL(dsaio_handle_profile(handle, NULL, &profile.now, NULL));
	CHECK_EQ(profile.now.queue_depth, 7);
	CHECK_EQ(profile.later, 0);
	(void)dsaio_handle_close(handle, -1);

	asked.later = 1;
	CHECK_FAILS(dsaio_handle_open(rig.client, &asked.now, &handle), -E2BIG,
		    "dsaio_handle_options;" DSAIO_VERSION);
	asked.later = 0;
	profile.later = 1;
	CHECK_FAILS(dsaio_handle_open(rig.client, &asked.now, &handle), -E2BIG,
		    "dsaio_profile;" DSAIO_VERSION);
	profile.now.size = 8;
	CHECK_FAILS(dsaio_handle_open(rig.client, &asked.now, &handle), -EINVAL, "dsaio_profile;8");
	CHECK_FAILS(dsaio_handle_profile(rig.handle, NULL, &profile.now, NULL), -EINVAL,
		    "dsaio_profile;8");
}

TEST_MAIN
