/*
 * Files of ops: what is refused, and when ops are due.
 */
#include "client/ctl/bench/ops_file.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two streams, of two ops and of one, on one file each. */
struct image {
	struct ops_file_header header;
	struct ops_file_stream streams[2];
	struct ops_file_file files[2];
	struct ops_file_op ops[3];
};

static struct image image;
static struct ops_file file;
static char text[256];

static void setup(void)
{
	image = (struct image){
		.header = { .magic = { 'd', 's', 'a', 'i', 'o', 'o', 'p', 's' },
			    .version = OPS_FILE_VERSION,
			    .n_streams = 2,
			    .n_files = 2,
			    .n_ops = 3,
			    .duration_nsec = 1000 },
		.streams = { { .n_ops = 2, .store = "nvme0", .command = "python3" },
			     { .n_ops = 1, .store = "nvme0" } },
		.files = { { 4096, 4096 }, { 0, 8192 } },
		.ops = { { 0, 100, 0, 8192, 4096, 0, OPS_FILE_READ },
			 { 300, 700, 4096, 4096, 4096, 1, OPS_FILE_WRITE },
			 { 200, 10, 0, 0, 0, 1, OPS_FILE_FSYNC } },
	};
}

static void teardown(void)
{
	ops_file_deinit(&file);
}
FIXTURE(setup, teardown)

static int parse(size_t len)
{
	char *bytes = malloc(len + 1);

	memcpy(bytes, &image, len);
	text[0] = '\0';
	return ops_file_parse(bytes, len, &file, text, sizeof(text));
}

TEST(a_file_has_its_streams_files_and_ops)
{
	ck_assert_msg(parse(sizeof(image)) == 0, "%s", text);
	ck_assert(file.header->n_ops == 3 && file.streams[0].n_ops == 2 &&
		  file.files[1].end == 8192 && file.ops[2].kind == OPS_FILE_FSYNC);
}

static const struct {
	const char *what;
	size_t at, len; /* of the bytes of image that are changed */
	uint64_t value;
	const char *says;
} damages[] = {
#define FIELD(field) offsetof(struct image, field), sizeof(image.field)
	{ "magic", FIELD(header.magic), 0, "no file of dsaioctl trace record" },
	{ "version", FIELD(header.version), 2, "version 2" },
	{ "no stream", FIELD(header.n_streams), 0, "streams" },
	{ "too many streams", FIELD(header.n_streams), OPS_FILE_STREAMS_MAX + 1, "streams" },
	{ "too many files", FIELD(header.n_files), UINT32_MAX, "files" },
	{ "too many ops", FIELD(header.n_ops), UINT64_MAX, "ops" },
	{ "another length", FIELD(header.n_ops), 4, "damaged: it has" },
	{ "a field that must be zero", FIELD(header.zero), 1, "damaged" },
	{ "a week and more", FIELD(header.duration_nsec), OPS_FILE_NSEC_MAX + 1, "ops" },
	{ "shorter than its ops", FIELD(header.duration_nsec), 999, "op 1" },
	{ "a stream without ops", FIELD(streams[0].n_ops), 0, "stream 0" },
	{ "a stream with ops of the next", FIELD(streams[0].n_ops), 3, "op 2" },
	{ "a stream with all ops", FIELD(streams[0].n_ops), UINT64_MAX, "stream 0" },
	{ "ops of no stream", FIELD(streams[0].n_ops), 1, "ops of no stream" },
	{ "a name with an escape", FIELD(streams[1].store[0]), 27, "stream 1" },
	{ "a command above ASCII", FIELD(streams[0].command[1]), 0x80, "stream 0" },
	{ "a file longer than its end", FIELD(files[0].size), 4097, "file 0" },
	{ "a file without limit", FIELD(files[1].end), OPS_FILE_BYTES_MAX + 1, "file 1" },
	{ "an op beyond the end", FIELD(files[1].end), 8191, "op 1" },
	{ "time that goes back", FIELD(ops[0].at_nsec), 301, "op 1" },
	{ "a latency beyond the end", FIELD(ops[1].latency_nsec), UINT64_MAX, "op 1" },
	{ "another file", FIELD(ops[0].file), 2, "op 0" },
	{ "no kind", FIELD(ops[0].kind), 0, "op 0" },
	{ "a later kind", FIELD(ops[0].kind), 5, "op 0" },
	{ "an offset without limit", FIELD(ops[0].off), UINT64_MAX, "op 0" },
	{ "a length without limit", FIELD(ops[0].len), UINT64_MAX, "op 0" },
	{ "more bytes than asked for", FIELD(ops[0].len), 4095, "op 0" },
	{ "half a write", FIELD(ops[1].done), 4095, "op 1" },
	{ "a sync of bytes", FIELD(ops[2].len), 1, "op 2" },
};

