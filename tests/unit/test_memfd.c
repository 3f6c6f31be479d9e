#include "daemon/base/memfd.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

TEST(a_sealed_one_keeps_its_size_and_its_seals)
{
	int fd = memfd_new_sealed("test", 12345, 0);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 12345);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & SIZE_SEALS, SIZE_SEALS);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_lt(ftruncate(fd, 1), 0);
	ck_assert_int_lt(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	(void)close(fd);
}

TEST(a_new_one_takes_further_seals_with_those)
{
	int fd = memfd_new("test", 4096, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & SIZE_SEALS, 0);
	ck_assert_int_eq(memfd_seal(fd, F_SEAL_FUTURE_WRITE), 0);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & (SIZE_SEALS | F_SEAL_FUTURE_WRITE),
			 SIZE_SEALS | F_SEAL_FUTURE_WRITE);
	ck_assert_int_eq(memfd_seal(fd, 0), -EPERM);
	(void)close(fd);
}

TEST(none_can_be_executed_where_the_kernel_knows_that)
{
	int fd = memfd_create("probe", MFD_NOEXEC_SEAL), made;

	if (fd < 0)
		return;
	(void)close(fd);
	made = memfd_new("test", 4096, 0);
	ck_assert_int_ge(made, 0);
	ck_assert_int_ne(fcntl(made, F_GET_SEALS) & F_SEAL_EXEC, 0);
	(void)close(made);
}

/* As on Linux before 6.3: memfd_create(2) refuses the flag. */
static void flag_forbid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MFD_NOEXEC_SEAL, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = N_ROWS(filter), .filter = filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(an_older_kernel_makes_one_without_the_flag)
{
	int fd;

	flag_forbid(); /* of this test's own process */
	ck_assert_int_lt(memfd_create("probe", MFD_NOEXEC_SEAL), 0);
	fd = memfd_new_sealed("test", 4096, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS), SIZE_SEALS);
	(void)close(fd);
}

TEST(what_cannot_be_made_says_why)
{
	ck_assert_int_eq(memfd_new_sealed("test", UINT64_C(1) << 63, 0), -EINVAL);
	ck_assert_int_eq(memfd_new_sealed("test", 4096, 1u << 25), -EINVAL);
}

TEST_MAIN
