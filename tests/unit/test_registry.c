#include "daemon/store/registry.h"

#include "daemon/base/work_queue.h"
#include "daemon/engine/engine.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FUSE_MAGIC 0x65735546
#define XFS_MAGIC 0x58465342

static struct config config;
static struct mailbox mailbox;
static struct registry stores;
static struct work_queue *work_queue;
static struct error error;
static const struct peer root = { .uid = 0 }, alice = { .uid = 1000, .gid = 1000 };

/* Neither alice nor the daemon's own user, which every store serves, whatever user runs the tests. */
static struct peer stranger(void)
{
	uid_t uid = getuid() == 1001 ? 1002 : 1001;

	return (struct peer){ .uid = uid, .gid = uid };
}
static const struct hung_who nobody;

static void start_checked(void)
{
	ck_assert_msg(registry_init(&stores, &config, NULL, &mailbox, &error) == 0, "%s",
		      error.text);
	ck_assert_int_eq(registry_start(&stores, &error), 0);
}

static void start(void)
{
	ck_assert_int_eq(config_check(&config, &error), 0);
	start_checked();
}

static void setup(void)
{
	ck_assert_int_eq(setenv("STATE_DIRECTORY", "/nonexistent/state", 1), 0);
	ck_assert_int_eq(config_init(&config), 0);
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	ck_assert_int_eq(work_queue_new("test", 1, &work_queue), 0);
}

static void teardown(void)
{
	registry_deinit(&stores);
	work_queue_free(work_queue);
	mailbox_deinit(&mailbox);
	config_deinit(&config);
}

static struct store *first_store(void)
{
	return list_entry(stores.stores.first, struct store, node);
}

/* A file of an anonymous device (btrfs, tmpfs), as far as stores look. */
static struct file_facts facts_of(uint64_t magic, unsigned minor_no)
{
	return (struct file_facts){ .dev = makedev(0, minor_no),
				    .fs_type = fs_type_of(magic),
				    .is_foreign = magic == FUSE_MAGIC };
}

static struct store *store_of(uint64_t magic, unsigned minor_no, const struct peer *peer)
{
	struct file_facts facts = facts_of(magic, minor_no);
	struct store *store = NULL;

	ck_assert_msg(registry_for_file(&stores, &facts, "f", peer, &store, &error) == 0, "%s",
		      error.text);
	return store;
}

static const struct {
	const char *what;
	uint64_t magic;
	bool is_user, no_auto;
	const char *why; /* NULL: it is served */
} kinds[] = {
	{ "ext4", EXT4_SUPER_MAGIC, false, false, NULL },
	{ "xfs", XFS_MAGIC, false, false, NULL },
	{ "btrfs", BTRFS_SUPER_MAGIC, false, false, NULL },
	{ "f2fs", 0xf2f52010, false, false, NULL },
	{ "zfs", 0x2fc12fc1, false, false, NULL },
	{ "tmpfs", TMPFS_MAGIC, false, false, NULL },
	{ "fuse", FUSE_MAGIC, false, false,
	  "(fuse), which the daemon does not serve, since its server" },
	{ "overlayfs", OVERLAYFS_SUPER_MAGIC, false, false, "(overlayfs)" },
	{ "fuse, a user's own daemon", FUSE_MAGIC, true, false, NULL },
	{ "overlayfs, a user's own daemon", OVERLAYFS_SUPER_MAGIC, true, false, NULL },
	{ "ext4, auto_stores = no", EXT4_SUPER_MAGIC, false, true, "(auto_stores = no)" },
	{ "ext4, a user's own daemon, auto_stores = no", EXT4_SUPER_MAGIC, true, true,
	  "(auto_stores = no)" },
};

