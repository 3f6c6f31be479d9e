/* rates: differences of two replies, by id, whatever was restarted in between. */
#include "client/ctl/cmd/overview.h"
#include "client/ctl/cmd/rates.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A reply with a store 1 and a client 7, with a channel 65537 there. */
struct look {
	Wire__StatusReply reply;
	Wire__Store store, *stores[1];
	Wire__Client client, *clients[1];
	Wire__Handle handle, *handles[1];
	Wire__Channel channel, *channels[1];
	Wire__Counters of_store, of_channel;
	uint64_t latencies[8];
};

static void look_init(struct look *look, uint64_t uptime_usec)
{
	*look = (struct look){ .reply = WIRE__STATUS_REPLY__INIT,
			       .store = WIRE__STORE__INIT,
			       .client = WIRE__CLIENT__INIT,
			       .handle = WIRE__HANDLE__INIT,
			       .channel = WIRE__CHANNEL__INIT,
			       .of_store = WIRE__COUNTERS__INIT,
			       .of_channel = WIRE__COUNTERS__INIT };
	look->stores[0] = &look->store;
	look->clients[0] = &look->client;
	look->handles[0] = &look->handle;
	look->channels[0] = &look->channel;
	look->reply.stores = look->stores;
	look->reply.clients = look->clients;
	look->client.handles = look->handles;
	look->handle.channels = look->channels;
	look->reply.n_stores = look->reply.n_clients = look->client.n_handles =
		look->handle.n_channels = 1;
	look->reply.pid = 100;
	look->reply.uptime_usec = uptime_usec;
	look->store.store = look->channel.store = 1;
	look->store.name = (char *)"nvme0";
	look->store.counters = &look->of_store;
	look->client.client = 7;
	look->client.name = (char *)"train";
	look->channel.channel = 65537;
	look->channel.counters = &look->of_channel;
}

static void look_moves(struct look *look, uint64_t ops, uint64_t bytes, uint64_t errors)
{
	look->of_store.reads = look->of_channel.reads = ops;
	look->of_store.read_bytes = look->of_channel.read_bytes = bytes;
	look->of_store.errors = look->of_channel.errors = errors;
}

/* Both: the store's, and the client's, are the same here. */
static struct rates rates_of(const struct look *before, const struct look *now)
{
	const Wire__StatusReply *first = before ? &before->reply : NULL;
	const struct rates store = rates_of_store(first, &now->reply, &now->store);
	const struct rates client = rates_of_client(first, &now->reply, &now->client);

	ck_assert_uint_eq(store.nsec, client.nsec);
	ck_assert_uint_eq(store.ops, client.ops);
	ck_assert_uint_eq(store.read_bytes, client.read_bytes);
	ck_assert_uint_eq(store.errors, client.errors);
	return store;
}

TEST(rates_are_differences_per_second)
{
	struct look before, now;
	struct rates rates;

	look_init(&before, 1000000);
	look_init(&now, 1500000);
	look_moves(&before, 100, 4096, 3);
	look_moves(&now, 150, 4096 + 1000, 5);
	now.of_store.open_ops = 4;
	now.of_store.latency_p99_nsec = 777;
	rates = rates_of(&before, &now);
	ck_assert_uint_eq(rates.nsec, 500000000);
	ck_assert_uint_eq(rates.ops, 50);
	ck_assert_uint_eq(rates.errors, 2);
	ck_assert_uint_eq(rates.all_errors, 5);
	ck_assert_uint_eq(rates.open_ops, 4);
	ck_assert_uint_eq(rates.p99_nsec, 777); /* an older daemon's: no histogram */
	ck_assert(rates_per_sec(&rates, rates.read_bytes) == 2000);
}

TEST(without_an_earlier_reply_there_are_none)
{
	struct look now;
	struct rates rates;

	look_init(&now, 1500000);
	look_moves(&now, 150, 5000, 0);
	now.of_store.latency_p99_nsec = 777;
	rates = rates_of(NULL, &now);
	ck_assert_uint_eq(rates.nsec, 0);
	ck_assert(rates_per_sec(&rates, rates.read_bytes) == 0);
	ck_assert_uint_eq(rates.p99_nsec, 777);
	ck_assert_ptr_null(rates_json(&rates));
}

