/*
 * A process of a bench's crew (crew.h), as the functions that run in it see it.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_PROCESS_H
#define DSAIO_CLIENT_CTL_BENCH_PROCESS_H

#include "client/ctl/bench/gpu.h"
#include "client/lib/dsaio.h"

#include <stdint.h>

#define BENCH_TEXT_BYTES 1024u /* of a message */

struct bench_board;
struct bench_files;

/* The memory that a process's buffer lies in, and how the bytes of its ops went: with each answer to the parent. */
struct bench_memory {
	uint64_t huge_bytes;		/* of the host's, in huge pages; UINT64_MAX: not known */
	char gpu[BENCH_GPU_NAME_BYTES]; /* "GPU 0 (NVIDIA H100)"; "": the host's */
	struct bench_gpu_paths paths;	/* of the ops that are measured */
};

/* The state of a process, kept between calls. */
struct bench_process {
	unsigned id, n_processes;
	const char *folder, *socket_path;
	const struct bench_files *files; /* NULL: none */
	struct dsaio_client *client;
	void *buffer; /* buffer_bytes of dsaio_alloc() or of a GPU's memory, filled with random bytes */
	uint64_t buffer_bytes;
	struct bench_gpu *gpu; /* whose memory the buffer is; NULL: the host's */
	struct bench_memory memory;
	void *shared; /* shared_bytes that the parent sees too: results */
	void *state;  /* the functions' own; NULL at first */
	struct bench_board *board;
	char text[BENCH_TEXT_BYTES];
};

/* Saves the message for the parent.  Returns -EIO. */
int bench_process_fail(struct bench_process *process, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
