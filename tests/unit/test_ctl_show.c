/* Replies of the daemon as cells and as JSON. */
#include "client/ctl/cmd/show.h"
#include "proto/profile.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

/* The one cell that add() made of the profile. */
static const char *profile_text(char *text, size_t size, const Wire__Profile *profile)
{
	_cleanup_(table_deinit) struct table table = { .columns = "" };

	show_profile(&table, profile);
	ck_assert_uint_eq(table.n_cells, 1);
	(void)snprintf(text, size, "%s", table.cells[0]);
	return text;
}

TEST(a_profile_tells_what_is_not_as_usual)
{
	Wire__Profile profile = WIRE__PROFILE__INIT;
	char text[128];

	profile.block_size = 1u << 20;
	profile.queue_depth = 128;
	profile.overlap_events = true;
	profile.intra_op_parallelism = 1;
	ck_assert_str_eq(profile_text(text, sizeof(text), &profile), "1 MiB x 128");
	profile.intra_op_parallelism = 4;
	profile.single_submit = true;
	profile.overlap_events = false;
	ck_assert_str_eq(profile_text(text, sizeof(text), &profile),
			 "1 MiB x 128 x 4 single sequential");
	profile.absent = PROFILE_BLOCK_SIZE | PROFILE_SINGLE_SUBMIT | PROFILE_OVERLAP_EVENTS;
	ck_assert_str_eq(profile_text(text, sizeof(text), &profile), "store's x 128 x 4");
	profile.absent = PROFILE_ALL & ~PROFILE_OVERLAP_EVENTS;
	ck_assert_str_eq(profile_text(text, sizeof(text), &profile),
			 "store's x store's sequential");
	ck_assert_str_eq(profile_text(text, sizeof(text), NULL), "store's");
}

TEST(counters_fill_their_columns_also_when_there_are_none)
{
	Wire__Counters counters = WIRE__COUNTERS__INIT;
	_cleanup_(table_deinit) struct table table = { .columns = "" };
	unsigned n = 1;

	for (const char *bar = SHOW_COUNTER_COLUMNS; (bar = strchr(bar, '|')); bar++)
		n++;
	ck_assert_uint_eq(n, SHOW_N_COUNTER_COLUMNS);
	show_counters(&table, NULL);
	ck_assert_uint_eq(table.n_cells, SHOW_N_COUNTER_COLUMNS);
	counters.read_bytes = 3u << 20;
	counters.latency_p99_nsec = 1500;
	show_counters(&table, &counters);
	ck_assert_uint_eq(table.n_cells, 2 * SHOW_N_COUNTER_COLUMNS);
	ck_assert_str_eq(table.cells[SHOW_N_COUNTER_COLUMNS + 2], "3 MiB");
	ck_assert_str_eq(table.cells[SHOW_N_COUNTER_COLUMNS + 7], "-"); /* no op yet */
	ck_assert_str_eq(table.cells[SHOW_N_COUNTER_COLUMNS + 8], "1.50 us");
}

#define N_TIMES 3u

static const struct {
	uint64_t queue, device, delivery;
	const char *cells[N_TIMES];
} times[] = {
	{ 0, 0, 0, { "-", "-", "-" } },
	{ 0, 30, 10, { "0.0%", "75.0%", "25.0%" } },
	{ 250, 750, 0, { "25.0%", "75.0%", "-" } },
	{ 0, 0, 5, { "0.0%", "0.0%", "100.0%" } },
};

TEST_TABLE(times_are_shares_of_all_that_is_known, times)
{
	Wire__Counters counters = WIRE__COUNTERS__INIT;
	_cleanup_(table_deinit) struct table table = { .columns = "" };

	counters.queue_nsec = times[_i].queue;
	counters.device_nsec = times[_i].device;
	counters.delivery_nsec = times[_i].delivery;
	show_counters(&table, &counters);
	for (unsigned i = 0; i < N_TIMES; i++)
		ck_assert_str_eq(table.cells[SHOW_N_COUNTER_COLUMNS - N_TIMES + i],
				 times[_i].cells[i]);
}

TEST(a_handles_number_is_its_place)
{
	Wire__Client client = WIRE__CLIENT__INIT;
	Wire__Handle handle = WIRE__HANDLE__INIT;
	_cleanup_(table_deinit) struct table table = { .columns = "" };

	client.client = 7;
	handle.handle = 65536 * 3 + 2;
	show_handle(&table, &client, &handle);
	ck_assert_str_eq(table.cells[0], "7/2");
}