TEST_TABLE(automatic_stores_are_for_what_nobody_can_hold, kinds)
{
	struct file_facts facts = facts_of(kinds[_i].magic, 77);
	struct store *store = NULL;
	int r;

	if (kinds[_i].is_user)
		config_set_user(&config);
	config.auto_stores = !kinds[_i].no_auto;
	start();
	r = registry_for_file(&stores, &facts, "w0.bin", &alice, &store, &error);
	if (!kinds[_i].why) {
		ck_assert_msg(r == 0, "%s: %s", kinds[_i].what, error.text);
		ck_assert(store->is_automatic);
		ck_assert_uint_eq(store->dev, facts.dev);
		ck_assert_str_eq(store->path, "");
		ck_assert_uint_eq(store->profile.queue_depth, 128);
		return;
	}
	ck_assert_int_eq(r, -ENXIO);
	ck_assert_msg(strstr(error.text, kinds[_i].why), "%s", error.text);
	ck_assert_msg(strstr(error.text, "w0.bin") && strstr(error.text, "0:77") &&
			      strstr(error.text, "(it serves nothing)") &&
			      strstr(error.text, "[store NAME]") &&
			      strstr(error.text, "--store NAME"),
		      "%s", error.text);
}

TEST(a_memfd_lies_on_no_store)
{
	_cleanup_(closep) int fd = memfd_create("m", MFD_CLOEXEC);
	struct file_facts facts = facts_of(TMPFS_MAGIC, 0);
	struct store *store;
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	facts.dev = st.st_dev;
	start();
	ck_assert_int_eq(registry_for_file(&stores, &facts, "m", &root, &store, &error), -ENXIO);
	ck_assert_msg(strstr(error.text, "memfd"), "%s", error.text);
}

TEST(a_block_device_is_named_as_the_kernel_names_it)
{
	struct file_facts facts = { .dev = makedev(7, 0),
				    .is_block_device = true,
				    .fs_type = &fs_type_block_device };
	struct store *store;

	start();
	ck_assert_int_eq(registry_for_file(&stores, &facts, "/dev/loop0", &root, &store, &error),
			 0);
	if (access("/sys/dev/block/7:0", F_OK) == 0)
		ck_assert_str_eq(store->name, "loop0");
	ck_assert_str_eq(store->fs_type->name, "block device");
}

TEST(names_are_unique_and_ids_never_used_again)
{
	struct store *first, *second;
	uint32_t id, key;

	ck_assert_int_eq(config_add_store(&config, "tmpfs-5=/", &error), 0);
	start();
	first = store_of(TMPFS_MAGIC, 5, &alice);
	ck_assert_str_eq(first->name, "tmpfs-5-2");
	ck_assert_ptr_eq(store_of(TMPFS_MAGIC, 5, &root), first);
	ck_assert_ptr_eq(registry_by_key(&stores, first->key), first);
	second = store_of(TMPFS_MAGIC, 6, &alice);
	ck_assert_str_eq(second->name, "tmpfs-6");
	ck_assert_uint_ne(second->id, first->id);
	id = second->id;
	key = second->key;
	registry_sweep(&stores, UINT64_MAX);
	ck_assert_ptr_null(registry_by_key(&stores, key));
	second = store_of(TMPFS_MAGIC, 6, &alice);
	ck_assert_uint_gt(second->id, id);
	ck_assert_uint_eq(second->key, key); /* of the same name */
}

TEST(an_automatic_store_goes_a_minute_after_its_last_use)
{
	struct store *store;
	uint64_t since;

	ck_assert_int_eq(config_add_store(&config, "p=/", &error), 0);
	start();
	store = store_of(XFS_MAGIC, 9, &alice);
	store_ref(store);
	registry_sweep(&stores, UINT64_MAX);
	ck_assert_uint_eq(stores.n_automatic, 1);
	store_unref(store);
	since = store->unused_since_nsec;
	registry_sweep(&stores, since + REGISTRY_UNUSED_NSEC - 1);
	ck_assert_uint_eq(stores.n_automatic, 1);
	registry_sweep(&stores, since + REGISTRY_UNUSED_NSEC);
	ck_assert_uint_eq(stores.n_automatic, 0);
	ck_assert_ptr_nonnull(stores.stores.first); /* the configured one stays */
	ck_assert_ptr_eq(stores.stores.first, stores.stores.last);
}

TEST(a_device_number_that_is_anothers_by_now_gets_a_store_of_its_own)
{
	struct file_facts facts = facts_of(XFS_MAGIC, 9);
	struct store *store;
	uint32_t id;

	facts.has_uuid = true;
	start();
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), 0);
	id = store->id;
	ck_assert_int_eq(registry_for_file(&stores, &facts, "g", &alice, &store, &error), 0);
	ck_assert_uint_eq(store->id, id);
	facts.uuid[3] = 1;
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), 0);
	ck_assert_uint_ne(store->id, id);
	id = store->id;
	ck_assert_uint_ne(store_of(TMPFS_MAGIC, 9, &alice)->id, id);
	ck_assert_uint_eq(stores.n_automatic, 1);
}

