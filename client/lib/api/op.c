/*
 * Public calls that start, await, examine and cancel ops.  submit.c starts an op, wait.c waits for it.
 */
#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/file_open.h"
#include "client/lib/io/submit.h"
#include "client/lib/io/wait.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* ---- starting, blocking ---- */

/* The result of an op that has ended; a failed one's message becomes this thread's. */
static int64_t op_result(const struct dsaio_op *op)
{
	if (op->result >= 0)
		return op->result;
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

static int op_start(struct op_request q, bool is_async, struct dsaio_op **ret_op)
{
	int r = handle_check(q.handle, q.function);

	if (r < 0)
		return r;
	q.is_async = is_async;
	q.timeout_msec = q.handle->settings.timeout_msec;
	return submit_op(&q, ret_op);
}

static int64_t op_run(struct op_request q)
{
	CANCEL_DISABLE();
	struct dsaio_op *op;
	int64_t result;
	int r = op_start(q, false, &op);

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

int dsaio_fsync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	return (int)op_run(request("fsync", handle, file, RING_OP_FSYNC, NULL, 0, 0));
}

int dsaio_fdatasync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	return (int)op_run(request("fdatasync", handle, file, RING_OP_FDATASYNC, NULL, 0, 0));
}

int dsaio_pread_async(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		      uint64_t off, struct dsaio_op **ret_op)
{
	return op_start(request("pread_async", handle, file, RING_OP_READ, buf, len, off), true,
			ret_op);
}

int dsaio_pwrite_async(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		       size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	return op_start(request("pwrite_async", handle, file, RING_OP_WRITE, buf, len, off), true,
			ret_op);
}

int dsaio_fsync_async(struct dsaio_handle *handle, struct dsaio_file *file,
		      struct dsaio_op **ret_op)
{
	return op_start(request("fsync_async", handle, file, RING_OP_FSYNC, NULL, 0, 0), true,
			ret_op);
}

int dsaio_fdatasync_async(struct dsaio_handle *handle, struct dsaio_file *file,
			  struct dsaio_op **ret_op)
{
	return op_start(request("fdatasync_async", handle, file, RING_OP_FDATASYNC, NULL, 0, 0),
			true, ret_op);
}

/* ---- starting, by path ---- */

/* Opens the path for the op, for the caller to close. */
static int path_open(const struct dsaio_handle *handle, const char *path, unsigned opcode,
		     struct dsaio_file **ret_file)
{
	return file_open_for(handle->client, path, opcode == DSAIO_WRITE, ret_file);
}

static int path_start(struct op_request q, const char *path, struct dsaio_op **ret_op)
{
	CANCEL_DISABLE();
	int r = handle_check(q.handle, q.function);

	if (r < 0)
		return r;
	if (!path)
		return client_null(q.function, "path");
	r = path_open(q.handle, path, q.opcode, &q.file);
	if (r < 0)
		return r;
	r = op_start(q, true, ret_op);
	dsaio_file_close(q.file); /* the op goes on */
	return r;
}

int dsaio_pread_path_async(struct dsaio_handle *handle, const char *path, void *buf, size_t len,
			   uint64_t off, struct dsaio_op **ret_op)
{
	return path_start(request("pread_path_async", handle, NULL, RING_OP_READ, buf, len, off),
			  path, ret_op);
}

int dsaio_pwrite_path_async(struct dsaio_handle *handle, const char *path, const void *buf,
			    size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	return path_start(request("pwrite_path_async", handle, NULL, RING_OP_WRITE, buf, len, off),
			  path, ret_op);
}

/* ---- starting, many at once ---- */

static_assert((int)DSAIO_READ == RING_OP_READ && (int)DSAIO_WRITE == RING_OP_WRITE &&
		      (int)DSAIO_FSYNC == RING_OP_FSYNC &&
		      (int)DSAIO_FDATASYNC == RING_OP_FDATASYNC,
	      "a program's opcode is the ring's");

static bool is_unset(const struct dsaio_io *io)
{
	for (size_t i = 0; i < sizeof(io->zero) / sizeof(io->zero[0]); i++)
		if (io->zero[i])
			return false;
	return !io->flags && !io->zero0;
}

static int io_check(const struct dsaio_io *io)
{
	if (io->opcode < DSAIO_READ || io->opcode > DSAIO_FDATASYNC)
		return error_fail(-EINVAL, "submit: opcode %u: must be from %d to %d", io->opcode,
				  DSAIO_READ, DSAIO_FDATASYNC);
	if (!is_unset(io))
		return error_fail(-E2BIG,
				  "submit: flags or a field of struct dsaio_io are set that this "
				  "library (version %s) does not know: leave them zero, or install "
				  "a newer library",
				  dsaio_version());
	if (io->file && io->path)
		return error_fail(-EINVAL, "submit: file and path %s: leave out one of them",
				  io->path);
	if (io->n_iov && !io->iov)
		return error_fail(-EINVAL, "submit: n_iov %u without iov: set iov, or n_iov 0",
				  io->n_iov);
	if (io->iov && (io->buf || io->len || !io->n_iov || io->n_iov > IOV_MAX))
		return error_fail(
			-EINVAL,
			"submit: n_iov %u, len %zu and buf %p: with iov, n_iov must be from "
			"1 to %d, and buf and len 0",
			io->n_iov, io->len, io->buf, IOV_MAX);
	if (io->opcode >= DSAIO_FSYNC && (io->len || io->off || io->iov))
		return error_fail(-EINVAL,
				  "submit: a sync of %zu bytes at %" PRIu64
				  ": it is of the whole file: both must be 0",
				  io->len, io->off);
	if (io->timeout_usec < -1 || io->timeout_usec > (int64_t)UINT32_MAX * 1000)
		return error_fail(-EINVAL,
				  "submit: timeout_usec %" PRId64 ": must be 0 (the handle's), -1 "
				  "(never) or up to %" PRId64,
				  io->timeout_usec, (int64_t)UINT32_MAX * 1000);
	return 0;
}

