#include "client/ctl/cmd/trace_file.h"

#include "proto/ring.h"
#include "proto/util/cleanup.h"
#include "proto/util/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 3, 4))) static int invalid(char *text, size_t size,
							 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, size, format, args); /* long text is truncated */
	va_end(args);
	return -EINVAL;
}

void trace_file_deinit(struct trace_file *file)
{
	free(file->events);
	file->events = NULL;
}

/* The file has its length and its version. */
static int check_header(const struct recording *header, size_t len, char *text, size_t size)
{
	if (memcmp(header->magic, RECORDING_MAGIC, sizeof(header->magic)) != 0)
		return invalid(text, size, "is no file of the flight recorder");
	if (header->version != RECORDING_VERSION ||
	    header->event_bytes != sizeof(struct recording_event))
		return invalid(text, size,
			       "has version %u, and this dsaioctl reads %u: use the one that "
			       "belongs to that daemon",
			       header->version, RECORDING_VERSION);
	if (header->n_events < 2 * RECORDING_MARGIN || header->n_events > RECORDING_EVENTS_MAX ||
	    (header->n_events & (header->n_events - 1)) || len != RECORDING_BYTES(header->n_events))
		return invalid(text, size, "is damaged: %u events in %zu bytes", header->n_events,
			       len);
	return 0;
}

int trace_file_parse(const void *bytes, size_t len, uint64_t n_written, struct trace_file *ret_file,
		     char *text, size_t size)
{
	struct trace_file file = { 0 };
	struct recording header;
	uint64_t n, most, oldest;
	int r;

	if (len < sizeof(header))
		return invalid(text, size, "is no file of the flight recorder: %zu bytes", len);
	memcpy(&header, bytes, sizeof(header));
	r = check_header(&header, len, text, size);
	if (r < 0)
		return r;
	/* relaxed: a copy of our own */
	n = atomic_load_explicit(&header.n_written, memory_order_relaxed);
	most = header.n_events - RECORDING_MARGIN;
	/* The places of older ones may have been written again. */
	if (n_written < n)
		n_written = n;
	oldest = n_written > most ? n_written - most : 0;
	if (oldest > n)
		oldest = n;

	memcpy(file.store, header.store, sizeof(file.store) - 1);
	memcpy(file.program, header.program, sizeof(file.program) - 1);
	file.pid = header.pid;
	file.crash_signal = header.crash_signal;
	file.process_ticks = header.process_ticks;
	file.start_nsec = header.start_nsec;
	file.start_real_nsec = header.start_real_nsec;
	file.crash_nsec = header.crash_nsec;
	file.n_events = (size_t)(n - oldest);
	file.events = calloc(file.n_events + 1, sizeof(*file.events));
	if (!file.events) {
		(void)invalid(text, size, "out of memory");
		return -ENOMEM;
	}
	for (uint64_t i = 0; i < file.n_events; i++)
		memcpy(&file.events[i],
		       (const char *)bytes + sizeof(header) +
			       ((oldest + i) & (header.n_events - 1)) * sizeof(*file.events),
		       sizeof(*file.events));
	*ret_file = file;
	return 0;
}

static int failed(int error, char *text, size_t size)
{
	(void)snprintf(text, size, "%s", strerrordesc_np(-error));
	return error;
}

int trace_file_read(int fd, struct trace_file *ret_file, char *text, size_t size)
{
	_cleanup_(freep) char *bytes = NULL;
	uint64_t n_written = 0;
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return failed(-errno, text, size);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)RECORDING_BYTES(RECORDING_EVENTS_MAX))
		return invalid(text, size, "is no file of the flight recorder");
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return failed(-ENOMEM, text, size);
	do {
		n = pread(fd, bytes + len, (size_t)st.st_size - len, (off_t)len);
		if (n < 0)
			return failed(-errno, text, size);
		len += (size_t)n;
	} while (n > 0);
	if (pread(fd, &n_written, sizeof(n_written), offsetof(struct recording, n_written)) < 0)
		return failed(-errno, text, size);
	return trace_file_parse(bytes, len, n_written, ret_file, text, size);
}

bool trace_file_is_live(const struct trace_file *file)
{
	struct process process;

	return file->pid <= INT32_MAX && process_look((pid_t)file->pid, &process) &&
	       process.started == file->process_ticks && process.state != 'Z';
}

uint64_t trace_file_real_nsec(const struct trace_file *file, uint64_t nsec)
{
	return file->start_real_nsec +
	       (nsec - file->start_nsec); /* wraps for a stranger's values */
}

static const char *text_of(const char *const *texts, size_t n, unsigned value,
			   char number[TRACE_NUMBER_BYTES])
{
	if (value < n && texts[value])
		return texts[value];
	(void)snprintf(number, TRACE_NUMBER_BYTES, "%u", value);
	return number;
}

const char *trace_event_text(const struct recording_event *event, char number[TRACE_NUMBER_BYTES])
{
	static const char *const texts[N_RECORDING_KINDS] = {
		[RECORDING_TAKEN] = "taken",
		[RECORDING_ENDED] = "ended",
		[RECORDING_CANCELLED] = "cancelled",
		[RECORDING_AT_ENGINE] = "block started",
		[RECORDING_AT_WORKER] = "block at worker",
		[RECORDING_BLOCK_DONE] = "block done",
		[RECORDING_RETURNED] = "block returned",
		[RECORDING_HUNG] = "block hung",
	};

	return text_of(texts, N_RECORDING_KINDS, event->kind, number);
}

const char *trace_opcode_text(const struct recording_event *event, char number[TRACE_NUMBER_BYTES])
{
	static const char *const texts[] = {
		[RING_OP_READ] = "read",	  [RING_OP_WRITE] = "write",
		[RING_OP_FSYNC] = "fsync",	  [RING_OP_FDATASYNC] = "fdatasync",
		[RECORDING_OP_EXTEND] = "extend",
	};

	return text_of(texts, sizeof(texts) / sizeof(texts[0]), event->opcode, number);
}
