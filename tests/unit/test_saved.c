#include "daemon/account/usage.h"
#include "daemon/base/work_queue.h"
#include "daemon/store/saved.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char state[80];
static struct mailbox mailbox;
static struct saved saved;
static char note[1024];
static bool is_done;

static const struct profile profile = { .block_size = 8192,
					.queue_depth = 9,
					.single_submit = true,
					.overlap_events = false,
					.intra_op_parallelism = 3 };

static void setup(void)
{
	make_dir();
	(void)snprintf(state, sizeof(state), "%s/a/state", dir);
	ck_assert_int_eq(mailbox_init(&mailbox), 0);
	saved_init(&saved, state, &mailbox);
	ck_assert_int_eq(work_queue_new("saved", 1, &saved.work_queue), 0);
}

static void teardown(void)
{
	saved_deinit(&saved);
	mailbox_deinit(&mailbox);
	remove_dir();
}

static void restart(void)
{
	saved_deinit(&saved);
	saved_init(&saved, state, &mailbox);
	ck_assert_int_eq(work_queue_new("saved", 1, &saved.work_queue), 0);
}

static void on_done(void *arg, const char *why)
{
	ck_assert_ptr_eq(arg, &saved);
	ck_assert(!is_done);
	is_done = true;
	(void)snprintf(note, sizeof(note), "%s", why);
}

/* Sets it and waits until it is on the disk, or not. */
static bool set_all(const char *key, const struct saved_settings *what)
{
	const struct saved_change change = { .entry = saved_entry(&saved, key),
					     .title = "store nvme0",
					     .what = "profile",
					     .until = "now",
					     .is_set = what->has_profile,
					     .settings = *what,
					     .on_done = on_done,
					     .arg = &saved };
	struct pollfd pollfd = { .fd = mailbox.event_fd, .events = POLLIN };

	is_done = false;
	saved_set(&saved, &change);
	while (!is_done) {
		ck_assert_int_ge(poll(&pollfd, 1, 60000), 0);
		(void)mailbox_run(&mailbox);
	}
	return !note[0];
}

static bool set(const char *key, const struct profile *what)
{
	struct saved_settings settings = { .has_profile = what };

	if (what)
		settings.profile = *what;
	return set_all(key, &settings);
}

static const struct saved_settings *find_all(const char *key)
{
	const struct saved_entry *entry = saved_entry(&saved, key);

	return entry && entry->is_there ? &entry->settings : NULL;
}

static const struct profile *find(const char *key)
{
	const struct saved_settings *found = find_all(key);

	return found ? &found->profile : NULL;
}

static char *path_of(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", state, name);
	return path;
}

