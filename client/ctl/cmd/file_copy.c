/*
 * Chunk number k uses chunks[k % FILE_COPY_CHUNKS].  Reads and writes are finished in the order of
 * the chunks, so three counters describe the state: chunks whose read has started, whose write has
 * started, whose write has ended.  All chunks except the first and the last are whole pages, which
 * go to the device without a copy.
 */
#include "client/ctl/cmd/file_copy.h"

#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "client/lib/api/client.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES (8u << 20)	     /* large enough that the next chunk's start costs nothing */
#define CHUNK_BYTES_MIN (256u << 10) /* where the client's share of the pool is small */

/* Adds the chunks that are being written to done_bytes, up to the first failure. */
static void await_writes(struct file_copy *copy)
{
	struct file_copy_run *run = &copy->run;

	for (; run->done < run->writing; run->done++) {
		struct chunk *chunk = &copy->chunks[run->done % FILE_COPY_CHUNKS];
		int64_t done = copy->to.file ? 0 : chunk->done;

		if (chunk->op && dsaio_op_wait(chunk->op, -1, &done) < 0)
			return;
		if (done < 0 || (size_t)done < chunk->len)
			return;
		copy->done_bytes += chunk->len;
	}
}

int file_copy_fail(struct file_copy *copy, const char *format, ...)
{
	char done[UNITS_TEXT_BYTES];
	_cleanup_(freep) char *why = NULL;
	va_list args;

	progress_stop(&copy->progress); /* erases the bar */
	va_start(args, format);
	why = text_vnew(format, args);
	va_end(args);
	await_writes(copy); /* changes dsaio_error() */
	(void)units_format_size(done, copy->done_bytes);
	if (copy->to.is_stream)
		return ctl_fail(copy->ctl, copy->done_bytes ? "%s: after %s" : "%s", why, done);
	if (copy->destination.is_device)
		return ctl_fail(copy->ctl, "%s: %s were written to %s", why, done, copy->to.path);
	if (copy->done_bytes == 0)
		return ctl_fail(copy->ctl, "%s: nothing was copied", why);
	return ctl_fail(copy->ctl, "%s: %s %s", why, copy->to.path,
			copy->to.is_rados || copy->destination.was_there ? "is as it was"
									 : "was not made");
}

/* ---- chunks ---- */

int file_copy_start_chunk(struct file_copy *copy, const struct side *side, struct chunk *chunk,
			  bool is_write)
{
	if (chunk_start(chunk, copy->handles[side->is_rados], side, is_write) < 0)
		return file_copy_fail(copy, "%s: %s", side->path, dsaio_error());
	return CTL_OK;
}

static int finish_chunk(struct file_copy *copy, const struct side *side, struct chunk *chunk,
			bool is_write, size_t *ret_done)
{
	char text[CHUNK_TEXT_BYTES];
	int r = chunk_finish(chunk, side, is_write, ret_done, text);

	if (r == 0)
		return CTL_OK;
	if (is_write && side->is_stream)
		copy->is_output_lost = true;
	if (r == -EPIPE) /* the reader has gone away: cat(1) reports nothing either */
		return CTL_FAILED;
	return file_copy_fail(copy, "%s", r == -EINTR ? "interrupted" : text);
}

int file_copy_finish_read(struct file_copy *copy, const struct side *side, struct chunk *chunk,
			  size_t *ret_done)
{
	size_t done = 0;
	int r = finish_chunk(copy, side, chunk, false, &done);

	if (r == CTL_OK && done < chunk->len && chunk->off + done < copy->end_min)
		return file_copy_fail(copy,
				      "%s: became shorter while it was copied: ends at byte "
				      "%" PRIu64 " of %" PRIu64,
				      side->path, chunk->off + done, copy->end_min);
	*ret_done = done;
	return r;
}

static int finish_write_chunk(struct file_copy *copy, struct chunk *chunk)
{
	size_t done = 0;
	int r = finish_chunk(copy, &copy->to, chunk, true, &done);

	if (r == CTL_OK && done < chunk->len)
		return file_copy_fail(copy,
				      "%s: write at byte %" PRIu64 ": took only %zu of %zu bytes",
				      copy->to.path, chunk->off, done, chunk->len);
	return r;
}

/* Memory that both daemons use without a copy: it stays until the process ends. */
static int share_memory(const struct file_copy *copy, size_t bytes, void **ret_memory)
{
	struct dsaio_memory m = DSAIO_MEMORY_INIT;
	_cleanup_(closep) int fd = memfd_create("dsaioctl", MFD_CLOEXEC);
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	m.start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m.start == MAP_FAILED)
		return -errno;
	m.kind = DSAIO_MEMORY_FD;
	m.fd = fd;
	m.bytes = bytes;
	*ret_memory = m.start;
	r = dsaio_memory_register(copy->clients[0], &m);
	if (r < 0)
		return r;
	r = dsaio_memory_register(copy->clients[1], &m);
	if (r < 0)
		(void)dsaio_memory_unregister(copy->clients[0], m.start);
	return r;
}

