/*
 * Admission on a device that is only numbers: whole runs of several clients in virtual time.
 */
#include "daemon/lane/admit.h"

#include "proto/util/cleanup.h"
#include "tests/unit/admit_charges.h"
#include "tests/unit/suite.h"

#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define USEC UINT64_C(1000)
#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

static struct admit admit;

/* A device that serves one block after the other, and takes own_nsec more until it reports it. */
struct device {
	double bytes_per_nsec;
	uint64_t own_nsec;
	bool large_first; /* a small block waits until no large one is there */
};

/* A client that keeps n_ops ops open.  The next one comes a while after the end of one. */
struct party_config {
	uint64_t op_bytes, block_bytes;
	uint32_t n_ops, weight;
	enum sched_class io_class;
};

#define PARTIES_MAX 17
#define OPS_MAX 512u
#define FLIGHTS_MAX 8192u
#define LATENCIES_MAX 200000u
#define SENDING_NSEC (60 * USEC)

struct sim_op {
	struct party *party;
	struct sim_op *next;
	uint64_t left, n_in_flight, sent_nsec;
};

static struct sim {
	struct device device;
	uint64_t now;
	struct party {
		struct sched_client client;
		struct admit_channel channel;
		const struct party_config *config;
		struct sim_op ops[OPS_MAX];
		struct sim_op *first, *last; /* with blocks to start */
		struct sim_op *sent_first, *sent_last;
		uint64_t done_bytes;
	} parties[PARTIES_MAX];
	int n_parties;
	struct flight {
		struct sim_op *op;
		uint64_t bytes, started_nsec, end_nsec;
		bool is_guarded;
	} queued[FLIGHTS_MAX], served[FLIGHTS_MAX]; /* rings */
	uint32_t queued_first, queued_end, served_first, served_end;
	bool is_serving; /* served's last, until serving_end_nsec */
	uint64_t serving_end_nsec;
	struct flight serving;
	uint64_t until_nsec;
	/* sampled while not warming up */
	double byte_nsec; /* bytes in flight, over time */
	uint64_t most_in_flight, measured_nsec;
	uint64_t latencies[LATENCIES_MAX]; /* of the first party's ops */
	uint32_t n_latencies;
	bool is_measured;
} sim;

/* Check writes each ck_assert() to a file, which took most of the simulation's time. */
#define must(cond) ((cond) ? (void)0 : ck_abort_msg("%s", #cond))

static struct admit_head sim_head(const struct party *party)
{
	uint64_t bytes = party->first->left;

	if (bytes > party->config->block_bytes)
		bytes = party->config->block_bytes;
	if (bytes > admit_block_bytes(&admit, &party->channel))
		bytes = admit_block_bytes(&admit, &party->channel);
	return (struct admit_head){ .bytes = (uint32_t)bytes, .has_room = true };
}

static void sim_setup(const struct device *device, const struct party_config *configs, int n)
{
	memset(&sim, 0, sizeof(sim));
	sim.device = *device;
	sim.n_parties = n;
	admit_init(&admit, 0, 1);
	for (int i = 0; i < n; i++) {
		struct party *party = &sim.parties[i];

		party->config = &configs[i];
		sched_client_init(&party->client);
		admit_channel_init(&party->channel, &(struct admit_channel_config){
							    .client = &party->client,
							    .io_class = configs[i].io_class,
							    .weight = configs[i].weight,
							    .depth = 128,
							    .overlap = true,
						    });
		admit_add_channel(&party->channel);
		for (uint32_t o = 0; o < configs[i].n_ops; o++) {
			struct sim_op *op = &party->ops[o];

			op->party = party;
			if (party->sent_last)
				party->sent_last->next = op;
			else
				party->sent_first = op;
			party->sent_last = op;
		}
	}
}

static void sim_take(struct party *party)
{
	struct sim_op *op = party->sent_first;

	party->sent_first = op->next;
	if (!party->sent_first)
		party->sent_last = NULL;
	op->next = NULL;
	op->left = party->config->op_bytes;
	if (party->first)
		party->last->next = op;
	else
		party->first = op;
	party->last = op;
	admit_open_op(&admit, &party->channel);
	admit_note_op(&admit, &party->channel, op->left, false, sim.now);
	admit_set_ready(&admit, &party->channel, true);
}

