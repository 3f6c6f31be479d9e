#include "client/ctl/ask.h"

#include "client/lib/client.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_path(const char *store)
{
	return strchr(store, '/') || strcmp(store, ".") == 0 || strcmp(store, "..") == 0;
}

static int connect_once(struct ctl *ctl, const char *dir, struct dsaio_client **client)
{
	ctl->only_looks = true;
	return *client ? CTL_OK : ctl_connect(ctl, &dir, 1, client);
}

/* For the store of a private daemon: the directory that is the path, or has it. */
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
	if (conn_call(client_conn(client), what, request, &fd, fd >= 0, ret_reply, NULL, NULL) < 0)
		return ctl_fail(ctl, "%s", dsaio_error());
	return CTL_OK;
}

int ask_status(struct ctl *ctl, struct dsaio_client **client, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__Status status = WIRE__STATUS__INIT;
	int r = connect_once(ctl, ".", client);

	if (r != CTL_OK)
		return r;
	request.body_case = WIRE__REQUEST__BODY_STATUS;
	request.status = &status;
	return call(ctl, *client, "status", &request, -1, ret_reply);
}

/*
 * A path goes as a descriptor: of a directory one that can be asked what file system it is on; of
 * all else one that needs no right to read the file, and wakes no device.
 */
static int find_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
		      char **ret_name, int *ret_fd)
{
	if (!store[0])
		return ctl_usage(ctl, "the store's name is empty");
	if (!is_path(store)) {
		*ret_name = (char *)store;
		return connect_once(ctl, ".", client);
	}
	*ret_fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		*ret_fd = open(store, O_PATH | O_CLOEXEC);
	if (*ret_fd < 0)
		return ctl_fail(ctl, "%s: %s", store, strerror(errno));
	return connect_for_path(ctl, store, client);
}

int ask_store(struct ctl *ctl, struct dsaio_client **client, const char *store,
	      Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__StoreGet get = WIRE__STORE_GET__INIT;
	_cleanup_(closep) int fd = -1;
	int r = find_store(ctl, client, store, &get.name, &fd);

	if (r != CTL_OK)
		return r;
	request.body_case = WIRE__REQUEST__BODY_STORE_GET;
	request.store_get = &get;
	return call(ctl, *client, store, &request, TAKE_FD(fd), ret_reply);
}

int ask_profile_set(struct ctl *ctl, struct dsaio_client **client, const char *store,
		    Wire__Profile *profile, Wire__Reply **ret_reply)
{
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__ProfileSet set = WIRE__PROFILE_SET__INIT;
	_cleanup_(closep) int fd = -1;
	int r = find_store(ctl, client, store, &set.name, &fd);

	if (r != CTL_OK)
		return r;
	set.profile = profile;
	request.body_case = WIRE__REQUEST__BODY_PROFILE_SET;
	request.profile_set = &set;
	return call(ctl, *client, store, &request, TAKE_FD(fd), ret_reply);
}
