/*
 * A file of ops for dsaioctl bench replay: anybody may have made it.  If the first byte is even, it has the length
 * that its header names, and only a few ops.
 */
#include "client/ctl/bench/ops_file.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define MAX 8u /* of ops */

/* A file of another length than its header names is refused at once. */
static uint8_t *fit(const uint8_t *data, size_t size, size_t *ret_len)
{
	struct ops_file_header header;
	uint8_t *bytes;

	take_bytes(&data, &size, &header, sizeof(header));
	header.n_ops %= MAX;
	*ret_len = sizeof(header) + header.n_ops * sizeof(struct trace_op);
	bytes = malloc(*ret_len);
	memcpy(bytes, &header, sizeof(header));
	take_bytes(&data, &size, bytes + sizeof(header), *ret_len - sizeof(header));
	return bytes;
}

static void check_stream(const struct ops_file *file, uint64_t first, uint64_t n)
{
	struct ops_file_due dues[MAX];

	assert(ops_file_dues(file->ops + first, n, dues) == 0);
	for (uint64_t i = 0; i < n; i++) {
		const struct trace_op *op = &file->ops[first + i];

		/* Or the replay would wait for an op that it has not submitted, or for years. */
		assert(dues[i].n_before <= i && dues[i].pause_nsec <= op->taken_nsec);
		assert(op->taken_nsec <= op->ended_nsec && op->ended_nsec <= OPS_FILE_NSEC_MAX);
		assert(op->off + op->len <= 2 * OPS_FILE_BYTES_MAX && op->file < file->n_files);
		assert(!op->result || op->off + (uint64_t)op->result <= file->file_bytes[op->file]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ops_file file;
	char text[CTL_MESSAGE_BYTES] = "";
	const struct ctl ctl = { .command = "bench replay", .message = text };
	uint8_t choice, *bytes;
	uint64_t n = 0;
	int r;

	take_bytes(&data, &size, &choice, 1);
	if (choice % 2 == 0) {
		bytes = fit(data, size, &size);
	} else {
		bytes = malloc(size + 1);
		memcpy(bytes, data, size);
	}
	r = ops_file_parse(&ctl, "FILE", bytes, size, &file);
	assert(r == CTL_OK || text[0]);
	if (r != CTL_OK)
		return 0;
	for (uint32_t i = 0; i < file.n_streams; i++) {
		assert(file.stream_ops[i]);
		if (file.stream_ops[i] <= MAX)
			check_stream(&file, n, file.stream_ops[i]);
		n += file.stream_ops[i];
	}
	assert(n == file.header->n_ops);
	ops_file_deinit(&file);
	return 0;
}
