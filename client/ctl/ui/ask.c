#include "client/ctl/ui/ask.h"

#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "client/lib/api/client.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_path(const char *store)
{
	return strchr(store, '/') || strcmp(store, ".") == 0 || strcmp(store, "..") == 0;
}

/* A private daemon gets a store for this path. */
static int connect_once(struct ctl *ctl, const char *path)
{
	ctl->only_looks = true;
	return ctl->client ? CTL_OK : ctl_connect(ctl, &path, 1, &ctl->client);
}

/* Takes the descriptor (-1: none). */
static int call(const struct ctl *ctl, const char *what, Wire__Request *request, int fd,
		Wire__Reply **ret_reply)
{
	struct dsaio_conn *conn = client_conn(ctl->client);
	int r;

	if (ctl->timeout_nsec && fd < 0)
		r = conn_call_for(conn, what, request, NULL, 0, clock_nsec() + ctl->timeout_nsec,
				  ret_reply, NULL);
	else
		r = conn_call(conn, what, request, &fd, fd >= 0, ret_reply, NULL);
	if (r < 0)
		/* After a signal the command itself shut the connection down (stop.h). */
		return ctl_fail(ctl, "%s", stop_signal() ? "interrupted" : dsaio_error());
	return CTL_OK;
}

int ask(struct ctl *ctl, const char *what, Wire__Request__BodyCase kind, void *body,
	Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	int r = connect_once(ctl, ".");

	request.body_case = kind;
	request.status = body; /* each member of the union is a pointer */
	return r == CTL_OK ? call(ctl, what, &request, -1, ret_reply) : r;
}

/* Moves the pointers of the second array behind those of the first, which grows and is returned. */
static void *joined(void *first, size_t *n_first, const void *second, size_t *n_second)
{
	/* One more, so that there is an array also if both are empty. */
	void **all = need_memory(reallocarray(first, *n_first + *n_second + 1, sizeof(*all)));

	if (*n_second)
		memcpy(all + *n_first, second, *n_second * sizeof(*all));
	*n_first += *n_second;
	*n_second = 0;
	return all;
}

/* Appends the stores and clients of a page to those of earlier pages. */
static void status_add_page(Wire__StatusReply *all, Wire__StatusReply *page)
{
	Wire__Client *last = all->n_clients ? all->clients[all->n_clients - 1] : NULL;
	Wire__Client *first = page->n_clients ? page->clients[0] : NULL;

	all->n_all_clients = page->n_all_clients;
	if (last && first && last->client == first->client) { /* its handles are on both pages */
		last->handles = joined(last->handles, &last->n_handles, first->handles,
				       &first->n_handles);
		wire__client__free_unpacked(first, NULL);
		page->n_clients--;
		memmove(page->clients, page->clients + 1, page->n_clients * sizeof(first));
	}
	all->stores = joined(all->stores, &all->n_stores, page->stores, &page->n_stores);
	all->clients = joined(all->clients, &all->n_clients, page->clients, &page->n_clients);
}

/* Takes out the connection that asks: a reader means the others.  It has no handles. */
static void status_drop_own(Wire__StatusReply *all)
{
	for (size_t i = 0; i < all->n_users; i++)
		if (!all->users[i]->is_rest && all->users[i]->uid == geteuid())
			all->users[i]->clients--;
	for (size_t i = 0; i < all->n_clients; i++) {
		if (all->clients[i]->pid != (uint32_t)getpid())
			continue;
		wire__client__free_unpacked(all->clients[i], NULL);
		all->n_clients--;
		all->n_all_clients--;
		memmove(all->clients + i, all->clients + i + 1,
			(all->n_clients - i) * sizeof(*all->clients));
		return;
	}
}

/* Whether a page begins after the one that was requested.  So the number of pages is bounded. */
static bool page_is_later(const Wire__StatusPage *page, const Wire__StatusPage *asked)
{
	if (!asked)
		return page->store || page->client;
	if (page->client != asked->client)
		return page->client > asked->client;
	return page->client ? page->handle > asked->handle : page->store > asked->store;
}

int ask_status(struct ctl *ctl, Wire__Reply **ret_reply)
{
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__StatusPage asked = WIRE__STATUS_PAGE__INIT;
	_cleanup_(wire_replyp) Wire__Reply *all = NULL;
	int r;

	status.with_histograms = ctl->wants_histograms;
	r = ask(ctl, "status", WIRE__REQUEST__BODY_STATUS, &status, &all);
	if (r != CTL_OK)
		return r;
	while (all->status->next) {
		_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
		Wire__StatusPage *next = all->status->next;

		if (!page_is_later(next, status.page))
			return ctl_fail(ctl, "status: the daemon's pages do not come to an end: is "
					     "it dsaiod " DSAIO_VERSION "?");
		asked.store = next->store;
		asked.client = next->client;
		asked.handle = next->handle;
		status.page = &asked;
		r = ask(ctl, "status", WIRE__REQUEST__BODY_STATUS, &status, &reply);
		if (r != CTL_OK)
			return r;
		status_add_page(all->status, reply->status);
		wire__status_page__free_unpacked(next, NULL);
		all->status->next = reply->status->next;
		reply->status->next = NULL;
	}
	status_drop_own(all->status);
	*ret_reply = TAKE_PTR(all);
	return CTL_OK;
}

/*
 * A path is sent as a descriptor.  O_RDONLY of a directory lets the daemon ask for its file system.
 * O_PATH of a file needs no right to read it and wakes no device.
 */
static int find_store(struct ctl *ctl, const char *store, char **ret_name, int *ret_fd)
{
	int r;

	if (!store[0])
		return ctl_usage(ctl, "the store's name is empty");
	if (!is_path(store)) {
		*ret_name = (char *)store;
		return connect_once(ctl, ".");
	}
	r = connect_once(ctl, store);
	if (r != CTL_OK)
		return r;
	*ret_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		*ret_fd = open(store, O_PATH | O_CLOEXEC);
	if (*ret_fd < 0)
		return ctl_fail(ctl, "%s: %s", store, strerror(errno));
	return CTL_OK;
}

int ask_on_store(struct ctl *ctl, const char *store, Wire__Request__BodyCase kind, void *body,
		 char **name, Wire__Reply **ret_reply)
{
	_cleanup_(closep) int fd = -1;
	Wire__Request request = WIRE__REQUEST__INIT;
	int r = find_store(ctl, store, name, &fd);

	request.body_case = kind;
	request.status = body;
	return r == CTL_OK ? call(ctl, store, &request, TAKE_FD(fd), ret_reply) : r;
}

int ask_store(struct ctl *ctl, const char *store, Wire__Reply **ret_reply)
{
	Wire__StoreGet get = WIRE__STORE_GET__INIT;

	return ask_on_store(ctl, store, WIRE__REQUEST__BODY_STORE_GET, &get, &get.name, ret_reply);
}

int ask_profile_set(struct ctl *ctl, const char *store, Wire__Profile *profile,
		    Wire__Reply **ret_reply)
{
	Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;

	set.profile = profile;
	return ask_on_store(ctl, store, WIRE__REQUEST__BODY_PROFILE_SET, &set, &set.name,
			    ret_reply);
}
