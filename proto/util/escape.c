#include "proto/util/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_control(unsigned char c)
{
	return c < 0x20 || c == 0x7f;
}

/* U+0080 to U+009f in UTF-8: 0xc2 and one more byte. */
static bool is_high_control(const unsigned char *c)
{
	return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
}

char *escape_text(char *to, size_t size, const char *from)
{
	const unsigned char *c = (const unsigned char *)from;
	size_t n = 0;

	for (; *c; c++) {
		const unsigned n_bytes = is_high_control(c) ? 2 : 1;

		if (n_bytes == 1 && !is_control(*c)) {
			if (n + 1 >= size)
				break;
			to[n++] = (char)*c;
			continue;
		}
		if (n + n_bytes * ESCAPE_MAX >= size)
			break;
		for (unsigned i = 0; i < n_bytes; i++)
			n += (size_t)snprintf(to + n, size - n, "\\x%02x", c[i]);
		c += n_bytes - 1;
	}
	to[n] = '\0';
	return to;
}

char *escape_new(const char *from)
{
	const size_t size = strlen(from) * ESCAPE_MAX + 1;
	char *to = malloc(size);

	return to ? escape_text(to, size, from) : NULL;
}
