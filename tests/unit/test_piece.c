/*
 * Pieces: blocking calls that come back short, fail or reach the end of the file.
 */
#include "daemon/lane/piece.h"

#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILE_BYTES 100000
#define MEMORY_BYTES (1u << 20)

static char *memory;
static int direct_fd, buffered_fd;
static size_t most;		  /* that a call transfers */
static int n_interrupts, n_calls; /* EINTR first; all */

static ssize_t call_short(long call, int fd, const struct iovec *range, off_t off)
{
	size_t n = range->iov_len < most ? range->iov_len : most;

	n_calls++;
	if (n_interrupts-- > 0) {
		errno = EINTR;
		return -1;
	}
	return syscall(call, fd, range->iov_base, n, off);
}

/* In place of the C library's: the linker takes the first. */
ssize_t preadv2(int fd, const struct iovec *ranges, int n, off_t off, int flags)
{
	ck_assert(n == 1 && !flags);
	return call_short(SYS_pread64, fd, ranges, off);
}

ssize_t pwritev2(int fd, const struct iovec *ranges, int n, off_t off, int flags)
{
	ck_assert(n == 1 && !flags);
	return call_short(SYS_pwrite64, fd, ranges, off);
}

static char byte_at(uint64_t off)
{
	return (char)(off * 7 + off / 4096);
}

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[4200];
	static char bytes[FILE_BYTES];

	(void)snprintf(path, sizeof(path), "%s/dsaio-piece-XXXXXX", tmp ? tmp : "/var/tmp");
	buffered_fd = mkstemp(path);
	ck_assert_int_ge(buffered_fd, 0);
	direct_fd = open(path, O_RDWR | O_DIRECT);
	ck_assert_int_ge(direct_fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	for (size_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = byte_at(i);
	ck_assert_int_eq(write(buffered_fd, bytes, FILE_BYTES), FILE_BYTES);
	memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	memset(memory, 0x5a, MEMORY_BYTES);
	most = SIZE_MAX;
	n_interrupts = n_calls = 0;
}

static void teardown(void)
{
	(void)munmap(memory, MEMORY_BYTES);
	(void)close(direct_fd);
	(void)close(buffered_fd);
}

static struct piece make(enum piece_way way, bool is_write, uint64_t off, uint32_t len,
			 size_t memory_off)
{
	return (struct piece){ .way = way,
			       .is_write = is_write,
			       .fd = way == PIECE_BUFFERED ? buffered_fd : direct_fd,
			       .memory = memory + memory_off,
			       .off = off,
			       .len = len,
			       .offset_align = 512,
			       .memory_align = 512 };
}

static const struct {
	const char *what;
	uint64_t off;
	uint32_t len, done;
} reads[] = {
	{ "a byte", 5000, 1, 1 },
	{ "across units", 4000, 9000, 9000 },
	{ "much", 1, 90001, 90001 },
	{ "up to the end", 90001, FILE_BYTES - 90001, FILE_BYTES - 90001 },
	{ "across the end", 99990, 5000, 10 },
	{ "behind it, in its unit", FILE_BYTES + 1, 10, 0 },
	{ "far behind it", 1 << 20, 5000, 0 },
};

START_TEST(a_bounced_read_copies_what_is_wanted)
{
	struct piece piece = make(PIECE_BOUNCE, false, reads[_i].off, reads[_i].len, 7);

	n_interrupts = 2;
	piece_do(&piece);
	ck_assert_msg(piece.error == 0 && piece.done == reads[_i].done, "%s: %u, %s",
		      reads[_i].what, piece.done, strerror(piece.error));
	for (uint32_t i = 0; i < piece.done; i++)
		ck_assert_int_eq(memory[7 + i], byte_at(reads[_i].off + i));
	ck_assert(memory[6] == 0x5a && memory[7 + piece.done] == 0x5a);
}
END_TEST

START_TEST(a_short_transfer_is_continued)
{
	struct piece piece = make(PIECE_BOUNCE, false, 100, 60000, 1);

	most = 8192;
	piece_do(&piece);
	ck_assert(piece.error == 0 && piece.done == 60000);
	ck_assert_int_ge(n_calls, 8);
	for (uint32_t i = 0; i < piece.done; i++)
		ck_assert_int_eq(memory[1 + i], byte_at(100 + i));

	memset(memory, 0x5a, MEMORY_BYTES);
	piece = make(PIECE_DIRECT, false, 4096, 65536, 4096);
	piece.done = 8192 + 100; /* as a block was given back: it goes on at a boundary */
	piece_do(&piece);
	ck_assert(piece.error == 0 && piece.done == 65536);
	ck_assert_int_eq(memory[4096], 0x5a);
	ck_assert_int_eq(memory[4096 + 8192], byte_at(4096 + 8192));

	piece = make(PIECE_BUFFERED, true, FILE_BYTES - 1, 20000, 3);
	most = 777;
	n_interrupts = 1;
	piece_do(&piece);
	ck_assert(piece.error == 0 && piece.done == 20000);
	ck_assert_int_eq(lseek(buffered_fd, 0, SEEK_END), FILE_BYTES - 1 + 20000);
}
END_TEST

START_TEST(memory_that_is_gone_is_the_ops_error)
{
	struct piece piece;

	ck_assert_int_eq(munmap(memory + 8192, 8192), 0);
	piece = make(PIECE_BOUNCE, false, 1, 20000, 0);
	piece_do(&piece);
	ck_assert(piece.error == EFAULT && piece.done <= 8192);
	piece = make(PIECE_BUFFERED, true, 1, 4096, 8192);
	piece_do(&piece);
	ck_assert(piece.error == EFAULT && piece.done == 0);
	piece = make(PIECE_DIRECT, false, 0, 4096, 8192);
	piece_do(&piece);
	ck_assert(piece.error == EFAULT && piece.done == 0);
}
END_TEST

START_TEST(what_the_file_refuses_is_the_ops_error)
{
	struct piece piece = make(PIECE_DIRECT, true, 100, 4096, 0); /* not aligned */

	piece_do(&piece);
	ck_assert(piece.error == EINVAL && piece.done == 0);
	ck_assert_int_eq(close(buffered_fd), 0);
	piece = make(PIECE_BUFFERED, true, 100, 4096, 0);
	piece_do(&piece);
	ck_assert(piece.error == EBADF && piece.done == 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, a_bounced_read_copies_what_is_wanted, 0, N_ROWS(reads));
	tcase_add_test(tcase, a_short_transfer_is_continued);
	tcase_add_test(tcase, memory_that_is_gone_is_the_ops_error);
	tcase_add_test(tcase, what_the_file_refuses_is_the_ops_error);
}

SUITE("piece", add_tests)
