/*
 * The library and the replies of a false daemon: to Hello, then to a request, of those that make objects or hand
 * them over.
 *
 * Input: a byte that chooses the request, then the stream that the daemon's end sends.  Each frame has the
 * descriptors that its header announces.
 */
#include "client/lib/link/conn.h"
#include "proto/file_board.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_send.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listen_fd = -1;
static uint8_t stream[32768]; /* what the socket holds for sure */
static size_t stream_size;
static sem_t is_served; /* a connection is closed */
static _Atomic uint32_t n_accepted;
static int board_fd;

/* Requests, and the bodies and descriptors of their replies. */
static const struct {
	Wire__Request__BodyCase request;
	Wire__Reply__BodyCase reply;
	unsigned n_fds, n_reply_fds;
} kinds[] = {
	{ WIRE__REQUEST__BODY_SLAB_NEW, WIRE__REPLY__BODY_SLAB_NEW, 0, 1 },
	{ WIRE__REQUEST__BODY_SLAB_ADOPT, WIRE__REPLY__BODY_SLAB_ADOPT, 1, 0 },
	{ WIRE__REQUEST__BODY_SLAB_IMPORT, WIRE__REPLY__BODY_SLAB_IMPORT, 1, 0 },
	{ WIRE__REQUEST__BODY_FILE_ADD, WIRE__REPLY__BODY_FILE_ADD, 1, 0 },
	{ WIRE__REQUEST__BODY_HANDLE_OPEN, WIRE__REPLY__BODY_HANDLE_OPEN, 0, 1 },
	{ WIRE__REQUEST__BODY_CHANNEL_OPEN, WIRE__REPLY__BODY_CHANNEL_OPEN, 0, 3 },
};

/* The stream's next frame, or what is no frame; returns its bytes. */
static size_t send_frame(int fd, const uint8_t *bytes, size_t size)
{
	const int fds[FRAME_FDS_MAX] = { board_fd, board_fd, board_fd, board_fd };
	const size_t n_fds = size < FRAME_HEADER_BYTES ? 0 : bytes[4];
	uint32_t len;

	if (size >= FRAME_HEADER_BYTES) {
		memcpy(&len, bytes, sizeof(len));
		if (len < size - FRAME_HEADER_BYTES)
			size = FRAME_HEADER_BYTES + len;
	}
	(void)fuzz_send(fd, bytes, size, fds,
			n_fds <= FRAME_FDS_MAX ? n_fds : 0); /* it may have hung up */
	return size;
}

static void *daemon_main(void *arg)
{
	char said[4096];
	size_t sent;

	(void)arg;
	for (;;) {
		int fd;

		/* accept(2) holds a descriptor while it waits. */
		(void)poll(&(struct pollfd){ .fd = listen_fd, .events = POLLIN }, 1, -1);
		fd = accept(listen_fd, NULL, NULL);
		if (fd < 0)
			abort();
		atomic_fetch_add(&n_accepted, 1);
		sent = send_frame(fd, stream, stream_size);
		/* Hello and the request come first, unless the reply to Hello is none. */
		for (int i = 0; i < 2 && sent < stream_size; i++)
			if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20) > 0)
				(void)!read(fd, said, sizeof(said));
		while (sent < stream_size)
			sent += send_frame(fd, stream + sent, stream_size - sent);
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
	board_fd = memfd_create("board", MFD_CLOEXEC);
	if (board_fd < 0 || ftruncate(board_fd, (off_t)file_board_bytes(4096)) < 0)
		abort();
	listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(listen_fd, 8) < 0 || sem_init(&is_served, 0, 0) < 0 ||
	    pthread_create(&thread, NULL, daemon_main, NULL))
		abort();
	(void)atexit(remove_socket);
}

static void talk(unsigned kind)
{
	Wire__SlabNew slab_new = WIRE__SLAB_NEW__INIT;
	Wire__SlabAdopt slab_adopt = WIRE__SLAB_ADOPT__INIT;
	Wire__SlabImport slab_import = WIRE__SLAB_IMPORT__INIT;
	Wire__FileAdd file_add = WIRE__FILE_ADD__INIT;
	Wire__HandleOpen handle_open = WIRE__HANDLE_OPEN__INIT;
	Wire__ChannelOpen channel_open = WIRE__CHANNEL_OPEN__INIT;
	Wire__Request request = WIRE__REQUEST__INIT;
	void *const bodies[] = { &slab_new, &slab_adopt,  &slab_import,
				 &file_add, &handle_open, &channel_open };
	int sent = kinds[kind].n_fds ? dup(board_fd) : -1, fds[FRAME_FDS_MAX], r;
	struct dsaio_conn *conn = NULL;
	Wire__Reply *reply = NULL;

	r = conn_open(address.sun_path, NULL, &conn);
	assert(r <= 0 && (r == 0) == (conn != NULL));
	if (r < 0) {
		(void)close(sent);
		return;
	}
	request.body_case = kinds[kind].request;
	request.slab_new = bodies[kind]; /* whichever: it is a union */
	r = conn_call(conn, "an object", &request, &sent, kinds[kind].n_fds, &reply, fds);
	assert(r <= 0);
	if (r == 0) {
		assert(reply->body_case == kinds[kind].reply && reply->slab_new);
		for (unsigned i = 0; i < kinds[kind].n_reply_fds; i++)
			(void)close(fds[i]);
		wire__reply__free_unpacked(reply, NULL);
	}
	conn_close(conn);
}

/* The library may have connected more than once: until all of its connections are closed, and one after them. */
static void await_daemon(void)
{
	static uint32_t n_served;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char bytes[4096];

	stream_size = 0;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		abort();
	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
	(void)close(fd);
	while (n_served != atomic_load(&n_accepted))
		n_served += sem_wait(&is_served) == 0;
}

static int lowest_fd(void)
{
	int fd = dup(listen_fd);

	(void)close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t kind;
	int lowest;

	take_bytes(&data, &size, &kind, 1);
	if (size > sizeof(stream))
		return 0;
	if (listen_fd < 0)
		setup();
	lowest = lowest_fd();
	memcpy(stream, data, size); /* the connection orders it */
	stream_size = size;
	talk(kind % (sizeof(kinds) / sizeof(kinds[0])));
	await_daemon();
	assert(lowest_fd() == lowest);
	return 0;
}
