#include "client/lib/io/file.h"
#include "client/lib/io/handle.h"
#include "client/lib/io/inode.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct dsaio_client client;
static struct inode *inode;
static struct dsaio_file file;
static int fd;

static void inode_setup(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/dsaio-inode-XXXXXX", tmp ? tmp : "/var/tmp");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	(void)pthread_mutex_init(&client.lock, NULL);
	ck_assert_int_eq(inode_hold(&client, 1, 2, &inode), 0);
}

static void inode_teardown(void)
{
	inode_drop(&client, inode);
	ck_assert_ptr_null(client.inodes);
	(void)close(fd);
}

/* Opens an op on the inode. */
static void start(struct dsaio_op *op, uint8_t opcode, uint64_t off, uint64_t len, bool is_off_ring)
{
	memset(op, 0, sizeof(*op));
	op_set_io(op, opcode, off, len, &(struct buffer_place){ .slab = NULL });
	op_change_state(op, OP_PREPARED);
	if (is_off_ring)
		op_change_state(op, OP_BOUNCED);
	op->file = &file;
	atomic_init(&op->n_refs, 1);
	inode_add(inode, op);
}

static void end(struct dsaio_op *op, int64_t result, uint64_t done)
{
	op_set_result(op, result, done);
	inode_remove(inode, op);
}

static struct dsaio_op *first_op(void)
{
	return container_of(inode->ops.first, struct dsaio_op, inode_node);
}

static struct dsaio_op *next_op(struct dsaio_op *op)
{
	return container_of(op->inode_node.next, struct dsaio_op, inode_node);
}

static int64_t size_now(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_size;
}

TEST(files_of_one_inode_share_it)
{
	struct inode *same, *other;

	ck_assert_int_eq(inode_hold(&client, 1, 2, &same), 0);
	ck_assert_int_eq(inode_hold(&client, 1, 3, &other), 0);
	ck_assert_ptr_eq(same, inode);
	ck_assert_ptr_ne(other, inode);
	inode_drop(&client, same);
	inode_drop(&client, other);
}

static const struct {
	const char *what;
	uint8_t first, then;
	uint64_t first_off, then_off;
	bool is_first_off_ring, is_then_off_ring, must_wait;
} meetings[] = {
	{ "the lane orders ring ops", RING_OP_WRITE, RING_OP_WRITE, 0, 0, false, false, false },
	{ "bounced behind a ring's", RING_OP_WRITE, RING_OP_READ, 0, 100, false, true, true },
	{ "a ring's behind bounced", RING_OP_WRITE, RING_OP_READ, 100, 0, true, false, true },
	{ "both bounced", RING_OP_READ, RING_OP_WRITE, 1, 2, true, true, true },
	{ "two reads", RING_OP_READ, RING_OP_READ, 0, 0, true, true, false },
	{ "another page", RING_OP_WRITE, RING_OP_WRITE, 0, 4096, true, true, false },
	{ "the same page, other bytes", RING_OP_WRITE, RING_OP_READ, 0, 4000, true, true, true },
	{ "a sync behind a bounced write", RING_OP_WRITE, RING_OP_FSYNC, 0, 0, true, false, true },
	{ "a write behind a sync", RING_OP_FSYNC, RING_OP_WRITE, 0, 0, false, true, false },
};

TEST_TABLE(who_meets_an_op_off_the_ring_waits_for_it, meetings)
{
	struct dsaio_op first, then, *found;
	bool is_in_ring = !meetings[_i].is_then_off_ring;

	start(&first, meetings[_i].first, meetings[_i].first_off,
	      meetings[_i].first == RING_OP_FSYNC ? 0 : 50, meetings[_i].is_first_off_ring);
	start(&then, meetings[_i].then, meetings[_i].then_off,
	      meetings[_i].then == RING_OP_FSYNC ? 0 : 50, meetings[_i].is_then_off_ring);
	ck_assert_ptr_null(inode_conflict(inode, &first, false)); /* the earlier never waits */
	found = inode_conflict(inode, &then, is_in_ring);
	ck_assert_msg(found == (meetings[_i].must_wait ? &first : NULL), "%s", meetings[_i].what);
	ck_assert_uint_eq(atomic_load(&first.n_refs), meetings[_i].must_wait ? 2 : 1);
	end(&first, 0, 0);
	ck_assert_ptr_null(inode_conflict(inode, &then, is_in_ring));
	end(&then, 0, 0);
}

