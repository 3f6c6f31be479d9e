#include "client/lib/memory/import.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/sysmacros.h>

bool import_look(const struct import_range *range, const char *line, uint64_t *reached)
{
	uint64_t start, end, off, ino;
	unsigned major_, minor_;
	char perms[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &start, &end,
		   perms, &off, &major_, &minor_, &ino) != 7)
		return true; /* no line of ours */
	if (end <= *reached || start >= range->end || *reached >= range->end)
		return true;
	if (start > *reached || perms[3] != 's' || makedev(major_, minor_) != range->dev ||
	    ino != range->ino || off + (*reached - start) != range->off + (*reached - range->start))
		return false;
	*reached = end;
	return true;
}

int import_check(const struct import_range *range)
{
	_cleanup_(fclosep) FILE *maps = fopen("/proc/self/maps", "re");
	_cleanup_(freep) char *line = NULL;
	uint64_t reached = range->start;
	size_t size = 0;

	if (!maps)
		return -errno;
	while (getline(&line, &size, maps) > 0)
		if (!import_look(range, line, &reached))
			return -EINVAL;
	return reached >= range->end ? 0 : -EINVAL;
}
