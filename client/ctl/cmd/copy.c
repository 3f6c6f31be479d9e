/*
 * Piece k lives in buffer k modulo their number; reads and writes end in the order of the pieces,
 * so three counters tell all: pieces whose read was started, whose write was started, whose
 * write has ended.  All pieces but the first and the last are whole pages, which go straight to
 * the device.
 */
#include "client/ctl/cmd/copy.h"

#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (8u << 20)	     /* large enough that the next piece's start costs nothing */
#define PIECE_BYTES_MIN (256u << 10) /* where the client's share of the pool is small */
#define PAGE 4096u
#define LOOK_USEC 200000 /* how often a wait looks whether Ctrl-C was pressed */

/* Counts what is being written, up to the first piece that is not. */
static void await_writes(struct copy *copy)
{
	struct copy_run *run = &copy->run;

	for (; run->done < run->writing; run->done++) {
		struct piece *piece = &copy->pieces[run->done % COPY_PIECES];
		int64_t done = copy->to.file ? 0 : piece->done;

		if (piece->op && dsaio_op_wait(piece->op, -1, &done) < 0)
			return;
		if (done < 0 || (size_t)done < piece->len)
			return;
		copy->done_bytes += piece->len;
	}
}

int copy_fail(struct copy *copy, const char *format, ...)
{
	char done[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES] = "";
	_cleanup_(freep) char *text = NULL;
	const char *why;
	va_list args;

	progress_stop(&copy->progress); /* the sentence has the line to itself */
	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	why = text ? text : "out of memory";
	await_writes(copy); /* changes dsaio_error() */
	(void)units_format_size(done, copy->done_bytes);
	if (copy->is_complete)
		return ctl_fail(copy->ctl, "%s: %s is complete and synced, but not compared", why,
				copy->to.path);
	if (copy->to.is_stream)
		return ctl_fail(copy->ctl, copy->done_bytes ? "%s: after %s" : "%s", why, done);
	if (copy->done_bytes == 0 && (copy->is_made || copy_has_temp(copy) || !copy->is_changed))
		return ctl_fail(copy->ctl, "%s: nothing was copied", why);
	if (copy->end != UINT64_MAX)
		(void)units_format_size(size, copy->end - copy->start);
	return ctl_fail(copy->ctl, "%s: %s%s%s were copied; %s %s", why, done,
			size[0] ? " of " : "", size, copy->to.path,
			!copy_has_temp(copy) ? "is not complete"
			: copy->was_there    ? "is as it was"
					     : "was not made");
}

/* ---- pieces ---- */

void piece_place(const struct copy *copy, struct piece *piece, uint64_t off, uint64_t end)
{
	size_t skip = off % PAGE, room = copy->piece_bytes - skip;

	piece->data = piece->memory + skip;
	piece->off = off;
	piece->len = end - off < room ? (size_t)(end - off) : room;
}

/*
 * Moves a piece at its offset.  A read may end early, at the end of the file; it asks for whole
 * pages, as O_DIRECT wants it, which the buffer has.
 */
static int64_t move_plainly(const struct side *side, const struct piece *piece, bool is_write)
{
	size_t len = is_write ? piece->len : (piece->len + PAGE - 1) & ~(size_t)(PAGE - 1);
	size_t done = 0;

	while (done < piece->len) {
		off_t off = (off_t)(piece->off + done);
		ssize_t n = is_write ? pwrite(side->fd, piece->data + done, len - done, off)
				     : pread(side->fd, piece->data + done, len - done, off);

		if (n < 0 && errno == EINTR && !stop_signal())
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)(done < piece->len ? done : piece->len);
}

/* Fills a piece from a stream, to its end if need be; or writes all of it. */
static int64_t move_stream(const struct side *side, const struct piece *piece, bool is_write)
{
	struct pollfd p = { .fd = side->fd, .events = is_write ? POLLOUT : POLLIN };
	size_t done = 0;

	while (done < piece->len) {
		ssize_t n;

		/* The other end may leave us waiting for ever. */
		if (poll(&p, 1, LOOK_USEC / 1000) <= 0) {
			if (stop_signal())
				return -EINTR;
			continue;
		}
		n = is_write ? write(side->fd, piece->data + done, piece->len - done)
			     : read(side->fd, piece->data + done, piece->len - done);
		if (n < 0 && (errno == EAGAIN || (errno == EINTR && !stop_signal())))
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)done;
}