TEST_TABLE(a_damaged_file_is_refused, damages)
{
	memcpy((char *)&image + damages[_i].at, &damages[_i].value,
	       damages[_i].len < 8 ? damages[_i].len : 8);
	ck_assert_msg(parse(sizeof(image)) == -EINVAL, "%s", damages[_i].what);
	ck_assert_msg(strstr(text, damages[_i].says) != NULL, "%s: %s", damages[_i].what, text);
}

TEST(a_name_without_an_end_is_refused)
{
	memset(image.streams[0].store, 'x', sizeof(image.streams[0].store));
	ck_assert_int_eq(parse(sizeof(image)), -EINVAL);
}

TEST(a_part_of_a_file_is_refused)
{
	for (size_t len = 0; len < sizeof(image); len++)
		ck_assert_int_eq(parse(len), -EINVAL);
}

TEST(only_regular_files_are_read)
{
	char path[] = "/tmp/dsaio-unit-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, &image, sizeof(image)), (ssize_t)sizeof(image));
	ck_assert_int_eq(ops_file_read(path, &file, text, sizeof(text)), 0);
	ck_assert_uint_eq(file.header->n_ops, 3);
	ops_file_deinit(&file);
	ck_assert_int_eq(ftruncate(fd, INT64_C(1) << 32), 0);
	ck_assert_int_eq(ops_file_read(path, &file, text, sizeof(text)), -EINVAL);
	ck_assert_int_eq(ops_file_read("/dev/zero", &file, text, sizeof(text)), -EINVAL);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(ops_file_read(path, &file, text, sizeof(text)), -ENOENT);
	ck_assert_int_eq(close(fd), 0);
}

/* From the ops' starts and latencies. */
static const struct {
	const char *what;
	uint64_t at[3], latency[3];
	struct ops_file_due dues[3];
} dues[] = {
	{ "one after the other",
	  { 0, 150, 400 },
	  { 100, 200, 1 },
	  { { 0, 0 }, { 1, 50 }, { 2, 50 } } },
	{ "all at once", { 0, 0, 10 }, { 100, 100, 1 }, { { 0, 0 }, { 0, 0 }, { 0, 10 } } },
	{ "two in flight", { 0, 10, 120 }, { 100, 200, 1 }, { { 0, 0 }, { 0, 10 }, { 1, 20 } } },
	{ "a pause after the last start, not the last end",
	  { 0, 150, 160 },
	  { 100, 100, 1 },
	  { { 0, 0 }, { 1, 50 }, { 1, 10 } } },
	{ "the later one ended first",
	  { 0, 10, 60 },
	  { 100, 20, 1 },
	  { { 0, 0 }, { 0, 10 }, { 1, 30 } } },
	{ "ops without a latency", { 5, 5, 5 }, { 0, 0, 0 }, { { 0, 5 }, { 1, 0 }, { 2, 0 } } },
};

TEST_TABLE(an_op_is_due_after_the_ends_before_it_and_a_pause, dues)
{
	struct ops_file_op ops[3] = { 0 };
	struct ops_file_due found[3];

	for (size_t i = 0; i < 3; i++) {
		ops[i].at_nsec = dues[_i].at[i];
		ops[i].latency_nsec = dues[_i].latency[i];
	}
	ck_assert_int_eq(ops_file_dues(ops, 3, found), 0);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_msg(found[i].n_before == dues[_i].dues[i].n_before, "%s: op %zu: %lu",
			      dues[_i].what, i, (unsigned long)found[i].n_before);
		ck_assert_msg(found[i].pause_nsec == dues[_i].dues[i].pause_nsec, "%s: op %zu: %lu",
			      dues[_i].what, i, (unsigned long)found[i].pause_nsec);
	}
}

TEST_MAIN
