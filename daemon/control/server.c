#include "daemon/control/server.h"

#include "daemon/account/recorder.h"
#include "daemon/base/event.h"
#include "daemon/base/hung.h"
#include "daemon/base/log.h"
#include "daemon/base/memory_limit.h"
#include "daemon/base/privileges.h"
#include "daemon/control/listen_socket.h"
#include "daemon/control/serve.h"
#include "daemon/control/start_lock.h"
#include "daemon/control/stop_wait.h"
#include "daemon/control/views.h"
#include "daemon/control/watchdog.h"
#include "daemon/control/wear.h"
#include "daemon/store/store.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
	struct config *config;
	struct service service;
	struct wear wear;
	struct mailbox mailbox;
	struct event *mailbox_event, *listen_event, *resume_event;
	struct event
		*idle_event; /* armed when the last session is freed, if the daemon then exits */
	struct event *stop_wait_event; /* each second of the stop */
	struct stop_wait stop_wait;
	struct watchdog watchdog;
	int listen_fd, lock_fd;
	bool has_socket_file; /* made by or for this daemon, which removes it */
	bool is_handed_over;  /* the library made the socket, and no other process listens on it */
	bool is_paused;	      /* accepts nobody until a session ends, or for a second */
	bool is_logged;	      /* the reason for the pause has been logged */
	bool is_stopping;
	bool is_left; /* calls without bytes of an op have not returned */
	struct log_limit refusals;
};

/* ---- clients ---- */

static void server_idle(struct server *server)
{
	const struct timeval wait = { .tv_sec = (time_t)server->config->idle_exit_sec };

	if (wait.tv_sec && !server->service.n_sessions)
		(void)evtimer_add(server->idle_event, &wait); /* fails for want of memory: then
								 after the next client */
}

/* A client that connects at this moment is disconnected, and looks for a daemon again. */
static void on_idle(EVENT_ARG(arg))
{
	struct server *server = arg;

	if (server->service.n_sessions || server->is_stopping)
		return;
	log_notice("dsaiod: no client for %u s: stopping", server->config->idle_exit_sec);
	server_stop(server);
}

static void server_pause(struct server *server)
{
	const struct timeval second = { .tv_sec = 1 };

	if (!server->is_logged && !service_may_accept(&server->service))
		log_warning(
			"dsaiod: %" PRIu32 " ended or refused connections wait for the close of "
			"descriptors that their clients sent: the next client waits until one is "
			"closed; dsaioctl status shows the users; end the processes of these users",
			server->service.n_closing_sockets);
	else if (!server->is_logged)
		log_warning(
			"dsaiod: all its descriptors are open (RLIMIT_NOFILE %" PRIu64
			"): the next client waits until another disconnects; raise the limit where "
			"the daemon starts (ulimit -n; LimitNOFILE= of a service)",
			server->config->n_descriptors);
	server->is_logged = true;
	server->is_paused = true;
	(void)event_del(server->listen_event);		  /* it was added */
	(void)evtimer_add(server->resume_event, &second); /* fails for want of memory: then by
							     the next session's end */
}

static void server_resume(struct server *server)
{
	if (!server->is_paused || server->is_stopping)
		return;
	server->is_paused = false;
	(void)event_add(server->listen_event, NULL); /* cannot fail: epoll knew it before */
}

static void on_resume(EVENT_ARG(arg))
{
	server_resume(arg);
}

static void log_refused(struct server *server, int fd, const struct error *error)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	struct hung_who who;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer,
			 &len); /* a connected socket has them */
	who = (struct hung_who){ .uid = peer.uid, .pid = peer.pid };
	log_event(&server->refusals,
		  LOG_FIELDS(.event = "refused", .who = &who, .error = -error->code),
		  "user %u: pid %d: refused: %s", peer.uid, peer.pid, error->text);
}

static void client_accept(struct server *server, int fd)
{
	struct error error;

	/* A session would cost ten times as much as all else here. */
	if (connection_has_ended(fd)) {
		(void)close(fd); /* nothing is in it: cannot hang */
		return;
	}
	if (session_new(&server->service, fd, &error) == 0)
		return; /* the session has it */
	log_refused(server, fd, &error);
	serve_refusal(fd, &error);
	service_close_refused(&server->service, fd);
}

/* One client: those that wait to be served would wait for more. */
static void on_connect(evutil_socket_t listen_fd, short what, void *arg)
{
	struct server *server = arg;
	int fd;

	(void)what;
	if (!service_may_accept(&server->service)) {
		server_pause(server);
		return;
	}
	fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		client_accept(server, fd);
	else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
		server_pause(server);
	/* Else the client is gone; or the event repeats, which is level-triggered. */
}

static void server_leave_if_empty(struct server *server)
{
	if (server->is_stopping && !server->service.n_sessions &&
	    !server->service.n_closing_sockets && !server->service.views.n_made)
		(void)event_base_loopbreak(server->service.base); /* fails without a base only */
}

