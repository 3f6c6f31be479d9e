/*
 * A lane's turns over live rings: two clients, one of them with a second channel for Submit, whose ops are at
 * engines that end them when and how the input says.  In between, and within the engines' calls, the clients write
 * anything to their rings: entries that were taken, indices, hints.
 *
 * Whatever they do, each op that was taken ends once, with no more bytes than were moved, and each block stays
 * within its op's range of the file and of the slab.
 *
 * Input: steps of a byte for what, one for whose channel, and what the step takes.
 */
#include "daemon/lane/lane.h"
#include "tests/fuzz/fuzz_unit.h"
#include "tests/unit/parts.h"

#include <errno.h>

#define N_CHANNELS 3u /* the last one is the other client's; the one before it has no ring */
#define SUBMIT_CHANNEL 1u
#define N_FILES 5u
#define N_SLABS 3u
#define STEPS_MAX 400u

static struct input {
	const uint8_t *data;
	size_t size;
} in;

static struct objects_of {
	struct objects objects;
	struct file files[N_FILES];
	uint32_t file_ids[N_FILES], slab_ids[N_SLABS];
} clients[2];

static struct {
	struct channel *channel;
	struct ring_client *ring;
	struct objects_of *of;
	uint64_t moved[PARTS_ENTRIES]; /* bytes of each op, at least */
	bool was_removed;
} channels[N_CHANNELS];

static struct channel more_channels[N_CHANNELS - 1];
static struct ring_client more_rings[N_CHANNELS - 1];
static struct sched_client other_client;
static struct worker_user other_user;
static struct store_inode inodes[3];
static struct slab slabs[N_SLABS];
static struct engine_ops engine_ops, workers_ops;
static struct poller poller;
static uint32_t n_batches, n_cancels;

static uint8_t take_u8(void)
{
	uint8_t value;

	take_bytes(&in.data, &in.size, &value, 1);
	return value;
}

/* ---- what the clients have ---- */

static const struct {
	bool can_read, can_write, is_tmpfs, is_foreign, has_buffered;
	uint8_t inode;
	uint32_t offset_align, memory_align;
} kinds[N_FILES] = {
	{ true, true, false, false, false, 0, 4096, 512 },
	{ true, true, false, false, true, 0, 512, 4 },
	{ true, false, false, false, false, 1, 512, 512 },
	{ true, true, true, false, true, 2, 1, 1 },
	{ true, true, false, true, true, 1, 4096, 4096 },
};

static void add_file(struct objects_of *of, uint32_t i)
{
	struct file *file = &of->files[i];

	ck_assert_int_eq(id_table_add(&of->objects.files, file, 0, &of->file_ids[i]), 0);
	file->id = of->file_ids[i];
}

static void setup_objects(struct objects_of *of)
{
	memset(of, 0, sizeof(*of));
	for (uint32_t i = 0; i < N_FILES; i++) {
		of->files[i] = (struct file){
			.target = { .fd = -1,
				    .about = { .file = "file" },
				    .is_tmpfs = kinds[i].is_tmpfs,
				    .offset_align = kinds[i].offset_align,
				    .memory_align = kinds[i].memory_align },
			.inode = &inodes[kinds[i].inode],
			.facts = { .can_read = kinds[i].can_read,
				   .can_write = kinds[i].can_write,
				   .is_tmpfs = kinds[i].is_tmpfs,
				   .is_foreign = kinds[i].is_foreign },
			.n_refs = 1,
		};
		atomic_init(&of->files[i].target.buffered_fd, kinds[i].has_buffered ? 99 : -1);
		add_file(of, i);
	}
	for (uint32_t i = 0; i < N_SLABS; i++)
		ck_assert_int_eq(id_table_add(&of->objects.slabs, &slabs[i], 0, &of->slab_ids[i]),
				 0);
}

static void on_removed(struct channel *channel, void *arg)
{
	(void)channel;
	*(bool *)arg = true;
}

