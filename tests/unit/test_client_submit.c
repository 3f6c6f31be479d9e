#include "client/lib/io/submit.h"

#include "client/lib/io/wait.h"
#include "tests/unit/client_handle.h"

#include <errno.h>
#include <sys/uio.h>

static struct op_request request(uint8_t opcode, uint64_t len, uint64_t off)
{
	return (struct op_request){ .function = "test",
				    .handle = &handle,
				    .file = &file,
				    .opcode = opcode,
				    .buf = memory,
				    .len = len,
				    .off = off,
				    .is_async = true };
}

/* The lane completes what it takes, whole, and the ops end. */
static void end_all(void)
{
	while (ring_lane_ready(&lane) > 0) {
		struct ring_entry entry = take_entry();

		complete(entry.id, (int64_t)entry.len);
	}
	(void)wait_poll(&handle, false);
	ck_assert(!handle_has_open(&handle));
}

static const struct {
	const char *what;
	bool can_read, can_write;
	uint8_t opcode;
	uint64_t len, off;
	int error;
	const char *words;
} refused[] = {
	{ "not open for reading", false, true, RING_OP_READ, 1, 0, -EBADF, "reading" },
	{ "not open for writing", true, false, RING_OP_WRITE, 1, 0, -EBADF, "writing" },
	{ "past 2^64", true, true, RING_OP_READ, UINT64_MAX, 2, -EINVAL, "passes 2^63" },
	{ "past 2^63", true, true, RING_OP_WRITE, 1, INT64_MAX, -EINVAL, "passes 2^63" },
};

TEST_TABLE(a_request_that_cannot_be_is_no_op, refused)
{
	struct op_request q = request(refused[_i].opcode, refused[_i].len, refused[_i].off);
	struct dsaio_op *op = NULL;

	file.can_read = refused[_i].can_read;
	file.can_write = refused[_i].can_write;
	ck_assert_msg(submit_op(&q, &op) == refused[_i].error, "%s", refused[_i].what);
	ck_assert_msg(strstr(dsaio_error(), refused[_i].words), "%s", dsaio_error());
	ck_assert_ptr_null(op);
}

TEST(a_file_of_another_client_is_refused)
{
	struct op_request q = request(RING_OP_READ, 512, 0);
	struct dsaio_client other = { .guard = &guard };

	file.client = &other;
	ck_assert_int_eq(submit_op(&q, NULL), -EBADF);
	file.client = &client;
	q.file = NULL;
	ck_assert_int_eq(submit_op(&q, NULL), -EINVAL);
	q.file = &file;
	atomic_store(&conn.n_gone, 1);
	ck_assert_int_eq(submit_op(&q, NULL), -ENOTCONN);
}

TEST(an_entry_has_what_the_op_needs)
{
	struct op_request q = request(RING_OP_WRITE, 1024, FILE_BYTES - 512);
	struct dsaio_op *op;
	struct ring_entry entry;

	q.buf = memory + 4096;
	q.has_timeout = true;
	q.timeout_msec = 70;
	ck_assert_int_eq(submit_op(&q, &op), 0);
	entry = take_entry();
	ck_assert_uint_eq(entry.opcode, RING_OP_WRITE);
	ck_assert_uint_eq(entry.file, 9);
	ck_assert_uint_eq(entry.slab, SLAB);
	ck_assert_uint_eq(entry.slab_off, 4096);
	ck_assert_uint_eq(entry.off, FILE_BYTES - 512);
	ck_assert_uint_eq(entry.len, 1024);
	ck_assert_uint_eq(entry.grow_end, FILE_BYTES + 512); /* the daemon extends the file */
	ck_assert_uint_eq(entry.timeout_msec, 70);
	complete(entry.id, 1024);
	(void)wait_poll(&handle, false);
	ck_assert_int_eq(op->result, 1024);
	ck_assert(inode_is_long(file.inode, FILE_BYTES + 512));
	handle_op_unref(op);
}

static const struct {
	const char *what;
	uint64_t off, len, cut; /* cut: bytes in the entry; 0: none, the op has ended */
} reads[] = {
	{ "within the file", 512, 1024, 1024 },
	{ "over its end", FILE_BYTES - 512, 1024, 512 },
	{ "at its end", FILE_BYTES, 512, 0 },
	{ "behind its end", FILE_BYTES + 4096, 512, 0 },
	{ "no bytes", 0, 0, 0 },
};

