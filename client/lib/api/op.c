/*
 * Public calls that start, await, examine and cancel ops.  submit.c starts an op, wait.c waits for it.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/submit.h"
#include "client/lib/io/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define REAP_MAX 64 /* completions that are taken at a time: a guess */

/* ---- starting, blocking ---- */

/* The result of an op that has ended; a failed one's message becomes this thread's. */
static int64_t op_result(struct dsaio_op *op)
{
	if (op->result >= 0)
		return op->result;
	op_set_taken(op);
	if (op->text)
		return error_fail((int)op->result, "%s", op->text);
	return error_fail_errno((int)op->result, "op");
}

/* An op with the handle's own limit of time.  buf: a write only reads it. */
static struct op_request request(const char *function, struct dsaio_handle *handle,
				 struct dsaio_file *file, uint8_t opcode, const void *buf,
				 size_t len, uint64_t off)
{
	return (struct op_request){ .function = function,
				    .handle = handle,
				    .file = file,
				    .opcode = opcode,
				    .buf = (void *)(uintptr_t)buf,
				    .len = len,
				    .off = off };
}

static int op_start(struct op_request q, struct dsaio_op **ret_op)
{
	q.is_async = true;
	return submit_op(&q, ret_op);
}

static int64_t op_run(struct op_request q)
{
	CANCEL_DISABLE();
	struct dsaio_op *op;
	int64_t result;
	int r = submit_op(&q, &op);

	if (r < 0)
		return r;
	(void)wait_until(q.handle, &(struct wait_for){ .what = WAIT_OP, .op = op }, UINT64_MAX);
	result = op_result(op);
	handle_op_unref(op);
	return result;
}

int64_t dsaio_pread(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		    uint64_t off)
{
	return op_run(request("pread", handle, file, RING_OP_READ, buf, len, off));
}

int64_t dsaio_pwrite(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		     size_t len, uint64_t off)
{
	return op_run(request("pwrite", handle, file, RING_OP_WRITE, buf, len, off));
}

static uint8_t sync_opcode(unsigned flags)
{
	return flags & DSAIO_DATASYNC ? RING_OP_FDATASYNC : RING_OP_FSYNC;
}

static int sync_op(const char *function, struct dsaio_handle *handle, struct dsaio_file *file,
		   unsigned flags, bool is_async, struct dsaio_op **ret_op)
{
	struct op_request q = request(function, handle, file, sync_opcode(flags), NULL, 0, 0);

	if (flags & ~DSAIO_DATASYNC)
		return fail_unknown(function, "flags", flags & ~DSAIO_DATASYNC);
	return is_async ? op_start(q, ret_op) : (int)op_run(q);
}

int dsaio_fsync(struct dsaio_handle *handle, struct dsaio_file *file, unsigned flags)
{
	return sync_op("fsync", handle, file, flags, false, NULL);
}

int dsaio_pread_async(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		      uint64_t off, struct dsaio_op **ret_op)
{
	return op_start(request("pread_async", handle, file, RING_OP_READ, buf, len, off), ret_op);
}

int dsaio_pwrite_async(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		       size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	return op_start(request("pwrite_async", handle, file, RING_OP_WRITE, buf, len, off),
			ret_op);
}

int dsaio_fsync_async(struct dsaio_handle *handle, struct dsaio_file *file, unsigned flags,
		      struct dsaio_op **ret_op)
{
	return sync_op("fsync_async", handle, file, flags, true, ret_op);
}

/* ---- starting, by path ---- */

/* Opens the path for the op. */
static int64_t path_op(struct op_request q, const char *path, bool is_async,
		       struct dsaio_op **ret_op)
{
	CANCEL_DISABLE();
	int64_t result;
	int r = handle_check(q.handle, q.function);

	if (r < 0)
		return r;
	if (!path)
		return client_null(q.function, "path");
	r = file_open_for(q.handle->client, path, q.opcode == RING_OP_WRITE, &q.file);
	if (r < 0)
		return r;
	result = is_async ? op_start(q, ret_op) : op_run(q);
	dsaio_file_close(q.file); /* an async op goes on */
	return result;
}

