#include "daemon/control/server.h"

#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/control/request.h"
#include "daemon/base/hung.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/socket.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#define PATH_BYTES_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1) /* 107 */
#define LISTEN_BACKLOG 1024
/* Clients accepted before others have their turn: about as long as TURNS_NSEC. */
#define ACCEPTS_PER_TURN 16u
/* How often a start lock that is not free is tried, and after how many tries that is an error
   if its holder can not be told: it may just be writing its name. */
#define LOCK_TRY_NSEC 10000000
#define LOCK_UNKNOWN_TRIES 100u
/* systemd is asked for more time that often, and for that much. */
#define LOCK_NOTIFY_TRIES 500u
#define LOCK_EXTEND "EXTEND_TIMEOUT_USEC=30000000\n"
/* Part of the daemon's descriptors that control sockets may take while their close hangs: a guess. */
#define CLOSING_SOCKETS_DIVISOR 4u
/* How long a stop waits for the close of control sockets: they belong to no session.  A guess. */
#define CLOSING_SOCKETS_WAIT_SEC 2
#define PF_EXITING 0x4ul /* include/linux/sched.h; field 9 of /proc/PID/stat */

struct server {
	const struct config *config;
	struct service service;
	struct mailbox mailbox;
	struct event *mailbox_event, *listen_event, *resume_event;
	struct event
		*idle_event; /* armed when the last session has gone, if that is to be the end */
	struct event *leave_event; /* armed when only hanging closes delay the exit */
	int listen_fd, lock_fd;
	bool has_socket_file; /* made by us or for us: ours to remove */
	bool is_handed_over;  /* the library has made the socket, and nobody else listens there */
	bool is_paused;	      /* out of descriptors: until a session ends, or a second */
	bool is_told;	      /* the log has it */
	bool is_stopping;
};

/* ---- the start lock ---- */

struct holder {
	pid_t pid;
	unsigned long long started; /* clock ticks since boot */
};

enum holder_state { HOLDER_UNKNOWN, HOLDER_LIVES, HOLDER_DIES };

/* State, flags and start time of a process; false if there is none. */
static bool process_look(pid_t pid, char *ret_state, unsigned long *ret_flags,
			 unsigned long long *ret_started)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[32], line[1024], *end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')'); /* the name before it can hold anything */
	return end && sscanf(end + 1,
			     " %c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			     "%*d %*d %llu",
			     ret_state, ret_flags, ret_started) == 3;
}

