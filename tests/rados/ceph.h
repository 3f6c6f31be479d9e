/*
 * Daemons with stores on a test cluster.  tests/rados/run.sh brings it up, and sets CEPH_CONF, CEPH_DIR and CEPH_TOOL.
 */
#ifndef DSAIO_TESTS_RADOS_CEPH_H
#define DSAIO_TESTS_RADOS_CEPH_H

#include "tests/harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USEC_PER_SEC 1000000

/* A shell command, which must succeed; its output up to the first newline, for good. */
static inline char *ceph_run(const char *command)
{
	char *text = test_text("%*s", 256, "");
	FILE *pipe = popen(command, "re");
	size_t n;
	int status;

	CHECK(pipe);
	n = fread(text, 1, 255, pipe);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	status = pclose(pipe);
	CHECK_MSG(status == 0, "%s: status %d: %s", command, status, text);
	return text;
}

/* A command of the cluster: cluster.sh COMMAND DIR ARGUMENTS; CEPH_TOOL is the path of that. */
static inline void cluster(const char *command, const char *arguments)
{
	(void)ceph_run(test_text("$CEPH_TOOL %s $CEPH_DIR %s >&2", command, arguments));
}

/* The namespace of this test: no other test, of this run or an earlier one, has it. */
static inline const char *ceph_namespace(void)
{
	return test_text("t%d", (int)getpid());
}

/* rados://dsaio/NAMESPACE/name */
static inline const char *ceph_name(const char *name)
{
	return test_text("rados://dsaio/%s/%s", ceph_namespace(), name);
}

/* A daemon with the store "c" of that namespace; keys: further lines of its section. */
static inline struct daemon *ceph_daemon(unsigned number, const char *keys)
{
	const char *path = test_text("%s/%u.conf", test_dir(), number);
	FILE *file = fopen(path, "we");

	CHECK(file);
	fprintf(file,
		"[daemon]\nlock = auto\nhuge_pages = no\npool_size = 3G\nclient_pool_max = 2G\nstate_dir = %s/state%u\n"
		"[store c]\npath = rados://dsaio/%s\nceph_user = dsaio\n%s\n",
		test_dir(), number, ceph_namespace(), keys ? keys : "");
	CHECK(fclose(file) == 0);
	return daemon_start_with(&(struct daemon_options){
		.args = DAEMON_ARGS("--config", path),
		.socket_path = test_text("%s/s%u.sock", test_dir(), number),
		.store_dir = "" });
}

static inline struct dsaio_file *ceph_create_named(struct dsaio_client *client, const char *name,
						   uint64_t size, uint32_t flags)
{
	struct dsaio_create_options options = DSAIO_CREATE_OPTIONS_INIT;
	struct dsaio_file *file;

	options.file_size = size;
	options.flags = flags;
	CHECK_CALL(dsaio_create(client, name, &options, &file));
	return file;
}

static inline struct dsaio_file *ceph_create(struct dsaio_client *client, const char *name,
					     uint64_t size, uint32_t flags)
{
	return ceph_create_named(client, ceph_name(name), size, flags);
}

static inline int ceph_open(struct dsaio_client *client, const char *name,
			    struct dsaio_file **ret_file)
{
	struct dsaio_open_options options = DSAIO_OPEN_OPTIONS_INIT;

	options.flags = DSAIO_OPEN_URI;
	return dsaio_open(client, ceph_name(name), O_RDONLY, &options, ret_file);
}

#endif