TEST(automatic_stores_have_bounds_and_unused_ones_make_room)
{
	struct file_facts facts = facts_of(TMPFS_MAGIC, 999);
	struct store *held[REGISTRY_AUTOMATIC_MAX], *store;

	start();
	for (unsigned i = 0; i < REGISTRY_AUTOMATIC_USER_MAX; i++)
		store_ref(held[i] = store_of(TMPFS_MAGIC, 100 + i, &alice));
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), -EMFILE);
	ck_assert_msg(strstr(error.text, "16 for one user"), "%s", error.text);
	/* Another user has room, and one that is unused makes room for its own user. */
	for (unsigned i = REGISTRY_AUTOMATIC_USER_MAX; i < REGISTRY_AUTOMATIC_MAX; i++)
		store_ref(held[i] = store_of(TMPFS_MAGIC, 100 + i, &root));
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &root, &store, &error), -EMFILE);
	store_unref(held[3]);
	held[3] = store_of(TMPFS_MAGIC, 999, &alice);
	ck_assert_uint_eq(stores.n_automatic, REGISTRY_AUTOMATIC_MAX);
	store_ref(held[3]);
	for (unsigned i = 0; i < REGISTRY_AUTOMATIC_MAX; i++)
		store_unref(held[i]);
}

TEST(a_store_serves_whom_it_is_for)
{
	struct file_facts facts = facts_of(0, 0);
	const struct peer bob = stranger();
	char says[100];
	id_t users[] = { 1000 };
	char name[] = "alice";
	struct store *store;
	struct stat st;

	ck_assert_int_eq(stat("/", &st), 0);
	facts.dev = st.st_dev;
	ck_assert_int_eq(config_add_store(&config, "p=/", &error), 0);
	start();
	first_store()->access.lists[ACCESS_USERS] = (struct access_list){ .ids = users,
									  .n = 1,
									  .text = name };
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), 0);
	ck_assert_ptr_eq(store, first_store());
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &root, &store, &error), 0);
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &bob, &store, &error), -EACCES);
	(void)snprintf(says, sizeof(says), "store p does not serve user %u (it serves users alice)",
		       bob.uid);
	ck_assert_msg(strstr(error.text, says), "%s", error.text);
}

/* ---- asked about ---- */

static struct answer {
	bool is_done;
	int result;
	char store[32], note[300], text[300];
	struct profile profile;
} answer;

static void on_done(struct store *store, int result, const struct error *why, const char *note,
		    void *arg)
{
	ck_assert_ptr_eq(arg, &answer);
	ck_assert(!answer.is_done);
	answer = (struct answer){ .is_done = true, .result = result };
	(void)snprintf(answer.note, sizeof(answer.note), "%.299s", note);
	(void)snprintf(answer.text, sizeof(answer.text), "%.299s", why ? why->text : "");
	if (store) {
		(void)snprintf(answer.store, sizeof(answer.store), "%s", store->name);
		answer.profile = store->profile;
	}
}

/* 0: it was answered; set: or NULL. */
static int ask(const char *name, int fd, const struct peer *peer, const struct partial_profile *set,
	       bool is_set)
{
	const struct registry_question question = {
		.name = name,
		.fd = fd,
		.peer = peer,
		.work_queue = work_queue,
		.who = &nobody,
		.on_done = on_done,
		.arg = &answer,
	};
	struct store_change change = { .what = is_set ? CHANGE_PROFILE : CHANGE_NOTHING,
				       .is_set = set };
	struct pollfd pollfd = { .fd = mailbox.event_fd, .events = POLLIN };
	int r;

	answer.is_done = false;
	if (set)
		change.profile = *set;
	r = registry_change(&stores, &question, &change, &error);
	if (r < 0) {
		ck_assert(!answer.is_done);
		closep(&fd);
		return r;
	}
	while (!answer.is_done) {
		ck_assert_int_ge(poll(&pollfd, 1, 60000), 0);
		(void)mailbox_run(&mailbox);
	}
	return 0;
}

