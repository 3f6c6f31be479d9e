#include "client/lib/base/uri.h"

#include "client/lib/base/error.h"
#include "client/lib/dsaio.h"
#include "proto/util/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not isalpha() and the like: these depend on the locale. */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* The length of the scheme; 0: the name is no URI. */
static int uri_scheme(const char *name)
{
	const size_t n = strspn(name, LETTERS "0123456789+-.");

	return strspn(name, LETTERS) && strncmp(name + n, "://", 3) == 0 ? (int)n : 0;
}

/* Replaces %41 by A, in place; false: an escape is wrong, or of a zero byte. */
static bool decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		/* isxdigit() is the same in each locale. */
		if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2]))
			return false;
		*to = (char)strtoul((const char[]){ from[1], from[2], '\0' }, NULL, 16);
		if (!*to++)
			return false;
		from += 2;
	}
	*to = '\0';
	return true;
}

static int fail_escape(const char *name)
{
	return error_fail(-EINVAL,
			  "open %s: behind %% must come two hexadecimal digits that are not 00",
			  name);
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
					  "scheme %.*s: only file://, rados:// and paths are "
					  "possible",
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
		return fail_escape(name);
	*ret_path = TAKE_PTR(path);
	return 0;
}

bool uri_is_rados(const char *name)
{
	return uri_scheme(name) == 5 && strncasecmp(name, "rados", 5) == 0;
}

int uri_rados(const char *name, char **ret_name)
{
	_cleanup_(freep) char *copy = NULL;
	char *file = NULL;

	if (!uri_is_rados(name))
		return error_fail(-EINVAL,
				  "%s: it is no file of a RADOS store, "
				  "rados://POOL/NAMESPACE/FILE: use the system's calls for others",
				  name);
	if (asprintf(&copy, "rados%s", name + 5) < 0) {
		copy = NULL;
		return error_fail_errno(-ENOMEM, "open %s", name);
	}
	if (copy[8] != '/')
		file = strchr(copy + 8, '/');
	file = file ? strchr(file + 1, '/') : NULL;
	if (!file)
		return error_fail(-EINVAL, "%s: it must be rados://POOL/NAMESPACE/FILE", name);
	if (!decode(file))
		return fail_escape(name);
	*ret_name = TAKE_PTR(copy);
	return 0;
}
