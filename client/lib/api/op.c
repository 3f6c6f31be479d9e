/*
 * Public calls that start, await, examine and cancel ops.  submit.c starts an op, wait.c waits for it.
 */
#include "client/lib/base/cancel.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/submit.h"
#include "client/lib/io/wait.h"
#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <string.h>

/* ---- starting, blocking ---- */

/* The result of an op that has ended; a failed one's sentence becomes this thread's. */
static int64_t op_result(const struct dsaio_op *op)
{
	if (op->result >= 0)
		return op->result;
	if (op->text)
		return error_fail((int)op->result, "%s", op->text);
	return error_fail_errno((int)op->result, "op");
}

static int64_t op_run(struct op_request *q)
{
	CANCEL_DISABLE();
	struct dsaio_op *op;
	int64_t result;
	int r = submit_op(q, &op);

	if (r < 0)
		return r;
	(void)wait_until(q->handle, &(struct wait_for){ .what = WAIT_OP, .op = op }, UINT64_MAX);
	result = op_result(op);
	handle_op_drop(op);
	return result;
}

int64_t dsaio_pread(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		    uint64_t off)
{
	struct op_request q = { "pread", handle, file, RING_OP_READ, buf, len, off, false };

	return op_run(&q);
}

int64_t dsaio_pwrite(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		     size_t len, uint64_t off)
{
	struct op_request q = { "pwrite", handle, file, RING_OP_WRITE, (void *)(uintptr_t)buf,
				len,	  off,	  false };

	return op_run(&q);
}

int dsaio_fsync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	struct op_request q = { "fsync", handle, file, RING_OP_FSYNC, NULL, 0, 0, false };

	return (int)op_run(&q);
}

int dsaio_fdatasync(struct dsaio_handle *handle, struct dsaio_file *file)
{
	struct op_request q = { "fdatasync", handle, file, RING_OP_FDATASYNC, NULL, 0, 0, false };

	return (int)op_run(&q);
}

int dsaio_pread_async(struct dsaio_handle *handle, struct dsaio_file *file, void *buf, size_t len,
		      uint64_t off, struct dsaio_op **ret_op)
{
	struct op_request q = { "pread_async", handle, file, RING_OP_READ, buf, len, off, true };

	return submit_op(&q, ret_op);
}

int dsaio_pwrite_async(struct dsaio_handle *handle, struct dsaio_file *file, const void *buf,
		       size_t len, uint64_t off, struct dsaio_op **ret_op)
{
	struct op_request q = { "pwrite_async",		handle, file, RING_OP_WRITE,
				(void *)(uintptr_t)buf, len,	off,  true };

	return submit_op(&q, ret_op);
}

int dsaio_fsync_async(struct dsaio_handle *handle, struct dsaio_file *file,
		      struct dsaio_op **ret_op)
{
	struct op_request q = { "fsync_async", handle, file, RING_OP_FSYNC, NULL, 0, 0, true };

	return submit_op(&q, ret_op);
}

int dsaio_fdatasync_async(struct dsaio_handle *handle, struct dsaio_file *file,
			  struct dsaio_op **ret_op)
{
	struct op_request q = {
		"fdatasync_async", handle, file, RING_OP_FDATASYNC, NULL, 0, 0, true
	};

	return submit_op(&q, ret_op);
}

/* ---- one op ---- */

static int op_object_check(const struct dsaio_op *op, const char *function)
{
	if (!op)
		return client_null(function, "op");
	return client_check(op->handle->client, function);
}

static bool has_ended(const struct dsaio_op *op)
{
	/* acquire: then the result is there */
	return atomic_load_explicit(&op->state, memory_order_acquire) == OP_ENDED;
}

int dsaio_op_wait(struct dsaio_op *op, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	int64_t result;
	int r = op_object_check(op, "op_wait");

	if (r < 0)
		return r;
	if (!has_ended(op)) {
		struct wait_for end = { .what = WAIT_OP, .op = op };

		r = wait_until(op->handle, &end, wait_deadline(timeout_usec));
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

int dsaio_op_test(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_test");

	if (r < 0)
		return r;
	if (!has_ended(op))
		wait_poll(op->handle);
	return has_ended(op);
}

int64_t dsaio_op_result(const struct dsaio_op *op)
{
	int r = op_object_check(op, "op_result");

	if (r < 0)
		return r;
	if (!has_ended(op))
		return error_fail(-EINPROGRESS,
				  "op_result: the op has not ended: wait for it first");
	return op_result(op);
}

uint64_t dsaio_op_done(const struct dsaio_op *op)
{
	if (op_object_check(op, "op_done") < 0 || !has_ended(op))
		return 0;
	return op->result >= 0 ? (uint64_t)op->result : op->done;
}

const char *dsaio_op_error(struct dsaio_op *op)
{
	if (op_object_check(op, "op_error") < 0)
		return dsaio_error();
	if (!has_ended(op) || op->result >= 0)
		return "";
	return op->text ? op->text : strerror((int)-op->result);
}

int dsaio_op_cancel(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	int r = op_object_check(op, "op_cancel");

	return r < 0 || has_ended(op) ? r : submit_cancel(op);
}

void dsaio_op_free(struct dsaio_op *op)
{
	CANCEL_DISABLE();
	struct dsaio_handle *handle;
	bool was_listed = false;

	if (!op || client_is_forked(op->handle->client))
		return;
	handle = op->handle;
	(void)pthread_mutex_lock(&handle->lock); /* a plain mutex: can not fail */
	op->is_orphan = true;
	if (op->is_listed)
		was_listed = handle_unlist(op);
	(void)pthread_mutex_unlock(&handle->lock);
	if (was_listed)
		handle_op_drop(op);
	handle_op_drop(op);
}

void dsaio_op_set_data(struct dsaio_op *op, void *data)
{
	if (op)
		atomic_store(&op->data, data);
}

void *dsaio_op_data(const struct dsaio_op *op)
{
	return op ? atomic_load(&op->data) : NULL;
}

/* ---- all ops of a handle ---- */

int dsaio_wait(struct dsaio_handle *handle, int64_t timeout_usec, int64_t *ret_result)
{
	CANCEL_DISABLE();
	struct wait_for all = { .what = WAIT_ALL };
	_cleanup_(freep) char *text = NULL;
	int64_t result;
	int r = handle_check(handle, "wait");

	if (r < 0)
		return r;
	r = wait_until(handle, &all, wait_deadline(timeout_usec));
	if (r < 0)
		return error_fail(r,
				  "wait: ops of the handle have not ended after %" PRId64
				  " us: they go on, wait again",
				  timeout_usec);
	result = handle_tell_all(handle, &text);
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
		got = handle_tell(handle, ops, n);
	while (!got && wait_poll_or_arm(handle));
	return got ? got : client_check_alive(handle->client, "reap");
}

int dsaio_reap_wait(struct dsaio_handle *handle, struct dsaio_op **ops, int min, int max,
		    int64_t timeout_usec)
{
	CANCEL_DISABLE();
	struct wait_for ended = { .what = WAIT_REAP };
	uint64_t deadline = wait_deadline(timeout_usec);
	int got = 0, r = reap_check(handle, "reap_wait", ops, max);

	if (r < 0)
		return r;
	if (min < 1 || min > max)
		return error_fail(-EINVAL, "reap_wait: at least %d of %d ops: must be from 1 to %d",
				  min, max, max);
	wait_poll(handle);
	while (got < min) {
		bool has_open = handle_has_open(handle);

		got += handle_tell(handle, ops + got, max - got);
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
