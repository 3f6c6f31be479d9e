/* The library and a daemon of another release. */
#include "client/lib/dsaio.h"
#include "client/lib/link/conn.h"
#include "proto/file_board.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include "tests/unit/daemon_end.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define OTHER_RELEASE "9.8.7"
#define MAX_FILES 16u

/* The daemon refuses Hello, or takes that version of the protocol. */
static const struct {
	uint32_t version; /* 0: it refuses */
	int result;
} daemons[] = {
	{ 0, -EPROTONOSUPPORT },
	{ CONN_VERSION_MAX, 0 },
	{ CONN_VERSION_MAX + 1, -EPROTONOSUPPORT },
};

static char path[SOCKET_PATH_BYTES];
static int listen_fd;
static uint32_t version;
static pthread_t thread;

/* ---- the daemon ---- */

static uint64_t hello_receive(int fd)
{
	struct frame_reader reader = { 0 };
	struct frame frame;
	Wire__Request *request = daemon_end_read(&reader, fd, &frame);
	uint64_t seq;

	ck_assert_ptr_nonnull(request);
	ck_assert_int_eq((int)request->body_case, (int)WIRE__REQUEST__BODY_HELLO);
	seq = request->seq;
	wire__request__free_unpacked(request, NULL);
	frame_deinit(&frame);
	frame_reader_deinit(&reader);
	return seq;
}

static void hello_reply(int fd, uint64_t seq)
{
	Wire__Reply reply = WIRE__REPLY__INIT;
	Wire__HelloReply hello = WIRE__HELLO_REPLY__INIT;
	int board = -1;

	reply.seq = seq;
	if (!version) {
		reply.error = -EPROTONOSUPPORT;
		reply.text =
			(char *)(uintptr_t) "hello: the client speaks protocol versions 1 to 1, "
					    "the daemon (" OTHER_RELEASE ") 2 to 3";
	} else {
		reply.body_case = WIRE__REPLY__BODY_HELLO;
		reply.hello = &hello;
		hello.version = version;
		hello.max_files = MAX_FILES;
		hello.daemon_version = (char *)(uintptr_t)OTHER_RELEASE; /* only read */
		board = memfd_create("board", MFD_CLOEXEC);
		ck_assert_int_eq(ftruncate(board, (off_t)file_board_bytes(MAX_FILES)), 0);
	}
	ck_assert_int_eq(daemon_end_reply(fd, &reply, board), 0);
}

/* Until the client hangs up. */
static void *daemon_main(void *arg)
{
	_cleanup_(closep) int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct pollfd end = { .fd = fd, .events = POLLRDHUP };

	ck_assert_int_ge(fd, 0);
	hello_reply(fd, hello_receive(fd));
	ck_assert_int_eq(poll(&end, 1, -1), 1);
	return arg;
}

/* At the place of the user's own daemon. */
static void setup(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	make_dir();
	(void)snprintf(path, sizeof(path), "%s/dsaiod", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	(void)strcat(path, "/" SOCKET_NAME);
	memcpy(address.sun_path, path, sizeof(path));
	listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listen_fd, 1), 0);
	ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
	ck_assert_int_eq(unsetenv("DSAIO_SOCKET"), 0);
}

static void teardown(void)
{
	(void)close(listen_fd);
	remove_dir();
}

/* ---- the library ---- */

static int connect_to(const char *named, uint32_t version_then, struct dsaio_conn **ret_conn)
{
	int r;

	version = version_then;
	ck_assert_int_eq(pthread_create(&thread, NULL, daemon_main, NULL), 0);
	r = conn_open(named, NULL, ret_conn);
	if (r == 0) {
		ck_assert_str_eq((*ret_conn)->facts.daemon_version, OTHER_RELEASE);
		conn_close(*ret_conn);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	return r;
}

TEST_TABLE(a_daemon_of_another_release_serves_if_the_protocol_agrees, daemons)
{
	struct dsaio_conn *conn;
	int r = connect_to(path, daemons[_i].version, &conn);

	ck_assert_msg(r == daemons[_i].result, "%d: %s", r, dsaio_error());
	if (r == 0)
		return;
	ck_assert_msg(strstr(dsaio_error(), OTHER_RELEASE) &&
			      strstr(dsaio_error(), "version " DSAIO_VERSION) &&
			      strstr(dsaio_error(), path) && !strstr(dsaio_error(), "minute"),
		      "%s", dsaio_error());
}

TEST(of_the_users_own_daemon_the_error_says_when_it_ends)
{
	struct dsaio_conn *conn;

	if (access(SOCKET_SYSTEM, F_OK) == 0) {
		(void)printf("skip client_hello: this host has " SOCKET_SYSTEM "\n");
		return;
	}
	ck_assert_int_eq(connect_to(NULL, 0, &conn), -EPROTONOSUPPORT);
	ck_assert_msg(strstr(dsaio_error(), OTHER_RELEASE) && strstr(dsaio_error(), "minute"), "%s",
		      dsaio_error());
}

FIXTURE(setup, teardown)
TEST_MAIN
