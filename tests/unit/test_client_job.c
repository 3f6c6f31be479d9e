#include "client/lib/io/job.c"

#include "client/lib/io/inode.h"
#include "tests/unit/client_channel.h"
#include "tests/unit/gpu.h"
#include "tests/unit/own_slab.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <sys/mman.h>

#define KIB 1024u

static struct buffers buffers;
static struct slots slots;
static struct dsaio_handle handle;
static struct inode inode = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct dsaio_file file;
static struct bounce_job job;
static struct dsaio_op *op;
static struct gpus gpus;
static struct list copies;
static char memory[512 * KIB];

/* ---- states of a piece ---- */

/* Each from FREE to FREE, which is 0. */
static const struct {
	const char *what;
	int gpu;
	enum piece_state states[6];
} lives[] = {
	{ "a write", -1, { PIECE_IN_FLIGHT, PIECE_ENDED } },
	{ "the daemon is gone", -1, { PIECE_ENDED } },
	{ "a read with a copier",
	  -1,
	  { PIECE_IN_FLIGHT, PIECE_ENDED, PIECE_EMPTYING, PIECE_COPIED } },
	{ "a GPU's write", 0, { PIECE_FILLING, PIECE_IN_FLIGHT, PIECE_ENDED } },
	{ "one that is cancelled", 0, { PIECE_FILLING, PIECE_ENDED } },
	{ "a GPU's read", 0, { PIECE_IN_FLIGHT, PIECE_ENDED, PIECE_EMPTYING, PIECE_COPIED } },
	{ "one at the file's end", 0, { PIECE_IN_FLIGHT, PIECE_ENDED, PIECE_COPIED } },
};
#define N_STEPS N_ROWS(lives[0].states)
#define N_STATES (PIECE_COPIED + 1)

TEST_TABLE(a_piece_lives_as_its_states_say, lives)
{
	struct job_piece *piece = &job.pieces[0];

	job.gpu = lives[_i].gpu;
	job.copies = &copies;
	piece->job = &job;
	for (int i = 0; i < N_STEPS && (!i || piece->state); i++) {
		const enum piece_state to = lives[_i].states[i];

		piece_move(piece, to);
		ck_assert_int_eq(piece->state, to);
		ck_assert_msg(!!copies.first == (job.gpu >= 0 &&
						 (to == PIECE_FILLING || to == PIECE_EMPTYING)),
			      "%s: step %d", lives[_i].what, i);
	}
	ck_assert_int_eq(piece->state, PIECE_FREE);
}

/* _i: a pair of states that is in no life. */
TEST_ABORTS(no_piece_makes_another_move, N_STATES *N_STATES)
{
	const enum piece_state from = (enum piece_state)(_i / N_STATES);
	const enum piece_state to = (enum piece_state)(_i % N_STATES);

	for (int i = 0; i < N_ROWS(lives); i++)
		for (int s = 0; s < N_STEPS; s++)
			if (lives[i].states[s] == to &&
			    (s ? lives[i].states[s - 1] : PIECE_FREE) == from && from != to)
				abort(); /* a legal one: as the assertion would */
	job.gpu = -1;
	job.pieces[0] = (struct job_piece){ .job = &job, .state = from };
	piece_move(&job.pieces[0], to);
}

/* ---- jobs ---- */

static void ignore_room(struct slots *s)
{
	(void)s;
}

static void job_setup(void)
{
	channel_setup();
	memset(&handle, 0, sizeof(handle));
	memset(&file, 0, sizeof(file));
	memset(&job, 0, sizeof(job));
	memset(memory, 0, sizeof(memory));
	handle.client = &client;
	ended_init(&handle.ended, &handle.pool);
	buffers_init(&buffers, &conn, NULL);
	slots_init(&slots, &buffers, ignore_room);
	slots.on_unmap = own_slab_ignore;
	slots.slabs[0] = (struct slots_slab){ .mapped = own_slab_new(&buffers, SLOTS_SLAB_BYTES),
					      .n_units = 64 };
	slots.slabs[0].mapped->slab.id = 9;
	slots.n_slabs = 1;
	slots.is_growing = true; /* as if another thread asked for more */
	file.inode = &inode;
	file.session.offset_align = 512;
	file.session.memory_align = 4;
	file.name = (char *)(uintptr_t) "test";
	atomic_init(&file.n_refs, 1);
}

static void job_teardown(void)
{
	char *text = NULL;

	(void)ended_take_all(&handle.ended, false, &text);
	free(text);
	ck_assert_uint_eq(handle.pool.n_used, 0);
	ck_assert_uint_eq(slots_n_free(&slots), 64);
	ck_assert_ptr_null(slots.shares.first);
	op_pool_deinit(&handle.pool);
	slots_deinit(&slots);
	if (slots.on_unmap != own_slab_ignore)
		gpus_deinit(&gpus);
	buffers_deinit(&buffers);
	channel_teardown();
}

