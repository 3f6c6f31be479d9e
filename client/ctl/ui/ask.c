#include "client/ctl/ui/ask.h"

#include "client/ctl/ui/stop.h"
#include "client/lib/api/client.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_path(const char *store)
{
	return strchr(store, '/') || strcmp(store, ".") == 0 || strcmp(store, "..") == 0;
}

static int connect_once(struct ctl *ctl, const char *dir, struct dsaio_client **client)
{
	ctl->only_looks = true;
	return *client ? CTL_OK : ctl_connect(ctl, &dir, 1, client);
}

/* A private daemon gets a store for this directory: the path itself, or the one that has it. */
static int connect_for_path(struct ctl *ctl, const char *path, struct dsaio_client **client)
{
	_cleanup_(freep) char *copy = strdup(path);
	struct stat st;

	if (!copy)
		return ctl_fail(ctl, "out of memory");
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return connect_once(ctl, path, client);
	return connect_once(ctl, dirname(copy), client);
}

/* Takes the descriptor (-1: none). */
static int call(const struct ctl *ctl, struct dsaio_client *client, const char *what,
		Wire__Request *request, int fd, Wire__Reply **ret_reply)
{
	struct dsaio_conn *conn = client_conn(client);
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

int ask_request(struct ctl *ctl, struct dsaio_client *client, const char *what,
		Wire__Request *request, Wire__Reply **ret_reply)
{
	return call(ctl, client, what, request, -1, ret_reply);
}

/*
 * Returns the pointers of the first array, which is freed, and those of the second.  NULL: out of
 * memory.
 */
static void *joined(void *first, size_t n_first, const void *second, size_t n_second)
{
	/* One more, so that there is an array also if both are empty. */
	void **all = reallocarray(first, n_first + n_second + 1, sizeof(*all));

	if (all && n_second)
		memcpy(all + n_first, second, n_second * sizeof(*all));
	return all;
}

/* Appends the handles of a page to those of the same client on earlier pages. */
static int client_add_page(Wire__Client *all, Wire__Client *page)
{
	void *handles = joined(all->handles, all->n_handles, page->handles, page->n_handles);

	if (!handles)
		return -ENOMEM;
	all->handles = handles;
	all->n_handles += page->n_handles;
	page->n_handles = 0;
	return 0;
}

/* Appends the stores and clients of a page to those of earlier pages. */
static int status_add_page(Wire__StatusReply *all, Wire__StatusReply *page)
{
	Wire__Client *last = all->n_clients ? all->clients[all->n_clients - 1] : NULL;
	Wire__Client *first = page->n_clients ? page->clients[0] : NULL;
	void *grown;

	all->n_all_clients = page->n_all_clients;
	if (last && first && last->client == first->client) { /* its handles are on both pages */
		if (client_add_page(last, first) < 0)
			return -ENOMEM;
		wire__client__free_unpacked(first, NULL);
		page->n_clients--;
		memmove(page->clients, page->clients + 1, page->n_clients * sizeof(first));
	}
	grown = joined(all->stores, all->n_stores, page->stores, page->n_stores);
	if (!grown)
		return -ENOMEM;
	all->stores = grown;
	all->n_stores += page->n_stores;
	page->n_stores = 0;
	grown = joined(all->clients, all->n_clients, page->clients, page->n_clients);
	if (!grown)
		return -ENOMEM;
	all->clients = grown;
	all->n_clients += page->n_clients;
	page->n_clients = 0;
	return 0;
}

/* Takes out the connection that asks: a reader means the others.  It has no handles. */
static void status_drop_own(Wire__StatusReply *all)
{
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

/* has_clients: also the pages that have only clients.  Else with histograms. */
static int ask_pages(struct ctl *ctl, struct dsaio_client **client, bool has_clients,
		     Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__Status status = WIRE__STATUS__INIT;
	Wire__StatusPage asked = WIRE__STATUS_PAGE__INIT;
	_cleanup_(wire_replyp) Wire__Reply *all = NULL;
	int r = connect_once(ctl, ".", client);

	if (r != CTL_OK)
		return r;
	request.body_case = WIRE__REQUEST__BODY_STATUS;
	request.status = &status;
	status.with_histograms = ctl->wants_histograms || !has_clients;
	r = call(ctl, *client, "status", &request, -1, &all);
	if (r != CTL_OK)
		return r;
	while (all->status->next && (has_clients || !all->status->next->client)) {
		_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
		Wire__StatusPage *next = all->status->next;

		if (!page_is_later(next, status.page))
			return ctl_fail(ctl, "status: the daemon's pages do not come to an end: is "
					     "it dsaiod " DSAIO_VERSION "?");
		asked.store = next->store;
		asked.client = next->client;
		asked.handle = next->handle;
		status.page = &asked;
		r = call(ctl, *client, "status", &request, -1, &reply);
		if (r != CTL_OK)
			return r;
		if (status_add_page(all->status, reply->status) < 0)
			return ctl_fail(ctl, "out of memory");
		wire__status_page__free_unpacked(next, NULL);
		all->status->next = reply->status->next;
		reply->status->next = NULL;
	}
	*ret_reply = TAKE_PTR(all);
	return CTL_OK;
}

int ask_metrics(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply)
{
	Wire__StatusReply *all;
	int r = ask_pages(ctl, client, false, ret_reply);

	if (r != CTL_OK)
		return r;
	all = (*ret_reply)->status;
	/* The connection that asks is no client, as in ask_status(). */
	all->n_all_clients += (all->others ? all->others->clients : 0) - 1;
	for (size_t i = 0; i < all->n_users; i++)
		if (!all->users[i]->is_rest && all->users[i]->uid == geteuid())
			all->users[i]->clients--;
	return CTL_OK;
}

int ask_status(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply)
{
	int r = ask_pages(ctl, client, true, ret_reply);

	if (r == CTL_OK)
		status_drop_own((*ret_reply)->status);
	return r;
}

/*
 * A path is sent as a descriptor.  O_RDONLY of a directory lets the daemon ask for its file system.
 * O_PATH of a file needs no right to read it and wakes no device.
 */
static int find_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
		      char **ret_name, int *ret_fd)
{
	int r;

	if (!store[0])
		return ctl_usage(ctl, "the store's name is empty");
	if (!is_path(store)) {
		*ret_name = (char *)store;
		return connect_once(ctl, ".", client);
	}
	r = connect_for_path(ctl, store, client);
	if (r != CTL_OK)
		return r;
	*ret_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		*ret_fd = open(store, O_PATH | O_CLOEXEC);
	if (*ret_fd < 0)
		return ctl_fail(ctl, "%s: %s", store, strerror(errno));
	return CTL_OK;
}

/* A request about the store, whose name goes to *name, a field of the request. */
static int call_on_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
			 char **name, Wire__Request *request, Wire__Reply **ret_reply)
{
	_cleanup_(closep) int fd = -1;
	int r = find_store(ctl, client, store, name, &fd);

	return r == CTL_OK ? call(ctl, *client, store, request, TAKE_FD(fd), ret_reply) : r;
}