static enum holder_state holder_look(int lock_fd, struct holder *ret_holder)
{
	unsigned long long started;
	unsigned long flags;
	char text[64], state;
	ssize_t n = pread(lock_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return HOLDER_UNKNOWN;
	text[n] = 0;
	if (sscanf(text, "%d %llu", &ret_holder->pid, &ret_holder->started) != 2)
		return HOLDER_UNKNOWN;
	if (!process_look(ret_holder->pid, &state, &flags, &started) ||
	    started != ret_holder->started)
		return HOLDER_UNKNOWN; /* the one before it: this one has not written yet */
	return state == 'Z' || (flags & PF_EXITING) ? HOLDER_DIES : HOLDER_LIVES;
}

static int holder_write(int lock_fd)
{
	unsigned long long started = 0;
	unsigned long flags;
	char text[64], state;
	int n;

	if (!process_look(getpid(), &state, &flags, &started))
		return -ESRCH; /* no /proc: nobody could tell whether we live */
	n = snprintf(text, sizeof(text), "%d %llu\n", getpid(), started);
	if (ftruncate(lock_fd, 0) < 0 || pwrite(lock_fd, text, (size_t)n, 0) != n)
		return -errno;
	return 0;
}

/*
 * Gets the lock, or refuses.  A daemon that dies holds it until the kernel has its last block
 * back, which can take as long as the device does: that is waited for.
 */
static int lock_wait(const struct server *server, int lock_fd, struct error *error)
{
	const char *path = server->config->socket_path;
	const struct timespec pause = { .tv_nsec = LOCK_TRY_NSEC };
	unsigned n_unknown = 0;

	for (unsigned n = 0;; n++) {
		struct holder holder;

		if (flock(lock_fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_set(error, -errno, "%s.lock", path);
		switch (holder_look(lock_fd, &holder)) {
		case HOLDER_LIVES:
			/* It has found our socket: it is about to end. */
			if (server->is_handed_over && ++n_unknown < LOCK_UNKNOWN_TRIES)
				break;
			return error_set_plain(error, -EADDRINUSE,
					       "a dsaiod with pid %d serves %s: stop it first, or "
					       "use another --socket",
					       holder.pid, path);
		case HOLDER_UNKNOWN:
			if (++n_unknown == LOCK_UNKNOWN_TRIES)
				return error_set_plain(error, -EADDRINUSE,
						       "another process holds %s.lock: stop it "
						       "first (fuser %s.lock shows it), or use "
						       "another --socket",
						       path, path);
			break;
		case HOLDER_DIES:
			if (n % LOCK_NOTIFY_TRIES)
				break;
			log_notice("dsaiod: waiting until the last block of the dying dsaiod with "
				   "pid %d is back",
				   holder.pid);
			(void)sd_notifyf(0,
					 LOCK_EXTEND "STATUS=waiting for the dying dsaiod with "
						     "pid %d: its device has blocks in flight",
					 holder.pid);
			break;
		}
		(void)nanosleep(&pause, NULL); /* a signal only shortens it */
	}
}

/* Before anything is made beside it: a path that is something else is a mistake. */
static int path_check(const char *path, struct error *error)
{
	struct stat st;

	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return error_set_plain(
			error, -EEXIST,
			"socket %s: something that is no socket is there: remove it, "
			"or use another --socket",
			path);
	return 0; /* what else is wrong with it shows when it is used */
}

static int lock_take(struct server *server, struct error *error)
{
	const char *path = server->config->socket_path;
	_cleanup_(closep) int fd = -1;
	char lock_path[PATH_BYTES_MAX + sizeof(".lock")];
	int r;

	(void)snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == ENOENT)
		return error_set_plain(
			error, -ENOENT,
			"the directory of %s does not exist: make it (under systemd: "
			"RuntimeDirectory=dsaiod), or use another --socket",
			path);
	if (fd < 0)
		return error_set(error, -errno, "start lock %s", lock_path);
	r = lock_wait(server, fd, error);
	if (r < 0)
		return r;
	r = holder_write(fd);
	if (r < 0)
		return error_set(error, r, "start lock %s: writing pid and start time", lock_path);
	server->lock_fd = TAKE_FD(fd);
	return 0;
}

/* ---- the socket ---- */

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

static void strv_freep(char ***names)
{
	for (char **name = *names; name && *name; name++)
		free(*name);
	free(*names);
}

/* We have the lock: what is at the path is a left-over, or not ours to touch. */
static int socket_clear(const char *path, const struct sockaddr_un *address, struct error *error)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(error, -errno, "socket %s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(error, -errno, "socket");
	/* EAGAIN: its backlog is full, so somebody listens. */
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

/* A system's daemon is for every user; a user's own is for that user. */
static mode_t socket_mode(const struct config *config)
{
	return !config->is_user && (geteuid() == 0 || getenv("NOTIFY_SOCKET")) ? 0666 : 0600;
}

static int socket_listen(struct server *server, struct error *error)
{
	const char *path = server->config->socket_path;
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
	mask = umask(0177); /* nobody gets in before the mode is right */
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (r < 0)
		return error_set(error, r, "socket %s: bind", path);
	server->has_socket_file = true;
	if (chmod(path, socket_mode(server->config)) < 0)
		return error_set(error, -errno, "socket %s: chmod", path);
	if (listen(fd, LISTEN_BACKLOG) < 0)
		return error_set(error, -errno, "socket %s: listen", path);
	server->listen_fd = TAKE_FD(fd);
	return 0;
}

/*
 * A socket that systemd made, or the library that started us: 1, 0 or an error.  The first is
 * systemd's for ever, the second's file ours to remove.
 */
static int socket_inherit(struct server *server, struct error *error)
{
	_cleanup_(strv_freep) char **names = NULL;
	int fd = SD_LISTEN_FDS_START, n = sd_listen_fds_with_names(1, &names), flags;

	if (n <= 0)
		return n < 0 ? error_set(error, n, "sockets from systemd") : 0;
	if (n > 1)
		return error_set_plain(error, -EINVAL,
				       "systemd handed over %d sockets: one is expected "
				       "(ListenStream= in the socket unit)",
				       n);
	/* The start lock is named after the path, so it has to be the same. */
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, server->config->socket_path, 0) <= 0)
		return error_set_plain(error, -EINVAL,
				       "systemd handed over a descriptor that is no stream socket "
				       "listening at %s: let ListenStream= and --socket agree",
				       server->config->socket_path);
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return error_set(error, -errno, "socket from systemd");
	server->listen_fd = fd;
	server->is_handed_over = strcmp(names[0], SOCKET_HANDED_OVER) == 0;
	return 1;
}

/* ---- clients ---- */

static void server_idle(struct server *server)
{
	const struct timeval wait = { .tv_sec = (time_t)server->config->idle_exit_sec };

	if (wait.tv_sec && !server->service.n_sessions)
		(void)evtimer_add(server->idle_event, &wait); /* fails for want of memory: then
								 after the next client */
}

/* A client that connects at this moment is hung up on, and looks for a daemon again. */
static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;

