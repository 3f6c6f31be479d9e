#include "daemon/base/systemd.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MESSAGE_BYTES 1024 /* ours are shorter */

/* ---- sockets that were handed over ---- */

/* A decimal number of 1 to max, without sign, blanks or anything behind it. */
static int number_parse(const char *text, long max, long *ret_number)
{
	char *end;
	long number;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	number = strtol(text, &end, 10);
	if (errno || *end || number < 1 || number > max)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

/* The names are separated by colons. */
static bool has_n_names(const char *names, long n)
{
	long n_names = 1;

	for (; *names; names++)
		n_names += *names == ':';
	return n_names == n;
}

static int cloexec_set(int fd)
{
	int flags = fcntl(fd, F_GETFD);

	return flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0 ? -errno : 0;
}

int systemd_listen_fds(void)
{
	const char *pid_text = getenv("LISTEN_PID"), *n_text = getenv("LISTEN_FDS");
	const char *names = getenv("LISTEN_FDNAMES");
	long pid, n;

	if (!pid_text)
		return 0;
	if (number_parse(pid_text, INT_MAX, &pid) < 0)
		return -EINVAL;
	/* Else a parent got the sockets, and the variables were inherited from it. */
	if (pid != getpid() || !n_text)
		return 0;
	if (number_parse(n_text, INT_MAX - SYSTEMD_LISTEN_FD, &n) < 0 ||
	    (names && !has_n_names(names, n)))
		return -EINVAL;
	for (int fd = SYSTEMD_LISTEN_FD; fd < SYSTEMD_LISTEN_FD + n; fd++) {
		int r = cloexec_set(fd);

		if (r < 0)
			return r;
	}
	return (int)n;
}

bool systemd_listen_fd_has_name(const char *name)
{
	const char *names = getenv("LISTEN_FDNAMES");

	return names && strcmp(names, name) == 0;
}

void systemd_listen_fds_forget(void)
{
	(void)unsetenv("LISTEN_PID"); /* cannot fail for such names */
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
}

static bool has_option(int fd, int option, int wanted)
{
	int value = 0;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 && value == wanted;
}

bool systemd_is_listening_at(int fd, const char *path)
{
	struct sockaddr_un address = { 0 };
	socklen_t len = sizeof(address);
	size_t n = path ? strlen(path) + 1 : 0;

	/* SO_DOMAIN also refuses a descriptor that is no socket. */
	return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_STREAM) &&
	       has_option(fd, SO_ACCEPTCONN, 1) &&
	       getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
	       (!path || (n <= sizeof(address.sun_path) && memcmp(address.sun_path, path, n) == 0));
}

/* ---- messages ---- */

/* A name that begins with @ has no file: the kernel wants it behind a zero byte, without one at its end. */
static int address_parse(const char *text, struct sockaddr_un *ret_address, socklen_t *ret_len)
{
	const size_t n = strlen(text), n_end = *text == '/';

	if ((*text != '/' && *text != '@') || n < 2)
		return -EAFNOSUPPORT;
	if (n + n_end > sizeof(ret_address->sun_path))
		return -ENAMETOOLONG;
	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret_address->sun_path, text, n);
	if (*text == '@')
		ret_address->sun_path[0] = 0;
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + n_end);
	return 0;
}

int systemd_notify(const char *format, ...)
{
	const char *text = getenv("NOTIFY_SOCKET");
	_cleanup_(closep) int fd = -1;
	struct sockaddr_un address;
	char message[MESSAGE_BYTES];
	socklen_t len;
	va_list args;
	int n, r;

	if (!text)
		return 0;
	r = address_parse(text, &address, &len);
	if (r < 0)
		return r;
	va_start(args, format);
	n = vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(message))
		return -EMSGSIZE;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    sendto(fd, message, (size_t)n, MSG_NOSIGNAL, (struct sockaddr *)&address, len) < 0)
		return -errno;
	return 1;
}
