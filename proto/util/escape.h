/*
 * Makes foreign text safe for a terminal or a log: a file name may contain control characters that
 * a terminal executes.
 */
#ifndef DSAIO_PROTO_UTIL_ESCAPE_H
#define DSAIO_PROTO_UTIL_ESCAPE_H

#include <stddef.h>

#define ESCAPE_MAX 4u /* bytes that one byte can become: "\x1b" */

/*
 * Copies from into to (of size bytes, NUL-terminated, truncated if it is too long).  Each control
 * character becomes text like \x1b, also those of UTF-8 above 0x7f.  Returns to.
 */
char *escape_text(char *to, size_t size, const char *from);

/* The same in new memory, which the caller frees.  NULL: out of memory. */
char *escape_new(const char *from);

#endif
