/*
 * The parts of a lane without its thread: engines that do nothing by themselves, one channel
 * with a ring in ordinary memory, one file and one slab.  Time stands still until a test moves it.
 */
#ifndef DSAIO_TESTS_UNIT_PARTS_H
#define DSAIO_TESTS_UNIT_PARTS_H

#include "daemon/lane/intake.h"
#include "daemon/lane/transfer_end.h"
#include "daemon/lane/transfer_start.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PARTS_ENTRIES 64u
#define PARTS_DEPTH 16u
#define PARTS_BLOCK (64u << 10)
#define PARTS_SLAB (1u << 20)

/* The engine: takes blocks, and releases those that the test ends. */
struct parts_engine {
	struct engine engine;
	int takes;	    /* so many by one call */
	uint32_t n_workers; /* of the engine `threads`: it takes no more */
	struct block *blocks[PARTS_DEPTH];
	int n_done; /* of the first of them: to be reaped */
};

static struct parts {
	struct parts_engine fake, workers;
	struct lane_store store;
	struct mailbox main_mailbox;
	struct log_limit log_limit;
	struct lane_turn turn;
	struct admit admit;
	struct ready ready;
	struct publish publish;
	struct transfer transfer;
	struct intake intake;

	struct sched_client client;
	struct objects objects;
	struct store_inode inode;
	struct file file;
	struct slab slab;
	uint32_t file_id, slab_id;
	struct worker_user worker_user;
	struct channel channel;
	struct ring_client ring;
	struct lane_board board;
} p;

static _Alignas(4096) char parts_memory[PARTS_SLAB];

static struct parts_engine *parts_engine(const struct engine *engine)
{
	return engine == &p.fake.engine ? &p.fake : &p.workers;
}

static int parts_submit(struct engine *engine, struct block **blocks, int n)
{
	struct parts_engine *e = parts_engine(engine);
	int taken = 0;

	for (; taken < n && taken < e->takes && engine->n_in_flight < engine->depth; taken++)
		e->blocks[engine->n_in_flight++] = blocks[taken];
	return taken;
}

/* No worker is free: there is room when the test says so. */
static int parts_submit_to_workers(struct engine *engine, struct block **blocks, int n)
{
	struct worker_block *block = container_of(blocks[0], struct worker_block, block);
	int taken = engine->n_in_flight < p.workers.n_workers ? parts_submit(engine, blocks, n) : 0;

	block->workers->waits_for_room |= !taken;
	return taken;
}

static int parts_reap(struct engine *engine, struct block **blocks, int n)
{
	struct parts_engine *e = parts_engine(engine);
	int r = e->n_done < n ? e->n_done : n;

	for (int i = 0; i < r; i++)
		blocks[i] = e->blocks[i];
	engine->n_in_flight -= (uint32_t)r;
	memmove(e->blocks, e->blocks + r, engine->n_in_flight * sizeof(*e->blocks));
	e->n_done -= r;
	return r;
}

static bool parts_is_ready(const struct engine *engine)
{
	return parts_engine(engine)->n_done > 0;
}

/* The engine's oldest block that is not done has this result. */
__attribute__((unused)) static void parts_end_block(int64_t result)
{
	ck_assert_uint_lt((unsigned)p.fake.n_done, p.fake.engine.n_in_flight);
	p.fake.blocks[p.fake.n_done++]->result = result;
}

/* The same for the workers, who have done the first bytes of it. */
__attribute__((unused)) static void parts_end_worker(uint32_t done, int64_t result)
{
	struct block *block;

	ck_assert_uint_lt((unsigned)p.workers.n_done, p.workers.engine.n_in_flight);
	block = p.workers.blocks[p.workers.n_done++];
	block->best = done;
	block->result = result;
}

/* So many workers are free. */
__attribute__((unused)) static void parts_set_workers(uint32_t n)
{
	p.workers.n_workers = n;
	if (n && p.channel.workers.waits_for_room) {
		p.channel.workers.waits_for_room = false;
		p.channel.workers.on_room(&p.channel.workers);
	}
}

#define PARTS_READ_WRITE (1u << BLOCK_READ | 1u << BLOCK_WRITE)

