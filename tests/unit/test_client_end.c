#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"
#include "client/lib/io/inode.h"
#include "client/lib/io/vector.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static struct dsaio_client client;
static struct dsaio_conn conn = { .fd = -1 };
static struct dsaio_handle handle;
static struct dsaio_file file;
static struct cut_piece piece;

static void end_setup(void)
{
	memset(&client, 0, sizeof(client));
	memset(&handle, 0, sizeof(handle));
	memset(&file, 0, sizeof(file));
	memset(&piece, 0, sizeof(piece));
	client.conn = &conn;
	handle.client = &client;
	handle.epoll_fd = handle.own_doorbell_fd = -1;
	ended_init(&handle.ended, &handle.pool);
	file.client = &client;
	file.name = (char *)(uintptr_t) "test";
	atomic_init(&file.n_refs, 1);
	ck_assert_int_eq(inode_hold(&client, 1, 2, &file.inode), 0);
}

static void end_teardown(void)
{
	ended_clear(&handle.ended);
	ck_assert_uint_eq(handle.pool.n_used, 0);
	ck_assert_uint_eq(atomic_load(&file.n_refs), 1);
	ck_assert_ptr_null(file.inode->ops.first);
	op_pool_deinit(&handle.pool);
	inode_drop(&client, file.inode);
}

/* An open op of 100 bytes, with a file and a buffer. */
static struct dsaio_op *start(bool is_async, uint64_t off)
{
	struct dsaio_op *op = handle_op_new(&handle, is_async, false, NULL);

	ck_assert_ptr_nonnull(op);
	op_set_io(op, RING_OP_READ, off, 100, &(struct buffer_place){ .piece = &piece });
	atomic_fetch_add(&piece.n_ops, 1);
	op_set_file(op, &file);
	inode_add(file.inode, op);
	return op;
}

TEST(an_ended_op_lets_its_file_and_buffer_go_and_can_be_reaped)
{
	struct dsaio_op *op = start(true, 0);
	struct dsaio_completion got;

	ck_assert_uint_eq(handle.n_open_async, 1);
	end_op(op, 100, 100);
	ck_assert_uint_eq(handle.n_open_async, 0);
	ck_assert_uint_eq(atomic_load(&piece.n_ops), 0);
	ck_assert_int_eq(ended_take(&handle.ended, &got, 1), 1);
	ck_assert_ptr_null(got.op); /* nobody held it: it is free */
	ck_assert_int_eq(got.result, 100);
	ck_assert_uint_eq(got.bytes, 100);
	ck_assert_uint_eq(got.flags, 0);
	ck_assert_int_eq(op_state(op), OP_FREE);
}

TEST(a_blocking_call_s_op_is_gone_with_its_end)
{
	end_op(start(false, 0), -EIO, 0);
	ck_assert_uint_eq(handle.ended.n_listed, 0);
}

TEST(a_failed_op_has_a_message)
{
	struct dsaio_op *op = start(true, 4096);
	struct dsaio_completion got;

	end_op(op, -EIO, 7);
	ck_assert_int_eq(ended_take(&handle.ended, &got, 1), 1);
	ck_assert_ptr_eq(got.op, op);
	ck_assert_int_eq(got.result, -EIO);
	ck_assert_uint_eq(got.bytes, 7);
	ck_assert_uint_eq(got.flags, DSAIO_COMPLETION_FREE);
	ck_assert_ptr_nonnull(strstr(op->text, "pread of 100 bytes at 4096 from test"));
	ck_assert_ptr_nonnull(strstr(op->text, "after 7 bytes"));
	op_pool_unref(&handle.pool, op);
}

TEST(the_buffer_of_an_abandoned_handle_is_kept)
{
	struct dsaio_op *op = start(true, 0);

	handle.is_abandoned = true; /* a device may still write to it */
	end_op(op, -ECONNRESET, 0);
	ck_assert_uint_eq(atomic_load(&piece.n_ops), 1);
}

TEST(a_vectored_op_ends_with_its_last_part_and_before_later_ops)
{
	struct dsaio_op *whole = handle_op_new(&handle, true, true, NULL), *parts[2];
	struct dsaio_op *later = start(true, 500);
	struct dsaio_completion got[3];
	struct op_list list = { NULL, NULL };

	op_set_io(whole, RING_OP_READ, 0, 200, &(struct buffer_place){ .slab = NULL });
	op_set_file(whole, &file);
	ck_assert_int_eq(vector_open(whole, 2), 0);
	for (unsigned i = 0; i < 2; i++) {
		parts[i] = start(false, i * 100);
		vector_add(whole, parts[i]);
	}
	ck_assert(!vector_close(whole));
	op_set_result(parts[1], 100, 100);
	op_set_result(parts[0], 100, 100);
	op_set_result(later, 100, 100);
	op_list_add(&list, parts[1]);
	op_list_add(&list, parts[0]);
	op_list_add(&list, later);
	end_ops(&handle, list.first, false);
	ck_assert_int_eq(ended_take(&handle.ended, got, 3), 2);
	ck_assert_ptr_eq(got[0].op, whole);
	ck_assert_int_eq(got[0].result, 200);
	ck_assert_ptr_null(got[1].op);
	op_pool_unref(&handle.pool, whole);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

TEST(an_end_makes_an_armed_descriptor_readable_and_wakes_who_waits_for_it)
{
	int own_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct dsaio_op *first = start(true, 0), *second = start(true, 0);

	handle.own_doorbell_fd = own_fd;
	atomic_store(&client.poke_fd, thread_fd);
	end_op(first, 100, 100);
	ck_assert(!is_readable(own_fd)); /* it is not armed */
	ck_assert(!is_readable(thread_fd));
	handle.is_fd_armed = true;
	second->is_awaited = true;
	end_op(second, 100, 100);
	ck_assert(is_readable(own_fd));
	ck_assert(!handle.is_fd_armed);
	ck_assert(is_readable(thread_fd));
	(void)close(own_fd);
	(void)close(thread_fd);
}

FIXTURE(end_setup, end_teardown)
TEST_MAIN
