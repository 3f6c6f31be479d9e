#include "client/ctl/bench/huge_pages.h"

#include "proto/util/cleanup.h"
#include "proto/util/map.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#define LINE_BYTES 4352 /* a path, and what stands before it */

uint64_t huge_pages_bytes(const void *memory, size_t len)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/smaps", "re");
	const uintptr_t address = (uintptr_t)memory;
	char line[LINE_BYTES];
	bool is_it = false; /* the lines are of the mapping that has the memory */

	while (file && fgets(line, sizeof(line), file)) {
		uintptr_t start, end;
		uint64_t kib;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
			is_it = address >= start && address < end && len <= end - address;
		else if (is_it && sscanf(line, "KernelPageSize: %" SCNu64, &kib) == 1 &&
			 kib << 10 >= MAP_HUGE_BYTES)
			return len; /* hugetlb */
		else if (is_it && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
			return kib << 10 < len ? kib << 10 : len;
	}
	return UINT64_MAX;
}
