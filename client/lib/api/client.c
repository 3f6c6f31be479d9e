#include "client/lib/api/client.h"

#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "client/lib/base/fd.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/bounce_thread.h"
#include "client/lib/io/client.h"
#include "client/lib/io/recover.h"
#include "proto/util/cleanup.h"
#include "proto/util/cpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SPIN_USEC_MAX 1000u /* limit on the daemon's value: longer is no spin */

const char *dsaio_version(void)
{
	return DSAIO_VERSION;
}

uint32_t dsaio_version_number(void)
{
	return DSAIO_VERSION_NUMBER;
}

struct dsaio_conn *client_conn(struct dsaio_client *client)
{
	return client->conn;
}

/* The word that fork wipes. */
static int guard_new(const _Atomic uint32_t **ret_guard)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	_Atomic uint32_t *guard = map;

	if (map == MAP_FAILED)
		return -errno;
	if (madvise(map, page, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		(void)munmap(map, page); /* just mapped: cannot fail */
		return r;
	}
	atomic_init(guard, CLIENT_GUARD);
	*ret_guard = guard;
	return 0;
}

/* The pool is empty: bounce memory that is not in use goes back. */
static bool trim_bounce(struct buffers *buffers)
{
	return slots_trim(&container_of(buffers, struct dsaio_client, buffers)->bounce->slots,
			  false);
}

CLEANUP_FUNCTION(struct dsaio_client, client_free)

static int check_connect_options(const struct dsaio_connect_options *o)
{
	const uint64_t known = DSAIO_GPU_DIRECT | DSAIO_NO_RECONNECT;

	if (o->name && !*o->name)
		return error_fail(-EINVAL,
				  "connect: the name is \"\": give one, or NULL for the program's");
	if (o->reconnect_timeout_usec < 0)
		return error_fail(-EINVAL,
				  "connect: reconnect_timeout_usec %" PRId64
				  ": must be positive, or 0 (the default)",
				  o->reconnect_timeout_usec);
	if (o->reconnect_timeout_usec && (o->flags & DSAIO_NO_RECONNECT))
		return error_fail(-EINVAL, "connect: reconnect_timeout_usec and DSAIO_NO_RECONNECT "
					   "exclude each other: set one, or neither");
	if (o->flags & ~known)
		return fail_unknown("connect", "flags", o->flags & ~known);
	return 0;
}

/* $DSAIO_RECONNECT: seconds, for programs that cannot be changed; options come first.  Returns 0 or -EINVAL. */
static int environment_read(struct dsaio_connect_options *o)
{
	const char *value = secure_getenv("DSAIO_RECONNECT");
	char *end;
	unsigned long seconds;

	if (!value || !*value || o->reconnect_timeout_usec || (o->flags & DSAIO_NO_RECONNECT))
		return 0;
	seconds = strtoul(value, &end, 10);
	if (*end || *value < '0' || *value > '9' || seconds > UINT32_MAX)
		return error_fail(-EINVAL,
				  "connect: DSAIO_RECONNECT=%s: must be the seconds to wait for "
				  "another daemon, or 0: not at all",
				  value);
	o->reconnect_timeout_usec = (int64_t)seconds * 1000000;
	if (!seconds)
		o->flags |= DSAIO_NO_RECONNECT;
	return 0;
}

