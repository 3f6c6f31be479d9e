/*
 * A stop, as a client that was not accepted sees it; all else needs a daemon (tests/e2e, tests/fault).
 */
#include "daemon/control/server.h"

#include "daemon/control/service.h"
#include "tests/unit/file_text.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <event2/event.h>
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

TEST(a_stop_closes_clients_that_were_not_accepted)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	ck_assert_msg(server_new(&config, base, NULL, &server, &error) == 0, "%s", error.text);
	(void)strcpy(address.sun_path, path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	server_stop(server);
	ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
	(void)close(fd);
}

TEST(one_user_filled_the_bound_of_sockets_whose_close_hangs)
{
	/* More than the descriptors of one user: systemd's hard limit for users. */
	ck_assert_uint_gt(unit_descriptors() / SERVICE_CLOSING_DIVISOR, 524288);
}

FIXTURE(setup, teardown)
TEST_MAIN
