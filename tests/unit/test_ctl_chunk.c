/* chunk: bytes move to the same offset, without the daemon as with it. */
#include "client/ctl/cmd/chunk.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 16384u

static _Alignas(4096) char memory[BYTES];

static const struct {
	const char *what;
	uint64_t off, end;
	size_t skip, len;
} places[] = {
	{ "aligned", 8192, UINT64_MAX, 0, BYTES },
	{ "begins inside a page", 4196, UINT64_MAX, 100, BYTES - 100 },
	{ "ends early", 4096, 5000, 0, 904 },
	{ "empty", 77, 77, 77, 0 },
};

TEST_TABLE(a_chunk_begins_in_its_memory_as_in_its_page, places) /* _i: the row */
{
	struct chunk chunk = { .memory = memory };

	chunk_place(&chunk, BYTES, places[_i].off, places[_i].end);
	ck_assert_msg(chunk.data == memory + places[_i].skip && chunk.len == places[_i].len &&
			      chunk.off == places[_i].off,
		      "%s", places[_i].what);
}

static int file_of(size_t bytes)
{
	int fd = memfd_create("chunk", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < bytes; i++) {
		char byte = (char)(i * 7);

		ck_assert_int_eq(write(fd, &byte, 1), 1);
	}
	return fd;
}

TEST(a_read_ends_at_the_end_of_the_file)
{
	struct side side = { .path = "file", .fd = file_of(5000) };
	struct chunk chunk = { .memory = memory };
	char text[CHUNK_TEXT_BYTES];
	size_t done = 0;

	chunk_place(&chunk, BYTES, 1000, UINT64_MAX);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, false), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, false, &done, text), 0);
	ck_assert_uint_eq(done, 4000);
	ck_assert_int_eq(chunk.data[0], (char)(1000 * 7));
	ck_assert_int_eq(chunk.data[3999], (char)(4999 * 7));
	(void)close(side.fd);
}

TEST(a_write_goes_to_the_chunk_s_offset)
{
	struct side side = { .path = "file", .fd = file_of(0) };
	struct chunk chunk = { .memory = memory };
	char text[CHUNK_TEXT_BYTES], found[4] = "";
	size_t done = 0;

	chunk_place(&chunk, BYTES, 9000, 9003);
	(void)memcpy(chunk.data, "abc", 3);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, true), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, true, &done, text), 0);
	ck_assert_uint_eq(done, 3);
	ck_assert_int_eq(pread(side.fd, found, 4, 9000), 3);
	ck_assert_str_eq(found, "abc");
	(void)close(side.fd);
}

TEST(a_failure_names_path_call_offset_and_error)
{
	struct side side = { .path = "closed", .fd = -1 };
	struct chunk chunk = { .memory = memory };
	char text[CHUNK_TEXT_BYTES];
	size_t done;

	chunk_place(&chunk, BYTES, 4096, 4100);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, true), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, true, &done, text), -EBADF);
	ck_assert_str_eq(text, "closed: write at byte 4096: Bad file descriptor");
}

TEST(a_stream_fills_the_chunk_over_several_reads)
{
	struct side side = { .path = "stream", .is_stream = true };
	struct chunk chunk = { .memory = memory };
	char text[CHUNK_TEXT_BYTES];
	size_t done = 0;
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(write(fds[1], "hello ", 6), 6);
	ck_assert_int_eq(write(fds[1], "world", 5), 5);
	(void)close(fds[1]);
	side.fd = fds[0];
	chunk_place(&chunk, BYTES, 0, 8);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, false), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, false, &done, text), 0);
	ck_assert_uint_eq(done, 8);
	chunk_place(&chunk, BYTES, 8, 100);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, false), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, false, &done, text), 0);
	ck_assert_uint_eq(done, 3); /* its end */
	ck_assert_int_eq(memcmp(chunk.data, "rld", 3), 0);
	(void)close(fds[0]);
}

TEST(a_stream_that_nothing_reads_is_a_broken_pipe)
{
	struct side side = { .path = "stream", .is_stream = true };
	struct chunk chunk = { .memory = memory };
	char text[CHUNK_TEXT_BYTES];
	size_t done;
	int fds[2];

	(void)signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	(void)close(fds[0]);
	side.fd = fds[1];
	chunk_place(&chunk, BYTES, 0, 8);
	ck_assert_int_eq(chunk_start(&chunk, NULL, &side, true), 0);
	ck_assert_int_eq(chunk_finish(&chunk, &side, true, &done, text), -EPIPE);
	ck_assert_int_eq(chunk_drop(&chunk), 0); /* no op: nothing to wait for */
	(void)close(fds[1]);
}

TEST_MAIN
