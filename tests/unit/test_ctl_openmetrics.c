#include "client/ctl/cmd/openmetrics.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static Wire__StatusReply status;
static Wire__Store store;
static Wire__User user;
static Wire__Counters counters;

static char *text_of(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	openmetrics_print(&status, out);
	ck_assert_int_eq(fclose(out), 0);
	return text;
}

static void has(const char *line)
{
	_cleanup_(freep) char *text = text_of();

	ck_assert_msg(strstr(text, line), "%s is not in: %s", line, text);
}

static void setup(void)
{
	static Wire__Store *stores[] = { &store };
	static Wire__User *users[] = { &user };
	static const Wire__StatusReply empty = WIRE__STATUS_REPLY__INIT;
	static const Wire__Store no_store = WIRE__STORE__INIT;
	static const Wire__User no_user = WIRE__USER__INIT;
	static const Wire__Counters no_counters = WIRE__COUNTERS__INIT;

	status = empty;
	store = no_store;
	user = no_user;
	counters = no_counters;
	store.counters = user.counters = &counters;
	status.stores = stores;
	status.users = users;
	status.n_stores = status.n_users = 1;
}

TEST(values_of_labels_cannot_end_the_label)
{
	store.name = (char *)(uintptr_t) "a\"b\\c\nd\x7f\xc3\xbc";
	has("dsaio_store_clients{store=\"a\\\"b\\\\c?d???\"} 0\n");
}

TEST(a_value_that_is_too_long_is_cut)
{
	char name[5000];

	memset(name, '"', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	store.name = name;
	has("\\\"\\\"\"} 0\n");
}

TEST(the_rest_of_the_users_has_a_name_of_its_own)
{
	user.is_rest = true;
	user.clients = 7;
	has("dsaio_user_clients{uid=\"rest\",user=\"others\"} 7\n");
	user.is_rest = false;
	user.uid = 4000000000u; /* nobody has it */
	has("dsaio_user_clients{uid=\"4000000000\",user=\"4000000000\"} 7\n");
}

TEST(buckets_are_sums_and_end_with_all)
{
	uint64_t latencies[] = { 1, 2, 3, 4, 5 };

	store.name = (char *)(uintptr_t) "t";
	counters.latencies = latencies;
	counters.n_latencies = 5;
	counters.latency_sum_nsec = 1000000001;
	has("dsaio_store_latency_seconds_bucket{store=\"t\",le=\"1.024e-06\"} 1\n"
	    "dsaio_store_latency_seconds_bucket{store=\"t\",le=\"4.096e-06\"} 6\n"
	    "dsaio_store_latency_seconds_bucket{store=\"t\",le=\"+Inf\"} 15\n"
	    "dsaio_store_latency_seconds_count{store=\"t\"} 15\n"
	    "dsaio_store_latency_seconds_sum{store=\"t\"} 1.000000001\n");
}

/* As another program may answer. */
TEST(what_lacks_counters_and_a_pool_is_left_out)
{
	_cleanup_(freep) char *text = NULL;

	store.counters = user.counters = NULL;
	text = text_of();
	ck_assert_ptr_null(strstr(text, "dsaio_store_clients{"));
	ck_assert_ptr_null(strstr(text, "\ndsaio_pool_size_bytes "));
	ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
}

FIXTURE(setup, NULL)
TEST_MAIN
