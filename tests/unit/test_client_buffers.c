#include "client/lib/memory/buffer.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES (8u * CUT_PAGE)

/* Imported memory needs no daemon. */
static struct dsaio_conn conn;
static struct buffers buffers;
static _Alignas(4096) char low[BYTES], high[BYTES], more[BYTES];

static void buffers_setup(void)
{
	buffers_init(&buffers, &conn, NULL);
	atomic_store(&conn.is_broken, true); /* no daemon is asked */
	ck_assert_int_eq(
		buffers_import(&buffers, high, BYTES, &(struct slab_name){ .id = 7 }, -1, 0), 0);
	ck_assert_int_eq(
		buffers_import(&buffers, low, BYTES, &(struct slab_name){ .id = 8 }, -1, 0), 0);
}

static void buffers_teardown(void)
{
	buffers_deinit(&buffers);
}

TEST(a_reference_names_slab_and_offset)
{
	struct buffer_place place;

	ck_assert(buffers_ref(&buffers, low + 100, 50, &place));
	ck_assert_uint_eq(place.slab->id, 8);
	ck_assert_uint_eq(place.slab_off, 100);
	ck_assert(place.slab->is_imported);
	buffer_unref(place.piece);
	ck_assert(buffers_ref(&buffers, high, BYTES, &place));
	ck_assert_uint_eq(place.slab->id, 7);
	buffer_unref(place.piece);
}

TEST(a_range_that_leaves_its_piece_is_not_referenced)
{
	struct buffer_place place;
	bool is_imported;

	ck_assert(!buffers_ref(&buffers, low + 1, BYTES, &place));
	ck_assert(buffers_have(&buffers, low, BYTES, &is_imported));
	ck_assert(!buffers_have(&buffers, low + 1, BYTES, &is_imported));
}

TEST(memory_that_an_op_uses_is_not_forgotten)
{
	struct buffer_place place;
	bool is_last;

	ck_assert(buffers_ref(&buffers, low, 1, &place));
	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), -EBUSY);
	buffer_unref(place.piece);
	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), 0);
	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), -EINVAL);
	ck_assert_int_eq(
		buffers_import(&buffers, low, BYTES - 1, &(struct slab_name){ .id = 9 }, -1, 0), 0);
	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), 0);
	ck_assert(!is_last);
}

TEST(memory_is_imported_once)
{
	bool is_last;

	ck_assert_int_eq(buffers_import(&buffers, low + CUT_PAGE, CUT_PAGE,
					&(struct slab_name){ .id = 9 }, -1, 0),
			 -EEXIST);
	ck_assert_int_eq(
		buffers_import(&buffers, low + BYTES - 1, 1, &(struct slab_name){ .id = 9 }, -1, 0),
		-EEXIST);
	ck_assert_int_eq(buffers_free(&buffers, low, false, &is_last),
			 -EINVAL); /* not from dsaio_alloc() */
}

TEST(memory_that_a_daemon_had_which_has_gone_away_is_not_listed)
{
	const struct slab_name name = { .id = 9 }; /* of session 0 */
	bool is_last;

	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), 0);
	atomic_store(&conn.n_gone, 1);
	ck_assert_int_eq(buffers_import(&buffers, low, BYTES, &name, -1, 0), -ESTALE);
	atomic_store(&conn.n_replaced, 1); /* the next one has come, and has not got it */
	ck_assert_int_eq(buffers_import(&buffers, low, BYTES, &name, -1, 0), -ESTALE);
	ck_assert(!buffers_have(&buffers, low, BYTES, &(bool){ false }));
	atomic_store(&conn.n_gone, 0);
	atomic_store(&conn.n_replaced, 0);
}

TEST(memory_is_handed_over_at_another_try_if_no_descriptor_is_free)
{
	struct rlimit limit, none;
	struct hand_over done;

	ck_assert_int_eq(buffers_import(&buffers, more, BYTES, &(struct slab_name){ .id = 9 },
					dup(STDIN_FILENO), 0),
			 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	done = buffers_hand_over(&buffers, NULL);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(done.must_retry);
	ck_assert_uint_eq(done.n, 0);
}

TEST(memory_stays_until_it_is_freed_after_the_session)
{
	bool is_last = false, is_imported = false;

	ck_assert(buffers_leave(&buffers));
	ck_assert(buffers_have(&buffers, low, BYTES, &is_imported));
	ck_assert(is_imported);
	ck_assert_int_eq(buffers_free(&buffers, low, true, &is_last), 0);
	ck_assert(!is_last);
	ck_assert_int_eq(buffers_free(&buffers, high, true, &is_last), 0);
	ck_assert(is_last);
	ck_assert(!buffers_leave(&buffers));
}

FIXTURE(buffers_setup, buffers_teardown)
TEST_MAIN