static void remove_channel(struct channel *channel, bool drain)
{
	if (channel->is_closing)
		return;
	channel->drain = drain;
	intake_remove_channel(&p.intake, channel);
}

static void on_broken(struct channel *channel, const char *why, void *arg)
{
	(void)why;
	(void)arg;
	remove_channel(channel, false); /* as the session does, which ends */
}

static void open_channel(uint32_t i)
{
	const bool is_other = i == N_CHANNELS - 1;

	parts_open_for(channels[i].channel, channels[i].ring, is_other ? &other_client : &p.client,
		       is_other ? &other_user : &p.worker_user);
	channels[i].channel->id = i;
	channels[i].channel->objects = &channels[i].of->objects;
	channels[i].channel->has_rings = i != SUBMIT_CHANNEL;
	channels[i].channel->owner = (struct channel_owner){ on_removed, on_broken,
							     &channels[i].was_removed };
	channels[i].was_removed = false;
	p.intake.n_channels++;
}

/* ---- the engines ---- */

/* Before a block is reaped, which has moved so many bytes of its present request. */
static void note_moved(const struct block *block, uint32_t n, char byte)
{
	const struct op *op = block->op;
	const uint64_t start = block->off, end = block->off + block->len;

	if (block->operation != BLOCK_READ && block->operation != BLOCK_WRITE)
		return;
	ck_assert_uint_le(n, block->len);
	if (block->region == &p.transfer.bounces.region) {
		ck_assert_uint_le(block->region_off % BOUNCE_BYTES + block->len, BOUNCE_BYTES);
	} else {
		ck_assert(start >= op->off && end <= op->off + op->len);
		ck_assert_uint_eq(block->region_off - op->slab_off, start - op->off);
		ck_assert_uint_le(block->region_off + block->len, op->slab->size_bytes);
	}
	if (!block->is_buffered && !block->is_bounced && !block->before)
		ck_assert_uint_eq((start | block->len) % block->target->offset_align, 0);
	if (block->operation == BLOCK_READ && block->region->kind == REGION_HOST)
		memset(block->region->base + block->region_off, byte, n);
	channels[op->channel->id].moved[op_number(op)] += n;
}

/* How a block ends: all of it, a part, nothing, or an error. */
static int64_t take_result(const struct block *block)
{
	static const int errors[] = { ENOSPC, EFAULT, EINTR, EAGAIN, EOPNOTSUPP, EINVAL };
	const uint8_t how = take_u8();
	const bool is_transfer = block->operation == BLOCK_READ || block->operation == BLOCK_WRITE;
	uint32_t part;

	if (how < 128 || !is_transfer)
		return how < 192 ? block->len * is_transfer : -errors[how % 6];
	if (how < 192) {
		part = block->len / (how % 8 + 1);
		return part - (part && how & 8);
	}
	return how < 200 ? 0 : -errors[how % 6];
}

/* Any block that the engine has and that is not done. */
static struct block *next_to_end(struct parts_engine *engine, uint8_t which)
{
	const unsigned n = engine->engine.n_in_flight - (unsigned)engine->n_done;
	struct block **first = engine->blocks + engine->n_done, *block;

	if (!n)
		return NULL;
	block = first[which % n];
	first[which % n] = *first;
	*first = block;
	return block;
}

static void end_block(uint8_t which)
{
	struct block *block = next_to_end(&p.fake, which);
	int64_t result;

	if (!block)
		return;
	result = take_result(block);
	if (result > 0)
		note_moved(block, (uint32_t)result, (char)which);
	parts_end_block(result);
}

