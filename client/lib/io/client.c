#include "client/lib/io/client.h"

#include <stdlib.h>
#include <sys/mman.h>

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
	return conn_was_lost(client->conn) ? conn_fail_gone(client->conn, function) : 0;
}

int client_check_call(const struct dsaio_client *client, const char *function, const void *argument,
		      const char *what)
{
	int r = client_check(client, function);

	if (r < 0)
		return r;
	return argument ? client_check_alive(client, function) : client_null(function, what);
}

bool client_add_of(struct dsaio_client *client, struct client_object *object, uint32_t session)
{
	bool is_of;
	LOCKED(&client->lock);

	is_of = conn_is_of(client->conn, session);
	if (is_of)
		list_push_front(&client->objects[object->kind], &object->node);
	return is_of;
}

void client_remove(struct dsaio_client *client, struct client_object *object)
{
	LOCKED(&client->lock);

	list_remove(&client->objects[object->kind], &object->node);
}

/* ---- the end ---- */

/* Disconnected clients of which the program still holds something: found here by leak checkers. */
static struct list all_left;
static pthread_mutex_t all_left_lock = PTHREAD_MUTEX_INITIALIZER;

void client_free(struct dsaio_client *client)
{
	if (!client)
		return;
	buffers_deinit(&client->buffers);
	gpu_memory_deinit(&client->gpu);
	free(client->bounce); /* after bounce_stop() */
	conn_close(client->conn);
	closep(&client->state_fd);
	closep(&client->state_event_fd);
	if (client->guard) /* our own mapping: cannot fail */
		(void)munmap((void *)(uintptr_t)client->guard, (size_t)sysconf(_SC_PAGESIZE));
	(void)pthread_mutex_destroy(&client->files.lock);
	(void)pthread_mutex_destroy(&client->recovery.objects);
	(void)pthread_mutex_destroy(&client->recovery.lock);
	(void)pthread_cond_destroy(&client->recovery.stopping);
	(void)pthread_mutex_destroy(&client->lock);
	free(client);
}

void client_leave(struct dsaio_client *client)
{
	uint32_t n = 1; /* ours, below */

	for (int kind = 0; kind < N_CLIENT_OBJECT_KINDS; kind++)
		LIST_EACH(struct client_object, object, &client->objects[kind], node)
			n++;
	n += buffers_leave(&client->buffers);
	n += gpu_memory_leave(&client->gpu);
	conn_end(client->conn);
	closep(&client->state_fd);
	client->state_fd = -1;
	atomic_store(&client->n_left, n);
	client->is_disconnected = true;
	(void)pthread_mutex_lock(&all_left_lock);
	list_push(&all_left, &client->left_node);
	(void)pthread_mutex_unlock(&all_left_lock);
	client_left(client);
}

void client_left(struct dsaio_client *client)
{
	/* acq_rel: the last one sees all use before */
	if (!client->is_disconnected ||
	    atomic_fetch_sub_explicit(&client->n_left, 1, memory_order_acq_rel) != 1)
		return;
	(void)pthread_mutex_lock(&all_left_lock);
	list_remove(&all_left, &client->left_node);
	(void)pthread_mutex_unlock(&all_left_lock);
	client_free(client);
}
