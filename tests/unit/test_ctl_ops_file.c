/*
 * Files of ops: what is refused, and when ops are due.
 */
#include "client/ctl/bench/ops_file.h"
#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two streams, of one op and of two, on two files. */
struct image {
	struct ops_file_header header;
	struct trace_op ops[3];
};

static struct image image;
static struct ops_file file;
static char text[CTL_MESSAGE_BYTES];
static const struct ctl ctl = { .command = "bench replay", .message = text };

static void setup(void)
{
	image = (struct image){
		.header = { .magic = { 'd', 's', 'a', 'i', 'o', 'o', 'p', 's' },
			    .version = OPS_FILE_VERSION,
			    .op_bytes = sizeof(struct trace_op),
			    .n_ops = 3 },
		.ops = { { .file = 5,
			   .channel = 2,
			   .off = 4096,
			   .len = 4096,
			   .opcode = RING_OP_WRITE,
			   .taken_nsec = 1300,
			   .ended_nsec = 2000,
			   .result = 4096 },
			 { .file = 7,
			   .channel = 2,
			   .len = 8192,
			   .opcode = RING_OP_READ,
			   .taken_nsec = 1000,
			   .ended_nsec = 1100,
			   .result = 4000 },
			 { .file = 5,
			   .channel = 1,
			   .opcode = RING_OP_FSYNC,
			   .taken_nsec = 1200,
			   .ended_nsec = 1210 } },
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
	return ops_file_parse(&ctl, "FILE", bytes, len, &file);
}

TEST(streams_files_and_times_follow_from_the_ops)
{
	ck_assert_msg(parse(sizeof(image)) == 0, "%s", text);
	ck_assert(file.n_streams == 2 && file.stream_ops[0] == 1 && file.stream_ops[1] == 2);
	ck_assert(file.ops[0].opcode == RING_OP_FSYNC && file.ops[0].taken_nsec == 200);
	ck_assert(file.ops[1].opcode == RING_OP_READ && file.ops[1].taken_nsec == 0);
	ck_assert(file.ops[2].opcode == RING_OP_WRITE && file.ops[2].ended_nsec == 1000);
	ck_assert(file.n_files == 2 && file.ops[0].file == 0 && file.ops[1].file == 1 &&
		  file.ops[2].file == 0);
	ck_assert(file.file_bytes[0] == 8192 && file.file_bytes[1] == 4000);
}

static const struct {
	const char *what;
	size_t at, len; /* of the bytes of image that are changed */
	uint64_t value;
	const char *says;
} damages[] = {
#define FIELD(field) offsetof(struct image, field), sizeof(image.field)
	{ "magic", FIELD(header.magic), 0, "no file of dsaioctl trace record" },
	{ "version", FIELD(header.version), 1, "version 1" },
	{ "another struct", FIELD(header.op_bytes), 88, "version" },
	{ "no op", FIELD(header.n_ops), 0, "damaged: 0 ops" },
	{ "too many ops", FIELD(header.n_ops), UINT64_MAX, "ops in" },
	{ "another length", FIELD(header.n_ops), 4, "damaged: 4 ops" },
	{ "a week and more", FIELD(ops[0].ended_nsec), UINT64_MAX, "7 days" },
	{ "time that goes back", FIELD(ops[0].taken_nsec), 2001, "op 0" },
	{ "no kind", FIELD(ops[0].opcode), 0, "op 0" },
	{ "a later kind", FIELD(ops[0].opcode), 5, "op 0" },
	{ "an offset without limit", FIELD(ops[1].off), UINT64_MAX, "op 1" },
	{ "a length without limit", FIELD(ops[1].len), UINT64_MAX, "op 1" },
	{ "more bytes than asked for", FIELD(ops[1].result), 8193, "op 1" },
	{ "an error", FIELD(ops[1].result), UINT64_MAX, "op 1" },
	{ "half a write", FIELD(ops[0].result), 4095, "op 0" },
	{ "a sync of bytes", FIELD(ops[2].off), 1, "op 2" },
};

TEST_TABLE(a_damaged_file_is_refused, damages)
{
	memcpy((char *)&image + damages[_i].at, &damages[_i].value,
	       damages[_i].len < 8 ? damages[_i].len : 8);
	ck_assert_msg(parse(sizeof(image)) == CTL_FAILED, "%s", damages[_i].what);
	ck_assert_msg(strstr(text, damages[_i].says) != NULL, "%s: %s", damages[_i].what, text);
}

TEST(too_many_streams_or_files_are_refused)
{
	const uint64_t n = OPS_FILE_FILES_MAX + 1;
	const size_t len = sizeof(image.header) + n * sizeof(struct trace_op);

	for (unsigned k = 0; k < 2; k++) {
		struct ops_file_header *header = malloc(len);
		struct trace_op *ops = (void *)(header + 1);

		*header = image.header;
		header->n_ops = n;
		for (uint64_t i = 0; i < n; i++) {
			ops[i] = image.ops[0];
			*(k ? &ops[i].channel : &ops[i].file) = (uint32_t)i;
		}
		ck_assert_int_eq(ops_file_parse(&ctl, "FILE", header, len, &file), CTL_FAILED);
		ck_assert_msg(strstr(text, "streams or") != NULL, "%s", text);
	}
}

TEST(a_part_of_a_file_is_refused)
{
	for (size_t len = 0; len < sizeof(image); len++)
		ck_assert_int_eq(parse(len), CTL_FAILED);
}

TEST(only_regular_files_are_read)
{
	char path[] = "/tmp/dsaio-unit-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, &image, sizeof(image)), (ssize_t)sizeof(image));
	ck_assert_int_eq(ops_file_read(&ctl, path, &file), 0);
	ck_assert_uint_eq(file.header->n_ops, 3);
	ops_file_deinit(&file);
	ck_assert_int_eq(ftruncate(fd, INT64_C(1) << 32), 0);
	ck_assert_int_eq(ops_file_read(&ctl, path, &file), CTL_FAILED);
	ck_assert_int_eq(ops_file_read(&ctl, "/dev/zero", &file), CTL_FAILED);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(ops_file_read(&ctl, path, &file), CTL_FAILED);
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
	struct trace_op ops[3] = { 0 };
	struct ops_file_due found[3];

	for (size_t i = 0; i < 3; i++) {
		ops[i].taken_nsec = dues[_i].at[i];
		ops[i].ended_nsec = dues[_i].at[i] + dues[_i].latency[i];
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