static void end_worker(uint8_t which)
{
	struct block *block = next_to_end(&p.workers, which);
	int64_t result;

	if (!block)
		return;
	if (block->operation == BLOCK_EXTEND) {
		result = take_u8() % 4;
		parts_end_worker(0, result == 0 ? 0 : result == 1 ? -ENOSPC : -EOPNOTSUPP);
		return;
	}
	result = take_result(block);
	if (result > 0)
		note_moved(block, (uint32_t)result, (char)which);
	/* A worker goes on with a short transfer, so one that is short is at the end of the file. */
	parts_end_worker(result > 0 ? (uint32_t)result : 0,
			 result > 0 && result < block->len ? 0 : result);
}

/* ---- what clients write ---- */

static void scribble(uint32_t i)
{
	struct ring_lane *ring = &channels[i].channel->ring;
	struct ring_shared *shared = ring->shared;
	const uint8_t what = take_u8(), value = take_u8();
	char *entry = (char *)(uintptr_t)(ring->sq + what % PARTS_ENTRIES);

	switch (what >> 4) {
	case 0: /* or does about what it should */
		atomic_store(&shared->sq_tail, ring->taken + value % (PARTS_ENTRIES + 2));
		break;
	case 1:
		atomic_store(&shared->cq_head, ring->cq_head + value % 8);
		break;
	case 2:
		atomic_store(&shared->cq_wait, value * UINT64_C(0x101));
		break;
	case 3:
		atomic_store(&shared->sq_park, value);
		break;
	case 4: /* what the lane alone writes, it does not read */
		atomic_store(&shared->cq_tail, value * 0x1010101u);
		break;
	case 5:
		atomic_store(&shared->cq_bell, value);
		break;
	case 6:
		shared->entries = value;
		shared->magic = value;
		break;
	case 7:
		memset(ring->cq, value, PARTS_ENTRIES * sizeof(*ring->cq));
		break;
	case 8:
		atomic_store(&shared->sq_tail, take_u32(&in.data, &in.size));
		break;
	case 9:
		atomic_store(&shared->cq_head, take_u32(&in.data, &in.size));
		break;
	case 10: /* the whole slot */
		memset(entry, value, sizeof(struct ring_entry));
		break;
	default: /* a byte of it */
		entry[value % sizeof(struct ring_entry)] = (char)take_u8();
		break;
	}
}

/* An entry that is right, as far as its bytes let it be. */
static struct ring_entry take_entry(const struct objects_of *of)
{
	static const uint8_t shifts[] = { 0, 9, 12, 16 };
	uint8_t b[6];
	struct ring_entry entry = { 0 };

	take_bytes(&in.data, &in.size, b, sizeof(b));
	entry.id = b[0];
	entry.opcode = b[0] < 224 ? (b[0] & 1) + 1 : b[0] & 7;
	entry.file = of->file_ids[b[1] % N_FILES];
	entry.timeout_msec = b[1] >= 240 ? b[1] & 15 : 0;
	if (entry.opcode == RING_OP_FSYNC || entry.opcode == RING_OP_FDATASYNC)
		return entry;
	entry.slab = of->slab_ids[b[1] / N_FILES % N_SLABS];
	entry.off = (uint64_t)b[2] << shifts[b[5] & 3];
	entry.len = (uint64_t)b[3] << shifts[b[5] >> 2 & 3];
	entry.slab_off = (uint64_t)(b[4] & 15) << shifts[b[4] >> 4 & 3];
	if (entry.opcode == RING_OP_WRITE && b[5] & 16)
		entry.grow_end = entry.off + entry.len + ((uint64_t)(b[5] & 128) << 12);
	if (entry.opcode == RING_OP_WRITE && b[5] & 32)
		entry.flags = RING_ENTRY_DSYNC;
	return entry;
}

static void put(uint32_t i, uint8_t n)
{
	struct ring_client *ring = channels[i].ring;

	for (; n && ring_client_room(ring); n--) {
		const struct ring_entry entry = take_entry(channels[i].of);

		ring_client_put(ring, &entry);
	}
	if (ring_client_submit(ring))
		intake_wake(&p.intake, channels[i].channel);
}

