/*
 * For tests of a daemon that ends and a next one: clients that reconnect, and daemons with a configuration of their
 * own at the same socket.
 */
#ifndef DSAIO_TESTS_RESTARTING_H
#define DSAIO_TESTS_RESTARTING_H

#include "tests/harness.h"

#include <stdio.h>
#include <string.h>

/* A daemon at the test's socket.  config: NULL: none, and the store "t"; else the only one that names stores. */
static inline struct daemon *next_daemon(const char *config)
{
	const char *path = test_text("%s/dsaiod.conf", test_dir());
	FILE *file;

	if (!config)
		return daemon_start(NULL);
	file = fopen(path, "we");
	CHECK(file && fputs(config, file) >= 0 && !fclose(file));
	return daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", path),
		.store_dir = strstr(config, "[store") ? "" : NULL,
	});
}

/* A client that reconnects, and a handle; a daemon, too, if rig->daemon is NULL. */
static inline void reconnecting(struct rig *rig)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;

	if (!rig->daemon)
		rig->daemon = daemon_start(NULL);
	options.socket_path = rig->daemon->socket_path;
	CHECK_CALL(dsaio_connect(&options, &rig->client));
	CHECK_CALL(profile_open(rig->client, NULL, &rig->handle));
}

/* How a daemon ends. */
struct daemon_end {
	const char *what;
	bool is_kill;
};
#define DAEMON_ENDS                      \
	{                                \
		{ "kill -9", true },     \
		{                        \
			"SIGTERM", false \
		}                        \
	}

static inline void daemon_end(struct daemon *daemon, bool is_kill)
{
	if (is_kill)
		daemon_kill(daemon);
	else
		daemon_stop(daemon);
}

#endif
