/*
 * For unit tests: admission with three clients, of a channel each, whose heads a test sets.
 */
#ifndef DSAIO_TESTS_UNIT_ADMIT_PARTS_H
#define DSAIO_TESTS_UNIT_ADMIT_PARTS_H

#include "daemon/lane/admit.h"
#include "proto/util/cleanup.h"
#include "tests/unit/admit_charges.h"
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

/* Admission with channels of depth 16 blocks of 1 MiB, each of a client of its own. */
static inline void setup(void)
{
	admit_init(&admit, 0, N_PAGES);
	for (int i = 0; i < N_ROWS(sides); i++) {
		struct side *side = &sides[i];

		sched_client_init(&side->client);
		admit_channel_init(&side->channel, &(struct admit_channel_config){
							   .client = &side->client,
							   .io_class = SCHED_NORMAL,
							   .weight = 1,
							   .depth = 16,
							   .overlap = true,
						   });
		admit_add_channel(&side->channel);
		side->head = (struct admit_head){ .bytes = MIB(1), .has_room = true };
	}
}

static inline void teardown(void)
{
	for (int i = 0; i < N_ROWS(sides); i++) {
		admit_set_ready(&admit, &sides[i].channel, false);
		admit_remove_channel(&admit, &sides[i].channel);
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

static inline void start(int i, uint64_t bytes, uint64_t now)
{
	bool is_guarded;

	depth_start(&admit, &sides[i].channel, (uint32_t)bytes, now);
	is_guarded = engine_start(&admit, &sides[i].channel, false, (uint32_t)bytes, now);
	ck_assert(!is_guarded);
}

static inline void end(int i, uint64_t bytes, uint64_t now)
{
	engine_end(&admit, &sides[i].channel, WINDOW_READ, (uint32_t)bytes, false, now);
	admit_depth_discharge(&admit, &sides[i].channel, now);
}

#define HEAD(...) .has_room = true, __VA_ARGS__

/* As the lane asks: the first candidate whose answer is not "another". */
static inline enum admit_answer next(uint64_t now, struct admit_channel **ret_channel)
{
	enum admit_answer answer = ADMIT_OTHER;

	while (answer == ADMIT_OTHER) {
		struct admit_channel *channel = admit_candidate(&admit, now);

		*ret_channel = channel;
		answer = ADMIT_NOTHING;
		if (channel)
			answer = admit_ask(&admit, channel,
					   &container_of(channel, struct side, channel)->head, now);
	}
	if (answer == ADMIT_NOTHING)
		*ret_channel = NULL;
	return answer;
}

static inline enum admit_answer next_is(int i, uint64_t now)
{
	struct admit_channel *channel;
	enum admit_answer answer;

	admit_begin_turn(&admit, now);
	answer = next(now, &channel);
	if (answer != ADMIT_NOTHING)
		ck_assert_ptr_eq(channel, &sides[i].channel);
	return answer;
}

#endif