static const struct engine_ops parts_engine_ops = {
	.name = "fake",
	.operations = PARTS_READ_WRITE,
	.targets = 1u << TARGET_FILE,
	.regions = 1u << REGION_HOST,
	.max_bytes = 1u << 30,
	.align = 1,
	.has_nowait = true,
	.window_regions = 1u << REGION_HOST,
	.submit = parts_submit,
	.reap = parts_reap,
	.is_ready = parts_is_ready,
};

static const struct engine_ops parts_workers_ops = {
	.name = "fake threads",
	.operations = PARTS_READ_WRITE | 1u << BLOCK_FSYNC | 1u << BLOCK_FDATASYNC |
		      1u << BLOCK_EXTEND,
	.targets = 1u << TARGET_FILE,
	.regions = 1u << REGION_HOST | 1u << REGION_GPU,
	.max_bytes = 1u << 30,
	.align = 1,
	.has_unaligned = true,
	.window_regions = 1u << REGION_GPU,
	.submit = parts_submit_to_workers,
	.reap = parts_reap,
	.is_ready = parts_is_ready,
};

/* A channel of a client, with its end of the ring. */
static void parts_open_for(struct channel *channel, struct ring_client *ring,
			   struct sched_client *client, struct worker_user *user)
{
	void *map;

	*channel = (struct channel){ .lane_store = &p.store,
				     .objects = &p.objects,
				     .client = client,
				     .workers = { .user = user },
				     .profile = { PARTS_BLOCK, PARTS_DEPTH, false, true, 1 },
				     .entries = PARTS_ENTRIES,
				     .has_rings = true,
				     .ring_fd = -1,
				     .client_doorbell_fd = -1 };
	channel->doorbell_fd = -1;
	channel->worker_blocks.n_max = 2 * PARTS_DEPTH;
	channel->worker_blocks.blocks = calloc(2 * PARTS_DEPTH, sizeof(struct lane_block));
	channel->ops = calloc(PARTS_ENTRIES, sizeof(struct op));
	channel->ops_rare = calloc(PARTS_ENTRIES, sizeof(struct op_rare));
	ck_assert_int_eq(
		deadlines_init(&channel->deadlines, channel->ops, channel->ops_rare, PARTS_ENTRIES),
		0);
	ck_assert_int_eq(order_init(&channel->order, PARTS_ENTRIES), 0);
	ck_assert_int_eq(op_ids_init(&channel->ids, channel->ops, PARTS_ENTRIES), 0);
	admit_channel_init(&channel->admit,
			   &(struct admit_channel_config){ .client = client,
							   .io_class = SCHED_NORMAL,
							   .weight = 1,
							   .depth = PARTS_DEPTH,
							   .overlap = true });
	map = aligned_alloc(4096, (ring_bytes(PARTS_ENTRIES) + 4095) / 4096 * 4096);
	memset(map, 0, ring_bytes(PARTS_ENTRIES));
	ring_lane_init(&channel->ring, map, PARTS_ENTRIES);
	ck_assert_int_eq(ring_client_init(ring, map, &p.board, PARTS_ENTRIES), 0);
	transfer_add_channel(&p.transfer, channel);
	admit_add_channel(&channel->admit);
	intake_wake(&p.intake, channel);
}

static void parts_open(struct channel *channel, struct ring_client *ring)
{
	parts_open_for(channel, ring, &p.client, &p.worker_user);
}

static void parts_close(struct channel *channel)
{
	ck_assert_uint_eq(channel->n_open, 0);
	ck_assert_uint_eq(channel->n_in_device, 0);
	deadlines_deinit(&channel->deadlines);
	order_deinit(&channel->order);
	op_ids_deinit(&channel->ids);
	free(channel->ring.shared);
	free(channel->worker_blocks.blocks);
	free(channel->ops_rare);
	free(channel->ops);
}

