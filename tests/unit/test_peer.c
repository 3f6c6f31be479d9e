#include "daemon/base/peer.h"

#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"

#include <grp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

TEST(a_peer_is_who_the_kernel_says)
{
	struct peer peer;
	struct error error;
	gid_t groups[65536];
	int fds[2], n = getgroups(65536, groups);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_msg(peer_init(&peer, fds[0], &error) == 0, "%s", error.text);
	ck_assert_int_eq(peer.pid, getpid());
	ck_assert_uint_eq(peer.uid, geteuid());
	ck_assert_uint_eq(peer.gid, getegid());
	ck_assert_int_eq((int)peer.n_groups, n);
	for (int i = 0; i < n; i++)
		ck_assert(peer_has_group(&peer, groups[i]));
	ck_assert(peer_has_group(&peer, getegid()));
	ck_assert(!peer_has_group(&peer, 4000000000u));
	peer_deinit(&peer);
	closep(&fds[0]);
	closep(&fds[1]);
}

/* In a process of its own, as another user with many groups, more than the first try has room for. */
static int many_groups_child(void)
{
	gid_t groups[1000];
	struct error error;
	struct peer peer;
	int fds[2];

	for (unsigned i = 0; i < 1000; i++)
		groups[i] = 100000 + i;
	if (setgroups(1000, groups) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return 1;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 || peer_init(&peer, fds[0], &error) < 0)
		return 2;
	if (peer.uid != NOBODY || peer.n_groups != 1000)
		return 3;
	for (unsigned i = 0; i < 1000; i++)
		if (!peer_has_group(&peer, groups[i]))
			return 4;
	peer_deinit(&peer);
	return 0;
}

TEST(a_peer_may_have_a_thousand_groups)
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		return; /* only root can take them on */
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(many_groups_child());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

TEST(something_that_is_no_socket_is_no_peer)
{
	struct peer peer;
	struct error error;

	ck_assert_int_lt(peer_init(&peer, STDIN_FILENO, &error), 0);
	ck_assert_msg(strstr(error.text, "SO_PEERCRED"), "%s", error.text);
}

TEST_MAIN
