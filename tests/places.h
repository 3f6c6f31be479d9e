/*
 * For tests of how a daemon is found: /run and /tmp that are the test's alone, a user's own
 * directory in the test's, and the daemon that the library started there.
 */
#ifndef DSAIO_TESTS_PLACES_H
#define DSAIO_TESTS_PLACES_H

#include "tests/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACES_SYSTEM "/run/dsaiod/dsaiod.sock"

static inline void places_write(const char *path, const char *text)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));

	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
}

/*
 * An empty /run, and with is_tmp an empty /tmp, seen by this process and what it starts from now
 * on.  Before any thread.  The test is skipped where the kernel does not allow that.
 */
static inline void places_private(bool is_tmp)
{
	const char *build = getenv("BUILD"), *program = test_text("%s/dsaiod", test_dir());
	_cleanup_(closep) int dir = -1;
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWNS) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			test_skip("no private /run: %s", strerror(errno));
		places_write("/proc/self/setgroups", "deny");
		places_write("/proc/self/uid_map", test_text("%u %u 1", uid, uid));
		places_write("/proc/self/gid_map", test_text("%u %u 1", gid, gid));
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		test_skip("no private /run: / is no mount point here, as in a chroot: %s",
			  strerror(errno));
	/* The build may lie below /tmp. */
	places_write(program, "");
	CHECK_SYS(mount(test_text("%s/dsaiod", build && *build ? build : "build"), program, NULL,
			MS_BIND, NULL));
	CHECK_SYS(setenv("DSAIOD", program, 1));
	CHECK_SYS(mount("tmpfs", "/run", "tmpfs", 0, "mode=755"));
	if (!is_tmp)
		return;
	dir = (int)CHECK_SYS(open(test_dir(), O_PATH | O_CLOEXEC)); /* of this namespace */
	CHECK_SYS(mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"));
	if (strncmp(test_dir(), "/tmp/", 5) == 0) { /* TMPDIR=/tmp: it stays where it is */
		char *path = test_text("%s", test_dir());

		for (char *end = path + 5; (end = strchr(end, '/')); *end++ = '/') {
			*end = '\0';
			CHECK_SYS(mkdir(path, 0755));
		}
		CHECK_SYS(mkdir(path, 0755));
		CHECK_SYS(mount(test_text("/proc/self/fd/%d", dir), test_dir(), NULL,
				MS_BIND | MS_REC, NULL));
	}
}

/*
 * A user without any configuration: no variable of ours, $XDG_RUNTIME_DIR in the test's
 * directory.  Only that the daemon ends so many seconds after its last client.
 */
static inline void places_newcomer(unsigned idle_exit_sec)
{
	const char *conf = test_text("%s/conf", test_dir()), *run = test_text("%s/run", test_dir());

	if (access(PLACES_SYSTEM, F_OK) == 0 || errno != ENOENT)
		places_private(false);
	CHECK_SYS(mkdir(conf, 0700));
	CHECK_SYS(mkdir(test_text("%s/dsaiod", conf), 0700));
	places_write(test_text("%s/dsaiod/dsaiod.conf", conf),
		     test_text("[daemon]\nidle_exit_sec = %u\n", idle_exit_sec));
	CHECK_SYS(mkdir(run, 0700));
	CHECK_SYS(setenv("XDG_CONFIG_HOME", conf, 1));
	CHECK_SYS(setenv("XDG_STATE_HOME", test_text("%s/state", test_dir()), 1));
	CHECK_SYS(setenv("XDG_RUNTIME_DIR", run, 1));
	CHECK_SYS(unsetenv("DSAIO_SOCKET"));
	CHECK_SYS(unsetenv("DSAIO_AUTOSTART"));
}

/* A file beside the user's own socket. */
static inline const char *places_own(const char *name)
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	return run ? test_text("%s/dsaiod/%s", run, name)
		   : test_text("/tmp/dsaiod-%u/%s", geteuid(), name);
}

/* The process that holds the user's own start lock, or held it last; 0: none ever did. */
static inline pid_t places_pid(void)
{
	_cleanup_(fclosep) FILE *file = fopen(places_own("dsaiod.sock.lock"), "re");
	int pid = 0;

	return file && fscanf(file, "%d", &pid) == 1 ? pid : 0;
}

/* Waits until that process has ended. */
static inline void places_wait_end(pid_t pid)
{
	_cleanup_(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0) /* else it is gone */
		CHECK_MSG(wait_readable(fd, 20000000), "the daemon %d does not end", pid);
}

/* Ends the user's own daemon. */
static inline void places_stop(void)
{
	pid_t pid = places_pid();

	CHECK(pid > 0);
	(void)kill(pid, SIGTERM); /* it may have ended, having had no client */
	places_wait_end(pid);
}

/* How often the text stands in the own daemon's log. */
static inline unsigned places_log_count(const char *text)
{
	_cleanup_(fclosep) FILE *file = fopen(places_own("dsaiod.log"), "re");
	char line[1024];
	unsigned n = 0;

	while (file && fgets(line, sizeof(line), file))
		n += strstr(line, text) != NULL;
	return n;
}

#endif
