#include "tests/bench/deepnvme.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/util/cleanup.h"

/* An op.  All threads have it at the same time; they write only its error. */
struct op {
	int fd;
	bool is_write;
	char *path, *buffer;
	uint64_t bytes, off;
	_Atomic int error; /* of a request of any thread; the last one wins */
};

/* Under the lock of its queue. */
struct item {
	STAILQ_ENTRY(item) link;
	struct op *op;
};
struct ops {
	pthread_mutex_t mutex;
	pthread_cond_t is_changed;
	STAILQ_HEAD(items, item) items;
	bool is_over; /* no more will come */
};

struct worker {
	const struct deepnvme *handle;
	unsigned index;
	pthread_t thread;
	bool is_running;
	struct ops todo, done;
	/* Its own from here on. */
	io_context_t context;
	struct iocb *iocbs, **batch;
	struct io_event *events;
};

struct deepnvme {
	struct dsaio_profile profile;
	unsigned n_pending;
	struct worker workers[];
};

struct slice deepnvme_slice(uint64_t op_bytes, unsigned parallelism, unsigned thread)
{
	const uint64_t len = op_bytes / parallelism;

	return (struct slice){ .off = len * thread, .len = len };
}

struct slice deepnvme_request(struct slice slice, uint64_t block_bytes, uint64_t i)
{
	const uint64_t at = i * block_bytes;
	const uint64_t left = at < slice.len ? slice.len - at : 0;

	return (struct slice){ .off = slice.off + at,
			       .len = left < block_bytes ? left : block_bytes };
}

/* ---- queues ---- */

static void ops_init(struct ops *ops)
{
	(void)pthread_mutex_init(&ops->mutex, NULL); /* cannot fail without attributes */
	(void)pthread_cond_init(&ops->is_changed, NULL);
	STAILQ_INIT(&ops->items);
}

static void ops_put(struct ops *ops, struct item *item)
{
	(void)pthread_mutex_lock(&ops->mutex); /* a plain mutex that is ours: none of these fails */
	STAILQ_INSERT_TAIL(&ops->items, item, link);
	(void)pthread_mutex_unlock(&ops->mutex);
	(void)pthread_cond_signal(&ops->is_changed);
}

/* The oldest, as soon as there is one; NULL when it is over. */
static struct item *ops_take(struct ops *ops)
{
	struct item *item;

	(void)pthread_mutex_lock(&ops->mutex);
	while (STAILQ_EMPTY(&ops->items) && !ops->is_over)
		(void)pthread_cond_wait(&ops->is_changed, &ops->mutex);
	item = STAILQ_FIRST(&ops->items);
	if (item)
		STAILQ_REMOVE_HEAD(&ops->items, link);
	(void)pthread_mutex_unlock(&ops->mutex);
	return item;
}

static void ops_end(struct ops *ops)
{
	(void)pthread_mutex_lock(&ops->mutex);
	ops->is_over = true;
	(void)pthread_mutex_unlock(&ops->mutex);
	(void)pthread_cond_signal(&ops->is_changed);
}

/* ---- a thread ---- */

static void prepare(struct worker *w, unsigned slot, const struct op *op, struct slice request)
{
	char *memory = op->buffer + request.off;
	const uint64_t off = op->off + request.off;

	if (op->is_write)
		io_prep_pwrite(&w->iocbs[slot], op->fd, memory, request.len, (long long)off);
	else
		io_prep_pread(&w->iocbs[slot], op->fd, memory, request.len, (long long)off);
}

/* The first n of the context's iocbs.  The original takes any positive answer for all of them. */
static int submit(struct worker *w, unsigned n)
{
	const unsigned step = w->handle->profile.single_submit == DSAIO_YES ? 1 : n;

	for (unsigned i = 0; i < n;) {
		const int r = io_submit(w->context, (long)(step < n - i ? step : n - i),
					w->batch + i);

		if (r <= 0)
			return r < 0 ? r : -EAGAIN;
		i += (unsigned)r;
	}
	return 0;
}

static int complete(struct worker *w, unsigned n_min, unsigned n_max, struct op *op)
{
	int n;

	do
		n = io_pgetevents(w->context, (long)n_min, (long)n_max, w->events, NULL, NULL);
	while (n == -EINTR);
	for (int i = 0; i < n; i++) {
		const int64_t result = (int64_t)w->events[i].res;

		if (result != (int64_t)w->events[i].obj->u.c.nbytes)
			op->error = result < 0 ? (int)result : -EIO;
	}
	return n;
}

static int run_sequential(struct worker *w, struct op *op, struct slice slice)
{
	const struct dsaio_profile *profile = &w->handle->profile;
	struct slice request;
	uint64_t next = 0;
	unsigned n;
	int r;

	for (;;) {
		for (n = 0; n < profile->queue_depth; n++) {
			request = deepnvme_request(slice, profile->block_size, next);
			if (request.len == 0)
				break;
			prepare(w, n, op, request);
			next++;
		}
		if (n == 0)
			return 0;
		r = submit(w, n);
		if (r < 0)
			return r;
		r = complete(w, n, n, op);
		if (r < 0)
			return r;
	}
}

/*
 * As the original: its iocbs are used from the first on each time, although some of them may be
 * in flight; the kernel has copied them, and what comes back is only counted.
 */
