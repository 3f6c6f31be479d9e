#include "client/lib/io/vector.h"

#include "client/lib/io/handle.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

#define N_PARTS 3u
#define PART_BYTES 100u
#define OFF 1000u

static struct dsaio_handle handle;
static struct dsaio_op *whole, *parts[N_PARTS];

static struct dsaio_op *op_new(uint64_t off, uint64_t len)
{
	const struct buffer_place none = { .slab = NULL };
	struct dsaio_op *op = op_pool_take(&handle.pool);

	ck_assert_ptr_nonnull(op);
	op_init(op, &handle, NULL, false, false);
	op_set_io(op, RING_OP_READ, off, len, &none);
	return op;
}

static void vector_setup(void)
{
	memset(&handle, 0, sizeof(handle));
	(void)pthread_mutex_init(&handle.lock, NULL);
	whole = op_new(OFF, N_PARTS * PART_BYTES);
	ck_assert_int_eq(vector_open(whole, N_PARTS), 0);
	for (unsigned i = 0; i < N_PARTS; i++) {
		parts[i] = op_new(OFF + i * PART_BYTES, PART_BYTES);
		vector_add(whole, parts[i]);
	}
}

static void vector_teardown(void)
{
	op_pool_deinit(&handle.pool);
}

/* The part's end, with the library's reference released. */
static struct dsaio_op *end_part(unsigned i, int64_t result, uint64_t done)
{
	struct dsaio_op *last;

	op_set_result(parts[i], result, done);
	last = vector_end_part(parts[i]);
	op_change_state(parts[i], OP_ENDED);
	op_pool_unref(&handle.pool, parts[i]);
	return last;
}

static const struct {
	const char *what;
	unsigned order[N_PARTS];
	int64_t results[N_PARTS];
	uint64_t done[N_PARTS]; /* of those that fail */
	int64_t result;
	uint64_t whole_done;
} ends[] = {
	{ "all are whole", { 0, 1, 2 }, { 100, 100, 100 }, { 0 }, 300, 300 },
	{ "in another order", { 2, 0, 1 }, { 100, 100, 100 }, { 0 }, 300, 300 },
	{ "the end of the file", { 0, 1, 2 }, { 100, 40, 0 }, { 0 }, 140, 140 },
	{ "the end of the file, behind it first", { 2, 1, 0 }, { 100, 40, 0 }, { 0 }, 140, 140 },
	{ "the first fails", { 0, 1, 2 }, { -EIO, 100, 100 }, { 7 }, -EIO, 7 },
	{ "the last fails", { 2, 1, 0 }, { 100, 100, -EIO }, { 0, 0, 9 }, -EIO, 209 },
	{ "two fail: the first in the file counts",
	  { 2, 1, 0 },
	  { 100, -ENOSPC, -EIO },
	  { 0, 5, 5 },
	  -ENOSPC,
	  105 },
	{ "two fail, in the order of the file",
	  { 0, 1, 2 },
	  { 100, -ENOSPC, -EIO },
	  { 0, 5, 5 },
	  -ENOSPC,
	  105 },
};

TEST_TABLE(the_op_ends_with_its_last_part, ends)
{
	struct dsaio_op *last = NULL;

	ck_assert(!vector_close(whole));
	for (unsigned i = 0; i < N_PARTS; i++) {
		unsigned part = ends[_i].order[i];

		ck_assert_ptr_null(last);
		last = end_part(part, ends[_i].results[part], ends[_i].done[part]);
	}
	ck_assert_ptr_eq(last, whole);
	ck_assert_msg(whole->result == ends[_i].result && whole->done == ends[_i].whole_done,
		      "%s: %jd, %ju", ends[_i].what, (intmax_t)whole->result,
		      (uintmax_t)whole->done);
	ck_assert_uint_eq(handle.pool.n_used, 1); /* no reference to a part is left */
}

TEST(it_does_not_end_while_further_parts_may_come)
{
	for (unsigned i = 0; i < N_PARTS; i++)
		ck_assert_ptr_null(end_part(i, PART_BYTES, 0));
	ck_assert(vector_close(whole));
	ck_assert_int_eq(whole->result, N_PARTS * PART_BYTES);
}

TEST(a_part_that_could_not_be_made_fails_it_with_its_message)
{
	vector_fail(whole, OFF + 250, -ENOMEM, strdup("no memory"));
	vector_fail(whole, OFF + 260, -EIO, strdup("later"));
	ck_assert(!vector_close(whole));
	for (unsigned i = 0; i < N_PARTS; i++)
		(void)end_part(i, PART_BYTES, 0);
	ck_assert_int_eq(whole->result, -ENOMEM);
	ck_assert_uint_eq(whole->done, 250);
	ck_assert_str_eq(whole->text, "no memory");
}

TEST(one_part_of_unknown_outcome_is_enough)
{
	ck_assert(!vector_close(whole));
	parts[1]->is_unknown = true;
	(void)end_part(2, PART_BYTES, 0);
	(void)end_part(1, -ETIMEDOUT, 0);
	(void)end_part(0, PART_BYTES, 0);
	ck_assert_int_eq(whole->result, -ETIMEDOUT);
	ck_assert(whole->is_unknown);
}

TEST(its_parts_are_walked_also_while_it_ends)
{
	struct dsaio_op *part = vector_part(whole, 0), *next = vector_part(whole, 1);

	ck_assert_ptr_eq(part, parts[0]);
	ck_assert_ptr_eq(next, parts[1]);
	ck_assert_ptr_null(vector_part(whole, N_PARTS));
	ck_assert(!vector_close(whole));
	for (unsigned i = 0; i < N_PARTS; i++)
		(void)end_part(i, PART_BYTES, 0);
	ck_assert_ptr_null(vector_part(whole, 2));
	ck_assert_ptr_null(vector_part(whole, 0));
	op_pool_unref(&handle.pool, part);
	op_pool_unref(&handle.pool, next);
	ck_assert_uint_eq(handle.pool.n_used, 1);
}

FIXTURE(vector_setup, vector_teardown)
TEST_MAIN
