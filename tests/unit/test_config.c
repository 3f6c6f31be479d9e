#include "daemon/base/memory_limit.h"
#include "daemon/config/config.h"
#include "proto/util/cleanup.h"

#include "tests/unit/file_text.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config config;
static struct error error;
static char path[100];

static void setup(void)
{
	ck_assert_int_eq(config_init(&config), 0);
}

static void teardown(void)
{
	config_deinit(&config);
}

static int read_text(const char *text)
{
	int fd, r;

	(void)strcpy(path, "/tmp/dsaio-config-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
	r = config_read(&config, path, true, &error);
	(void)unlink(path);
	return r < 0 ? r : config_check(&config, &error);
}

TEST(the_defaults_are_those_of_the_manual)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct memory_limit limit;

	memory_limit_get("", &limit);
	if (limit.bytes < memory)
		memory = limit.bytes;
	ck_assert_int_eq(config_check(&config, &error), 0);
	ck_assert_str_eq(config.socket_path, "/run/dsaiod/dsaiod.sock");
	ck_assert_uint_eq(config.pool_size, memory / 2);
	ck_assert_uint_eq(config.client_limit[QUOTA_POOL_BYTES], memory / 2 / 2);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], memory / 2 / 2);
	ck_assert_uint_eq(config.spin_usec, 20);
	ck_assert(config.auto_stores);
	ck_assert(!config.has_admin_group);
	ck_assert_uint_eq(config.n_stores, 0);
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++) {
		ck_assert_uint_gt(config.client_limit[i], 0);
		ck_assert_uint_ge(config.user_limit[i], config.client_limit[i]);
	}
}

TEST(two_users_at_their_bounds_share_the_pool)
{
	ck_assert_int_eq(config_check(&config, &error), 0);
	ck_assert_uint_le(2 * config.user_limit[QUOTA_POOL_BYTES], config.pool_size);
	config_deinit(&config);
	ck_assert_int_eq(config_init(&config), 0);
	config_set_user(&config);
	ck_assert_int_eq(config_check(&config, &error), 0);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], config.pool_size);
}

TEST(gpu_memory_has_no_limit_unless_one_is_given)
{
	ck_assert_int_eq(read_text("[daemon]\nclient_device_max = 0\n"), 0);
	ck_assert_int_eq(config_check(&config, &error), 0);
	ck_assert_int_eq(config.gpu, GPU_MODE_AUTO);
	ck_assert_uint_eq(config.client_limit[QUOTA_GPU_BYTES], UINT64_MAX);
	ck_assert_uint_eq(config.user_limit[QUOTA_GPU_BYTES], UINT64_MAX);
}

static const struct {
	const char *text;
	unsigned percent;
} percents[] = { { "[daemon]\npool_size = 1%\n", 1 },
		 { "[daemon]\npool_size = 50%\n", 50 },
		 { "[daemon]\npool_size = 100%\n", 100 } };

TEST_TABLE(the_pool_may_be_a_part_of_the_memory, percents)
{
	const uint64_t half = config.pool_size;

	ck_assert_int_eq(read_text(percents[_i].text), 0);
	ck_assert_uint_eq(config.pool_size, half / 50 * percents[_i].percent);
}

static const struct {
	const char *yes, *no;
} yes_no[] = { { "yes", "no" }, { "on", "off" }, { "true", "false" }, { "1", "0" } };

TEST_TABLE(all_words_for_yes_and_no_will_do, yes_no)
{
	const char *yes = yes_no[_i].yes, *no = yes_no[_i].no;
	char text[300];

	(void)snprintf(
		text, sizeof(text),
		"[daemon]\nlock = %s\nhuge_pages = %s\nauto_stores = %s\n[store a]\npath = /\n"
		"single_submit = %s\noverlap_events = %s\n",
		yes, no, no, yes, no);
	config.lock = POOL_LOCK_AUTO;
	ck_assert_msg(read_text(text) == 0, "%s", error.text);
	ck_assert_int_eq(config.lock, POOL_LOCK_YES);
	ck_assert_int_eq(config.huge_pages, POOL_PAGES_SMALL);
	ck_assert(!config.auto_stores);
	ck_assert(config.stores[0].profile.single_submit);
	ck_assert(!config.stores[0].profile.overlap_events);
}

