#include "client/ctl/bench/ops_file.h"

#include "proto/ring.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MAX (sizeof(struct ops_file_header) + OPS_FILE_OPS_MAX * sizeof(struct trace_op))

void ops_file_deinit(struct ops_file *file)
{
	free(file->header);
	file->header = NULL;
}

static int check_header(const struct ctl *ctl, const char *path,
			const struct ops_file_header *header, size_t len)
{
	if (len < sizeof(*header) || memcmp(header->magic, OPS_FILE_MAGIC, 8) != 0)
		return ctl_fail(ctl, "%s: is no file of dsaioctl trace record", path);
	if (header->version != OPS_FILE_VERSION || header->op_bytes != sizeof(struct trace_op))
		return ctl_fail(ctl,
				"%s: has version %" PRIu32
				", and this dsaioctl reads %u: record the job "
				"anew, or use the dsaioctl that has recorded it",
				path, header->version, OPS_FILE_VERSION);
	if (!header->n_ops || header->n_ops > OPS_FILE_OPS_MAX ||
	    len != sizeof(*header) + header->n_ops * sizeof(struct trace_op))
		return ctl_fail(ctl, "%s: is damaged: %" PRIu64 " ops in %zu bytes", path,
				header->n_ops, len);
	return 0;
}

bool ops_file_has(const struct trace_op *op)
{
	const bool is_sync = op->opcode > RING_OP_WRITE;

	return op->opcode >= RING_OP_READ && op->opcode <= RING_OP_FDATASYNC &&
	       op->ended_nsec >= op->taken_nsec && op->result >= 0 &&
	       op->off <= OPS_FILE_BYTES_MAX && op->len <= OPS_FILE_BYTES_MAX &&
	       (uint64_t)op->result <= op->len &&
	       (op->opcode == RING_OP_READ || (uint64_t)op->result == op->len) &&
	       (!is_sync || (!op->len && !op->off));
}

static int compare_files(const void *a, const void *b)
{
	return TRACE_OP_COMPARE(a, b, file, channel);
}

static int compare_streams(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;
	const int r = TRACE_OP_COMPARE(a, b, daemon, id);

	if (r == 0 && x->taken_nsec != y->taken_nsec)
		return x->taken_nsec < y->taken_nsec ? -1 : 1;
	return r ? r : TRACE_OP_COMPARE(a, b, id, pid);
}

/* Returns -EINVAL where there are too many. */
static int find_files(struct ops_file *file)
{
	struct trace_op before = { 0 };

	qsort(file->ops, file->header->n_ops, sizeof(*file->ops), compare_files);
	for (uint64_t i = 0; i < file->header->n_ops; i++) {
		struct trace_op *op = &file->ops[i];
		const uint64_t end = op->result ? op->off + (uint64_t)op->result : 0;

		if ((i == 0 || compare_files(op, &before) != 0) &&
		    file->n_files++ == OPS_FILE_FILES_MAX)
			return -EINVAL;
		before = *op;
		op->file = file->n_files - 1;
		if (end > file->file_bytes[op->file])
			file->file_bytes[op->file] = end;
	}
	return 0;
}

static int find_streams(struct ops_file *file)
{
	qsort(file->ops, file->header->n_ops, sizeof(*file->ops), compare_streams);
	for (const struct trace_op *op = file->ops; op < file->ops + file->header->n_ops; op++) {
		if ((op == file->ops || TRACE_OP_COMPARE(op, op - 1, daemon, id) != 0) &&
		    file->n_streams++ == OPS_FILE_STREAMS_MAX)
			return -EINVAL;
		file->stream_ops[file->n_streams - 1]++;
	}
	return 0;
}

static int check(const struct ctl *ctl, const char *path, struct ops_file *file)
{
	uint64_t start = UINT64_MAX, end = 0;

	for (uint64_t i = 0; i < file->header->n_ops; i++) {
		const struct trace_op *op = &file->ops[i];

		if (!ops_file_has(op))
			return ctl_fail(ctl, "%s: is damaged: op %" PRIu64, path, i);
		start = op->taken_nsec < start ? op->taken_nsec : start;
		end = op->ended_nsec > end ? op->ended_nsec : end;
	}
	file->duration_nsec = end - start;
	if (file->duration_nsec > OPS_FILE_NSEC_MAX)
		return ctl_fail(ctl, "%s: took more than 7 days: record less", path);
	for (uint64_t i = 0; i < file->header->n_ops; i++) {
		file->ops[i].taken_nsec -= start;
		file->ops[i].ended_nsec -= start;
	}
	if (find_files(file) < 0 || find_streams(file) < 0)
		return ctl_fail(
			ctl,
			"%s: has over %u streams or %u files: choose some by trace record's "
			"options",
			path, OPS_FILE_STREAMS_MAX, OPS_FILE_FILES_MAX);
	return 0;
}

int ops_file_parse(const struct ctl *ctl, const char *path, void *bytes, size_t len,
		   struct ops_file *ret_file)
{
	int r = check_header(ctl, path, bytes, len);

	*ret_file = (struct ops_file){ .header = bytes };
	ret_file->ops = (void *)(ret_file->header + 1);
	if (r == CTL_OK)
		r = check(ctl, path, ret_file);
	if (r != CTL_OK)
		ops_file_deinit(ret_file);
	return r;
}

int ops_file_read(const struct ctl *ctl, const char *path, struct ops_file *ret_file)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(freep) char *bytes = NULL;
	struct stat st;
	ssize_t n = 1;
	size_t len;

	if (fd < 0 || fstat(fd, &st) < 0)
		return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)BYTES_MAX)
		return ctl_fail(ctl, "%s: is no file of dsaioctl trace record", path);
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return ctl_fail(ctl, "out of memory");
	for (len = 0; n > 0; len += (size_t)n) {
		n = read(fd, bytes + len, (size_t)st.st_size - len);
		if (n < 0)
			return ctl_fail(ctl, "%s: %s", path, strerrordesc_np(errno));
	}
	return ops_file_parse(ctl, path, TAKE_PTR(bytes), len, ret_file);
}

static int compare_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int ops_file_dues(const struct trace_op *ops, uint64_t n, struct ops_file_due *ret_dues)
{
	_cleanup_(freep) uint64_t *ends = calloc(n + 1, sizeof(*ends));
	uint64_t n_ended = 0;

	if (!ends)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		ends[i] = ops[i].ended_nsec;
	qsort(ends, n, sizeof(*ends), compare_times);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t since = i ? ops[i - 1].taken_nsec : 0;

		/* Later ops that took no time may have ended by then, too. */
		while (n_ended < i && ends[n_ended] <= ops[i].taken_nsec)
			n_ended++;
		if (n_ended && ends[n_ended - 1] > since)
			since = ends[n_ended - 1];
		ret_dues[i] = (struct ops_file_due){ n_ended, ops[i].taken_nsec - since };
	}
	return 0;
}
