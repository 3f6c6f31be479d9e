/*
 * libsystemd: sockets that were handed over, sd_listen_fds(3), and messages about the service, sd_notify(3).
 *
 * DSAIO_WITHOUT_SYSTEMD (make SYSTEMD=no, and the wheel) leaves the library out.  Then no service manager
 * gets messages, and the only socket that may be handed over is that of a user's own daemon, by the library
 * that starts it.
 *
 * Main thread.
 */
#ifndef DSAIO_DAEMON_BASE_SYSTEMD_H
#define DSAIO_DAEMON_BASE_SYSTEMD_H

#ifndef DSAIO_WITHOUT_SYSTEMD
#include <systemd/sd-daemon.h>
#else
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SD_LISTEN_FDS_START 3

static inline int sd_listen_fds(int unset_environment)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	const int is_ours = pid && atol(pid) == getpid() && n && strcmp(n, "1") == 0;

	if (unset_environment) {
		(void)unsetenv("LISTEN_PID"); /* cannot fail for such names */
		(void)unsetenv("LISTEN_FDS");
		(void)unsetenv("LISTEN_FDNAMES");
	}
	return is_ours && fcntl(SD_LISTEN_FDS_START, F_SETFD, FD_CLOEXEC) == 0;
}

static inline int sd_is_socket_unix(int fd, int type, int listening, const char *path,
				    size_t length)
{
	(void)fd, (void)type, (void)listening, (void)path, (void)length;
	return 1; /* the library made it */
}

static inline int sd_watchdog_enabled(int unset_environment, uint64_t *usec)
{
	(void)unset_environment, (void)usec;
	return 0;
}

static inline int sd_notify(int unset_environment, const char *state)
{
	(void)unset_environment, (void)state;
	return 0;
}

__attribute__((format(printf, 2, 3))) static inline int sd_notifyf(int unset_environment,
								   const char *format, ...)
{
	(void)unset_environment, (void)format;
	return 0;
}
#endif

#endif