int64_t dsaio_pread_path(struct dsaio_handle *handle, const char *path, void *buf, size_t len,
			 uint64_t off)
{
	return path_op(request("pread_path", handle, NULL, RING_OP_READ, buf, len, off), path,
		       false, NULL);
}

int64_t dsaio_pwrite_path(struct dsaio_handle *handle, const char *path, const void *buf,
			  size_t len, uint64_t off)
{
	return path_op(request("pwrite_path", handle, NULL, RING_OP_WRITE, buf, len, off), path,
		       false, NULL);
}

int dsaio_pread_path_async(struct dsaio_handle *handle, const char *path, void *buf, size_t len,
			   uint64_t off, struct dsaio_op **ret_op)
{
	return (int)path_op(request("pread_path_async", handle, NULL, RING_OP_READ, buf, len, off),
			    path, true, ret_op);
}

int dsaio_pwrite_path_async(struct dsaio_handle *handle, const char *path, const void *buf,
			    size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	return (int)path_op(
		request("pwrite_path_async", handle, NULL, RING_OP_WRITE, buf, len, off), path,
		true, ret_op);
}

/* ---- starting, many at once ---- */

static_assert((int)DSAIO_READ == RING_OP_READ && (int)DSAIO_WRITE == RING_OP_WRITE &&
		      (int)DSAIO_FSYNC == RING_OP_FSYNC,
	      "a program's opcode is the ring's");

static int io_check_flags(const struct dsaio_io *io)
{
	const uint32_t of_sync = DSAIO_DATASYNC | DSAIO_LINKED;
	const uint32_t unknown = io->flags & ~(of_sync | DSAIO_DETACHED | DSAIO_DSYNC);

	if (unknown)
		return fail_unknown("submit", "flags of an op", unknown);
	if (io->zero)
		return fail_unknown("submit", "field zero of struct dsaio_io", io->zero);
	if ((io->flags & of_sync) && io->opcode != DSAIO_FSYNC)
		return error_fail(-EINVAL,
				  "submit: flags %#x with opcode %u: DSAIO_DATASYNC and "
				  "DSAIO_LINKED are for DSAIO_FSYNC alone",
				  io->flags, io->opcode);
	if ((io->flags & DSAIO_DSYNC) && io->opcode != DSAIO_WRITE)
		return error_fail(-EINVAL,
				  "submit: DSAIO_DSYNC with opcode %u: it is for DSAIO_WRITE alone",
				  io->opcode);
	return 0;
}

static int io_check(const struct dsaio_io *io)
{
	int r = io_check_flags(io);

	if (io->opcode < DSAIO_READ || io->opcode > DSAIO_FSYNC)
		return error_fail(-EINVAL, "submit: opcode %u: must be from %d to %d", io->opcode,
				  DSAIO_READ, DSAIO_FSYNC);
	if (r < 0)
		return r;
	if (io->file && io->path)
		return error_fail(-EINVAL, "submit: file and path %s: leave out one of them",
				  io->path);
	if (!io->iov != !io->n_iov || io->n_iov > IOV_MAX || (io->iov && (io->buf || io->len)))
		return error_fail(-EINVAL,
				  "submit: n_iov %u, iov %p, len %" PRIu64 " and buf %p: set iov "
				  "with n_iov from 1 to %d, and buf and len 0; or n_iov and iov 0",
				  io->n_iov, (const void *)io->iov, io->len, io->buf, IOV_MAX);
	if (io->opcode == DSAIO_FSYNC && (io->len || io->off || io->iov || io->buf))
		return error_fail(-EINVAL,
				  "submit: a sync of %" PRIu64 " bytes at %" PRIu64
				  ": it is of the whole file: buffers, len and off must be 0",
				  io->len, io->off);
	if (io->timeout_usec < -1 || io->timeout_usec > (int64_t)UINT32_MAX * 1000)
		return error_fail(-EINVAL,
				  "submit: timeout_usec %" PRId64 ": must be 0 (the handle's), -1 "
				  "(never) or up to %" PRId64,
				  io->timeout_usec, (int64_t)UINT32_MAX * 1000);
	return 0;
}

