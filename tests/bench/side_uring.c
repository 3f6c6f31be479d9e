/*
 * The side that uses io_uring within its own process, as a good program would: one ring, its memory
 * a registered buffer, its file a registered file, opened once, with O_DIRECT.
 *
 * A turn is one system call: io_uring_enter() submits what the turn before has started and waits
 * for one completion at least.  Where the kernel can, completions are only worked off in that call
 * (IORING_SETUP_DEFER_TASKRUN), which costs the least.  The ring is used by plain system calls: it
 * takes two barrier pairs and no library.
 *
 * An op is one request, so this side has no points whose ops are larger than a block.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"

/*
 * Both rings.  We write the submission tail (release: the entries before it are whole) and the
 * completion head (release: those entries were read); the kernel writes the completion tail
 * (acquire: the entries before it are whole).  The submission head is not needed: at most depth ops
 * are queued or in flight, which the ring has room for.
 */
struct ring {
	int fd;
	void *map; /* both rings: IORING_FEAT_SINGLE_MMAP */
	size_t map_bytes;
	struct io_uring_sqe *sqes;
	size_t sqes_bytes;
	struct io_uring_cqe *cqes;
	_Atomic unsigned *submission_tail, *completion_head, *completion_tail;
	unsigned submission_mask, completion_mask;
	unsigned tail; /* of the submission ring, as far as filled */
	unsigned n_queued;
};

/* State of a process. */
struct program {
	struct point point;
	int fd;
	struct ring ring;
	char *memory;
	struct offsets offsets;
	int64_t *start_nsec; /* of each op in flight; its index is the op's user_data */
	unsigned n_slots, n_flying;
	uint64_t n_started;
};

/* ---- the ring ---- */

static void ring_close(struct ring *ring)
{
	if (ring->sqes)
		(void)munmap(ring->sqes, ring->sqes_bytes); /* it is a mapping, as is the other */
	if (ring->map)
		(void)munmap(ring->map, ring->map_bytes);
	closep(&ring->fd);
}

/* The cheapest setup that this kernel knows: each flag is younger than the next. */
static int ring_setup(unsigned entries, struct io_uring_params *ret_params)
{
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* 6.1 */
		IORING_SETUP_COOP_TASKRUN,				 /* 5.19 */
		0,
	};
	int fd = -1;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		*ret_params = (struct io_uring_params){ .flags = flags[i] };
		fd = (int)syscall(SYS_io_uring_setup, entries, ret_params);
		if (fd >= 0 || errno != EINVAL)
			break;
	}
	return fd < 0 ? -errno : fd;
}

static void *ring_map(const struct ring *ring, size_t bytes, uint64_t off)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			 (off_t)off);

	return map == MAP_FAILED ? NULL : map;
}

static int ring_open(struct ring *ring, unsigned entries)
{
	struct io_uring_params p;
	unsigned *indices;
	size_t submission_bytes, completion_bytes;

	ring->fd = ring_setup(entries, &p);
	if (ring->fd < 0)
		return ring->fd;
	submission_bytes = p.sq_off.array + p.sq_entries * sizeof(*indices);
	completion_bytes = p.cq_off.cqes + p.cq_entries * sizeof(*ring->cqes);
	ring->map_bytes = submission_bytes > completion_bytes ? submission_bytes : completion_bytes;
	ring->sqes_bytes = p.sq_entries * sizeof(*ring->sqes);
	ring->map = ring_map(ring, ring->map_bytes, IORING_OFF_SQ_RING);
	ring->sqes = ring_map(ring, ring->sqes_bytes, IORING_OFF_SQES);
	if (!ring->map || !ring->sqes)
		return -errno;
	ring->submission_tail = (void *)((char *)ring->map + p.sq_off.tail);
	ring->completion_head = (void *)((char *)ring->map + p.cq_off.head);
	ring->completion_tail = (void *)((char *)ring->map + p.cq_off.tail);
	ring->cqes = (void *)((char *)ring->map + p.cq_off.cqes);
	ring->submission_mask = p.sq_entries - 1;
	ring->completion_mask = p.cq_entries - 1;
	indices = (void *)((char *)ring->map + p.sq_off.array);
	for (unsigned i = 0; i < p.sq_entries; i++)
		indices[i] = i; /* for good: entries are used in their order */
	return 0;
}

static int ring_register(struct ring *ring, unsigned what, const void *values)
{
	return syscall(SYS_io_uring_register, ring->fd, what, values, 1) < 0 ? -errno : 0;
}

static struct io_uring_sqe *ring_next(struct ring *ring)
{
	ring->n_queued++;
	return &ring->sqes[ring->tail++ & ring->submission_mask];
}

/* Submits all that is queued, and waits for a completion. */
static int ring_enter(struct ring *ring)
{
	long n;

	/* release: with the kernel's read of the tail in io_uring_enter() */
	atomic_store_explicit(ring->submission_tail, ring->tail, memory_order_release);
	n = syscall(SYS_io_uring_enter, ring->fd, ring->n_queued, 1, IORING_ENTER_GETEVENTS, NULL,
		    0);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	ring->n_queued -= (unsigned)n;
	return 0;
}

