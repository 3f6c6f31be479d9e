#include "daemon/control/listen_socket.h"
#include "daemon/control/start_lock.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/dsaio-unit-XXXXXX";
static char path[PATH_MAX], lock_path[PATH_MAX];
static struct error error;

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/dsaio-unit-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/s.sock", dir);
	(void)snprintf(lock_path, sizeof(lock_path), "%s/s.sock.lock", dir);
}

static void teardown(void)
{
	(void)unlink(path);
	(void)unlink(lock_path);
	ck_assert_int_eq(rmdir(dir), 0);
}

TEST(a_lock_that_a_living_daemon_holds_is_refused_with_its_pid)
{
	_cleanup_(closep) int first = -1, second = -1;
	char pid[32];

	ck_assert_int_eq(start_lock_take(path, false, &first, &error), 0);
	ck_assert_int_eq(start_lock_take(path, false, &second, &error), -EADDRINUSE);
	(void)snprintf(pid, sizeof(pid), "pid %d ", getpid());
	ck_assert_ptr_nonnull(strstr(error.text, pid));
	ck_assert_int_eq(second, -1);
}

TEST(a_lock_whose_holder_has_died_or_released_it_is_taken)
{
	_cleanup_(closep) int first = -1, second = -1;
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(start_lock_take(path, false, &first, &error) < 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(start_lock_take(path, false, &first, &error), 0);
	start_lock_release(&first);
	ck_assert_int_eq(start_lock_take(path, false, &second, &error), 0);
}

/* Its children do not run on its processor, the only one that they have, while it does. */
static bool pin_and_prefer(void)
{
	const struct sched_param first = { .sched_priority = 1 };
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0 &&
	       sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0;
}

TEST(a_start_waits_for_a_holder_that_was_killed_and_has_not_run_since)
{
	_cleanup_(closep) int first = -1, second = -1;
	char is_held;
	int ends[2];
	pid_t pid;

	if (!pin_and_prefer()) {
		puts("skip a_start_waits_for_a_holder_that_was_killed_and_has_not_run_since: needs SCHED_FIFO, which "
		     "root may use");
		return;
	}
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		if (start_lock_take(path, false, &first, &error) < 0)
			_exit(1);
		(void)!write(ends[1], "", 1);
		for (;;)
			; /* ready to run, on this thread's processor, and behind it */
	}
	(void)close(ends[1]);
	ck_assert_int_eq(read(ends[0], &is_held, 1), 1);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(start_lock_take(path, false, &second, &error), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	(void)close(ends[0]);
}

TEST(without_its_directory_the_error_says_what_to_make)
{
	_cleanup_(closep) int fd = -1;

	ck_assert_int_eq(start_lock_take("/tmp/dsaio-unit-none/s.sock", false, &fd, &error),
			 -ENOENT);
	ck_assert_ptr_nonnull(strstr(error.text, "does not exist: make it"));
}

TEST(a_stale_socket_is_replaced_and_a_served_one_refused)
{
	_cleanup_(closep) int stale = -1, fd = -1, second = -1;
	bool is_bound = false;

	ck_assert_int_eq(listen_socket_make(path, true, &is_bound, &stale, &error), 0);
	ck_assert(is_bound);
	closep(&stale);
	stale = -1;
	ck_assert_int_eq(listen_socket_make(path, true, &is_bound, &fd, &error), 0);
	is_bound = false;
	ck_assert_int_eq(listen_socket_make(path, true, &is_bound, &second, &error), -EADDRINUSE);
	ck_assert(!is_bound);
}

TEST(a_users_own_socket_is_for_that_user_alone)
{
	_cleanup_(closep) int fd = -1;
	bool is_bound = false;
	struct stat st;

	ck_assert_int_eq(listen_socket_make(path, true, &is_bound, &fd, &error), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
}

TEST(a_path_that_is_no_socket_is_refused)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_eq(listen_socket_check(path, &error), -EEXIST);
	(void)unlink(path);
	ck_assert_int_eq(listen_socket_check(path, &error), 0);
}

TEST(without_systemd_no_socket_is_inherited)
{
	bool is_handed_over = false;
	int fd = -1;

	(void)unsetenv("LISTEN_FDS");
	ck_assert_int_eq(listen_socket_inherit(path, &fd, &is_handed_over, &error), 0);
	ck_assert_int_eq(fd, -1);
}

FIXTURE(setup, teardown)
TEST_MAIN
