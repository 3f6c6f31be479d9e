/*
 * The ops of a job, as dsaioctl trace record writes them and dsaioctl bench replay does them again.
 *
 * The file is a header, then n_streams streams, n_files files and n_ops ops, all little-endian and without gaps.  A
 * stream is a client's channel: a handle of a program, on one store.  The ops of a stream follow each other
 * by the time at which the lane took them; those of the first stream come first.  All ops had succeeded.
 *
 * Depth and pauses are not in the file, since they follow from times and latencies: before op i of a stream
 * so many ops had ended (n_before), and the program then waited so long (pause_nsec).
 *
 * The file is a stranger's: ops_file_parse() refuses what is not as this page says.
 */
#ifndef DSAIO_CLIENT_CTL_BENCH_OPS_FILE_H
#define DSAIO_CLIENT_CTL_BENCH_OPS_FILE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define OPS_FILE_MAGIC "dsaioops"
#define OPS_FILE_VERSION 1u
#define OPS_FILE_STREAMS_MAX 256u	     /* each is a process of a replay: a guess */
#define OPS_FILE_FILES_MAX 65536u	     /* each is an open file there: a guess */
#define OPS_FILE_OPS_MAX (UINT64_C(4) << 20) /* 400 MiB of memory while they are recorded */
#define OPS_FILE_NSEC_MAX (UINT64_C(7) * 86400 * 1000000000)
#define OPS_FILE_BYTES_MAX (UINT64_C(1) << 46) /* of a recorded file, as of the files of benches */

enum ops_file_kind { OPS_FILE_READ = 1, OPS_FILE_WRITE, OPS_FILE_FSYNC, OPS_FILE_FDATASYNC };

struct ops_file_header {
	char magic[8];
	uint32_t version, n_streams, n_files, zero;
	uint64_t n_ops;
	uint64_t n_left_out;			 /* ops that failed, had not ended, or were lost */
	uint64_t start_real_nsec, duration_nsec; /* of the first op, and until the last one ended */
};
static_assert(sizeof(struct ops_file_header) == 56, "a part of the format");

struct ops_file_stream {
	uint64_t n_ops;
	uint32_t client, channel, pid, uid;
	char store[32], command[16]; /* with a NUL */
};
static_assert(sizeof(struct ops_file_stream) == 72, "a part of the format");

/* size: so long it has to be at the start; end: so long it becomes. */
struct ops_file_file {
	uint64_t size, end;
};

struct ops_file_op {
	uint64_t at_nsec; /* since the first op */
	uint64_t latency_nsec, off, len, done;
	uint32_t file;
	uint32_t kind; /* enum ops_file_kind */
};
static_assert(sizeof(struct ops_file_op) == 48, "a part of the format");

struct ops_file {
	void *bytes; /* owned; the others point there */
	size_t len;
	const struct ops_file_header *header;
	const struct ops_file_stream *streams;
	const struct ops_file_file *files;
	const struct ops_file_op *ops;
};

/* len bytes, from malloc(3): takes them, also on error.  Returns 0, or -EINVAL and why in text (of size bytes). */
int ops_file_parse(void *bytes, size_t len, struct ops_file *ret_file, char *text, size_t size);
/* The same; also -ENOMEM, and what open(2) and read(2) say. */
int ops_file_read(const char *path, struct ops_file *ret_file, char *text, size_t size);
void ops_file_deinit(struct ops_file *file);

/* When an op of a stream is due. */
struct ops_file_due {
	uint64_t n_before;   /* ops of the stream that have ended before: at most its number */
	uint64_t pause_nsec; /* since then, and since the op before was submitted */
};
/* For n ops of one stream.  Returns 0 or -ENOMEM. */
int ops_file_dues(const struct ops_file_op *ops, uint64_t n, struct ops_file_due *ret_dues);

#endif