/* Fills the request in; a path is opened, for the caller to close. */
static int io_request(struct dsaio_handle *handle, const struct dsaio_io *io, unsigned flags,
		      uint64_t n_failed, struct op_request *q)
{
	uint64_t len = io->len;
	int r = io_check(io);

	if (r < 0)
		return r;
	if ((io->flags & DSAIO_DSYNC) &&
	    !(conn_facts(handle->client->conn).features & RING_FEATURE_DSYNC))
		return error_fail(-EOPNOTSUPP,
				  "submit: DSAIO_DSYNC: the daemon that runs is older than this "
				  "library: restart it, or submit a DSAIO_FSYNC with DSAIO_LINKED "
				  "behind the write");
	for (uint32_t i = 0; i < io->n_iov; i++)
		if (__builtin_add_overflow(len, io->iov[i].iov_len, &len))
			len = UINT64_MAX; /* which no file can have */
	/* As submit_ops() does, but before the file is made. */
	if (io->path && (len > INT64_MAX || io->off > INT64_MAX - len))
		return error_fail(-EINVAL,
				  "submit: the op on %s passes 2^63, the last byte that a file can "
				  "have",
				  io->path);
	*q = (struct op_request){
		.function = "submit",
		.handle = handle,
		.file = io->file,
		.opcode = io->opcode == DSAIO_FSYNC ? sync_opcode(io->flags) : (uint8_t)io->opcode,
		.buf = io->buf,
		.len = len,
		.iov = io->iov,
		.n_iov = io->n_iov,
		.off = io->off,
		.is_async = true,
		.is_nowait = flags & DSAIO_NOWAIT,
		.is_detached = io->flags & DSAIO_DETACHED,
		.is_dsync = io->flags & DSAIO_DSYNC,
		.is_linked = io->flags & DSAIO_LINKED,
		.n_failed = n_failed,
		.has_timeout = io->timeout_usec,
		.timeout_msec = io->timeout_usec < 0 ? 0
						     : (uint32_t)((io->timeout_usec + 999) / 1000),
		.data = io->user_data,
	};
	if (io->path)
		r = file_open_for(handle->client, io->path, io->opcode == DSAIO_WRITE, &q->file);
	return r;
}

/* The first of the n ios, each of io_size bytes, up to SUBMIT_MAX.  As submit_ops(). */
static int submit_some(struct dsaio_handle *handle, const char *ios, size_t io_size, int n,
		       unsigned flags, uint64_t n_failed, struct dsaio_op **ret_ops)
{
	struct op_request requests[SUBMIT_MAX];
	struct dsaio_file *opened[SUBMIT_MAX];
	unsigned n_requests = 0;
	int r = 0;

	for (; n_requests < SUBMIT_MAX && n_requests < (unsigned)n; n_requests++) {
		struct dsaio_io io;

		r = element_read("submit", &SIZED_IO, ios + n_requests * io_size, io_size, &io);
		if (r == 0)
			r = io_request(handle, &io, flags, n_failed, &requests[n_requests]);
		if (r < 0)
			break;
		opened[n_requests] = io.path ? requests[n_requests].file : NULL;
	}
	if (n_requests)
		r = submit_ops(requests, n_requests, ret_ops);
	for (unsigned i = 0; i < n_requests; i++)
		if (opened[i])
			dsaio_file_close(opened[i]); /* the op goes on */
	return r;
}

int dsaio_submit(struct dsaio_handle *handle, const struct dsaio_io *ios, size_t io_size, int n,
		 unsigned flags, struct dsaio_op **ret_ops)
{
	CANCEL_DISABLE();
	int done = 0, r = handle_check(handle, "submit");
	uint64_t n_failed;

	if (r < 0)
		return r;
	if (!ios)
		return client_null("submit", "array ios");
	if (n < 0)
		return error_fail(-EINVAL, "submit: %d ops: must not be negative", n);
	if (flags & ~DSAIO_NOWAIT)
		return fail_unknown("submit", "flags of the call", flags & ~DSAIO_NOWAIT);
	r = sized_check("submit", &SIZED_IO, io_size);
	if (r < 0)
		return r;
	n_failed = client_n_failed(handle->client);
	do {
		r = submit_some(handle, (const char *)ios + (size_t)done * io_size, io_size,
				n - done, flags, n_failed, ret_ops ? ret_ops + done : NULL);
		if (r > 0)
			done += r;
	} while (r == (int)SUBMIT_MAX);
	return done ? done : r;
}