int file_copy_make_chunks(struct file_copy *copy, uint64_t n_bytes)
{
	size_t bytes = CHUNK_BYTES;
	void *memory;

	while (n_bytes < bytes && bytes > CHUNK_BYTES_MIN)
		bytes /= 2;
	for (;; bytes /= 2) {
		int r = copy->clients[0] && copy->clients[1]
				? share_memory(copy, FILE_COPY_CHUNKS * bytes, &memory)
				: dsaio_alloc(copy->clients[!copy->clients[0]],
					      FILE_COPY_CHUNKS * bytes, NULL, &memory);

		if (r == 0)
			break;
		if (r != -ENOMEM || bytes <= CHUNK_BYTES_MIN)
			return ctl_fail(copy->ctl, "%s", dsaio_error());
	}
	copy->chunk_bytes = bytes;
	for (unsigned i = 0; i < FILE_COPY_CHUNKS; i++)
		copy->chunks[i].memory = (char *)memory + i * bytes;
	return CTL_OK;
}

/* ---- all of them ---- */

/*
 * The file ended in the oldest chunk or before it: the chunks that were read ahead do not follow on
 * it.
 */
static int drop_ahead(struct file_copy *copy)
{
	struct file_copy_run *run = &copy->run;

	while (run->reading > run->writing + 1)
		if (chunk_drop(&copy->chunks[--run->reading % FILE_COPY_CHUNKS]) < 0)
			return file_copy_fail(copy, "interrupted");
	return CTL_OK;
}

/*
 * Moves *off to the next byte that has to be copied; *ret_end: behind the last one that follows on it.
 * Other destinations than new files, and those of RADOS stores, need zeros where the source has holes.  A file system
 * that knows of no holes reports data, and after an error all counts as data.
 */
static void find_data(const struct file_copy *copy, uint64_t *off, uint64_t *ret_end)
{
	off_t at;

	*ret_end = copy->end;
	if (copy->from.is_stream || copy->from.is_rados || copy->to.is_stream ||
	    copy->to.is_rados || copy->destination.is_device)
		return;
	at = lseek(copy->from.fd, (off_t)*off, SEEK_DATA);
	if (at < 0 && errno == ENXIO) /* a hole up to the end */
		at = (off_t)copy->end;
	if (at > (off_t)*off)
		*off = (uint64_t)at < copy->end ? (uint64_t)at : copy->end;
	at = lseek(copy->from.fd, (off_t)*off, SEEK_HOLE);
	if (at > (off_t)*off && (uint64_t)at < copy->end)
		*ret_end = (uint64_t)at;
}

static int start_read(struct file_copy *copy)
{
	struct file_copy_run *run = &copy->run;
	struct chunk *chunk = &copy->chunks[run->reading % FILE_COPY_CHUNKS];

	/* Not for each chunk: tmpfs looks at all pages up to the next hole. */
	if (run->pos >= run->data_end)
		find_data(copy, &run->pos, &run->data_end);
	run->is_at_end = run->pos == copy->end;
	if (run->is_at_end)
		return CTL_OK;
	run->reading++;
	chunk_place(chunk, copy->chunk_bytes, run->pos, run->data_end);
	run->pos += chunk->len;
	run->is_at_end = run->pos == copy->end;
	return file_copy_start_chunk(copy, &copy->from, chunk, false);
}

/* The oldest read has to end; then its write begins. */
static int start_write(struct file_copy *copy)
{
	struct file_copy_run *run = &copy->run;
	struct chunk *chunk = &copy->chunks[run->writing % FILE_COPY_CHUNKS];
	size_t done, asked = chunk->len;
	int r = file_copy_finish_read(copy, &copy->from, chunk, &done);

	if (r != CTL_OK)
		return r;
	chunk->len = done;
	if (done < asked) {
		r = drop_ahead(copy);
		/* The file may have grown meanwhile: it ends where a read returns nothing. */
		run->pos = chunk->off + done;
		run->is_at_end = done == 0 || copy->from.is_stream;
	}
	if (r == CTL_OK && done > 0)
		r = file_copy_start_chunk(copy, &copy->to, chunk, true);
	run->writing += r == CTL_OK;
	return r;
}

static int finish_write(struct file_copy *copy)
{
	struct chunk *chunk = &copy->chunks[copy->run.done % FILE_COPY_CHUNKS];
	int r = chunk->len ? finish_write_chunk(copy, chunk) : CTL_OK;

	if (r != CTL_OK)
		return r;
	copy->run.done++;
	copy->done_bytes += chunk->len;
	progress_update(&copy->progress, chunk->off + chunk->len - copy->start);
	return CTL_OK;
}

