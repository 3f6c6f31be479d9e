/*
 * Our side: a private daemon whose store is the point's directory, and client processes.
 *
 * A process waits for its oldest op, takes all that have ended by then and starts as many anew:
 * dsaio_op_wait() sleeps on the futex and dsaio_handle_reap() that finds something makes no system call.
 * With one op in flight it calls dsaio_pread().  As the other sides do, it reads the clock once for
 * all that it takes and starts in a turn.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/crew.h"
#include "tests/bench/files.h"
#include "tests/bench/kinds.h"
#include "tests/bench/process.h"
#include "tests/calls.h"

/* Far above a read's time: a wait that may spin so long never sleeps while one is in flight. */
#define SPIN_USEC 1000
#define SPIN_CONFIG "[daemon]\nspin_usec = 1000\n"

/* State of the parent. */
struct ours {
	struct private_daemon daemon;
	struct crew *crew;
	int64_t spin_usec; /* of the clients' handles; 0: the default */
};

/* An op that is in flight; the queue holds them in the order of their submission. */
struct flying {
	TAILQ_ENTRY(flying) link;
	struct dsaio_op *op;
	char *memory;
	int64_t start_nsec;
};
TAILQ_HEAD(queue, flying);

/* State of a client process. */
struct client {
	struct point point;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	char *memory;
	uint64_t memory_bytes;
	struct offsets offsets;
	struct flying *flying;
	struct dsaio_completion *ended; /* room for dsaio_handle_reap() */
};

/* ---- a client process ---- */

static int client_failed(int r, const char *what, char *why, size_t size)
{
	(void)snprintf(why, size, "%s: %s", what, dsaio_error());
	return r < 0 ? r : -EIO;
}

static int client_memory(struct client *c)
{
	void *memory;
	int r = dsaio_alloc(c->client, c->memory_bytes, NULL, &memory);

	if (r < 0)
		return r;
	c->memory = memory;
	memory_fill(c->memory, c->memory_bytes);
	return 0;
}

static void client_close(void *state)
{
	struct client *c = state;

	if (!c)
		return;
	(void)dsaio_handle_close(c->handle, -1);
	if (c->file)
		dsaio_file_close(c->file);
	(void)dsaio_disconnect(c->client);
	free(c->flying);
	free(c->ended);
	free(c);
}

static void client_closep(struct client **c)
{
	client_close(*c);
}

static int client_open(const struct point *point, unsigned index, const void *argument,
		       void **ret_state, char *why, size_t size)
{
	const struct ours *ours = argument;
	const unsigned n = point_ops_in_flight(point);
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	_cleanup_(client_closep) struct client *c = calloc(1, sizeof(*c));
	char path[FILES_PATH_BYTES];
	int r;

	if (!c)
		return -ENOMEM;
	c->point = *point;
	c->memory_bytes = point_memory_bytes(point);
	c->flying = calloc(n, sizeof(*c->flying));
	c->ended = calloc(n, sizeof(*c->ended));
	if (!c->flying || !c->ended)
		return -ENOMEM;
	offsets_init(&c->offsets, point);
	point_path(point, index, path);
	options.profile = &c->point.profile;
	options.spin_usec = ours->spin_usec;

	r = socket_connect(ours->daemon.socket_path, &c->client);
	if (r < 0)
		return client_failed(r, "connect", why, size);
	r = dsaio_handle_open(c->client, &options, &c->handle);
	if (r < 0)
		return client_failed(r, "open a handle", why, size);
	r = dsaio_open(c->client, path, O_RDWR, NULL, &c->file);
	if (r < 0)
		return client_failed(r, path, why, size);
	r = client_memory(c);
	if (r < 0)
		return client_failed(r, "memory", why, size);
	for (unsigned i = 0; i < n; i++)
		c->flying[i].memory = c->memory + i * point->op_bytes;
	*ret_state = TAKE_PTR(c);
	return 0;
}

static int client_start(struct client *c, struct flying *f, struct queue *queue, int64_t now)
{
	const struct dsaio_io io = { .opcode = c->point.is_write ? DSAIO_WRITE : DSAIO_READ,
				     .file = c->file,
				     .buf = f->memory,
				     .len = c->point.op_bytes,
				     .off = offsets_next(&c->offsets),
				     .user_data = f };
	int r;

	f->start_nsec = now;
	r = dsaio_submit(c->handle, &io, sizeof(struct dsaio_io), 1, 0, &f->op);
	if (r < 0)
		return r;
	TAILQ_INSERT_TAIL(queue, f, link);
	return 0;
}

