#include "daemon/lane/channel.h"

#include "daemon/base/memfd.h"
#include "daemon/lane/lane.h"
#include "daemon/object/unaligned.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* Parts start at pages, so that no two lanes write the same one. */
#define PART_ALIGN 4096u
static_assert(sizeof(struct op_rare) % _Alignof(struct worker_block) == 0,
	      "blocks lie behind these");

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
		return error_set(error, channel->ring_fd, "channel: ring of %zu bytes",
				 channel->map_bytes);
	map = mmap(NULL, channel->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, channel->ring_fd,
		   0);
	if (map == MAP_FAILED)
		return error_set(error, -errno, "channel: mapping %zu bytes", channel->map_bytes);
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
	admit_channel_deinit(&channel->admit);
	order_deinit(&channel->order);
	op_ids_deinit(&channel->ids);
	free(channel->ops_rare);
	free(channel->ops);
	free(channel);
}

static void channel_freep(struct channel **channel)
{
	channel_free(*channel);
}

static uint32_t block_depth(const struct lane_store *store, const struct profile *profile)
{
	const uint32_t most = lane_depth(store->home);
	const uint64_t depth = lane_store_blocks(store, profile);

	return depth < most ? (uint32_t)depth : most;
}

int channel_new(const struct channel_config *config, struct channel **ret_channel,
		struct error *error)
{
	_cleanup_(channel_freep) struct channel *channel = calloc(1, sizeof(*channel));
	struct worker_blocks *blocks;
	int r;

	if (!channel)
		return error_set(error, -ENOMEM, "channel");
	blocks = &channel->worker_blocks;
	channel->ring_fd = channel->doorbell_fd = -1;
	channel->lane_store = config->store;
	channel->store = config->store->store;
	channel->home = config->store->home;
	channel->objects = config->objects;
	channel->client = config->client;
	channel->uid = config->uid;
	channel->profile = config->profile;
	if (channel->profile.queue_depth > lane_depth(channel->home))
		channel->profile.queue_depth = lane_depth(channel->home);
	if (lane_store_is_blocking(config->store) && channel->profile.queue_depth > WORKERS_DEPTH)
		channel->profile.queue_depth = WORKERS_DEPTH;
	channel->has_rings = config->has_rings;
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
		return error_set(error, r, "channel: work queue");
	if (channel->has_rings) {
		r = make_ring(channel, error);
		if (r < 0)
			return r;
	}

	r = admit_channel_init(&channel->admit,
			       &(struct admit_channel_config){
				       .client = config->client,
				       .io_class = config->io_class,
				       .weight = config->weight,
				       .depth = block_depth(config->store, &channel->profile),
				       .n_lanes = config->profile.intra_op_parallelism,
				       .overlap = channel->profile.overlap_events,
			       });
	channel->ops = calloc(channel->entries, sizeof(*channel->ops));
	/* Those that returned and those that workers have count in the depth; extensions do not. */
	blocks->n_max = channel->admit.depth * config->profile.intra_op_parallelism + WORKERS_DEPTH;
	/* Together, so that a deep channel's are large enough for pages that calloc() does not touch. */
	channel->ops_rare = calloc(1, channel->entries * sizeof(*channel->ops_rare) +
					      blocks->n_max * sizeof(*blocks->blocks));
	if (r < 0 || !channel->ops || !channel->ops_rare ||
	    deadlines_init(&channel->deadlines, channel->ops, channel->ops_rare, channel->entries) <
		    0 ||
	    order_init(&channel->order, channel->entries) < 0)
		return error_set(error, -ENOMEM, "channel: %" PRIu32 " ops", channel->entries);
	blocks->blocks = (struct worker_block *)(void *)(channel->ops_rare + channel->entries);
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
	struct metrics *all = &channel->lane_store->metrics;
	uint64_t nsec = now_nsec - channel->timed_nsec;

	if (!nsec)
		return;
	channel->timed_nsec = now_nsec;
	if (!channel->n_open)
		return;
	metrics_add(&channel->metrics.open_nsec, nsec * channel->n_open);
	metrics_add(&channel->metrics.device_nsec, nsec * channel->n_in_device);
	metrics_add(&all->open_nsec, nsec * channel->n_open);
	metrics_add(&all->device_nsec, nsec * channel->n_in_device);
}

struct split channel_split(const struct channel *channel, const struct op *op)
{
	uint32_t align = target_align(&op->file->target);
	uint32_t block_size = channel->profile.block_size;

	if (op->is_misaligned)
		return (struct split){
			.len = op->len,
			.n_parts = 1,
			.block_size = WORKERS_UNALIGNED_BYTES,
			.align = PART_ALIGN,
		};

