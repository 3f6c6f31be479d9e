/*
 * bench replay: makes the calls of a training step again in C, over the same files.
 *
 * zero_infinity.py records a step of DeepSpeed: what its handles read, write and wait for, and the time
 * between two calls, in which DeepSpeed computes.  The file has a line for each thing, in this order:
 *
 *     handle BLOCK_SIZE QUEUE_DEPTH SINGLE_SUBMIT OVERLAP_EVENTS INTRA_OP_PARALLELISM
 *     memory BYTES			which buffers lie in
 *     file PATH
 *     read HANDLE FILE MEMORY MEMORY_OFF BYTES FILE_OFF GAP_NSEC
 *     write (the same)
 *     wait HANDLE GAP_NSEC		for all ops of the handle
 *
 * Handles, memories and files are named by their numbers, from 0 on.  A pass makes all calls; between two of
 * them it spins for the gap, so the device has as much time as in training.  It prints the microseconds
 * that all calls of the pass took.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"
#include "tests/bench/clock.h"
#include "tests/bench/replay.h"
#include "tests/calls.h"

#define HANDLES_MAX 64
#define MEMORIES_MAX 4096
#define FILES_MAX 65536
#define CALLS_MAX 65536

struct call {
	enum { CALL_READ, CALL_WRITE, CALL_WAIT } kind;
	unsigned handle, file, memory;
	uint64_t memory_off, len, off;
	int64_t gap_nsec;
};

struct handle {
	struct dsaio_handle *handle;
	int64_t n_open; /* ops that no wait has seen end */
};

struct replay {
	struct dsaio_client *client;
	struct handle handles[HANDLES_MAX];
	void *memories[MEMORIES_MAX];
	uint64_t memory_sizes[MEMORIES_MAX];
	char *files[FILES_MAX];
	struct call calls[CALLS_MAX];
	unsigned n_handles, n_memories, n_files, n_calls;
};

static int refuse(unsigned line, const char *why)
{
	fprintf(stderr, "bench: replay: line %u: %s\n", line, why);
	return -EINVAL;
}

static int library_failed(const char *what)
{
	fprintf(stderr, "bench: replay: %s: %s\n", what, dsaio_error());
	return -EIO;
}

static int add_handle(struct replay *replay, const char *text, unsigned line)
{
	struct dsaio_profile profile = DSAIO_PROFILE_INIT;
	struct handle *handle = &replay->handles[replay->n_handles];
	unsigned single, overlap;

	if (replay->n_handles == HANDLES_MAX)
		return refuse(line, "too many handles");
	if (sscanf(text, "%" SCNu32 " %" SCNu32 " %u %u %" SCNu32, &profile.block_size,
		   &profile.queue_depth, &single, &overlap, &profile.intra_op_parallelism) != 5)
		return refuse(line, "not a handle");
	profile.single_submit = single ? DSAIO_YES : DSAIO_NO;
	profile.overlap_events = overlap ? DSAIO_YES : DSAIO_NO;
	replay->n_handles++;
	if (profile_open(replay->client, &profile, &handle->handle) < 0)
		return library_failed("a handle");
	return 0;
}

static int add_memory(struct replay *replay, const char *text, unsigned line)
{
	uint64_t *size = &replay->memory_sizes[replay->n_memories];
	void **memory = &replay->memories[replay->n_memories];

	if (replay->n_memories == MEMORIES_MAX)
		return refuse(line, "too many memories");
	if (sscanf(text, "%" SCNu64, size) != 1)
		return refuse(line, "not a memory");
	if (dsaio_alloc(replay->client, *size, NULL, memory) < 0)
		return library_failed("pinned memory");
	/* As training has: each page was used before. */
	memset(*memory, 1, *size);
	replay->n_memories++;
	return 0;
}

static int add_file(struct replay *replay, const char *text, unsigned line)
{
	if (replay->n_files == FILES_MAX)
		return refuse(line, "too many files");
	replay->files[replay->n_files] = strndup(text, strcspn(text, "\n"));
	return replay->files[replay->n_files++] ? 0 : -ENOMEM;
}

static int add_transfer(struct replay *replay, struct call *call, const char *text, unsigned line)
{
	uint64_t end;

	if (sscanf(text, "%u %u %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNd64, &call->handle,
		   &call->file, &call->memory, &call->memory_off, &call->len, &call->off,
		   &call->gap_nsec) != 7)
		return refuse(line, "not a transfer");
	if (call->handle >= replay->n_handles || call->file >= replay->n_files ||
	    call->memory >= replay->n_memories ||
	    __builtin_add_overflow(call->memory_off, call->len, &end) ||
	    end > replay->memory_sizes[call->memory])
		return refuse(line, "a number is out of range");
	replay->n_calls++;
	return 0;
}

