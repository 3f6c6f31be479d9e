#include "daemon/base/memory_limit.h"

#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

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

int memory_limit_check(uint64_t pool_bytes, struct error *error)
{
	struct memory_limit limit;

	memory_limit_get("", &limit);
	if (pool_bytes <= limit.bytes)
		return 0;
	return error_set_plain(
		error, -ENOMEM,
		"pool_size, %s, is above the daemon's memory limit, %s (%s): the kernel may kill "
		"the daemon: configure half of the limit, or raise it",
		SIZE_TEXT(pool_bytes), SIZE_TEXT(limit.bytes), limit.path);
}

void memory_lock_limit(char *text, size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		(void)snprintf(text, size, "unknown");
	else if (limit.rlim_cur == RLIM_INFINITY)
		(void)snprintf(text, size, "unlimited");
	else
		(void)snprintf(text, size, "%s", SIZE_TEXT(limit.rlim_cur));
}

/* By trial: a capability that a user namespace gives does not count.  False also if it is not known: slabs say. */
static bool lock_is_refused(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			    0);
	bool is_refused;

	if (memory == MAP_FAILED)
		return false;
	is_refused = mlock2(memory, bytes, MLOCK_ONFAULT) < 0 && /* nothing is there to lock */
		     (errno == ENOMEM || errno == EPERM);
	(void)munmap(memory, bytes); /* our own mapping, whole: cannot fail */
	return is_refused;
}

int memory_lock_check(uint64_t pool_bytes, struct error *error)
{
	char limit[32];

	if (!lock_is_refused(pool_bytes))
		return 0;
	memory_lock_limit(limit, sizeof(limit));
	return error_set_plain(
		error, -ENOMEM,
		"pool_size, %s, is more than may be locked in memory: RLIMIT_MEMLOCK is %s, and "
		"CAP_IPC_LOCK is missing: " MEMORY_LOCK_CURE ", or configure lock = auto",
		SIZE_TEXT(pool_bytes), limit);
}