/* The stop goes on by itself when the calls return. */
static void on_stop_wait_due(EVENT_ARG(arg))
{
	struct server *server = arg;
	unsigned n;

	if (!stop_wait_is_over(&server->stop_wait, &server->service.registry))
		return;
	n = server->stop_wait.counts.n_without_bytes;
	log_warning("dsaiod: stopping although %u call%s without bytes of an op ha%s not returned, "
		    "and no op has gone on for %u s: if the process stays, do what frees "
		    "%s, see the lines before, or kill -9 %d",
		    n, n == 1 ? "" : "s", n == 1 ? "s" : "ve", STOP_WAIT_SEC,
		    n == 1 ? "it" : "them", getpid());
	server->is_left = true;
	(void)event_base_loopbreak(server->service.base); /* fails without a base only */
}

static void on_gone(struct service *service)
{
	struct server *server = container_of(service, struct server, service);

	if (server->service.n_closing_sockets < server->service.max_closing_sockets / 2)
		server->is_logged =
			false; /* well below the bound: else each close would cause a line */
	server_resume(server);
	server_idle(server);
	server_leave_if_empty(server);
}

static void on_mailbox(EVENT_ARG(arg))
{
	struct server *server = arg;

	(void)mailbox_run(&server->mailbox); /* the number of messages does not matter */
}

/* ---- start and stop ---- */

static int server_init_service(struct server *server, struct event_base *base)
{
	struct config *config = server->config;
	struct service *service = &server->service;

	*service = (struct service){
		.config = config,
		.mailbox = &server->mailbox,
		.pool = { .quota = { .name = "the daemon" },
			  .lock = config->lock,
			  .pages = config->huge_pages,
			  .is_locked = true,
			  .main_mailbox = &server->mailbox },
		.started_nsec = clock_nsec(),
		.on_frame = serve_frame,
		.on_garbage = serve_garbage,
		.say_end = serve_end,
		.on_gone = on_gone,
	};
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		service->pool.quota.limit[i] = UINT64_MAX; /* users bound each other */
	service->pool.quota.n_descriptors = config->n_descriptors;
	service_apply_limits(service);
	service->max_closing_sockets = config->n_descriptors / SERVICE_CLOSING_DIVISOR + 1;
	return service_init(service, base);
}

/* After the change of user and capabilities.  A client that is refused memory is not the first to learn it. */
static void server_check_memory(struct server *server)
{
	struct pool *pool = &server->service.pool;
	struct error why;

	if (memory_limit_check(server->config->pool_size, &why) < 0)
		log_warning("dsaiod: %s", why.text);
	if (pool->lock != POOL_LOCK_YES || memory_lock_check(server->config->pool_size, &why) == 0)
		return;
	log_warning("dsaiod: %s", why.text);
	pool->is_locked = false;
	memcpy(pool->why_unlocked, why.text, sizeof(pool->why_unlocked));
}

static int server_listen(struct server *server, struct error *error)
{
	const char *path = server->config->socket_path;
	int r, is_inherited;

	/* Before the lock, because the lock's name is made from the path. */
	r = listen_socket_check(path, error);
	if (r < 0)
		return r;
	is_inherited = listen_socket_inherit(path, &server->listen_fd, &server->is_handed_over,
					     error);
	if (is_inherited < 0)
		return is_inherited;
	/* A daemon that is starting may have found the socket that the library handed over, and will exit. */
	r = start_lock_take(path, server->is_handed_over, &server->lock_fd, error);
	if (r < 0)
		return r;
	server->service.usage.n_crashes += recorder_start(path);
	server->has_socket_file = server->is_handed_over; /* only after the lock is taken */
	if (!is_inherited)
		r = listen_socket_make(path, server->config->is_user, &server->has_socket_file,
				       &server->listen_fd, error);
	if (r < 0)
		return r;
	server->listen_event = event_new(server->service.base, server->listen_fd,
					 EV_READ | EV_PERSIST, on_connect, server);
	server->resume_event = evtimer_new(server->service.base, on_resume, server);
	server->idle_event = evtimer_new(server->service.base, on_idle, server);
	server->stop_wait_event = event_new(server->service.base, -1, EV_PERSIST, on_stop_wait_due,
					    server);
	if (!server->listen_event || !server->resume_event || !server->idle_event ||
	    !server->stop_wait_event || event_add(server->listen_event, NULL) < 0)
		return error_set(error, -ENOMEM, "socket: event");
	server_idle(server);
	return 0;
}

CLEANUP_FUNCTION(struct server, server_free)