/* An async op from byte 100 on, and its job; all pieces that there are room for start. */
static void start_on(char *buf, uint8_t opcode, uint64_t len)
{
	op = handle_op_new(&handle, true, false, NULL);
	op_set_io(op, opcode, 100, len, &(struct buffer_place){ .slab = NULL });
	op_set_file(op, &file);
	op_change_state(op, OP_BOUNCED);
	job_init(&job, op, &handle, &channel, &(struct job_memory){ buf, gpus_find(buf) }, NULL,
		 &gpus);
	job.share = slots_share_get(&slots, channel.store);
	job.copies = &copies;
	ck_assert_ptr_nonnull(job.share);
	while (job.n < 4 && job_has_more(&job))
		ck_assert_int_eq(job_start_piece(&job, false, job.n), 0);
}

static void start(uint8_t opcode, uint64_t len)
{
	start_on(memory, opcode, len);
}

/* The lane takes the next entry, and its bytes in the slot become c. */
static struct ring_entry serve(char c)
{
	struct ring_entry entry;

	ck_assert_int_gt(ring_lane_ready(&lane), 0);
	ring_lane_take(&lane, &entry);
	if (entry.opcode == RING_OP_READ) {
		char *bytes = malloc(entry.len);

		memset(bytes, c, entry.len);
		ck_assert_int_eq(
			pwrite(slots.slabs[0].mapped->fd, bytes, entry.len, (off_t)entry.slab_off),
			(ssize_t)entry.len);
		free(bytes);
	}
	return entry;
}

/* The first piece ends with that result. */
static void finish(uint64_t id, int64_t result)
{
	struct op_list list = { NULL, NULL };

	complete(id, result);
	channel_consume(&channel, &list);
	job_end_piece(list.first->part_of);
	job_finish_piece(&job);
}

TEST(a_read_is_copied_piece_by_piece_without_its_neighbours)
{
	struct ring_entry first;
	uint64_t len = 64 * KIB;

	start(RING_OP_READ, len);
	ck_assert_uint_eq(job.n, 1); /* all fits into one slot */
	first = serve('a');
	ck_assert_uint_eq(first.slab, 9);
	ck_assert_uint_eq(first.off, 0); /* whole blocks */
	ck_assert_uint_eq(first.len % 512, 0);
	finish(first.id, (int64_t)first.len);
	ck_assert_uint_eq(job.done, len);
	ck_assert_int_eq(memory[0], 'a');
	ck_assert_int_eq(memory[len - 1], 'a');
	ck_assert_int_eq(memory[len], 0);
	ck_assert(!job_has_more(&job));
	job_end_op(&job);
	ck_assert_int_eq(op->result, (int64_t)len);
}

TEST(a_write_sends_the_wanted_bytes_alone)
{
	struct ring_entry entry;
	char byte;

	memset(memory, 'w', sizeof(memory));
	start(RING_OP_WRITE, 1000);
	entry = serve(0);
	ck_assert_uint_eq(entry.off, 100);
	ck_assert_uint_eq(entry.len, 1000);
	ck_assert_int_eq(pread(slots.slabs[0].mapped->fd, &byte, 1, (off_t)entry.slab_off), 1);
	ck_assert_int_eq(byte, 'w');
	finish(entry.id, 1000);
	job_end_op(&job);
	ck_assert_int_eq(op->result, 1000);
}

TEST(a_short_read_is_the_end_of_the_file)
{
	struct ring_entry entry;

	start(RING_OP_READ, 10000);
	entry = serve('e');
	finish(entry.id, 100 + 300);
	ck_assert(job.is_at_end);
	ck_assert(!job_has_more(&job));
	job_end_op(&job);
	ck_assert_int_eq(op->result, 300);
}

TEST(a_piece_that_fails_is_the_op_s_error)
{
	struct ring_entry entry;

	start(RING_OP_READ, 10000);
	entry = serve('x');
	finish(entry.id, ring_result_failed(EIO, 100 + 50));
	job_end_op(&job);
	ck_assert_int_eq(op->result, -EIO);
	ck_assert_uint_eq(op->done, 50);
	ck_assert_ptr_nonnull(strstr(op->text, "test"));
}

static const int64_t failures[] = { -ETIMEDOUT, -EIO };

TEST_TABLE(a_piece_of_unknown_outcome_makes_the_op_so, failures)
{
	int64_t result = ring_result_failed((int)-failures[_i], 0);

	start(RING_OP_WRITE, 1000);
	finish(serve(0).id, _i == 0 ? ring_result_unknown(result) : result);
	job_end_op(&job);
	ck_assert_int_eq(op->result, failures[_i]);
	ck_assert_int_eq(op->is_unknown, _i == 0);
}

TEST(a_cancelled_op_starts_no_piece)
{
	op = handle_op_new(&handle, true, false, NULL);
	op_set_io(op, RING_OP_READ, 0, 4096, &(struct buffer_place){ .slab = NULL });
	op_set_file(op, &file);
	op_set_cancelled(op);
	job_init(&job, op, &handle, &channel, &(struct job_memory){ memory, -1 }, NULL, NULL);
	job.share = slots_share_get(&slots, channel.store);
	ck_assert_int_eq(job_start_piece(&job, false, false), 0);
	ck_assert_uint_eq(job.n, 0);
	job_end_op(&job);
	ck_assert_int_eq(op->result, -ECANCELED);
}