static int run_overlap(struct worker *w, struct op *op, struct slice slice)
{
	const struct dsaio_profile *profile = &w->handle->profile;
	unsigned n_flying = 0, n;
	uint64_t next = 0;
	int r;

	for (;;) {
		for (n = 0; n < profile->queue_depth - n_flying; n++) {
			const struct slice request = deepnvme_request(slice, profile->block_size,
								      next);

			if (request.len == 0)
				break;
			prepare(w, n, op, request);
			next++;
		}
		if (n > 0) {
			r = submit(w, n);
			if (r < 0)
				return r;
		}
		n_flying += n;
		if (n_flying == 0)
			return 0;
		r = complete(w, 1, n_flying, op);
		if (r < 0)
			return r;
		n_flying -= (unsigned)r;
	}
}

static void *worker_main(void *argument)
{
	struct worker *w = argument;
	const struct dsaio_profile *profile = &w->handle->profile;
	struct item *item;

	while ((item = ops_take(&w->todo))) {
		struct op *op = item->op;
		const struct slice slice = deepnvme_slice(op->bytes, profile->intra_op_parallelism,
							  w->index);
		const int r = profile->overlap_events == DSAIO_YES ? run_overlap(w, op, slice)
								   : run_sequential(w, op, slice);

		if (r < 0)
			op->error = r;
		ops_put(&w->done, item);
	}
	return NULL;
}

static int worker_start(struct worker *w, const struct deepnvme *handle, unsigned index)
{
	const unsigned depth = handle->profile.queue_depth;
	int r;

	w->handle = handle;
	w->index = index;
	ops_init(&w->todo);
	ops_init(&w->done);
	w->iocbs = calloc(depth, sizeof(*w->iocbs));
	w->batch = calloc(depth, sizeof(struct iocb *));
	w->events = calloc(depth, sizeof(*w->events));
	if (!w->iocbs || !w->batch || !w->events)
		return -ENOMEM;
	for (unsigned i = 0; i < depth; i++)
		w->batch[i] = &w->iocbs[i];
	r = io_setup((int)depth, &w->context);
	if (r < 0)
		return r;
	r = -pthread_create(&w->thread, NULL, worker_main, w);
	w->is_running = r == 0;
	return r;
}

static void worker_stop(struct worker *w)
{
	if (w->is_running) {
		ops_end(&w->todo);
		(void)pthread_join(w->thread, NULL); /* it is ours, and not joined yet */
	}
	if (w->context)
		(void)io_destroy(w->context); /* nothing is in flight */
	free(w->iocbs);
	free(w->batch);
	free(w->events);
}

/* ---- the caller's thread ---- */

void deepnvme_free(struct deepnvme *handle)
{
	if (!handle)
		return;
	assert(handle->n_pending == 0);
	for (unsigned i = 0; i < handle->profile.intra_op_parallelism; i++)
		worker_stop(&handle->workers[i]);
	free(handle);
}

int deepnvme_new(const struct dsaio_profile *profile, struct deepnvme **ret_handle)
{
	const unsigned n = profile->intra_op_parallelism;
	struct deepnvme *handle = calloc(1, sizeof(*handle) + n * sizeof(handle->workers[0]));
	int r = 0;

	if (!handle)
		return -ENOMEM;
	handle->profile = *profile;
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = worker_start(&handle->workers[i], handle, i);
	if (r < 0)
		deepnvme_free(handle);
	else
		*ret_handle = handle;
	return r;
}

static void op_free(struct op *op)
{
	if (!op)
		return;
	closep(&op->fd);
	free(op->path);
	free(op);
}

static void op_freep(struct op **op)
{
	op_free(*op);
}

int deepnvme_submit(struct deepnvme *handle, bool is_write, const char *path, void *buffer,
		    uint64_t bytes, uint64_t off)
{
	const unsigned n = handle->profile.intra_op_parallelism;
	_cleanup_(op_freep) struct op *op = NULL;
	struct stat st;

	if (!is_write && stat(path, &st) < 0)
		return -errno;
	if (!is_write && off + bytes > (uint64_t)st.st_size)
		return -ERANGE;
	if (bytes % n != 0)
		return -EINVAL;
	op = calloc(1, sizeof(*op));
	if (!op)
		return -ENOMEM;
	*op = (struct op){ .is_write = is_write, .buffer = buffer, .bytes = bytes, .off = off };
	op->fd = is_write ? open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600)
			  : open(path, O_RDONLY | O_DIRECT);
	op->path = strdup(path);
	if (op->fd < 0)
		return -errno;
	if (!op->path)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		struct item *item = malloc(sizeof(*item));

		assert(item); /* half of the threads have the op already */
		item->op = op;
		ops_put(&handle->workers[i].todo, item);
	}
	(void)TAKE_PTR(op);
	handle->n_pending++;
	return 0;
}

int64_t deepnvme_wait(struct deepnvme *handle)
{
	const int64_t n = handle->n_pending;
	int error = 0;

	for (; handle->n_pending > 0; handle->n_pending--) {
		struct item *item = ops_take(&handle->workers[0].done);
		struct op *op = item->op;

		free(item);
		for (unsigned i = 1; i < handle->profile.intra_op_parallelism; i++)
			free(ops_take(&handle->workers[i].done));
		if (error == 0)
			error = op->error;
		op_free(op);
	}
	return error < 0 ? error : n;
}
