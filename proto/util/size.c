#include "proto/util/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int size_parse(const char *text, uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	unsigned long long number;
	unsigned shift = 0;
	char *end;

	/* strtoull() also accepts "-1" and " 1". */
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno == ERANGE)
		return -ERANGE;
	if (*end != '\0') {
		const char *suffix = strchr(suffixes, toupper((unsigned char)*end));

		if (!suffix || (end[1] != '\0' && strcasecmp(end + 1, "iB") != 0))
			return -EINVAL;
		shift = 10 * ((unsigned)(suffix - suffixes) + 1);
	}
	if (number > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = (uint64_t)number << shift;
	return 0;
}

const char *size_format(char *text, double bytes, const char *behind)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	unsigned i = 0;

	while (i < 4 && bytes >= 1023.5) {
		bytes /= 1024;
		i++;
	}
	(void)snprintf(text, SIZE_TEXT_BYTES, "%.*f %s%s",
		       bytes < 1024 && bytes == (double)(uint64_t)bytes ? 0 : size_decimals(bytes),
		       bytes, names[i], behind);
	return text;
}
