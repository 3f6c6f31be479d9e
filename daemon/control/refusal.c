#include "daemon/control/refusal.h"

#include "daemon/base/log.h"
#include "daemon/base/systemd.h"
#include "daemon/control/serve.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

/* A client writes its Hello after connect(2).  If the daemon has closed the socket by then, the client gets
   an error of write(2) instead of the reason. */
#define HELLO_WAIT_NSEC UINT64_C(1000000000)

int refusal_prepare(void)
{
	const int fd = SYSTEMD_LISTEN_FD;
	int flags;

	if (systemd_listen_fds() != 1 || systemd_listen_fd_has_name(SOCKET_HANDED_OVER) ||
	    !systemd_is_listening_at(fd, NULL))
		return -1;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
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

void refusal_send(int listen_fd)
{
	uint64_t deadline_nsec = clock_nsec() + HELLO_WAIT_NSEC; /* for all clients together */
	int fd;

	while (listen_fd >= 0 &&
	       (fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		refuse(fd, deadline_nsec);
		closep(&fd);
	}
}