/* A thread of the client consumes, and perhaps sleeps. */
static void consume(uint32_t i, uint8_t how)
{
	struct ring_client *ring = channels[i].ring;
	uint32_t n = ring_client_ready(ring);

	if (n && n <= PARTS_ENTRIES)
		ring_client_consume(ring, 1 + how % n);
	else if (how & 1)
		(void)ring_client_arm(ring, how & 2);
	else
		ring_client_disarm(ring);
}

/* Engines are called within a turn: other threads of the clients run meanwhile. */
static int submit_and_scribble(struct engine *engine, struct block **blocks, int n)
{
	const uint8_t which = take_u8();

	if (which >= 128 && which % N_CHANNELS != SUBMIT_CHANNEL)
		scribble(which % N_CHANNELS);
	return parts_submit(engine, blocks, n);
}

static int workers_submit(struct engine *engine, struct block **blocks, int n)
{
	return parts_workers_ops.submit(engine, blocks, n);
}

/* ---- requests of the main thread ---- */

static void on_batch(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++)
		ck_assert_uint_le(ring_result_done(batch->results[i]), PARTS_SLAB);
	free(batch);
	n_batches--;
}

static void submit_batch(uint32_t n)
{
	struct channel *channel = channels[SUBMIT_CHANNEL].channel;
	struct batch *batch;

	/* The session ensures that so many are free, and that the channel does not close. */
	if (n > channel->entries - channel->n_open || channel->is_closing)
		return;
	ck_assert_int_eq(batch_new(channel, n, on_batch, NULL, &batch), 0);
	for (uint32_t i = 0; i < n; i++)
		batch->entries[i] = take_entry(channels[SUBMIT_CHANNEL].of);
	n_batches++;
	intake_submit(&p.intake, batch);
}

static void on_cancelled(struct lane_cancel *cancel)
{
	free(cancel);
	n_cancels--;
}

static void cancel(struct channel *channel, uint8_t id)
{
	struct lane_cancel *c = calloc(1, sizeof(*c));

	*c = (struct lane_cancel){ .channel = channel, .id = id, .on_done = on_cancelled };
	n_cancels++;
	intake_cancel(&p.intake, c);
}

static void renew_file(struct objects_of *of, uint32_t i)
{
	const uint32_t old = of->file_ids[i];

	ck_assert_ptr_eq(id_table_remove(&of->objects.files, old), &of->files[i]);
	id_table_release(&of->objects.files, old); /* no lane looks now */
	add_file(of, i);
}

/* ---- turns ---- */

static void check_channel(uint32_t i)
{
	const struct channel *channel = channels[i].channel;
	const struct ring_lane *ring = &channel->ring;

	ck_assert_uint_le(channel->n_open, PARTS_ENTRIES);
	ck_assert_uint_le(channel->n_in_device, channel->n_open);
	ck_assert_uint_eq(metrics_get(&channel->metrics.open_ops), channel->n_open);
	ck_assert_uint_eq(ring->entries, PARTS_ENTRIES);
	ck_assert_uint_le(ring->cq_tail - ring->cq_head, PARTS_ENTRIES);
	ck_assert_uint_eq(ring->taken - ring->published, channel->has_rings ? channel->n_open : 0);
}

/* Results of ops that have ended, before they are free. */
static void check_results(uint32_t i)
{
	for (struct list_node *node = channels[i].channel->ended.first; node; node = node->next) {
		const struct op *op = op_of_node(node);
		uint64_t *moved = &channels[i].moved[op_number(op)];
		const uint64_t done = ring_result_done(op_result(op));

		ck_assert_uint_eq(op->n_in_flight, 0);
		ck_assert_uint_le(done, op->len);
		ck_assert_uint_le(done, *moved);
		*moved = 0;
	}
}

static void publish(void)
{
	for (uint32_t i = 0; i < N_CHANNELS; i++)
		check_results(i);
	(void)parts_publish();
	for (uint32_t i = 0; i < N_CHANNELS; i++)
		check_channel(i);
}