int file_copy_run(struct file_copy *copy, const char *label, uint64_t total_bytes, bool is_shown)
{
	struct file_copy_run *run = &copy->run;
	/*
	 * Half of the chunks are being read and half written.  A side without the daemon moves one
	 * chunk at a time, in this thread.
	 */
	uint64_t n_written = !copy->to.file    ? 1
			     : copy->from.file ? FILE_COPY_CHUNKS / 2
					       : FILE_COPY_CHUNKS;
	uint64_t n_read = copy->from.file ? FILE_COPY_CHUNKS : 1;
	int r = CTL_OK;

	*run = (struct file_copy_run){ .pos = copy->start,
				       .data_end = copy->start,
				       .is_at_end = copy->start >= copy->end };
	progress_start(&copy->progress, label, total_bytes);
	if (!is_shown)
		copy->progress.is_terminal = false;
	while (r == CTL_OK && !(run->is_at_end && run->done == run->reading)) {
		if (stop_signal())
			r = file_copy_fail(copy, "interrupted");
		else if (!run->is_at_end && run->reading - run->done < FILE_COPY_CHUNKS &&
			 run->reading - run->writing < n_read)
			r = start_read(copy);
		else if (run->writing < run->reading && run->writing - run->done < n_written)
			r = start_write(copy);
		else
			r = finish_write(copy);
	}
	progress_stop(&copy->progress);
	return r;
}

void file_copy_drain(struct file_copy *copy)
{
	for (unsigned i = 0; i < FILE_COPY_CHUNKS; i++) {
		struct chunk *chunk = &copy->chunks[i];

		if (chunk->op)
			(void)dsaio_op_wait(chunk->op, -1, NULL); /* its copy has failed already */
		dsaio_op_free(chunk->op);
		chunk->op = NULL;
	}
}

/* ---- the two files ---- */

/* Opens the source, or begins the destination, by its name.  n_bytes: of that; 0: not known yet. */
static int open_rados(struct file_copy *copy, struct side *side, uint64_t n_bytes)
{
	struct dsaio_open_options open_options = DSAIO_OPEN_OPTIONS_INIT;
	struct dsaio_create_options create_options = DSAIO_CREATE_OPTIONS_INIT;
	int r;

	open_options.flags = DSAIO_OPEN_URI;
	create_options.file_size = n_bytes;
	r = side == &copy->to
		    ? dsaio_create(copy->clients[1], side->path, &create_options, &side->file)
		    : dsaio_open(copy->clients[1], side->path, O_RDONLY, &open_options,
				 &side->file);
	return r < 0 ? ctl_fail(copy->ctl, "%s", stop_signal() ? "interrupted" : dsaio_error())
		     : CTL_OK;
}

int file_copy_open_from(struct file_copy *copy, bool may_be_device, struct stat *ret_stat)
{
	struct side *from = &copy->from;
	struct stat st;
	int r;

	if (from->is_rados) {
		r = open_rados(copy, from, 0);
		if (r == CTL_OK)
			*ret_stat = (struct stat){ .st_mode = 0666,
						   .st_size = dsaio_file_size(from->file) };
		return r;
	}
	/* stat() first: open() of a pipe would wait for a writer. */
	if (stat(from->path, &st) < 0)
		return ctl_fail(copy->ctl, "%s: %s", from->path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return ctl_fail(copy->ctl, "%s: is a directory: name one file", from->path);
	if (!S_ISREG(st.st_mode) && !(may_be_device && S_ISBLK(st.st_mode)))
		return ctl_fail(copy->ctl, "%s: is no regular file: use %s(1) or dd(1)", from->path,
				copy->ctl->command);
	from->fd = open(from->path, O_RDONLY | O_CLOEXEC);
	if (from->fd < 0 || fstat(from->fd, ret_stat) < 0)
		return ctl_fail(copy->ctl, "%s: %s", from->path, strerror(errno));
	return CTL_OK;
}

int file_copy_check_to(struct file_copy *copy, const struct stat *from_stat)
{
	char text[DESTINATION_TEXT_BYTES];
	int r = destination_check(&copy->destination, &copy->to, copy->from.path, from_stat, text);

	return r < 0 ? ctl_fail(copy->ctl, "%s", text) : CTL_OK;
}

int file_copy_open_to(struct file_copy *copy, mode_t mode, uint64_t n_bytes)
{
	char text[DESTINATION_TEXT_BYTES];

	if (copy->to.is_rados)
		return open_rados(copy, &copy->to, n_bytes);
	if (destination_open(&copy->destination, mode, text) < 0)
		return ctl_fail(copy->ctl, "%s", text);
	return CTL_OK;
}

/* Connects to the daemon of RADOS stores, or to that of files, with those of the paths. */
static int connect_for(struct file_copy *copy, bool is_rados, const char *const *paths,
		       size_t n_paths)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	_cleanup_(freep) const char **chosen = NEW_ARRAY(const char *, n_paths);
	size_t n = 0;
	int r;

	for (size_t i = 0; i < n_paths; i++)
		if (uri_is_rados(paths[i]) == is_rados)
			chosen[n++] = paths[i];
	if (n == 0)
		return CTL_OK;
	if (n < n_paths || is_rados)
		options.io_class = DSAIO_CLASS_BACKGROUND;
	r = ctl_connect(copy->ctl, chosen, n, &copy->clients[is_rados]);
	if (r == CTL_OK &&
	    dsaio_handle_open(copy->clients[is_rados], &options, &copy->handles[is_rados]) < 0)
		r = ctl_fail(copy->ctl, "%s", dsaio_error());
	return r;
}