static int client_end(struct client *c, const struct dsaio_completion *end, struct queue *queue,
		      int64_t now, struct work *work)
{
	struct flying *f = end->user_data;
	const int64_t n = end->result;

	TAILQ_REMOVE(queue, f, link);
	if (n != (int64_t)c->point.op_bytes)
		(void)snprintf(work->why, sizeof(work->why), "an op ended with %lld: %s",
			       (long long)n, dsaio_op_error(end->op));
	dsaio_op_free(end->op);
	histogram_add(&work->histogram, now - f->start_nsec);
	work->ops++;
	return n == (int64_t)c->point.op_bytes ? 0 : -EIO;
}

/* Is another op to be started? */
static bool work_goes_on(const struct client *c, const struct work *work, uint64_t n_started,
			 int64_t now)
{
	return c->point.slice_ops > 0 ? n_started < c->point.slice_ops
				      : n_started == 0 || now < work->end_nsec;
}

static int client_run_many(struct client *c, unsigned n_flying, struct work *work)
{
	struct queue queue = TAILQ_HEAD_INITIALIZER(queue);
	uint64_t n_started = 0;
	int64_t now = now_nsec();
	int r = 0, n = 0;

	for (unsigned i = 0; i < n_flying && work_goes_on(c, work, n_started, now); i++) {
		r = client_start(c, &c->flying[i], &queue, now);
		if (r < 0)
			return client_failed(r, "submit", work->why, sizeof(work->why));
		n_started++;
	}
	while (!TAILQ_EMPTY(&queue)) {
		(void)dsaio_op_wait(TAILQ_FIRST(&queue)->op, -1, NULL); /* the result: below */
		n = dsaio_handle_reap(c->handle, c->ended, sizeof(*c->ended), 0, (int)n_flying, 0);
		if (n < 0)
			return client_failed(n, "reap", work->why, sizeof(work->why));
		now = now_nsec();
		for (int i = 0; i < n; i++) {
			struct flying *f = c->ended[i].user_data;

			r = client_end(c, &c->ended[i], &queue, now, work);
			if (r < 0)
				return r;
			if (!work_goes_on(c, work, n_started, now))
				continue;
			r = client_start(c, f, &queue, now);
			if (r < 0)
				return client_failed(r, "submit", work->why, sizeof(work->why));
			n_started++;
		}
	}
	return 0;
}

static int client_run_one(struct client *c, struct work *work)
{
	const size_t len = c->point.op_bytes;
	int64_t now = now_nsec();

	while (work_goes_on(c, work, work->ops, now)) {
		const uint64_t off = offsets_next(&c->offsets);
		const int64_t start = now;
		const int64_t n = c->point.is_write
					  ? dsaio_pwrite(c->handle, c->file, c->memory, len, off)
					  : dsaio_pread(c->handle, c->file, c->memory, len, off);

		if (n != (int64_t)len)
			return client_failed((int)n, "op", work->why, sizeof(work->why));
		now = now_nsec();
		histogram_add(&work->histogram, now - start);
		work->ops++;
	}
	return 0;
}

static int client_run(void *state, struct work *work)
{
	struct client *c = state;
	const unsigned n = point_ops_in_flight(&c->point);
	const int r = n > 1 ? client_run_many(c, n, work) : client_run_one(c, work);

	work->bytes = work->ops * c->point.op_bytes;
	return r;
}

static const struct crew_member client_member = { client_open, client_run, client_close };

/* ---- the side ---- */

static int ours_open(struct side *side, int64_t spin_usec, const char *config)
{
	static unsigned n_opened; /* several may be open in one directory */
	struct ours *ours = calloc(1, sizeof(*ours));
	char name[32];
	int r;

	if (!ours)
		return -ENOMEM;
	side->state = ours;
	ours->spin_usec = spin_usec;
	(void)snprintf(name, sizeof(name), "d%u", n_opened++);
	r = private_daemon_start(&ours->daemon, side_daemon_program, side->point.dir, name, config);
	if (r < 0) {
		(void)snprintf(side->why, sizeof(side->why), "the daemon did not start: %s",
			       strerror(-r));
		return r;
	}
	return crew_new(side, &client_member, ours, &ours->crew);
}

int ours_pinned_open(struct side *side)
{
	return ours_open(side, 0, "");
}

int ours_not_spinning_open(struct side *side)
{
	return ours_open(side, -1, "");
}

int ours_spinning_open(struct side *side)
{
	return ours_open(side, SPIN_USEC, SPIN_CONFIG);
}

int ours_side_run(struct side *side, struct result *ret_result)
{
	struct ours *ours = side->state;

	return crew_slice(side, ours->crew, ours->daemon.pid, ret_result);
}

void ours_side_close(struct side *side)
{
	struct ours *ours = side->state;

	if (!ours)
		return;
	crew_free(ours->crew);
	private_daemon_stop(&ours->daemon);
	free(ours);
	side->state = NULL;
}
