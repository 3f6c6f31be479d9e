/*
 * rate NAME read|write BLOCK DEPTH SECONDS: the ops per second of one file, for bench.sh.
 *
 * The file is made for it, with room for 512 MiB of blocks, or 16,384 of them if that is less.  One that is written
 * has no objects yet, and is written from its start on, as `rados bench` does it.  One that is read is filled with
 * zeroes, and its blocks are taken in an order that jumps from object to object.  The next op is started when any has
 * ended.  By memory of the pool.
 */
#include "client/lib/dsaio.h"
#include "proto/util/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((uint64_t)512 << 20)
#define BLOCKS_MAX 16384u
#define FILL_BYTES ((size_t)4 << 20)
#define READ_STEP 7919u /* a prime */

#define MUST(call)                                                               \
	do {                                                                     \
		if ((call) < 0) {                                                \
			fprintf(stderr, "rate: %s: %s\n", #call, dsaio_error()); \
			exit(1);                                                 \
		}                                                                \
	} while (0)

static struct dsaio_client *client;
static struct dsaio_handle *handle;
static struct dsaio_file *file;

static void fill(uint64_t size)
{
	void *memory;

	MUST(dsaio_alloc(client, FILL_BYTES, NULL, &memory));
	for (uint64_t off = 0; off < size; off += FILL_BYTES) {
		const uint64_t left = size - off;

		MUST(dsaio_pwrite_async(handle, file, memory, left < FILL_BYTES ? left : FILL_BYTES,
					off, NULL));
	}
	MUST(dsaio_handle_wait(handle, -1, NULL));
	MUST(dsaio_free(client, memory));
}

static void start(bool is_write, char *buf, uint64_t block, uint64_t off)
{
	struct dsaio_io io = { .opcode = is_write ? DSAIO_WRITE : DSAIO_READ,
			       .flags = DSAIO_DETACHED,
			       .file = file,
			       .buf = buf,
			       .len = block,
			       .off = off,
			       .user_data = buf };

	MUST(dsaio_submit(handle, &io, sizeof(io), 1, 0, NULL));
}

int main(int argc, char **argv)
{
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_completion ended;
	uint64_t block, until, since, n = 0, n_blocks, step;
	unsigned depth;
	bool is_write;
	char *memory;

	if (argc != 6)
		return 2;
	is_write = strcmp(argv[2], "write") == 0;
	step = is_write ? 1 : READ_STEP;
	block = strtoull(argv[3], NULL, 10);
	depth = (unsigned)atoi(argv[4]);
	n_blocks = FILE_BYTES / block < BLOCKS_MAX ? FILE_BYTES / block : BLOCKS_MAX;
	if (!block || !depth)
		return 2;
	MUST(dsaio_connect(NULL, &client));
	MUST(dsaio_handle_open(client, NULL, &handle));
	MUST(dsaio_alloc(client, block * depth, NULL, (void **)&memory));
	memset(memory, 0, block * depth);
	options.file_size = n_blocks * block;
	MUST(dsaio_create(client, argv[1], &options, &file));
	if (!is_write)
		fill(options.file_size);
	since = clock_nsec();
	until = since + (uint64_t)(atof(argv[5]) * 1e9);
	for (; n < depth; n++)
		start(is_write, memory + n * block, block, n * step % n_blocks * block);
	for (; clock_nsec() < until; n++) {
		MUST(dsaio_handle_reap(handle, &ended, sizeof(ended), 1, 1, -1));
		MUST(ended.result);
		start(is_write, ended.user_data, block, n * step % n_blocks * block);
	}
	MUST(dsaio_handle_wait(handle, -1, NULL));
	printf("%.1f\n", (double)n * 1e9 / (double)(clock_nsec() - since));
	(void)dsaio_file_abandon(file);
	MUST(dsaio_disconnect(client));
	return 0;
}
