#include "client/lib/io/bounce_thread.h"
#include "client/lib/io/end.h"
#include "client/lib/io/file.h"
#include "client/lib/io/inode.h"
#include "tests/unit/client_channel.h"
#include "tests/unit/suite.h"

#include <errno.h>

/* Turns of the thread, run here; a deferred op behind an earlier one that is bounced. */
static struct client_bounce bounce;
static struct dsaio_handle handle;
static struct dsaio_file file;
static struct inode *inode;
static struct dsaio_op *earlier, *deferred;

static struct dsaio_op *open_op(struct handle_channel *by, enum op_state state)
{
	struct dsaio_op *op = handle_op_new(&handle, true, true, by);

	op_set_io(op, RING_OP_WRITE, 0, 100, &(struct buffer_place){ .slab = NULL });
	op_set_file(op, &file);
	op_change_state(op, state);
	inode_add(inode, op);
	return op;
}

static void thread_setup(void)
{
	struct bounce_job *job = calloc(1, sizeof(*job));

	channel_setup();
	memset(&bounce, 0, sizeof(bounce));
	memset(&handle, 0, sizeof(handle));
	memset(&file, 0, sizeof(file));
	handle.client = &client;
	ended_init(&handle.ended, &handle.pool);
	bounce.client = &client;
	file.name = (char *)(uintptr_t) "test";
	atomic_init(&file.n_refs, 1);
	ck_assert_int_eq(inode_hold(&client, 1, 2, &inode), 0);
	file.inode = inode;
	earlier = open_op(NULL, OP_BOUNCED);
	deferred = open_op(&channel, OP_WAITING);
	job_init(job, deferred, NULL, NULL, NULL, NULL, NULL);
	job->is_for_ring = true;
	handle.n_jobs = 1;
	list_push(&bounce.inbox, &job->node);
	ck_assert(bounce_round(&bounce)); /* it took the job */
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
}

static void thread_teardown(void)
{
	ck_assert_uint_eq(handle.n_jobs, 0);
	op_pool_deinit(&handle.pool);
	inode_drop(&client, inode);
	channel_teardown();
}

TEST(a_deferred_op_goes_into_its_ring_when_the_earlier_one_has_ended)
{
	ck_assert(!bounce_round(&bounce)); /* nothing to do: it may sleep */
	ck_assert_int_eq(op_state(deferred), OP_WAITING);
	end_op(earlier, 100, 100);
	(void)bounce_round(&bounce);
	ck_assert_int_eq(op_state(deferred), OP_SUBMITTED);
	ck_assert_uint_eq(take(), atomic_load(&deferred->ring_id));
	ck_assert(!bounce_round(&bounce));
}

TEST(a_deferred_op_that_is_cancelled_ends_at_once)
{
	op_set_cancelled(deferred);
	bounce.must_look = true;
	(void)bounce_round(&bounce);
	ck_assert(op_has_ended(deferred));
	ck_assert_int_eq(deferred->result, -ECANCELED);
	ck_assert(!op_has_ended(earlier));
	end_op(earlier, 100, 100);
}

TEST(a_deferred_op_ends_when_the_daemon_is_gone)
{
	atomic_store(&conn.n_gone, 1);
	(void)bounce_round(&bounce);
	ck_assert_int_eq(deferred->result, -ECONNRESET);
	end_op(earlier, -ECONNRESET, 0);
	atomic_store(&conn.n_gone, 0);
}

FIXTURE(thread_setup, thread_teardown)
TEST_MAIN