TEST(a_store_is_asked_about_by_name_or_by_what_lies_on_it)
{
	ck_assert_int_eq(config_add_store(&config, "p=/", &error), 0);
	start();
	ck_assert_int_eq(ask("p", -1, &alice, NULL, false), 0);
	ck_assert_str_eq(answer.store, "p");
	ck_assert_int_eq(ask("", open("/", O_PATH | O_CLOEXEC), &alice, NULL, false), 0);
	ck_assert_str_eq(answer.store, "p");
	ck_assert_int_eq(ask("", open("/", O_RDONLY | O_CLOEXEC), &alice, NULL, false), 0);
	ck_assert_str_eq(answer.store, "p");
	ck_assert_int_eq(ask("", open("/sys", O_PATH | O_CLOEXEC), &alice, NULL, false), 0);
	ck_assert_int_eq(answer.result, -ENXIO); /* not even of those that are made */
	ck_assert_msg(strstr(answer.text, "file /sys: is on sysfs, a pseudo"), "%s", answer.text);
	ck_assert_int_eq(ask("q", -1, &alice, NULL, false), -ENXIO);
	ck_assert_msg(strstr(error.text, "p=/"), "%s", error.text);
	ck_assert_int_eq(ask("", -1, &alice, NULL, false), -EINVAL);
	ck_assert_int_eq(ask("p", open("/", O_PATH | O_CLOEXEC), &alice, NULL, false), -EINVAL);
}

TEST(a_look_lets_no_store_go)
{
	struct file_facts facts = facts_of(XFS_MAGIC, 9);
	struct store *store;
	struct stat st;
	uint32_t key;
	int fd = open("/dev/shm", O_PATH | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	facts.dev = st.st_dev;
	start();
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), 0);
	key = store->key;
	ck_assert_int_eq(ask("", fd, &alice, NULL, false), 0); /* of another type */
	ck_assert_int_eq(answer.result, 0);
	ck_assert_ptr_eq(registry_by_key(&stores, key), store);
	ck_assert_uint_eq(stores.n_automatic, 1);
}

TEST(only_administrators_set_a_profile)
{
	struct partial_profile profile = { PROFILE_DEFAULT, PROFILE_ALL };

	ck_assert_int_eq(config_add_store(&config, "p=/", &error), 0);
	start();
	ck_assert_int_eq(ask("p", -1, &alice, &profile, true), -EPERM);
	ck_assert_int_eq(ask("p", -1, &alice, NULL, true), -EPERM);
	profile.profile.queue_depth = 0;
	ck_assert_int_eq(ask("p", -1, &root, &profile, true), -EINVAL);
	ck_assert_msg(strstr(error.text, "queue_depth 0"), "%s", error.text);
	ck_assert_uint_eq(first_store()->profile.queue_depth, 128);
}

TEST(what_can_not_be_kept_is_set_and_reported)
{
	struct partial_profile profile = PARTIAL_PROFILE_NONE;

	/* A file in the directory's place stops root, too. */
	ck_assert_int_eq(setenv("STATE_DIRECTORY", "/proc/version/state", 1), 0);
	ck_assert_int_eq(config_add_store(&config, "p=/", &error), 0);
	start();
	profile.profile.queue_depth = 7;
	profile.given = PROFILE_QUEUE_DEPTH;
	ck_assert_int_eq(ask("p", -1, &root, &profile, true), 0);
	ck_assert_int_eq(answer.result, 0);
	ck_assert_uint_eq(answer.profile.queue_depth, 7);
	ck_assert_uint_eq(answer.profile.block_size, 1u << 20);
	profile.profile.block_size = 4096;
	profile.given = PROFILE_BLOCK_SIZE;
	ck_assert_int_eq(ask("p", -1, &root, &profile, true), 0);
	ck_assert_uint_eq(answer.profile.block_size, 4096);
	ck_assert_uint_eq(answer.profile.queue_depth, 7); /* stays */
	ck_assert_msg(strstr(answer.note, "not saved") &&
			      strstr(answer.note, "until the daemon ends"),
		      "%s", answer.note);
	ck_assert_str_eq(store_profile_source(first_store()), "set");
	ck_assert_int_eq(ask("p", -1, &root, NULL, true), 0);
	ck_assert_uint_eq(answer.profile.queue_depth, 128);
	ck_assert_str_eq(store_profile_source(first_store()), "default");
}

