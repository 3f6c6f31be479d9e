/*
 * The libaio engine: kernel contexts of one lane.
 *
 * The kernel has few events for the whole host (fs.aio-max-nr), and takes those of a context at once.  So a lane begins
 * with a small context, and gets further ones as channels open that can use them.  A context is never released
 * before the engine's end: io_destroy(2) takes 30 ms.
 *
 * Completions are read from the ring that the kernel maps into this process (as fio and QEMU
 * do); where its layout is not the known one, by io_getevents with a zero time-out.  Every
 * result is read as a signed number: libaio declares it unsigned.
 *
 * On tmpfs the kernel copies the bytes within the call.  A plain call does the same for less: it needs no
 * iocb, no event and no eventfd (4 KiB reads: 0.9 of the lane's CPU time).
 *
 * io_uring was tried: a ring for each lane, registered buffers and files, completions deferred to the
 * lane's own calls.  Beside this engine, reads of 4 KiB at depths 1 to 128 of 1 to 32 clients and of 64 KiB
 * had 0.92 to 1.08 of the CPU time of both sides and no more IOPS.  Writes of 4 KiB had 0.97 to 1.03 of the
 * IOPS, those of 64 KiB 1.05, for 0.96 to 1.17 of the CPU time.  They need no worker thread of the kernel's
 * for each completion, but then the lane does that work.  That is not worth an engine whose blocks the end of
 * the process does not await.
 */
#include "daemon/engine/libaio.h"

#include "daemon/base/hung.h"
#include "daemon/base/log.h"
#include "daemon/base/stall.h"
#include "daemon/engine/threads.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <libaio.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* The ring that io_setup(2) maps; stable since Linux 2.5 (fs/aio.c); its magic is checked. */
struct aio_ring {
	uint32_t id, nr;
	_Atomic uint32_t head; /* this process writes */
	_Atomic uint32_t tail; /* the kernel writes */
	uint32_t magic, compat_features, incompat_features, header_length;
	struct io_event events[];
};
#define AIO_RING_MAGIC 0xa10a10a1u

/*
 * Iocbs of one io_submit.  From three on the kernel holds all of a call back until the last is
 * prepared (AIO_PLUG_THRESHOLD in fs/aio.c), and gives them to the device together.  The device waits
 * for that: 4 KiB reads at depth 32 were 0.79 of in-process libaio with 64, 0.95 with 1 or 2.  But it
 * is notified once for all: with 4 there are as many IOPS as with 2, for 0.85 to 0.96 of the CPU time
 * of both sides (virtio, Linux 6.18).
 */
#define SUBMIT_BATCH 4
/*
 * A larger batch spares system calls, notifications of the device and clock reads.  No device waits for it
 * where SUBMIT_BUSY blocks are in flight, if the batch is small and so prepared soon; or where the work is
 * done inside the call (tmpfs, DAX).  4 KiB reads at depth 32: 13% less processor time, the same IOPS.
 */
#define SUBMIT_BATCH_LARGE 8
#define SUBMIT_BATCH_BYTES (64u << 10)
#define SUBMIT_BUSY 4
/* After so many calls in a row that left nothing in flight, calls are taken to do the work, until one does not.
   A guess. */
#define AT_ONCE_COUNTS 16

/* Each as large as those before it: from 32 blocks to 4096. */
#define CONTEXTS_MAX 8

struct context {
	io_context_t id;
	struct aio_ring *ring; /* NULL: io_getevents */
	uint32_t n_blocks;     /* that fit */
	uint32_t n_in_flight;  /* the lane's */
};

struct engine_libaio {
	struct engine engine;
	struct context contexts[CONTEXTS_MAX];
	_Atomic uint32_t n_contexts; /* grow(): release; the lane: acquire: those before it */
	unsigned n_at_once;	     /* io_submits in a row that left nothing in flight */
};

/* A shallower queue would not keep a device busy. */
#define CONTEXT_BLOCKS_MIN 32u

static uint64_t read_number(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	uint64_t n = 0;

	if (!file || fscanf(file, "%" SCNu64, &n) != 1)
		return 0;
	return n;
}