static void run_mailbox(void)
{
	if (mailbox_has_any(&p.main_mailbox))
		(void)mailbox_run(&p.main_mailbox);
}

static void remove_idle(void)
{
	/* There is no work queue that reports room to a channel without ops. */
	for (uint32_t i = 0; i < N_CHANNELS; i++)
		channels[i].channel->workers.waits_for_room &= channels[i].channel->n_open > 0;
	intake_remove_idle(&p.intake);
	run_mailbox();
	for (uint32_t i = 0; i < N_CHANNELS; i++) {
		if (!channels[i].was_removed)
			continue;
		parts_close(channels[i].channel);
		open_channel(i);
	}
}

/* One of the steps of a turn, in any order. */
static void turn_step(uint8_t which)
{
	switch (which % 8) {
	case 0:
		(void)intake_take(&p.intake);
		break;
	case 1:
		(void)transfer_reap(&p.transfer);
		break;
	case 2:
		intake_run_deadlines(&p.intake);
		break;
	case 3:
		publish();
		break;
	case 4:
		(void)transfer_start(&p.transfer);
		break;
	case 5:
		remove_idle();
		break;
	case 6:
		intake_park(&p.intake);
		break;
	default:
		(void)(transfer_is_ready(&p.transfer) || intake_is_ready(&p.intake));
		break;
	}
}

static void turn(uint64_t nsec)
{
	p.turn.before_nsec = p.turn.now_nsec;
	p.turn.now_nsec += nsec;
	for (uint8_t i = 0; i < 8; i++)
		turn_step(i);
}

/* So many workers are free. */
static void set_workers(uint32_t n)
{
	p.workers.n_workers = n;
	for (uint32_t i = 0; n && i < N_CHANNELS; i++) {
		struct workers *workers = &channels[i].channel->workers;

		if (!workers->waits_for_room)
			continue;
		workers->waits_for_room = false;
		workers->on_room(workers);
	}
}

static void step(void)
{
	static const uint64_t nsecs[] = { 1000, 10000, 3000000, 11000000, 150000000, 1100000000 };
	const uint8_t what = take_u8(), which = take_u8();
	const uint32_t i = which % N_CHANNELS;
	struct channel *channel = channels[i].channel;
	const bool has_rings = i != SUBMIT_CHANNEL;

	switch (what % 16) {
	case 0:
	case 1:
		if (has_rings)
			put(i, which / N_CHANNELS % 8);
		else
			submit_batch(which / N_CHANNELS % 4);
		break;
	case 2:
	case 3:
		if (has_rings)
			scribble(i);
		break;
	case 4:
	case 5:
		turn(10000);
		break;
	case 6:
		turn_step(which);
		break;
	case 7:
	case 8:
		end_block(which);
		break;
	case 9:
		end_worker(which);
		break;
	case 10:
		set_workers(which % (PARTS_DEPTH + 1));
		break;
	case 11:
		turn(nsecs[which % 6]);
		break;
	case 12:
		consume(i, which / N_CHANNELS);
		break;
	case 13:
		cancel(channel, take_u8());
		break;
	case 14:
		if (which < 128)
			intake_wake(&p.intake, channel);
		else if (which < 192)
			renew_file(channels[i].of, which % N_FILES);
		else
			(void)stall_table_note(&p.transfer.stalls, &slabs[0].memory, 0,
					       p.turn.now_nsec);
		break;
	default:
		if (which < 192)
			lane_hurry_channel(channel);
		else
			remove_channel(channel, which & 1);
		break;
	}
}

/* ---- start and end ---- */