TEST(a_window_without_a_limit)
{
	ck_assert_int_eq(read_text("[store a]\npath = /\nwindow_max = 0\n[store b]\npath = /\n"),
			 0);
	ck_assert_uint_eq(config.stores[0].window_max, 0);
	ck_assert_uint_eq(config.stores[1].window_max, 0);
}

TEST(a_whole_file_is_taken)
{
	ck_assert_int_eq(read_text("# all keys\n"
				   "[daemon]\n"
				   "socket = /tmp/s.sock\n"
				   "pool_size = 3G ; with a comment\n"
				   "client_pool_max=512M\n"
				   "lock = auto\n"
				   "spin_usec = 0\n"
				   "user_pool_max = 1G\n"
				   "auto_stores = no\n"
				   "admin_group = 77\n"
				   "state_dir = /tmp/state\n"
				   "idle_exit_sec = 5\n"
				   "gpu = direct\n"
				   "client_device_max = 24G\n"
				   "client_files = 12\n"
				   "client_handles = 13\n"
				   "client_ops = 15\n"
				   "user_clients = 20\n"
				   "\n"
				   "[store nvme0]\n"
				   "users = root , 1001\n"
				   "groups = 50,root\n"
				   "path = /mnt/nvme0\n"
				   "block_size = 128k\n"
				   "queue_depth = 32\n"
				   "single_submit = yes\n"
				   "overlap_events = false\n"
				   "intra_op_parallelism = 8\n"
				   "  spin_usec = 10 ; indented\n"
				   "window_max = 4M\n"
				   "[store b]\n"
				   "path = /mnt/b c\n"),
			 0);
	ck_assert_str_eq(config.socket_path, "/tmp/s.sock");
	ck_assert_uint_eq(config.pool_size, UINT64_C(3) << 30);
	ck_assert_uint_eq(config.client_limit[QUOTA_POOL_BYTES], 512u << 20);
	ck_assert_int_eq(config.lock, POOL_LOCK_AUTO);
	ck_assert_uint_eq(config.spin_usec, 0);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], 1u << 30);
	ck_assert(!config.auto_stores);
	ck_assert(config.has_admin_group);
	ck_assert_uint_eq(config.admin_group, 77);
	ck_assert_str_eq(config.state_dir, "/tmp/state");
	ck_assert_uint_eq(config.idle_exit_sec, 5);
	ck_assert_uint_eq(config.client_limit[QUOTA_FILES], 12);
	ck_assert_uint_eq(config.client_limit[QUOTA_HANDLES], 13);
	ck_assert_uint_eq(config.client_limit[QUOTA_ENTRIES], 15);
	ck_assert_uint_eq(config.user_limit[QUOTA_SESSIONS], 20);
	ck_assert_uint_eq(config.n_stores, 2);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_USERS].n, 2);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_USERS].ids[0], 0);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_USERS].ids[1], 1001);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_GROUPS].n, 2);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_GROUPS].ids[0], 50);
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_GROUPS].ids[1], 0);
	ck_assert_str_eq(access_text(&config.stores[0].access),
			 "users root , 1001; groups 50,root");
	ck_assert_str_eq(config.stores[0].name, "nvme0");
	ck_assert_str_eq(config.stores[0].path, "/mnt/nvme0");
	ck_assert_uint_eq(config.stores[0].profile.block_size, 128u << 10);
	ck_assert_uint_eq(config.stores[0].profile.queue_depth, 32);
	ck_assert(config.stores[0].profile.single_submit);
	ck_assert(!config.stores[0].profile.overlap_events);
	ck_assert_uint_eq(config.stores[0].profile.intra_op_parallelism, 8);
	ck_assert_uint_eq(config.stores[0].spin_usec, 10);
	ck_assert_uint_eq(config.stores[0].window_max, 4u << 20);
	ck_assert_str_eq(config.stores[1].path, "/mnt/b c");
	ck_assert_uint_eq(config.stores[1].spin_usec, CONFIG_SPIN_INHERIT);
	ck_assert_int_eq(config_check(&config, &error), 0);
	ck_assert_int_eq(config.gpu, GPU_MODE_DIRECT);
	ck_assert_uint_eq(config.client_limit[QUOTA_GPU_BYTES], UINT64_C(24) << 30);
}

