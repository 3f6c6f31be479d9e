#include "tests/bench/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"

#define PIECE_BYTES (UINT64_C(4) << 20)

void memory_fill(char *memory, uint64_t bytes)
{
	uint64_t seed = random_seed(), *words = (uint64_t *)(void *)memory;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = random_next(&seed);
}

int memory_new(uint64_t bytes, char **ret_memory)
{
	void *memory = NULL;
	int r = -posix_memalign(&memory, 4096, bytes);

	if (r < 0)
		return r;
	memory_fill(memory, bytes);
	*ret_memory = memory;
	return 0;
}

void files_path(char path[FILES_PATH_BYTES], const char *dir, unsigned index)
{
	(void)snprintf(path, FILES_PATH_BYTES, "%s/" FILES_NAME ".%u", dir, index);
}

/* Pieces differ from each other and from those of other files: their words are all changed. */
static int file_write(int fd, uint64_t *piece, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += PIECE_BYTES) {
		const uint64_t len = bytes - off < PIECE_BYTES ? bytes - off : PIECE_BYTES;
		ssize_t n;

		for (size_t i = 0; i < len / sizeof(*piece); i++)
			piece[i] = piece[i] * UINT64_C(0x2545F4914F6CDD1D) + 1;
		n = pwrite(fd, piece, len, (off_t)off);
		if (n != (ssize_t)len)
			return n < 0 ? -errno : -ENOSPC;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int file_make(const char *path, uint64_t *piece, uint64_t bytes)
{
	/* The mode of a file that fio makes, in case it is left behind. */
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    (fallocate(fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP))
		return -errno;
	return file_write(fd, piece, bytes);
}

int files_make(const char *dir, unsigned n, uint64_t bytes)
{
	_cleanup_(freep) char *piece = NULL;
	char path[FILES_PATH_BYTES];
	int r = memory_new(PIECE_BYTES, &piece);

	for (unsigned i = 0; r == 0 && i < n; i++) {
		files_path(path, dir, i);
		r = file_make(path, (uint64_t *)(void *)piece, bytes);
		if (r < 0)
			fprintf(stderr, "bench: cannot write %" PRIu64 " MiB to %s: %s\n",
				bytes >> 20, path, strerror(-r));
	}
	return r;
}

void files_remove(const char *dir, unsigned n)
{
	char path[FILES_PATH_BYTES];

	for (unsigned i = 0; i < n; i++) {
		files_path(path, dir, i);
		(void)unlink(path); /* it may not have been made */
	}
}