int dsaio_connect(const struct dsaio_connect_options *options, struct dsaio_client **ret_client)
{
	CANCEL_DISABLE();
	_cleanup_(client_freep) struct dsaio_client *client = NULL;
	struct dsaio_connect_options o = DSAIO_CONNECT_OPTIONS_INIT;
	int r = 0;

	if (!ret_client)
		return client_null("connect", "place for the client");
	if (options)
		r = sized_read("connect", &SIZED_CONNECT_OPTIONS, options, &o);
	if (r == 0)
		r = check_connect_options(&o);
	if (r == 0)
		r = environment_read(&o);
	if (r < 0)
		return r;
	client = calloc(1, sizeof(*client));
	if (!client)
		return error_fail_errno(-ENOMEM, "connect");
	client->state_fd = client->state_event_fd = -1;
	(void)pthread_mutex_init(&client->recovery.objects, NULL);
	(void)pthread_mutex_init(&client->recovery.lock, NULL);
	(void)pthread_cond_init(&client->recovery.stopping, NULL);
	(void)pthread_mutex_init(&client->lock, NULL); /* default attributes: cannot fail */
	(void)pthread_mutex_init(&client->files.lock, NULL);
	r = guard_new(&client->guard);
	if (r < 0)
		return error_fail_errno(r, "connect: a page that fork wipes");
	r = conn_open(o.socket_path, o.name, &client->conn);
	if (r < 0)
		return r;
	buffers_init(&client->buffers, client->conn, trim_bounce);
	client->bounce = bounce_new(client);
	if (!client->bounce)
		return error_fail_errno(-ENOMEM, "connect");
	gpu_memory_init(&client->gpu, client->conn, o.flags & DSAIO_GPU_DIRECT);
	client->spin_usec = conn_facts(client->conn).spin_usec;
	if (client->spin_usec > SPIN_USEC_MAX)
		client->spin_usec = SPIN_USEC_MAX;
	client->n_cpus = cpu_count();
	if (client->n_cpus < 2)
		client->spin_usec = 0; /* on a single core a spin only delays the daemon */
	recover_init(client, o.flags & DSAIO_NO_RECONNECT ? 0
			     : !o.reconnect_timeout_usec  ? RECOVER_TIMEOUT_NSEC
			     : o.reconnect_timeout_usec < INT64_MAX / 1000
				     ? (uint64_t)o.reconnect_timeout_usec * 1000
				     : INT64_MAX);
	*ret_client = TAKE_PTR(client);
	return 0;
}

/* Readable from a change of the state until that was read.  Under client.lock. */
static int make_state_fd(struct dsaio_client *client)
{
	_cleanup_(closep) int fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	_cleanup_(closep) int event_fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct epoll_event end = { .events = CLIENT_STATE_EVENTS };

	if (fd < 0 || event_fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, event_fd, &event) < 0 ||
	    (!conn_is_away(client->conn) &&
	     epoll_ctl(fd, EPOLL_CTL_ADD, client->conn->fd, &end) < 0))
		return error_fail_errno(-errno, "client_fd");
	client->state_fd = TAKE_FD(fd);
	client->state_event_fd = TAKE_FD(event_fd);
	return 0;
}

int dsaio_client_fd(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	int r = client_check(client, "client_fd");

	if (r < 0)
		return r;
	LOCKED(&client->lock);
	if (client->state_fd < 0)
		r = make_state_fd(client);
	if (r == 0)
		r = client->state_fd;
	return r;
}

int dsaio_client_state(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	struct epoll_event event;
	int fd, r = client_check(client, "client_state");

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&client->lock);
	fd = client->state_fd;
	(void)pthread_mutex_unlock(&client->lock);
	/* Before the look: what changes after it makes the descriptor readable again. */
	if (fd >= 0)
		while (epoll_wait(fd, &event, 1, 0) > 0) /* only a hint: conn_is_gone() looks */
			;
	if (!conn_is_gone(client->conn))
		return DSAIO_CONNECTED;
	return conn_was_lost(client->conn) ? DSAIO_LOST : DSAIO_RECONNECTING;
}

int dsaio_disconnect(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	_cleanup_(freep) char *text = NULL;
	int first = 0;

	if (!client || client_is_forked(client))
		return 0;
	debug_log("disconnect: the session on %s ends", client->conn->path);
	client_collect(client);
	for (int kind = 0; kind < N_CLIENT_OBJECT_KINDS; kind++) {
		if (kind == CLIENT_FILE) { /* the bounce thread uses files and buffers */
			recover_stop(client);
			bounce_stop(client);
		}
		LIST_EACH(struct client_object, object, &client->objects[kind], node) {
			int r = object->on_disconnect(object);

			if (r < 0 && !first) {
				first = r;
				text = strdup(dsaio_error());
			}
		}
		client_collect(client); /* files whose last reference an op had */
	}
	client_leave(client);
	return first < 0 ? error_fail(first, "%s", text ? text : "disconnect: an op failed") : 0;
}
