#include "daemon/object/numa.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MAX 1024u /* of any kernel's configuration */
#define WORD_BITS (8 * sizeof(unsigned long))

int numa_prefer(void *memory, size_t bytes, uint32_t node, struct error *error)
{
	unsigned long nodes[NODES_MAX / WORD_BITS] = { 0 };
	int r = -EINVAL;

	if (node < NODES_MAX) {
		nodes[node / WORD_BITS] = 1ul << node % WORD_BITS;
		/* The kernel takes one bit less than this says. */
		r = syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes,
			    (unsigned long)NODES_MAX + 1, 0ul) < 0
			    ? -errno
			    : 0;
	}
	if (r == 0 || (r == -ENOSYS && node == 0)) /* a kernel without NUMA has all memory there */
		return 0;
	if (r == -EINVAL || r == -ENOSYS)
		return error_set_plain(error, -EINVAL,
				       "slab: NUMA node %" PRIu32 ": this host has no memory there "
				       "for the daemon: name one of those in "
				       "/sys/devices/system/node/has_memory, or none",
				       node);
	return error_set_plain(error, -EOPNOTSUPP,
			       "slab: NUMA node %" PRIu32 ": mbind(2) is refused (%s), as by the "
			       "seccomp filter of a container: allow it for the daemon, or name no "
			       "node",
			       node, strerrordesc_np(-r));
}
