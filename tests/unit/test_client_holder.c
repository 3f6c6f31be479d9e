/*
 * The holder of a start lock: a living process that wrote its own start time, while the lock is held.
 */
#include "client/lib/link/holder.h"

#include "proto/util/process.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <sys/file.h>
#include <sys/stat.h>

static char socket_path[128], lock_path[160];
static struct process self;

static void setup(void)
{
	make_dir();
	(void)snprintf(socket_path, sizeof(socket_path), "%s/socket", dir);
	(void)snprintf(lock_path, sizeof(lock_path), "%s.lock", socket_path);
	ck_assert(process_look(getpid(), &self));
}

/* The lock file has that text, and is held if so asked. */
static int lock_make(bool is_held, const char *text)
{
	int fd = open(lock_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(is_held ? flock(fd, LOCK_EX | LOCK_NB) : 0, 0);
	return fd;
}

static const char *text_of(pid_t pid, unsigned long long started)
{
	static char text[64];

	(void)snprintf(text, sizeof(text), "%d %llu\n", pid, started);
	return text;
}

TEST(a_held_lock_with_a_living_process_has_a_holder)
{
	const int fd = lock_make(true, text_of(getpid(), self.started));

	ck_assert_int_eq(holder_find(socket_path), getpid());
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(holder_find(socket_path), 0); /* free */
}

TEST(a_look_leaves_a_free_lock_free)
{
	const int fd = lock_make(false, text_of(getpid(), self.started));

	ck_assert_int_eq(holder_find(socket_path), 0);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST_LOOP(a_name_that_is_no_living_process_is_no_holder, 6)
{
	static const char *const texts[] = { "", "x", "17", "-1 5\n", "0 0\n", "999999999 1\n" };
	int fd = lock_make(true, texts[_i]);

	ck_assert_int_eq(holder_find(socket_path), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST(a_pid_that_another_process_has_now_is_no_holder)
{
	const int fd = lock_make(true, text_of(getpid(), self.started + 1));

	ck_assert_int_eq(holder_find(socket_path), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST(a_lock_file_of_one_user_names_no_process_of_another)
{
	int fd;

	if (geteuid() != 0)
		return; /* only root can give files away */
	fd = lock_make(true, text_of(getpid(), self.started));
	ck_assert_int_eq(fchown(fd, 65534, 65534), 0);
	ck_assert_int_eq(holder_find(socket_path), 0);
	ck_assert_int_eq(close(fd), 0);
}

TEST(what_is_no_lock_file_is_not_waited_for)
{
	char other[192];

	ck_assert_int_eq(holder_find(socket_path), 0); /* none */
	ck_assert_int_eq(mkfifo(lock_path, 0600), 0);
	ck_assert_int_eq(holder_find(socket_path), 0); /* does not wait for a writer */
	ck_assert_int_eq(unlink(lock_path), 0);
	/* a link to a lock that is held */
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	ck_assert_int_ge(lock_make(true, text_of(getpid(), self.started)), 0);
	ck_assert_int_eq(rename(lock_path, other), 0);
	ck_assert_int_eq(symlink(other, lock_path), 0);
	ck_assert_int_eq(holder_find(socket_path), 0);
}

TEST(a_path_without_room_for_the_suffix_has_no_lock)
{
	char path[512];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(holder_find(path), 0);
}

FIXTURE(setup, remove_dir)
TEST_MAIN
