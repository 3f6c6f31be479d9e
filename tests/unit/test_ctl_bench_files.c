/* bench files: whole, without a name, or kept. */
#include "client/ctl/bench/files.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
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

static struct bench_files *make(bool keep)
{
	struct bench_files *files = NULL;

	ck_assert_int_eq(bench_files_make(&ctl, &place, 1, true, true, IO_SIZE, keep, &files),
			 CTL_OK);
	return files;
}

TEST(they_are_whole_and_have_no_name)
{
	struct bench_files *files;
	struct stat st;

	make_place();
	files = make(false);
	for (unsigned op = BENCH_READ; op <= BENCH_WRITE; op++) {
		const int fd = files->fds[0][op];

		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, IO_SIZE);
		ck_assert_uint_ge((uint64_t)st.st_blocks * 512, IO_SIZE); /* no holes */
		ck_assert_int_eq(fcntl(fd, F_GETFL) & O_DIRECT, 0);
	}
	ck_assert_int_eq(rmdir(place.folder), 0); /* with the files there: it is empty */
	bench_files_free(files);
}

TEST(those_that_are_kept_stay)
{
	char pattern[PATH_MAX + 32];
	struct stat st;
	glob_t found;

	make_place();
	bench_files_free(make(true));
	bench_files_free(make(false));
	(void)snprintf(pattern, sizeof(pattern), "%s/_dsaioctl_bench.*", place.folder);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_uint_eq(found.gl_pathc, 2);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		ck_assert_int_eq(stat(found.gl_pathv[i], &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, IO_SIZE);
		ck_assert_int_eq(unlink(found.gl_pathv[i]), 0);
	}
	globfree(&found);
	ck_assert_int_eq(rmdir(place.folder), 0);
}

TEST(without_room_nothing_is_made)
{
	struct bench_files *files = NULL;

	make_place();
	ck_assert_int_eq(
		bench_files_make(&ctl, &place, 1, true, true, (uint64_t)1 << 60, false, &files),
		CTL_FAILED);
	ck_assert_ptr_null(files);
	ck_assert_int_eq(rmdir(place.folder), 0);
}

TEST_MAIN
