/*
 * Lines of files in /proc and /sys.
 */
#ifndef DSAIO_CLIENT_CTL_UI_LINE_H
#define DSAIO_CLIENT_CTL_UI_LINE_H

#include <stddef.h>

/*
 * The text behind key in the first line of a file that begins with it, without blanks at its end; "": there is none.
 * line: of size bytes; format: of the path.
 */
const char *line_read(char *line, size_t size, const char *key, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
