/*
 * The side that uses libaio within its own process, as a good program would: one context, one
 * file, opened once, with O_DIRECT, page-aligned memory.
 *
 * io_getevents waits in the kernel for one event at least and takes all there are.  An op larger
 * than a block is done in blocks, as many in flight as the depth, over all ops.  Small
 * requests are submitted one by one: on the disk where it was tried, batches of them read a
 * sixth fewer in all.
 */
#include <errno.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"

#define SMALL_BYTES (UINT64_C(64) << 10)

/* An op: blocks not yet submitted, in flight, done. */
struct slot {
	char *memory;
	uint64_t off;
	uint64_t submitted, done; /* bytes */
	int64_t start_nsec;
};

/* State of a process. */
struct program {
	struct point point;
	int fd;
	io_context_t context;
	char *memory;
	struct offsets offsets;
	struct slot *slots;
	struct slot **idle;	    /* a stack of n_idle */
	struct slot *current;	    /* whose blocks are being submitted */
	struct iocb *iocbs, **free; /* a stack of those that are not in flight */
	struct iocb **batch;
	struct io_event *events;
	unsigned n_slots, n_idle, n_free;
	uint64_t n_started;
};

static void program_close(void *state)
{
	struct program *p = state;

	if (!p)
		return;
	if (p->context)
		(void)io_destroy(p->context); /* nothing is in flight */
	closep(&p->fd);
	free(p->memory);
	free(p->slots);
	free(p->idle);
	free(p->iocbs);
	free(p->free);
	free(p->batch);
	free(p->events);
	free(p);
}

static void program_closep(struct program **p)
{
	program_close(*p);
}

static int program_memory(struct program *p)
{
	const unsigned depth = p->point.depth;

	p->slots = calloc(p->n_slots, sizeof(*p->slots));
	p->idle = calloc(p->n_slots, sizeof(struct slot *));
	p->iocbs = calloc(depth, sizeof(*p->iocbs));
	p->free = calloc(depth, sizeof(struct iocb *));
	p->batch = calloc(depth, sizeof(struct iocb *));
	p->events = calloc(depth, sizeof(*p->events));
	if (!p->slots || !p->idle || !p->iocbs || !p->free || !p->batch || !p->events)
		return -ENOMEM;
	return memory_new(point_memory_bytes(&p->point), &p->memory);
}

static int program_open(const struct point *point, unsigned index, const void *argument,
			void **ret_state, char *why, size_t size)
{
	_cleanup_(program_closep) struct program *p = calloc(1, sizeof(*p));
	int r;

	(void)argument;
	if (!p)
		return -ENOMEM;
	p->point = *point;
	p->n_slots = point_ops_in_flight(point);
	offsets_init(&p->offsets, point);
	p->fd = point_open(point, index, why, size);
	if (p->fd < 0)
		return p->fd;
	r = program_memory(p);
	if (r == 0)
		r = io_setup((int)point->depth, &p->context);
	if (r < 0) {
		(void)snprintf(why, size, "cannot set it up: %s", strerror(-r));
		return r;
	}
	for (unsigned i = 0; i < p->n_slots; i++) {
		p->slots[i].memory = p->memory + i * point->op_bytes;
		p->idle[p->n_idle++] = &p->slots[i];
	}
	for (unsigned i = 0; i < point->depth; i++)
		p->free[p->n_free++] = &p->iocbs[i];
	*ret_state = TAKE_PTR(p);
	return 0;
}

/* The op whose next block is to be submitted; NULL: there is none for now. */
static struct slot *next_slot(struct program *p, const struct work *work, int64_t now)
{
	const unsigned n_max = p->point.slice_ops;
	struct slot *slot = p->current;

	if (slot && slot->submitted < p->point.op_bytes)
		return slot;
	p->current = NULL;
	if (p->n_idle == 0 ||
	    (n_max > 0 ? p->n_started >= n_max : p->n_started > 0 && now >= work->end_nsec))
		return NULL;
	slot = p->idle[--p->n_idle];
	slot->off = offsets_next(&p->offsets);
	slot->submitted = slot->done = 0;
	slot->start_nsec = now;
	p->n_started++;
	p->current = slot;
	return slot;
}

static struct iocb *next_block(struct program *p, struct slot *slot)
{
	const uint64_t block = point_block_bytes(&p->point);
	const uint64_t left = p->point.op_bytes - slot->submitted;
	const uint64_t len = left < block ? left : block;
	const uint64_t off = slot->off + slot->submitted;
	struct iocb *iocb = p->free[--p->n_free];

	if (p->point.is_write)
		io_prep_pwrite(iocb, p->fd, slot->memory + slot->submitted, len, (long long)off);
	else
		io_prep_pread(iocb, p->fd, slot->memory + slot->submitted, len, (long long)off);
	iocb->data = slot;
	slot->submitted += len;
	return iocb;
}

static int submit(struct program *p, unsigned n)
{
	for (unsigned i = 0; i < n;) {
		const int r = io_submit(p->context, (long)(n - i), p->batch + i);

		if (r <= 0)
			return r < 0 ? r : -EAGAIN;
		i += (unsigned)r;
	}
	return 0;
}

/* Fills up to the depth. */
static int refill(struct program *p, const struct work *work, int64_t now)
{
	const bool is_small = point_block_bytes(&p->point) <= SMALL_BYTES;
	struct slot *slot;
	unsigned n = 0;
	int r = 0;

	while (r == 0 && p->n_free > 0 && (slot = next_slot(p, work, now))) {
		p->batch[n++] = next_block(p, slot);
		if (is_small) {
			r = submit(p, n);
			n = 0;
		}
	}
	return r == 0 ? submit(p, n) : r;
}

static int event_take(struct program *p, const struct io_event *event, int64_t now,
		      struct work *work)
{
	struct slot *slot = event->data;
	/* libaio declares it unsigned: errors are negative numbers. */
	const int64_t result = (int64_t)event->res;

	p->free[p->n_free++] = event->obj;
	if (result != (int64_t)event->obj->u.c.nbytes)
		return result < 0 ? (int)result : -EIO;
	slot->done += (uint64_t)result;
	if (slot->done < p->point.op_bytes)
		return 0;
	histogram_add(&work->histogram, now - slot->start_nsec);
	work->ops++;
	p->idle[p->n_idle++] = slot;
	return 0;
}

static int program_run(void *state, struct work *work)
{
	struct program *p = state;
	int r;

	p->n_started = 0;
	p->current = NULL;
	r = refill(p, work, now_nsec());
	while (r == 0 && p->n_free < p->point.depth) {
		const int n = io_getevents(p->context, 1, (long)p->point.depth, p->events, NULL);
		const int64_t now = now_nsec();

		if (n < 0 && n != -EINTR)
			r = n;
		for (int i = 0; r == 0 && i < n; i++)
			r = event_take(p, &p->events[i], now, work);
		if (r == 0)
			r = refill(p, work, now);
	}
	if (r < 0)
		(void)snprintf(work->why, sizeof(work->why), "libaio: %s", strerror(-r));
	work->bytes = work->ops * p->point.op_bytes;
	return r;
}

static const struct crew_member program = { program_open, program_run, program_close };

int local_side_open(struct side *side)
{
	return crew_side_open(side, &program);
}
