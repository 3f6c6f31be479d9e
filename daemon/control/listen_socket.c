#include "daemon/control/listen_socket.h"

#include "daemon/base/log.h"
#include "daemon/base/systemd.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PATH_BYTES_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1) /* 107 */

static int address_make(const char *path, struct sockaddr_un *ret_address, struct error *error)
{
	size_t len = strlen(path);

	if (len == 0 || len > PATH_BYTES_MAX)
		return error_set_plain(error, -ENAMETOOLONG,
				       "socket path %s: has %zu bytes, and the kernel takes 1 to "
				       "%zu: use a shorter --socket",
				       path, len, PATH_BYTES_MAX);
	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret_address->sun_path, path, len + 1);
	return 0;
}

int listen_socket_check(const char *path, struct error *error)
{
	struct sockaddr_un address;
	struct stat st;
	int r = address_make(path, &address, error);

	if (r < 0)
		return r;
	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return error_set_plain(error, -EEXIST,
				       "socket %s: the file there is no socket: remove it, "
				       "or use another --socket",
				       path);
	return 0; /* other errors are reported when the path is used */
}

/* This daemon has the start lock, so a socket at the path is stale or not dsaiod's. */
static int socket_clear(const char *path, const struct sockaddr_un *address, struct error *error)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(error, -errno, "socket %s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(error, -errno, "socket");
	/* EAGAIN: its backlog is full, so a process listens. */
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
		return error_set_plain(
			error, -EADDRINUSE,
			"socket %s: another process serves it, without dsaiod's start "
			"lock: stop it first, or use another --socket",
			path);
	if (errno != ECONNREFUSED)
		return error_set(error, -errno, "socket %s", path);
	if (unlink(path) < 0)
		return error_set(error, -errno, "socket %s: removing the stale one", path);
	log_notice("dsaiod: socket %s: took over a stale one", path);
	return 0;
}

/* Every user may connect to the system's daemon, and only its user to a user's own. */
static mode_t socket_mode(bool is_user)
{
	return !is_user && (geteuid() == 0 || getenv("NOTIFY_SOCKET")) ? 0666 : 0600;
}

int listen_socket_make(const char *path, bool is_user, bool *ret_is_bound, int *ret_fd,
		       struct error *error)
{
	_cleanup_(closep) int fd = -1;
	struct sockaddr_un address;
	mode_t mask;
	int r;

	r = address_make(path, &address, error);
	if (r < 0)
		return r;
	r = socket_clear(path, &address, error);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(error, -errno, "socket");
	mask = umask(0177); /* no client may connect before the mode is set */
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (r < 0)
		return error_set(error, r, "socket %s: bind", path);
	*ret_is_bound = true;
	if (chmod(path, socket_mode(is_user)) < 0)
		return error_set(error, -errno, "socket %s: chmod", path);
	if (listen(fd, SOCKET_BACKLOG) < 0)
		return error_set(error, -errno, "socket %s: listen", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int listen_socket_inherit(const char *path, int *ret_fd, bool *ret_is_handed_over,
			  struct error *error)
{
	const int fd = SYSTEMD_LISTEN_FD, n = systemd_listen_fds();
	const bool is_handed_over = systemd_listen_fd_has_name(SOCKET_HANDED_OVER);
	int flags;

	systemd_listen_fds_forget();
	if (n <= 0)
		return n < 0 ? error_set(error, n, "sockets from systemd") : 0;
	if (n > 1)
		return error_set_plain(error, -EINVAL,
				       "systemd handed over %d sockets: one is expected "
				       "(ListenStream= in the socket unit)",
				       n);
	/* The name of the start lock is made from the path, so both daemons must use the same path. */
	if (!systemd_is_listening_at(fd, path))
		return error_set_plain(error, -EINVAL,
				       "systemd handed over a descriptor that is no stream socket "
				       "listening at %s: let ListenStream= and --socket agree",
				       path);
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return error_set(error, -errno, "socket from systemd");
	*ret_fd = fd;
	*ret_is_handed_over = is_handed_over;
	return 1;
}
