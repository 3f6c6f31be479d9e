#include "client/lib/api/sized.h"

#include "client/lib/dsaio.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* A struct that has grown twice. */
struct grown {
	size_t size;
	uint32_t first, second;
	uint64_t third;
};
static const struct sized GROWN = { "struct grown", sizeof(struct grown), 12 };
static const struct grown DEFAULTS = { sizeof(struct grown), 1, 2, 3 };

#define ROOM_BYTES 8192u

static const struct {
	const char *what;
	size_t size, set_at; /* set_at: a byte that is not zero; 0: none */
	int result;
	uint32_t second;
	uint64_t third;
} reads[] = {
	{ "no size", 0, 0, -EINVAL, 0, 0 },
	{ "smaller than the first version's", 11, 0, -EINVAL, 0, 0 },
	{ "the first version's", 12, 0, 0, 2, 3 },
	{ "the second version's", 16, 0, 0, 20, 3 },
	{ "this version's", 24, 0, 0, 20, 30 },
	{ "a later version's, all zero", 32, 0, 0, 20, 30 },
	{ "the largest, all zero", 4096, 0, 0, 20, 30 },
	{ "a later version's, the first byte is set", 32, 24, -E2BIG, 0, 0 },
	{ "a later version's, the last byte is set", 32, 31, -E2BIG, 0, 0 },
	{ "what lies behind it is not looked at", 32, 32, 0, 20, 30 },
	{ "a size that was not set", 4097, 0, -EINVAL, 0, 0 },
	{ "as large as can be", SIZE_MAX, 0, -EINVAL, 0, 0 },
};

TEST_TABLE(fields_that_one_side_lacks_have_defaults, reads)
{
	_Alignas(struct grown) char room[ROOM_BYTES] = { 0 };
	struct grown given = { reads[_i].size, 10, 20, 30 }, got = DEFAULTS;
	int r;

	memcpy(room, &given, sizeof(given));
	if (reads[_i].set_at)
		room[reads[_i].set_at] = 1;
	r = sized_read("test", &GROWN, room, &got);
	ck_assert_msg(r == reads[_i].result, "%s: %d", reads[_i].what, r);
	if (r < 0) {
		ck_assert_ptr_nonnull(strstr(dsaio_error(), "struct grown"));
		ck_assert_msg(r != -E2BIG || strstr(dsaio_error(), DSAIO_VERSION), "%s",
			      dsaio_error());
		ck_assert_mem_eq(&got, &DEFAULTS, sizeof(got));
		return;
	}
	ck_assert_msg(got.size == sizeof(got) && got.first == 10 &&
			      got.second == reads[_i].second && got.third == reads[_i].third,
		      "%s", reads[_i].what);
}

static const struct {
	const char *what;
	size_t size;
	int result;
	uint32_t second;
	uint64_t third;
} writes[] = {
	{ "no size", 0, -EINVAL, 0, 0 },
	{ "smaller than the first version's", 11, -EINVAL, 0, 0 },
	{ "the first version's", 12, 0, UINT32_MAX, UINT64_MAX },
	{ "the second version's", 16, 0, 2, UINT64_MAX },
	{ "this version's", 24, 0, 2, 3 },
	{ "a later version's", 32, 0, 2, 3 },
	{ "a size that was not set", 4097, -EINVAL, 0, 0 },
};

TEST_TABLE(no_more_is_filled_in_than_the_program_has_room_for, writes)
{
	struct {
		struct grown grown;
		uint64_t later, behind;
	} room;
	int r;

	memset(&room, 0xff, sizeof(room));
	room.grown.size = writes[_i].size;
	r = sized_write("test", &GROWN, &DEFAULTS, &room);
	ck_assert_msg(r == writes[_i].result, "%s: %d", writes[_i].what, r);
	ck_assert_uint_eq(room.grown.size, writes[_i].size);
	ck_assert_uint_eq(room.behind, UINT64_MAX);
	if (r < 0)
		return;
	ck_assert_msg(room.grown.first == 1 && room.grown.second == writes[_i].second &&
			      room.grown.third == writes[_i].third,
		      "%s", writes[_i].what);
	ck_assert_uint_eq(room.later, writes[_i].size > sizeof(room.grown) ? 0 : UINT64_MAX);
}

/* Programs have been compiled with these sizes. */
static const struct {
	const struct sized *kind;
	size_t first_bytes, size_bytes;
} kinds[] = {
	{ &SIZED_PROFILE, 32, sizeof(struct dsaio_profile) },
	{ &SIZED_GRANTED, 16, sizeof(struct dsaio_granted) },
	{ &SIZED_CONNECT_OPTIONS, 40, sizeof(struct dsaio_connect_options) },
	{ &SIZED_OPEN_OPTIONS, 16, sizeof(struct dsaio_open_options) },
	{ &SIZED_MEMORY, 40, sizeof(struct dsaio_memory) },
	{ &SIZED_ALLOC_OPTIONS, 24, sizeof(struct dsaio_alloc_options) },
	{ &SIZED_HANDLE_OPTIONS, 48, sizeof(struct dsaio_handle_options) },
	{ &SIZED_IO, 80, sizeof(struct dsaio_io) },
	{ &SIZED_COMPLETION, 40, sizeof(struct dsaio_completion) },
};

TEST_TABLE(the_first_versions_size_stays, kinds)
{
	ck_assert_uint_eq(kinds[_i].kind->first_bytes, kinds[_i].first_bytes);
	ck_assert_uint_eq(kinds[_i].kind->size_bytes, kinds[_i].size_bytes);
	ck_assert_uint_le(kinds[_i].kind->first_bytes, kinds[_i].kind->size_bytes);
}

TEST_MAIN
