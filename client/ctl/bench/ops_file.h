/*
 * The ops of a job, as dsaioctl trace shows them, trace record writes them, and bench replay does them again.
 *
 * The file is a header and n_ops ops, in any order, little-endian.  A stream is a client's channel: a handle of a
 * program, on one store.
 *
 * Depth and pauses are not in the file, since they follow from times: before op i of a stream
 * so many ops had ended (n_before), and the program then waited so long (pause_nsec).
 *
 * The file is a stranger's: ops_file_parse() refuses what is not as this page says.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_OPS_FILE_H
#define DSAIO_CLIENT_CTL_BENCH_OPS_FILE_H

#include "client/ctl/ui/ctl.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPS_FILE_MAGIC "dsaioops"
#define OPS_FILE_VERSION 2u
#define OPS_FILE_STREAMS_MAX 256u	     /* each is a process of a replay: a guess */
#define OPS_FILE_FILES_MAX 4096u	     /* each is an open file there: a guess */
#define OPS_FILE_OPS_MAX (UINT64_C(4) << 20) /* 400 MiB of memory while they are recorded */
#define OPS_FILE_NSEC_MAX (UINT64_C(7) * 86400 * 1000000000)
#define OPS_FILE_BYTES_MAX (UINT64_C(1) << 46) /* an offset, or a length */

struct ops_file_header {
	char magic[8];
	uint32_t version, op_bytes;
	uint64_t n_ops;
	uint64_t n_left_out; /* ops that failed, had not ended, or were lost */
};
static_assert(sizeof(struct ops_file_header) == 32, "a part of the format");

struct trace_op {
	uint32_t file; /* the client's number for it */
	uint32_t daemon, client, channel;
	uint64_t id;
	uint32_t pid, uid;
	uint32_t lane; /* the number of the flight recorder's file */
	uint32_t opcode;
	uint64_t off, len;
	/* CLOCK_MONOTONIC: taken, its first block started, its last one was done, ended; 0: not (yet) */
	uint64_t taken_nsec, started_nsec, done_nsec, ended_nsec;
	int64_t result; /* as in struct ring_completion; 0 while it is open */
};
static_assert(sizeof(struct trace_op) == 96, "a part of the format");

/* memcmp(3) of all fields from one to the one before another. */
#define TRACE_OP_COMPARE(a, b, from, to)                            \
	memcmp((const char *)(a) + offsetof(struct trace_op, from), \
	       (const char *)(b) + offsetof(struct trace_op, from), \
	       offsetof(struct trace_op, to) - offsetof(struct trace_op, from))

/* Can a replay do it again?  It has ended, without an error. */
bool ops_file_has(const struct trace_op *op);

struct ops_file {
	struct ops_file_header *header; /* owned; ops lie behind it */
	/* Stream by stream, by their start, and times since the first; file: below n_files. */
	struct trace_op *ops;
	uint32_t n_streams, n_files;
	uint64_t duration_nsec;
	uint64_t stream_ops[OPS_FILE_STREAMS_MAX]; /* how many each has, at least 1 */
	uint64_t file_bytes[OPS_FILE_FILES_MAX];   /* how long each has to be */
};

/* len bytes of that file, from malloc(3): takes them, also on error.  Returns CTL_OK or CTL_FAILED (reported). */
int ops_file_parse(const struct ctl *ctl, const char *path, void *bytes, size_t len,
		   struct ops_file *ret_file);
int ops_file_read(const struct ctl *ctl, const char *path, struct ops_file *ret_file);
void ops_file_deinit(struct ops_file *file);

/* When an op of a stream is due. */
struct ops_file_due {
	uint64_t n_before;   /* ops of the stream that have ended before: at most its number */
	uint64_t pause_nsec; /* since then, and since the op before was submitted */
};
/* For n ops of one stream.  Returns 0 or -ENOMEM. */
int ops_file_dues(const struct trace_op *ops, uint64_t n, struct ops_file_due *ret_dues);

#endif
