/*
 * The syntax of a configuration file, and of a job file of bench mix: sections, lines KEY = VALUE, and comments.  It
 * knows no key.
 *
 *     # a comment, as is a line that starts with ;
 *     [section]
 *     key = value ; a comment, after a blank
 *
 * Blanks around keys and values do not count.  A value has no quotes and no escapes.
 */
#ifndef DSAIO_PROTO_UTIL_PARSER_H
#define DSAIO_PROTO_UTIL_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The longest line, without its end: a guess.  A message repeats part of it. */
#define PARSER_LINE_BYTES 1000

enum parser_item { PARSER_END, PARSER_SECTION, PARSER_KEY };

struct parser {
	FILE *file;		  /* borrowed; the caller sets it, all else starts as zero */
	unsigned line;		  /* of the present item, from 1 */
	const char *name, *value; /* of the section or key, until the next call */
	bool is_over;
	char text[PARSER_LINE_BYTES + 1];
};

/*
 * Reads up to the next section, key or mistake.  Returns an enum parser_item; or -EINVAL with a
 * message about this line in text (of size bytes), after which the caller may go on; or -EIO, with one, if the file
 * cannot be read.
 */
int parser_next(struct parser *parser, char *text, size_t size);

#endif
