#include "daemon/base/systemd.h"
#include "proto/util/cleanup.h"

#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- sockets that were handed over ---- */

static void variable_set(const char *name, const char *value)
{
	ck_assert_int_eq(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

/* Check itself may use the descriptors from SYSTEMD_LISTEN_FD on: puts them back before any assertion. */
#define N_HANDED 2
static int saved[N_HANDED];

static void hand_over(int fd)
{
	for (int i = 0; i < N_HANDED; i++) {
		saved[i] = fcntl(SYSTEMD_LISTEN_FD + i, F_DUPFD_CLOEXEC, 100);
		(void)dup2(fd, SYSTEMD_LISTEN_FD + i);
	}
}

static void take_back(void)
{
	for (int i = 0; i < N_HANDED; i++) {
		if (saved[i] < 0) {
			(void)close(SYSTEMD_LISTEN_FD + i);
			continue;
		}
		(void)dup2(saved[i], SYSTEMD_LISTEN_FD + i);
		(void)close(saved[i]);
	}
}

static const struct {
	const char *what;
	const char *pid; /* "": this process */
	const char *n, *names;
	int result;
} handed[] = {
	{ "one socket", "", "1", NULL, 1 },
	{ "one socket with a name", "", "1", "a name", 1 },
	{ "one socket with an empty name", "", "1", "", 1 },
	{ "two sockets with names", "", "2", "a:", 2 },
	{ "nothing", NULL, NULL, NULL, 0 },
	{ "another process's", "1", "1", NULL, 0 },
	{ "another process's, which make no sense", "1", "x", NULL, 0 },
	{ "no process", NULL, "1", NULL, 0 },
	{ "no number", "", NULL, NULL, 0 },
	{ "a blank process", " ", "1", NULL, -EINVAL },
	{ "a process that is a word", "self", "1", NULL, -EINVAL },
	{ "a process with a sign", "-1", "1", NULL, -EINVAL },
	{ "process 0", "0", "1", NULL, -EINVAL },
	{ "a process that no int can hold", "4294967297", "1", NULL, -EINVAL },
	{ "an empty number", "", "", NULL, -EINVAL },
	{ "no sockets", "", "0", NULL, -EINVAL },
	{ "fewer than none", "", "-1", NULL, -EINVAL },
	{ "something behind the number", "", "1x", NULL, -EINVAL },
	{ "descriptors beyond the largest", "", "2147483645", NULL, -EINVAL },
	{ "more than a long", "", "99999999999999999999", NULL, -EINVAL },
	{ "more names than sockets", "", "1", "a:b", -EINVAL },
	{ "fewer names than sockets", "", "2", "a", -EINVAL },
	{ "a descriptor that is not open", "", "90", NULL, -EBADF },
};

START_TEST(sockets_are_counted_if_they_are_for_this_process)
{
	char pid[16];
	int result, flags[N_HANDED];

	(void)snprintf(pid, sizeof(pid), "%d", getpid());
	variable_set("LISTEN_PID", handed[_i].pid && !*handed[_i].pid ? pid : handed[_i].pid);
	variable_set("LISTEN_FDS", handed[_i].n);
	variable_set("LISTEN_FDNAMES", handed[_i].names);
	hand_over(STDIN_FILENO);
	result = systemd_listen_fds();
	for (int i = 0; i < N_HANDED; i++)
		flags[i] = fcntl(SYSTEMD_LISTEN_FD + i, F_GETFD);
	take_back();
	ck_assert_msg(result == handed[_i].result, "%s: %d", handed[_i].what, result);
	for (int i = 0; i < N_HANDED; i++)
		ck_assert_msg((flags[i] & FD_CLOEXEC) == (i < result || result == -EBADF),
			      "%s: flags of %d", handed[_i].what, i);
}
END_TEST

START_TEST(a_name_is_the_whole_name)
{
	variable_set("LISTEN_FDNAMES", NULL);
	ck_assert(!systemd_listen_fd_has_name("a"));
	variable_set("LISTEN_FDNAMES", "a");
	ck_assert(systemd_listen_fd_has_name("a"));
	variable_set("LISTEN_FDNAMES", "a:a");
	ck_assert(!systemd_listen_fd_has_name("a"));
}
END_TEST

START_TEST(after_they_are_forgotten_there_are_none)
{
	char pid[16];

	(void)snprintf(pid, sizeof(pid), "%d", getpid());
	variable_set("LISTEN_PID", pid);
	variable_set("LISTEN_FDS", "1");
	variable_set("LISTEN_FDNAMES", "a");
	systemd_listen_fds_forget();
	ck_assert_ptr_null(getenv("LISTEN_PID"));
	ck_assert_ptr_null(getenv("LISTEN_FDS"));
	ck_assert_ptr_null(getenv("LISTEN_FDNAMES"));
	ck_assert_int_eq(systemd_listen_fds(), 0);
}
END_TEST

/* ---- what a descriptor is ---- */

/* A socket bound to path; one that begins with @ has no file. */
static int socket_at(const char *path, int type)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t n = strlen(path);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(n, sizeof(address.sun_path));
	memcpy(address.sun_path, path, n);
	if (*path == '@')
		*address.sun_path = 0;
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
			 0);
	return fd;
}

