#include "proto/util/parser.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* A line of so many bytes is no text: /dev/zero has no line end. */
#define ENDLESS_BYTES (1u << 20)
/* Bytes of a line that a message repeats. */
#define SHOWN_BYTES 200

#define BLANKS " \t\r\f\v"

/* In place; returns the first byte that is no blank. */
static char *blanks_cut(char *text)
{
	size_t len;

	text += strspn(text, BLANKS);
	for (len = strlen(text); len && strchr(BLANKS, text[len - 1]); len--)
		text[len - 1] = 0;
	return text;
}

/* A comment after a value starts with ; behind a blank. */
static void comment_cut(char *text)
{
	for (char *at = text; (at = strchr(at, ';')); at++)
		if (at > text && strchr(BLANKS, at[-1])) {
			*at = 0;
			return;
		}
}

/* The next line, without its end.  Returns 1, 0 at the end of the file, -EINVAL or -EIO. */
static int line_read(struct parser *parser, char *why, size_t size)
{
	bool has_zero = false;
	size_t n = 0;
	int c;

	while ((c = getc(parser->file)) != EOF && c != '\n' && n < ENDLESS_BYTES) {
		if (n < PARSER_LINE_BYTES)
			parser->text[n] = (char)c;
		has_zero |= c == 0;
		n++;
	}
	parser->is_over = c == EOF || n == ENDLESS_BYTES;
	if (ferror(parser->file)) {
		(void)snprintf(why, size, "cannot be read: is it a file?");
		return -EIO;
	}
	if (c == EOF && n == 0)
		return 0;
	parser->line++;
	if (n > PARSER_LINE_BYTES || has_zero) {
		(void)snprintf(why, size, "the line has more than %d bytes, or a zero byte",
			       PARSER_LINE_BYTES);
		return -EINVAL;
	}
	parser->text[n] = 0;
	return 1;
}

int parser_next(struct parser *parser, char *why, size_t size)
{
	static const char byte_order_mark[] = "\xef\xbb\xbf";

	while (!parser->is_over) {
		char *text = parser->text, *end;
		int r = line_read(parser, why, size);

		if (r <= 0)
			return r;
		if (parser->line == 1 && strncmp(text, byte_order_mark, 3) == 0)
			text += 3;
		text = blanks_cut(text);
		if (!text[0] || strchr(";#", text[0]))
			continue;
		end = strpbrk(text, text[0] == '[' ? "]" : "=:");
		if (!end) {
			(void)snprintf(why, size,
				       "%.*s: must be [SECTION], KEY = VALUE, or a comment that "
				       "starts with # or ;",
				       SHOWN_BYTES, text);
			return -EINVAL;
		}
		*end = 0;
		if (text[0] == '[') {
			end = blanks_cut(end + 1);
			if (end[0] && !strchr(";#", end[0])) {
				(void)snprintf(why, size,
					       "[%.*s]%.*s: text after the section's name: put it "
					       "on a line of its own",
					       SHOWN_BYTES, text + 1, SHOWN_BYTES, end);
				return -EINVAL;
			}
			parser->name = text + 1;
			return PARSER_SECTION;
		}
		comment_cut(end + 1);
		parser->name = blanks_cut(text);
		parser->value = blanks_cut(end + 1);
		return PARSER_KEY;
	}
	return PARSER_END;
}
