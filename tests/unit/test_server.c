/*
 * The server with a socket in a temporary directory: who connects, and when it stops.
 */
#include "daemon/control/server.h"

#include "proto/dsaio.pb-c.h"
#include "proto/frame.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct config config;
static struct event_base *base;
static struct server *server;
static struct error error;
static char path[64];

static void setup(void)
{
	make_dir();
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	ck_assert_int_eq(setenv("STATE_DIRECTORY", "/nonexistent/state", 1), 0);
	ck_assert_int_eq(unsetenv("LISTEN_FDS"), 0);
	ck_assert_int_eq(config_init(&config), 0);
	config_set_user(&config);
	config.idle_exit_sec = 0;
	ck_assert_int_eq(config_set_socket(&config, path, &error), 0);
	ck_assert_int_eq(config_check(&config, &error), 0);
	base = event_base_new();
}

static void teardown(void)
{
	server_free(server);
	server = NULL;
	ck_assert_int_eq(access(path, F_OK), -1);
	event_base_free(base);
	config_deinit(&config);
	remove_dir();
}

static void start(void)
{
	ck_assert_msg(server_new(&config, base, NULL, &server, &error) == 0, "%s", error.text);
}

static int connect_one(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)strcpy(address.sun_path, path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The next reply that comes; its text is in error. */
static int reply(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };
	struct frame_reader reader = { 0 };
	struct frame frame;
	Wire__Reply *wire;
	char why[200];
	int r;

	while (poll(&event, 1, 0) == 0)
		ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(frame_read(&reader, fd, &frame, why, sizeof(why)), 1);
	wire = wire__reply__unpack(NULL, frame.len, frame.body);
	ck_assert_ptr_nonnull(wire);
	r = wire->error;
	(void)snprintf(error.text, sizeof(error.text), "%s", wire->text);
	for (unsigned i = 0; i < frame.n_fds; i++)
		closep(&frame.fds[i]);
	wire__reply__free_unpacked(wire, NULL);
	frame_reader_deinit(&reader);
	return r;
}

static void hello(int fd)
{
	Wire__Hello hello = WIRE__HELLO__INIT;
	Wire__Request request = WIRE__REQUEST__INIT;
	struct frame_writer writer = { 0 };
	uint8_t body[200];

	hello.name = (char *)(uintptr_t) "test"; /* only read */
	hello.version_min = hello.version_max = 1;
	request.seq = 1;
	request.body_case = WIRE__REQUEST__BODY_HELLO;
	request.hello = &hello;
	ck_assert_int_eq(frame_queue(&writer, body, wire__request__pack(&request, body), NULL, 0),
			 0);
	ck_assert_int_eq(frame_flush(&writer, fd), 0);
}

TEST(a_client_gets_a_session_and_the_stop_ends_it)
{
	char byte;
	int fd;

	start();
	ck_assert_uint_eq(server_n_clients(server), 0);
	fd = connect_one();
	hello(fd);
	ck_assert_int_eq(reply(fd), 0);
	server_stop(server);
	ck_assert_int_eq(event_base_dispatch(base), 0); /* until the last session is freed */
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	(void)close(fd);
}

TEST(a_client_over_the_users_limit_gets_the_reason_and_the_end)
{
	int fds[2];
	char byte;

	config.user_limit[QUOTA_SESSIONS] = 1;
	start();
	for (int i = 0; i < 2; i++)
		fds[i] = connect_one();
	ck_assert_int_eq(reply(fds[1]), -EUSERS);
	ck_assert_msg(strstr(error.text, "user_clients"), "%s", error.text);
	ck_assert_int_eq(recv(fds[1], &byte, 1, 0), 0);
	hello(fds[0]);
	ck_assert_int_eq(reply(fds[0]), 0);
	server_stop(server);
	ck_assert_int_eq(event_base_dispatch(base), 0);
	for (int i = 0; i < 2; i++)
		(void)close(fds[i]);
}

TEST(a_stop_closes_clients_that_were_not_accepted)
{
	char byte;
	int fd;

	start();
	fd = connect_one();
	server_stop(server);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	(void)close(fd);
}

TEST(a_daemon_on_a_socket_in_use_does_not_start)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(other, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(other, 1), 0);
	ck_assert_int_eq(server_new(&config, base, NULL, &server, &error), -EADDRINUSE);
	ck_assert_ptr_null(server);
	ck_assert_int_eq(unlink(path), 0); /* it was not removed */
	(void)close(other);
}

static void on_later(evutil_socket_t none, short what, void *arg)
{
	(void)none;
	(void)what;
	(void)close(*(int *)arg);
}

TEST(a_daemon_without_clients_stops_after_its_idle_time)
{
	const struct timeval later = { .tv_sec = 1, .tv_usec = 200000 }; /* than the idle time */
	struct event *event;
	int fd;

	config.idle_exit_sec = 1;
	start();
	fd = connect_one();
	hello(fd);
	ck_assert_int_eq(reply(fd), 0);
	event = evtimer_new(base, on_later, &fd);
	ck_assert_int_eq(evtimer_add(event, &later), 0);
	ck_assert_int_eq(event_base_dispatch(base), 0);
	event_free(event);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* not while the client was connected */
}

FIXTURE(setup, teardown)
TEST_MAIN
