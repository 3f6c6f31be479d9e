/*
 * Text that others chose, for a terminal or a log: a name may hold bytes that a terminal obeys.
 */
#ifndef DSAIO_PROTO_UTIL_ESCAPE_H
#define DSAIO_PROTO_UTIL_ESCAPE_H

#include <stddef.h>

#define ESCAPE_MAX 4u /* bytes that one byte may become: "\x1b" */

/*
 * Copies from into to (of size bytes, ended by 0, cut where it is full) with each control
 * character as \x1b, also those of UTF-8 above 0x7f.  Returns to.
 */
char *escape_text(char *to, size_t size, const char *from);

/* The same as new memory, the caller's; NULL: there is none. */
char *escape_new(const char *from);

#endif
