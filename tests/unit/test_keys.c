#include "daemon/config/keys.h"

#include "daemon/config/config.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"
#include "tests/unit/file_text.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static struct error error;

static void *object_of(const struct key *key, struct config *config, struct store_config *store)
{
	static struct saved_settings saved;

	if (key->section == KEYS_SAVED)
		return &saved;
	return key->section == KEYS_DAEMON ? (void *)config : (void *)store;
}

TEST(each_key_takes_its_default_and_its_example)
{
	struct config config = { 0 };
	struct store_config store = { .profile = PROFILE_DEFAULT };
	const struct key *key;

	for (unsigned i = 0; (key = key_at(i)); i++) {
		void *object = object_of(key, &config, &store);

		ck_assert_uint_eq(key_index(key), i);
		ck_assert_msg(key->preset || key->example, "%s: the sample lacks it", key->name);
		if (key->preset)
			ck_assert_msg(key_set(key, object, key->preset, &error) == 0, "%s: %s",
				      key->name, error.text);
		if (key->example)
			ck_assert_msg(key_set(key, object, key->example, &error) == 0, "%s: %s",
				      key->name, error.text);
	}
	free((char *)(uintptr_t)store.path);
	free(store.rados.conf);
	free(store.rados.user);
	access_deinit(&store.access);
	config_deinit(&config);
}

TEST(a_stores_default_profile_is_that_of_a_handle)
{
	const struct profile want = PROFILE_DEFAULT;
	struct store_config store = { .profile = { 4096, 7, true, false, 2 } };
	const struct key *key;

	for (unsigned i = 0; (key = key_at(i)); i++)
		if (key->section == KEYS_PROFILE)
			ck_assert_int_eq(key_set(key, &store, key->preset, &error), 0);
	ck_assert_uint_eq(store.profile.block_size, want.block_size);
	ck_assert_uint_eq(store.profile.queue_depth, want.queue_depth);
	ck_assert_uint_eq(store.profile.single_submit, want.single_submit);
	ck_assert_uint_eq(store.profile.overlap_events, want.overlap_events);
	ck_assert_uint_eq(store.profile.intra_op_parallelism, want.intra_op_parallelism);
}

TEST(a_section_has_its_own_keys)
{
	ck_assert_ptr_nonnull(key_find(KEYS_DAEMON, "spin_usec", &error));
	ck_assert_ptr_ne(key_find(KEYS_DAEMON, "spin_usec", &error),
			 key_find(KEYS_STORE, "spin_usec", &error));
	ck_assert_ptr_nonnull(key_find(KEYS_STORE, "block_size", &error));
	ck_assert_ptr_nonnull(key_find(KEYS_PROFILE, "block_size", &error));
	ck_assert_ptr_null(key_find(KEYS_PROFILE, "path", &error));
	ck_assert_str_eq(error.text, "no such key; there are block_size, queue_depth, "
				     "single_submit, overlap_events, intra_op_parallelism");
	ck_assert_ptr_null(key_find(KEYS_DAEMON, "block_size", &error));
	ck_assert_ptr_null(key_find(KEYS_DAEMON, "", &error));
	ck_assert_msg(strstr(error.text, ", user_clients"), "%s", error.text); /* none is cut */
}

TEST(a_refused_value_changes_nothing)
{
	struct store_config store = { .profile = PROFILE_DEFAULT, .spin_usec = 3 };

	ck_assert_int_eq(
		key_set(key_find(KEYS_STORE, "spin_usec", &error), &store, "9999999", &error),
		-EINVAL);
	ck_assert_int_eq(key_set(key_find(KEYS_STORE, "spin_usec", &error), &store, "", &error),
			 -EINVAL);
	ck_assert_uint_eq(store.spin_usec, 3);
	ck_assert_int_eq(
		key_set(key_find(KEYS_STORE, "block_size", &error), &store, "5000", &error),
		-EINVAL);
	ck_assert_msg(strstr(error.text, "multiple of 512"), "%s", error.text);
	ck_assert_uint_eq(store.profile.block_size, 1u << 20);
}

TEST(the_manual_has_each_keys_meaning_and_default)
{
	_cleanup_(freep) char *text = file_text("man/dsaiod.conf.5");
	const struct key *key;
	const char *at = text;

	for (unsigned i = 0; (key = key_at(i)); i++) {
		const char *end, *preset;
		char start[300];

		if (key->section == KEYS_SAVED) /* the daemon writes them */
			continue;
		(void)snprintf(start, sizeof(start), "\n.It Cm %s\n%s\n", key->name, key->meaning);
		at = strstr(at, start); /* in the table's order */
		ck_assert_msg(at, "the manual lacks, or has in another place:%s", start);
		at += strlen(start) - 1;
		end = strstr(at, "\n.It Cm ");
		if (!key->preset || key->section == KEYS_STORE)
			continue;
		preset = strstr(at, "Default:");
		ck_assert_msg(preset && (!end || preset < end), "%s: no default", key->name);
		preset = strstr(preset, key->preset);
		ck_assert_msg(preset && (!end || preset < end), "%s: another default", key->name);
	}
}

/* config_set_user() has the values of --user. */
TEST(the_sample_of_a_users_own_daemon_had_the_services_values)
{
	_cleanup_(freep) char *sample = NULL;
	struct config config;
	char line[80];
	size_t size;
	FILE *file = open_memstream(&sample, &size);

	ck_assert_ptr_nonnull(file);
	keys_print(file, true);
	(void)fclose(file);
	ck_assert_int_eq(config_init(&config), 0);
	config_set_user(&config);
	(void)snprintf(line, sizeof(line), "\n;idle_exit_sec = %u\n", config.idle_exit_sec);
	ck_assert_ptr_nonnull(strstr(sample, line));
	(void)snprintf(line, sizeof(line), "\n;lock = %s\n",
		       config.lock == POOL_LOCK_AUTO ? "auto" : "yes");
	ck_assert_ptr_nonnull(strstr(sample, line));
	ck_assert_ptr_null(strstr(sample, SOCKET_SYSTEM));
	ck_assert_ptr_null(strstr(sample, "/var/lib/dsaiod"));
	config_deinit(&config);
}

TEST(the_installed_configuration_is_the_sample)
{
	_cleanup_(freep) char *text = file_text("systemd/dsaiod.conf"), *sample = NULL;
	size_t size;
	FILE *file = open_memstream(&sample, &size);

	ck_assert_ptr_nonnull(file);
	keys_print(file, false);
	(void)fclose(file);
	ck_assert_msg(strcmp(text, sample) == 0,
		      "make it anew: build/dsaiod --sample-config >systemd/dsaiod.conf");
}

TEST_MAIN