/* ---- one op ---- */

/* A program that counts down to its own deadline may come below 0: that must not wait forever. */
static int timeout_check(int64_t timeout_usec, const char *function)
{
	if (timeout_usec >= -1)
		return 0;
	return error_fail(-EINVAL,
			  "%s: timeout_usec %" PRId64
			  ": must be -1 (forever), 0 (only look) or more",
			  function, timeout_usec);
}

static int op_object_check(const struct dsaio_op *op, const char *function)
{
	if (!op)
		return client_null(function, "op");
	return client_check(op->handle->client, function);
}

/* The deadline counts from the first sleep on. */
static int ops_wait(const char *function, struct dsaio_op *const *ops, int n, int64_t timeout_usec,
		    int64_t *ret_results)
{
	uint64_t deadline = 0;
	int r = timeout_check(timeout_usec, function);

	/* The last one first: the others have probably ended when it has. */
	for (int i = n - 1; i >= 0 && r == 0; i--) {
		struct wait_for end = { .what = WAIT_OP, .op = ops[i] };

		r = op_object_check(ops[i], function);
		if (r < 0)
			break;
		if (!op_has_ended(ops[i])) {
			if (!deadline)
				deadline = deadline_in_usec(timeout_usec);
			r = wait_until(ops[i]->handle, &end, deadline);
		}
		if (r < 0)
			return error_fail(r,
					  "%s: the op on %" PRIu64 " bytes at %" PRIu64
					  " has not ended after %" PRId64 " us: it goes on, wait "
					  "again",
					  function, ops[i]->len, ops[i]->off, timeout_usec);
		if (ret_results) {
			ret_results[i] = ops[i]->result;
			op_set_taken(ops[i]);
		}
	}
	return r;
}

int dsaio_op_wait(struct dsaio_op *op, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	int64_t result;
	int r = ops_wait("op_wait", &op, 1, timeout_usec, NULL);

	if (r < 0)
		return r;
	result = op_result(op);
	if (ret_result)
		*ret_result = result;
	return 0;
}

int dsaio_op_wait_many(struct dsaio_op *const *ops, int n, int64_t timeout_usec,
		       int64_t *ret_results)
{
	CANCEL_DISABLE();
	if (n < 0)
		return error_fail(-EINVAL, "op_wait_many: %d ops: must not be negative", n);
	if (n && !ops)
		return client_null("op_wait_many", "array ops");
	return ops_wait("op_wait_many", ops, n, timeout_usec, ret_results);
}

int64_t dsaio_op_result(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_result");

	if (r < 0)
		return r;
	if (!op_has_ended(op))
		return error_fail(-EINPROGRESS,
				  "op_result: the op has not ended: wait for it first");
	return op_result((struct dsaio_op *)(uintptr_t)op); /* which notes that it was seen */
}

uint64_t dsaio_op_bytes(const struct dsaio_op *op)
{
	if (op_object_check(op, "op_bytes") < 0 || !op_has_ended(op))
		return 0;
	return op->result >= 0 ? (uint64_t)op->result : op->done;
}

const char *dsaio_op_error(struct dsaio_op *op)
{
	if (op_object_check(op, "op_error") < 0)
		return dsaio_error();
	if (!op_has_ended(op) || op->result >= 0)
		return "";
	op_set_taken(op);
	return op->text ? op->text : strerror((int)-op->result);
}

bool dsaio_op_is_unknown(const struct dsaio_op *op)
{
	return op_object_check(op, "op_is_unknown") == 0 && op_has_ended(op) && op->is_unknown;
}

