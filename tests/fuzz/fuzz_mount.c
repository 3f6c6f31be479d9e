/*
 * A line of mountinfo: the kernel writes it, but the user who mounts chooses the words.
 */
#include "daemon/base/mount.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

static void check_text(const char *text)
{
	for (; *text; text++)
		assert((unsigned char)*text >= ' ' && *text != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct mount_line line;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = 0;
	if (mount_parse(text, &line)) {
		check_text(line.root);
		check_text(line.point);
		check_text(line.fs_type);
		check_text(line.source);
	}
	free(text);
	return 0;
}
