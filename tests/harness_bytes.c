/*
 * Patterns of bytes, in memory and in files.
 */
#include "tests/harness_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static inline uint64_t pattern_word(uint64_t seed, uint64_t n)
{
	return mix(seed * UINT64_C(0xd1342543de82ef95) + n);
}

static inline uint8_t pattern_byte(uint64_t seed, uint64_t pos)
{
	return (uint8_t)(pattern_word(seed, pos / 8) >> pos % 8 * 8);
}

void pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	uint8_t *bytes = buf;

	for (; len && pos % 8; len--)
		*bytes++ = pattern_byte(seed, pos++);
	for (; len >= 8; len -= 8, pos += 8, bytes += 8) {
		uint64_t word = htole64(pattern_word(seed, pos / 8));

		memcpy(bytes, &word, 8);
	}
	for (; len; len--)
		*bytes++ = pattern_byte(seed, pos++);
}

int64_t pattern_compare(const void *buf, size_t len, uint64_t seed, uint64_t pos)
{
	const uint8_t *bytes = buf;

	for (size_t i = 0; i < len;) {
		if ((pos + i) % 8 == 0 && len - i >= 8) {
			uint64_t word = htole64(pattern_word(seed, (pos + i) / 8));

			if (!memcmp(bytes + i, &word, 8)) {
				i += 8;
				continue;
			}
		}
		if (bytes[i] != pattern_byte(seed, pos + i))
			return (int64_t)i;
		i++;
	}
	return -1;
}

void pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, const char *what)
{
	int64_t i = pattern_compare(buf, len, seed, pos);

	if (i >= 0)
		test_fail("%s: byte %" PRId64 " of %zu is 0x%02x, not 0x%02x", what, i, len,
			  ((const uint8_t *)buf)[i], pattern_byte(seed, pos + (uint64_t)i));
}

#define GUARD_SEED 0x6755a4d

void guarded_new(struct guarded *g, struct dsaio_client *client, size_t len, size_t misalign)
{
	void *memory = NULL;

	*g = (struct guarded){ .len = len, .client = client };
	g->size = (GUARD_BYTES + misalign + len + GUARD_BYTES + 4095) & ~(size_t)4095;
	if (client)
		CHECK_CALL(dsaio_alloc(client, g->size, NULL, &memory));
	else if (posix_memalign(&memory, 4096, g->size))
		test_fail("no memory for a buffer of %zu bytes", g->size);
	g->start = memory;
	g->memory = g->start + GUARD_BYTES + misalign;
	pattern_fill(g->start, (size_t)(g->memory - g->start), GUARD_SEED, 0);
	pattern_fill(g->memory + len, g->size - (size_t)(g->memory + len - g->start), GUARD_SEED,
		     (uint64_t)(g->memory + len - g->start));
}

void guarded_free(struct guarded *g)
{
	if (!g->start)
		return;
	if (g->client)
		CHECK_CALL(dsaio_free(g->client, g->start));
	else
		free(g->start);
	*g = (struct guarded){ 0 };
}

void guarded_check(const struct guarded *g, const char *what)
{
	size_t after = (size_t)(g->memory + g->len - g->start);
	int64_t i = pattern_compare(g->start, (size_t)(g->memory - g->start), GUARD_SEED, 0);

	if (i >= 0)
		test_fail("%s: %" PRId64 " bytes before the buffer a byte has changed", what,
			  g->memory - g->start - i);
	i = pattern_compare(g->start + after, g->size - after, GUARD_SEED, after);
	if (i >= 0)
		test_fail("%s: %" PRId64 " bytes behind the buffer a byte has changed", what, i);
}

void file_make_pattern(const char *path, uint64_t size, uint64_t seed)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	_cleanup_(freep) uint8_t *buf = malloc(MIB);

	CHECK(buf);
	for (uint64_t off = 0; off < size;) {
		size_t n = size - off < MIB ? (size_t)(size - off) : MIB;

		pattern_fill(buf, n, seed, off);
		CHECK_EQ(pwrite(fd, buf, n, (off_t)off), n);
		off += n;
	}
}

void file_make_sparse(const char *path, uint64_t size)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(
		open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));

	CHECK_SYS(ftruncate(fd, (off_t)size));
}

void file_check_pattern(const char *path, uint64_t off, uint64_t len, uint64_t seed, uint64_t pos)
{
	_cleanup_(closep) int fd = (int)CHECK_SYS(open(path, O_RDONLY | O_CLOEXEC));
	_cleanup_(freep) uint8_t *buf = malloc(MIB);

	CHECK(buf);
	for (uint64_t done = 0; done < len;) {
		size_t n = len - done < MIB ? (size_t)(len - done) : MIB;

		CHECK_EQ(pread(fd, buf, n, (off_t)(off + done)), n);
		pattern_check(buf, n, seed, pos + done,
			      test_text("%s from byte %" PRIu64, path, off + done));
		done += n;
	}
}

uint64_t file_size(const char *path)
{
	struct stat st;

	CHECK_SYS(stat(path, &st));
	return (uint64_t)st.st_size;
}

int open_direct(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0644);

	if (fd < 0 && errno == EINVAL)
		fd = open(path, flags | O_CLOEXEC, 0644);
	return (int)check_sys(path, fd, __FILE__, __LINE__);
}