static void sim_start(struct party *party)
{
	struct sim_op *op = party->first;
	struct flight *flight = &sim.queued[sim.queued_end++ % FLIGHTS_MAX];

	must(sim.queued_end - sim.queued_first <= FLIGHTS_MAX);
	*flight = (struct flight){ .op = op,
				   .bytes = sim_head(party).bytes,
				   .started_nsec = sim.now };
	flight->is_guarded = engine_start(&admit, &party->channel, false, (uint32_t)flight->bytes,
					  sim.now);
	depth_start(&admit, &party->channel, (uint32_t)flight->bytes, sim.now);
	op->n_in_flight++;
	op->left -= flight->bytes;
	if (op->left)
		return;
	party->first = op->next;
	if (!party->first)
		party->last = NULL;
	op->next = NULL;
	admit_set_ready(&admit, &party->channel, party->first);
}

static void sim_end(const struct flight *flight)
{
	struct sim_op *op = flight->op;
	struct party *party = op->party;

	admit_note_done(&admit, false, (uint32_t)flight->bytes, sim.now - flight->started_nsec,
			sim.now);
	engine_end(&admit, &party->channel, WINDOW_READ, (uint32_t)flight->bytes,
		   flight->is_guarded, sim.now);
	admit_depth_discharge(&admit, &party->channel, sim.now);
	admit_set_ready(&admit, &party->channel, party->first);
	if (sim.is_measured)
		party->done_bytes += flight->bytes;
	if (--op->n_in_flight || op->left)
		return;
	admit_close_op(&admit, &party->channel);
	if (sim.is_measured && party == sim.parties && sim.n_latencies < LATENCIES_MAX)
		sim.latencies[sim.n_latencies++] = sim.now - op->sent_nsec;
	op->sent_nsec = sim.now + SENDING_NSEC;
	if (party->sent_last)
		party->sent_last->next = op;
	else
		party->sent_first = op;
	party->sent_last = op;
}

/* The server begins with the next block, if there is one. */
static void sim_serve(void)
{
	uint32_t at = sim.queued_first;

	if (sim.is_serving || sim.queued_first == sim.queued_end)
		return;
	if (sim.device.large_first)
		while (at + 1 != sim.queued_end &&
		       sim.queued[at % FLIGHTS_MAX].bytes <= WINDOW_SMALL_BYTES)
			at++;
	sim.serving = sim.queued[at % FLIGHTS_MAX];
	for (; at != sim.queued_first; at--) /* those before it keep their order */
		sim.queued[at % FLIGHTS_MAX] = sim.queued[(at - 1) % FLIGHTS_MAX];
	sim.queued_first++;
	sim.is_serving = true;
	sim.serving_end_nsec = sim.now +
			       (uint64_t)((double)sim.serving.bytes / sim.device.bytes_per_nsec);
}

