/*
 * A configuration file, which is read again as a drop-in is, and a --store; and the same bytes as saved settings, and
 * as
 * wear.ini.
 * Input: the file; its first line is the --store, too.
 */
#include "daemon/config/config.h"
#include "daemon/control/wear.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void read_saved(const char *path)
{
	FILE *file = fopen(path, "re");
	struct saved_settings saved;
	struct error error = { 0 };
	char why[256];
	int r;

	if (!file)
		abort();
	r = config_read_saved(file, path, &saved, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	assert(r < 0 || profile_check(&saved.profile, why, sizeof(why)) == 0);
	assert(r < 0 || (saved.limit.bytes_per_sec <= RATE_LIMIT_MAX &&
			 saved.limit.ops_per_sec <= RATE_LIMIT_MAX));
	(void)fclose(file);
}

static void read_wear(const char *path)
{
	FILE *file = fopen(path, "re");
	struct usage usage = { 0 };
	struct saved saved = { 0 };

	if (!file)
		abort();
	(void)wear_read(file, path, &usage, &saved);
	assert(usage.n_users <= USAGE_USERS_MAX);
	usage_deinit(&usage);
	saved_deinit(&saved);
	(void)fclose(file);
}

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
	if (size && data[0] % 2)
		config_set_user(&config);
	for (unsigned i = 0; i < 2; i++) {
		r = config_read(&config, path, true, &error);
		assert(r <= 0 && (r == 0 || error.text[0]));
	}
	error = (struct error){ 0 };
	r = config_add_store(&config, line, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	error = (struct error){ 0 };
	r = config_check(&config, &error);
	assert(r <= 0 && (r == 0 || error.text[0]));
	assert((r < 0) == (config.n_mistakes > 0));
	for (unsigned i = 0; i < config.n_stores && r == 0; i++)
		assert(profile_check(&config.stores[i].profile, line, sizeof(line)) == 0);
	for (unsigned i = 0; i < N_QUOTA_KINDS && r == 0; i++)
		assert(config.client_limit[i] > 0 &&
		       config.client_limit[i] <= config.user_limit[i]);
	config_deinit(&config);
	read_saved(path);
	read_wear(path);
	return 0;
}