/* The answer for an added op must be right whatever was added and removed before. */
TEST(who_meets_whom_is_the_same_with_and_without_a_look_at_each)
{
	static const uint8_t opcodes[] = { RING_OP_READ, RING_OP_READ, RING_OP_WRITE, RING_OP_WRITE,
					   RING_OP_FSYNC };
	enum { N = 12 };
	struct dsaio_op ops[N], *found, *first;
	uint64_t random = 3;
	unsigned n_met = 0, n_clear = 0;

	for (unsigned round = 0; round < 20000; round++) {
		struct dsaio_op *op = &ops[round % N];
		uint64_t number = (random = random * 6364136223846793005u + 1) >> 33;
		uint8_t opcode = opcodes[number % (round % 1000 < 500 ? 2 : 5)];

		if (round >= N)
			end(op, 0, 0);
		if (opcode == RING_OP_FSYNC)
			start(op, opcode, 0, 0, true);
		else if (number >> 8 & 1) /* a stream */
			start(op, opcode, (uint64_t)round * 5000, 5000, true);
		else
			start(op, opcode, number >> 9 & 0xffff, 1 + (number & 0x1fff), true);
		found = inode_conflict(inode, op, false);
		for (first = first_op(); first != op; first = next_op(first))
			if (ring_ops_conflict(first->opcode, first->off, first->len, op->opcode,
					      op->off, op->len))
				break;
		ck_assert_ptr_eq(found, first == op ? NULL : first);
		n_met += found != NULL;
		n_clear += op->is_clear;
	}
	ck_assert_uint_gt(n_met, 1000);
	ck_assert_uint_gt(n_clear, 1000);
	for (unsigned i = 0; i < N; i++)
		end(&ops[i], 0, 0);
}

TEST(ops_of_two_handles_do_not_wait_for_each_other)
{
	struct dsaio_handle handle;
	struct dsaio_op first, then;

	start(&first, RING_OP_WRITE, 0, 50, true);
	start(&then, RING_OP_WRITE, 0, 50, true);
	then.handle = &handle;
	ck_assert_ptr_null(inode_conflict(inode, &then, false));
	end(&first, 0, 0);
	end(&then, 0, 0);
}

TEST(an_op_that_left_the_ring_is_waited_for)
{
	struct dsaio_op first, then, *found;

	start(&first, RING_OP_WRITE, 0, 50, false);
	start(&then, RING_OP_WRITE, 0, 50, false);
	ck_assert_ptr_null(inode_conflict(inode, &then, true));
	inode_leave_ring(inode, &first);
	found = inode_conflict(inode, &then, true);
	ck_assert_ptr_eq(found, &first);
	end(&first, 0, 0);
	ck_assert_ptr_null(inode_conflict(inode, &then, true));
	end(&then, 0, 0);
}

TEST(a_write_that_grew_the_file_tells_how_long_it_is_at_least)
{
	struct dsaio_op op;

	start(&op, RING_OP_WRITE, 4096, 8192, false);
	op.grow_end = 12288;
	end(&op, -EIO, 4096);
	ck_assert(!inode_is_long(inode, 1));
	start(&op, RING_OP_WRITE, 4096, 8192, false);
	op.grow_end = 12288;
	end(&op, 8192, 8192);
	ck_assert(inode_is_long(inode, 12288));
	ck_assert(!inode_is_long(inode, 12289));
	inode_know_size(inode, 100); /* it is that long, too */
	ck_assert(inode_is_long(inode, 12288));
}

TEST(a_failed_write_leaves_the_file_as_long_as_it_is)
{
	struct dsaio_op op;

	ck_assert_int_eq(ftruncate(fd, 50000), 0);
	start(&op, RING_OP_WRITE, 0, 100000, false);
	op.grow_end = 100000;
	end(&op, -EIO, 4096);
	ck_assert_int_eq(size_now(), 50000);
}

TEST(after_a_truncation_the_size_is_looked_at_again)
{
	inode_know_size(inode, 16384);
	ck_assert_int_eq(inode_truncate(inode, fd, 4096), 0);
	ck_assert_int_eq(size_now(), 4096);
	ck_assert(inode_is_long(inode, 4096));
	ck_assert(!inode_is_long(inode, 4097));
}

TEST(what_others_cut_is_noticed_when_it_is_opened_again)
{
	inode_know_size(inode, 16384);
	inode_opened(inode, 20000); /* longer: nothing was known of that */
	ck_assert(inode_is_long(inode, 16384));
	ck_assert(!inode_is_long(inode, 20000));
	inode_opened(inode, 4096);
	ck_assert(inode_is_long(inode, 4096));
	ck_assert(!inode_is_long(inode, 16384));
	ck_assert(!inode_reached(inode, 16384));
}

FIXTURE(inode_setup, inode_teardown)
TEST_MAIN