int server_new(struct config *config, struct event_base *base, struct gpu_probe *gpu_probe,
	       struct server **ret_server, struct error *error)
{
	_cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set(error, -ENOMEM, "dsaiod");
	server->config = config;
	server->listen_fd = server->lock_fd = -1;
	server->mailbox.event_fd = -1;
	r = server_init_service(server, base);
	if (r < 0)
		return error_set(error, r, "dsaiod: event");
	server->service.gpu = (struct gpu_requests){ .mode = config->gpu, .probe = gpu_probe };
	if (gpu_probe)
		gpu_probe_on_end(gpu_probe, gpu_requests_on_probe_end, &server->service.gpu);
	r = mailbox_init(&server->mailbox);
	if (r < 0)
		return error_set(error, r, "dsaiod: eventfd");
	server->mailbox_event = event_new(base, server->mailbox.event_fd, EV_READ | EV_PERSIST,
					  on_mailbox, server);
	if (!server->mailbox_event || event_add(server->mailbox_event, NULL) < 0)
		return error_set(error, -ENOMEM, "dsaiod: event");
	if (hung_init(base, &server->mailbox) < 0)
		return error_set(error, -ENOMEM, "dsaiod: event");
	r = registry_init(&server->service.registry, config, base, &server->mailbox, error);
	if (r < 0)
		return r;
	if (wear_init(&server->wear, &server->service) < 0)
		return error_set(error, -ENOMEM, "dsaiod: event");
	r = server_listen(server, error);
	if (r < 0)
		return r;
	r = privileges_drop(config->is_user, error);
	if (r < 0)
		return r;
	server_check_memory(server);
	r = service_start(&server->service);
	if (r == 0)
		r = service_views_start(&server->service);
	if (r < 0)
		return error_set(error, r, "dsaiod: worker threads" WORK_QUEUE_ADVICE);
	r = registry_start(&server->service.registry, error);
	if (r < 0)
		return r;
	if (watchdog_start(&server->watchdog, base, &server->service.registry) < 0)
		return error_set(error, -ENOMEM, "dsaiod: watchdog");
	*ret_server = TAKE_PTR(server);
	return 0;
}

/* Later connections are refused, and those not yet accepted are closed. */
static void server_close_listening(struct server *server)
{
	int fd;

	if (server->has_socket_file) { /* else systemd keeps it, with its clients, for the next daemon */
		(void)shutdown(server->listen_fd, SHUT_RD); /* of a listening socket: cannot fail */
		while ((fd = accept4(server->listen_fd, NULL, NULL,
				     SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
			service_close_refused(&server->service, fd);
	}
	closep(&server->listen_fd);
	server->listen_fd = -1;
}

void server_stop(struct server *server)
{
	const struct timeval second = { .tv_sec = 1 };

	if (server->is_stopping) { /* second call: ops that have not started are cancelled */
		LIST_EACH(struct session, s, &server->service.sessions, node)
			session_end(s, false);
		return;
	}
	server->is_stopping = true;
	hung_stopping();
	atomic_store(&server->service.pool.is_stopping, true);
	(void)event_del(server->listen_event); /* it was added; fine also if it is paused */
	(void)evtimer_del(server->resume_event);
	(void)evtimer_del(server->idle_event);
	server_close_listening(server);
	LIST_EACH(struct session, s, &server->service.sessions, node)
		session_end(s, true);
	(void)evtimer_add(server->stop_wait_event,
			  &second); /* without memory the stop waits for every call */
	server_leave_if_empty(server);
}

static void server_remove_socket(struct server *server)
{
	privileges_own_files();
	recorder_end();
	if (!server->has_socket_file)
		return;
	(void)unlink(server->config->socket_path); /* if it fails, the next daemon takes the stale
						      one over */
}

void server_free(struct server *server)
{
	if (!server)
		return;
	wear_save(&server->wear);
	service_views_deinit(&server->service);
	service_deinit(&server->service);
	event_freep(&server->listen_event);
	event_freep(&server->resume_event);
	event_freep(&server->idle_event);
	watchdog_stop(&server->watchdog);
	event_freep(&server->stop_wait_event);
	closep(&server->listen_fd);
	registry_deinit(&server->service.registry);
	if (server->mailbox.event_fd >= 0)
		(void)mailbox_run(
			&server->mailbox); /* runs the messages of probes that have begun */
	wear_deinit(&server->wear);
	hung_deinit();
	event_freep(&server->mailbox_event);
	if (server->mailbox.event_fd >= 0)
		mailbox_deinit(&server->mailbox);
	server_remove_socket(server);
	start_lock_release(&server->lock_fd); /* last, because then another daemon may start */
	free(server);
}

bool server_end(struct server *server)
{
	if (server->is_left) {
		wear_save(&server->wear);
		saved_deinit(&server->service.registry.saved); /* waits for that */
		server_remove_socket(server);
		return false;
	}
	server_free(server);
	return true;
}

uint32_t server_n_clients(const struct server *server)
{
	return server->service.n_sessions;
}

uint64_t server_n_open_ops(const struct server *server)
{
	uint64_t n = 0;

	LIST_EACH(const struct store, store, &server->service.registry.stores, node) {
		struct metrics sum;

		lane_store_sum(&store->lane_store, &sum);
		n += metrics_get(&sum.open_ops);
	}
	return n;
}
