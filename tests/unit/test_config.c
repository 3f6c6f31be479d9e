#include "daemon/config.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct config config;
static struct error error;
static char path[64];

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
	r = config_read(&config, path, &error);
	(void)unlink(path);
	return r;
}

START_TEST(the_defaults_are_those_of_the_manual)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	ck_assert_str_eq(config.socket_path, "/run/dsaiod/dsaiod.sock");
	ck_assert_uint_eq(config.pool_size, memory / 2);
	ck_assert_uint_eq(config.client_pool_max, memory / 4);
	ck_assert_uint_eq(config.spin_usec, 200);
	ck_assert_uint_eq(config.n_stores, 0);
	for (unsigned i = 0; i < N_CHARGE_KINDS; i++)
		if (i != CHARGE_POOL_BYTES) {
			ck_assert_uint_gt(config.client_limit[i], 0);
			ck_assert_uint_ge(config.user_limit[i], config.client_limit[i]);
		}
}
END_TEST

START_TEST(one_user_leaves_descriptors_for_others)
{
	static const rlim_t limits[] = { 256, 1024, 4096, 20000, 524288 };

	for (unsigned i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		const uint64_t *user = config.user_limit;
		struct rlimit limit;

		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
		if (limits[i] > limit.rlim_max)
			break;
		limit.rlim_cur = limits[i];
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		config_deinit(&config);
		ck_assert_int_eq(config_init(&config), 0);
		ck_assert_uint_lt(user[CHARGE_FILES] + user[CHARGE_SLABS] + user[CHARGE_HANDLES] +
					  2 * user[CHARGE_CHANNELS] + 2 * user[CHARGE_SESSIONS],
				  limits[i]);
		ck_assert_uint_gt(config.client_limit[CHARGE_HANDLES], 0);
	}
}
END_TEST

START_TEST(a_whole_file_is_taken)
{
	ck_assert_int_eq(read_text("# all keys\n"
				   "[daemon]\n"
				   "socket = /tmp/s.sock\n"
				   "pool_size = 3G ; with a comment\n"
				   "client_pool_max=512M\n"
				   "lock = auto\n"
				   "spin_usec = 0\n"
				   "\n"
				   "[store nvme0]\n"
				   "path = /mnt/nvme0\n"
				   "block_size = 128k\n"
				   "queue_depth = 32\n"
				   "single_submit = yes\n"
				   "overlap_events = false\n"
				   "intra_op_parallelism = 8\n"
				   "spin_usec = 10\n"
				   "window_bytes = 4M\n"
				   "[store b]\n"
				   "path = /mnt/b c\n"),
			 0);
	ck_assert_str_eq(config.socket_path, "/tmp/s.sock");
	ck_assert_uint_eq(config.pool_size, UINT64_C(3) << 30);
	ck_assert_uint_eq(config.client_pool_max, 512u << 20);
	ck_assert_int_eq(config.lock, POOL_LOCK_AUTO);
	ck_assert_uint_eq(config.spin_usec, 0);
	ck_assert_uint_eq(config.n_stores, 2);
	ck_assert_str_eq(config.stores[0].name, "nvme0");
	ck_assert_str_eq(config.stores[0].path, "/mnt/nvme0");
	ck_assert_uint_eq(config.stores[0].profile.block_size, 128u << 10);
	ck_assert_uint_eq(config.stores[0].profile.queue_depth, 32);
	ck_assert(config.stores[0].profile.single_submit);
	ck_assert(!config.stores[0].profile.overlap_events);
	ck_assert_uint_eq(config.stores[0].profile.intra_op_parallelism, 8);
	ck_assert_uint_eq(config.stores[0].spin_usec, 10);
	ck_assert_uint_eq(config.stores[0].window_bytes, 4u << 20);
	ck_assert_str_eq(config.stores[1].path, "/mnt/b c");
	ck_assert_uint_eq(config.stores[1].spin_usec, CONFIG_SPIN_INHERIT);
	ck_assert_int_eq(config_check(&config, &error), 0);
}
END_TEST

START_TEST(a_clients_share_follows_the_pool)
{
	ck_assert_int_eq(read_text("[daemon]\npool_size = 64M\n"), 0);
	ck_assert_uint_eq(config.client_pool_max, 32u << 20);
}
END_TEST

static const struct {
	const char *text;
	int line;
	const char *why; /* words of the sentence */
} mistakes[] = {
	{ "[daemon]\nsocket =\n", 2, "empty" },
	{ "[daemon]\n\npool_size = 10Q\n", 3, "pool_size = 10Q: must be a number from 1048576" },
	{ "[daemon]\npool_size = -1\n", 2, "pool_size = -1" },
	{ "[daemon]\npool_size = 1\n", 2, "from 1048576 to 70368744177664" },
	{ "[daemon]\npool_size = 99999999999T\n", 2, "from 1048576" },
	{ "[daemon]\npool_size = 1G1\n", 2, "pool_size = 1G1" },
	{ "[daemon]\npool_size = 99999999999999999999999\n", 2, "must be a number" },
	{ "[daemon]\nlock = no\n", 2, "yes (refuse" },
	{ "[daemon]\nspin_usec = 1000001\n", 2, "0 to 1000000" },
	{ "[daemon]\nspin_usec = 1K\n", 2, "spin_usec = 1K" },
	{ "[daemon]\nspin = 1\n", 2, "no such key; there are socket, pool_size, client_pool_max" },
	{ "[store a]\nqueue_depth = 0\n", 2, "from 1 to 4096" },
	{ "[store a]\nqueue_depth = 4097\n", 2, "from 1 to 4096" },
	{ "[store a]\nblock_size = 65M\n", 2, "from 4096 to 67108864" },
	{ "[store a]\nsingle_submit = maybe\n", 2, "yes or no" },
	{ "[store a]\nintra_op_parallelism = 65\n", 2, "from 1 to 64" },
	{ "[store a]\nwindow_bytes = 1\n", 2, "from 65536" },
	{ "[store a]\ndevice = /dev/x\n", 2, "no such key; there are path" },
	{ "[store a/b]\npath = /\n", 2, "a/b" },
	{ "[store]\npath = /\n", 2, "[store NAME]" },
	{ "[stores]\npath = /\n", 2, "[store NAME]" },
	{ "path = /\n", 1, "[store NAME]" },
	{ "[daemon]\nspin_usec = 1\nhello\n", 3, "KEY = VALUE" },
	{ "[daemon\nspin_usec = 1\n", 1, "KEY = VALUE" },
};

