/* bench files: a directory of their own, removed with what is listed in it, and nothing else. */
#include "client/ctl/bench/files.h"
#include "client/ctl/ui/stop.h"
#include "tests/unit/suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

static unsigned n_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2; /* "." and ".." */
}

static void path_in(char *path, const char *folder, const char *name)
{
	ck_assert_int_lt(snprintf(path, PATH_MAX, "%s/%s", folder, name), PATH_MAX);
}

static void write_file(const char *folder, const char *name)
{
	char path[PATH_MAX];
	FILE *file;

	path_in(path, folder, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs("theirs", file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void remove_file(const char *folder, const char *name)
{
	char path[PATH_MAX];

	path_in(path, folder, name);
	ck_assert_int_eq(unlink(path), 0);
}

static struct bench_files *make(void)
{
	struct bench_files *files = NULL;

	ck_assert_int_eq(bench_files_make(&ctl, &place, 1, true, true, IO_SIZE, NULL, NULL, &files),
			 CTL_OK);
	return files;
}

/* A bench that is killed: another process, which leaves what it made.  folder: PATH_MAX. */
static void leave_some(char *folder)
{
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct bench_files *files = NULL;
		int r = bench_files_make(&ctl, &place, 1, true, true, IO_SIZE, NULL, NULL, &files);

		if (r == CTL_OK && write(fds[1], bench_files_folder(files, 0), PATH_MAX) < 0)
			r = CTL_FAILED;
		_exit(r);
	}
	ck_assert_int_eq(read(fds[0], folder, PATH_MAX), PATH_MAX);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

START_TEST(they_are_made_in_their_size_and_removed)
{
	struct bench_files *files;
	char path[PATH_MAX];
	struct stat st;

	make_place();
	files = make();
	for (unsigned is_write = 0; is_write < 2; is_write++) {
		ck_assert_int_eq(
			stat(bench_files_path(bench_files_folder(files, 0), is_write, path), &st),
			0);
		ck_assert_uint_eq((uint64_t)st.st_size, IO_SIZE);
		ck_assert_uint_ge((uint64_t)st.st_blocks * 512, IO_SIZE); /* no holes */
	}
	ck_assert_uint_eq(n_entries(place.folder), 1);
	bench_files_free(&ctl, files, false);
	ck_assert_uint_eq(n_entries(place.folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

/* The owner of the folder moves the directory away and puts another one, or a link, in its place. */
START_TEST(a_directory_in_the_place_of_ours_is_not_written)
{
	char ours[PATH_MAX], away[PATH_MAX], theirs[PATH_MAX], path[PATH_MAX];
	struct bench_files *files;
	struct stat st;
	int fd;

	make_place();
	files = make();
	(void)snprintf(ours, sizeof(ours), "%s", bench_files_folder(files, 0));
	fd = bench_files_open(ours, true);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	path_in(away, place.folder, "away");
	path_in(theirs, place.folder, "theirs");
	ck_assert_int_eq(mkdir(theirs, 0700), 0);
	write_file(theirs, "write");
	ck_assert_int_eq(rename(ours, away), 0);

	ck_assert_int_eq(symlink(theirs, ours), 0);
	ck_assert_int_lt(bench_files_open(ours, true), 0);
	ck_assert_int_eq(unlink(ours), 0);
	ck_assert_int_eq(rename(theirs, ours), 0); /* private, but no bench made it */
	ck_assert_int_eq(bench_files_open(ours, true), -EPERM);
	path_in(path, ours, "write");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 6);

	/* It removes only its own files. */
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(ours), 0);
	ck_assert_int_eq(rename(away, ours), 0);
	path_in(path, ours, "write");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/etc/hostname", path), 0);
	ck_assert_int_eq(bench_files_open(ours, true), -ELOOP);
	ck_assert_int_eq(unlink(path), 0);
	bench_files_free(&ctl, files, false);
	ck_assert_uint_eq(n_entries(place.folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

START_TEST(what_others_put_there_stays)
{
	struct bench_files *files;
	char folder[PATH_MAX];

	make_place();
	files = make();
	(void)snprintf(folder, sizeof(folder), "%s", bench_files_folder(files, 0));
	write_file(folder, "notes");
	bench_files_free(&ctl, files, false);
	ck_assert_uint_eq(n_entries(folder), 1);
	remove_file(folder, "notes");
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

START_TEST(what_a_killed_bench_left_is_removed_by_the_next)
{
	char folder[PATH_MAX];

	make_place();
	leave_some(folder);
	ck_assert_uint_eq(n_entries(place.folder), 1);
	bench_files_free(&ctl, make(), false);
	ck_assert_uint_eq(n_entries(place.folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

/* Same name, another file: somebody else's. */
START_TEST(a_file_that_took_the_place_of_ours_stays)
{
	char folder[PATH_MAX], old[PATH_MAX], new[PATH_MAX];

	make_place();
	leave_some(folder);
	write_file(folder, "model");
	path_in(old, folder, "model");
	path_in(new, folder, "read");
	ck_assert_int_eq(rename(old, new), 0);
	bench_files_free(&ctl, make(), false);
	ck_assert_uint_eq(n_entries(folder), 1);
	remove_file(folder, "read");
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

START_TEST(a_list_that_names_other_files_removes_none_of_them)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct stat st;
	FILE *list;

	make_place();
	leave_some(folder);
	write_file(place.folder, "model");
	write_file(folder, "model");
	path_in(path, folder, "model");
	ck_assert_int_eq(stat(path, &st), 0);
	path_in(path, folder, "made_by_dsaioctl");
	list = fopen(path, "a");
	ck_assert_ptr_nonnull(list);
	(void)fprintf(list, "model %ju\n../model 1\n\nread\n%200d\n", (uintmax_t)st.st_ino, 0);
	ck_assert_int_eq(fclose(list), 0);
	bench_files_free(&ctl, make(), false);
	ck_assert_uint_eq(n_entries(folder), 1);
	ck_assert_uint_eq(n_entries(place.folder), 2);
	remove_file(folder, "model");
	remove_file(place.folder, "model");
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

START_TEST(those_of_a_bench_at_work_and_those_kept_stay)
{
	struct bench_files *files, *kept;
	char folder[PATH_MAX];
	pid_t pid;

	make_place();
	kept = make();
	(void)snprintf(folder, sizeof(folder), "%s", bench_files_folder(kept, 0));
	bench_files_free(&ctl, kept, true);
	files = make();
	/* Record locks are a process's own. */
	pid = fork();
	if (pid == 0) {
		bench_files_free(&ctl, make(), false);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_uint_eq(n_entries(place.folder), 2);
	ck_assert_uint_eq(n_entries(bench_files_folder(files, 0)), 3);
	bench_files_free(&ctl, files, false);
	ck_assert_uint_eq(n_entries(folder), 2);
	remove_file(folder, "read");
	remove_file(folder, "write");
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

START_TEST(without_room_nothing_is_made)
{
	struct bench_files *files = NULL;

	make_place();
	ck_assert_int_eq(bench_files_make(&ctl, &place, 1, true, true, (uint64_t)1 << 60, NULL,
					  NULL, &files),
			 CTL_FAILED);
	ck_assert_ptr_null(files);
	ck_assert_uint_eq(n_entries(place.folder), 0);
	ck_assert_int_eq(rmdir(place.folder), 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, they_are_made_in_their_size_and_removed);
	tcase_add_test(tcase, a_directory_in_the_place_of_ours_is_not_written);
	tcase_add_test(tcase, what_others_put_there_stays);
	tcase_add_test(tcase, what_a_killed_bench_left_is_removed_by_the_next);
	tcase_add_test(tcase, a_file_that_took_the_place_of_ours_stays);
	tcase_add_test(tcase, a_list_that_names_other_files_removes_none_of_them);
	tcase_add_test(tcase, those_of_a_bench_at_work_and_those_kept_stay);
	tcase_add_test(tcase, without_room_nothing_is_made);
}

SUITE("ctl bench files", add_tests)
