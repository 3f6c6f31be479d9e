#include "daemon/object/numa.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_PATH "/sys/devices/system/node/has_memory"
#define NODES_MAX 1024u /* of any kernel's configuration */
#define WORD_BITS (8 * sizeof(unsigned long))

bool numa_list_has(const char *list, uint32_t node)
{
	char *end;

	for (;; list = end + 1) {
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (node >= first && node <= last)
			return true;
		if (*end != ',')
			return false;
	}
}

/* A kernel without NUMA has no such file, and all of its memory on node 0. */
static bool has_numa(char *list, int size)
{
	_cleanup_(fclosep) FILE *file = fopen(NODES_PATH, "re");

	if (file && fgets(list, size, file)) {
		list[strcspn(list, "\n")] = 0;
		return true;
	}
	(void)snprintf(list, (size_t)size, "0");
	return false;
}

int numa_prefer(void *memory, size_t bytes, uint32_t node, struct error *error)
{
	unsigned long nodes[NODES_MAX / WORD_BITS] = { 0 };
	char list[128];
	bool must_bind = has_numa(list, sizeof(list));

	if (node >= NODES_MAX || !numa_list_has(list, node))
		return error_set_plain(error, -EINVAL,
				       "slab: NUMA node %" PRIu32 ": this host has memory on: %s: "
				       "name one of them, or none",
				       node, list);
	if (!must_bind)
		return 0;
	nodes[node / WORD_BITS] = 1ul << node % WORD_BITS;
	/* The kernel takes one bit less than this says. */
	if (syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, (unsigned long)NODES_MAX + 1,
		    0ul) < 0)
		return error_set_plain(error, -EOPNOTSUPP,
				       "slab: NUMA node %" PRIu32 ": mbind(2) is refused (%s), as "
				       "by the seccomp filter of a container: allow it for the "
				       "daemon, or name no node",
				       node, strerrordesc_np(errno));
	return 0;
}