START_TEST(a_mistake_is_told_with_file_line_value_and_what_is_allowed)
{
	char where[80];

	ck_assert_msg(read_text(mistakes[_i].text) == -EINVAL, "%s", mistakes[_i].text);
	(void)snprintf(where, sizeof(where), "%s:%d: ", path, mistakes[_i].line);
	ck_assert_msg(strncmp(error.text, where, strlen(where)) == 0, "%s", error.text);
	ck_assert_msg(strstr(error.text, mistakes[_i].why), "%s", error.text);
}
END_TEST

START_TEST(the_first_of_two_mistakes_is_told)
{
	ck_assert_int_eq(read_text("[daemon]\nspin_usec = x\nlock = y\nz\n"), -EINVAL);
	ck_assert_msg(strstr(error.text, ":2: [daemon] spin_usec = x"), "%s", error.text);
	ck_assert_int_eq(read_text("[daemon]\nz\nspin_usec = x\n"), -EINVAL);
	ck_assert_msg(strstr(error.text, ":2: must be"), "%s", error.text);
}
END_TEST

START_TEST(a_line_that_is_too_long_is_not_cut_in_two)
{
	char text[1000];

	(void)strcpy(text, "[store a]\npath = /");
	memset(text + strlen(text), 'x', 600);
	text[650] = 0;
	(void)strcpy(text + 617, "\n");
	ck_assert_int_eq(read_text(text), -EINVAL);
	ck_assert_msg(strstr(error.text, ":2: the line has more than"), "%s", error.text);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
	ck_assert_int_eq(config_read(&config, "/nonexistent/dsaiod.conf", &error), -ENOENT);
	ck_assert_msg(strstr(error.text, "/nonexistent/dsaiod.conf"), "%s", error.text);
}
END_TEST

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
	{ "a-name-of-thirty-two-characters-=/mnt", -EINVAL },
};

START_TEST(stores_of_the_command_line)
{
	ck_assert_msg(config_add_store(&config, options[_i].text, &error) == options[_i].want, "%s",
		      options[_i].text);
	ck_assert_uint_eq(config.n_stores, options[_i].want == 0);
}
END_TEST

START_TEST(a_store_of_the_command_line_has_the_default_profile)
{
	ck_assert_int_eq(config_add_store(&config, "t=/mnt/t", &error), 0);
	ck_assert_str_eq(config.stores[0].name, "t");
	ck_assert_str_eq(config.stores[0].path, "/mnt/t");
	ck_assert_uint_eq(config.stores[0].profile.block_size, 1u << 20);
	ck_assert_uint_eq(config.stores[0].profile.queue_depth, 128);
	ck_assert_int_eq(config_add_store(&config, "t=/mnt/u", &error), -EINVAL);
	ck_assert_int_eq(config_check(&config, &error), 0);
}
END_TEST

START_TEST(what_only_shows_together_is_checked)
{
	ck_assert_int_eq(config_check(&config, &error), 0);

	ck_assert_int_eq(read_text("[store a]\nqueue_depth = 1\n"), 0);
	ck_assert_int_eq(config_check(&config, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, "store a: has no path"), "%s", error.text);

	ck_assert_int_eq(read_text("[store a]\npath = /\nblock_size = 5000\n"), 0);
	ck_assert_int_eq(config_check(&config, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, "store a: profile: block_size 5000"), "%s", error.text);

	ck_assert_int_eq(read_text("[store a]\nblock_size = 4096\n[daemon]\npool_size = 1M\n"
				   "client_pool_max = 2M\n"),
			 0);
	ck_assert_int_eq(config_check(&config, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, "client_pool_max = 2097152"), "%s", error.text);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_defaults_are_those_of_the_manual);
	tcase_add_test(tcase, one_user_leaves_descriptors_for_others);
	tcase_add_test(tcase, a_whole_file_is_taken);
	tcase_add_test(tcase, a_clients_share_follows_the_pool);
	tcase_add_loop_test(tcase, a_mistake_is_told_with_file_line_value_and_what_is_allowed, 0,
			    N_ROWS(mistakes));
	tcase_add_test(tcase, the_first_of_two_mistakes_is_told);
	tcase_add_test(tcase, a_line_that_is_too_long_is_not_cut_in_two);
	tcase_add_test(tcase, a_file_that_is_not_there_is_named);
	tcase_add_loop_test(tcase, stores_of_the_command_line, 0, N_ROWS(options));
	tcase_add_test(tcase, a_store_of_the_command_line_has_the_default_profile);
	tcase_add_test(tcase, what_only_shows_together_is_checked);
}

SUITE("config", add_tests)
