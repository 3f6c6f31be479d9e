/*
 * The bytes of a process's buffer, in the host's memory or a GPU's.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_BUFFER_H
#define DSAIO_CLIENT_CTL_BENCH_BUFFER_H

#include "client/ctl/bench/process.h"

#include <stddef.h>
#include <stdint.h>

/* Fills memory with bytes that no layer can compress or share. */
void bench_fill_random(void *memory, size_t len);

/* The same of the process's buffer.  Returns 0 or bench_process_fail()'s value. */
int bench_process_fill(struct bench_process *process, size_t len);

/* Sets all bytes of the process's buffer.  Returns likewise. */
int bench_process_set(struct bench_process *process, char value, size_t len);

/*
 * Bytes of the process's buffer: where they lie or, from a GPU, in room, of len bytes.  NULL:
 * bench_process_fail() has been called.
 */
const uint8_t *bench_process_look(struct bench_process *process, uint64_t off, void *room,
				  size_t len);

#endif