/* Whether the JSON of the status has the text. */
static bool json_has(const Wire__StatusReply *status, const char *text)
{
	struct json_object *object = show_json(&status->base);
	bool has = strstr(json_object_to_json_string(object), text);

	(void)json_object_put(object);
	return has;
}

TEST(what_is_absent_is_null_in_json)
{
	Wire__StatusReply status = WIRE__STATUS_REPLY__INIT;
	Wire__Gpus gpus = WIRE__GPUS__INIT;

	ck_assert(json_has(&status, "\"pool\": null"));
	ck_assert(json_has(&status, "\"others\": null"));
	ck_assert(json_has(&status, "\"stores\": [ ]"));
	status.gpus = &gpus;
	ck_assert(json_has(&status, "\"problem\": null"));
	ck_assert(json_has(&status, "\"path\": \"auto\""));
	gpus.path = (Wire__GpuPath)99;
	ck_assert(json_has(&status, "\"path\": \"?\""));
}

TEST(json_did_not_say_that_clients_were_left_out)
{
	Wire__Client client = WIRE__CLIENT__INIT, *clients[] = { &client, &client };
	Wire__StatusReply status = WIRE__STATUS_REPLY__INIT;

	status.clients = clients;
	status.n_clients = 2;
	status.n_all_clients = 300;
	ck_assert(json_has(&status, "\"clients_total\": 300"));
	ck_assert(json_has(&status, "\"clients_shown\": 2"));
}

TEST(json_has_whole_numbers_and_ids)
{
	Wire__StatusReply status = WIRE__STATUS_REPLY__INIT;
	Wire__Client client = WIRE__CLIENT__INIT, *clients[] = { &client };
	Wire__Handle handle = WIRE__HANDLE__INIT, *handles[] = { &handle };
	Wire__Channel channel = WIRE__CHANNEL__INIT, *channels[] = { &channel };
	Wire__Hung hung = WIRE__HUNG__INIT, *hungs[] = { &hung };
	Wire__Counters counters = WIRE__COUNTERS__INIT;
	Wire__Profile profile = WIRE__PROFILE__INIT;

	handle.handle = 65536 * 3 + 2;
	handle.io_class = WIRE__CLASS__BACKGROUND;
	handle.profile = &profile;
	handle.channels = channels;
	handle.n_channels = 1;
	profile.queue_depth = 8;
	profile.overlap_events = true;
	profile.absent = PROFILE_BLOCK_SIZE | PROFILE_SINGLE_SUBMIT;
	channel.store = 9; /* of a store that has gone */
	channel.counters = &counters;
	counters.delivery_nsec = 5000000000;
	client.pool_bytes = UINT64_C(1) << 40;
	client.handles = handles;
	client.n_handles = 1;
	hung.usec = 35000000;
	hung.what = (char *)"close";
	status.clients = clients;
	status.n_clients = 1;
	status.hung = hungs;
	status.n_hung = 1;

	ck_assert(json_has(&status, "\"handle\": 196610"));
	ck_assert(json_has(&status, "\"pool_bytes\": 1099511627776"));
	ck_assert(json_has(&status, "\"class\": \"background\""));
	ck_assert(json_has(&status, "\"store_name\": \"\""));
	ck_assert(json_has(&status, "\"delivery_nsec\": 5000000000"));
	ck_assert(json_has(&status, "\"block_size\": null, \"queue_depth\": 8, "
				    "\"single_submit\": null, \"overlap_events\": true"));
	ck_assert(json_has(&status, "\"usec\": 35000000, \"what\": \"close\""));
	ck_assert(json_has(&status, "\"what_frees_it\": \"\""));
}

TEST(what_hangs_stands_there_with_what_frees_it)
{
	Wire__StatusReply status = WIRE__STATUS_REPLY__INIT;
	Wire__Hung hung = WIRE__HUNG__INIT, *hungs[] = { &hung };
	_cleanup_(freep) char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	show_hung(&status, out);
	ck_assert_int_eq(fflush(out), 0);
	ck_assert_str_eq(text, "");
	hung.uid = 1000;
	hung.usec = 35000000;
	hung.what = (char *)"close";
	hung.file = (char *)"/mnt/a\033[2J";
	hung.mount = (char *)"/mnt fuse.slow";
	hung.text = (char *)"echo 1 >abort";
	status.hung = hungs;
	status.n_hung = 1;
	show_hung(&status, out);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_str_eq(text,
			 "HUNG: calls that have not returned:\n"
			 " UID     FOR  WHAT   FILE           MOUNT           WHAT FREES IT\n"
			 "1000  35.0 s  close  /mnt/a\\x1b[2J  /mnt fuse.slow  echo 1 >abort\n"
			 "\n");
}

TEST_MAIN