static uint32_t io_timeout_msec(const struct dsaio_handle *handle, const struct dsaio_io *io)
{
	if (io->timeout_usec == 0)
		return handle->settings.timeout_msec;
	return io->timeout_usec < 0 ? 0 : (uint32_t)((io->timeout_usec + 999) / 1000);
}

/* Bytes of all buffers; false: more than there can be. */
static bool io_len(const struct dsaio_io *io, uint64_t *ret_len)
{
	uint64_t len = io->len;

	for (uint32_t i = 0; io->iov && i < io->n_iov; i++)
		if (__builtin_add_overflow(len, io->iov[i].iov_len, &len))
			return false;
	*ret_len = len;
	return true;
}

/* Fills the request in; a path is opened, for the caller to close. */
static int io_request(struct dsaio_handle *handle, const struct dsaio_io *io, unsigned flags,
		      struct op_request *q)
{
	uint64_t len = 0;
	int r = io_check(io);

	if (r < 0)
		return r;
	if (!io_len(io, &len))
		return error_fail(-EINVAL, "submit: the buffers of %u iov pass 2^64 bytes",
				  io->n_iov);
	*q = (struct op_request){
		.function = "submit",
		.handle = handle,
		.file = io->file,
		.opcode = (uint8_t)io->opcode,
		.buf = io->buf,
		.len = len,
		.iov = io->iov,
		.n_iov = io->n_iov,
		.off = io->off,
		.is_async = true,
		.is_nowait = flags & DSAIO_NOWAIT,
		.timeout_msec = io_timeout_msec(handle, io),
		.data = io->user_data,
	};
	if (io->path)
		r = path_open(handle, io->path, io->opcode, &q->file);
	return r;
}

/* As submit_ops(). */
static int submit_some(struct dsaio_handle *handle, const struct dsaio_io *ios, unsigned n,
		       unsigned flags, struct dsaio_op **ret_ops)
{
	struct op_request requests[SUBMIT_MAX];
	unsigned n_requests = 0;
	int done = 0, r = 0;

	while (n_requests < n && r == 0) {
		r = io_request(handle, &ios[n_requests], flags, &requests[n_requests]);
		n_requests += r == 0;
	}
	if (n_requests)
		done = submit_ops(requests, n_requests, ret_ops);
	for (unsigned i = 0; i < n_requests; i++)
		if (ios[i].path)
			dsaio_file_close(requests[i].file); /* the op goes on */
	return n_requests ? done : r;
}

int dsaio_submit(struct dsaio_handle *handle, const struct dsaio_io *ios, int n, unsigned flags,
		 struct dsaio_op **ret_ops)
{
	CANCEL_DISABLE();
	int done = 0, want, r = handle_check(handle, "submit");