int ask_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
	      Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__StoreGet get = WIRE__STORE_GET__INIT;

	request.body_case = WIRE__REQUEST__BODY_STORE_GET;
	request.store_get = &get;
	return call_on_store(ctl, client, store, &get.name, &request, ret_reply);
}

int ask_profile_set(struct ctl *ctl, struct dsaio_client **client, const char *store,
		    Wire__Profile *profile, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;

	set.profile = profile;
	request.body_case = WIRE__REQUEST__BODY_PROFILE_SET;
	request.profile_set = &set;
	return call_on_store(ctl, client, store, &set.name, &request, ret_reply);
}

int ask_limit_set(struct ctl *ctl, struct dsaio_client **client, Wire__LimitSet *set,
		  Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	int r = connect_once(ctl, ".", client);

	request.body_case = WIRE__REQUEST__BODY_LIMIT_SET;
	request.limit_set = set;
	return r == CTL_OK ? call(ctl, *client, "limit", &request, -1, ret_reply) : r;
}

int ask_store_drain(struct ctl *ctl, struct dsaio_client **client, const char *store,
		    Wire__DrainMode mode, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;

	request.body_case = WIRE__REQUEST__BODY_STORE_DRAIN;
	request.store_drain = &drain;
	drain.mode = mode;
	return call_on_store(ctl, client, store, &drain.name, &request, ret_reply);
}

int ask_reload(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__Reload reload = WIRE__RELOAD__INIT;
	int r = connect_once(ctl, ".", client);

	request.body_case = WIRE__REQUEST__BODY_RELOAD;
	request.reload = &reload;
	return r == CTL_OK ? call(ctl, *client, "reload", &request, -1, ret_reply) : r;
}

int ask_client_kill(struct ctl *ctl, struct dsaio_client **client, uint32_t number,
		    const char *reason, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;
	int r = connect_once(ctl, ".", client);

	kill.client = number;
	kill.reason = (char *)(uintptr_t)reason; /* only read */
	request.body_case = WIRE__REQUEST__BODY_CLIENT_KILL;
	request.client_kill = &kill;
	return r == CTL_OK ? call(ctl, *client, "kill", &request, -1, ret_reply) : r;
}
