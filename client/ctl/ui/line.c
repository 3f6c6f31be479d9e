#include "client/ctl/ui/line.h"

#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"

#include <string.h>

const char *line_read(char *line, size_t size, const char *key, const char *format, ...)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(fclosep) FILE *file = NULL;
	const size_t n = strlen(key);
	va_list args;

	va_start(args, format);
	path = text_vnew(format, args);
	va_end(args);
	file = fopen(path, "re");
	do {
		if (!file || !fgets(line, (int)size, file))
			return strcpy(line, "");
	} while (strncmp(line, key, n) != 0);
	for (size_t end = strlen(line); end > n && strchr("\n ", line[end - 1]); end--)
		line[end - 1] = '\0';
	return line + n;
}
