/* Sockets that were handed over: what the daemon takes, and libsystemd's stand-in. */
#ifdef DSAIO_WITHOUT_SYSTEMD
#define HAS_SYSTEMD false
#else
#define HAS_SYSTEMD true
#define DSAIO_WITHOUT_SYSTEMD
#endif
#include "daemon/base/systemd.h"
#include "daemon/control/listen_socket.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

static char path[SOCKET_PATH_BYTES], pid[16];

static void setup(void)
{
	make_dir();
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	(void)snprintf(pid, sizeof(pid), "%d", getpid());
}

static void variable_set(const char *name, const char *value)
{
	ck_assert_int_eq(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void variables_set(const char *process, const char *n, const char *names)
{
	variable_set("LISTEN_PID", process && !*process ? pid : process); /* "": this process */
	variable_set("LISTEN_FDS", n);
	variable_set("LISTEN_FDNAMES", names);
}

/* Check itself may use the descriptors from SD_LISTEN_FDS_START on: puts them back before any assertion. */
#define N_HANDED 2
static int saved[N_HANDED];

static void hand_over(int fd)
{
	for (int i = 0; i < N_HANDED; i++) {
		saved[i] = fcntl(SD_LISTEN_FDS_START + i, F_DUPFD_CLOEXEC, 100);
		(void)dup2(fd, SD_LISTEN_FDS_START + i);
	}
}

static void take_back(void)
{
	for (int i = 0; i < N_HANDED; i++) {
		(void)close(SD_LISTEN_FDS_START + i);
		if (saved[i] < 0)
			continue;
		(void)dup2(saved[i], SD_LISTEN_FDS_START + i);
		(void)close(saved[i]);
	}
}

static int socket_at(const char *place, int type)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(place), sizeof(address.sun_path));
	memcpy(address.sun_path, place, strlen(place));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static const struct {
	const char *what, *process, *n, *names;
	int result;
	bool is_handed_over;
} handed[] = {
	{ "systemd's", "", "1", "dsaiod.socket", 1, false },
	{ "without a name", "", "1", NULL, 1, false },
	{ "the library's", "", "1", SOCKET_HANDED_OVER, 1, true },
	{ "two", "", "2", NULL, -EINVAL, false },
	{ "no number", "", "x", NULL, -EINVAL, false },
	{ "another process's", "1", "1", NULL, 0, false },
	{ "none", NULL, NULL, NULL, 0, false },
};

TEST_LOOP(one_socket_is_taken_if_it_is_for_this_process, HAS_SYSTEMD ? N_ROWS(handed) : 0)
{
	_cleanup_(closep) int listen_fd = socket_at(path, SOCK_STREAM);
	bool is_handed_over = false;
	struct error error;
	int r, flags, fd = -1;

	ck_assert_int_eq(listen(listen_fd, 1), 0);
	variables_set(handed[_i].process, handed[_i].n, handed[_i].names);
	hand_over(listen_fd);
	r = listen_socket_inherit(path, &fd, &is_handed_over, &error);
	flags = fcntl(SD_LISTEN_FDS_START, F_GETFL);
	take_back();
	ck_assert_msg(r == handed[_i].result, "%s: %d", handed[_i].what, r);
	ck_assert_int_eq(is_handed_over, handed[_i].is_handed_over);
	ck_assert_int_eq(fd, r == 1 ? SD_LISTEN_FDS_START : -1);
	ck_assert(r != 1 || flags & O_NONBLOCK);
	ck_assert_ptr_null(getenv("LISTEN_PID")); /* a child must not take it for its own */
	ck_assert_ptr_null(getenv("LISTEN_FDS"));
	ck_assert_ptr_null(getenv("LISTEN_FDNAMES"));
}

enum wrong { ELSEWHERE, NOT_LISTENING, PACKETS, NO_SOCKET, N_WRONG };

TEST_LOOP(only_a_listening_stream_socket_at_the_path_is_taken, HAS_SYSTEMD ? N_WRONG : 0)
{
	_cleanup_(closep) int fd = -1;
	bool is_handed_over;
	struct error error;
	int r, taken_fd;

	if (_i == NO_SOCKET)
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	else
		fd = socket_at(path, _i == PACKETS ? SOCK_SEQPACKET : SOCK_STREAM);
	if (_i == ELSEWHERE || _i == PACKETS)
		ck_assert_int_eq(listen(fd, 1), 0);
	if (_i == ELSEWHERE)
		path[strlen(path) - 1] = 't';
	variables_set("", "1", NULL);
	hand_over(fd);
	r = listen_socket_inherit(path, &taken_fd, &is_handed_over, &error);
	take_back();
	ck_assert_int_eq(r, -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, path));
}

/* ---- the stand-in ---- */

static const struct {
	const char *what, *process, *n;
	int result;
} without[] = {
	{ "one", "", "1", 1 },		{ "two", "", "2", 0 },
	{ "no number", "", NULL, 0 },	{ "another process's", "1", "1", 0 },
	{ "no process", NULL, "1", 0 },
};

TEST_TABLE(without_libsystemd_one_socket_is_for_this_process, without)
{
	int kept, r, flags;

	variables_set(without[_i].process, without[_i].n, SOCKET_HANDED_OVER);
	hand_over(STDIN_FILENO);
	kept = sd_listen_fds(false);
	r = sd_listen_fds(true);
	flags = fcntl(SD_LISTEN_FDS_START, F_GETFD);
	take_back();
	ck_assert_msg(r == without[_i].result, "%s: %d", without[_i].what, r);
	ck_assert_int_eq(kept, r);
	ck_assert_int_eq(flags & FD_CLOEXEC, r ? FD_CLOEXEC : 0);
	ck_assert_int_eq(sd_listen_fds(false), 0); /* the variables are gone */
}

FIXTURE(setup, remove_dir)
TEST_MAIN