static uint64_t events_used(void)
{
	return read_number("/proc/sys/fs/aio-nr");
}

static uint64_t events_max(void)
{
	return read_number("/proc/sys/fs/aio-max-nr");
}

static uint64_t libaio_user_room(void)
{
	return events_max() / 4;
}

static struct engine_libaio *libaio(const struct engine *engine)
{
	return container_of((uintptr_t)engine, struct engine_libaio, engine);
}

static uint32_t n_contexts(const struct engine_libaio *e)
{
	return atomic_load_explicit(&e->n_contexts, memory_order_acquire);
}

static void libaio_close(struct engine *engine)
{
	struct engine_libaio *e;

	if (!engine)
		return;
	assert(engine->n_in_flight == 0);
	e = libaio(engine);
	for (uint32_t i = 0; i < n_contexts(e); i++)
		(void)io_destroy(e->contexts[i].id); /* only fails for what is no context */
	closep(&engine->event_fd);
	free(e);
}

static int no_context(uint32_t n_blocks, int r, struct error *error)
{
	if (r != -EAGAIN)
		return error_set(error, r, "libaio: io_setup(%" PRIu32 ")", n_blocks);
	return error_set(error, -EAGAIN,
			 "libaio: no context for %" PRIu32 " blocks: fs.aio-nr is %" PRIu64
			 " of fs.aio-max-nr %" PRIu64
			 ": raise it (sysctl fs.aio-max-nr=1048576) or end other users of libaio",
			 n_blocks, events_used(), events_max());
}

static int libaio_grow(struct engine *engine, uint32_t room, struct error *error)
{
	struct engine_libaio *e = libaio(engine);
	const uint32_t n = n_contexts(e);
	struct context *context = &e->contexts[n];
	uint32_t want = room - engine->room;
	const uint32_t min = want < CONTEXT_BLOCKS_MIN ? want : CONTEXT_BLOCKS_MIN;
	uint64_t used, most;
	int r;

	if (room <= engine->room || n == CONTEXTS_MAX)
		return 0;
	/* At most a quarter of what is free, so that many stores fit. */
	used = events_used();
	most = events_max();
	while (want > min && used + 4 * (uint64_t)want > most)
		want /= 2;
	for (;;) {
		if (want < min)
			want = min;
		r = io_setup((int)want, &context->id);
		if (r != -EAGAIN || want == min)
			break;
		want /= 2; /* somebody else took some since we counted */
	}
	if (r < 0) {
		context->id = NULL;
		return no_context(want, r, error);
	}
	engine->room += want;
	context->n_blocks = want;
	context->ring = (struct aio_ring *)context->id;
	if (context->ring->magic != AIO_RING_MAGIC || context->ring->incompat_features != 0 ||
	    context->ring->header_length != sizeof(struct aio_ring))
		context->ring = NULL;
	/* release: pairs with n_contexts() of the lane */
	atomic_store_explicit(&e->n_contexts, n + 1, memory_order_release);
	return 0;
}

static int libaio_open(const struct engine_config *config, struct engine **ret_engine,
		       struct error *error)
{
	struct engine_libaio *e = calloc(1, sizeof(*e));
	int r = 0;

	if (!e)
		return error_set(error, -ENOMEM, "libaio: context");
	e->engine.ops = &engine_libaio;
	e->engine.depth = config->depth;
	e->engine.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->engine.event_fd < 0)
		r = error_set(error, -errno, "libaio: eventfd");
	else if (config->room)
		r = libaio_grow(&e->engine, config->room, error);
	if (r < 0) {
		libaio_close(&e->engine);
		return r;
	}
	*ret_engine = &e->engine;
	return 0;
}

/* Completions that wait in the ring. */
static uint32_t ring_count(const struct aio_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* only counted */

	return tail >= head ? tail - head : tail + ring->nr - head;
}

