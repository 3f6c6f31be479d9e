#include "daemon/base/memory_limit.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <sys/stat.h>

#define V2 "sys/fs/cgroup"
#define V1 "sys/fs/cgroup/memory"

static const struct {
	const char *what, *groups;
	struct {
		const char *path, *text;
	} files[3];
	uint64_t bytes;
	const char *path; /* of the smallest */
} trees[] = {
	{ "no control groups", "", { { 0 } }, UINT64_MAX, "" },
	{ "v2 without a limit", "0::/a\n", { { V2 "/a/memory.max", "max\n" } }, UINT64_MAX, "" },
	{ "v2, the group's own",
	  "0::/a/b\n",
	  { { V2 "/a/b/memory.max", "3000\n" }, { V2 "/a/memory.max", "4000\n" } },
	  3000,
	  V2 "/a/b/memory.max" },
	{ "v2, of a group above",
	  "0::/a/b\n",
	  { { V2 "/a/b/memory.max", "max\n" }, { V2 "/a/memory.max", "2000\n" } },
	  2000,
	  V2 "/a/memory.max" },
	{ "v2, memory.high",
	  "0::/a\n",
	  { { V2 "/a/memory.max", "2000\n" }, { V2 "/a/memory.high", "1000\n" } },
	  1000,
	  V2 "/a/memory.high" },
	{ "v2 in a namespace: the top",
	  "0::/\n",
	  { { V2 "/memory.max", "5\n" } },
	  5,
	  V2 "/memory.max" },
	{ "v1",
	  "9:name=systemd:/\n4:cpu,memory:/a:b/c\n0::/\n",
	  { { V1 "/a:b/c/memory.limit_in_bytes", "9223372036854771712\n" },
	    { V1 "/a:b/memory.limit_in_bytes", "700\n" } },
	  700,
	  V1 "/a:b/memory.limit_in_bytes" },
	{ "v1 in a container that has the host's path",
	  "4:memory:/docker/a\n",
	  { { V1 "/memory.limit_in_bytes", "600\n" } },
	  600,
	  V1 "/memory.limit_in_bytes" },
	{ "v1, another controller",
	  "4:cpu:/a\n",
	  { { V1 "/a/memory.limit_in_bytes", "1\n" } },
	  UINT64_MAX,
	  "" },
	{ "lines that are none",
	  "0\n0:\n0:memory\n\n",
	  { { V1 "/memory.limit_in_bytes", "1\n" } },
	  UINT64_MAX,
	  "" },
};

static void file_make(const char *name, const char *text)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[PATH_MAX];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s/", dir);

	(void)snprintf(path + n, sizeof(path) - n, "%s", name);
	for (char *slash = path + n; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		(void)mkdir(path, 0700); /* it may be there */
	}
	file = fopen(path, "we");
	ck_assert(file && fputs(text, file) >= 0);
}

TEST_TABLE(the_smallest_limit_of_the_groups_above_counts, trees)
{
	struct memory_limit limit;
	const char *path;

	file_make("proc/self/cgroup", trees[_i].groups);
	for (int i = 0; i < N_ROWS(trees[_i].files) && trees[_i].files[i].path; i++)
		file_make(trees[_i].files[i].path, trees[_i].files[i].text);
	memory_limit_get(dir, &limit);
	path = limit.path[0] ? limit.path + strlen(dir) + 1 : "";
	ck_assert_msg(limit.bytes == trees[_i].bytes && strcmp(path, trees[_i].path) == 0,
		      "%s: %ju of %s", trees[_i].what, (uintmax_t)limit.bytes, path);
}

FIXTURE(make_dir, remove_dir)
TEST_MAIN