TEST(a_bound_follows_those_that_are_given)
{
	ck_assert_int_eq(read_text("[daemon]\npool_size = 64M\n"), 0);
	ck_assert_uint_eq(config.client_limit[QUOTA_POOL_BYTES], 32u << 20);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], 32u << 20);
	config_deinit(&config);
	ck_assert_int_eq(config_init(&config), 0);
	ck_assert_int_eq(read_text("[daemon]\npool_size = 64M\nclient_pool_max = 48M\n"
				   "client_files = 60000\n"),
			 0);
	ck_assert_uint_eq(config.user_limit[QUOTA_POOL_BYTES], 48u << 20);
	ck_assert_uint_ge(config.user_limit[QUOTA_FILES], 60000);
}

static const struct {
	const char *text;
	int line;
	const char *why; /* words of the message */
} mistakes[] = {
	{ "[daemon]\nsocket =\n", 2, "empty" },
	{ "[daemon]\n\npool_size = 10Q\n", 3, "pool_size = 10Q: must be a number from 1 MiB to" },
	{ "[daemon]\npool_size = -1\n", 2, "pool_size = -1" },
	{ "[daemon]\npool_size = 1\n", 2, "from 1 MiB to 64 TiB" },
	{ "[daemon]\npool_size = 0%\n", 2, "from 1% to 100%" },
	{ "[daemon]\npool_size = 101%\n", 2, "from 1% to 100%" },
	{ "[daemon]\npool_size = 1 %\n", 2, "pool_size = 1 %" },
	{ "[daemon]\npool_size = %\n", 2, "pool_size = %" },
	{ "[daemon]\npool_size = 99999999999T\n", 2, "from 1 MiB" },
	{ "[daemon]\npool_size = 1G1\n", 2, "pool_size = 1G1" },
	{ "[daemon]\npool_size = 99999999999999999999999\n", 2, "K, M, G, T, KiB" },
	{ "[daemon]\nlock = no\n", 2, "yes (refuse" },
	{ "[daemon]\nlock = off\n", 2, "yes (refuse" },
	{ "[daemon]\nhuge_pages = on\n", 2, "must be auto (" },
	{ "[daemon]\nspin_usec = 1000001\n", 2, "0 to 1000000" },
	{ "[daemon]\nspin_usec = 1K\n", 2, "spin_usec = 1K" },
	{ "[daemon]\nspin = 1\n", 2, "no such key; there are socket, pool_size, client_pool_max" },
	{ "[store a]\nqueue_depth = 0\n", 2, "from 1 to 4096" },
	{ "[store a]\nqueue_depth = 4097\n", 2, "from 1 to 4096" },
	{ "[store a]\nblock_size = 65M\n", 2, "from 512 B to 64 MiB" },
	{ "[store a]\nsingle_submit = maybe\n", 2, "yes or no" },
	{ "[store a]\nintra_op_parallelism = 65\n", 2, "from 1 to 64" },
	{ "[store a]\nwindow_max = 1\n", 2, "from 64 KiB to 4 GiB" },
	{ "[store a]\ndevice = /dev/x\n", 2, "no such key; there are path" },
	{ "[store a/b]\npath = /\n", 1, "a/b" },
	{ "[store]\npath = /\n", 1, "[store NAME]" },
	{ "[store ]\npath = /\n", 1, "a name has 1 to 31" },
	{ "[stores]\npath = /\n", 1, "[store NAME]" },
	{ "[stores]\n", 1, "[store NAME]" },
	{ "path = /\n", 1, "[store NAME]" },
	{ "[store a]\npath = /\n\n[store a]\nspin_usec = 1\n", 4, "has a section already" },
	{ "[store a]\npath = /\n  path = /mnt\n", 3, "path = /mnt: is given in line 2" },
	{ "[daemon]\nlock = yes\n[store a]\npath = /\n[daemon]\nspin_usec = 1\n", 5,
	  "has this section already" },
	{ "[daemon]\nlock = yes\nspin_usec = 1\nlock = auto\n", 4, "in line 2" },
	{ "[daemon]\nsocket = s.sock\n", 2, "socket = s.sock: must be an absolute path" },
	{ "[daemon]\nsocket = /1234567890123456789012345678901234567890123456789012345678901234567890"
	  "12345678901234567890123456789012345678\n",
	  2, "at most 107 bytes; it has 109" },
	{ "[daemon]\nstate_dir = state\n", 2, "must be an absolute path" },
	{ "[store a]\npath = nvme0\n", 2, "must be an absolute path" },
	{ "[store a]\npath = \"/nvme0\"\n", 2, "stands without quotes" },
	{ "[store a]\npath = '/'\n", 2, "stands without quotes" },
	{ "[store a]\npath = / # all\n", 2, "a comment behind a value starts with ;" },
	{ "[store a]\npath = /\nblock_size = 5000\n", 3,
	  "block_size = 5000: profile: block_size 5000: must be a multiple of 512" },
	{ "[daemon]\ngpu = cufile\n", 2, "gpu = cufile: must be auto" },
	{ "[daemon]\nclient_device_max = all\n", 2, "client_device_max = all: must be a number" },
	{ "[store a]\nengine = libaio\n", 2, "engine = libaio: no such key; there are path" },
	{ "[store a]\nintra_op_parallelism = 0\n", 2, "from 1 to 64" },
	{ "[store a]\nusers = root, nobody-of-that-name\n", 2,
	  "nobody-of-that-name: this host has no such user" },
	{ "[store a]\nusers = root,,root\n", 2, "with commas between them" },
	{ "[store a]\nusers =\n", 2, "with commas between them" },
	{ "[store a]\ngroups = none-of-that-name\n", 2, "this host has no such group" },
	{ "[store a]\ngroups = 4294967295\n", 2, "from 0 to 4294967294" },
	{ "[daemon]\nadmin_group = none-of-that-name\n", 2, "this host has no such group" },
	{ "[daemon]\nauto_stores = perhaps\n", 2, "yes or no" },
	{ "[daemon]\nstate_dir =\n", 2, "empty" },
	{ "[daemon]\nclient_files = 0\n", 2, "from 1 to 65535" },
	{ "[daemon]\nclient_handles = 16384\n", 2, "from 1 to 16383" },
	{ "[daemon]\nuser_files = 8\n", 2, "no such key" },
	{ "[daemon]\nclient_pool_max = 9M\nuser_pool_max = 8M\n", 2,
	  "client_pool_max = 9 MiB: must be at most user_pool_max, which is 8 MiB" },
	{ "[daemon]\npool_size = 1M\nclient_pool_max = 2M\n", 3,
	  "client_pool_max = 2 MiB: must be at most pool_size, which is 1 MiB" },
	{ "[daemon]\npool_size = 1M\nuser_pool_max = 2M\n", 3, "at most pool_size" },
	{ "[daemon]\nspin_usec = 1\nhello\n", 3, "KEY = VALUE" },
	{ "[daemon\nspin_usec = 1\n", 1, "KEY = VALUE" },
};

