#include "client/lib/io/client.h"

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
	if (conn_was_gone(client->link.conn))
		return error_fail(
			-ENOTCONN,
			"%s: the daemon on %s has gone away: start it again, then connect "
			"again",
			function, client->link.conn->path);
	return 0;
}

void client_add(struct dsaio_client *client, struct client_object *object)
{
	struct client_object **first = &client->objects[object->kind];

	(void)pthread_mutex_lock(&client->lock); /* a plain mutex: cannot fail */
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
