#include "daemon/engine/rados.h"

#include "proto/dirs.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLUGIN_FILE "/dsaiod-rados.so"

/* In the program's folder; $ORIGIN would be that of a sanitizer, which calls dlopen(3) for us. */
static void *open_beside(void)
{
	char path[PATH_MAX + sizeof(PLUGIN_FILE)];
	const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);

	if (n < 0)
		return NULL;
	path[n] = 0;
	strcpy(strrchr(path, '/'), PLUGIN_FILE);
	return dlopen(path, RTLD_NOW);
}

int rados_plugin_load(const struct rados_plugin **ret_plugin, struct error *error)
{
	void *library = open_beside();

	if (!library)
		library = dlopen(DSAIO_PLUGINDIR PLUGIN_FILE, RTLD_NOW);
	*ret_plugin = library ? dlsym(library, RADOS_PLUGIN_SYMBOL) : NULL;
	if (!*ret_plugin)
		return error_set_plain(error, -ENOENT,
				       "%s; stores on RADOS need the package dsaiod-rados of the "
				       "daemon's version",
				       dlerror());
	return 0;
}

/* The bytes of the character at s, by table 3-7 of the Unicode standard; 0: none begins there, or a control
   character. */
static size_t character_bytes(const unsigned char *s)
{
	static const uint32_t least[] = { 0, 0x20, 0xa0, 0x800, 0x10000 };
	size_t n = *s < 0x80 ? 1 : *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
	uint32_t code = n == 1 ? *s : *s & (0x7fu >> n);

	if (*s == 0x7f || (n > 1 && *s < 0xc0) || *s > 0xf7)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : n;
}

int rados_name_check(const char *name, struct error *error)
{
	const size_t len = strlen(name);
	char parts[RADOS_NAME_MAX + 3];

	if (!len || len > RADOS_NAME_MAX)
		return error_set_plain(error, -EINVAL,
				       "the file's name has %zu bytes; it must have 1 to %u", len,
				       RADOS_NAME_MAX);
	for (size_t i = 0, n; i < len; i += n) {
		n = character_bytes((const unsigned char *)name + i);
		if (!n)
			return error_set_plain(error, -EINVAL,
					       "the file's name has a control character, or is not "
					       "UTF-8, at byte %zu",
					       i);
	}
	(void)snprintf(parts, sizeof(parts), "/%s/", name);
	if (strstr(parts, "//") || strstr(parts, "/./") || strstr(parts, "/../"))
		return error_set_plain(
			error, -EINVAL,
			"the file's name has a part between slashes that is empty, \".\" or \"..\"");
	return 0;
}