TEST_TABLE(a_mistake_is_reported_with_file_line_value_and_what_is_allowed, mistakes)
{
	char where[120];

	ck_assert_msg(read_text(mistakes[_i].text) == -EINVAL, "%s", mistakes[_i].text);
	(void)snprintf(where, sizeof(where), "%s:%d: ", path, mistakes[_i].line);
	ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s", error.text);
	ck_assert_msg(strstr(error.text, mistakes[_i].why), "%s", error.text);
}

TEST(all_mistakes_of_a_file_are_reported)
{
	static const char *const words[] = {
		":2: [daemon] spin_usec = x", ":3: z: must be",
		":4: [daemon] lock = y",      ":5: [tables]",
		":7: [store a] colour = red", "[store a]: path is missing"
	};

	ck_assert_int_eq(read_text("[daemon]\nspin_usec = x\nz\nlock = y\n[tables]\n[store a]\n"
				   "colour = red\n"),
			 -EINVAL);
	ck_assert_uint_eq(config.n_mistakes, 6);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_msg(strstr(config.mistakes[i], words[i]), "%s", config.mistakes[i]);
	ck_assert_str_eq(error.text, config.mistakes[0]);
}

TEST(a_file_full_of_mistakes_has_an_end)
{
	char text[4000] = "";

	for (unsigned i = 0; i < 1000; i++)
		(void)strcat(text, "z\n");
	ck_assert_int_eq(read_text(text), -EINVAL);
	ck_assert_uint_eq(config.n_mistakes, CONFIG_MISTAKES_MAX);
	ck_assert_msg(strstr(config.mistakes[CONFIG_MISTAKES_MAX - 1], "there are more mistakes"),
		      "%s", config.mistakes[CONFIG_MISTAKES_MAX - 1]);
}

