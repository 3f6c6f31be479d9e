#include "tests/bench/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"

int local_open(struct local *local, const char *path, uint64_t block_bytes)
{
	int r;

	*local = (struct local){ .fd = -1, .block_bytes = block_bytes };
	local->fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (local->fd < 0) {
		r = -errno;
		fprintf(stderr, "bench: cannot open %s for direct I/O: %s\n", path, strerror(-r));
		return r;
	}
	r = -posix_memalign((void **)&local->memory, 4096, LOCAL_DEPTH_MAX * block_bytes);
	if (r == 0) {
		memset(local->memory, 1, LOCAL_DEPTH_MAX * block_bytes); /* pages, not holes */
		r = io_setup(LOCAL_DEPTH_MAX, &local->context);
	}
	if (r < 0) {
		fprintf(stderr, "bench: cannot set libaio up: %s\n", strerror(-r));
		local_close(local);
	}
	return r;
}

void local_close(struct local *local)
{
	if (local->context)
		(void)io_destroy(local->context); /* nothing is in flight */
	closep(&local->fd);
	free(local->memory);
	*local = (struct local){ .fd = -1 };
}

/* One by one: on the disk where it was tried, batches of them read a sixth fewer in all. */
static int submit_one(struct local *local, struct iocb *iocb)
{
	const int r = io_submit(local->context, 1, &iocb);

	return r == 1 ? 0 : r < 0 ? r : -EAGAIN;
}

static void prepare(struct local *local, struct iocb *iocb, bool is_write, char *memory,
		    uint64_t off)
{
	if (is_write)
		io_prep_pwrite(iocb, local->fd, memory, local->block_bytes, (long long)off);
	else
		io_prep_pread(iocb, local->fd, memory, local->block_bytes, (long long)off);
	iocb->aio_rw_flags = local->rw_flags;
}

static int take_off(struct local *local, struct iocb *iocb, uint64_t n_blocks, uint64_t *seed)
{
	prepare(local, iocb, local->is_write, iocb->u.c.buf,
		random_next(seed) % n_blocks * local->block_bytes);
	return submit_one(local, iocb);
}

/* True: the event's block would have waited; it is under way again, free to do so. */
static bool is_asked_again(struct local *local, const struct io_event *event, int *r)
{
	if ((int64_t)event->res != -EAGAIN || !event->obj->aio_rw_flags)
		return false;
	local->n_refused++;
	event->obj->aio_rw_flags = 0;
	*r = submit_one(local, event->obj);
	return true;
}

int local_random(struct local *local, uint64_t file_bytes, unsigned depth, int64_t usec,
		 uint64_t *ret_n, double *ret_seconds)
{
	const uint64_t n_blocks = file_bytes / local->block_bytes;
	struct iocb iocbs[LOCAL_DEPTH_MAX];
	struct io_event events[LOCAL_DEPTH_MAX];
	uint64_t n_done = 0, seed = random_seed();
	const int64_t start = now_nsec(), end = start + usec * 1000;
	unsigned n_flying = 0;
	bool is_over = false;
	int r = 0;

	for (; r == 0 && n_flying < depth; n_flying++) {
		iocbs[n_flying].u.c.buf = local->memory + n_flying * local->block_bytes;
		r = take_off(local, &iocbs[n_flying], n_blocks, &seed);
	}
	while (r == 0 && n_flying > 0) {
		const int n = io_getevents(local->context, 1, (long)depth, events, NULL);

		if (n == -EINTR)
			continue;
		if (n < 0)
			r = n;
		is_over = is_over || now_nsec() >= end;
		for (int i = 0; r == 0 && i < n; i++) {
			/* libaio declares it unsigned: errors are negative numbers. */
			const int64_t result = (int64_t)events[i].res;

			if (is_asked_again(local, &events[i], &r))
				continue;
			n_done++;
			if (result != (int64_t)local->block_bytes)
				r = result < 0 ? (int)result : -EIO;
			else if (is_over)
				n_flying--;
			else
				r = take_off(local, events[i].obj, n_blocks, &seed);
		}
	}
	if (r < 0)
		fprintf(stderr, "bench: libaio: %s\n", strerror(-r));
	*ret_n = n_done;
	*ret_seconds = (double)(now_nsec() - start) / 1e9;
	return r;
}

int local_stream(struct local *local, char *memory, uint64_t bytes, unsigned depth, bool is_write,
		 double *ret_seconds)
{
	const uint64_t step = local->block_bytes;
	struct iocb iocbs[LOCAL_DEPTH_MAX], *batch[LOCAL_DEPTH_MAX];
	struct io_event events[LOCAL_DEPTH_MAX];
	const int64_t start = now_nsec();
	uint64_t off = 0, n_done = 0;
	int n = (int)depth, n_events, r = 0;

	for (int i = 0; i < n; i++)
		batch[i] = &iocbs[i];
	while (n_done < bytes / step) {
		int n_batch = 0;

		for (; n_batch < n && off < bytes; n_batch++, off += step)
			prepare(local, batch[n_batch], is_write, memory + off, off);
		if (n_batch > 0) {
			r = io_submit(local->context, n_batch, batch);
			if (r != n_batch) {
				r = r < 0 ? r : -EAGAIN;
				break;
			}
		}
		do
			n_events = io_getevents(local->context, 1, (long)depth, events, NULL);
		while (n_events == -EINTR);
		r = n_events < 0 ? n_events : 0;
		n = 0;
		for (int i = 0; r == 0 && i < n_events; i++) {
			if (is_asked_again(local, &events[i], &r))
				continue;
			if ((int64_t)events[i].res != (int64_t)step)
				r = -EIO;
			batch[n++] = events[i].obj;
		}
		if (r < 0)
			break;
		n_done += (uint64_t)n;
	}
	if (r < 0)
		fprintf(stderr, "bench: libaio: %s\n", strerror(-r));
	*ret_seconds = (double)(now_nsec() - start) / 1e9;
	return r < 0 ? r : 0;
}