static int add_wait(struct replay *replay, struct call *call, const char *text, unsigned line)
{
	if (sscanf(text, "%u %" SCNd64, &call->handle, &call->gap_nsec) != 2 ||
	    call->handle >= replay->n_handles)
		return refuse(line, "not a wait");
	replay->n_calls++;
	return 0;
}

static int add_line(struct replay *replay, const char *text, unsigned line)
{
	struct call *call = &replay->calls[replay->n_calls];

	if (strncmp(text, "handle ", 7) == 0)
		return add_handle(replay, text + 7, line);
	if (strncmp(text, "memory ", 7) == 0)
		return add_memory(replay, text + 7, line);
	if (strncmp(text, "file ", 5) == 0)
		return add_file(replay, text + 5, line);
	if (replay->n_calls == CALLS_MAX)
		return refuse(line, "too many calls");
	if (strncmp(text, "wait ", 5) == 0) {
		call->kind = CALL_WAIT;
		return add_wait(replay, call, text + 5, line);
	}
	call->kind = strncmp(text, "write ", 6) == 0 ? CALL_WRITE : CALL_READ;
	if (call->kind == CALL_WRITE)
		return add_transfer(replay, call, text + 6, line);
	return strncmp(text, "read ", 5) == 0 ? add_transfer(replay, call, text + 5, line)
					      : refuse(line, "not a call");
}

static int load(struct replay *replay, const char *path)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	_cleanup_(freep) char *text = NULL;
	size_t size = 0;
	int r = 0;

	if (!f) {
		fprintf(stderr, "bench: replay: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	for (unsigned line = 1; r == 0 && getline(&text, &size, f) > 0; line++)
		r = add_line(replay, text, line);
	return r;
}

static int transfer(struct replay *replay, const struct call *call)
{
	struct handle *handle = &replay->handles[call->handle];
	const struct dsaio_io io = {
		.opcode = call->kind == CALL_READ ? DSAIO_READ : DSAIO_WRITE,
		.path = replay->files[call->file],
		.buf = (char *)replay->memories[call->memory] + call->memory_off,
		.len = call->len,
		.off = call->off,
	};

	if (dsaio_submit(handle->handle, &io, sizeof(struct dsaio_io), 1, 0, NULL) != 1)
		return library_failed(io.path);
	handle->n_open++;
	return 0;
}

static int wait_for_all(struct handle *handle)
{
	const int64_t n_open = handle->n_open;
	int64_t n_ended;

	handle->n_open = 0;
	if (dsaio_handle_wait(handle->handle, -1, &n_ended) < 0 || n_ended != n_open)
		return library_failed("wait");
	return 0;
}

static int pass(struct replay *replay)
{
	int64_t total_nsec = 0, end = now_nsec();
	int r = 0;

	for (unsigned i = 0; r == 0 && i < replay->n_calls; i++) {
		const struct call *call = &replay->calls[i];
		int64_t start = now_nsec();

		while (start < end + call->gap_nsec)
			start = now_nsec();
		r = call->kind == CALL_WAIT ? wait_for_all(&replay->handles[call->handle])
					    : transfer(replay, call);
		end = now_nsec();
		total_nsec += end - start;
	}
	if (r == 0)
		printf("%.1f\n", (double)total_nsec / 1e3);
	return r;
}

static void unload(struct replay *replay)
{
	for (unsigned i = 0; i < replay->n_handles; i++)
		(void)dsaio_handle_close(replay->handles[i].handle, -1);
	for (unsigned i = 0; i < replay->n_files; i++)
		free(replay->files[i]);
	(void)dsaio_disconnect(replay->client);
	free(replay);
}

int replay_main(int argc, char **argv)
{
	struct replay *replay;
	int r = 0;

	if (argc != 3 || atoi(argv[2]) < 1) {
		fprintf(stderr,
			"usage: bench replay FILE PASSES\n"
			"Makes the calls that zero_infinity.py has recorded, and prints the "
			"microseconds of each pass.\n");
		return 2;
	}
	replay = calloc(1, sizeof(*replay));
	if (!replay)
		return 1;
	if (dsaio_connect(NULL, &replay->client) < 0)
		r = library_failed("connect");
	if (r == 0)
		r = load(replay, argv[1]);
	for (int i = 0; r == 0 && i < atoi(argv[2]); i++)
		r = pass(replay);
	unload(replay);
	return r < 0;
}
