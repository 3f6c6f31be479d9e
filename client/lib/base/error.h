/*
 * The message of the last call that failed, one for each thread.
 *
 * Text is made where the values are known: what failed, on what, why, what to do.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_ERROR_H
#define DSAIO_CLIENT_LIB_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ERROR_TEXT_BYTES 1024

/* Advice for a program whose daemon went away.  dsaioctl sets its own when it starts. */
extern const char *error_reconnect;

/* Sets the message of this thread; returns error, a negative errno. */
int error_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, followed by ": " and the text of errno. */
int error_fail_errno(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An op that failed, as far as its message needs it. */
struct error_op {
	const char *verb; /* "pread", ... */
	const char *file;
	uint64_t off, len, done;
	int error;	     /* positive errno */
	const char *because; /* why, if errno's text does not say it; or NULL */
	int64_t file_size;   /* a write that extends: how long the file is now; -1: not said */
	/* The daemon's cuFile moved its bytes, so the daemon's log has the cause: where that is.  NULL:
	   all others. */
	const char *log_place;
};

/* Writes an op's message to text. */
void error_op_text(const struct error_op *op, char *text, size_t size);

#endif