START_TEST(only_a_listening_stream_socket_at_the_path_is_ours)
{
	_cleanup_(closep) int fd = -1, other = -1, file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/s", dir);
	fd = socket_at(path, SOCK_STREAM);
	ck_assert(!systemd_is_listening_at(fd, NULL));
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert(systemd_is_listening_at(fd, NULL));
	ck_assert(systemd_is_listening_at(fd, path));
	ck_assert(!systemd_is_listening_at(fd, dir));
	ck_assert(!systemd_is_listening_at(fd, ""));
	(void)strcat(path, "s");
	ck_assert(!systemd_is_listening_at(fd, path));
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	ck_assert(!systemd_is_listening_at(fd, path));
	ck_assert(!systemd_is_listening_at(-1, NULL));
	ck_assert(!systemd_is_listening_at(file, NULL));

	(void)snprintf(path, sizeof(path), "@%s/packets", dir);
	other = socket_at(path, SOCK_SEQPACKET);
	ck_assert_int_eq(listen(other, 1), 0);
	ck_assert(!systemd_is_listening_at(other, NULL));
}
END_TEST

START_TEST(a_listening_socket_of_the_network_is_not_ours)
{
	_cleanup_(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert(!systemd_is_listening_at(fd, NULL));
}
END_TEST

/* ---- messages ---- */

static const char *const places[] = { "", "@" };

START_TEST(a_message_arrives_at_a_file_and_at_a_name_without_one)
{
	_cleanup_(closep) int fd = -1;
	char place[128], text[64] = "";

	(void)snprintf(place, sizeof(place), "%s%s/n", places[_i], dir);
	fd = socket_at(place, SOCK_DGRAM);
	variable_set("NOTIFY_SOCKET", place);
	ck_assert_int_eq(systemd_notify("READY=1\nSTATUS=serving %d", 7), 1);
	ck_assert_int_gt(recv(fd, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, "READY=1\nSTATUS=serving 7");
}
END_TEST

static const struct {
	const char *place;
	int result;
} refused[] = {
	{ NULL, 0 },
	{ "", -EAFNOSUPPORT },
	{ "/", -EAFNOSUPPORT },
	{ "@", -EAFNOSUPPORT },
	{ "vsock:2:1234", -EAFNOSUPPORT },
	{ "relative", -EAFNOSUPPORT },
	{ "/nowhere/at/all", -ENOENT },
	{ "@nobody listens at this", -ECONNREFUSED },
};

START_TEST(a_place_that_cannot_be_reached_is_an_error)
{
	variable_set("NOTIFY_SOCKET", refused[_i].place);
	ck_assert_int_eq(systemd_notify("READY=1"), refused[_i].result);
}
END_TEST

START_TEST(the_longest_place_is_the_kernels)
{
	char place[sizeof(((struct sockaddr_un *)0)->sun_path) + 2];

	memset(place, 'x', sizeof(place));
	place[0] = '@';
	place[sizeof(place) - 2] = 0; /* all of sun_path */
	variable_set("NOTIFY_SOCKET", place);
	ck_assert_int_eq(systemd_notify("READY=1"), -ECONNREFUSED);
	place[0] = '/'; /* a path has a zero byte, too */
	variable_set("NOTIFY_SOCKET", place);
	ck_assert_int_eq(systemd_notify("READY=1"), -ENAMETOOLONG);
	place[0] = '@';
	place[sizeof(place) - 2] = 'x';
	place[sizeof(place) - 1] = 0;
	variable_set("NOTIFY_SOCKET", place);
	ck_assert_int_eq(systemd_notify("READY=1"), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_message_that_is_too_long_is_refused_whole)
{
	variable_set("NOTIFY_SOCKET", "@nobody listens at this");
	ck_assert_int_eq(systemd_notify("STATUS=%2000s", ""), -EMSGSIZE);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, make_dir, remove_dir);
	tcase_add_loop_test(tcase, sockets_are_counted_if_they_are_for_this_process, 0,
			    N_ROWS(handed));
	tcase_add_test(tcase, a_name_is_the_whole_name);
	tcase_add_test(tcase, after_they_are_forgotten_there_are_none);
	tcase_add_test(tcase, only_a_listening_stream_socket_at_the_path_is_ours);
	tcase_add_test(tcase, a_listening_socket_of_the_network_is_not_ours);
	tcase_add_loop_test(tcase, a_message_arrives_at_a_file_and_at_a_name_without_one, 0,
			    N_ROWS(places));
	tcase_add_loop_test(tcase, a_place_that_cannot_be_reached_is_an_error, 0, N_ROWS(refused));
	tcase_add_test(tcase, the_longest_place_is_the_kernels);
	tcase_add_test(tcase, a_message_that_is_too_long_is_refused_whole);
}

SUITE("systemd", add_tests)