int file_copy_connect(struct file_copy *copy, const char *const *paths, size_t n_paths)
{
	int r;

	copy->ctl->is_through_restarts = true;
	r = connect_for(copy, true, paths, n_paths);
	if (r == CTL_OK)
		r = connect_for(copy, false, paths, n_paths);
	if (r != CTL_OK)
		return r;
	/* cat has nothing to remove. */
	r = copy->to.is_stream ? 0 : stop_catch((int)SA_RESETHAND);
	if (r < 0)
		return ctl_fail(copy->ctl, "signals: %s", strerror(-r));
	return CTL_OK;
}

int file_copy_attach(struct file_copy *copy, struct side *side, const char *other)
{
	int r = side->is_rados ? 0 : dsaio_file_from_fd(copy->clients[0], side->fd, &side->file);

	if (r == -ENXIO || r == -EOPNOTSUPP)
		return file_copy_fail(copy, "%s: use %s%s", dsaio_error(), other,
				      ctl_or_private(copy->ctl, r));
	if (r < 0)
		return file_copy_fail(copy, "%s", dsaio_error());
	if (side == &copy->to && !side->is_rados)
		file_set_temporary(side->file, side->path);
	return CTL_OK;
}

int file_copy_reserve(struct file_copy *copy)
{
	char text[DESTINATION_TEXT_BYTES];
	uint64_t off = 0, end;

	if (copy->to.is_rados)
		return CTL_OK;
	for (; off < copy->end; off = end) {
		find_data(copy, &off, &end);
		if (off < end && destination_reserve(&copy->destination, off, end - off, text) < 0)
			return file_copy_fail(copy, "%s", text);
	}
	return CTL_OK;
}

/* Where nobody has answered, abandoning tells: it fails for a file that is committed. */
static int file_commit(struct file_copy *copy)
{
	int r = dsaio_file_commit(copy->to.file, 0), abandoned = 0;

	if (r < 0)
		abandoned = dsaio_file_abandon(copy->to.file);
	copy->is_committed = r == 0 || abandoned < 0;
	if (r == 0 || abandoned == -ESTALE)
		return CTL_OK;
	return abandoned < 0 ? ctl_fail(copy->ctl,
					"%s; it is not known whether it was committed: dsaioctl "
					"stat shows it",
					dsaio_error())
			     : file_copy_fail(copy, "%s", dsaio_error());
}

int file_copy_place(struct file_copy *copy, bool is_synced)
{
	char text[DESTINATION_TEXT_BYTES];
	int r;

	if (stop_signal())
		return file_copy_fail(copy, "interrupted");
	if (copy->to.is_rados)
		return file_commit(copy);
	r = destination_place(&copy->destination, copy->ctl, is_synced, text);
	if (r == 0)
		return CTL_OK;
	return copy->destination.temp.is_placed ? ctl_fail(copy->ctl, "%s", text)
						: file_copy_fail(copy, "%s", text);
}

void file_copy_deinit(struct file_copy *copy)
{
	/* First, as the daemon may still use the buffers and files.  Ops are open only where the copy failed or was
	   stopped. */
	handle_closep(&copy->handles[0]);
	handle_closep(&copy->handles[1]);
	if (copy->to.is_rados && copy->to.file && !copy->is_committed)
		(void)dsaio_file_abandon(copy->to.file); /* else its store does, later */
	client_disconnectp(&copy->clients[0]);
	client_disconnectp(&copy->clients[1]);
	destination_deinit(&copy->destination);
	if (!copy->from.is_stream)
		closep(&copy->from.fd);
	if (!copy->to.is_stream)
		closep(&copy->to.fd);
}
