#include "daemon/control/listen_socket.h"

#include "daemon/base/log.h"
#include "daemon/base/systemd.h"
#include "daemon/control/serve.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A client writes its Hello after connect(2).  If the daemon has closed the socket by then, the client gets
   an error of write(2) instead of the reason. */
#define HELLO_WAIT_NSEC UINT64_C(1000000000)

int listen_socket_check(const char *path, struct error *error)
{
	struct stat st;

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
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mode_t mask;
	int r;

	(void)strcpy(address.sun_path, path); /* it fits: config_set_socket() */
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

/* ---- a socket that was handed over ---- */

/* Else systemd did. */
static bool library_handed_over(void)
{
	const char *names = getenv("LISTEN_FDNAMES");

	return names && strcmp(names, SOCKET_HANDED_OVER) == 0;
}

static int nonblock_set(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int listen_socket_inherit(const char *path, int *ret_fd, bool *ret_is_handed_over,
			  struct error *error)
{
	const int fd = SD_LISTEN_FDS_START;
	const bool is_handed_over = library_handed_over();
	const int n = sd_listen_fds(
		true); /* a number in the variables may soon be another file's */
	int r;

	if (n <= 0)
		return n < 0 ? error_set(error, n, "sockets from systemd") : 0;
	if (n > 1)
		return error_set_plain(error, -EINVAL,
				       "systemd handed over %d sockets: one is expected "
				       "(ListenStream= in the socket unit)",
				       n);
	/* The name of the start lock is made from the path, so both daemons must use the same path. */
	if (sd_is_socket_unix(fd, SOCK_STREAM, true, path, 0) <= 0)
		return error_set_plain(error, -EINVAL,
				       "systemd handed over a descriptor that is no stream socket "
				       "listening at %s: let ListenStream= and --socket agree",
				       path);
	r = nonblock_set(fd);
	if (r < 0)
		return error_set(error, r, "socket from systemd");
	*ret_fd = fd;
	*ret_is_handed_over = is_handed_over;
	return 1;
}

/* ---- a service that cannot start ---- */

int listen_socket_hold(void)
{
	const int fd = SD_LISTEN_FDS_START;

	if (sd_listen_fds(false) != 1 || library_handed_over() ||
	    sd_is_socket_unix(fd, SOCK_STREAM, true, NULL, 0) <= 0 || nonblock_set(fd) < 0)
		return -1;
	return fcntl(fd, F_DUPFD_CLOEXEC, fd);
}

static void refuse(int fd, uint64_t deadline_nsec)
{
	struct pollfd hello = { .fd = fd, .events = POLLIN };
	struct ucred client = { .uid = (uid_t)-1 }; /* not known: as one without rights */
	socklen_t len = sizeof(client);
	uint64_t now_nsec = clock_nsec();
	struct error refused;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &client, &len);
	/* The text names no value of the configuration, because not every user may read it. */
	(void)error_set_plain(&refused, -ECHILD,
			      "the service cannot start: its log has the cause (%sjournalctl -u "
			      "dsaiod), and dsaiod --check-config finds mistakes in the "
			      "configuration; the next client starts it again",
			      log_sudo(client.uid));

	if (now_nsec < deadline_nsec)
		(void)poll(&hello, 1, (int)((deadline_nsec - now_nsec) / 1000000));
	serve_refusal(fd, &refused);
}

void listen_socket_refuse(int listen_fd)
{
	uint64_t deadline_nsec = clock_nsec() + HELLO_WAIT_NSEC; /* for all clients together */
	int fd;

	while (listen_fd >= 0 &&
	       (fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		refuse(fd, deadline_nsec);
		closep(&fd);
	}
}
