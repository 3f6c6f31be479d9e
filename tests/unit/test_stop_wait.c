/*
 * How long a stop waits for calls that hang: a store with counts, and calls that are recorded.
 */
#include "daemon/control/stop_wait.h"

#include "daemon/store/store.h"
#include "tests/unit/suite.h"

static struct store store;
static struct registry registry;
static struct stop_wait stop_wait;
static struct hung_call call;

static const struct hung_about import = { .what = "GPU import", .file = "f", .is_gpu = true };
static const struct hung_about transfer = {
	.what = "cuFileRead", .file = "f", .is_gpu = true, .is_block = true
};
static const struct hung_about close_call = { .what = "close", .file = "f", .fd = -1 };
static const struct hung_about fsync_call = {
	.what = "fsync", .file = "f", .fd = -1, .is_block = true
};

static void setup(void)
{
	store = (struct store){
		.lane_store.metrics[SCHED_NORMAL].open_ops = 1
	}; /* it waits behind a call */
	registry = (struct registry){ .config = NULL };
	stop_wait = (struct stop_wait){ .n_sec = 0 };
	list_push(&registry.stores, &store.node);
}

static void teardown(void)
{
	struct hung_counts counts;

	hung_count(&counts);
	ck_assert_uint_eq(counts.n_without_bytes + counts.n_with_bytes, 0);
}

/* The look that was the last one; 0: there were enough of them, and none was. */
static unsigned looks_until_over(void)
{
	for (unsigned n = 1; n <= 3 * STOP_WAIT_SEC; n++)
		if (stop_wait_is_over(&stop_wait, &registry))
			return n;
	return 0;
}

TEST(an_import_that_hangs_is_given_up)
{
	ck_assert_uint_eq(looks_until_over(), 0); /* there is nothing to wait for */
	hung_begin(&call, &import);
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_end(&call);
}

TEST(a_transfer_that_hangs_is_not_given_up)
{
	struct hung_call other;

	store.lane_store.metrics[SCHED_NORMAL].blocks_in_flight = 1;
	hung_begin(&call, &transfer);
	ck_assert_uint_eq(looks_until_over(), 0);
	hung_begin(&other, &import); /* nor then the import, which waits with it */
	ck_assert_uint_eq(looks_until_over(), 0);
	hung_end(&call);
	store.lane_store.metrics[SCHED_NORMAL].blocks_in_flight = 0;
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_end(&other);
}

TEST(a_close_that_hangs_is_given_up_alone_and_beside_an_import)
{
	struct hung_call file;

	hung_begin(&file, &close_call);
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_begin(&call, &import);
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_end(&call);
	hung_end(&file);
}

/* A user whose connections held descriptors with closes of 3 s each delayed a stop by some minutes. */
TEST_LOOP(calls_that_begin_and_end_are_waited_for_while_an_op_is_open, 2)
{
	unsigned n = 0;

	hung_begin(&call, &close_call);
	store.lane_store.metrics[SCHED_NORMAL].open_ops = _i == 0;
	do {
		hung_end(&call);
		hung_begin(&call, &close_call);
		n++;
	} while (!stop_wait_is_over(&stop_wait, &registry) && n <= 3 * STOP_WAIT_SEC);
	ck_assert_uint_eq(n, _i == 0 ? 1 + 3 * STOP_WAIT_SEC : 1 + STOP_WAIT_SEC);
	hung_end(&call);
}

TEST(a_call_of_a_file_system_that_moves_bytes_is_not_given_up)
{
	struct hung_call file;

	store.lane_store.metrics[SCHED_NORMAL].blocks_in_flight = 1;
	hung_begin(&call, &close_call);
	hung_begin(&file, &fsync_call);
	ck_assert_uint_eq(looks_until_over(), 0);
	hung_end(&file);
	store.lane_store.metrics[SCHED_NORMAL].blocks_in_flight = 0;
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_end(&call);
}

TEST(whatever_goes_on_begins_the_wait_anew)
{
	struct hung_call other;

	hung_begin(&call, &import);
	hung_begin(&other, &import);
	for (int i = 0; i < 3; i++) {
		for (unsigned n = 0; n < STOP_WAIT_SEC; n++)
			ck_assert(!stop_wait_is_over(&stop_wait, &registry));
		if (i == 0) { /* the number is the same */
			hung_end(&call);
			hung_begin(&call, &import);
		} else if (i == 1) {
			hung_end(&other);
		} else {
			store.lane_store.metrics[SCHED_NORMAL].blocks++;
		}
	}
	ck_assert_uint_eq(looks_until_over(), 1 + STOP_WAIT_SEC);
	hung_end(&call);
}

FIXTURE(setup, teardown)
TEST_MAIN