/* Its counters would be a huge rate, or wrap around. */
TEST(another_daemon_has_no_rates_yet)
{
	struct look before, now;

	look_init(&before, 9000000);
	look_init(&now, 9500000);
	now.reply.pid = 101;
	look_moves(&now, 1000000, 1000000, 1);
	ck_assert_uint_eq(rates_of(&before, &now).nsec, 0);
	now.reply.pid = 100; /* as in a container, where each is process 1 */
	now.reply.uptime_usec = 500000;
	ck_assert_uint_eq(rates_of(&before, &now).nsec, 0);
}

TEST(objects_that_are_new_or_restarted_count_from_0)
{
	struct look before, now;

	look_init(&before, 1000000);
	look_init(&now, 2000000);
	look_moves(&before, 100, 4096, 3);
	look_moves(&now, 10, 1000, 1); /* less than before */
	ck_assert_uint_eq(rates_of(&before, &now).ops, 10);
	ck_assert_uint_eq(rates_of(&before, &now).read_bytes, 1000);
	look_moves(&now, 110, 5000, 4);
	before.store.store = 2;
	before.channel.channel = 65538; /* closed, and another one opened */
	ck_assert_uint_eq(rates_of(&before, &now).ops, 110);
	before.client.client = 8;
	before.channel.channel = 65537; /* another client's */
	ck_assert_uint_eq(rates_of(&before, &now).ops, 110);
	now.store.counters = NULL;
	now.channel.counters = NULL;
	ck_assert_uint_eq(rates_of(&before, &now).ops, 0);
}

static const struct {
	const char *what;
	uint64_t before[4], now[4], from_nsec, to_nsec;
} histograms[] = {
	{ "no op ended meanwhile", { 5, 0, 9, 0 }, { 5, 0, 9, 0 }, 0, 0 },
	{ "all in the first", { 0 }, { 100 }, 1000, 1024 },
	{ "slow ops of earlier do not count", { 0, 0, 0, 9000 }, { 0, 100, 0, 9000 }, 1024, 2048 },
	{ "one in a hundred is slower", { 0 }, { 0, 99, 0, 1 }, 2048, 2048 },
	{ "two in a hundred are slower", { 0 }, { 0, 98, 0, 2 }, 4096, 8192 },
	{ "restarted", { 0, 500, 0, 0 }, { 0, 0, 100, 0 }, 2048, 4096 },
};

TEST_TABLE(p99_is_of_the_ops_between_both, histograms)
{
	struct look before, now;
	uint64_t p99;

	look_init(&before, 1000000);
	look_init(&now, 2000000);
	memcpy(before.latencies, histograms[_i].before, sizeof(histograms[_i].before));
	memcpy(now.latencies, histograms[_i].now, sizeof(histograms[_i].now));
	before.of_store.latencies = before.latencies;
	now.of_store.latencies = now.latencies;
	before.of_store.n_latencies = now.of_store.n_latencies = 4;
	now.of_store.latency_p99_nsec = 777;
	p99 = rates_of_store(&before.reply, &now.reply, &now.store).p99_nsec;
	ck_assert_msg(p99 >= histograms[_i].from_nsec && p99 <= histograms[_i].to_nsec, "%s: %ju",
		      histograms[_i].what, (uintmax_t)p99);
}

/* ---- lines ---- */

static const char *line_of(const struct look *look)
{
	static char line[OVERVIEW_LINE_BYTES];
	char text[OVERVIEW_LINE_BYTES];
	struct overview_client row;

	(void)overview_clients(NULL, &look->reply, OVERVIEW_P99, "", &row);
	return overview_text(line, 80, overview_client_line(text, &row));
}

TEST(a_line_is_ascii_of_80_columns_whatever_names_there_are)
{
	char line[OVERVIEW_LINE_BYTES], text[OVERVIEW_LINE_BYTES];
	const char *command = strstr(OVERVIEW_CLIENT_TITLES, "COMMAND");
	struct rates rates = { .nsec = 1 };
	struct look look;

	look_init(&look, 1000000);
	look.client.name = (char *)"\033[31mpython3 \xc2\x9b and a very long name of a program";
	look.client.client = look.client.pid = look.client.uid = UINT32_MAX - 1;
	look.client.hung = UINT32_MAX;
	look.of_channel.open_ops = look.of_channel.errors = UINT64_MAX;
	look.of_channel.latency_p99_nsec = UINT64_MAX;
	ck_assert_uint_le(strlen(line_of(&look)), 80);
	for (const char *c = line_of(&look); *c; c++)
		ck_assert(*c >= ' ' && *c <= '~');
	look.store.name = (char *)"a store whose name is longer than its column";
	rates.read_bytes = rates.write_bytes = rates.ops = UINT64_MAX;
	(void)overview_text(line, 80, overview_store_line(text, &look.store, &rates));
	ck_assert_uint_le(strlen(line), 80);
	ck_assert(strncmp(line, "a store whose name is + ", 24) == 0);
	/* The columns of numbers are below their titles. */
	look_init(&look, 1000000);
	ck_assert_str_eq(line_of(&look) + strlen(OVERVIEW_CLIENT_TITLES) - strlen(command),
			 "train");
}

