#include "client/lib/base/uri.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Not isalpha() and the like: these depend on the locale. */
static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The length of the scheme; 0: the name is no URI. */
static int uri_scheme(const char *name)
{
	int n = 0;

	if (!is_letter(*name))
		return 0;
	while (is_letter(name[n]) || is_digit(name[n]) || (name[n] && strchr("+-.", name[n])))
		n++;
	return strncmp(name + n, "://", 3) == 0 ? n : 0;
}

/* Replaces %41 by A, in place; false: an escape is wrong, or of a zero byte. */
static bool decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high, low;

		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		high = hex_value(from[1]);
		low = high < 0 ? -1 : hex_value(from[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high << 4 | low);
		from += 2;
	}
	*to = '\0';
	return true;
}

int uri_path(const char *name, char **ret_path)
{
	_cleanup_(freep) char *path = NULL;
	const char *rest = name;
	int n = uri_scheme(name);

	if (n) {
		if (n != 4 || strncasecmp(name, "file", 4) != 0)
			return error_fail(-EPROTONOSUPPORT,
					  "open %s: this library (version %s) does not know the "
					  "scheme %.*s: only file:// and paths are possible",
					  name, DSAIO_VERSION, n, name);
		rest = name + n + 3;
		if (strncasecmp(rest, "localhost/", 10) == 0)
			rest += 9;
		if (*rest != '/')
			return error_fail(-EINVAL,
					  "open %s: it must be file:// and an absolute path: "
					  "file:///x/y",
					  name);
	}
	path = strdup(rest);
	if (!path)
		return error_fail_errno(-ENOMEM, "open %s", name);
	if (n && !decode(path))
		return error_fail(
			-EINVAL,
			"open %s: behind %% must come two hexadecimal digits that are not "
			"00",
			name);
	*ret_path = TAKE_PTR(path);
	return 0;
}
