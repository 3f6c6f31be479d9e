#include "daemon/check.h"

#include "daemon/base/log.h"
#include "daemon/base/memory_limit.h"
#include "daemon/store/registry.h"
#include "proto/util/cleanup.h"
#include "proto/util/map.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PLACE_BYTES 512

/* Where a key of [daemon] has its value from.  elsewhere: if not from a file. */
static void key_place(const struct config *config, const char *name, const char *elsewhere,
		      const char *value, char place[PLACE_BYTES])
{
	const struct config_place at = config_key_place(config, name);

	if (at.line)
		(void)snprintf(place, PLACE_BYTES, "%s:%u: [daemon] %s = %s", at.path, at.line,
			       name, value);
	else
		(void)snprintf(place, PLACE_BYTES, "%s %s", elsewhere, value);
}

/* ---- the socket ---- */

/* Makes one in that directory, under another name, and removes it.  0 or -errno. */
static int socket_try(int dir_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char name[32];

	if (fd < 0)
		return -errno;
	(void)snprintf(name, sizeof(name), ".dsaiod-check-%d", getpid());
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd,
		       name);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	(void)unlinkat(dir_fd, name, 0); /* just made */
	return 0;
}

static int socket_check(struct config *config)
{
	_cleanup_(closep) int dir_fd = -1;
	char place[PLACE_BYTES], dir[SOCKET_PATH_BYTES];
	const char *slash;
	struct stat st;
	int r;

	if (!config->socket_path) /* a user's own: its directory is made and checked at the start */
		return 0;
	key_place(config, "socket", "--socket", config->socket_path, place);
	if (lstat(config->socket_path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
		config_mistake(config,
			       "%s: something that is no socket is there: remove it, or name "
			       "another path",
			       place);
		return -EINVAL;
	}
	/* systemd makes its directory when socket or service starts. */
	if (strcmp(config->socket_path, SOCKET_SYSTEM) == 0)
		return 0;
	slash = strrchr(config->socket_path, '/');
	(void)snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - config->socket_path + 1) : 1,
		       slash ? config->socket_path : ".");
	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = dir_fd < 0 ? -errno : socket_try(dir_fd);
	if (r == 0)
		return 0;
	config_mistake(config,
		       "%s: the socket cannot be made in the directory %s: %s: make the "
		       "directory, let the daemon's user write to it, or name another path",
		       place, dir, strerrordesc_np(-r));
	return -EINVAL;
}

/* ---- stores ---- */

int check_stores(struct config *config)
{
	struct store *stores[config->n_stores + 1]; /* STORES_MAX at most */
	int r;

	memset(stores, 0, sizeof(stores));
	r = registry_prepare_all(config, NULL, &(struct hung_who){ .uid = geteuid() }, stores);
	for (unsigned i = 0; i < config->n_stores; i++)
		store_free(stores[i]);
	return r;
}

/* ---- the directory of saved profiles ---- */

/* One that is not there is made when a profile is saved. */
static int state_dir_check(struct config *config)
{
	char place[PLACE_BYTES];
	struct stat st;
	int error;

	if (!config->state_dir)
		return 0;
	if (stat(config->state_dir, &st) == 0)
		error = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
	else
		error = errno == ENOENT ? 0 : errno;
	if (!error)
		return 0;
	key_place(config, "state_dir", "state_dir", config->state_dir, place);
	config_mistake(config,
		       "%s: %s: profiles could not be saved: remove what is there, or name "
		       "another directory",
		       place, strerrordesc_np(error));
	return -EINVAL;
}

/* ---- libraries ---- */

/* Without it the daemon would start, and use no GPU. */
static int library_check(struct config *config, const char *name, const char *variable,
			 const char *path)
{
	char place[PLACE_BYTES];
	int error;

	if (!path || access(path, R_OK) == 0)
		return 0;
	error = errno;
	key_place(config, name, variable, path, place);
	config_mistake(config, "%s: %s: name the library's file", place, strerrordesc_np(error));
	return -EINVAL;
}

/* ---- memory ---- */

void check_memory(const struct config *config)
{
	struct error why;
	char word[8];

	if (config->huge_pages != POOL_PAGES_SMALL && map_lacks_huge(word))
		log_notice(
			"dsaiod: huge_pages: " MAP_SHMEM_PATH
			" is %s: with advise pinned memory has huge pages sooner, and also before "
			"Linux 6.1; large reads into them are up to 1.8 times as fast: echo advise "
			">" MAP_SHMEM_PATH,
			word);
	if (memory_limit_check(config->pool_size, &why) < 0)
		log_warning("dsaiod: %s", why.text);
	if (config->lock == POOL_LOCK_YES && memory_lock_check(config->pool_size, &why) < 0)
		log_warning("dsaiod: %s", why.text);
}

int check_host(struct config *config)
{
	const int checks[] = {
		socket_check(config),
		state_dir_check(config),
		library_check(config, "cuda_library", "DSAIO_CUDA_LIBRARY", config->cuda_library),
		library_check(config, "cufile_library", "DSAIO_CUFILE_LIBRARY",
			      config->cufile_library),
	};

	for (unsigned i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		if (checks[i] < 0)
			return checks[i];
	return 0;
}
