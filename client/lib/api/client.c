#include "client/lib/api/client.h"

#include "client/lib/base/cancel.h"
#include "client/lib/base/debug.h"
#include "client/lib/io/bounce.h"
#include "client/lib/io/client.h"
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

struct dsaio_conn *client_conn(struct dsaio_client *client)
{
	return client->link.conn;
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

/* The pool is empty: bounce memory that is not in use goes back. */
static bool trim_bounce(struct buffers *buffers)
{
	return bounce_trim(container_of(buffers, struct dsaio_client, buffers));
}

static void client_freep(struct dsaio_client **client)
{
	struct dsaio_client *c = *client;

	if (!c)
		return;
	buffers_deinit(&c->buffers);
	conn_close(c->link.conn);
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
	buffers_init(&client->buffers, &client->link, trim_bounce);
	r = guard_new(&client->guard);
	if (r < 0)
		return error_fail_errno(r, "connect: a page that fork wipes");
	r = conn_open(socket_path, &client->link.conn);
	if (r < 0)
		return r;
	client->spin_usec = client->link.conn->spin_usec;
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
	debug_log("disconnect: the session on %s ends", client->link.conn->path);
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
