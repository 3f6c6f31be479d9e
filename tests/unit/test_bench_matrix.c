/* bench matrix: lists of numbers and names, and the points of their product. */
#include "tests/bench/files.h"
#include "tests/bench/matrix.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *text;
	int error;
	unsigned n;
	uint64_t first, last;
} lists[] = {
	{ "4K", 0, 1, 4096, 4096 },
	{ "4K,64K,1M,8M,400M", 0, 5, 4096, UINT64_C(400) << 20 },
	{ "1,8,32,128", 0, 4, 1, 128 },
	{ "16,1", 0, 2, 16, 1 }, /* the order stays */
	{ "2G", 0, 1, UINT64_C(2) << 30, UINT64_C(2) << 30 },
	{ "", -EINVAL, 0, 0, 0 },
	{ "4K,", -EINVAL, 0, 0, 0 },
	{ ",4K", -EINVAL, 0, 0, 0 },
	{ "0", -EINVAL, 0, 0, 0 },
	{ "-1", -EINVAL, 0, 0, 0 },
	{ "4k", -EINVAL, 0, 0, 0 },
	{ "4KB", -EINVAL, 0, 0, 0 },
	{ "99999999999999999999", -EINVAL, 0, 0, 0 },
	{ "18446744073709551615G", -EINVAL, 0, 0, 0 },
	{ "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", -E2BIG, 0, 0, 0 },
};

TEST_TABLE(a_list_is_sizes_with_commas_and_nothing_else, lists)
{
	struct list list = { .n = 99 };
	const int r = list_parse(lists[_i].text, &list);

	ck_assert_msg(r == lists[_i].error, "\"%s\": %d", lists[_i].text, r);
	if (r < 0) {
		ck_assert_uint_eq(list.n, 99); /* set on success only */
		return;
	}
	ck_assert_uint_eq(list.n, lists[_i].n);
	ck_assert_uint_eq(list.values[0], lists[_i].first);
	ck_assert_uint_eq(list.values[list.n - 1], lists[_i].last);
}

TEST(names_are_found_whole)
{
	static const char *const names[] = { "ours", "ours-private", "fio-uring", NULL };
	struct list list;

	ck_assert_int_eq(list_parse_names("fio-uring,ours", names, &list), 0);
	ck_assert_uint_eq(list.n, 2);
	ck_assert_uint_eq(list.values[0], 2);
	ck_assert_uint_eq(list.values[1], 0);
	ck_assert_int_eq(list_parse_names("ours-private", names, &list), 0);
	ck_assert_uint_eq(list.values[0], 1);
	ck_assert_int_eq(list_parse_names("our", names, &list), -EINVAL);
	ck_assert_int_eq(list_parse_names("ours,,ours", names, &list), -EINVAL);
	ck_assert_int_eq(list_parse_names("", names, &list), -EINVAL);
}

static struct matrix small_matrix(void)
{
	struct matrix m = { .dirs = { "/disk", "/shm" },
			    .slice_usec = 1000,
			    .file_bytes = MATRIX_FILE_BYTES };

	ck_assert_int_eq(list_parse("400M,4K,8M", &m.sizes), 0);
	ck_assert_int_eq(list_parse("1,32", &m.depths), 0);
	ck_assert_int_eq(list_parse("1,4", &m.processes), 0);
	m.writes = (struct list){ 2, { 0, 1 } };
	m.places = (struct list){ 2, { 0, 1 } };
	return m;
}

