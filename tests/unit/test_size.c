/* size: bytes as people write them. */
#include "proto/util/size.h"

#include <check.h>
#include <errno.h>

#include "tests/unit/suite.h"

static const struct {
	const char *text;
	int result;
	uint64_t bytes;
} sizes[] = {
	{ "0", 0, 0 },
	{ "4096", 0, 4096 },
	{ "64K", 0, 65536 },
	{ "400M", 0, 419430400 },
	{ "2g", 0, 2147483648 },
	{ "1T", 0, 1099511627776 },
	{ "18446744073709551615", 0, UINT64_MAX },
	{ "18446744073709551616", -ERANGE, 0 },
	{ "17179869184G", -ERANGE, 0 },
	{ "", -EINVAL, 0 },
	{ "M", -EINVAL, 0 },
	{ "-1", -EINVAL, 0 },
	{ "+1", -EINVAL, 0 },
	{ " 1", -EINVAL, 0 },
	{ "1.5G", -EINVAL, 0 },
	{ "1Q", -EINVAL, 0 },
	{ "1KiB", 0, 1024 },
	{ "64MiB", 0, 67108864 },
	{ "2gib", 0, 2147483648 },
	{ "1TiB", 0, 1099511627776 },
	{ "1MB", -EINVAL, 0 },
	{ "1Ki", -EINVAL, 0 },
	{ "1iB", -EINVAL, 0 },
	{ "1KiBs", -EINVAL, 0 },
	{ "17179869184GiB", -ERANGE, 0 },
	{ "0x10", -EINVAL, 0 },
};

TEST_TABLE(sizes_are_read_as_ds_io_reads_them_and_as_they_are_printed, sizes)
{
	uint64_t bytes = 0;
	int r = size_parse(sizes[_i].text, &bytes);

	ck_assert_msg(r == sizes[_i].result && bytes == sizes[_i].bytes, "\"%s\": %d, %ju",
		      sizes[_i].text, r, (uintmax_t)bytes);
}

/* A drive may say anything: undefined, where a cast comes before the comparison. */
TEST(a_size_that_no_integer_holds_is_printed)
{
	ck_assert_str_eq(SIZE_TEXT(0x1p124), "19342813113834066795298816 TiB");
}

TEST_MAIN