/* ---- GPU memory ---- */

static void forget_map(struct slots *s, void *slab)
{
	(void)s;
	gpus_forget(&gpus, slab);
}

/* The slots are given to it until gpu_close(). */
static char *gpu_open(void)
{
	gpus_init(&gpus);
	slots.on_unmap = forget_map;
	cuda_open("");
	return gpu_memory_new(0, 1024 * KIB);
}

static void gpu_close(void)
{
	ck_assert_ptr_null(copies.first);
	ck_assert_uint_eq(gpu.look.standin_counts().n_races, 0);
	job_end_op(&job);
}

/* The lane's completion, without a look at what follows. */
static void end(uint64_t id, int64_t result)
{
	struct op_list list = { NULL, NULL };

	complete(id, result);
	channel_consume(&channel, &list);
	job_end_piece(list.first->part_of);
}

/* The oldest queued copy. */
static struct job_piece *first_copy(void)
{
	return list_entry(copies.first, struct job_piece, copy_node);
}

TEST(a_gpu_s_copies_of_a_read_are_queued_in_the_file_s_order_up_to_its_end)
{
	char *buf = gpu_open();
	struct ring_entry entries[3];

	start_on(buf, RING_OP_READ, 700 * KIB);
	ck_assert_uint_eq(job.n, 3);
	gpu.look.standin_let(0);
	for (int i = 0; i < 3; i++)
		entries[i] = serve((char)('a' + i));
	end(entries[2].id, (int64_t)entries[2].len);
	job_queue_copies(&job); /* not the first ones */
	ck_assert_ptr_null(copies.first);
	end(entries[0].id, (int64_t)entries[0].len);
	job_queue_copies(&job);
	ck_assert_uint_eq(gpu.look.standin_counts().n_copies, 1);
	end(entries[1].id, 1000); /* the end of the file */
	job_queue_copies(&job);
	job_queue_copies(&job);
	ck_assert_uint_eq(gpu.look.standin_counts().n_copies, 2);
	ck_assert(!job_has_more(&job));
	ck_assert(!job_may_finish(&job));
	ck_assert(!job_end_copy(first_copy()));
	ck_assert_uint_lt(slots_n_free(&slots), 64);
	gpu.look.standin_let(1);
	ck_assert(job_end_copy(first_copy()));
	ck_assert(job_may_finish(&job));
	job_finish_piece(&job);
	ck_assert(!job_may_finish(&job));
	gpu.look.standin_let(2);
	ck_assert(job_end_copy(first_copy()));
	while (job_may_finish(&job))
		job_finish_piece(&job);
	ck_assert_uint_eq(job.n, 0);
	ck_assert(job.is_at_end);
	ck_assert_uint_eq(job.done, entries[0].len - 100 + 1000);
	ck_assert_int_eq(gpu.look.standin_bytes((uintptr_t)buf)[job.done - 1], 'b');
	ck_assert_int_eq(gpu.look.standin_bytes((uintptr_t)buf)[job.done], 0);
	gpu_close();
}

TEST(a_write_goes_into_the_ring_when_the_gpu_has_copied_it)
{
	char *buf = gpu_open();
	struct ring_entry entry;
	char byte;

	memset(gpu.look.standin_bytes((uintptr_t)buf), 'w', 1000);
	gpu.look.standin_let(0);
	start_on(buf, RING_OP_WRITE, 1000);
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
	ck_assert(!job_end_copy(first_copy()));
	gpu.look.standin_let(1);
	ck_assert(job_end_copy(first_copy()));
	ck_assert(!job_may_finish(&job));
	entry = serve(0);
	ck_assert_int_eq(pread(slots.slabs[0].mapped->fd, &byte, 1, (off_t)entry.slab_off), 1);
	ck_assert_int_eq(byte, 'w');
	finish(entry.id, 1000);
	ck_assert_uint_eq(job.done, 1000);
	gpu_close();
}

TEST(a_write_that_is_cancelled_while_the_gpu_copies_is_never_put)
{
	char *buf = gpu_open();

	start_on(buf, RING_OP_WRITE, 500 * KIB);
	ck_assert_uint_eq(job.n, 2);
	op_set_cancelled(op);
	ck_assert(job_end_copy(first_copy()));
	ck_assert(job_end_copy(first_copy()));
	ck_assert_int_eq(ring_lane_ready(&lane), 0);
	while (job_may_finish(&job))
		job_finish_piece(&job);
	ck_assert_uint_eq(job.n, 0);
	gpu_close();
	ck_assert_int_eq(op->result, -ECANCELED);
}

TEST(a_gpu_s_read_that_never_comes_into_the_ring_ends)
{
	char *buf = gpu_open();

	atomic_store(&channel.is_dead, true); /* the daemon is gone */
	start_on(buf, RING_OP_READ, 1000);
	ck_assert(job_may_finish(&job));
	job_queue_copies(&job);
	ck_assert(job_may_finish(&job));
	job_finish_piece(&job);
	gpu_close();
	ck_assert_int_eq(op->result, -ECONNRESET);
}

FIXTURE(job_setup, job_teardown)
TEST_MAIN
