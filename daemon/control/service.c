#include "daemon/control/service.h"

#include "daemon/control/closing.h"
#include "daemon/control/session.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOBODY ((uid_t)-1) /* no process has it */

/* A control socket that a worker thread closes. */
struct closing_socket {
	struct service *service;
	struct user *user;
};

static void on_socket_closed(void *arg)
{
	struct closing_socket *socket = arg;
	struct service *service = socket->service;

	service->n_closing_sockets--;
	user_unref(socket->user);
	free(socket);
	service->on_gone(service);
}

/*
 * The descriptors in the socket stay in flight until the close: they take no place in the daemon's
 * table, and the kernel charges them to the sender.  The client sees the end of file now.
 */
void service_close_socket(struct service *service, struct user *user, int fd,
			  const struct hung_who *who, const char *file)
{
	_cleanup_(freep) struct closing_socket *socket = NULL;

	if (connection_has_unread_fds(fd)) {
		(void)shutdown(fd, SHUT_WR); /* of a connected socket: cannot fail */
		socket = calloc(1, sizeof(*socket));
	}
	if (!socket) {
		(void)close(
			fd); /* without memory: this thread may hang, but a leak would be worse */
		user_unref(user);
		return;
	}
	*socket = (struct closing_socket){ .service = service, .user = user };
	if (!closing_start(user, who, file, &fd, 1, on_socket_closed, socket)) {
		user_unref(user);
		return;
	}
	service->n_closing_sockets++;
	TAKE_PTR(socket); /* on_socket_closed() has it */
}

void service_close_refused(struct service *service, int fd)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(cred);
	struct user *user;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len); /* of any connected socket */
	if (!connection_has_unread_fds(fd)) {
		(void)close(fd);
		return;
	}
	if (user_ref(&service->users, cred.uid, &user) < 0)
		(void)user_ref(&service->users, NOBODY, &user); /* is there: cannot fail */
	service_close_socket(service, user, fd,
			     &(struct hung_who){ .uid = cred.uid, .pid = cred.pid },
			     "descriptors that a refused connection sent");
}

bool service_may_accept(const struct service *service)
{
	return service->n_closing_sockets < service->max_closing_sockets;
}

/* The user has room again: resumes its sessions. */
static void on_room(struct user *user, void *arg)
{
	struct service *service = arg;

	LIST_EACH(struct session, s, &service->sessions, node)
		if (s->user == user)
			connection_resume(&s->connection);
}

static bool entry_serve(struct run_entry *entry)
{
	return session_serve(container_of(entry, struct session, connection.run_entry));
}

void service_apply_limits(struct service *service)
{
	static const enum quota_kind live_kinds[] = { QUOTA_POOL_BYTES, QUOTA_GPU_BYTES,
						      QUOTA_ENTRIES };
	const struct config *config = service->config;

	service->pool.quota.limit[QUOTA_POOL_BYTES] = config->pool_size;
	service->pool.follows_limit = !config_key_place(config, "pool_size").line;
	memcpy(service->pool.quota.follows_descriptors, config->follows_descriptors,
	       sizeof(config->follows_descriptors));
	LIST_EACH(struct user, user, &service->users.all, node)
		memcpy(user->quota.limit, config->user_limit, sizeof(user->quota.limit));
	LIST_EACH(struct session, session, &service->sessions, node)
		for (size_t i = 0; i < sizeof(live_kinds) / sizeof(*live_kinds); i++)
			session->quota.limit[live_kinds[i]] = config->client_limit[live_kinds[i]];
	users_room(&service->users); /* some may wait for the limit on their requests */
}

int service_init(struct service *service, struct event_base *base)
{
	service->base = base;
	service->users = (struct users){
		.quota = &service->pool.quota,
		.limit = service->config->user_limit,
		.mailbox = service->mailbox,
		.on_room = on_room,
		.arg = service,
	};
	return run_queue_init(&service->run_queue, base, entry_serve);
}

int service_start(struct service *service)
{
	int r = saved_limit_users(&service->registry.saved, &service->usage);

	return r < 0 ? r : user_ref(&service->users, NOBODY, &service->nobody);
}

void service_deinit(struct service *service)
{
	if (service->nobody)
		user_unref(service->nobody);
	assert(!service->n_sessions && !service->n_closing_sockets);
	run_queue_deinit(&service->run_queue);
	usage_deinit(&service->usage);
}
