/*
 * For unit tests: admission with three clients, of a channel each, whose heads a test sets.
 */
#ifndef DSAIO_TESTS_UNIT_ADMIT_PARTS_H
#define DSAIO_TESTS_UNIT_ADMIT_PARTS_H

#include "daemon/lane/admit.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define MSEC UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

#define N_PAGES 8u

static struct admit admit;
static struct side {
	struct sched_client client;
	struct admit_channel channel;
	struct admit_head head;
} sides[3];

static inline struct admit_head look(struct admit_channel *channel, void *arg)
{
	ck_assert_ptr_null(arg);
	return container_of(channel, struct side, channel)->head;
}

/* Admission with channels of depth 16 blocks of 1 MiB, each of a client of its own. */
static inline void setup(void)
{
	admit_init(&admit, 0, N_PAGES, look, NULL);
	for (int i = 0; i < N_ROWS(sides); i++) {
		struct side *side = &sides[i];

		sched_client_init(&side->client);
		ck_assert_int_eq(admit_channel_init(&side->channel,
						    &(struct admit_channel_config){
							    .client = &side->client,
							    .io_class = SCHED_NORMAL,
							    .weight = 1,
							    .depth = 16,
							    .n_lanes = 2,
							    .overlap = true,
						    }),
				 0);
		admit_add_channel(&side->channel);
		side->head = (struct admit_head){ .bytes = MIB(1), .has_room = true };
	}
}

static inline void teardown(void)
{
	for (int i = 0; i < N_ROWS(sides); i++) {
		admit_set_ready(&admit, &sides[i].channel, false);
		admit_remove_channel(&admit, &sides[i].channel);
		admit_channel_deinit(&sides[i].channel);
	}
	ck_assert_uint_eq(admit.n_free_pages, N_PAGES);
	ck_assert_uint_eq(admit.n_busy, 0);
	ck_assert_uint_eq(admit.bytes_in_flight, 0);
}

/* An op of the side is open, and has blocks to start. */
static inline void open_op(int i, uint64_t now)
{
	admit_open_op(&admit, &sides[i].channel);
	admit_note_op(&admit, &sides[i].channel, MIB(1), false, now);
	admit_set_ready(&admit, &sides[i].channel, true);
}

static inline void close_op(int i)
{
	admit_set_ready(&admit, &sides[i].channel, false);
	admit_close_op(&admit, &sides[i].channel);
}

static inline void start(int i, uint32_t lane, uint64_t bytes, uint64_t now)
{
	bool is_guarded;

	admit_start(&admit, &sides[i].channel, lane, (uint32_t)bytes, now);
	admit_engine_start(&admit, &sides[i].channel, false, (uint32_t)bytes, now, &is_guarded);
	ck_assert(!is_guarded);
}

static inline void end(int i, uint32_t lane, uint64_t bytes, uint64_t now)
{
	admit_engine_end(&admit, &sides[i].channel, WINDOW_READ, (uint32_t)bytes, false, now);
	admit_end(&admit, &sides[i].channel, lane, now);
}

#define HEAD(...) .has_room = true, __VA_ARGS__

static inline enum admit_what next_is(int i, uint64_t now)
{
	struct admit_decision decision;

	admit_begin_turn(&admit, now);
	decision = admit_next(&admit, now);
	if (decision.what != ADMIT_NOTHING)
		ck_assert_ptr_eq(decision.channel, &sides[i].channel);
	return decision.what;
}

#endif
