/*
 * For unit tests: a second client on the lane of lane_parts.h, with a channel without rings and batches of one
 * entry.
 */
#ifndef DSAIO_TESTS_UNIT_LANE_SECOND_H
#define DSAIO_TESTS_UNIT_LANE_SECOND_H

#include "tests/unit/lane_parts.h"

/* A second client, with a channel without rings and batches of one entry. */
static struct second {
	struct sched_client client;
	struct channel *channel;
	bool was_removed;
} second;

static inline void on_second_removed(struct channel *channel, void *arg)
{
	(void)channel;
	(void)arg;
	second.was_removed = true;
}

static inline void second_open(struct profile profile)
{
	struct channel_config config = { .store = &t.store->lane_store,
					 .objects = &t.objects,
					 .client = &second.client,
					 .quota = &t.quota,
					 .profile = profile,
					 .io_class = SCHED_NORMAL,
					 .weight = 1,
					 .entries = 16,
					 .owner = { on_second_removed, on_broken, NULL } };
	struct error error = { 0 };

	memset(&second, 0, sizeof(second));
	sched_client_init(&second.client);
	ck_assert_msg(channel_new(&config, &second.channel, &error) == 0, "%s", error.text);
	lane_add_channel(second.channel->lane, second.channel);
}

static inline void second_close(void)
{
	lane_remove_channel(second.channel->lane, second.channel, true);
	while (!second.was_removed)
		run_main_inbox();
	channel_free(second.channel);
}

static inline void second_submit_entry(struct ring_entry entry, struct batch **ret_batch)
{
	ck_assert_int_eq(batch_new(second.channel, 1, on_done, NULL, ret_batch), 0);
	(*ret_batch)->entries[0] = entry;
	batch_is_done = false;
	lane_submit(*ret_batch);
}

static inline void second_submit(uint64_t len, struct batch **ret_batch)
{
	second_submit_entry(
		(struct ring_entry){
			.opcode = RING_OP_READ, .file = t.file_id, .slab = t.slab_id, .len = len },
		ret_batch);
}

static inline void second_wait(struct batch *batch, int64_t want)
{
	while (!batch_is_done)
		run_main_inbox();
	ck_assert_int_eq(batch->results[0], want);
	free(batch);
}

#endif