static const char *const wrong_paths[] = { "path = mnt", "path =", "path /mnt" };

TEST_TABLE(a_path_with_a_mistake_was_called_missing_too, wrong_paths)
{
	char text[80];

	(void)snprintf(text, sizeof(text), "[store a]\n%s\n[store b]\n", wrong_paths[_i]);
	ck_assert_int_eq(read_text(text), -EINVAL);
	ck_assert_uint_eq(config.n_mistakes, 2);
	ck_assert_msg(strstr(config.mistakes[0], ":2: "), "%s", config.mistakes[0]);
	ck_assert_msg(strstr(config.mistakes[1], "[store b]: path is missing"), "%s",
		      config.mistakes[1]);
}

static const struct {
	const char *text;
	const char *why; /* NULL: it is fine */
} kept[] = {
	{ "[profile]\nblock_size = 4096\nqueue_depth = 7\nsingle_submit = yes\n"
	  "overlap_events = no\nintra_op_parallelism = 2\n",
	  NULL },
	{ "", "has neither [profile] nor [settings]" },
	{ "[profile]\nblock_size = 4096\nqueue_depth = 7\nsingle_submit = yes\n"
	  "overlap_events = no\n",
	  "intra_op_parallelism is missing" },
	{ "[profile]\nblock_size = 4097\nqueue_depth = 7\nsingle_submit = yes\n"
	  "overlap_events = no\nintra_op_parallelism = 2\n",
	  ":2: [profile] block_size = 4097" },
	{ "[store a]\npath = /\n", ":1: [store a]: there are only" },
	{ "[profile]\npath = /\n",
	  ":2: [profile] path = /: no such key; there are block_size, queue_depth" },
	{ "[profile]\nblock_size = 4096\n[profile]\nblock_size = 8192\n",
	  ":3: [profile]: the file has this section already" },
	{ "[settings]\niops = 5\n[settings]\n",
	  ":3: [settings]: the file has this section already" },
	{ "[settings]\niops = -1\n", ":2: [settings] iops = -1: must be a number from 0 to" },
	{ "[settings]\nbandwidth = 2251799813685248\n", "bandwidth = 2251799813685248: must be" },
	{ "[settings]\ndrained = maybe\n", "drained = maybe: must be yes or no" },
	{ "[settings]\niops = 1\niops = 2\n",
	  ":3: [settings] iops = 2: is given in line 2 already" },
	{ "[settings]\nblock_size = 4096\n",
	  "block_size = 4096: no such key; there are bandwidth, iops, drained" },
};

TEST_TABLE(a_kept_profile_has_each_of_its_keys_and_no_other, kept)
{
	_cleanup_(fclosep)
		FILE *file = fmemopen((void *)(uintptr_t)kept[_i].text, strlen(kept[_i].text), "r");
	struct saved_settings saved = { 0 };
	int r;

	if (kept[_i].text[0] == 0) {
		(void)fclose(file);
		file = fopen("/dev/null", "re");
	}
	ck_assert_ptr_nonnull(file);
	r = config_read_saved(file, "x.conf", &saved, &error);
	if (kept[_i].why) {
		ck_assert_int_eq(r, -EINVAL);
		ck_assert_msg(strstr(error.text, kept[_i].why), "%s", error.text);
		return;
	}
	ck_assert_msg(r == 0, "%s", error.text);
	ck_assert_uint_eq(saved.profile.block_size, 4096);
	ck_assert_uint_eq(saved.profile.queue_depth, 7);
	ck_assert(saved.profile.single_submit && !saved.profile.overlap_events);
	ck_assert_uint_eq(saved.profile.intra_op_parallelism, 2);
}

TEST(the_sample_is_right_as_it_is_and_with_all_its_keys)
{
	_cleanup_(freep) char *text = file_text("systemd/dsaiod.conf");

	ck_assert_msg(read_text(text) == 0, "%s", error.text);
	ck_assert_uint_eq(config.n_stores, 0);
	for (char *at = text; (at = strstr(at, "\n;"));)
		*++at = ' ';
	config_deinit(&config);
	ck_assert_int_eq(config_init(&config), 0);
	ck_assert_msg(read_text(text) == 0, "%s", error.text);
	ck_assert_uint_eq(config.n_stores, 2);
}

