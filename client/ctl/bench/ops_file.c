#include "client/ctl/bench/ops_file.h"

#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MAX                                                                                 \
	(sizeof(struct ops_file_header) + OPS_FILE_STREAMS_MAX * sizeof(struct ops_file_stream) + \
	 OPS_FILE_FILES_MAX * sizeof(struct ops_file_file) +                                      \
	 OPS_FILE_OPS_MAX * sizeof(struct ops_file_op))

__attribute__((format(printf, 3, 4))) static int refuse(char *text, size_t size, const char *format,
							...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, size, format, args);
	va_end(args);
	return -EINVAL;
}

void ops_file_deinit(struct ops_file *file)
{
	free(file->bytes);
	*file = (struct ops_file){ 0 };
}

static int check_header(const struct ops_file_header *header, size_t len, char *text, size_t size)
{
	if (memcmp(header->magic, OPS_FILE_MAGIC, sizeof(header->magic)) != 0)
		return refuse(text, size, "is no file of dsaioctl trace record");
	if (header->version != OPS_FILE_VERSION)
		return refuse(text, size,
			      "has version %" PRIu32
			      ", and this dsaioctl reads %u: use a later one",
			      header->version, OPS_FILE_VERSION);
	if (!header->n_streams || header->n_streams > OPS_FILE_STREAMS_MAX ||
	    header->n_files > OPS_FILE_FILES_MAX || header->n_ops > OPS_FILE_OPS_MAX ||
	    header->duration_nsec > OPS_FILE_NSEC_MAX)
		return refuse(text, size,
			      "has %" PRIu32 " streams, %" PRIu32 " files, %" PRIu64
			      " ops: from 1 to %u, at most %u and %" PRIu64 " are possible",
			      header->n_streams, header->n_files, header->n_ops,
			      OPS_FILE_STREAMS_MAX, OPS_FILE_FILES_MAX, OPS_FILE_OPS_MAX);
	if (header->zero || len != sizeof(*header) +
					    header->n_streams * sizeof(struct ops_file_stream) +
					    header->n_files * sizeof(struct ops_file_file) +
					    header->n_ops * sizeof(struct ops_file_op))
		return refuse(text, size, "is damaged: it has %zu bytes", len);
	return 0;
}

static bool is_text(const char *text, size_t size)
{
	size_t i = 0;

	while (i < size && text[i] >= ' ' && text[i] < 0x7f)
		i++;
	return i < size && !text[i];
}

static bool is_op(const struct ops_file *file, const struct ops_file_op *op, uint64_t at_least_nsec)
{
	const bool is_sync = op->kind > OPS_FILE_WRITE;
	const uint64_t end_nsec = file->header->duration_nsec;

	return op->kind >= OPS_FILE_READ && op->kind <= OPS_FILE_FDATASYNC &&
	       op->file < file->header->n_files && op->at_nsec >= at_least_nsec &&
	       op->at_nsec <= end_nsec && op->latency_nsec <= end_nsec - op->at_nsec &&
	       op->off <= OPS_FILE_BYTES_MAX && op->len <= OPS_FILE_BYTES_MAX &&
	       op->done <= op->len &&
	       (!op->done || op->off + op->done <= file->files[op->file].end) &&
	       (op->kind != OPS_FILE_WRITE || op->done == op->len) &&
	       (!is_sync || (!op->len && !op->off));
}

static int check(const struct ops_file *file, char *text, size_t size)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < file->header->n_files; i++)
		if (file->files[i].size > file->files[i].end ||
		    file->files[i].end > OPS_FILE_BYTES_MAX)
			return refuse(text, size, "is damaged: file %" PRIu32, i);
	for (uint32_t i = 0; i < file->header->n_streams; i++) {
		const struct ops_file_stream *stream = &file->streams[i];

		if (!stream->n_ops || stream->n_ops > file->header->n_ops - at ||
		    !is_text(stream->store, sizeof(stream->store)) ||
		    !is_text(stream->command, sizeof(stream->command)))
			return refuse(text, size, "is damaged: stream %" PRIu32, i);
		for (uint64_t k = at; k < at + stream->n_ops; k++)
			if (!is_op(file, &file->ops[k], k > at ? file->ops[k - 1].at_nsec : 0))
				return refuse(text, size, "is damaged: op %" PRIu64, k);
		at += stream->n_ops;
	}
	return at == file->header->n_ops ? 0 : refuse(text, size, "is damaged: ops of no stream");
}

int ops_file_parse(void *bytes, size_t len, struct ops_file *ret_file, char *text, size_t size)
{
	struct ops_file file = { .bytes = bytes, .len = len, .header = bytes };
	int r;

	if (len < sizeof(*file.header))
		r = refuse(text, size, "is no file of dsaioctl trace record: %zu bytes", len);
	else
		r = check_header(file.header, len, text, size);
	if (r == 0) {
		file.streams = (const void *)(file.header + 1);
		file.files = (const void *)(file.streams + file.header->n_streams);
		file.ops = (const void *)(file.files + file.header->n_files);
		r = check(&file, text, size);
	}
	if (r == 0)
		*ret_file = file;
	else
		ops_file_deinit(&file);
	return r;
}

static int failed(int error, char *text, size_t size)
{
	(void)snprintf(text, size, "%s", strerrordesc_np(-error));
	return error;
}

int ops_file_read(const char *path, struct ops_file *ret_file, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(freep) char *bytes = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return failed(-errno, text, size);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)BYTES_MAX)
		return refuse(text, size, "is no file of dsaioctl trace record");
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return failed(-ENOMEM, text, size);
	while (n > 0) {
		n = read(fd, bytes + len, (size_t)st.st_size - len);
		if (n < 0)
			return failed(-errno, text, size);
		len += (size_t)n;
	}
	return ops_file_parse(TAKE_PTR(bytes), len, ret_file, text, size);
}

static int compare_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int ops_file_dues(const struct ops_file_op *ops, uint64_t n, struct ops_file_due *ret_dues)
{
	_cleanup_(freep) uint64_t *ends = calloc(n + 1, sizeof(*ends));
	uint64_t n_ended = 0;

	if (!ends)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		ends[i] = ops[i].at_nsec + ops[i].latency_nsec;
	qsort(ends, n, sizeof(*ends), compare_times);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t since = i ? ops[i - 1].at_nsec : 0;

		/* Later ops that took no time may have ended by then, too. */
		while (n_ended < i && ends[n_ended] <= ops[i].at_nsec)
			n_ended++;
		if (n_ended && ends[n_ended - 1] > since)
			since = ends[n_ended - 1];
		ret_dues[i] = (struct ops_file_due){ n_ended, ops[i].at_nsec - since };
	}
	return 0;
}