	if (r < 0)
		return r;
	if (!ios)
		return client_null("submit", "array ios");
	if (n < 0)
		return error_fail(-EINVAL, "submit: %d ops: must not be negative", n);
	if (flags & ~DSAIO_NOWAIT)
		return error_fail(-EINVAL, "submit: flags %#x: only DSAIO_NOWAIT is possible",
				  flags);
	do {
		want = n - done < (int)SUBMIT_MAX ? n - done : (int)SUBMIT_MAX;
		r = want ? submit_some(handle, ios + done, (unsigned)want, flags,
				       ret_ops ? ret_ops + done : NULL)
			 : 0;
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

int dsaio_op_wait(struct dsaio_op *op, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	int64_t result;
	int r = op_object_check(op, "op_wait");

	if (r == 0)
		r = timeout_check(timeout_usec, "op_wait");
	if (r < 0)
		return r;
	if (!op_has_ended(op)) {
		struct wait_for end = { .what = WAIT_OP, .op = op };

		r = wait_until(op->handle, &end, deadline_in_usec(timeout_usec));
		if (r < 0)
			return error_fail(r,
					  "op_wait: the op on %" PRIu64 " bytes at %" PRIu64
					  " has not ended after %" PRId64 " us: it goes on, wait "
					  "again",
					  op->len, op->off, timeout_usec);
	}
	result = op_result(op);
	if (ret_result)
		*ret_result = result;
	return 0;
}

int dsaio_op_wait_many(struct dsaio_op *const *ops, int n, int64_t timeout_usec,
		       int64_t *ret_results)
{
	CANCEL_DISABLE();
	uint64_t deadline = deadline_in_usec(timeout_usec);
	int r = timeout_check(timeout_usec, "op_wait_many");

	if (r == 0 && n < 0)
		r = error_fail(-EINVAL, "op_wait_many: %d ops: must not be negative", n);
	if (r == 0 && n && !ops)
		r = client_null("op_wait_many", "array ops");
	/* The last one first: the others have probably ended when it has. */
	for (int i = n - 1; i >= 0 && r == 0; i--) {
		struct wait_for end = { .what = WAIT_OP, .op = ops[i] };

		r = op_object_check(ops[i], "op_wait_many");
		if (r < 0)
			break;
		if (!op_has_ended(ops[i]))
			r = wait_until(ops[i]->handle, &end, deadline);
		if (r < 0)
			return error_fail(r,
					  "op_wait_many: some of %d ops have not ended after "
					  "%" PRId64 " us: they go on, wait again",
					  n, timeout_usec);
		if (ret_results)
			ret_results[i] = ops[i]->result;
	}
	return r;
}

int dsaio_op_test(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_test");

	if (r < 0)
		return r;
	if (!op_has_ended(op))
		wait_poll(op->handle);
	return op_has_ended(op);
}

int64_t dsaio_op_result(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_result");

	if (r < 0)
		return r;
	if (!op_has_ended(op))
		return error_fail(-EINPROGRESS,
				  "op_result: the op has not ended: wait for it first");
	return op_result(op);
}

uint64_t dsaio_op_done(const struct dsaio_op *op)
{
	if (op_object_check(op, "op_done") < 0 || !op_has_ended(op))
		return 0;
	return op->result >= 0 ? (uint64_t)op->result : op->done;
}

const char *dsaio_op_error(struct dsaio_op *op)
{
	if (op_object_check(op, "op_error") < 0)
		return dsaio_error();
	if (!op_has_ended(op) || op->result >= 0)
		return "";
	return op->text ? op->text : strerror((int)-op->result);
}

int dsaio_op_way(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_way");

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
	for (int i = 0; i < n; i++)
		dsaio_op_free(ops[i]);
}

void *dsaio_op_data(const struct dsaio_op *op)
{
	return op ? op->data : NULL;
}

/* ---- all ops of a handle ---- */

int dsaio_wait(struct dsaio_handle *handle, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	struct wait_for all = { .what = WAIT_ALL };
	_cleanup_(freep) char *text = NULL;
	int64_t result;
	int r = handle_check(handle, "wait");

	if (r == 0)
		r = timeout_check(timeout_usec, "wait");
	if (r < 0)
		return r;
	r = wait_until(handle, &all, deadline_in_usec(timeout_usec));
	if (r < 0)
		return error_fail(r,
				  "wait: ops of the handle have not ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	(void)pthread_mutex_lock(&handle->lock);
	result = ended_take_all(&handle->ended, &text);
	(void)pthread_mutex_unlock(&handle->lock);
	if (result < 0)
		(void)(text ? error_fail((int)result, "%s", text)
			    : error_fail_errno((int)result, "wait: an op"));
	if (result == 0) {
		r = client_check_alive(handle->client, "wait");
		if (r < 0)
			return r;
	}
	if (ret_result)
		*ret_result = result;
	return 0;
}

static int reap_check(struct dsaio_handle *handle, const char *function, struct dsaio_op **ops,
		      int max)
{
	int r = handle_check(handle, function);

	if (r < 0)
		return r;
	if (!ops)
		return client_null(function, "array ops");
	if (max <= 0)
		return error_fail(-EINVAL, "%s: room for %d ops: must be at least 1", function,
				  max);
	return 0;
}

int dsaio_reap(struct dsaio_handle *handle, struct dsaio_op **ops, int n)
{
	CANCEL_DISABLE();
	int got, r = reap_check(handle, "reap", ops, n);

	if (r < 0)
		return r;
	do
		got = wait_reap(handle, ops, n);
	while (!got && wait_poll_or_arm(handle));
	return got ? got : client_check_alive(handle->client, "reap");
}

int dsaio_reap_wait(struct dsaio_handle *handle, struct dsaio_op **ops, int min, int max,
		    int64_t timeout_usec)
{
	CANCEL_DISABLE();
	struct wait_for ended = { .what = WAIT_REAP };
	uint64_t deadline = deadline_in_usec(timeout_usec);
	int got = 0, r = reap_check(handle, "reap_wait", ops, max);

	if (r == 0)
		r = timeout_check(timeout_usec, "reap_wait");
	if (r < 0)
		return r;
	if (min < 1 || min > max)
		return error_fail(-EINVAL, "reap_wait: at least %d of %d ops: must be from 1 to %d",
				  min, max, max);
	wait_poll(handle);
	while (got < min) {
		bool has_open = handle_has_open(handle);

		got += wait_reap(handle, ops + got, max - got);
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
				  "reap_wait: no op of the handle has ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	return client_check_alive(handle->client, "reap_wait");
}
