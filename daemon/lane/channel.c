#include "daemon/lane/channel.h"

#include "daemon/base/memfd.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static_assert(sizeof(struct op_rare) % _Alignof(struct lane_block) == 0, "blocks lie behind these");

/* The granted number of entries: a power of two within the ring's limits. */
static uint32_t round_entries(uint32_t wanted)
{
	uint32_t entries = RING_ENTRIES_MIN;

	while (entries < wanted && entries < RING_ENTRIES_MAX)
		entries *= 2;
	return entries;
}

/* The memfd, mapped here, laid out and sealed: its size can never change. */
static int make_ring(struct channel *channel, struct error *error)
{
	void *map;

	channel->map_bytes = ring_bytes(channel->entries);
	channel->ring_fd = memfd_new_sealed("dsaio-channel", channel->map_bytes, 0);
	if (channel->ring_fd < 0)
		return error_set(error, channel->ring_fd, "channel: ring of %s",
				 SIZE_TEXT(channel->map_bytes));
	map = mmap(NULL, channel->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, channel->ring_fd,
		   0);
	if (map == MAP_FAILED)
		return error_set(error, -errno, "channel: mapping %s",
				 SIZE_TEXT(channel->map_bytes));
	ring_lane_init(&channel->ring, map, channel->entries);
	channel->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (channel->doorbell_fd < 0)
		return error_set(error, -errno, "channel: eventfd");
	return 0;
}

void channel_free(struct channel *channel)
{
	if (!channel)
		return;
	assert(channel->n_open == 0);
	channel->lane_store->channels_depth -= channel->counted_depth;
	if (channel->ring.shared)
		(void)munmap(channel->ring.shared,
			     channel->map_bytes); /* our own mapping: cannot fail */
	closep(&channel->ring_fd);
	closep(&channel->doorbell_fd);
	if (channel->workers.user)
		worker_user_unref(&channel->lane_store->worker_queues, channel->workers.user);
	quota_discharge(&channel->entries_charge);
	quota_discharge(&channel->channel_charge);
	deadlines_deinit(&channel->deadlines);
	order_deinit(&channel->order);
	op_ids_deinit(&channel->ids);
	free(channel->ops_rare);
	free(channel->ops);
	free(channel);
}

static uint32_t block_depth(const struct lane_store *store, const struct profile *profile)
{
	const uint32_t most = store->depth;
	const uint64_t depth = lane_store_blocks(store, profile);

	return depth < most ? (uint32_t)depth : most;
}

int channel_new(const struct channel_config *config, struct channel **ret_channel,
		struct error *error)
{
	_cleanup_(channel_freep) struct channel *channel = calloc(1, sizeof(*channel));
	struct block_pool *blocks;
	int r;

	if (!channel)
		return error_set(error, -ENOMEM, "channel");
	blocks = &channel->worker_blocks;
	channel->ring_fd = channel->doorbell_fd = -1;
	channel->lane_store = config->store;
	channel->store = config->store->store;
	channel->lane = config->store->lane;
	channel->objects = config->objects;
	channel->client = config->client;
	channel->uid = config->uid;
	channel->who = config->who;
	channel->profile = config->profile;
	if (channel->profile.queue_depth > config->store->depth)
		channel->profile.queue_depth = config->store->depth;
	if (lane_store_is_blocking(config->store) && channel->profile.queue_depth > WORKERS_DEPTH)
		channel->profile.queue_depth = WORKERS_DEPTH;
	channel->has_rings = config->has_rings;
	channel->knows_unknown = config->knows_unknown;
	channel->client_doorbell_fd = config->client_doorbell_fd;
	channel->owner = config->owner;
	channel->entries = round_entries(config->entries);