static uint64_t min_nsec(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Goes to the next time at which something happens, and does it. */
static void sim_step(void)
{
	uint64_t next = sim.until_nsec ? sim.until_nsec : UINT64_MAX;

	if (sim.is_serving)
		next = min_nsec(next, sim.serving_end_nsec);
	if (sim.served_first != sim.served_end)
		next = min_nsec(next, sim.served[sim.served_first % FLIGHTS_MAX].end_nsec);
	for (int i = 0; i < sim.n_parties; i++)
		if (sim.parties[i].sent_first)
			next = min_nsec(next, sim.parties[i].sent_first->sent_nsec);
	must(next < UINT64_MAX && next >= sim.now);
	if (sim.is_measured) {
		sim.measured_nsec += next - sim.now;
		sim.byte_nsec += (double)admit.bytes_in_flight * (double)(next - sim.now);
		if (admit.bytes_in_flight > sim.most_in_flight)
			sim.most_in_flight = admit.bytes_in_flight;
	}
	sim.now = next;

	if (sim.is_serving && sim.serving_end_nsec <= sim.now) {
		sim.serving.end_nsec = sim.now + sim.device.own_nsec;
		sim.served[sim.served_end++ % FLIGHTS_MAX] = sim.serving;
		sim.is_serving = false;
	}
	for (int i = 0; i < sim.n_parties; i++)
		while (sim.parties[i].sent_first && sim.parties[i].sent_first->sent_nsec <= sim.now)
			sim_take(&sim.parties[i]);
	while (sim.served_first != sim.served_end &&
	       sim.served[sim.served_first % FLIGHTS_MAX].end_nsec <= sim.now)
		sim_end(&sim.served[sim.served_first++ % FLIGHTS_MAX]);
	admit_begin_turn(&admit, sim.now);
	for (;;) {
		struct admit_channel *channel = admit_candidate(&admit, sim.now);
		enum admit_answer answer = ADMIT_NOTHING;

		if (channel) {
			const struct admit_head head = sim_head(
				container_of(channel, struct party, channel));

			answer = admit_ask(&admit, channel, &head, sim.now);
		}
		sim.until_nsec = admit.until_nsec;
		if (answer == ADMIT_NOTHING)
			break;
		if (answer == ADMIT_START)
			sim_start(container_of(channel, struct party, channel));
	}
	sim_serve();
}

static void sim_run(uint64_t warm_nsec, uint64_t nsec)
{
	while (sim.now < warm_nsec)
		sim_step();
	sim.is_measured = true;
	while (sim.now < warm_nsec + nsec)
		sim_step();
}

/* Share of the device's bytes in the measured time. */
static double share(int i)
{
	uint64_t all = 0;

	for (int p = 0; p < sim.n_parties; p++)
		all += sim.parties[p].done_bytes;
	return (double)sim.parties[i].done_bytes / (double)all;
}

static double busy(void)
{
	uint64_t all = 0;

	for (int p = 0; p < sim.n_parties; p++)
		all += sim.parties[p].done_bytes;
	return (double)all / ((double)sim.measured_nsec * sim.device.bytes_per_nsec);
}

/* Bytes that only wait at the device, in the mean. */
static double queued_bytes(void)
{
	return sim.byte_nsec / (double)sim.measured_nsec -
	       sim.device.bytes_per_nsec * (double)sim.device.own_nsec;
}

static int compare_nsec(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t p99_nsec(void)
{
	ck_assert_uint_ge(sim.n_latencies, 200);
	qsort(sim.latencies, sim.n_latencies, sizeof(*sim.latencies), compare_nsec);
	return sim.latencies[sim.n_latencies / 100 * 99];
}

static const struct device ssd = { 3, 100 * USEC, false };

static const struct share_row {
	const char *name;
	struct party_config parties[2];
	double want; /* the first's share */
} share_rows[] = {
	{ "1 op of 1 MiB beside 16",
	  { { MIB(1), KIB(256), 1, 1, SCHED_NORMAL }, { MIB(1), KIB(256), 16, 1, SCHED_NORMAL } },
	  0.5 },
	{ "1 op of 1 MiB beside 16, blocks as large as they are beside small ops",
	  { { MIB(1), KIB(512), 1, 1, SCHED_NORMAL }, { MIB(1), KIB(512), 16, 1, SCHED_NORMAL } },
	  0.5 },
	{ "1 op of 8 MiB beside 16",
	  { { MIB(8), KIB(256), 1, 1, SCHED_NORMAL }, { MIB(8), KIB(256), 16, 1, SCHED_NORMAL } },
	  0.5 },
	{ "1 op of 8 MiB beside 16, large blocks",
	  { { MIB(8), MIB(1), 1, 1, SCHED_NORMAL }, { MIB(8), MIB(1), 16, 1, SCHED_NORMAL } },
	  0.5 },
	{ "weights 1 to 4, both with many",
	  { { MIB(1), KIB(256), 16, 1, SCHED_NORMAL }, { MIB(1), KIB(256), 16, 4, SCHED_NORMAL } },
	  0.2 },
	{ "weights 1 to 4, one op beside many",
	  { { MIB(1), KIB(256), 1, 1, SCHED_NORMAL }, { MIB(1), KIB(256), 16, 4, SCHED_NORMAL } },
	  0.2 },
	{ "weights 4 to 1, one op of 8 MiB beside many",
	  { { MIB(8), KIB(256), 1, 4, SCHED_NORMAL }, { MIB(8), KIB(256), 16, 1, SCHED_NORMAL } },
	  0.8 },
};

TEST_TABLE(clients_share_by_weight_however_many_ops_they_keep_open, share_rows)
{
	const struct share_row *row = &share_rows[_i];

	sim_setup(&ssd, row->parties, 2);
	sim_run(SEC, 2 * SEC);
	ck_assert_msg(share(0) > row->want * 0.95 && share(0) < row->want * 1.05,
		      "%s: %f (%f busy, %f queued)", row->name, share(0), busy(), queued_bytes());
	ck_assert_msg(busy() > 0.95, "%s: %f busy", row->name, busy());
}

TEST(sixteen_clients_share_alike)
{
	struct party_config configs[16];

	for (int i = 0; i < 16; i++)
		configs[i] = (struct party_config){ MIB(1), MIB(1), i % 2 ? 16 : 1, 1,
						    SCHED_NORMAL };
	sim_setup(&ssd, configs, 16);
	sim_run(SEC, 2 * SEC);
	for (int i = 0; i < 16; i++)
		ck_assert_msg(share(i) > 0.9 / 16 && share(i) < 1.1 / 16, "%d: %f", i, share(i));
	ck_assert_msg(busy() > 0.95, "%f busy", busy());
}

static const struct {
	const char *name;
	struct device device;
	struct party_config party;
	uint64_t at_least, at_most; /* bytes in flight */
} alone_rows[] = {
	{ "1 MiB x 128: 10 ms",
	  { 3, 100 * USEC, false },
	  { MIB(1), MIB(1), 512, 1, SCHED_NORMAL },
	  MIB(26),
	  MIB(32) },
	{ "256 KiB x 128: 10 ms",
	  { 3, 100 * USEC, false },
	  { MIB(1), KIB(256), 512, 1, SCHED_NORMAL },
	  MIB(26),
	  MIB(32) },
	{ "64 MiB x 128: one",
	  { 3, 100 * USEC, false },
	  { MIB(640), MIB(64), 512, 1, SCHED_NORMAL },
	  MIB(64),
	  MIB(64) },
	{ "a fast one",
	  { 14, 300 * USEC, false },
	  { MIB(16), MIB(1), 512, 1, SCHED_NORMAL },
	  MIB(120),
	  MIB(136) },
	{ "a slow one",
	  { 0.5, 5 * MSEC, false },
	  { MIB(16), MIB(1), 512, 1, SCHED_NORMAL },
	  MIB(16),
	  MIB(17) },
	{ "4 ops",
	  { 3, 100 * USEC, false },
	  { MIB(1), MIB(1), 4, 1, SCHED_NORMAL },
	  MIB(4),
	  MIB(4) },
};

/* 64 MiB x 128 had 8 GiB in flight, and a newcomer's first block waited behind them. */
TEST_TABLE(a_client_that_is_alone_has_what_the_device_moves_in_10_msec, alone_rows)
{
	sim_setup(&alone_rows[_i].device, &alone_rows[_i].party, 1);
	sim_run(SEC, SEC);
	ck_assert_msg(sim.most_in_flight >= alone_rows[_i].at_least &&
			      sim.most_in_flight <= alone_rows[_i].at_most,
		      "%s: %ju", alone_rows[_i].name, (uintmax_t)sim.most_in_flight);
	ck_assert_msg(busy() > 0.95, "%s: %f busy", alone_rows[_i].name, busy());
}

static const struct {
	const char *name;
	uint64_t block_bytes;
	struct device device;
} queued_rows[] = {
	{ "an SSD", KIB(256), { 3, 100 * USEC, false } },
	{ "an SSD, large blocks", MIB(1), { 3, 100 * USEC, false } },
	{ "a fast one", KIB(256), { 14, 300 * USEC, false } },
	{ "a slow one", KIB(256), { 1, 200 * USEC, false } },
};

TEST_TABLE(clients_that_share_have_2_to_4_mib_queued_at_the_device, queued_rows)
{
	const struct party_config configs[] = {
		{ MIB(16), queued_rows[_i].block_bytes, 8, 1, SCHED_NORMAL },
		{ MIB(16), queued_rows[_i].block_bytes, 8, 1, SCHED_NORMAL },
	};

	sim_setup(&queued_rows[_i].device, configs, 2);
	sim_run(2 * SEC, 2 * SEC);
	ck_assert_msg(queued_bytes() >= (double)MIB(3) / 2 && queued_bytes() <= (double)MIB(5),
		      "%s: %f", queued_rows[_i].name, queued_bytes());
	ck_assert_msg(busy() > 0.97, "%s: %f busy", queued_rows[_i].name, busy());
}

static const struct {
	const char *name;
	struct device device;
	uint64_t p99_nsec; /* at most */
	double busy;	   /* at least */
} reader_rows[] = {
	{ "an SSD", { 3, 100 * USEC, false }, 2 * MSEC, 0.97 },
	{ "a fast one", { 14, 300 * USEC, false }, 2 * MSEC, 0.95 },
	{ "a slow one", { 0.5, 200 * USEC, false }, 6 * MSEC, 0.95 },
	{ "one that serves large blocks first", { 3, 100 * USEC, true }, 8 * MSEC, 0.5 },
};

TEST_TABLE(a_4_kib_reader_does_not_wait_behind_400_mib_reads, reader_rows)
{
	static const struct party_config configs[] = {
		{ KIB(4), MIB(1), 1, 1, SCHED_NORMAL },
		{ MIB(400), MIB(1), 4, 1, SCHED_NORMAL },
	};
	uint64_t p99;

	sim_setup(&reader_rows[_i].device, configs, 2);
	sim_run(SEC, 2 * SEC);
	p99 = p99_nsec();
	ck_assert_msg(p99 <= reader_rows[_i].p99_nsec, "%s: p99 %ju usec", reader_rows[_i].name,
		      (uintmax_t)(p99 / USEC));
	ck_assert_msg(busy() >= reader_rows[_i].busy, "%s: %f busy", reader_rows[_i].name, busy());
	/* Nor does the guard take anything from the controller's value. */
	ck_assert_msg(admit.window.bytes >= WINDOW_START_BYTES, "%s: %ju", reader_rows[_i].name,
		      (uintmax_t)admit.window.bytes);
}

static const struct {
	const char *name;
	uint64_t op_bytes;
	int n_readers, n_guests;
	double least; /* of what it has without guests */
} guest_rows[] = {
	{ "1 MiB", MIB(1), 1, 1, 0.8 },	       { "1 MiB, 15 guests", MIB(1), 1, 15, 0.8 },
	{ "4 KiB", KIB(4), 1, 1, 0.6 },	       { "4 KiB, 15 guests", KIB(4), 1, 15, 0.6 },
	{ "two of 1 MiB", MIB(1), 2, 1, 0.8 }, { "two of 4 KiB", KIB(4), 2, 15, 0.6 },
};

/* A reader with one op open had a fifth of it, and less beside the class background than beside its own. */
TEST_TABLE(a_reader_with_one_op_open_keeps_its_speed_beside_background, guest_rows)
{
	const int n_readers = guest_rows[_i].n_readers;
	struct party_config configs[PARTIES_MAX];
	uint64_t alone, p99;

	for (int i = 0; i < PARTIES_MAX; i++)
		configs[i] = i < n_readers ? (struct party_config){ guest_rows[_i].op_bytes, MIB(1),
								    1, 1, SCHED_NORMAL }
					   : (struct party_config){ MIB(400), MIB(1), 4, 1,
								    SCHED_BACKGROUND };
	sim_setup(&ssd, configs, n_readers);
	sim_run(SEC, 2 * SEC);
	alone = sim.parties[0].done_bytes;
	p99 = p99_nsec();

	sim_setup(&ssd, configs, n_readers + guest_rows[_i].n_guests);
	sim_run(SEC, 2 * SEC);
	ck_assert_msg((double)sim.parties[0].done_bytes >= guest_rows[_i].least * (double)alone,
		      "%s: %ju bytes, alone %ju", guest_rows[_i].name,
		      (uintmax_t)sim.parties[0].done_bytes, (uintmax_t)alone);
	ck_assert_msg(p99_nsec() <= 3 * p99, "%s: p99 %ju usec, alone %ju", guest_rows[_i].name,
		      (uintmax_t)(p99_nsec() / USEC), (uintmax_t)(p99 / USEC));
	/* Nor does background starve: it has 64 KiB in 10 ms. */
	for (int i = 0; i < guest_rows[_i].n_guests; i++)
		ck_assert_uint_ge(sim.parties[n_readers + i].done_bytes,
				  MIB(12) / (uint64_t)guest_rows[_i].n_guests / 2);
}

/* It had what clients that share get for 100 ms, and then for as long as the window took to grow. */
TEST(background_has_the_whole_device_50_msec_after_the_last_op_of_others)
{
	static const struct device far = { 3, 4 * MSEC, false };
	static const struct party_config configs[] = {
		{ MIB(1), MIB(1), 1, 1, SCHED_NORMAL }, { MIB(400), MIB(1), 4, 1, SCHED_BACKGROUND }
	};
	struct party *reader = &sim.parties[0];
	uint64_t silent;

	sim_setup(&far, configs, 2);
	while (sim.now < SEC || !reader->sent_first)
		sim_step();
	silent = sim.now;
	reader->sent_first->sent_nsec = 10 * SEC;
	sim_run(silent + 50 * MSEC, 50 * MSEC);
	ck_assert_msg(busy() > 0.95, "%f busy", busy());
}

TEST_MAIN
