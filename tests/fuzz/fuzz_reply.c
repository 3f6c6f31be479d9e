/*
 * The library and the replies of a false daemon: to Hello, then to a request.
 *
 * Input: the whole stream that the daemon's end sends.
 */
#include "client/lib/link/conn.h"
#include "tests/fuzz/fuzz.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listen_fd = -1;
static uint8_t stream[32768]; /* what the socket holds for sure */
static size_t stream_size;
static sem_t is_served; /* the stream is no longer needed */

static void *daemon_main(void *arg)
{
	char said[4096];

	(void)arg;
	for (;;) {
		int fd = accept(listen_fd, NULL, NULL);

		if (fd < 0)
			abort();
		(void)send(fd, stream, stream_size, MSG_NOSIGNAL); /* it may have hung up */
		(void)shutdown(fd, SHUT_WR);
		while (read(fd, said, sizeof(said)) > 0)
			;
		(void)close(fd);
		(void)sem_post(&is_served); /* far from its limit */
	}
	return NULL;
}

static void remove_socket(void)
{
	(void)unlink(address.sun_path);
}

static void setup(void)
{
	pthread_t thread;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/dsaio-fuzz-%d", getpid());
	listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(listen_fd, 8) < 0 || sem_init(&is_served, 0, 0) < 0 ||
	    pthread_create(&thread, NULL, daemon_main, NULL))
		abort();
	(void)atexit(remove_socket);
}

static void talk(void)
{
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__Request request = WIRE__REQUEST__INIT;
	struct dsaio_conn *conn = NULL;
	Wire__Reply *reply = NULL;
	int fd, r;

	r = conn_open(address.sun_path, NULL, &conn);
	assert(r <= 0 && (r == 0) == (conn != NULL));
	if (r < 0)
		return;
	request.body_case = WIRE__REQUEST__BODY_SLAB_NEW;
	request.slab_new = &slab_new;
	r = conn_call(conn, "a slab", &request, NULL, 0, &reply, &fd);
	assert(r <= 0);
	if (r == 0) {
		assert(reply->body_case == WIRE__REPLY__BODY_SLAB_NEW && reply->slab_new);
		(void)close(fd);
		wire__reply__free_unpacked(reply, NULL);
	}
	conn_close(conn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > sizeof(stream))
		return 0;
	if (listen_fd < 0)
		setup();
	memcpy(stream, data, size); /* the connection orders it */
	stream_size = size;
	talk();
	while (sem_wait(&is_served) < 0)
		;
	return 0;
}
