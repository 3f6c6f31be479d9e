/* huge pages: found in a mapping that is aligned as they are, as a client's is. */
#include "client/ctl/bench/huge_pages.h"
#include "proto/util/map.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define BYTES (4 * HUGE_BYTES)

static int make_memory(void)
{
	int fd = memfd_create("huge-pages", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	return fd;
}

TEST(small_pages_are_none)
{
	int fd = make_memory();
	char *memory = map_aligned(fd, BYTES);

	/* One write each, so that no huge page comes of it where the host would make them. */
	(void)madvise(memory, BYTES, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < BYTES; i += 4096)
		memory[i] = 1;
	ck_assert_uint_eq(huge_pages_bytes(memory, BYTES), 0);
	ck_assert_uint_eq(huge_pages_bytes(memory + 12288, 8192), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST(huge_pages_are_found)
{
	int fd = make_memory();
	char *memory = map_aligned(fd, BYTES);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(memory, 1, BYTES);
	/* The kernel is asked for three of the four. */
	if (madvise(memory, 3 * HUGE_BYTES, MADV_COLLAPSE) < 0) {
		puts("skip huge_pages_are_found: the kernel makes none here");
	} else {
		memset(memory, 2, BYTES);
		ck_assert_uint_eq(huge_pages_bytes(memory, 3 * HUGE_BYTES), 3 * HUGE_BYTES);
		ck_assert_uint_ge(huge_pages_bytes(memory, BYTES), 3 * HUGE_BYTES);
	}
	ck_assert_int_eq(close(fd), 0);
}

TEST(what_is_no_mapping_is_not_known)
{
	ck_assert_uint_eq(huge_pages_bytes(NULL, 4096), UINT64_MAX);
}

TEST_MAIN