TEST(clients_are_sorted_and_filtered)
{
	Wire__Client idle = WIRE__CLIENT__INIT, *both[2];
	struct overview_client rows[2];
	struct look before, now;

	look_init(&before, 1000000);
	look_init(&now, 2000000);
	idle.client = 3;
	idle.name = (char *)"idle";
	idle.uid = 4294967294;
	both[0] = &idle;
	both[1] = &now.client;
	now.reply.clients = both;
	now.reply.n_clients = 2;
	ck_assert_uint_eq(overview_clients(&before.reply, &now.reply, OVERVIEW_BANDWIDTH, "", rows),
			  2);
	ck_assert_uint_eq(rows[0].client->client, 3); /* equal: by number */
	look_moves(&now, 1, 1, 1);
	now.of_channel.latency_p99_nsec = 1;
	for (enum overview_key key = OVERVIEW_BANDWIDTH; key <= OVERVIEW_ERRORS; key++) {
		(void)overview_clients(&before.reply, &now.reply, key, "", rows);
		ck_assert_uint_eq(rows[0].client->client, 7);
	}
	ck_assert_uint_eq(overview_clients(NULL, &now.reply, OVERVIEW_P99, "rain", rows),
			  1); /* its command */
	ck_assert_uint_eq(rows[0].client->client, 7);
	ck_assert_uint_eq(overview_clients(NULL, &now.reply, OVERVIEW_P99, "429496729", rows),
			  1); /* its user */
	ck_assert_uint_eq(rows[0].client->client, 3);
	ck_assert_uint_eq(overview_clients(NULL, &now.reply, OVERVIEW_P99, "trains", rows), 0);
}

/* ---- health ---- */

TEST(the_verdict_names_all_that_is_wrong)
{
	Wire__Hung hung = WIRE__HUNG__INIT, *hungs[] = { &hung };
	Wire__Pool pool = WIRE__POOL__INIT;
	Wire__Gpus gpus = WIRE__GPUS__INIT;
	struct look now;
	char line[OVERVIEW_LINE_BYTES];

	look_init(&now, 2000000);
	now.reply.pool = &pool; /* not locked: only the line pool says that */
	now.reply.gpus = &gpus;
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(line, "healthy");
	look_moves(&now, 6, 6, 1);
	now.reply.hung = hungs;
	now.reply.n_hung = 1;
	now.store.is_drained = now.reply.is_replaced = true;
	gpus.call = (char *)"cuInit()";
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(
		line,
		"NOT HEALTHY: 1 call is hung; store nvme0: 1 op failed since the daemon's start; "
		"store nvme0 is drained; "
		"the daemon's program was replaced after its start; "
		"the GPU driver has not answered yet: cuInit()");
	now.store.name = (char *)"a\033[2J";
	gpus.problem = (char *)"error 999";
	look_moves(&now, 6, 6, 36);
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(
		line,
		"NOT HEALTHY: 1 call is hung; store a?[2J: 36 ops failed since the daemon's start; "
		"store a?[2J is drained; "
		"the daemon's program was replaced after its start; GPUs cannot be used: error 999");
}

TEST(the_verdict_names_clusters_that_do_not_answer)
{
	struct look now;
	char line[OVERVIEW_LINE_BYTES];

	look_init(&now, 2000000);
	now.store.pauses = 2; /* that are over */
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(line, "healthy");
	now.store.pause_usec = 6300000;
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(line, "NOT HEALTHY: store nvme0: no request has ended for 6.30 s");
	now.store.is_offline = true;
	now.store.offline_text = (char *)"no monitor answers";
	(void)overview_verdict(line, &now.reply);
	ck_assert_str_eq(line, "NOT HEALTHY: store nvme0 is OFFLINE: no monitor answers");
}

TEST_MAIN