TEST(the_samples_bounds_are_the_defaults_under_the_units_limit)
{
	_cleanup_(freep) char *text = file_text("systemd/dsaiod.conf");
	struct config given = { 0 };

	for (char *at = text; (at = strstr(at, "\n;"));)
		*++at = ' ';
	config_deinit(&config);
	ck_assert_int_eq(config_init(&config), 0);
	ck_assert_int_eq(config_init(&given), 0);
	config.n_descriptors = given.n_descriptors = unit_descriptors();
	ck_assert_int_eq(config_check(&given, &error), 0);
	ck_assert_msg(read_text(text) == 0, "%s", error.text);
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++) {
		if (i == QUOTA_POOL_BYTES)
			continue;	 /* the host's memory decides */
		if (i != QUOTA_SESSIONS) /* a client is one */
			ck_assert_uint_eq(config.client_limit[i], given.client_limit[i]);
		ck_assert_uint_eq(config.user_limit[i], given.user_limit[i]);
	}
	ck_assert_uint_eq(config.spin_usec, given.spin_usec);
	ck_assert_uint_eq(config.idle_exit_sec, given.idle_exit_sec);
	ck_assert_str_eq(config.socket_path, given.socket_path);
	config_deinit(&given);
}

static gid_t group_8[] = { 7, 8 };
static const struct {
	const char *what;
	struct peer peer;
	bool has_admin_group, is_admin;
} peers[] = {
	{ "root", { .uid = 0, .gid = 1 }, false, true },
	{ "another user", { .uid = 9, .gid = 1 }, true, false },
	{ "the administrators' group", { .uid = 9, .gid = 7 }, true, true },
	{ "a supplementary group",
	  { .uid = 9, .gid = 1, .groups = group_8, .n_groups = 2 },
	  true,
	  true },
	{ "no administrators' group", { .uid = 9, .gid = 7 }, false, false },
};

TEST_TABLE(administrators_are_root_the_daemons_user_and_admin_group, peers)
{
	const struct peer own = { .uid = geteuid() };

	config.has_admin_group = peers[_i].has_admin_group;
	config.admin_group = 7;
	ck_assert_msg(config_is_admin(&config, &peers[_i].peer) == peers[_i].is_admin, "%s",
		      peers[_i].what);
	ck_assert(config_is_admin(&config, &own));
}

TEST(a_file_that_is_not_there_is_named)
{
	ck_assert_int_eq(config_read(&config, "/nonexistent/dsaiod.conf", true, &error), -ENOENT);
	ck_assert_msg(strstr(error.text, "/nonexistent/dsaiod.conf"), "%s", error.text);
	ck_assert_int_eq(config_read(&config, "/nonexistent/dsaiod.conf", false, &error), 0);
	ck_assert_int_eq(config_read(&config, "/dev/null/dsaiod.conf", false, &error), 0);
	ck_assert_uint_eq(config.n_files, 0);
}

/* ---- drop-ins ---- */

static char dir[64];

