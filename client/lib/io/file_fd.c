#include "client/lib/io/file_fd.h"

#include "client/lib/base/fd.h"
#include "client/lib/io/file_named.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#define SPARED_MAX 64 /* descriptors closed at a time: a guess */

void file_fds_closep(struct file_fds *fds)
{
	closep(&fds->direct); /* what has to last was synced */
	closep(&fds->second);
}

struct file_fds file_fd_give_up(struct dsaio_file *file)
{
	if (file->fds.direct >= 0)
		file->client->files.n_fds--;
	return (struct file_fds){ TAKE_FD(file->fds.direct), TAKE_FD(file->fds.second) };
}

/* Under files.lock. */
static int fd_take_kept(struct dsaio_file *file)
{
	if (file->fds.direct >= 0)
		file->n_fd_users++;
	return file->fds.direct;
}

/*
 * This process has as many descriptors open as it may: closes some of ours, which can be got back.
 * false: there is none.  errno stays.
 */
static bool files_spare_fds(struct dsaio_client *client)
{
	struct file_fds fds[SPARED_MAX];
	int n = 0, error = errno;

	(void)pthread_mutex_lock(&client->files.lock); /* plain mutexes: cannot fail */
	(void)pthread_mutex_lock(&client->lock);
	LIST_EACH(struct dsaio_file, file, &client->objects[CLIENT_FILE], object.node)
		/* Those with open ops may have to be handed over to the next daemon. */
		if (n < SPARED_MAX && file->fds.direct >= 0 && !file->n_fd_users &&
		    atomic_load(&file->n_refs) <= file->n_opens)
			fds[n++] = file_fd_give_up(file);
	(void)pthread_mutex_unlock(&client->lock);
	(void)pthread_mutex_unlock(&client->files.lock);
	for (int i = 0; i < n; i++)
		file_fds_closep(&fds[i]);
	errno = error;
	return n;
}

bool file_fd_may_retry(struct dsaio_client *client, int fd)
{
	return fd < 0 && errno == EMFILE && files_spare_fds(client);
}

static int daemon_get(struct dsaio_file *file, int *ret_fd)
{
	Wire__FileGet body = WIRE__FILE_GET__INIT;
	Wire__Request request = WIRE_REQUEST(FILE_GET, file_get, &body);
	int r;

	body.file = file->session.id;
	do
		r = conn_call(file->client->conn, "file", &request, NULL, 0, NULL, ret_fd);
	while (r == -EMFILE && files_spare_fds(file->client));
	return r;
}

int file_refused(const struct dsaio_file *file)
{
	int r = atomic_load(&file->session.error);

	return r < 0 ? error_fail_errno(
			       r, "%s: it could not be handed over after a restart of the daemon",
			       file->name)
		     : 0;
}

int file_fd_take_kept(struct dsaio_file *file)
{
	LOCKED(&file->client->files.lock);

	return fd_take_kept(file);
}

int file_fd_take(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	_cleanup_(closep) int got = -1;
	int fd, r = file_refused(file);

	if (r < 0)
		return r;
	fd = file_fd_take_kept(file);
	if (fd >= 0)
		return fd;
	r = daemon_get(file, &got);
	if (r == 0) /* refused meanwhile: what came may be another file's */
		r = file_refused(file);
	if (r < 0)
		return r;
	LOCKED(&files->lock);
	if (file->fds.direct < 0) { /* else another thread was first */
		file->fds.direct = TAKE_FD(got);
		files->n_fds++;
	}
	fd = fd_take_kept(file);
	return fd;
}

void file_fd_release(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	_cleanup_(file_fds_closep) struct file_fds unwanted = { -1, -1 };
	LOCKED(&files->lock);

	if (!--file->n_fd_users && (!file->n_opens || files->n_fds > files->n_fds_wanted))
		unwanted = file_fd_give_up(file);
}

void file_fd_need_second(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	_cleanup_(closep) int second = -1;
	char path[32];
	bool is_wanted;
	int fd;

	if (file->named.id) /* its writes are on the device when they have ended */
		return;
	(void)pthread_mutex_lock(&files->lock);
	is_wanted = file->client->recovery.timeout_nsec && file->fds.second < 0;
	fd = is_wanted ? fd_take_kept(file) : -1;
	is_wanted &= fd < 0 && files->n_fds < files->n_fds_wanted;
	(void)pthread_mutex_unlock(&files->lock);
	if (is_wanted &&
	    !conn_is_away(file->client->conn)) /* it came from the cache, without one */
		fd = file_fd_take(file);
	if (fd < 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	second = fd_above_stdio(
		open(path, file->entry.key.access_mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	(void)pthread_mutex_lock(&files->lock);
	if (file->fds.second < 0) /* else another thread was first */
		file->fds.second = TAKE_FD(second);
	(void)pthread_mutex_unlock(&files->lock);
	file_fd_release(file);
}

int file_fd_second_error(struct dsaio_file *file)
{
	struct client_files *files = &file->client->files;
	int fd, r = 0;

	(void)pthread_mutex_lock(&files->lock);
	fd = file->fds.second;
	if (fd >= 0)
		(void)fd_take_kept(file);
	(void)pthread_mutex_unlock(&files->lock);
	if (fd < 0)
		return -ECONNRESET;
	/* Reports as fsync(2).  No page is there that it could wait for. */
	if (sync_file_range(fd, INT64_MAX - 1, 1, SYNC_FILE_RANGE_WAIT_BEFORE) < 0)
		r = -errno;
	file_fd_release(file);
	return r;
}

int file_statx(const struct cache_key *key, int sync, struct statx *ret_stx)
{
	int r = key->path ? statx(AT_FDCWD, key->path, sync, FILE_STATX_MASK, ret_stx)
			  : statx(key->fd, "", AT_EMPTY_PATH | sync, FILE_STATX_MASK, ret_stx);

	return r < 0 ? -errno : 0;
}

bool file_is_same(const struct dsaio_file *file, const struct statx *stx)
{
	struct cache_identity identity = cache_identity_of(stx);

	return cache_is_same(&file->identity, &identity);
}

static int64_t fd_size(const struct dsaio_file *file, int fd)
{
	struct stat st;
	uint64_t bytes;

	if (file->is_block_device)
		return ioctl(fd, BLKGETSIZE64, &bytes) < 0 ? -errno : (int64_t)bytes;
	return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}

int64_t file_size_seen(struct dsaio_file *file, int sync)
{
	struct statx stx;
	int fd, r;

	fd = file_fd_take_kept(file);
	if (fd < 0)
		return file_statx(&file->entry.key, sync, &stx) == 0 && file_is_same(file, &stx)
			       ? (int64_t)stx.stx_size
			       : -1;
	r = statx(fd, "", AT_EMPTY_PATH | sync, FILE_STATX_MASK, &stx);
	file_fd_release(file);
	return r < 0 ? -1 : (int64_t)stx.stx_size;
}

int64_t file_size(struct dsaio_file *file)
{
	int64_t size;
	int fd;

	if (file->named.id)
		return file_named_size(file);
	size = file->is_block_device ? -1 : file_size_seen(file, AT_STATX_SYNC_AS_STAT);
	if (size >= 0)
		return size;
	fd = file_fd_take(file);
	if (fd < 0)
		return fd;
	size = fd_size(file, fd);
	file_fd_release(file);
	return size;
}