/* Learns whether what was submitted is done when io_submit returns. */
static void note_submitted(struct engine_libaio *e)
{
	const uint32_t n = n_contexts(e);
	uint32_t n_done = e->engine.n_ended;

	for (uint32_t i = 0; i < n; i++)
		if (e->contexts[i].ring)
			n_done += ring_count(e->contexts[i].ring);
	if (n_done < e->engine.n_in_flight)
		e->n_at_once = 0;
	else if (e->n_at_once < AT_ONCE_COUNTS)
		e->n_at_once++;
	e->engine.is_at_once = e->n_at_once == AT_ONCE_COUNTS;
}

static uid_t uid_of(const struct block *block)
{
	return block->target->about.who.uid;
}

/* A context with room, or NULL. */
static struct context *context_find(struct engine_libaio *e)
{
	const uint32_t n = n_contexts(e);

	for (uint32_t i = 0; i < n; i++)
		if (e->contexts[i].n_in_flight < e->contexts[i].n_blocks)
			return &e->contexts[i];
	return NULL;
}

/* How many of the first blocks go into one call.  context: NULL: none has room. */
static int count_batch(const struct engine *engine, const struct context *context,
		       struct block *const *blocks, int n)
{
	const struct block *first = blocks[0];
	const bool is_tmpfs = first->target->is_tmpfs;
	uint32_t room = engine->depth - engine->n_in_flight;
	const bool no_device_waits = is_tmpfs || engine->is_at_once ||
				     engine->n_in_flight >= SUBMIT_BUSY;
	const int most = no_device_waits ? SUBMIT_BATCH_LARGE : SUBMIT_BATCH;
	uint64_t bytes = first->len;

	if (!is_tmpfs && !context)
		return 0;
	if (!is_tmpfs && room > context->n_blocks - context->n_in_flight)
		room = context->n_blocks - context->n_in_flight;
	if (n > most)
		n = most;
	if ((uint32_t)n > room)
		n = (int)room;
	if (n > 1 && first->is_single)
		return 1;
	for (int i = 1; i < n; i++) {
		bytes += blocks[i]->len;
		if (i >= SUBMIT_BATCH && bytes > SUBMIT_BATCH_BYTES)
			return i;
		/* A call that hangs is reported as one user's, and one that stalls as one memory's. */
		if (blocks[i]->is_single || uid_of(blocks[i]) != uid_of(first) ||
		    blocks[i]->target->is_tmpfs != is_tmpfs ||
		    (stall_is_watched() && blocks[i]->region != first->region))
			return i;
	}
	return n;
}

static void prepare(const struct engine_libaio *e, struct block *block, struct iocb *iocb)
{
	char *memory = block->region->base + block->region_off;

	if (block_is_write(block))
		io_prep_pwrite(iocb, block->target->fd, memory, block->len, (long long)block->off);
	else
		io_prep_pread(iocb, block->target->fd, memory, block->len, (long long)block->off);
	iocb->aio_rw_flags = (block->is_nowait ? RWF_NOWAIT : 0) |
			     (block->is_dsync ? RWF_DSYNC : 0);
	io_set_eventfd(iocb, e->engine.event_fd);
	iocb->data = block;
}

/* A batch.  Returns what io_submit(2) does.  *ret_has_failed: perhaps with EFAULT. */
static int submit_batch(struct engine_libaio *e, struct context *context, struct block **blocks,
			int n, bool *ret_has_failed)
{
	/* The kernel has copied them when io_submit returns. */
	struct iocb iocbs[SUBMIT_BATCH_LARGE], *pointers[SUBMIT_BATCH_LARGE];
	const bool is_tmpfs = blocks[0]->target->is_tmpfs;

	int r = n;

	*ret_has_failed = false;
	for (int i = 0; i < n; i++) {
		if (is_tmpfs) {
			threads_do(blocks[i]);
			*ret_has_failed |= blocks[i]->result < 0;
			engine_end(&e->engine, blocks[i]);
		} else {
			prepare(e, blocks[i], &iocbs[i]);
			pointers[i] = &iocbs[i];
		}
	}
	if (!is_tmpfs) {
		r = io_submit(context->id, n, pointers);
		*ret_has_failed = r != n;
		context->n_in_flight += r > 0 ? (uint32_t)r : 0;
	}
	return r;
}