	if (block_size & (align - 1)) /* the file's alignment exceeds the block size asked for */
		block_size = (block_size / align + 1) * align;
	return (struct split){
		.len = op->len - op->head - op->tail,
		.n_parts = channel->profile.intra_op_parallelism,
		.block_size = block_size,
		.align = align > PART_ALIGN ? align : PART_ALIGN,
	};
}

static bool is_zero(const struct ring_entry *entry)
{
	return !(entry->zero0[0] | entry->zero0[1] | entry->zero0[2] | entry->zero1);
}

/*
 * The alignment of the offset and length of a direct transfer.  The kernel cannot invalidate a page that another
 * program has made dirty (mode_lock.h), so a direct write fills whole pages if the rest can go by a buffered
 * description.
 */
static uint32_t direct_align(const struct file *file, bool is_write)
{
	const struct target *target = &file->target;

	return is_write && !file->facts.is_tmpfs && target_buffered_fd(target) >= 0
		       ? unaligned_unit(target->offset_align)
		       : target->offset_align;
}

int channel_check_entry(const struct channel *channel, const struct ring_entry *entry,
			struct op *op)
{
	const bool is_sync = entry->opcode == RING_OP_FSYNC || entry->opcode == RING_OP_FDATASYNC;
	const bool is_write = entry->opcode == RING_OP_WRITE;
	uint64_t file_end, slab_end;
	struct slab *slab = NULL;
	struct file *file;

	if (!is_sync && !is_write && entry->opcode != RING_OP_READ)
		return EOPNOTSUPP;
	if (!is_zero(entry)) /* meant for a later version: do not guess */
		return EINVAL;

	if (entry->grow_end && !is_write)
		return EINVAL;

	file = id_table_get(&channel->objects->files, entry->file);
	if (!file)
		return EBADF;
	if (file->store != channel->store)
		return EXDEV;
	if (is_write ? !file->facts.can_write : (!is_sync && !file->facts.can_read))
		return EBADF;

	if (is_sync) {
		if (entry->off | entry->len | entry->slab_off | entry->slab)
			return EINVAL;
	} else {
		if (entry->len > RING_LEN_MAX ||
		    __builtin_add_overflow(entry->off, entry->len, &file_end) ||
		    file_end > INT64_MAX || entry->grow_end > INT64_MAX)
			return EOVERFLOW;
		if (entry->grow_end && entry->grow_end < file_end)
			return EINVAL;
		slab = id_table_get(&channel->objects->slabs, entry->slab);
		if (!slab)
			return EBADF;
		if (__builtin_add_overflow(entry->slab_off, entry->len, &slab_end) ||
		    slab_end > slab->size_bytes)
			return ERANGE;
	}

	op->file = file;
	op->len = entry->len;
	op->head = op->tail = 0;
	op->is_misaligned = false;
	if (slab && entry->len) {
		struct unaligned_cut cut = unaligned_cut(&(struct unaligned_range){
			.off = entry->off,
			.len = entry->len,
			.slab_off = entry->slab_off,
			.offset_align = direct_align(file, is_write),
			/* GPU memory may lie anywhere. */
			.memory_align = slab->region.kind == REGION_GPU ? 1
									: file->target.memory_align,
			.is_write = is_write,
		});
		struct split split;
		int r = 0;

		op->head = cut.head;
		op->tail = cut.tail;
		op->is_misaligned = cut.is_misaligned;
		split = channel_split(channel, op);
		if (!split_is_countable(&split))
			r = E2BIG;
		else if (is_write && (cut.head || cut.tail || cut.is_misaligned) &&
			 target_buffered_fd(&file->target) < 0)
			r = EOPNOTSUPP;
		if (r) {
			op->file = NULL;
			return r;
		}
	}
	op->unaligned_left = ((op->head ? OP_HEAD : 0) | (op->tail ? OP_TAIL : 0)) & 3u;
	file_ref(file);
	if (slab)
		slab_ref(slab);
	op->slab = slab;
	op->slab_off = entry->slab_off;
	op->opcode = entry->opcode;
	op->off = entry->off;
	/* A write(2) to tmpfs extends at no cost, and a device has the size that it has. */
	op->may_grow = entry->grow_end && entry->len && !file->facts.is_tmpfs &&
		       !file->facts.is_block_device;
	op->end = entry->len;
	return 0;
}

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->entries);
	free(batch->results);
	free(batch);
}

int batch_new(struct channel *channel, uint32_t n, void (*on_done)(struct batch *), void *arg,
	      struct batch **ret_batch)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return -ENOMEM;
	batch->entries = calloc(n ? n : 1, sizeof(*batch->entries));
	batch->results = calloc(n ? n : 1, sizeof(*batch->results));
	if (!batch->entries || !batch->results) {
		batch_free(batch);
		return -ENOMEM;
	}
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
	channel->broken_message.run = report_broken;
	mailbox_post(channel->lane_store->main_mailbox, &channel->broken_message);
}
