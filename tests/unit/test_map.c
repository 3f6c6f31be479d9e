/* Mappings that begin at a multiple of a huge page. */
#include "proto/util/map.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t sizes[] = { 4096, 2u << 20, (2u << 20) + 4096, 6u << 20 };

TEST_TABLE(a_mapping_begins_at_a_huge_page_and_is_the_file_s, sizes)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	size_t bytes = sizes[_i];
	char *memory, byte = 0;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	for (unsigned i = 0; i < 3; i++) { /* also beside the mapping before */
		memory = map_aligned(fd, bytes);
		ck_assert_ptr_ne(memory, MAP_FAILED);
		ck_assert_uint_eq((uintptr_t)memory % MAP_HUGE_BYTES, 0);
		memory[bytes - 1] = (char)(i + 1);
		ck_assert_int_eq(pread(fd, &byte, 1, (off_t)bytes - 1), 1);
		ck_assert_int_eq(byte, (char)(i + 1));
	}
	(void)close(fd);
}

TEST(a_descriptor_that_cannot_be_mapped_is_an_error)
{
	ck_assert_ptr_eq(map_aligned(-1, 4096), MAP_FAILED);
	ck_assert_int_eq(errno, EBADF);
}

TEST_MAIN