	r = quota_charge(&channel->channel_charge, config->quota, QUOTA_CHANNELS, 1, error);
	if (r < 0)
		return r;
	r = quota_charge(&channel->entries_charge, config->quota, QUOTA_ENTRIES, channel->entries,
			 error);
	if (r < 0)
		return r;
	r = worker_user_ref(&config->store->worker_queues, config->uid, &channel->workers.user);
	if (r < 0)
		return error_set(error, r, "channel: worker threads of uid %u" WORK_QUEUE_ADVICE,
				 config->uid);
	if (channel->has_rings) {
		r = make_ring(channel, error);
		if (r < 0)
			return r;
	}

	admit_channel_init(&channel->admit,
			   &(struct admit_channel_config){
				   .client = config->client,
				   .io_class = config->io_class,
				   .weight = config->weight,
				   .depth = block_depth(config->store, &channel->profile),
				   .overlap = channel->profile.overlap_events,
				   .limiters = { config->limiters[0], config->limiters[1] },
			   });
	channel->ops = calloc(channel->entries, sizeof(*channel->ops));
	/* Those that returned and those that workers have count in the depth; extensions do not. */
	blocks->n_max = channel->admit.depth + WORKERS_DEPTH;
	/* Together, so that a deep channel's are large enough for pages that calloc() does not touch. */
	channel->ops_rare = calloc(1, channel->entries * sizeof(*channel->ops_rare) +
					      blocks->n_max * sizeof(*blocks->blocks));
	if (!channel->ops || !channel->ops_rare ||
	    deadlines_init(&channel->deadlines, channel->ops, channel->ops_rare, channel->entries) <
		    0 ||
	    order_init(&channel->order, channel->entries) < 0)
		return error_set(error, -ENOMEM, "channel: %" PRIu32 " ops", channel->entries);
	blocks->blocks = (struct lane_block *)(void *)(channel->ops_rare + channel->entries);
	r = op_ids_init(&channel->ids, channel->ops, channel->entries);
	if (r < 0)
		return error_set(error, r, "channel: table of %" PRIu32 " ops", channel->entries);
	channel->counted_depth = channel->admit.depth;
	channel->lane_store->channels_depth += channel->counted_depth;
	*ret_channel = TAKE_PTR(channel);
	return 0;
}

void channel_count_time(struct channel *channel, uint64_t now_nsec)
{
	uint64_t nsec = now_nsec - channel->timed_nsec;

	if (!nsec)
		return;
	channel->timed_nsec = now_nsec;
	if (!channel->n_open)
		return;
	CHANNEL_ADD(channel, open_nsec, nsec * channel->n_open);
	CHANNEL_ADD(channel, device_nsec, nsec * channel->n_in_device);
}

uint32_t channel_block_size(const struct channel *channel, const struct op *op)
{
	const struct target *target = &op->file->target;
	const uint32_t align = target_align(target);
	const uint32_t block_size = channel->profile.block_size;

	if (op->is_misaligned)
		return WORKERS_UNALIGNED_BYTES;
	if (target->kind == TARGET_RADOS && block_size > target->rados.object_bytes)
		return target->rados.object_bytes;
	if (block_size & (align - 1)) /* the file's alignment exceeds the block size asked for */
		return (block_size / align + 1) * align;
	return block_size;
}

int batch_new(struct channel *channel, uint32_t n, void (*on_done)(struct batch *), void *arg,
	      struct batch **ret_batch)
{
	struct batch *batch = calloc(
		1, sizeof(*batch) + n * (sizeof(*batch->entries) + sizeof(*batch->results)));

	if (!batch)
		return -ENOMEM;
	batch->results = (int64_t *)(batch->entries + n);
	batch->channel = channel;
	batch->n = n;
	batch->on_done = on_done;
	batch->arg = arg;
	*ret_batch = batch;
	return 0;
}

static void report_broken(struct message *message)
{
	struct channel *channel = container_of(message, struct channel, broken_message);

	channel->owner.on_broken(channel, channel->broken_why, channel->owner.arg);
}

void channel_break(struct channel *channel, const char *why)
{
	if (channel->is_broken || channel->is_closing)
		return;
	channel->is_broken = true;
	channel->broken_why = why;
	mailbox_post(channel->lane_store->main_mailbox, &channel->broken_message, report_broken);
}
