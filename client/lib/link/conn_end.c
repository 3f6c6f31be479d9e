#include "client/lib/base/debug.h"
#include "client/lib/link/conn.h"

#include <poll.h>
#include <sys/socket.h>

bool conn_is_gone(struct dsaio_conn *conn)
{
	/* Before the look: an end that is seen is of this session, or of an earlier one. */
	const uint32_t n_gone = atomic_load(&conn->n_replaced) + 1;
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	if (conn_was_gone(conn))
		return true;
	if (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP)))
		return false;
	/* release: who sees it sees also what the daemon published before it died */
	if (atomic_exchange_explicit(&conn->n_gone, n_gone, memory_order_release) != n_gone)
		debug_log("session: the daemon on %s has gone away", conn->path);
	return conn_was_gone(conn);
}

void conn_break(struct dsaio_conn *conn)
{
	if (atomic_exchange(&conn->is_broken, true))
		return;
	/* It ends the session, then closes: its end of file stays the one proof. */
	(void)shutdown(conn->fd, SHUT_WR); /* fails only if the daemon is gone already */
}
