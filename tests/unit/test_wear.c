#include "daemon/control/wear.h"
#include "tests/unit/control_session.h"

#include <sys/stat.h>
#include <unistd.h>

static struct wear wear;
static char state[100], path[120];

static void start(const char *state_dir)
{
	free(c.config.state_dir);
	ck_assert_ptr_nonnull(c.config.state_dir = strdup(state_dir));
	c.service.registry.saved.dir = c.config.state_dir;
	ck_assert_int_eq(wear_init(&wear, &c.service), 0);
}

static void setup(void)
{
	session_setup();
	(void)snprintf(state, sizeof(state), "%s/state", dir);
	(void)snprintf(path, sizeof(path), "%s/wear.ini", state);
	start(state);
}

static void teardown(void)
{
	wear_deinit(&wear);
	session_teardown();
}

static void wrote(uint64_t bytes)
{
	metrics_add(&session->usage->ended.write_bytes, bytes);
}

/* Saves, and waits for it: the work queue has one thread. */
static void save(void)
{
	struct work_queue *queue;

	wear_save(&wear);
	work_queue_free(c.service.registry.saved.work_queue);
	ck_assert_int_eq(work_queue_new("saved", 1, &queue), 0);
	c.service.registry.saved.work_queue = queue;
	(void)mailbox_run(&c.mailbox);
}

/* As the next daemon reads it. */
static void restart(struct usage *ret_usage, struct saved *ret_saved)
{
	FILE *file = fopen(path, "re");

	ck_assert_ptr_nonnull(file);
	*ret_usage = (struct usage){ 0 };
	*ret_saved = (struct saved){ 0 };
	ck_assert(wear_read(file, path, ret_usage, ret_saved));
	(void)fclose(file);
}

TEST(the_next_daemon_goes_on_counting)
{
	struct saved next_saved;
	struct usage next;

	wrote(5);
	saved_entry(&c.service.registry.saved, "uuid-a")->written_bytes = 7;
	c.service.usage.n_crashes = 2;
	c.service.usage.since_sec = 1234567;
	c.service.usage.rest.earlier_bytes = 9;
	save();
	restart(&next, &next_saved);
	ck_assert_uint_eq(usage_user(&next, getuid())->earlier_bytes, 5);
	ck_assert_uint_eq(saved_entry(&next_saved, "uuid-a")->written_bytes, 7);
	ck_assert_uint_eq(next.n_crashes, 2);
	ck_assert_uint_eq(next.since_sec, 1234567);
	ck_assert_uint_eq(next.rest.earlier_bytes, 9);
	usage_deinit(&next);
	saved_deinit(&next_saved);
}

TEST(channels_and_stores_that_are_there_are_counted)
{
	uint32_t store = control_store(session, control_file(session, 0, "f"));
	struct store *s = registry_by_key(&c.service.registry, store);
	struct channel *channel;
	struct saved next_saved;
	struct usage next;

	s->saved = saved_entry(&c.service.registry.saved, "name-x");
	ck_assert_int_eq(
		control_channel(session, control_handle(session)->id, store, 8, false, &channel),
		0);
	metrics_add(&channel->metrics.write_bytes, 40);
	metrics_add(&s->lane_store.metrics[SCHED_NORMAL].write_bytes, 40);
	wrote(2);
	save();
	restart(&next, &next_saved);
	ck_assert_uint_eq(saved_entry(&next_saved, "name-x")->written_bytes, 40);
	ck_assert_uint_eq(usage_user(&next, getuid())->earlier_bytes, 42);
	usage_deinit(&next);
	saved_deinit(&next_saved);
}

TEST(without_a_change_nothing_is_written)
{
	save();
	ck_assert_int_ne(access(path, F_OK), 0);
	wrote(1);
	save();
	ck_assert_int_eq(unlink(path), 0);
	save();
	ck_assert_int_ne(access(path, F_OK), 0);
	wrote(1);
	save();
	ck_assert_int_eq(access(path, F_OK), 0);
}

TEST(what_could_not_be_written_is_tried_again)
{
	ck_assert_int_eq(symlink("/dev/null", state), 0);
	wrote(1);
	save();
	ck_assert(wear.has_failed);
	ck_assert_int_eq(unlink(state), 0);
	save();
	ck_assert(!wear.has_failed);
	ck_assert_int_eq(access(path, F_OK), 0);
}

TEST(without_a_directory_nothing_is_saved)
{
	wear_deinit(&wear);
	wear_save(&wear);
	start("/dev/null/x");
	ck_assert_uint_gt(c.service.usage.since_sec, 0);
}

TEST(what_follows_a_damaged_line_is_left_out)
{
	static const char text[] =
		"since = 5\nuser-7 = 8\nuser-4294967295 = 18446744073709551615\nuuid-a = 1\n"
		"rest = 3\nuuid-b = x\nuuid-c = 1\n";
	struct usage *usage = &c.service.usage;
	FILE *file;

	wear_deinit(&wear);
	ck_assert_int_eq(mkdir(state, 0700), 0);
	ck_assert_ptr_nonnull(file = fopen(path, "we"));
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	start(state);
	ck_assert_uint_eq(usage->since_sec, 5);
	ck_assert_uint_eq(usage_user(usage, 7)->earlier_bytes, 8);
	ck_assert_uint_eq(usage->n_users, 3); /* with this one */
	ck_assert_uint_eq(c.service.registry.saved.n_entries, 1);
	ck_assert_uint_eq(saved_entry(&c.service.registry.saved, "uuid-a")->written_bytes, 1);
	ck_assert_uint_eq(usage->rest.earlier_bytes, 3);
	wrote(1);
	save();
	(void)strcat(path, ".damaged"); /* for people */
	ck_assert_int_eq(access(path, F_OK), 0);
	wrote(1);
	ck_assert_int_eq(unlink(path), 0);
	save();
	ck_assert_int_ne(access(path, F_OK), 0); /* once */
}

TEST(a_file_that_cannot_be_opened_is_reported)
{
	wear_deinit(&wear);
	ck_assert_int_eq(mkdir(state, 0700), 0);
	ck_assert_int_eq(symlink(path, path), 0);
	start(state);
	ck_assert_uint_eq(c.service.usage.n_users, 1);
}

TEST(a_fifo_does_not_hang_the_start)
{
	wear_deinit(&wear);
	ck_assert_int_eq(mkdir(state, 0700), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	start(state);
	ck_assert_uint_eq(c.service.usage.n_users, 1);
}

TEST(a_file_that_cannot_be_read_is_reported)
{
	wear_deinit(&wear);
	ck_assert_int_eq(mkdir(state, 0700), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	start(state);
	ck_assert_uint_eq(c.service.usage.n_users, 1);
}

FIXTURE(setup, teardown)
TEST_MAIN