static void file_put(const char *name, const char *text)
{
	_cleanup_(fclosep) FILE *file = NULL;

	file = fopen(path_of(name), "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
}

static void mkdirs(void)
{
	char parent[80];

	(void)snprintf(parent, sizeof(parent), "%s/a", dir);
	ck_assert_int_eq(mkdir(parent, 0755), 0);
	ck_assert_int_eq(mkdir(state, 0755), 0);
}

TEST(a_profile_is_kept_across_a_restart_until_it_is_reset)
{
	ck_assert_ptr_null(find("uuid-1"));
	ck_assert_msg(set("uuid-1", &profile), "%s", note);
	ck_assert_ptr_nonnull(find("uuid-1"));
	restart();
	ck_assert_ptr_nonnull(find("uuid-1"));
	ck_assert_uint_eq(find("uuid-1")->block_size, 8192);
	ck_assert_uint_eq(find("uuid-1")->queue_depth, 9);
	ck_assert(find("uuid-1")->single_submit);
	ck_assert(!find("uuid-1")->overlap_events);
	ck_assert_uint_eq(find("uuid-1")->intra_op_parallelism, 3);
	ck_assert_ptr_null(find("uuid-2"));
	ck_assert(set("uuid-1", NULL));
	ck_assert_ptr_null(find("uuid-1"));
	ck_assert_int_ne(access(path_of("uuid-1.conf"), F_OK), 0);
	restart();
	ck_assert_ptr_null(find("uuid-1"));
	ck_assert(set("uuid-1", NULL)); /* again: nothing to do */
}

TEST(limits_and_drains_are_kept_beside_a_profile)
{
	const struct saved_settings *found;

	ck_assert(set_all("uuid-1",
			  &(struct saved_settings){ .has_profile = true,
						    .profile = profile,
						    .limit = { .bytes_per_sec = 500 << 20 } }));
	ck_assert(set_all("uuid-2", &(struct saved_settings){ .is_drained = true }));
	ck_assert(set_all("uuid-3", &(struct saved_settings){ .limit = { .ops_per_sec = 7 } }));
	restart();
	found = find_all("uuid-1");
	ck_assert(found && found->has_profile && !found->is_drained);
	ck_assert_uint_eq(found->profile.queue_depth, 9);
	ck_assert_uint_eq(found->limit.bytes_per_sec, 500 << 20);
	ck_assert_uint_eq(found->limit.ops_per_sec, 0);
	found = find_all("uuid-2");
	ck_assert(found && !found->has_profile && found->is_drained);
	ck_assert(!rate_limit_is_set(&found->limit));
	found = find_all("uuid-3");
	ck_assert(found && !found->is_drained);
	ck_assert_uint_eq(found->limit.ops_per_sec, 7);
	ck_assert(set_all("uuid-3", &(struct saved_settings){ 0 }));
	ck_assert_int_ne(access(path_of("uuid-3.conf"), F_OK), 0);
}

TEST(users_are_found_among_stores)
{
	const struct saved_settings limited = { .limit = { .ops_per_sec = 10 } };
	char key[SAVED_KEY_BYTES];
	struct usage usage = { 0 };

	ck_assert(set_all("uuid-1", &limited));
	(void)snprintf(key, sizeof(key), SAVED_USER_KEY, 1000u);
	ck_assert(set_all(key, &limited));
	ck_assert(set_all("user-2", &limited));
	ck_assert(set_all("user-5", &(struct saved_settings){ 0 }));
	restart();
	ck_assert_int_eq(saved_limit_users(&saved, &usage), 0);
	ck_assert_uint_eq(usage.n_users, 2);
	ck_assert_uint_eq(limiter_get(&usage_user(&usage, 1000)->limiter).ops_per_sec, 10);
	ck_assert_uint_eq(limiter_get(&usage_user(&usage, 2)->limiter).ops_per_sec, 10);
	usage_deinit(&usage);
}

TEST(to_reset_what_was_never_kept_makes_no_directory)
{
	ck_assert(set("uuid-1", NULL));
	ck_assert_int_ne(access(state, F_OK), 0);
}

TEST(the_last_of_several_settings_is_what_stays)
{
	struct profile other = profile;

	for (unsigned i = 1; i <= 20; i++) {
		other.queue_depth = i;
		ck_assert(set("uuid-1", &other));
	}
	restart();
	ck_assert_uint_eq(find("uuid-1")->queue_depth, 20);
}

static const struct {
	const char *what, *text;
} damages[] = {
	{ "empty", "" },
	{ "cut", "[profile]\nblock_size = 8192\nqueue_depth = 9\n" },
	{ "no file of ours", "hello\n" },
	{ "out of range",
	  "[profile]\nblock_size = 1\nqueue_depth = 9\nsingle_submit = no\noverlap_events = no\n"
	  "intra_op_parallelism = 1\n" },
};

TEST_TABLE(a_damaged_file_is_ignored_and_put_aside_when_one_is_set, damages)
{
	struct stat st;

	mkdirs();
	file_put("uuid-1.conf", damages[_i].text);
	restart();
	ck_assert_ptr_null(find("uuid-1"));
	ck_assert_int_eq(stat(path_of("uuid-1.conf"), &st), 0); /* left as it is */
	ck_assert_uint_eq((size_t)st.st_size, strlen(damages[_i].text));

	ck_assert(set("uuid-1", &profile));
	ck_assert_int_eq(stat(path_of("uuid-1.conf.damaged"), &st), 0);
	ck_assert_uint_eq((size_t)st.st_size, strlen(damages[_i].text));
	restart();
	ck_assert_ptr_nonnull(find("uuid-1"));
}

TEST(what_else_lies_there_is_passed_over)
{
	mkdirs();
	file_put(".uuid-1.tmp", "x");
	file_put("README", "x");
	file_put(".conf", "x");
	file_put("uuid-2.conf.damaged", "x");
	ck_assert_int_eq(mkdir(path_of("uuid-3.conf"), 0755), 0);
	ck_assert_int_eq(mkfifo(path_of("uuid-4.conf"), 0644), 0);
	ck_assert_int_eq(symlink("/dev/zero", path_of("uuid-5.conf")), 0);
	restart();
	for (unsigned i = 1; i <= 5; i++) {
		const char name[] = { 'u', 'u', 'i', 'd', '-', (char)('0' + i), 0 };

		ck_assert_ptr_null(find(name));
	}
	ck_assert(set("uuid-1", &profile)); /* over what a dead daemon left */
}

TEST(a_directory_that_can_not_be_written_is_reported_and_the_profile_holds)
{
	char parent[80];
	int fd;

	/* A file in its place stops root, too. */
	(void)snprintf(parent, sizeof(parent), "%s/a", dir);
	fd = open(parent, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	closep(&fd);
	ck_assert(!set("uuid-1", &profile));
	ck_assert_msg(strstr(note, state) &&
			      strstr(note, "store nvme0: the profile is not saved: ") &&
			      strstr(note, "; it lasts until now"),
		      "%s", note);
	ck_assert_ptr_nonnull(find("uuid-1"));
}

TEST(a_removal_that_fails_is_reported_as_that)
{
	mkdirs();
	ck_assert_int_eq(mkdir(path_of("uuid-1.conf"), 0755), 0);
	ck_assert(!set("uuid-1", NULL));
	ck_assert_msg(strstr(note, "the removal of the profile is not saved: "), "%s", note);
}

TEST(there_are_not_too_many_entries)
{
	char key[16];

	ck_assert_ptr_null(saved_entry(&saved, ""));
	for (unsigned i = 0; i < 5000; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		ck_assert((saved_entry(&saved, key) != NULL) == (i < 4096));
	}
	ck_assert_ptr_eq(saved_entry(&saved, "7"), saved_entry(&saved, "7"));
}

TEST(keys_are_file_names)
{
	static const uint8_t uuid[16] = {
		0x6b, 0x2f, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff
	};
	char key[SAVED_KEY_BYTES];

	saved_key_by_uuid(uuid, key);
	ck_assert_str_eq(key, "uuid-6b2f0001-0203-0405-0607-08090a0b0cff");
	saved_key_by_name("t.0_a-b", key);
	ck_assert_str_eq(key, "name-t.0_a-b");
	saved_key_by_name("../x/y", key);
	ck_assert_str_eq(key, "name-.._x_y");
	ck_assert(!saved_key_by_device(0, false, key));
	ck_assert(!saved_key_by_device(0, true, key));
}

FIXTURE(setup, teardown)
TEST_MAIN