TEST(every_point_comes_once_and_groups_stand_together)
{
	const struct matrix m = small_matrix();
	struct point points[48];
	unsigned place, n_changes = 0;

	ck_assert_uint_eq(matrix_count(&m), 48);
	for (unsigned i = 0; i < 48; i++) {
		matrix_point(&m, i, &points[i], &place);
		ck_assert_str_eq(points[i].dir, m.dirs[place]);
		for (unsigned j = 0; j < i; j++)
			ck_assert_msg(strcmp(points[i].dir, points[j].dir) != 0 ||
					      points[i].op_bytes != points[j].op_bytes ||
					      points[i].is_write != points[j].is_write ||
					      points[i].depth != points[j].depth ||
					      points[i].n_processes != points[j].n_processes,
				      "points %u and %u are the same", j, i);
		n_changes += i > 0 && !point_is_same_group(&points[i - 1], &points[i]);
	}
	/* 2 places, 2 numbers of processes, files of 256M and of 400M: 8 groups. */
	ck_assert_uint_eq(n_changes, 7);
}

TEST(what_is_in_flight_follows_from_depth_and_size)
{
	static const struct {
		uint64_t op_bytes;
		unsigned depth, n_ops;
		uint64_t block, memory;
	} cases[] = {
		{ 4096, 1, 1, 4096, 4096 },
		{ 4096, 128, 128, 4096, 128 * 4096 },
		{ 1 << 20, 32, 32, 1 << 20, 32 << 20 },
		{ 8 << 20, 32, 4, 1 << 20, 32 << 20 },
		{ 8 << 20, 1, 1, 1 << 20, 8 << 20 },
		{ 400 << 20, 128, 1, 1 << 20, 400 << 20 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct point p = { .op_bytes = cases[i].op_bytes, .depth = cases[i].depth };

		p.profile = point_profile(p.depth);
		ck_assert_uint_eq(point_ops_in_flight(&p), cases[i].n_ops);
		ck_assert_uint_eq(point_block_bytes(&p), cases[i].block);
		ck_assert_uint_eq(point_memory_bytes(&p), cases[i].memory);
	}
}

TEST(a_side_with_huge_pages_differs_in_nothing_else)
{
	static const char *const engines[] = { "fio-libaio", "fio-uring" };
	struct point p = { .dir = "/disk",
			   .op_bytes = 400 << 20,
			   .file_bytes = 400 << 20,
			   .depth = 32,
			   .n_processes = 1,
			   .slice_ops = 1 };

	p.profile = point_profile(p.depth);
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		const struct side_kind *kind = side_kind_find(engines[i]);
		char name[32], ordinary[2000], huge[2000], *at;

		(void)snprintf(name, sizeof(name), "%s-huge", engines[i]);
		ck_assert_int_eq(kind->command(&p, ordinary, sizeof(ordinary)), 0);
		kind = side_kind_find(name);
		ck_assert_int_eq(kind->command(&p, huge, sizeof(huge)), 0);
		at = strstr(huge, " --mem=mmaphuge");
		ck_assert_ptr_nonnull(at);
		memmove(at, at + strlen(" --mem=mmaphuge"),
			strlen(at + strlen(" --mem=mmaphuge")) + 1);
		ck_assert_str_eq(huge, ordinary);
		/* bench full does not fail where no huge pages are reserved. */
		ck_assert(kind->is_on_request);
	}
}

TEST(processes_have_a_file_each_or_one_together)
{
	const struct side_kind *kind = side_kind_find("fio-uring");
	struct point p = { .dir = "/disk", .op_bytes = 4096, .file_bytes = 4096, .n_processes = 4 };
	char path[FILES_PATH_BYTES], command[2000];

	p.profile = point_profile(1);
	point_path(&p, 3, path);
	ck_assert_str_eq(path, "/disk/data.3");
	ck_assert_int_eq(kind->command(&p, command, sizeof(command)), 0);
	ck_assert_ptr_nonnull(strstr(command, "=$jobname.$jobnum "));
	p.is_one_file = true;
	point_path(&p, 3, path);
	ck_assert_str_eq(path, "/disk/data.0");
	ck_assert_int_eq(kind->command(&p, command, sizeof(command)), 0);
	ck_assert_ptr_nonnull(strstr(command, "=$jobname.0 "));
}

TEST_MAIN