int piece_start(struct copy *copy, const struct side *side, struct piece *piece, bool is_write)
{
	int r;

	if (!side->file) {
		piece->done = side->is_stream ? move_stream(side, piece, is_write)
					      : move_plainly(side, piece, is_write);
		return CTL_OK;
	}
	r = is_write ? dsaio_pwrite_async(copy->handle, side->file, piece->data, piece->len,
					  piece->off, &piece->op)
		     : dsaio_pread_async(copy->handle, side->file, piece->data, piece->len,
					 piece->off, &piece->op);
	return r < 0 ? copy_fail(copy, "%s: %s", side->path, dsaio_error()) : CTL_OK;
}

/* Waits for the piece's end, which *ret_done says if it is none of an error. */
static int piece_finish(struct copy *copy, const struct side *side, struct piece *piece,
			const char *what, size_t *ret_done)
{
	int64_t done = piece->done;
	int r = CTL_OK;

	if (!piece->op && done < 0 && side == &copy->to && side->is_stream)
		copy->is_output_lost = true;
	while (piece->op && !dsaio_op_test(piece->op)) {
		if (stop_signal())
			return copy_fail(copy, "interrupted");
		(void)dsaio_op_wait(piece->op, LOOK_USEC, NULL); /* dsaio_op_test() tells */
	}
	if (piece->op)
		done = dsaio_op_result(piece->op);
	if (done >= 0) {
		*ret_done = (size_t)done;
	} else if (piece->op) {
		r = copy_fail(copy, "%s: %s", side->path, dsaio_op_error(piece->op));
	} else if (done == -EINTR) {
		r = copy_fail(copy, "interrupted");
	} else if (done == -EPIPE) { /* nobody wants more: nothing to tell */
		r = CTL_FAILED;
	} else {
		r = copy_fail(copy, "%s: %s at byte %" PRIu64 ": %s", side->path, what, piece->off,
			      strerror((int)-done));
	}
	dsaio_op_free(piece->op);
	piece->op = NULL;
	return r;
}

int piece_finish_read(struct copy *copy, const struct side *side, struct piece *piece,
		      size_t *ret_done)
{
	size_t done = 0;
	int r = piece_finish(copy, side, piece, "read", &done);

	if (r == CTL_OK && done < piece->len && piece->off + done < copy->end_min)
		return copy_fail(copy,
				 "%s: became shorter while it was copied: ends at byte %" PRIu64
				 " of %" PRIu64,
				 side->path, piece->off + done, copy->end_min);
	*ret_done = done;
	return r;
}

int piece_finish_write(struct copy *copy, const struct side *side, struct piece *piece)
{
	size_t done = 0;
	int r = piece_finish(copy, side, piece, "write", &done);

	if (r == CTL_OK && done < piece->len)
		return copy_fail(copy, "%s: write at byte %" PRIu64 ": took only %zu of %zu bytes",
				 side->path, piece->off, done, piece->len);
	return r;
}

int copy_make_pieces(struct copy *copy, uint64_t n_bytes)
{
	size_t bytes = PIECE_BYTES;
	void *memory;

	while (n_bytes < bytes && bytes > PIECE_BYTES_MIN)
		bytes /= 2;
	for (;; bytes /= 2) {
		int r = dsaio_alloc(copy->client, COPY_PIECES * bytes, &memory);

		if (r == 0)
			break;
		if (r != -ENOMEM || bytes <= PIECE_BYTES_MIN)
			return ctl_fail(copy->ctl, "%s", dsaio_error());
	}
	copy->piece_bytes = bytes;
	for (unsigned i = 0; i < COPY_PIECES; i++)
		copy->pieces[i].memory = (char *)memory + i * bytes;
	return CTL_OK;
}

/* ---- all of them ---- */

/* The file ended within the oldest piece, or before it: what was read ahead lies behind a gap. */
static int drop_ahead(struct copy *copy)
{
	struct copy_run *run = &copy->run;

	while (run->reading > run->writing + 1) {
		struct piece *piece = &copy->pieces[--run->reading % COPY_PIECES];

		while (piece->op && !dsaio_op_test(piece->op)) {
			if (stop_signal())
				return copy_fail(copy, "interrupted");
			(void)dsaio_op_wait(piece->op, LOOK_USEC, NULL); /* dsaio_op_test() tells */
		}
		dsaio_op_free(piece->op);
		piece->op = NULL;
	}
	return CTL_OK;
}