static const struct {
	const char *what;
	bool has_dir, is_writable;
	const char *source, *later_source;
} places[] = {
	{ "there is no directory", false, false, "set", "default" },
	{ "the directory cannot be made", true, false, "set", "set" },
	{ "it is saved", true, true, "saved", "saved" },
};

TEST_TABLE(stores_with_one_key_were_saved_though_nothing_was, places)
{
	struct partial_profile profile = { PROFILE_DEFAULT, PROFILE_ALL };
	struct file_facts facts = facts_of(BTRFS_SUPER_MAGIC, 9);
	struct store *stores_of_key[3];

	make_dir();
	/* A file in the directory's place stops root, too. */
	ck_assert_int_eq(
		setenv("STATE_DIRECTORY", places[_i].is_writable ? dir : "/proc/version/state", 1),
		0);
	ck_assert_int_eq(config_check(&config, &error), 0);
	if (!places[_i].has_dir) {
		free(config.state_dir);
		config.state_dir = NULL;
	}
	start_checked();
	facts.has_uuid = true;
	for (unsigned i = 0; i < 3; i++, facts.dev++) {
		ck_assert_int_eq(
			registry_for_file(&stores, &facts, "f", &root, &stores_of_key[i], &error),
			0);
		if (i == 1) {
			ck_assert_int_eq(ask(stores_of_key[0]->name, -1, &root, &profile, true), 0);
			ck_assert_int_eq(answer.result, 0);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		ck_assert_msg(strcmp(store_profile_source(stores_of_key[i]), places[_i].source) ==
				      0,
			      "%s: store %u: %s", places[_i].what, i,
			      store_profile_source(stores_of_key[i]));
	ck_assert_str_eq(store_profile_source(stores_of_key[2]), places[_i].later_source);
	remove_dir();
}

TEST(the_text_of_many_stores_is_cut)
{
	struct file_facts facts = facts_of(FUSE_MAGIC, 77);
	struct store *store;
	char text[200];

	for (int i = 0; i < 30; i++) {
		(void)snprintf(text, sizeof(text), "a-store-with-a-long-name-%d=/", i);
		ck_assert_int_eq(config_add_store(&config, text, &error), 0);
	}
	start();
	ck_assert_int_eq(registry_for_file(&stores, &facts, "f", &alice, &store, &error), -ENXIO);
	ck_assert_msg(strstr(error.text, "it serves a-store-with-a-long-name-0=/, a-store") &&
			      strstr(error.text, "): move the file there"),
		      "%s", error.text);
	ck_assert_ptr_null(strstr(error.text, "name-20="));
}

TEST(one_user_s_stores_leave_room_in_the_kernel_for_another_s)
{
	const struct peer other = stranger();
	const struct profile deepest = { .block_size = 4096,
					 .queue_depth = PROFILE_QUEUE_DEPTH_MAX,
					 .intra_op_parallelism = 1 };
	uint64_t room = 0;
	struct store *store = NULL;

	start();
	for (unsigned i = 0; i < REGISTRY_AUTOMATIC_USER_MAX; i++) {
		store = store_of(EXT4_SUPER_MAGIC, 100 + i, &alice);
		store_ref(store);
		ck_assert_int_eq(store_start_lane(store, &deepest,
						  registry_room_left(&stores, store), &error),
				 0);
		room += store_room(store);
	}
	/* All users depend on the first context of a store. */
	ck_assert_uint_le(room, store->engine->user_room() + REGISTRY_AUTOMATIC_USER_MAX * 32);
	ck_assert_uint_ge(store_room(store), 32);
	ck_assert(!store_is_blocking(store));
	ck_assert_uint_lt(registry_room_left(&stores, store), room);

	store = store_of(EXT4_SUPER_MAGIC, 99, &other);
	ck_assert_uint_eq(registry_room_left(&stores, store), store->engine->user_room());
	store = store_of(TMPFS_MAGIC, 98, &other);
	ck_assert_int_eq(store_start_lane(store, &deepest, 0, &error), 0);
	ck_assert_uint_eq(store_room(store), 0);
	LIST_EACH(struct store, each, &stores.stores, node)
		if (each->n_refs)
			store_unref(each);
}

FIXTURE(setup, teardown)
TEST_MAIN