/* ---- a process ---- */

static void program_close(void *state)
{
	struct program *p = state;

	if (!p)
		return;
	ring_close(&p->ring); /* nothing is in flight */
	closep(&p->fd);
	free(p->memory);
	free(p->start_nsec);
	free(p);
}

static void program_closep(struct program **p)
{
	program_close(*p);
}

static int program_ring(struct program *p, char *why, size_t size)
{
	const struct iovec buffer = { p->memory, point_memory_bytes(&p->point) };
	int r = ring_open(&p->ring, p->n_slots);

	if (r == -ENOSYS || r == -EPERM) {
		(void)snprintf(why, size, "the kernel refuses it to this process: %s",
			       strerror(-r));
		return -EOPNOTSUPP;
	}
	if (r == 0)
		r = ring_register(&p->ring, IORING_REGISTER_BUFFERS, &buffer);
	if (r == 0)
		r = ring_register(&p->ring, IORING_REGISTER_FILES, &p->fd);
	if (r < 0)
		(void)snprintf(why, size, "cannot set it up: %s", strerror(-r));
	return r;
}

static int program_open(const struct point *point, unsigned index, const void *argument,
			void **ret_state, char *why, size_t size)
{
	_cleanup_(program_closep) struct program *p = calloc(1, sizeof(*p));
	int r;

	(void)argument;
	if (!p)
		return -ENOMEM;
	p->fd = p->ring.fd = -1;
	p->point = *point;
	p->n_slots = point_ops_in_flight(point);
	offsets_init(&p->offsets, point);
	p->start_nsec = calloc(p->n_slots, sizeof(*p->start_nsec));
	if (!p->start_nsec)
		return -ENOMEM;
	r = memory_new(point_memory_bytes(point), &p->memory);
	if (r < 0)
		return r;
	p->fd = point_open(point, index, why, size);
	if (p->fd < 0)
		return p->fd;
	r = program_ring(p, why, size);
	if (r == 0)
		*ret_state = TAKE_PTR(p);
	return r;
}

/* Queues an op if another one is to be started. */
static void start(struct program *p, unsigned slot, const struct work *work, int64_t now)
{
	const unsigned n_max = p->point.slice_ops;

	if (n_max > 0 ? p->n_started >= n_max : p->n_started > 0 && now >= work->end_nsec)
		return;
	*ring_next(&p->ring) = (struct io_uring_sqe){
		.opcode = p->point.is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
		.flags = IOSQE_FIXED_FILE,
		.fd = 0, /* the only registered one, as is the buffer */
		.off = offsets_next(&p->offsets),
		.addr = (uintptr_t)(p->memory + slot * p->point.op_bytes),
		.len = (uint32_t)p->point.op_bytes,
		.user_data = slot,
	};
	p->start_nsec[slot] = now;
	p->n_started++;
	p->n_flying++;
}

/* Takes all completions, and starts as many ops anew. */
static int turn(struct program *p, struct work *work)
{
	struct ring *ring = &p->ring;
	/* acquire: with the kernel's write of the tail, after the entries */
	const unsigned tail = atomic_load_explicit(ring->completion_tail, memory_order_acquire);
	/* relaxed: only we write it */
	unsigned head = atomic_load_explicit(ring->completion_head, memory_order_relaxed);
	const int64_t now = now_nsec();

	for (; head != tail; head++) {
		const struct io_uring_cqe *cqe = &ring->cqes[head & ring->completion_mask];

		if (cqe->res != (int)p->point.op_bytes)
			return cqe->res < 0 ? cqe->res : -EIO;
		histogram_add(&work->histogram, now - p->start_nsec[cqe->user_data]);
		work->ops++;
		p->n_flying--;
		start(p, (unsigned)cqe->user_data, work, now);
	}
	/* release: with the kernel's read of the head, before it reuses the entries */
	atomic_store_explicit(ring->completion_head, head, memory_order_release);
	return 0;
}

static int program_run(void *state, struct work *work)
{
	struct program *p = state;
	const int64_t now = now_nsec();
	int r = 0;

	p->n_started = 0;
	for (unsigned i = 0; i < p->n_slots; i++)
		start(p, i, work, now);
	while (r == 0 && p->n_flying > 0) {
		r = ring_enter(&p->ring);
		if (r == 0)
			r = turn(p, work);
	}
	if (r < 0)
		(void)snprintf(work->why, sizeof(work->why), "io_uring: %s", strerror(-r));
	work->bytes = work->ops * p->point.op_bytes;
	return r;
}

static const struct crew_member program = { program_open, program_run, program_close };

int uring_side_open(struct side *side)
{
	if (point_block_bytes(&side->point) != side->point.op_bytes) {
		(void)snprintf(side->why, sizeof(side->why), "only ops of one block");
		return -EOPNOTSUPP;
	}
	return crew_side_open(side, &program);
}
