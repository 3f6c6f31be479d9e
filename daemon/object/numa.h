/*
 * NUMA nodes: taking the memory of a mapping from one of them.
 *
 * The preference belongs to the mapped file (memfd): it holds for pages that are allocated later, through
 * any mapping.  A node without free memory is no error; then other nodes give theirs, because to insist
 * would call the kernel's OOM killer.
 */
#ifndef DSAIO_DAEMON_OBJECT_NUMA_H
#define DSAIO_DAEMON_OBJECT_NUMA_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Prefers that node for pages of the mapping.  Returns 0, or with a message -EINVAL (no such node has
 * memory) or -EOPNOTSUPP (the kernel, or the daemon's container, does
 * not allow it).  Any thread.
 */
int numa_prefer(void *memory, size_t bytes, uint32_t node, struct error *error);

#endif
