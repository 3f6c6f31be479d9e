/*
 * dsaio_connect: the client's name, and the descriptor that tells of a lost daemon.
 */
#include "tests/harness.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct dsaio_client *connect_as(const struct daemon *daemon, const char *name)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	struct dsaio_client *client;

	options.socket_path = daemon->socket_path;
	options.name = name;
	options.flags = DSAIO_NO_RECONNECT;
	CHECK_CALL(dsaio_connect(&options, &client));
	return client;
}

static bool status_has(const struct daemon *daemon, const char *name)
{
	_cleanup_(answer_free) struct answer answer = ANSWER_NONE;
	bool has = false;

	daemon_status(daemon, &answer);
	for (size_t i = 0; i < answer.reply->status->n_clients; i++)
		has |= !strcmp(answer.reply->status->clients[i]->name, name);
	return has;
}

TEST(name, "status shows the name that a client has chosen, else the program's")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client = connect_as(daemon, "rank 7");

	CHECK(status_has(daemon, "rank 7"));
	CHECK(!status_has(daemon, "connect"));
	(void)dsaio_disconnect(client);
	client = connect_as(daemon, NULL);
	CHECK(status_has(daemon, "connect"));
	(void)dsaio_disconnect(client);
	CHECK(daemon_wait_clients(daemon, 0, 0));
}

TEST(lost, "the client's descriptor becomes readable when the daemon is lost, until that was read")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client = connect_as(daemon, NULL);
	int fd = (int)CHECK_CALL(dsaio_client_fd(client));

	CHECK_EQ(dsaio_client_fd(client), fd);
	CHECK(!wait_readable(fd, 0));
	CHECK_EQ(dsaio_client_state(client), DSAIO_CONNECTED);
	daemon_kill(daemon);
	CHECK(wait_readable(fd, 60000000));
	CHECK_EQ(dsaio_client_state(client), DSAIO_LOST);
	CHECK(!wait_readable(fd, 0));
	CHECK_EQ(dsaio_client_state(client), DSAIO_LOST);
	(void)dsaio_disconnect(client);
}

TEST(lost_before, "a descriptor that is asked for when the daemon is lost is readable at once")
{
	struct daemon *daemon = daemon_start(NULL);
	struct dsaio_client *client = connect_as(daemon, NULL);
	int fd;

	CHECK_EQ(dsaio_client_state(client), DSAIO_CONNECTED);
	daemon_kill(daemon);
	while (dsaio_client_state(client) == DSAIO_CONNECTED)
		(void)usleep(1000);
	fd = (int)CHECK_CALL(dsaio_client_fd(client));
	CHECK(wait_readable(fd, 60000000));
	CHECK_EQ(dsaio_client_state(client), DSAIO_LOST);
	(void)dsaio_disconnect(client);
}

TEST(idle, "traffic on the connection does not make the descriptor readable")
{
	_cleanup_(rig_close) struct rig rig = rig_new(NULL);
	void *memory;
	int fd;

	fd = (int)CHECK_CALL(dsaio_client_fd(rig.client));
	for (unsigned i = 0; i < 10; i++) {
		CHECK_CALL(dsaio_alloc(rig.client, 64 * MIB, NULL, &memory));
		CHECK_CALL(dsaio_free(rig.client, memory));
	}
	CHECK(!wait_readable(fd, 0));
	CHECK_EQ(dsaio_client_state(rig.client), DSAIO_CONNECTED);
}

TEST_MAIN
