/*
 * One line on standard error that tells how far a long command is: bar, percent, rate, time left.
 *
 * It shows only on a terminal, and only when the command takes over two seconds, so short
 * commands and logs stay quiet.
 */
#ifndef DSAIO_CTL_PROGRESS_H
#define DSAIO_CTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *label; /* borrowed */
	uint64_t total_bytes;
	uint64_t start_nsec, drawn_nsec; /* CLOCK_MONOTONIC; the last drawing, 0: none yet */
	bool is_terminal;
};

/*
 * Writes the line, without its end, into text.  width: columns of the terminal.
 * total_bytes: UINT64_MAX: nobody knows; then there is no bar.
 */
void progress_format(char *text, size_t size, const char *label, uint64_t done_bytes,
		     uint64_t total_bytes, uint64_t elapsed_nsec, unsigned width);

/* Is a command that did so much in this time one of over two seconds? */
bool progress_is_long(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_nsec);

void progress_start(struct progress *progress, const char *label, uint64_t total_bytes);
void progress_update(struct progress *progress, uint64_t done_bytes);

/* Takes the line away, so that what is printed next has it to itself. */
void progress_stop(struct progress *progress);

#endif
