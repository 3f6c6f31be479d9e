/*
 * A configuration file, and a --store.  Input: the file; its first line is the --store, too.
 */
#include "daemon/config.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[40];
	struct error error = { 0 };
	struct config config;
	char line[256];
	size_t n = 0;
	int r;

	if (fd < 0) {
		fd = memfd_create("config", MFD_CLOEXEC);
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	for (; n < size && n < sizeof(line) - 1 && data[n] && data[n] != '\n'; n++)
		line[n] = (char)data[n];
	line[n] = 0;

	config_init(&config);
	r = config_read(&config, path, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	error = (struct error){ 0 };
	r = config_add_store(&config, line, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	error = (struct error){ 0 };
	r = config_check(&config, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	for (unsigned i = 0; i < config.n_stores && r == 0; i++)
		assert(profile_check(&config.stores[i].profile, line, sizeof(line)) == 0);
	config_deinit(&config);
	return 0;
}