static void setup(uint8_t how)
{
	static char memory[64u << 10];
	static struct log_limit log_limit; /* one for all inputs */

	memset(inodes, 0, sizeof(inodes));
	memset(channels, 0, sizeof(channels));
	parts_setup_lane();
	sched_client_init(&other_client);
	memset(&other_user, 0, sizeof(other_user));
	p.intake.poller = &poller;
	p.transfer.log_limit = &log_limit;
	poller.epoll_fd = -1;
	engine_ops = parts_engine_ops;
	engine_ops.submit = submit_and_scribble;
	p.fake.engine.ops = &engine_ops;
	workers_ops = parts_workers_ops;
	workers_ops.submit = workers_submit;
	p.workers.engine.ops = &workers_ops;
	p.workers.n_workers = PARTS_DEPTH;
	p.store.is_multi_user = how & 1;
	atomic_store(&p.store.is_blocking, how & 2);
	if (how & 4)
		p.store.whole_bytes = 32u << 10;
	slabs[0] = p.slab;
	slabs[1] = (struct slab){ .region = { .base = memory },
				  .size_bytes = sizeof(memory),
				  .memory = { .dev = 1, .ino = 1 } };
	slabs[2] = (struct slab){ .region = { .kind = REGION_GPU }, .size_bytes = PARTS_SLAB };
	for (uint32_t i = 0; i < N_SLABS; i++)
		slabs[i].n_refs = 1;
	for (uint32_t i = 0; i < 2; i++)
		setup_objects(&clients[i]);
	for (uint32_t i = 0; i < N_CHANNELS; i++) {
		channels[i].channel = i ? &more_channels[i - 1] : &p.channel;
		channels[i].ring = i ? &more_rings[i - 1] : &p.ring;
		channels[i].of = &clients[i == N_CHANNELS - 1];
		open_channel(i);
	}
}

static bool is_idle(void)
{
	for (uint32_t i = 0; i < N_CHANNELS; i++)
		if (channels[i].channel->n_open || channels[i].channel->is_closing)
			return false;
	return !n_batches && !n_cancels;
}

/* id_table_deinit() looks for more chunks, which takes as long as all else here. */
static void free_table(struct id_table *table)
{
	free(atomic_load(&table->chunks[0]));
	memset(table, 0, sizeof(*table));
}

static void free_objects(struct objects *objects)
{
	free_table(&objects->files);
	free_table(&objects->slabs);
}

/* All that was taken ends. */
static void teardown(void)
{
	in.size = 0; /* from now on nothing fails */
	for (unsigned n = 0; !is_idle(); n++) {
		ck_assert_uint_lt(n, 20000); /* nothing hangs */
		set_workers(PARTS_DEPTH);
		for (uint32_t i = 0; i < PARTS_DEPTH; i++) {
			end_block(0);
			end_worker(0);
		}
		turn(1000000);
	}
	while (p.publish.n_to_wake)
		turn(1000000);
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < N_FILES; k++) {
			ck_assert_uint_eq(clients[i].files[k].n_refs, 1);
			ck_assert(!clients[i].files[k].extension.is_running);
			ck_assert_uint_eq(clients[i].files[k].extension.n_ops, 0);
		}
		free_objects(&clients[i].objects);
	}
	for (uint32_t i = 0; i < N_SLABS; i++)
		ck_assert_uint_eq(slabs[i].n_refs, 1);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(!inodes[i].mode_lock.n_busy && !inodes[i].mode_lock.n_reserved &&
			  !inodes[i].mode_lock.waiting.first);
	ck_assert(!p.client.blocks_in_flight && !other_client.blocks_in_flight);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].open_ops), 0);
	ck_assert_uint_eq(metrics_get(&p.store.metrics[SCHED_NORMAL].bytes_in_flight), 0);
	for (uint32_t i = 1; i < N_CHANNELS; i++)
		parts_close(channels[i].channel);
	free_objects(&p.objects);
	parts_teardown();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	in = (struct input){ data, size };
	setup(take_u8());
	for (unsigned n = 0; in.size && n < STEPS_MAX; n++) {
		step();
		run_mailbox();
	}
	teardown();
	return 0;
}
