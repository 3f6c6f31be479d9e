/* bench files: whole, and without a name. */
#include "client/ctl/bench/files.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define IO_SIZE 100000u

static struct ctl ctl = { .command = "test" };
static struct bench_place place;

static void make_place(void)
{
	char folder[] = "/var/tmp/dsaio-files-XXXXXX", text[256];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(bench_place_find(folder, &place, text, sizeof(text)), 0);
}

TEST(they_are_whole_and_have_no_name)
{
	struct bench_files *files = NULL;
	struct stat st;

	make_place();
	ck_assert_int_eq(bench_files_make(&ctl, &place, 1, true, true, IO_SIZE, &files), CTL_OK);
	for (unsigned op = BENCH_READ; op <= BENCH_WRITE; op++) {
		const int fd = bench_files_fd(files, 0, op);

		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, IO_SIZE);
		ck_assert_uint_ge((uint64_t)st.st_blocks * 512, IO_SIZE); /* no holes */
		ck_assert_int_eq(fcntl(fd, F_GETFL) & O_DIRECT, 0);
	}
	ck_assert_int_eq(rmdir(place.folder), 0); /* with the files there: it is empty */
	bench_files_free(files);
}

TEST(without_room_nothing_is_made)
{
	struct bench_files *files = NULL;

	make_place();
	ck_assert_int_eq(bench_files_make(&ctl, &place, 1, true, true, (uint64_t)1 << 60, &files),
			 CTL_FAILED);
	ck_assert_ptr_null(files);
	ck_assert_int_eq(rmdir(place.folder), 0);
}

TEST_MAIN
