#include "client/ctl/bench/huge_pages.h"

#include "proto/util/cleanup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

#define HUGE_BYTES ((uintptr_t)2 << 20)
#define LINE_BYTES 4352 /* a path, and what stands before it */

/* A mapping of this process. */
struct area {
	uintptr_t start, end, offset;
	uint64_t page_bytes, pmd_bytes; /* of its pages; of those mapped as huge ones */
};

/* The mapping that has this address, as /proc/self/smaps says. */
static bool find_area(uintptr_t address, struct area *ret_area)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/smaps", "re");
	struct area area = { 0 };
	char line[LINE_BYTES];
	bool is_it = false;

	while (file && fgets(line, sizeof(line), file)) {
		struct area next = { 0 };
		uint64_t kib;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*4s %" SCNxPTR, &next.start, &next.end,
			   &next.offset) == 3) {
			if (is_it)
				break;
			area = next;
			is_it = address >= area.start && address < area.end;
		} else if (sscanf(line, "KernelPageSize: %" SCNu64, &kib) == 1) {
			area.page_bytes = kib << 10;
		} else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
			area.pmd_bytes = kib << 10;
		}
	}
	*ret_area = area;
	return is_it;
}

/* Maps the area once more, so that its huge pages can be mapped as such. */
static void *map_aligned(const struct area *area, void **ret_room, size_t *ret_room_bytes)
{
	const size_t bytes = area->end - area->start, room_bytes = bytes + HUGE_BYTES;
	char *room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *at;

	if (room == MAP_FAILED)
		return NULL;
	at = room + (area->offset - (uintptr_t)room) % HUGE_BYTES;
	/* An old size of 0: a second mapping of the same shared pages. */
	if (mremap((void *)area->start, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) ==
	    MAP_FAILED) {
		(void)munmap(room, room_bytes); /* our own mapping: cannot fail */
		return NULL;
	}
	*ret_room = room;
	*ret_room_bytes = room_bytes;
	return at;
}

uint64_t huge_pages_bytes(const void *memory, size_t len)
{
	const uintptr_t address = (uintptr_t)memory;
	struct area area, view;
	size_t room_bytes;
	void *room;
	char *at;
	bool is_known;

	if (!find_area(address, &area) || len > area.end - address)
		return UINT64_MAX;
	if (area.page_bytes >= HUGE_BYTES)
		return len; /* hugetlb */
	at = map_aligned(&area, &room, &room_bytes);
	if (!at)
		return UINT64_MAX;
	for (uintptr_t i = address - area.start; i < address - area.start + len; i += HUGE_BYTES)
		(void)*(volatile const char *)(at + i);
	is_known = find_area((uintptr_t)at, &view);
	(void)munmap(room, room_bytes); /* our own mapping: cannot fail */
	if (!is_known)
		return UINT64_MAX;
	return view.pmd_bytes < len ? view.pmd_bytes : len;
}