static int libaio_submit(struct engine *engine, struct block **blocks, int n)
{
	struct engine_libaio *e = libaio(engine);
	int done = 0;

	while (done < n) {
		const uint64_t since_nsec = stall_begin();
		struct context *context = context_find(e);
		const int batch = count_batch(engine, context, &blocks[done], n - done);
		struct block *first = blocks[done];
		bool has_failed;
		int r;

		if (!batch)
			break;
		if (engine->call)
			hung_enter(engine->call, &first->target->about.who, since_nsec);
		r = submit_batch(e, context, &blocks[done], batch, &has_failed);
		first->has_stalled |= stall_end(since_nsec, has_failed);
		if (engine->call)
			hung_leave(engine->call);
		if (r == -EINTR)
			continue;
		if (r == -EAGAIN)
			break; /* out of requests in the kernel: when some are back */
		if (r < 0) {
			/* it speaks of the first one only */
			first->result = r;
			engine_end(engine, first);
			r = 1;
		}
		engine->n_in_flight += (uint32_t)r;
		done += r;
		note_submitted(e);
	}
	return done;
}

/* Takes at most n blocks that the context has done. */
static int context_reap(struct context *context, struct block **blocks, int n)
{
	struct aio_ring *ring = context->ring;
	int done = 0;

	if (ring) {
		uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
		/* pairs with the kernel's smp_wmb before it moves the tail */
		uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

		while (done < n && head != tail) {
			const struct io_event *event = &ring->events[head];
			struct block *block = event->data;

			block->result = (int64_t)event->res; /* declared unsigned */
			blocks[done++] = block;
			head = head + 1 == ring->nr ? 0 : head + 1;
		}
		/* release: the events were read before the kernel may write there again */
		atomic_store_explicit(&ring->head, head, memory_order_release);
	} else {
		struct io_event events[64];
		struct timespec zero = { 0, 0 };
		int want = n < 64 ? n : 64;
		int r = want ? io_getevents(context->id, 0, want, events, &zero) : 0;

		for (int i = 0; i < r; i++) {
			struct block *block = events[i].data;

			block->result = (int64_t)events[i].res; /* declared unsigned */
			blocks[done++] = block;
		}
	}
	context->n_in_flight -= (uint32_t)done;
	return done;
}

static int libaio_reap(struct engine *engine, struct block **blocks, int n)
{
	struct engine_libaio *e = libaio(engine);
	const uint32_t n_all = n_contexts(e);
	int done = engine_take_ended(engine, blocks, n);

	for (uint32_t i = 0; i < n_all; i++)
		if (e->contexts[i].n_in_flight)
			done += context_reap(&e->contexts[i], &blocks[done], n - done);
	assert(engine->n_in_flight >= (uint32_t)done);
	engine->n_in_flight -= (uint32_t)done;
	return done;
}

static bool libaio_is_ready(const struct engine *engine)
{
	const struct engine_libaio *e = libaio(engine);
	const uint32_t n = n_contexts(e);

	if (engine->ended)
		return true;
	for (uint32_t i = 0; i < n; i++) {
		const struct aio_ring *ring = e->contexts[i].ring;

		if (ring && atomic_load_explicit(&ring->head, memory_order_relaxed) !=
				    atomic_load_explicit(&ring->tail, memory_order_acquire))
			return true;
	}
	return false; /* without a ring, the eventfd reports it */
}

const struct engine_ops engine_libaio = {
	.name = "libaio",
	.operations = 1u << BLOCK_READ | 1u << BLOCK_WRITE,
	.targets = 1u << TARGET_FILE,
	.regions = 1u << REGION_HOST,
	.max_bytes = INT_MAX & ~4095, /* of one read(2) or write(2) */
	.align = 1,
	.has_nowait = true,
	.window_regions = 1u << REGION_HOST,
	.open = libaio_open,
	.grow = libaio_grow,
	.user_room = libaio_user_room,
	.close = libaio_close,
	.submit = libaio_submit,
	.reap = libaio_reap,
	.is_ready = libaio_is_ready,
};
