#include "daemon/engine/threads.h"

#include "daemon/engine/gds.h"
#include "daemon/object/extend.h"
#include "daemon/object/unaligned.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Overflow threads, for files where worker threads are the engine: for two channels at full depth, so that
   a channel whose blocks hang does not block the user's other channels. */
#define THREADS_OVERFLOW (2 * WORKERS_DEPTH - WORKERS_THREADS)

/* ---- users ---- */

static struct worker_user *user_of_node(struct list_node *node)
{
	return node ? container_of(node, struct worker_user, node) : NULL;
}

static struct worker_user *user_find(const struct worker_queues *queues, uid_t uid)
{
	struct worker_user *user = user_of_node(queues->users.first);

	while (user && user->uid != uid)
		user = user_of_node(user->node.next);
	return user;
}

int worker_user_ref(struct worker_queues *queues, uid_t uid, struct worker_user **ret_user)
{
	struct worker_user *user = user_find(queues, uid);
	int r;

	if (user) {
		user->n_refs++;
		*ret_user = user;
		return 0;
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return -ENOMEM;
	r = work_queue_new_overflow("store", WORKERS_THREADS, THREADS_OVERFLOW, &user->queue);
	if (r < 0) {
		free(user);
		return r;
	}
	user->uid = uid;
	user->n_refs = 1;
	list_push(&queues->users, &user->node);
	*ret_user = user;
	return 0;
}

void worker_user_unref(struct worker_queues *queues, struct worker_user *user)
{
	assert(user->n_refs > 0);
	if (--user->n_refs)
		return;
	work_queue_leave(user->queue); /* its channels are gone, so it is idle */
	list_remove(&queues->users, &user->node);
	free(user);
}

/* ---- a block, on a worker thread ---- */

static int64_t transfer_once(const struct block *block)
{
	const struct target *target = block->target;
	const int fd = block->is_buffered ? target_buffered_fd(target) : target->fd;
	char *memory = block->region->base + block->region_off;
	if (block->is_dsync) {
		const struct iovec iov = { memory, block->len };
		const ssize_t written = pwritev2(fd, &iov, 1, (off_t)block->off, RWF_DSYNC);

		return written < 0 ? -errno : written;
	}
	/*
	 * Not pread(2): a race detector looks at its memory, and a client may well let two of its ops use the
	 * same.  Nor preadv2(2): its vector takes a lane 80 ns, of 1.8 us for 4 KiB of tmpfs.
	 */
	const long n = syscall(block_is_write(block) ? SYS_pwrite64 : SYS_pread64, fd, memory,
			       (size_t)block->len, (off_t)block->off);

	return n < 0 ? -errno : n;
}

static void transfer(struct block *block)
{
	do
		block->result = transfer_once(block);
	while (block_must_continue(block));
}

/* The driver has no flag for a write that is on the device at its end. */
static void transfer_gpu(struct block *block)
{
	gds_transfer(block);
	if (block->is_dsync && block->result >= 0 && fdatasync(block->target->fd) < 0)
		block->result = -errno;
}

static void read_bounced(struct block *block)
{
	const uint32_t unit = unaligned_unit(block->target->offset_align);
	const struct unaligned_cover units = unaligned_cover(block->off, block->bytes, unit);
	const uint32_t align = block->target->memory_align > unit ? block->target->memory_align
								  : unit;
	_cleanup_(freep) void *memory = NULL;
	struct region region = { .kind = REGION_HOST };
	struct block cover = { .operation = BLOCK_READ,
			       .target = block->target,
			       .region = &region,
			       .off = units.off,
			       .len = (uint32_t)units.len,
			       .bytes = (uint32_t)units.len };

	if (posix_memalign(&memory, align, units.len)) {
		block->result = -ENOMEM;
		return;
	}
	region.base = memory;
	transfer(&cover);
	block_copy_out(block, &cover);
}

void threads_do(struct block *block)
{
	const int fd = block->target->fd;

	switch ((enum block_operation)block->operation) {
	case BLOCK_READ:
	case BLOCK_WRITE:
		if (block->region->kind == REGION_GPU)
			transfer_gpu(block);
		else if (block->is_bounced)
			read_bounced(block);
		else
			transfer(block);
		return;
	case BLOCK_FSYNC:
		block->result = fsync(fd) < 0 ? -errno : 0;
		return;
	case BLOCK_FDATASYNC:
		block->result = fdatasync(fd) < 0 ? -errno : 0;
		return;
	case BLOCK_EXTEND:
		block->result = -extend_step_do(fd, block->step);
		return;
	case N_BLOCK_OPERATIONS:
		return;
	}
}

/* ---- the engine ---- */

struct engine_threads {
	struct engine engine;
	struct mailbox mailbox; /* workers post their blocks, and work queues report room */
};

static struct engine_threads *threads(const struct engine *engine)
{
	return container_of((struct engine *)(uintptr_t)engine, struct engine_threads, engine);
}

static void threads_close(struct engine *engine)
{
	if (!engine)
		return;
	assert(engine->n_in_flight == 0);
	mailbox_deinit(&threads(engine)->mailbox);
	free(threads(engine));
}

/* Blocks in flight are not limited here: work queues limit them. */
static int threads_open(const struct engine_config *config, struct engine **ret_engine,
			struct error *error)
{
	struct engine_threads *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return error_set(error, -ENOMEM, "threads: engine");
	r = mailbox_init(&e->mailbox);
	if (r < 0) {
		free(e);
		return error_set(error, r, "threads: mailbox");
	}
	e->engine.ops = &engine_threads;
	e->engine.depth = config->depth;
	e->engine.event_fd = e->mailbox.event_fd;
	*ret_engine = &e->engine;
	return 0;
}

/* A worker has posted the block. */
static void on_done(struct message *message)
{
	struct worker_block *block = container_of(message, struct worker_block, message);

	engine_end(block->workers->engine, &block->block);
}

static void on_room_message(struct message *message)
{
	struct workers *workers = container_of(message, struct workers, message);

	workers->waits_for_room = false;
	workers->on_room(workers);
}

/* Any thread, under the work queue's lock. */
static void on_room(struct work_room *room)
{
	struct workers *workers = container_of(room, struct workers, room);

	mailbox_post(&threads(workers->engine)->mailbox, &workers->message, on_room_message);
}

static void run(struct work *work)
{
	struct worker_block *block = container_of(work, struct worker_block, work);

	threads_do(&block->block);
	mailbox_post(&threads(block->workers->engine)->mailbox, &block->message, on_done);
}

/* The block's call, for reports of a hang. */
static struct hung_about call_of(const struct block *block)
{
	static const char *const calls[N_BLOCK_OPERATIONS] = {
		[BLOCK_READ] = "read",	     [BLOCK_WRITE] = "write",	   [BLOCK_FSYNC] = "fsync",
		[BLOCK_FDATASYNC] = "fsync", [BLOCK_EXTEND] = "fallocate",
	};
	struct hung_about about = target_about(block->target, calls[block->operation]);

	about.is_block = true;
	if ((block->operation == BLOCK_READ || block->operation == BLOCK_WRITE) &&
	    block->region->kind == REGION_GPU) {
		about.what = block_is_write(block) ? "cuFileWrite" : "cuFileRead";
		about.is_gpu = true;
	}
	return about;
}

static int threads_submit(struct engine *engine, struct block **blocks, int n)
{
	for (int i = 0; i < n; i++) {
		struct worker_block *block = container_of(blocks[i], struct worker_block, block);
		struct workers *workers = block->workers;

		block->work.run = run;
		block->work.about = call_of(&block->block);
		workers->room.on_room = on_room;
		if (!work_queue_try_submit(workers->user->queue, &block->work, &workers->room)) {
			workers->waits_for_room = true;
			return i;
		}
		engine->n_in_flight++;
	}
	return n;
}

bool workers_stop_waiting(struct workers *workers)
{
	if (workers->waits_for_room &&
	    work_queue_stop_waiting(workers->user->queue, &workers->room))
		workers->waits_for_room = false;
	return !workers->waits_for_room;
}

static int threads_reap(struct engine *engine, struct block **blocks, int n)
{
	struct engine_threads *e = threads(engine);
	int done;

	if (mailbox_has_any(&e->mailbox))
		(void)mailbox_run(&e->mailbox);
	done = engine_take_ended(engine, blocks, n);
	engine->n_in_flight -= (uint32_t)done;
	return done;
}

static bool threads_is_ready(const struct engine *engine)
{
	return engine->ended || mailbox_has_any(&threads(engine)->mailbox);
}

const struct engine_ops engine_threads = {
	.name = "threads",
	.operations = 1u << BLOCK_READ | 1u << BLOCK_WRITE | 1u << BLOCK_FSYNC |
		      1u << BLOCK_FDATASYNC | 1u << BLOCK_EXTEND,
	.targets = 1u << TARGET_FILE,
	.regions = 1u << REGION_HOST | 1u << REGION_GPU,
	.max_bytes = INT_MAX & ~4095, /* of one read(2) or write(2) */
	.align = 1,
	.has_unaligned = true,
	.window_regions = 1u << REGION_GPU,
	.open = threads_open,
	.close = threads_close,
	.submit = threads_submit,
	.reap = threads_reap,
	.is_ready = threads_is_ready,
};
