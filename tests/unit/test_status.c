/*
 * Users, clients and stores in status.  Counters are set here: nothing moves on these channels.
 */
#include "daemon/control/status.h"
#include "tests/unit/control_session.h"

#include <unistd.h>

/* As in status.c. */
#define USERS_MAX 128u

static uint32_t store;
static struct channel *channel;
static Wire__StatusReply *reply;

static const Wire__StatusReply *ask(const struct session *asking, bool with_histograms)
{
	Wire__Status asked = WIRE__STATUS__INIT;

	asked.with_histograms = with_histograms;
	return reply = status_reply(asking, &asked);
}

static void setup(void)
{
	session_setup();
	store = control_store(session, control_file(session, 0, "f"));
	ck_assert_int_eq(
		control_channel(session, control_handle(session)->id, store, 8, false, &channel),
		0);
	metrics_add(&channel->metrics.write_bytes, 4096);
	metrics_add(&channel->metrics.writes, 1);
	metrics_add_latency(&channel->metrics, 3000);
}

static void teardown(void)
{
	control_teardown();
	(void)close(fd);
}

static void end_channel(void)
{
	struct handle *handle = id_table_get(
		&session->handles.handles,
		((struct session_channel *)channel->owner.arg)->handle->id);

	ck_assert_int_eq(
		session_handle_close(session, handle->id, control_call(session, 1, 0), &c.error),
		0);
	CONTROL_UNTIL(answers[1].is_done);
}

TEST(a_user_has_the_counters_of_open_channels_and_of_those_that_ended)
{
	const Wire__User *user = ask(session, false)->users[0];

	ck_assert_uint_eq(reply->n_users, 1);
	ck_assert_uint_eq(user->uid, getuid());
	ck_assert_uint_eq(user->clients, 1);
	ck_assert_uint_eq(user->counters->writes, 1);
	ck_assert_uint_eq(user->written_bytes, 4096);
	ck_assert_uint_eq(user->counters->n_latencies, 0);
	ck_assert_uint_eq(reply->clients[0]->written_bytes, 4096);
	end_channel();
	user = ask(session, false)->users[0];
	ck_assert_uint_eq(user->counters->writes, 1);
	ck_assert_uint_eq(user->written_bytes, 4096);
	ck_assert_uint_eq(reply->clients[0]->written_bytes, 4096);
	session->usage->earlier_bytes = 4;
	ck_assert_uint_eq(ask(session, false)->users[0]->written_bytes, 4100);
}

TEST(others_than_administrators_see_their_own_user)
{
	struct usage_user *other = usage_user(&c.service.usage, 4321);

	metrics_add(&other->ended.reads, 1);
	ck_assert_uint_eq(ask(session, false)->n_users, 2);
	session->peer.uid = 4321; /* neither root nor the daemon's own user */
	ck_assert_uint_eq(ask(session, false)->n_users, 1);
	ck_assert_uint_eq(reply->users[0]->uid, 4321);
	ck_assert_uint_eq(reply->users[0]->counters->reads, 1);
}

TEST(users_that_are_too_many_are_one_that_is_the_rest)
{
	for (uid_t uid = 5000; uid < 5000 + USERS_MAX + 2; uid++) {
		struct usage_user *user = usage_user(&c.service.usage, uid);

		user->n_clients++;
		metrics_add(&user->ended.reads, 1);
	}
	usage_user(&c.service.usage, 5000)->n_clients--;
	usage_user(&c.service.usage, 4999)->n_clients++; /* takes the place of 5000 */
	ck_assert_uint_eq(ask(session, false)->n_users, USERS_MAX + 1);
	ck_assert(!reply->users[USERS_MAX - 1]->is_rest);
	ck_assert(reply->users[USERS_MAX]->is_rest);
	/* 5000, whose entry has gone, and the last three */
	ck_assert_uint_eq(reply->users[USERS_MAX]->clients, 3);
	ck_assert_uint_eq(reply->users[USERS_MAX]->counters->reads, 3);
	ck_assert_ptr_null(reply->users[USERS_MAX]->limit);
	ck_assert_int_eq(usage_set_limit(&c.service.usage, 4999, &(struct rate_limit){ 1, 0 }), 0);
	ck_assert_ptr_nonnull(ask(session, false)->users[USERS_MAX]->limit);
	session->peer.uid = 4321;
	ck_assert_uint_eq(ask(session, false)->n_users, 0);
}

TEST(histograms_are_there_if_asked_for)
{
	struct store *s = registry_by_key(&c.service.registry, store);
	const Wire__Store *wire;

	metrics_add(&s->lane_store.metrics[SCHED_DEMAND].reads, 2);
	metrics_add_latency(&s->lane_store.metrics[SCHED_BACKGROUND], 1000);
	wire = ask(session, true)->stores[0];
	ck_assert_uint_eq(reply->users[0]->counters->n_latencies, METRICS_PLACES);
	ck_assert_uint_eq(reply->users[0]->counters->latencies[2], 1); /* 3000 nsec */
	/* That of the place: adding all buckets of all its channels took the main thread too long. */
	ck_assert_uint_eq(reply->users[0]->counters->latency_p99_nsec, 4095);
	ck_assert_uint_eq(wire->counters->reads, 2);
	ck_assert_uint_eq(wire->counters->latencies[0], 1);
	ck_assert_uint_eq(wire->n_classes, N_SCHED_CLASSES);
	for (size_t i = 0; i < wire->n_classes; i++) {
		const Wire__ClassCounters *one = wire->classes[i];

		ck_assert_uint_eq(one->counters->reads,
				  one->io_class == WIRE__CLASS__DEMAND ? 2 : 0);
		ck_assert_uint_eq(one->counters->latencies[0],
				  one->io_class == WIRE__CLASS__BACKGROUND);
	}
}

TEST(a_client_shows_its_library_and_since_when_it_is_there)
{
	ck_assert_str_eq(ask(session, false)->clients[0]->library, CONTROL_LIBRARY);
	session->connected_nsec -= 5000000;
	ck_assert_uint_ge(ask(session, false)->clients[0]->connected_usec, 5000);
}

TEST(what_a_store_that_has_gone_wrote_is_that_of_its_successor)
{
	struct store *s = registry_by_key(&c.service.registry, store);

	s->saved = saved_entry(&c.service.registry.saved, "name-x");
	metrics_add(&s->lane_store.metrics[SCHED_NORMAL].write_bytes, 77);
	s->saved->written_bytes = 100;
	ck_assert_uint_eq(ask(session, false)->stores[0]->written_bytes, 177);
	end_channel();
	session_end(session, false);
	CONTROL_UNTIL(!c.service.n_sessions);
	registry_sweep(&c.service.registry, UINT64_MAX);
	ck_assert_uint_eq(saved_entry(&c.service.registry.saved, "name-x")->written_bytes, 177);
}

FIXTURE(setup, teardown)
TEST_MAIN
