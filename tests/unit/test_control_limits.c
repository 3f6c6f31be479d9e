/*
 * Limits that an administrator sets: on what they are, for how long, and what is said if they cannot be saved.
 */
#include "daemon/control/limits.h"

#include "tests/unit/control_session.h"
#include "tests/unit/journal.h"

static struct {
	unsigned n;
	int result;
	char note[1024];
} limited;

static Wire__LimitSet set;
static Wire__Limit limit;

static void setup(void)
{
	session_setup();
	limited.n = 0;
	wire__limit_set__init(&set);
	wire__limit__init(&limit);
	limit.bytes_per_sec = 1000;
	limit.ops_per_sec = 7;
	set.limit = &limit;
	c.service.registry.saved.dir = NULL; /* as without a state_dir: nothing is written */
}

static void on_done(struct call *call, int result, const struct error *error)
{
	limited.n++;
	limited.result = result;
	ck_assert((result < 0) == (error != NULL));
	(void)snprintf(limited.note, sizeof(limited.note), "%s", call->note);
	call_free(call);
}

static int ask(void)
{
	struct call *call = control_call(session, 10, 'l');
	int r;

	call->on_done = on_done;
	r = session_limit_set(session, &set, call, &c.error);

	if (r < 0)
		call_free(call);
	else
		ck_assert_uint_eq(limited.n, 1);
	return r;
}

TEST(the_limit_of_a_client_holds_for_all_its_channels)
{
	const uint32_t file = control_file(session, 0, "f"), store = control_store(session, file);
	struct channel *channels[2];

	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(control_channel(session, control_handle(session)->id, store, 8,
						 false, &channels[i]),
				 0);
	set.client = session->id;
	set.weight = 5;
	ck_assert_int_eq(ask(), 0);
	ck_assert_int_eq(limited.result, 0);
	ck_assert_str_eq(limited.note, "");
	ck_assert_uint_eq(limiter_get(&session->limiter).bytes_per_sec, 1000);
	ck_assert_uint_eq(limiter_get(&session->limiter).ops_per_sec, 7);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_ptr_eq(channels[i]->admit.limiters[0], &session->usage->limiter);
		ck_assert_ptr_eq(channels[i]->admit.limiters[1], &session->limiter);
		ck_assert_uint_eq(channels[i]->admit.queue.weight, 5);
	}
	ck_assert_int_eq(control_channel(session, control_handle(session)->id, store, 8, false,
					 &channels[0]),
			 0);
	ck_assert_uint_eq(channels[0]->admit.queue.weight, 5);
	set.limit = NULL; /* stays */
	set.weight = 2;
	limited.n = 0;
	ck_assert_int_eq(ask(), 0);
	ck_assert_uint_eq(channels[1]->admit.queue.weight, 2);
	ck_assert_uint_eq(limiter_get(&session->limiter).ops_per_sec, 7);
}

TEST(a_client_that_is_not_there_has_none)
{
	set.client = session->id + 1;
	ck_assert_int_eq(ask(), -ESRCH);
	ck_assert_uint_eq(limited.n, 0);
}

TEST(the_limit_of_a_user_holds_though_it_cannot_be_saved)
{
	set.has_uid = true;
	set.uid = session->user->uid;
	ck_assert_int_eq(ask(), 0);
	ck_assert_int_eq(limited.result, 0);
	ck_assert_msg(strstr(limited.note, "the limit is not saved: there is no state_dir"), "%s",
		      limited.note);
	ck_assert_uint_eq(limiter_get(&session->usage->limiter).bytes_per_sec, 1000);
	limit.bytes_per_sec = limit.ops_per_sec = 0;
	limited.n = 0;
	ck_assert_int_eq(ask(), 0);
	ck_assert_str_eq(limited.note, ""); /* nothing is to be saved */
	ck_assert(!limiter_is_limited(&session->usage->limiter));
}

TEST(the_limit_of_a_store_is_its_lanes)
{
	const uint32_t file = control_file(session, 0, "f");
	const struct store *store = registry_by_key(&c.service.registry,
						    control_store(session, file));

	set.store = store->name;
	ck_assert_int_eq(ask(), 0);
	ck_assert_int_eq(limited.result, 0);
	ck_assert_msg(strstr(limited.note, "the limit is not saved"), "%s", limited.note);
	ck_assert_uint_eq(limiter_get(&store->lane_store.limiter).bytes_per_sec, 1000);
	set.store = (char[]){ "nosuch" };
	ck_assert_int_eq(ask(), -ENXIO);
}

TEST(the_journal_names_what_is_limited)
{
	const struct store *store = registry_by_key(
		&c.service.registry, control_store(session, control_file(session, 0, "f")));
	char fields[128];

	journal_take();
	set.client = session->id;
	ck_assert_int_eq(ask(), 0);
	ck_assert_msg(strncmp(journal_text, "MESSAGE=client 1 (pid ", 22) == 0, "%s", journal_text);
	(void)snprintf(fields, sizeof(fields),
		       "limited\nDSAIO_CLIENT_UID=%u\nDSAIO_CLIENT_PID=%d\nDSAIO_CLIENT=%u",
		       getuid(), session->peer.pid, session->id);
	ck_assert_msg(journal_has("5", fields), "%s", journal_text);
	set.client = 0;
	limited.n = 0;
	set.has_uid = true;
	set.uid = 4321;
	ck_assert_int_eq(ask(), 0);
	ck_assert_msg(journal_has("5", "limited\nDSAIO_CLIENT_UID=4321"), "%s", journal_text);
	set.has_uid = false;
	limited.n = 0;
	set.store = store->name;
	ck_assert_int_eq(ask(), 0);
	(void)snprintf(fields, sizeof(fields), "limited\nDSAIO_STORE=%s", store->name);
	ck_assert_msg(journal_has("5", fields), "%s", journal_text);
}

FIXTURE(setup, session_teardown)
TEST_MAIN
