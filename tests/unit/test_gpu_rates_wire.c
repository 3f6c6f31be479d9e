/*
 * A user sees the rates that this user measured, of stores that serve this user; an administrator sees all.
 */
#include "daemon/control/gpu_rates_wire.h"

#include "daemon/control/status.h"
#include "tests/unit/control_probe.h"

#define STRANGER 4321 /* neither root nor the daemon's own user */

static Wire__StatusReply *status(void)
{
	static const Wire__Status asked = WIRE__STATUS__INIT;
	Wire__StatusReply *reply = calloc(1, sizeof(*reply));

	ck_assert_ptr_nonnull(reply);
	wire__status_reply__init(reply);
	ck_assert_int_eq(status_to_wire(session, &asked, reply), 0);
	ck_assert_ptr_nonnull(reply->gpus);
	return reply;
}

START_TEST(a_user_sees_what_this_user_measured_and_an_administrator_all)
{
	Wire__StatusReply *reply;

	c.config.engine = GPU_ENGINE_GDS; /* then status tells about GPUs, although there is none */
	for (uid_t uid = STRANGER - 1; uid <= STRANGER + 1; uid++)
		ck_assert_ptr_nonnull(gpu_rates_get(&c.service.gpu_rates, uid, "store", "GPU-0"));
	reply = status();
	ck_assert_uint_eq(reply->gpus->n_measured, 3);
	wire__status_reply__free_unpacked(reply, NULL);

	session->peer.uid = STRANGER;
	reply = status();
	ck_assert_uint_eq(reply->gpus->n_measured, 1);
	ck_assert_uint_eq(reply->gpus->measured[0]->uid, STRANGER);
	wire__status_reply__free_unpacked(reply, NULL);
}
END_TEST

START_TEST(rates_of_a_store_are_for_those_whom_it_serves)
{
	static uid_t users[] = { STRANGER + 1 };
	uint8_t uuid[16] = { 0 };
	Wire__GpuRates wire = WIRE__GPU_RATES__INIT;
	const struct gpu_rates_row *row = NULL;
	struct store *store;

	probe_start(GPU_PROBE_MSEC);
	wire.store = control_store(session, control_file(session, 1, "f"));
	wire.uuid.data = uuid;
	wire.uuid.len = sizeof(uuid);
	store = list_entry(c.service.registry.stores.first, struct store, node);
	ck_assert_uint_eq(store->id, wire.store);
	session->peer.uid = STRANGER;
	ck_assert_int_eq(session_gpu_rates(session, &wire, &row, &c.error), -ENODEV); /* served */
	store->access = (struct access){ .users = users,
					 .n_users = 1,
					 .text = (char *)"users alice" };
	ck_assert_int_eq(session_gpu_rates(session, &wire, &row, &c.error), -EACCES);
	ck_assert_msg(strstr(c.error.text, "does not serve user 4321"), "%s", c.error.text);
	ck_assert_ptr_null(row);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, session_setup, probe_teardown);
	tcase_add_test(tcase, a_user_sees_what_this_user_measured_and_an_administrator_all);
	tcase_add_test(tcase, rates_of_a_store_are_for_those_whom_it_serves);
}

SUITE("gpu_rates_wire", add_tests)