int dsaio_op_path(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_path");

	if (r < 0)
		return r;
	return op_has_ended(op) ? op->path : -EINPROGRESS;
}

const char *dsaio_op_why(const struct dsaio_op *op)
{
	if (op_object_check(op, "op_why") < 0)
		return dsaio_error();
	return op_has_ended(op) && op->why ? op->why : "";
}

int dsaio_op_cancel(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_cancel");

	return r < 0 || op_has_ended(op) ? r : submit_cancel(op);
}

void dsaio_op_free(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	struct dsaio_handle *handle;

	if (!op || client_is_forked(op->handle->client))
		return;
	handle = op->handle;
	(void)pthread_mutex_lock(&handle->lock); /* a plain mutex: cannot fail */
	ended_forget(&handle->ended, op);
	(void)pthread_mutex_unlock(&handle->lock);
	handle_op_unref(op);
}

void dsaio_op_free_many(struct dsaio_op *const *ops, int n)
{
	for (int i = 0; ops && i < n; i++)
		dsaio_op_free(ops[i]);
}

/* ---- all ops of a handle ---- */

int dsaio_handle_wait(struct dsaio_handle *handle, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	struct wait_for all = { .what = WAIT_ALL };
	int64_t result;
	int r = handle_check(handle, "handle_wait");

	if (r == 0)
		r = timeout_check(timeout_usec, "handle_wait");
	if (r < 0)
		return r;
	r = wait_until(handle, &all, deadline_in_usec(timeout_usec));
	if (r < 0)
		return error_fail(r,
				  "handle_wait: ops of the handle have not ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	result = handle_take_ended(handle, "handle_wait", false);
	if (result == 0) {
		r = client_check_alive(handle->client, "handle_wait");
		if (r < 0)
			return r;
	}
	if (ret_result)
		*ret_result = result;
	return 0;
}

/* Takes what has ended, into completions of element_size bytes each. */
static int reap_some(struct dsaio_handle *handle, char *completions, size_t element_size, int n)
{
	struct dsaio_completion taken[REAP_MAX];
	int got = wait_reap(handle, taken, n < REAP_MAX ? n : REAP_MAX);

	for (int i = 0; i < got; i++)
		element_write(&SIZED_COMPLETION, &taken[i], completions + (size_t)i * element_size,
			      element_size);
	return got;
}

int dsaio_handle_reap(struct dsaio_handle *handle, struct dsaio_completion *completions,
		      size_t element_size, int min, int max, int64_t timeout_usec)
{
	CANCEL_DISABLE();
	struct wait_for ended = { .what = WAIT_REAP };
	uint64_t deadline = deadline_in_usec(timeout_usec);
	char *to = (char *)completions;
	bool has_open;
	int got = 0, n, r = handle_check(handle, "handle_reap");

	if (r < 0)
		return r;
	if (!completions)
		return client_null("handle_reap", "array completions");
	if (max < 1 || min < 0 || min > max)
		return error_fail(
			-EINVAL,
			"handle_reap: min %d, max %d: max must be at least 1, and min from "
			"0 to max",
			min, max);
	r = timeout_check(timeout_usec, "handle_reap");
	if (r == 0)
		r = sized_check("handle_reap", &SIZED_COMPLETION, element_size);
	if (r < 0)
		return r;
	if (min)
		(void)wait_poll(handle, false);
	for (;;) {
		has_open = min && handle_has_open(handle);
		do {
			n = reap_some(handle, to + (size_t)got * element_size, element_size,
				      max - got);
			got += n;
		} while (n == REAP_MAX && got < max);
		if (!min && !got && wait_poll(handle, true))
			continue;
		if (got >= min || !has_open || r < 0)
			break;
		/* Another thread may take them first: then it waits again. */
		ended.n_ops = (uint64_t)(min - got);
		r = wait_until(handle, &ended, deadline);
	}
	if (got)
		return got;
	if (r < 0)
		return error_fail(r,
				  "handle_reap: no op of the handle has ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	return client_check_alive(handle->client, "handle_reap");
}