static void write_at(const char *name, const char *text)
{
	_cleanup_(freep) char *at = NULL;
	FILE *file;

	ck_assert_int_gt(asprintf(&at, "%s/%s", dir, name), 0);
	file = fopen(at, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void drop_ins_make(void)
{
	(void)strcpy(dir, "/tmp/dsaio-config-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/c.conf.d", dir);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	path[strlen(path) - 2] = 0; /* c.conf */
}

static void drop_ins_remove(void)
{
	char command[80];

	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	ck_assert_int_eq(system(command), 0);
}

TEST(a_later_drop_in_overrides_an_earlier_one_and_the_file)
{
	int r;

	drop_ins_make();
	write_at("c.conf", "[daemon]\nspin_usec = 1\npool_size = 64M\nlock = auto\n"
			   "[store a]\npath = /mnt\nusers = 1, 2\ngroups = 3\nqueue_depth = 2\n");
	write_at("c.conf.d/b.conf", "[daemon]\nspin_usec = 3\n[store b]\npath = /\n");
	write_at("c.conf.d/B.conf", "[daemon]\nspin_usec = 2\nadmin_group = 9\n");
	write_at("c.conf.d/9.conf", "[store a]\npath = /srv\nusers = 4\nblock_size = 64K\n"
				    "[daemon]\npool_size = 100%\n");
	write_at("c.conf.d/z.conf.bak", "no configuration");
	write_at("c.conf.d/.z.conf", "no configuration");
	write_at("c.conf.d/z", "no configuration");
	r = config_read(&config, path, true, &error);
	drop_ins_remove();
	ck_assert_msg(r == 0 && config_check(&config, &error) == 0, "%s", error.text);
	ck_assert_uint_eq(config.n_files, 4);
	ck_assert_uint_eq(config.spin_usec, 3);
	ck_assert_uint_eq(config.pool_size, config.memory_bytes / 100 * 100);
	ck_assert_int_eq(config.lock, POOL_LOCK_AUTO);
	ck_assert_uint_eq(config.admin_group, 9);
	ck_assert_uint_eq(config.n_stores, 2);
	ck_assert_str_eq(config.stores[0].path, "/srv");
	ck_assert_str_eq(access_text(&config.stores[0].access), "users 4; groups 3");
	ck_assert_uint_eq(config.stores[0].access.lists[ACCESS_USERS].n, 1);
	ck_assert_uint_eq(config.stores[0].profile.queue_depth, 2);
	ck_assert_uint_eq(config.stores[0].profile.block_size, 64 << 10);
	ck_assert_str_eq(config.stores[1].name, "b");
}

TEST(drop_ins_need_no_file_beside_them)
{
	int r;

	drop_ins_make();
	write_at("c.conf.d/1.conf", "[daemon]\nspin_usec = 7\n");
	r = config_read(&config, path, false, &error);
	ck_assert_int_eq(config_read(&config, path, true, &error), -ENOENT); /* --config */
	drop_ins_remove();
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(config.spin_usec, 7);
}

static const struct {
	const char *file, *first, *second;
	const char *why; /* with the file's name, line, and its words */
} drop_in_mistakes[] = {
	{ "", "[daemon]\nspin = 1\n", "", "/1.conf:2: [daemon] spin = 1: no such key" },
	{ "", "", "[store a]\npath = /\n[store a]\n",
	  "/2.conf:3: [store a]: the store has a section already" },
	{ "", "[daemon]\nspin_usec = 1\n", "[daemon]\nspin_usec = 2\nspin_usec = 3\n",
	  "/2.conf:3: [daemon] spin_usec = 3: is given in line 2 already" },
	{ "[store a]\n", "[store a]\nspin_usec = 1\n", "", "/1.conf: [store a]: path is missing" },
	{ "[daemon]\nuser_pool_max = 2M\n", "[daemon]\nclient_pool_max = 3M\n", "",
	  "/1.conf:2: [daemon] client_pool_max = 3 MiB: must be at most user_pool_max" },
};

TEST_TABLE(a_mistake_names_the_drop_in, drop_in_mistakes)
{
	int r;

	drop_ins_make();
	write_at("c.conf", drop_in_mistakes[_i].file);
	write_at("c.conf.d/1.conf", drop_in_mistakes[_i].first);
	write_at("c.conf.d/2.conf", drop_in_mistakes[_i].second);
	r = config_read(&config, path, true, &error);
	drop_ins_remove();
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(config_check(&config, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, drop_in_mistakes[_i].why), "%s", error.text);
}

TEST(a_drop_in_or_its_directory_that_cannot_be_read_is_an_error)
{
	int r;

	drop_ins_make();
	write_at("c.conf", "");
	write_at("d.conf", "");
	write_at("d.conf.d", "");
	(void)snprintf(path, sizeof(path), "%s/c.conf.d/1.conf", dir);
	ck_assert_int_eq(symlink("/nonexistent/1.conf", path), 0);
	(void)snprintf(path, sizeof(path), "%s/c.conf", dir);
	ck_assert_int_eq(config_read(&config, path, false, &error), -ENOENT);
	ck_assert_msg(strstr(error.text, "c.conf.d/1.conf: No such file"), "%s", error.text);
	(void)snprintf(path, sizeof(path), "%s/d.conf", dir);
	r = config_read(&config, path, false, &error);
	drop_ins_remove();
	ck_assert_int_eq(r, -ENOTDIR);
	ck_assert_msg(strstr(error.text, "d.conf.d: Not a directory"), "%s", error.text);
}

static const struct {
	const char *text;
	int want;
} options[] = {
	{ "nvme0=/mnt/nvme0", 0 },
	{ "a=b=c", 0 },
	{ "a.b-c_9=/", 0 },
	{ "nvme0", -EINVAL },
	{ "=/mnt", -EINVAL },
	{ "nvme0=", -EINVAL },
	{ "", -EINVAL },
	{ "a b=/mnt", -EINVAL },
	{ "c=rados://pool/space", 0 },
	{ "c=rados://pool", -EINVAL },
	{ "a-name-of-thirty-two-characters-=/mnt", -EINVAL },
};

TEST_TABLE(registry_of_the_command_line, options)
{
	ck_assert_msg(config_add_store(&config, options[_i].text, &error) == options[_i].want, "%s",
		      options[_i].text);
	ck_assert_uint_eq(config.n_stores, options[_i].want == 0);
}

TEST(a_store_on_rados_has_defaults_of_its_own)
{
	const struct store_config *store;

	ck_assert_int_eq(read_text("[store a]\npath = rados://p.1/n-2\n[store b]\n"
				   "path = rados://p/n\nobject_size = 1M\nqueue_depth = 3\n"
				   "op_timeout = 7\nceph_user = client.x\n"),
			 0);
	store = &config.stores[0];
	ck_assert_uint_eq(store->rados.object_bytes, 4u << 20);
	ck_assert_uint_eq(store->profile.block_size, 4u << 20);
	ck_assert_uint_eq(store->profile.queue_depth, 16);
	ck_assert_uint_eq(store->rados.op_timeout_sec, 30);
	ck_assert_uint_eq(store->rados.inflight_max, 256u << 20);
	ck_assert_uint_eq(store->rados.connections, 1);
	ck_assert_uint_eq(store->rados.trash_after_sec, 600);
	ck_assert_ptr_null(store->rados.user);
	store = &config.stores[1];
	ck_assert_uint_eq(store->profile.block_size, 1u << 20);
	ck_assert_uint_eq(store->profile.queue_depth, 3);
	ck_assert_uint_eq(store->rados.op_timeout_sec, 7);
	ck_assert_str_eq(store->rados.user, "x");
}

static const struct {
	const char *text, *why;
} rados_mistakes[] = {
	{ "path = rados://pool\n", "rados://POOL/NAMESPACE" },
	{ "path = rados://pool/\n", "rados://POOL/NAMESPACE" },
	{ "path = rados:///space\n", "rados://POOL/NAMESPACE" },
	{ "path = rados://pool/space/\n", "rados://POOL/NAMESPACE" },
	{ "path = rados://pool/a b\n", "rados://POOL/NAMESPACE" },
	{ "path = rados://p/n\nobject_size = 3M\n", "power of two" },
	{ "path = rados://p/n\nobject_size = 32K\n", "from 64 KiB to 32 MiB" },
	{ "path = rados://p/n\nobject_size = 64M\n", "from 64 KiB to 32 MiB" },
	{ "path = rados://p/n\nop_timeout = 0\n", "from 1 to 3600" },
	{ "path = rados://p/n\nceph_user = client.\n", "of letters" },
	{ "path = rados://p/n\nceph_conf = x.conf\n", "absolute path" },
	{ "path = /mnt\nconnections = 1\n", "[store a] connections: only a store on RADOS" },
};

TEST_TABLE(a_store_on_rados_is_refused_what_it_cannot_have, rados_mistakes)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "[store a]\n%s", rados_mistakes[_i].text);
	ck_assert_int_eq(read_text(text), -EINVAL);
	ck_assert_msg(strstr(error.text, rados_mistakes[_i].why), "%s", error.text);
}

TEST(a_store_of_the_command_line_has_the_default_profile)
{
	ck_assert_int_eq(config_add_store(&config, "t=/mnt/t", &error), 0);
	ck_assert_str_eq(config.stores[0].name, "t");
	ck_assert_str_eq(config.stores[0].path, "/mnt/t");
	ck_assert_uint_eq(config.stores[0].profile.block_size, 1u << 20);
	ck_assert_uint_eq(config.stores[0].profile.queue_depth, 128);
	ck_assert_int_eq(config_add_store(&config, "t=/mnt/u", &error), -EINVAL);
	ck_assert_int_eq(config_check(&config, &error), 0);
}

FIXTURE(setup, teardown)
TEST_MAIN
