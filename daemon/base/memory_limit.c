#include "daemon/base/memory_limit.h"

#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without a limit a file has "max", or a number beyond all memory; the root group of v2 has no file. */
static void file_read(const char *dir, const char *name, struct memory_limit *limit)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[PATH_MAX];
	uint64_t bytes;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return;
	file = fopen(path, "re");
	if (!file || fscanf(file, "%" SCNu64, &bytes) != 1 || bytes >= limit->bytes)
		return;
	limit->bytes = bytes;
	memcpy(limit->path, path, sizeof(path));
}

/*
 * The group and those above it.  In a container without a cgroup namespace the path is the host's, and
 * only its last part may be below the mount, at its top: directories that do not exist are skipped.
 */
static void groups_read(const char *root, const char *mount, const char *group,
			struct memory_limit *limit)
{
	char dir[PATH_MAX], *slash;
	int n = snprintf(dir, sizeof(dir), "%s%s", root, mount);

	if (strcmp(group, "/") == 0)
		group = "";
	if (n + snprintf(dir + n, sizeof(dir) - (size_t)n, "%s", group) >= (int)sizeof(dir))
		return;
	for (;;) {
		file_read(dir, "memory.max", limit);
		file_read(dir, "memory.high", limit);
		file_read(dir, "memory.limit_in_bytes", limit); /* v1 */
		slash = strrchr(dir + n, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

static bool list_has_memory(char *list)
{
	const char *word;

	while ((word = strsep(&list, ",")))
		if (strcmp(word, "memory") == 0)
			return true;
	return false;
}

/* Each line is ID:CONTROLLERS:GROUP; v2 has no controllers. */
void memory_limit_get(const char *root, struct memory_limit *ret_limit)
{
	_cleanup_(fclosep) FILE *file = NULL;
	_cleanup_(freep) char *line = NULL;
	char path[PATH_MAX];
	size_t size = 0;

	*ret_limit = (struct memory_limit){ .bytes = UINT64_MAX };
	(void)snprintf(path, sizeof(path), "%s/proc/self/cgroup",
		       root); /* tests' roots are short */
	file = fopen(path, "re");
	while (file && getline(&line, &size, file) > 0) {
		char *group = line, *controllers;

		line[strcspn(line, "\n")] = 0;
		(void)strsep(&group, ":");
		controllers = strsep(&group, ":");
		if (!group)
			continue;
		if (!*controllers)
			groups_read(root, "/sys/fs/cgroup", group, ret_limit);
		else if (list_has_memory(controllers))
			groups_read(root, "/sys/fs/cgroup/memory", group, ret_limit);
	}
}
