/* bench deepnvme: how an op is cut, which of the 64 points differ, and that bytes arrive. */
#include "tests/bench/deepnvme.h"
#include "tests/bench/tune.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/util/cleanup.h"

TEST(slices_follow_each_other_and_cover_the_op)
{
	static const unsigned parallelisms[] = { 1, 2, 4, 8 };

	for (unsigned i = 0; i < 4; i++) {
		uint64_t end = 0;

		for (unsigned j = 0; j < parallelisms[i]; j++) {
			const struct slice s = deepnvme_slice(UINT64_C(400) << 20, parallelisms[i],
							      j);

			ck_assert_uint_eq(s.off, end);
			ck_assert_uint_eq(s.len, (UINT64_C(400) << 20) / parallelisms[i]);
			end = s.off + s.len;
		}
		ck_assert_uint_eq(end, UINT64_C(400) << 20);
	}
}

TEST(requests_cover_a_slice_and_the_last_is_shorter)
{
	const struct slice s = { .off = 10000, .len = 2500 };
	struct slice r = deepnvme_request(s, 1000, 0);

	ck_assert(r.off == 10000 && r.len == 1000);
	r = deepnvme_request(s, 1000, 2);
	ck_assert(r.off == 12000 && r.len == 500);
	ck_assert_uint_eq(deepnvme_request(s, 1000, 3).len, 0);
	ck_assert_uint_eq(deepnvme_request(s, 1000, 4).len, 0);
	ck_assert_uint_eq(deepnvme_request(s, 4096, 0).len, 2500);
}

static unsigned n_different(uint64_t op_bytes)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TUNE_CANDIDATES; i++) {
		const struct dsaio_profile a = tune_candidate(i);
		bool is_new = true;

		for (unsigned j = 0; is_new && j < i; j++) {
			const struct dsaio_profile b = tune_candidate(j);

			is_new = !tune_is_same(&b, &a, op_bytes);
		}
		n += is_new;
	}
	return n;
}

TEST(points_that_make_the_same_requests_are_one)
{
	ck_assert_uint_eq(n_different(4096), 4); /* the parallelism alone */
	ck_assert_uint_eq(n_different(UINT64_C(1) << 20), 4);
	/* 25 blocks of 8M in the half, the quarter and the eighth: the depth makes no difference. */
	ck_assert_uint_gt(n_different(UINT64_C(400) << 20), 40);
	ck_assert_uint_eq(tune_candidate(0).intra_op_parallelism, 1);
	ck_assert_uint_eq(tune_candidate(3).intra_op_parallelism, 8);
	ck_assert_uint_eq(tune_candidate(63).block_size, 8u << 20);
}

#define FILE_BYTES 65536u

static const struct dsaio_profile profiles[] = {
	{ sizeof(struct dsaio_profile), 4096, 3, DSAIO_NO, DSAIO_YES, 1, 0 },
	{ sizeof(struct dsaio_profile), 4096, 3, DSAIO_NO, DSAIO_NO, 1, 0 },
	{ sizeof(struct dsaio_profile), 4096, 4, DSAIO_YES, DSAIO_YES, 4, 0 },
	{ sizeof(struct dsaio_profile), 4096, 4, DSAIO_YES, DSAIO_NO, 4, 0 },
	{ sizeof(struct dsaio_profile), 1u << 20, 32, DSAIO_NO, DSAIO_YES, 8, 0 },
};

TEST_TABLE(what_was_written_is_read_back, profiles)
{
	static char in[FILE_BYTES] __attribute__((aligned(4096)));
	static char back[FILE_BYTES] __attribute__((aligned(4096)));
	char path[] = "/var/tmp/dsaio-deepnvme-XXXXXX";
	_cleanup_(closep) int fd = mkstemp(path);
	struct deepnvme *handle;

	ck_assert_int_ge(fd, 0);
	for (unsigned i = 0; i < FILE_BYTES; i++)
		in[i] = (char)(i * 31 + i / 4096);
	ck_assert_int_eq(deepnvme_new(&profiles[_i], &handle), 0);
	for (unsigned off = 0; off < FILE_BYTES; off += FILE_BYTES / 2)
		ck_assert_int_eq(deepnvme_submit(handle, true, path, in + off, FILE_BYTES / 2, off),
				 0);
	ck_assert_int_eq(deepnvme_wait(handle), 2);
	ck_assert_int_eq(deepnvme_submit(handle, false, path, back, FILE_BYTES, 0), 0);
	ck_assert_int_eq(deepnvme_wait(handle), 1);
	ck_assert_mem_eq(in, back, FILE_BYTES);

	ck_assert_int_eq(deepnvme_submit(handle, false, path, back, FILE_BYTES, 4096), -ERANGE);
	ck_assert_int_eq(deepnvme_submit(handle, false, "/none", back, 4096, 0), -ENOENT);
	ck_assert_int_eq(deepnvme_wait(handle), 0);
	deepnvme_free(handle);
	(void)unlink(path);
}

TEST_MAIN
