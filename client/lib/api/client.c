#include "client/lib/api/client.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "proto/util/cleanup.h"
#include "proto/util/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SPIN_USEC_MAX 1000u /* whatever the daemon says: longer is no spin */

const char *dsaio_version(void)
{
	return DSAIO_VERSION;
}

uint32_t dsaio_version_number(void)
{
	return DSAIO_VERSION_NUMBER;
}

int client_null(const char *function, const char *object)
{
	return error_fail(-EINVAL, "%s: the %s is NULL", function, object);
}

int client_check(const struct dsaio_client *client, const char *function)
{
	if (!client)
		return client_null(function, "client");
	if (client_is_forked(client))
		return error_fail(-EPERM,
				  "%s: this process is a fork of the one that connected: call "
				  "dsaio_connect() here for a client of its own",
				  function);
	return 0;
}

int client_check_alive(const struct dsaio_client *client, const char *function)
{
	if (conn_was_gone(client->conn))
		return error_fail(
			-ENOTCONN,
			"%s: the daemon on %s has gone away: start it again, then connect "
			"again",
			function, client->conn->path);
	return 0;
}

void client_add(struct dsaio_client *client, struct client_object *object)
{
	struct client_object **first = &client->objects[object->kind];

	(void)pthread_mutex_lock(&client->lock); /* a plain mutex: can not fail */
	object->prev = NULL;
	object->next = *first;
	if (*first)
		(*first)->prev = object;
	*first = object;
	(void)pthread_mutex_unlock(&client->lock);
}

void client_remove(struct dsaio_client *client, struct client_object *object)
{
	(void)pthread_mutex_lock(&client->lock);
	if (object->next)
		object->next->prev = object->prev;
	if (object->prev)
		object->prev->next = object->next;
	else
		client->objects[object->kind] = object->next;
	(void)pthread_mutex_unlock(&client->lock);
}

void client_leave_garbage(struct dsaio_client *client, struct client_object *object)
{
	(void)pthread_mutex_lock(&client->lock);
	object->next_garbage = atomic_load_explicit(&client->garbage, memory_order_relaxed);
	atomic_store_explicit(&client->garbage, object, memory_order_relaxed); /* the lock orders */
	(void)pthread_mutex_unlock(&client->lock);
}

void client_collect_slow(struct dsaio_client *client)
{
	struct client_object *object, *next;

	(void)pthread_mutex_lock(&client->lock);
	object = atomic_load_explicit(&client->garbage, memory_order_relaxed);
	atomic_store_explicit(&client->garbage, NULL, memory_order_relaxed); /* the lock orders */
	(void)pthread_mutex_unlock(&client->lock);
	for (; object; object = next) {
		next = object->next_garbage;
		object->on_collect(object);
	}
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

		(void)munmap(map, page); /* just mapped: can not fail */
		return r;
	}
	atomic_init(guard, CLIENT_GUARD);
	*ret_guard = guard;
	return 0;
}

static void client_freep(struct dsaio_client **client)
{
	struct dsaio_client *c = *client;

	if (!c)
		return;
	conn_close(c->conn);
	if (c->guard) /* our own mapping: can not fail */
		(void)munmap((void *)(uintptr_t)c->guard, (size_t)sysconf(_SC_PAGESIZE));
	cache_deinit(&c->files.cache);
	(void)pthread_mutex_destroy(&c->files.lock);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

int dsaio_connect(const char *socket_path, struct dsaio_client **ret_client)
{
	CANCEL_DISABLE();
	_cleanup_(client_freep) struct dsaio_client *client = NULL;
	int r;

	if (!ret_client)
		return client_null("connect", "place for the client");
	client = calloc(1, sizeof(*client));
	if (!client)
		return error_fail_errno(-ENOMEM, "connect");
	(void)pthread_mutex_init(&client->lock, NULL); /* default attributes: can not fail */
	(void)pthread_mutex_init(&client->files.lock, NULL);
	r = guard_new(&client->guard);
	if (r < 0)
		return error_fail_errno(r, "connect: a page that fork wipes");
	r = conn_open(socket_path, &client->conn);
	if (r < 0)
		return r;
	client->spin_usec = client->conn->spin_usec;
	if (client->spin_usec > SPIN_USEC_MAX)
		client->spin_usec = SPIN_USEC_MAX;
	client->n_cpus = cpu_count();
	if (client->n_cpus < 2)
		client->spin_usec = 0; /* it would only keep the daemon off the one core */
	*ret_client = TAKE_PTR(client);
	return 0;
}

void dsaio_disconnect(struct dsaio_client *client)
{
	CANCEL_DISABLE();
	if (!client || client_is_forked(client))
		return;
	debug_log("disconnect: the session on %s ends", client->conn->path);
	client_collect(client);
	for (int kind = 0; kind < N_CLIENT_OBJECT_KINDS; kind++) {
		struct client_object *object;

		while ((object = client->objects[kind])) {
			client_remove(client, object);
			object->on_disconnect(object);
		}
		client_collect(client); /* files that an op was the last to hold */
	}
	client_freep(&client);
}
