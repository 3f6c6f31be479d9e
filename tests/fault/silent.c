/*
 * A stopped daemon: close and disconnect calls give up after 30 s, except while ops use memory of the
 * caller.
 */
#include "tests/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct closer {
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	struct dsaio_op *op;
	void *memory;
	pthread_t thread;
	_Atomic bool is_done;
};

static void closer_open(struct closer *closer, const struct daemon *daemon)
{
	closer->client = client_open(daemon);
	CHECK_CALL(dsaio_handle_open(closer->client, NULL, &closer->handle));
	CHECK_CALL(dsaio_open(closer->client, daemon_path(daemon, "f"), O_RDONLY, NULL,
			      &closer->file));
	CHECK_CALL(dsaio_alloc(closer->client, 4096, NULL, &closer->memory));
	CHECK_EQ(dsaio_pread(closer->handle, closer->file, closer->memory, 4096, 0), 4096);
}

static void *handle_main(void *arg)
{
	struct closer *closer = arg;

	(void)dsaio_handle_close(closer->handle, -1);
	atomic_store(&closer->is_done, true);
	return NULL;
}

static void *disconnect_main(void *arg)
{
	struct closer *closer = arg;

	(void)dsaio_disconnect(closer->client);
	atomic_store(&closer->is_done, true);
	return NULL;
}

static void op_start(struct closer *closer, void *memory)
{
	CHECK_CALL(dsaio_pread_async(closer->handle, closer->file, memory, 4096, 0, &closer->op));
}

TEST(stopped, "handle_close and disconnect had no end with a stopped daemon")
{
	struct closer handle = { 0 }, client = { 0 }, imported = { 0 };
	struct daemon *daemon;
	void *shared;
	int fd;

	daemon = daemon_start(NULL);
	file_make_pattern(daemon_path(daemon, "f"), 4096, 1);
	closer_open(&handle, daemon);
	closer_open(&client, daemon);
	closer_open(&imported, daemon);
	fd = (int)CHECK_SYS(memfd_create("shared", MFD_CLOEXEC));
	CHECK_SYS(ftruncate(fd, 4096));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_CALL(fd_register(imported.client, fd, 0, 4096, shared));

	process_stop(daemon->pid);
	op_start(&handle, handle.memory);
	op_start(&client, client.memory);
	op_start(&imported, shared);
	CHECK_EQ(pthread_create(&handle.thread, NULL, handle_main, &handle), 0);
	CHECK_EQ(pthread_create(&client.thread, NULL, disconnect_main, &client), 0);
	CHECK_EQ(pthread_create(&imported.thread, NULL, handle_main, &imported), 0);
	CHECK_EQ(pthread_join(handle.thread, NULL), 0);
	CHECK_EQ(pthread_join(client.thread, NULL), 0);

	/* The daemon may still write to the memory: nobody else gets it. */
	CHECK_FAILS(dsaio_op_result(handle.op), -ECONNRESET, "daemon has gone away");
	CHECK_FAILS(dsaio_free(handle.client, handle.memory), -EBUSY, "open op");
	CHECK_FAILS(dsaio_handle_open(handle.client, NULL, &handle.handle), -ENOTCONN,
		    "connection is broken");
	dsaio_op_free(handle.op);
	(void)dsaio_disconnect(handle.client);

	/* The caller's own is waited for. */
	CHECK(!atomic_load(&imported.is_done));
	CHECK_SYS(kill(daemon->pid, SIGCONT));
	CHECK_EQ(pthread_join(imported.thread, NULL), 0);
	CHECK(dsaio_op_result(imported.op) == 4096 || dsaio_op_result(imported.op) < 0);
	(void)dsaio_disconnect(imported.client);
	CHECK(daemon_wait_clients(daemon, 0, 0));
	CHECK_SYS(munmap(shared, 4096));
	CHECK_SYS(close(fd));
}

TEST_MAIN
