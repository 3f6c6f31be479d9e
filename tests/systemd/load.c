/*
 * A program for check.sh that goes on while the service is restarted: it writes, syncs, reads back and compares, with
 * pinned and private memory.
 *
 * For each line of its input it does some more rounds, and prints how many ops there were since the last line, and how
 * long the slowest batch of them took.  It ends with its input, or at the first op that fails or byte that is wrong.
 *
 * Usage: load FILE
 */
#include "client/lib/dsaio.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_OPS 8u
#define PIECE ((size_t)96 << 10)
#define ROUNDS 3u /* after a line */

static struct dsaio_client *client;
static struct dsaio_handle *handle;
static struct dsaio_file *file;
static uint64_t n_ops, slowest_msec;

static uint64_t now_msec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail: the clock exists */
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void fail(const char *what, const char *why)
{
	(void)printf("%s: %s\n", what, why);
	exit(1);
}

static void must(int r, const char *what)
{
	if (r < 0)
		fail(what, dsaio_error());
}

static void batch(bool is_write, uint8_t *memory)
{
	const uint64_t start = now_msec();
	struct dsaio_op *ops[N_OPS];
	uint64_t msec;

	for (unsigned i = 0; i < N_OPS; i++) {
		uint8_t *at = memory + i * PIECE;

		must(is_write ? dsaio_pwrite_async(handle, file, at, PIECE, i * PIECE, &ops[i])
			      : dsaio_pread_async(handle, file, at, PIECE, i * PIECE, &ops[i]),
		     "start");
	}
	for (unsigned i = 0; i < N_OPS; i++) {
		int64_t n = 0;

		must(dsaio_op_wait(ops[i], -1, &n), "wait");
		if (n != (int64_t)PIECE)
			fail(is_write ? "write" : "read", dsaio_op_error(ops[i]));
		dsaio_op_free(ops[i]);
	}
	if (is_write)
		must((int)dsaio_fsync(handle, file, 0), "fsync");
	n_ops += N_OPS + is_write;
	msec = now_msec() - start;
	if (msec > slowest_msec)
		slowest_msec = msec;
}

static void fill(uint8_t *memory, uint64_t seed)
{
	for (size_t i = 0; i < N_OPS * PIECE; i += sizeof(seed)) {
		const uint64_t word = (seed << 32) + i;

		memcpy(memory + i, &word, sizeof(word));
	}
}

static void round_run(uint8_t *memory, uint8_t *wanted, uint64_t seed)
{
	fill(memory, seed);
	fill(wanted, seed);
	batch(true, memory);
	memset(memory, 0, N_OPS * PIECE);
	batch(false, memory);
	if (memcmp(memory, wanted, N_OPS * PIECE) != 0)
		fail("compare", "bytes are wrong");
}

int main(int argc, char **argv)
{
	uint8_t *private = malloc(N_OPS * PIECE), *wanted = malloc(N_OPS * PIECE);
	void *pinned;
	unsigned rounds_left = 0;

	if (argc != 2 || !private || !wanted)
		return 2;
	must(dsaio_connect(NULL, &client), "connect");
	must(dsaio_handle_open(client, NULL, &handle), "handle");
	must(dsaio_alloc(client, N_OPS * PIECE, NULL, &pinned), "alloc");
	must(dsaio_open(client, argv[1], O_RDWR | O_CREAT, NULL, &file), "open");
	for (uint64_t round = 1;; round++) {
		struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
		char line[64];

		round_run(round % 2 ? private : pinned, wanted, round);
		if (!rounds_left && poll(&input, 1, 0) > 0) {
			if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
				break;
			rounds_left = ROUNDS;
		} else if (rounds_left && --rounds_left == 0) {
			(void)printf("ok: %" PRIu64 " ops, the slowest batch took %" PRIu64 " ms\n",
				     n_ops, slowest_msec);
			(void)fflush(stdout); /* the script reads it */
			n_ops = slowest_msec = 0;
		}
	}
	dsaio_file_close(file);
	must(dsaio_handle_close(handle, -1), "handle close");
	must(dsaio_disconnect(client), "disconnect");
	free(private);
	free(wanted);
	return 0;
}