TEST_TABLE(a_read_is_cut_at_the_files_end, reads)
{
	struct op_request q = request(RING_OP_READ, reads[_i].len, reads[_i].off);
	struct dsaio_op *op;

	ck_assert_int_eq(submit_op(&q, &op), 0);
	if (reads[_i].cut) {
		struct ring_entry entry = take_entry();

		ck_assert_msg(entry.len == reads[_i].cut, "%s", reads[_i].what);
		complete(entry.id, (int64_t)entry.len);
		(void)wait_poll(&handle, false);
	}
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
	ck_assert(op_has_ended(op));
	ck_assert_msg(op->result == (int64_t)reads[_i].cut, "%s", reads[_i].what);
	handle_op_unref(op);
}

TEST(a_read_behind_an_open_write_sees_its_end)
{
	struct op_request write = request(RING_OP_WRITE, 4096, FILE_BYTES);
	struct op_request read = request(RING_OP_READ, 4096, FILE_BYTES);
	struct ring_entry entry;

	ck_assert_int_eq(submit_op(&write, NULL), 0);
	ck_assert_int_eq(submit_op(&read, NULL), 0);
	complete(take_entry().id, 4096);
	entry = take_entry();
	ck_assert_uint_eq(entry.len, 4096);
	complete(entry.id, 4096);
	end_all();
}

TEST(all_ops_of_a_batch_reach_the_lane)
{
	struct op_request q[3];
	struct dsaio_op *ops[3];

	for (unsigned i = 0; i < 3; i++)
		q[i] = request(RING_OP_READ, 512, i * 512);
	q[1].off = FILE_BYTES; /* has ended before the others are seen */
	ck_assert_int_eq(submit_ops(q, 3, ops), 3);
	ck_assert(op_has_ended(ops[1]));
	ck_assert_int_eq(ring_lane_ready(&lane), 2);
	end_all();
	for (unsigned i = 0; i < 3; i++)
		handle_op_unref(ops[i]);
}

TEST(a_batch_goes_up_to_the_first_that_cannot_be_an_op)
{
	struct op_request q[3];

	for (unsigned i = 0; i < 3; i++)
		q[i] = request(RING_OP_READ, 512, i * 512);
	q[1].off = INT64_MAX;
	ck_assert_int_eq(submit_ops(q, 3, NULL), 1);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "passes 2^63"));
	ck_assert_int_eq(submit_ops(q + 1, 2, NULL), -EINVAL);
	end_all();
}

TEST(without_waiting_a_full_ring_is_an_error)
{
	struct op_request q[ENTRIES + 1];

	for (unsigned i = 0; i <= ENTRIES; i++) {
		q[i] = request(RING_OP_READ, 512, i * 512);
		q[i].is_nowait = true;
	}
	ck_assert_int_eq(submit_ops(q, ENTRIES + 1, NULL), (int)ENTRIES);
	ck_assert_ptr_nonnull(strstr(dsaio_error(), "the ring of 8 entries is full"));
	ck_assert_int_eq(submit_op(&q[ENTRIES], NULL), -EAGAIN);
	end_all();
	ck_assert_int_eq(submit_op(&q[ENTRIES], NULL), 0);
	end_all();
}

TEST(a_vectored_op_takes_an_entry_for_each_buffer)
{
	struct iovec iov[] = { { memory, 512 }, { memory, 0 }, { memory + 8192, 1024 } };
	struct op_request q = request(RING_OP_READ, 1536, 2048);
	struct ring_entry entries[2];
	struct dsaio_op *op;

	q.buf = NULL;
	q.iov = iov;
	q.n_iov = 3;
	ck_assert_int_eq(submit_op(&q, &op), 0);
	for (unsigned i = 0; i < 2; i++)
		entries[i] = take_entry();
	ck_assert_uint_eq(entries[0].off, 2048);
	ck_assert_uint_eq(entries[1].off, 2560);
	ck_assert_uint_eq(entries[1].slab_off, 8192);
	complete(entries[1].id, 1024);
	(void)wait_poll(&handle, false);
	ck_assert(!op_has_ended(op));
	complete(entries[0].id, 512);
	(void)wait_poll(&handle, false);
	ck_assert(op_has_ended(op));
	ck_assert_int_eq(op->result, 1536);
	handle_op_unref(op);
}

TEST(private_memory_needs_the_daemon_for_more_than_its_ring)
{
	static char private_memory[512];
	struct op_request q = request(RING_OP_READ, 512, 0);

	atomic_store(&conn.is_broken, true);
	q.buf = private_memory;
	q.is_async = false; /* it is run here, and finds no slab */
	ck_assert_int_eq(submit_op(&q, NULL), 0);
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
}

FIXTURE(handle_setup, handle_teardown)
TEST_MAIN