	(void)fd;
	(void)what;
	if (server->service.n_sessions || server->is_stopping)
		return;
	log_notice("dsaiod: no client for %u s: stopping", server->config->idle_exit_sec);
	server_stop(server);
}

static void server_pause(struct server *server)
{
	const struct timeval second = { .tv_sec = 1 };

	if (!server->is_told && !service_may_accept(&server->service))
		log_warning(
			"dsaiod: %" PRIu32 " ended or refused connections wait for the close of "
			"descriptors that their clients sent: the next client waits until one is "
			"closed; dsaioctl status shows the users; end the processes of these users",
			server->service.n_closing_sockets);
	else if (!server->is_told)
		log_warning("dsaiod: all its descriptors are open (RLIMIT_NOFILE %" PRIu64
			    "): the next client waits until another leaves; raise the limit where "
			    "the daemon starts (ulimit -n; LimitNOFILE= of a service)",
			    server->config->n_descriptors);
	server->is_told = true;
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
	(void)event_add(server->listen_event, NULL); /* epoll knew it before */
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	server_resume(arg);
}

static void client_accept(struct server *server, int fd)
{
	struct error error;

	if (session_new(&server->service, fd, &error) == 0)
		return; /* the session has it */
	request_refuse(fd, &error);
	service_close_refused(&server->service, fd);
}

static void on_connect(evutil_socket_t listen_fd, short what, void *arg)
{
	struct server *server = arg;

	(void)what;
	for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd;

		if (!service_may_accept(&server->service)) {
			server_pause(server);
			return;
		}
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			client_accept(server, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			server_pause(server);
		return; /* none left, or one that is gone again: the event comes back */
	}
}

static void server_leave_if_empty(struct server *server)
{
	const struct timeval wait = { .tv_sec = CLOSING_SOCKETS_WAIT_SEC };

	if (!server->is_stopping || server->service.n_sessions)
		return;
	if (!server->service.n_closing_sockets)
		(void)event_base_loopbreak(server->service.base); /* fails without a base only */
	else if (!evtimer_pending(server->leave_event, NULL))
		(void)evtimer_add(server->leave_event,
				  &wait); /* without memory: after the closes */
}

/* The end of the process closes the sockets: the kernel interrupts a close that waits. */
static void on_leave(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;

	(void)fd;
	(void)what;
	log_warning("dsaiod: stopping although the close of %" PRIu32
		    " ended or refused connections has not returned",
		    server->service.n_closing_sockets);
	(void)event_base_loopbreak(server->service.base); /* fails without a base only */
}

static void on_gone(struct service *service)
{
	struct server *server = container_of(service, struct server, service);

	if (server->service.n_closing_sockets < server->service.max_closing_sockets / 2)
		server->is_told = false; /* not after each close at the bound */
	server_resume(server);
	server_idle(server);
	server_leave_if_empty(server);
}

static void on_mailbox(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;

	(void)fd;
	(void)what;
	(void)mailbox_run(&server->mailbox); /* how many is of no interest here */
}

/* ---- start and stop ---- */

static int server_init_service(struct server *server, struct event_base *base)
{
	const struct config *config = server->config;
	struct service *service = &server->service;

	*service = (struct service){
		.mailbox = &server->mailbox,
		.pool = { .quota = { .name = "the daemon" },
			  .lock = config->lock,
			  .pages = config->huge_pages,
			  .is_locked = true,
			  .main_mailbox = &server->mailbox },
		.spin_usec = config->spin_usec,
		.started_nsec = clock_nsec(),
		.on_frame = request_serve,
		.on_garbage = request_refuse_garbage,
		.on_gone = on_gone,
	};
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		service->pool.quota.limit[i] = UINT64_MAX; /* users bound each other */
	service->pool.quota.limit[QUOTA_POOL_BYTES] = config->pool_size;
	service->pool.quota.n_descriptors = config->n_descriptors;
	memcpy(service->pool.quota.follows_descriptors, config->follows_descriptors,
	       sizeof(config->follows_descriptors));
	memcpy(service->client_limit, config->client_limit, sizeof(service->client_limit));
	memcpy(service->user_limit, config->user_limit, sizeof(service->user_limit));
	service->max_closing_sockets = config->n_descriptors / CLOSING_SOCKETS_DIVISOR + 1;
	return service_init(service, base);
}

