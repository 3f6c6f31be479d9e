#include "proto/util/map.h"

#include "proto/util/cleanup.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void *map_aligned(int fd, size_t bytes)
{
	size_t room = bytes + MAP_HUGE_BYTES;
	char *start = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			   0);
	void *memory = MAP_FAILED;

	if (start != MAP_FAILED) {
		(void)munmap(start, room); /* our own mapping, whole: cannot fail */
		start += -(uintptr_t)start % MAP_HUGE_BYTES;
		/* Linux before 4.17 takes it for a hint. */
		memory = mmap(start, bytes, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	}
	if (memory == MAP_FAILED)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return memory;
}

/* All words, that which holds in brackets. */
bool map_lacks_huge(char ret_word[8])
{
	_cleanup_(fclosep) FILE *file = fopen(MAP_SHMEM_PATH, "re");

	return file && fscanf(file, "%*[^[][%7[a-z]", ret_word) == 1 &&
	       (strcmp(ret_word, "never") == 0 || strcmp(ret_word, "deny") == 0);
}
