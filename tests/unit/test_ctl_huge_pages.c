/* huge pages: found in a mapping that is not aligned as they are, as a client's is. */
#include "client/ctl/bench/huge_pages.h"
#include "proto/util/map.h"
#include "tests/unit/suite.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define BYTES (4 * HUGE_BYTES)

/* A mapping that begins 4 KiB before or behind a huge page's address. */
static char *map_unaligned(int fd)
{
	char *room = mmap(NULL, BYTES + 2 * HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	char *at = room + (-(uintptr_t)room) % HUGE_BYTES + 4096;

	ck_assert_ptr_ne(room, MAP_FAILED);
	at = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

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
	char *memory = map_unaligned(fd);

	/* One write each, so that no huge page comes of it where the host would make them. */
	(void)madvise(memory, BYTES, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < BYTES; i += 4096)
		memory[i] = 1;
	ck_assert_uint_eq(huge_pages_bytes(memory, BYTES), 0);
	ck_assert_uint_eq(huge_pages_bytes(memory + 12288, 8192), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST(huge_pages_are_found_through_an_unaligned_mapping)
{
	int fd = make_memory();
	char *room = mmap(NULL, BYTES + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *aligned = room + (-(uintptr_t)room) % HUGE_BYTES, *memory = map_unaligned(fd);

	ck_assert_ptr_ne(room, MAP_FAILED);
	aligned = mmap(aligned, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_ne(aligned, MAP_FAILED);
	memset(memory, 1, BYTES);
	/* The kernel is asked for three of the four. */
	if (madvise(aligned, 3 * HUGE_BYTES, MADV_COLLAPSE) < 0) {
		puts("skip huge_pages_are_found_through_an_unaligned_mapping: the kernel makes "
		     "none here");
		ck_assert_int_eq(close(fd), 0);
		return;
	}
	ck_assert_uint_eq(huge_pages_bytes(memory, 3 * HUGE_BYTES), 3 * HUGE_BYTES);
	ck_assert_uint_ge(huge_pages_bytes(memory, BYTES), 3 * HUGE_BYTES);
	ck_assert_int_eq(close(fd), 0);
}

TEST(what_is_no_shared_mapping_is_not_known)
{
	ck_assert_uint_eq(huge_pages_bytes(NULL, 4096), UINT64_MAX);
}

TEST_MAIN