static int start_read(struct copy *copy)
{
	struct copy_run *run = &copy->run;
	struct piece *piece = &copy->pieces[run->reading++ % COPY_PIECES];

	piece_place(copy, piece, run->pos, copy->end);
	run->pos += piece->len;
	run->is_at_end = run->pos == copy->end;
	return piece_start(copy, &copy->from, piece, false);
}

/* The oldest read has to end; then its write begins. */
static int start_write(struct copy *copy)
{
	struct copy_run *run = &copy->run;
	struct piece *piece = &copy->pieces[run->writing % COPY_PIECES];
	size_t done, asked = piece->len;
	int r = piece_finish_read(copy, &copy->from, piece, &done);

	if (r != CTL_OK)
		return r;
	piece->len = done;
	if (done < asked) {
		r = drop_ahead(copy);
		/* A file may have grown since: its end is where there is nothing more. */
		run->pos = piece->off + done;
		run->is_at_end = done == 0 || copy->from.is_stream;
	}
	if (r == CTL_OK && done > 0) {
		copy->is_changed = true;
		r = piece_start(copy, &copy->to, piece, true);
	}
	run->writing += r == CTL_OK;
	return r;
}

static int finish_write(struct copy *copy)
{
	struct piece *piece = &copy->pieces[copy->run.done % COPY_PIECES];
	int r = piece->len ? piece_finish_write(copy, &copy->to, piece) : CTL_OK;

	if (r != CTL_OK)
		return r;
	copy->run.done++;
	copy->done_bytes += piece->len;
	progress_update(&copy->progress, copy->done_bytes);
	return CTL_OK;
}

