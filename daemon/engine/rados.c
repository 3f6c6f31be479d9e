#include "daemon/engine/rados.h"

#include "proto/dirs.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define PLUGIN_FILE "/dsaiod-rados.so"

int rados_plugin_load(const struct rados_plugin **ret_plugin, struct error *error)
{
	void *library = dlopen("$ORIGIN" PLUGIN_FILE, RTLD_NOW);

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

/* The bytes of the character at s, by table 3-7 of the Unicode standard; 0: none begins there. */
static size_t character_bytes(const unsigned char *s, uint32_t *ret_code)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = *s < 0x80 ? 1 : *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;

	*ret_code = n == 1 ? *s : *s & (0x7fu >> n);
	if (n > 1 && (*s < 0xc0 || *s > 0xf7))
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*ret_code = *ret_code << 6 | (s[i] & 0x3f);
	}
	return *ret_code < least[n] || *ret_code > 0x10ffff ||
			       (*ret_code >= 0xd800 && *ret_code <= 0xdfff)
		       ? 0
		       : n;
}

/* Whether a part between slashes is empty, "." or "..". */
static bool has_odd_part(const char *name)
{
	for (const char *part = name;; part++) {
		const size_t n = strcspn(part, "/");

		if (n == 0 || strncmp(part, "..", n) == 0)
			return true;
		part += n;
		if (!*part)
			return false;
	}
}

int rados_name_check(const char *name, struct error *error)
{
	const size_t len = strlen(name);
	uint32_t code;

	if (!len || len > RADOS_NAME_MAX)
		return error_set_plain(error, -EINVAL,
				       "the file's name has %zu bytes; it must have 1 to %u", len,
				       RADOS_NAME_MAX);
	for (size_t i = 0, n; i < len; i += n) {
		n = character_bytes((const unsigned char *)name + i, &code);
		if (!n)
			return error_set_plain(error, -EINVAL,
					       "the file's name is not UTF-8 at byte %zu", i);
		if (code < 0x20 || (code >= 0x7f && code < 0xa0))
			return error_set_plain(
				error, -EINVAL,
				"the file's name has a control character at byte %zu", i);
	}
	if (has_odd_part(name))
		return error_set_plain(
			error, -EINVAL,
			"the file's name has a part between slashes that is empty, \".\" or \"..\"");
	return 0;
}