static int server_listen(struct server *server, struct error *error)
{
	struct sockaddr_un address;
	int r, is_inherited;

	/* First: the lock's name is made from it. */
	r = address_make(server->config->socket_path, &address, error);
	if (r < 0)
		return r;
	r = path_check(server->config->socket_path, error);
	if (r < 0)
		return r;
	is_inherited = socket_inherit(server, error);
	if (is_inherited < 0)
		return is_inherited;
	r = lock_take(server, error);
	if (r < 0)
		return r;
	server->has_socket_file = server->is_handed_over; /* not before the lock is ours */
	if (!is_inherited)
		r = socket_listen(server, error);
	if (r < 0)
		return r;
	server->listen_event = event_new(server->service.base, server->listen_fd,
					 EV_READ | EV_PERSIST, on_connect, server);
	server->resume_event = evtimer_new(server->service.base, on_resume, server);
	server->idle_event = evtimer_new(server->service.base, on_idle, server);
	server->leave_event = evtimer_new(server->service.base, on_leave, server);
	if (!server->listen_event || !server->resume_event || !server->idle_event ||
	    !server->leave_event || event_add(server->listen_event, NULL) < 0)
		return error_set(error, -ENOMEM, "socket: event");
	server_idle(server);
	return 0;
}

static void server_freep(struct server **server)
{
	server_free(*server);
}

int server_new(const struct config *config, struct event_base *base, struct server **ret_server,
	       struct error *error)
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
	r = mailbox_init(&server->mailbox);
	if (r < 0)
		return error_set(error, r, "dsaiod: eventfd");
	server->mailbox_event = event_new(base, server->mailbox.event_fd, EV_READ | EV_PERSIST,
					  on_mailbox, server);
	if (!server->mailbox_event || event_add(server->mailbox_event, NULL) < 0)
		return error_set(error, -ENOMEM, "dsaiod: event");
	if (hung_init(base, &server->mailbox) < 0)
		return error_set(error, -ENOMEM, "dsaiod: event");
	r = registry_init(&server->service.stores, config, base, &server->mailbox, error);
	if (r < 0)
		return r;
	r = server_listen(server, error);
	if (r < 0)
		return r;
	r = privileges_drop(config->is_user, error);
	if (r < 0)
		return r;
	r = registry_start(&server->service.stores, error);
	if (r < 0)
		return r;
	*ret_server = TAKE_PTR(server);
	return 0;
}

/* Who connects from now on is refused, and who has connected is hung up on. */
static void server_close_listening(struct server *server)
{
	int fd;

	if (server->has_socket_file) { /* else systemd keeps it, and them, for the next daemon */
		(void)shutdown(server->listen_fd,
			       SHUT_RD); /* of a listening socket: can not fail */
		while ((fd = accept4(server->listen_fd, NULL, NULL,
				     SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
			service_close_refused(&server->service, fd);
	}
	closep(&server->listen_fd);
	server->listen_fd = -1;
}

void server_stop(struct server *server)
{
	if (server->is_stopping) { /* again: what was taken and has not started does not start */
		for (struct session *s = server->service.sessions; s; s = s->next)
			session_end(s, false);
		return;
	}
	server->is_stopping = true;
	hung_stopping();
	(void)event_del(server->listen_event); /* it was added, or is paused: fine too */
	(void)evtimer_del(server->resume_event);
	(void)evtimer_del(server->idle_event);
	server_close_listening(server);
	for (struct session *s = server->service.sessions; s; s = s->next)
		session_end(s, true);
	server_leave_if_empty(server);
}

void server_free(struct server *server)
{
	bool is_hanging;

	if (!server)
		return;
	is_hanging = server->service.n_closing_sockets; /* worker threads may post a message yet */
	service_deinit(&server->service);
	if (server->listen_event)
		event_free(server->listen_event);
	if (server->resume_event)
		event_free(server->resume_event);
	if (server->idle_event)
		event_free(server->idle_event);
	if (server->leave_event)
		event_free(server->leave_event);
	closep(&server->listen_fd);
	registry_deinit(&server->service.stores);
	if (server->mailbox.event_fd >= 0)
		(void)mailbox_run(
			&server->mailbox); /* that a probe has begun: to be told no more */
	hung_deinit();
	if (server->mailbox_event)
		event_free(server->mailbox_event);
	if (server->mailbox.event_fd >= 0 && !is_hanging)
		mailbox_deinit(&server->mailbox);
	if (server->has_socket_file) {
		privileges_own_files();
		(void)unlink(server->config->socket_path); /* a stale one is taken over, too */
	}
	closep(&server->lock_fd); /* last: then another may start */
	if (!is_hanging)
		free(server);
}

const char *server_socket_path(const struct server *server)
{
	return server->config->socket_path;
}

unsigned server_n_stores(const struct server *server)
{
	return server->config->n_stores;
}