/* All but the channel. */
static void parts_setup_lane(void)
{
	memset(&p, 0, sizeof(p));
	p.fake.engine = (struct engine){ .ops = &parts_engine_ops, .depth = PARTS_DEPTH };
	p.workers.engine = (struct engine){ .ops = &parts_workers_ops, .depth = PARTS_DEPTH };
	p.fake.takes = p.workers.takes = PARTS_DEPTH;
	ck_assert_int_eq(mailbox_init(&p.main_mailbox), 0);
	p.store.name = "test";
	p.store.main_mailbox = &p.main_mailbox;
	p.store.whole_bytes = UINT32_MAX;
	p.turn.now_nsec = 1000000000;
	admit_init(&p.admit, 0, BOUNCES);
	p.ready = (struct ready){ .admit = &p.admit, .turn = &p.turn };
	p.publish = (struct publish){ .store = &p.store, .turn = &p.turn, .admit = &p.admit };
	p.transfer = (struct transfer){ .store = &p.store,
					.turn = &p.turn,
					.admit = &p.admit,
					.ready = &p.ready,
					.publish = &p.publish,
					.engine = &p.fake.engine,
					.threads = &p.workers.engine,
					.log_limit = &p.log_limit };
	ck_assert_int_eq(transfer_init(&p.transfer), 0);
	p.intake = (struct intake){ .store = &p.store,
				    .turn = &p.turn,
				    .admit = &p.admit,
				    .ready = &p.ready,
				    .publish = &p.publish,
				    .transfer = &p.transfer,
				    .park_nsec = 10000000 };

	memset(&p.objects.files, 0, sizeof(p.objects.files));
	memset(&p.objects.slabs, 0, sizeof(p.objects.slabs));
	p.file = (struct file){ .target = { .fd = -1, .offset_align = 4096, .memory_align = 512 },
				.inode = &p.inode,
				.facts = { .can_read = true, .can_write = true },
				.n_refs = 1000000 };
	atomic_init(&p.file.target.buffered_fd, -1);
	ck_assert_int_eq(id_table_add(&p.objects.files, &p.file, 0, &p.file_id), 0);
	p.slab = (struct slab){ .region = { .base = parts_memory },
				.size_bytes = PARTS_SLAB,
				.n_refs = 1000000 };
	ck_assert_int_eq(id_table_add(&p.objects.slabs, &p.slab, 0, &p.slab_id), 0);

	sched_client_init(&p.client);
	p.board.magic = LANE_BOARD_MAGIC;
	p.board.version = RING_VERSION;
}

__attribute__((unused)) static void parts_setup(void)
{
	parts_setup_lane();
	parts_open(&p.channel, &p.ring);
}

/* All ops have ended and are free. */
static void parts_teardown(void)
{
	ck_assert_uint_eq(p.admit.n_in_flight, 0);
	ck_assert_uint_eq(p.workers.engine.n_in_flight, 0);
	ck_assert_uint_eq(p.inode.mode_lock.n_busy, 0);
	ck_assert_uint_eq(p.file.n_refs, 1000000);
	ck_assert_uint_eq(p.slab.n_refs, 1000000);
	transfer_deinit(&p.transfer);
	parts_close(&p.channel);
	mailbox_deinit(&p.main_mailbox);
}

/* The client submits an op on the file; its memory, at the start of the slab, is aligned as the range. */
__attribute__((unused)) static void parts_put(uint64_t id, uint8_t opcode, uint64_t off,
					      uint64_t len)
{
	ring_client_put(&p.ring, &(struct ring_entry){ .id = id,
						       .opcode = opcode,
						       .file = p.file_id,
						       .slab = len ? p.slab_id : 0,
						       .off = off,
						       .slab_off = off % 4096,
						       .len = len });
	(void)ring_client_submit(&p.ring);
}

/* The client's next completion, which has to be there. */
__attribute__((unused)) static struct ring_completion parts_get(void)
{
	struct ring_completion completion;

	ck_assert_uint_ge(ring_client_ready(&p.ring), 1);
	completion = ring_client_peek(&p.ring, 0);
	ring_client_consume(&p.ring, 1);
	return completion;
}

/* Ops that had ended are published, and those that waited for them may start. */
__attribute__((unused)) static int parts_publish(void)
{
	struct list may_start = { 0 };
	int n = publish_run(&p.publish, &may_start);

	intake_start(&p.intake, &may_start);
	return n;
}

/* A turn of the loop. */
__attribute__((unused)) static void parts_turn(void)
{
	p.turn.before_nsec = p.turn.now_nsec;
	p.turn.now_nsec += 10000;
	(void)intake_take(&p.intake);
	(void)transfer_reap(&p.transfer);
	intake_run_deadlines(&p.intake);
	(void)parts_publish();
	(void)transfer_start(&p.transfer);
}

#endif