int copy_run(struct copy *copy, const char *label, uint64_t total_bytes, bool is_shown)
{
	struct copy_run *run = &copy->run;
	/*
	 * Half of the pieces are being read, half written; what goes without the daemon is not
	 * under way beside us, so its share is the one at hand.
	 */
	uint64_t n_written = !copy->to.file ? 1 : copy->from.file ? COPY_PIECES / 2 : COPY_PIECES;
	uint64_t n_read = copy->from.file ? COPY_PIECES : 1;
	int r = CTL_OK;

	*run = (struct copy_run){ .pos = copy->start, .is_at_end = copy->start >= copy->end };
	progress_start(&copy->progress, label, total_bytes);
	if (!is_shown)
		copy->progress.is_terminal = false;
	while (r == CTL_OK && !(run->is_at_end && run->done == run->reading)) {
		if (stop_signal())
			r = copy_fail(copy, "interrupted");
		else if (!run->is_at_end && run->reading - run->done < COPY_PIECES &&
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

void copy_drain(struct copy *copy)
{
	for (unsigned i = 0; i < COPY_PIECES; i++) {
		struct piece *piece = &copy->pieces[i];

		if (piece->op)
			(void)dsaio_op_wait(piece->op, -1, NULL); /* its copy has failed already */
		dsaio_op_free(piece->op);
		piece->op = NULL;
	}
}

/* ---- the two files ---- */

int copy_open_from(struct copy *copy, bool may_be_device, struct stat *ret_stat)
{
	struct side *from = &copy->from;
	struct stat st;

	/* Looked at first: opening a pipe would wait for a writer. */
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

/* What such a path names is open already, or no file of a directory's: it cannot be replaced. */
static bool is_device_path(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 ||
	       (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0);
}

static int open_in_place(struct copy *copy, int access_mode, mode_t mode)
{
	struct side *to = &copy->to;

	if (copy->was_there)
		to->fd = open(to->path, access_mode | O_CLOEXEC);
	else
		to->fd = open(to->path, access_mode | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (to->fd < 0)
		return ctl_fail(copy->ctl, "%s: %s", to->path, strerror(errno));
	copy->is_made = !copy->was_there;
	return CTL_OK;
}

/* In a directory with the sticky bit others' files cannot be replaced: known before the copy. */
static bool is_sticky_against_us(const char *dir, const struct stat *old)
{
	struct stat st;
	uid_t uid = geteuid();

	return uid != 0 && stat(dir, &st) == 0 && (st.st_mode & S_ISVTX) && st.st_uid != uid &&
	       old->st_uid != uid;
}

/* The part of a path after its last slash. */
static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A link stays a link: the file that it leads to is replaced. */
static int open_temporary(struct copy *copy, mode_t mode)
{
	const char *path = copy->to.path, *dir;
	_cleanup_(freep) char *dir_path = NULL;
	int r = 0;

	if (copy->was_there && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
		return ctl_fail(copy->ctl, "%s: %s", path, strerror(errno));
	if (copy->was_there && copy->old.st_nlink > 1)
		return ctl_fail(copy->ctl,
				"%s: has %ju names (hard links), and a copy would replace this one "
				"alone: remove it first, or use --in-place to write all",
				path, (uintmax_t)copy->old.st_nlink);
	copy->place = copy->was_there ? realpath(path, NULL) : strdup(path);
	dir_path = copy->place ? strdup(copy->place) : NULL;
	if (!dir_path)
		return ctl_fail(copy->ctl, "%s: %s", path, strerror(errno));
	dir = dirname(dir_path);
	copy->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (copy->dir_fd < 0)
		r = -errno;
	else if (copy->was_there && is_sticky_against_us(dir, &copy->old))
		r = -EPERM;
	if (r == 0)
		r = newfile_open(copy->dir_fd, last_name(copy->place),
				 copy->was_there ? 0600 : mode, &copy->temp);
	copy->to.fd = TAKE_FD(copy->temp.fd);
	if (r == 0)
		return CTL_OK;
	if (!copy->was_there)
		return ctl_fail(copy->ctl, "%s: %s", path, strerror(-r));
	return ctl_fail(
		copy->ctl,
		"%s: cannot be replaced in its directory: %s: allow that, or use --in-place, "
		"where a failure leaves it incomplete",
		path, strerror(-r));
}

int copy_open_to(struct copy *copy, int access_mode, mode_t mode, const struct stat *from_stat)
{
	const struct side *to = &copy->to;
	struct stat *st = &copy->old;

	copy->was_there = stat(to->path, st) == 0;
	if (copy->was_there) {
		if (st->st_dev == from_stat->st_dev && st->st_ino == from_stat->st_ino)
			return ctl_fail(copy->ctl, "%s and %s are the same file: nothing was done",
					copy->from.path, to->path);
		if (S_ISDIR(st->st_mode))
			return ctl_fail(copy->ctl, "%s: is a directory: name a file in it",
					to->path);
		if (!S_ISREG(st->st_mode))
			return ctl_fail(copy->ctl, "%s: is no regular file: use cp(1) or dd(1)",
					to->path);
	} else if (errno != ENOENT) {
		return ctl_fail(copy->ctl, "%s: %s", to->path, strerror(errno));
	} else if (lstat(to->path, st) == 0 && S_ISLNK(st->st_mode)) {
		return ctl_fail(copy->ctl,
				"%s: is a symbolic link to nothing: remove it, or name its target",
				to->path);
	} else if (to->path[strlen(to->path) - 1] == '/') {
		return ctl_fail(copy->ctl, "%s: no such directory: make it first", to->path);
	}
	if (copy->is_in_place || is_device_path(to->path))
		return open_in_place(copy, access_mode, mode);
	return open_temporary(copy, mode);
}

int copy_open_handle(struct copy *copy)
{
	if (dsaio_handle_open(copy->client, NULL, &copy->handle) < 0)
		return ctl_fail(copy->ctl, "%s", dsaio_error());
	return CTL_OK;
}

int copy_reserve(struct copy *copy, uint64_t bytes)
{
	char text[UNITS_TEXT_BYTES];
	int r;

	if (bytes == 0)
		return CTL_OK;
	do
		r = copy_has_temp(copy) ? newfile_reserve(copy->to.fd, bytes)
					: newfile_check_room(copy->to.fd, bytes);
	while (r == -EINTR && !stop_signal());
	if (r == 0)
		return CTL_OK;
	return copy_fail(copy, "%s: cannot reserve %s%s: %s", copy->to.path,
			 units_format_size(text, bytes),
			 copy_has_temp(copy) && copy->was_there
				 ? " beside what is there (--in-place needs no such room)"
				 : "",
			 r == -EINTR ? "interrupted" : strerror(-r));
}

int copy_cut(struct copy *copy, uint64_t size)
{
	const struct side *to = &copy->to;
	struct stat st;
	int r;

	if (fstat(to->fd, &st) < 0)
		return copy_fail(copy, "%s: %s", to->path, strerror(errno));
	if ((uint64_t)st.st_size <= size)
		return CTL_OK;
	copy->is_changed = true;
	if (to->file)
		r = dsaio_truncate(to->file, size);
	else
		r = ftruncate(to->fd, (off_t)size) < 0 ? -errno : 0;
	if (r < 0)
		return copy_fail(copy, "%s: cannot cut off the rest of the old file: %s", to->path,
				 to->file ? dsaio_error() : strerror(-r));
	return CTL_OK;
}

int copy_keep_owner(struct copy *copy)
{
	const struct stat *old = &copy->old;
	mode_t mode = old->st_mode & 0777;
	struct stat st;

	if (!copy_has_temp(copy) || !copy->was_there)
		return CTL_OK;
	if (fstat(copy->to.fd, &st) < 0)
		return copy_fail(copy, "%s: %s", copy->to.path, strerror(errno));
	if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	    fchown(copy->to.fd, old->st_uid, old->st_gid) < 0) {
		ctl_note(copy->ctl, "%s: gets another owner: it cannot stay that of user %ju: %s",
			 copy->to.path, (uintmax_t)old->st_uid, strerror(errno));
		/* Another group must not get more than all others. */
		if (st.st_gid != old->st_gid && fchown(copy->to.fd, (uid_t)-1, old->st_gid) < 0)
			mode &= ~(mode_t)070 | (mode & 07) << 3;
	}
	if (fchmod(copy->to.fd, mode) < 0)
		return copy_fail(copy, "%s: chmod: %s", copy->to.path, strerror(errno));
	return CTL_OK;
}

int copy_sync(struct copy *copy)
{
	const struct side *to = &copy->to;
	int r;

	if (to->file)
		r = dsaio_fsync(copy->handle, to->file);
	else
		r = fsync(to->fd) < 0 ? -errno : 0;
	if (r < 0)
		return copy_fail(copy, "%s: fsync: %s", to->path,
				 to->file ? dsaio_error() : strerror(-r));
	return CTL_OK;
}

/* After a crash a new file can only be found if its name is on the device. */
static int sync_directory(struct copy *copy, int dir_fd, const char *path)
{
	_cleanup_(closep) int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A directory that may be searched but not read cannot be synced.  cp(1) syncs none. */
	if (fd >= 0 && fsync(fd) < 0 && errno != EINVAL)
		return ctl_fail(copy->ctl, "%s: is complete, but fsync of its directory: %s",
				copy->to.path, strerror(errno));
	return CTL_OK;
}

/* A file that is written in place has no descriptor of its directory. */
static int sync_directory_of(struct copy *copy, const char *path)
{
	_cleanup_(freep) char *dir_path = strdup(path);

	if (!dir_path)
		return ctl_fail(copy->ctl, "out of memory");
	return sync_directory(copy, AT_FDCWD, dirname(dir_path));
}

int copy_place(struct copy *copy, bool is_synced)
{
	int r;

	if (!copy_has_temp(copy)) {
		copy->is_complete = true;
		return is_synced && copy->is_made ? sync_directory_of(copy, copy->to.path) : CTL_OK;
	}
	if (stop_signal())
		return copy_fail(copy, "interrupted");
	/* A file that appeared where none was belongs to another process, and stays. */
	r = newfile_rename(&copy->temp, copy->was_there);
	if (r < 0)
		return copy_fail(copy, "%s: rename: %s%s", copy->to.path, strerror(-r),
				 copy->was_there ? ": use --in-place" : "");
	copy->is_complete = true;
	return is_synced ? sync_directory(copy, copy->dir_fd, ".") : CTL_OK;
}

/* The daemon lets go of the buffers before anything else goes. */
void copy_deinit(struct copy *copy)
{
	dsaio_disconnect(copy->client);
	newfile_discard(&copy->temp);
	if (copy->is_made && !copy->is_complete && copy->done_bytes == 0)
		(void)unlink(copy->to.path);
	free(copy->place);
	closep(&copy->dir_fd);
	if (!copy->from.is_stream)
		closep(&copy->from.fd);
	if (!copy->to.is_stream)
		closep(&copy->to.fd);
}
