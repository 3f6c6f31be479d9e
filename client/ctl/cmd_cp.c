/*
 * dsaioctl cp: a file through the daemon.
 *
 * The file goes in pieces through a few buffers of pinned memory: while one is written the next
 * are read.  All but the last are whole pages, which go straight to the device.  Piece k lives
 * in buffer k modulo their number; reads and writes end in the order of the pieces, so three
 * counters tell all: pieces whose read was started, whose write was started, whose write has
 * ended.
 *
 * A side that lies on none of the daemon's stores is read or written by plain system calls, and
 * the command says so; one of the two must be on a store.
 *
 * A failure says how far the copy got.  What is there of the destination stays, but for a file
 * of our own making that nothing was written to.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/progress.h"
#include "client/ctl/units.h"
#include "proto/cleanup.h"
#include "proto/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (8u << 20)	     /* large enough that the next piece's start costs nothing */
#define PIECE_BYTES_MIN (256u << 10) /* where the client's share of the pool is small */
#define PAGE 4096u
#define N_PIECES 4u	 /* two being read, two being written */
#define LOOK_USEC 200000 /* how often a wait looks whether Ctrl-C was pressed */

static bool is_verify;
static const struct flag flags[] = {
	{ "verify", FLAG_BOOL, &is_verify, 0, 0 },
};

static const char help[] =
	"dsaioctl cp - copy a file through the daemon\n"
	"\n"
	"    dsaioctl cp model.bin /nvme/           from anywhere to a store\n"
	"    dsaioctl cp /nvme/model.bin /tmp/m     and back\n"
	"    dsaioctl cp --verify /nvme/a /nvme/b   read both again afterwards and compare\n"
	"    dsaioctl cp --private a b              without a running dsaiod\n"
	"\n"
	"At least one of the two must lie on a store of the daemon; the other is then read or\n"
	"written without it.  The copy has the size of the original and is on the device when the\n"
	"command says so.  A bar tells how far it is where it takes over two seconds.\n"
	"\n"
	"    --verify       read both files from their devices and compare all bytes\n"
	"    --json         the result as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

/* One of the two files. */
struct side {
	const char *path;
	int fd;			 /* our own */
	struct dsaio_file *file; /* NULL: on no store, fd is used */
};

struct piece {
	void *buffer;
	uint64_t off;
	size_t len;
	struct dsaio_op *op; /* open at the daemon */
};

struct copy {
	struct ctl *ctl;
	struct dsaio_client *client;
	struct dsaio_handle *handle;
	struct side from, to;
	uint64_t size;	     /* of the source when it was opened */
	uint64_t done_bytes; /* written */
	bool is_made;	     /* the destination was not there before */
	bool is_changed;     /* it may no longer be what it was: a write was begun, or a cut */
	bool is_complete;    /* and synced; what fails later is the comparison */
	size_t piece_bytes;
	struct piece pieces[N_PIECES];
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int signal_number)
{
	(void)signal_number;
	is_interrupted = 1;
}

/* Ends the copy with a sentence and how far it got. */
__attribute__((format(printf, 2, 3))) static int copy_fail(const struct copy *copy,
							   const char *format, ...)
{
	char done[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES];
	_cleanup_(freep) char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (copy->is_complete)
		return ctl_fail(copy->ctl, "%s: %s is complete and synced, but not compared",
				text ? text : "out of memory", copy->to.path);
	if (copy->done_bytes == 0 && (copy->is_made || !copy->is_changed))
		return ctl_fail(copy->ctl, "%s: nothing was copied", text ? text : "out of memory");
	return ctl_fail(copy->ctl, "%s: %s of %s were copied; %s is not complete",
			text ? text : "out of memory", units_format_size(done, copy->done_bytes),
			units_format_size(size, copy->size), copy->to.path);
}

/* ---- pieces ---- */

/*
 * Moves a piece by plain system calls.  A read may end early, at the end of the file; it asks
 * for whole pages, as O_DIRECT wants it, which the buffer has.
 */
static int64_t move_plainly(const struct side *side, const struct piece *piece, bool is_write)
{
	size_t len = is_write ? piece->len : (piece->len + PAGE - 1) & ~(size_t)(PAGE - 1);
	char *buffer = piece->buffer;
	size_t done = 0;

	while (done < piece->len) {
		off_t off = (off_t)(piece->off + done);
		ssize_t n = is_write ? pwrite(side->fd, buffer + done, len - done, off)
				     : pread(side->fd, buffer + done, len - done, off);

		if (n < 0 && errno == EINTR && !is_interrupted)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)(done < piece->len ? done : piece->len);
}

/* Starts to move a piece; without the daemon, moves it at once.  Returns CTL_OK or CTL_FAILED. */
static int piece_start(const struct copy *copy, const struct side *side, struct piece *piece,
		       bool is_write)
{
	int64_t done;

	if (side->file) {
		int r = is_write ? dsaio_pwrite_async(copy->handle, side->file, piece->buffer,
						      piece->len, piece->off, &piece->op)
				 : dsaio_pread_async(copy->handle, side->file, piece->buffer,
						     piece->len, piece->off, &piece->op);

		return r < 0 ? copy_fail(copy, "%s: %s", side->path, dsaio_error()) : CTL_OK;
	}
	done = move_plainly(side, piece, is_write);
	if (done < 0)
		return copy_fail(copy, "%s: %s at byte %" PRIu64 ": %s", side->path,
				 is_write ? "write" : "read", piece->off, strerror((int)-done));
	if ((size_t)done < piece->len)
		return copy_fail(copy,
				 "%s: became shorter while it was copied: ends at byte %" PRIu64
				 " of %" PRIu64,
				 side->path, piece->off + (uint64_t)done, copy->size);
	return CTL_OK;
}

/* Waits for what piece_start() began. */
static int piece_finish(const struct copy *copy, const struct side *side, struct piece *piece)
{
	int64_t done;
	int r = CTL_OK;

	if (!piece->op)
		return CTL_OK;
	while (!dsaio_op_test(piece->op)) {
		if (is_interrupted)
			return copy_fail(copy, "interrupted");
		(void)dsaio_op_wait(piece->op, LOOK_USEC); /* dsaio_op_test() tells */
	}
	done = dsaio_op_result(piece->op);
	if (done < 0)
		r = copy_fail(copy, "%s: %s", side->path, dsaio_op_error(piece->op));
	else if ((size_t)done < piece->len)
		r = copy_fail(copy,
			      "%s: became shorter while it was copied: ends at byte %" PRIu64
			      " of %" PRIu64,
			      side->path, piece->off + (uint64_t)done, copy->size);
	dsaio_op_free(piece->op);
	piece->op = NULL;
	return r;
}

/* Takes the buffers; smaller ones where the client's share of the pool is small. */
static int make_pieces(struct copy *copy)
{
	size_t bytes = PIECE_BYTES;
	int r = 0;

	while (copy->size < bytes && bytes > PIECE_BYTES_MIN)
		bytes /= 2;
	for (;; bytes /= 2) {
		void *memory;

		r = dsaio_alloc(copy->client, N_PIECES * bytes, &memory);
		if (r == 0) {
			copy->piece_bytes = bytes;
			for (unsigned i = 0; i < N_PIECES; i++)
				copy->pieces[i].buffer = (char *)memory + i * bytes;
			return CTL_OK;
		}
		if (r != -ENOMEM || bytes <= PIECE_BYTES_MIN)
			return ctl_fail(copy->ctl, "%s", dsaio_error());
	}
}

/* The file in whole pages, and what is behind the last of these: a piece of its own. */
static uint64_t whole_pages(const struct copy *copy)
{
	return copy->size - copy->size % PAGE;
}

static uint64_t count_pieces(const struct copy *copy)
{
	return (whole_pages(copy) + copy->piece_bytes - 1) / copy->piece_bytes +
	       (copy->size % PAGE != 0);
}

static void piece_place(const struct copy *copy, struct piece *piece, uint64_t number)
{
	uint64_t end = whole_pages(copy);

	piece->off = number * copy->piece_bytes;
	if (piece->off >= end) {
		piece->off = end;
		end = copy->size;
	}
	piece->len = end - piece->off < copy->piece_bytes ? (size_t)(end - piece->off)
							  : copy->piece_bytes;
}

/* ---- the two passes ---- */

static int copy_pieces(struct copy *copy)
{
	uint64_t n = count_pieces(copy), reading = 0, writing = 0, done = 0;
	struct progress progress;
	int r = CTL_OK;

	progress_start(&progress, "copying", copy->size);
	while (done < n && r == CTL_OK) {
		struct piece *piece = &copy->pieces[reading % N_PIECES];

		if (is_interrupted) {
			r = copy_fail(copy, "interrupted");
		} else if (reading < n && reading - done < N_PIECES) {
			piece_place(copy, piece, reading++);
			r = piece_start(copy, &copy->from, piece, false);
		} else if (writing < reading && writing - done < N_PIECES / 2) {
			piece = &copy->pieces[writing++ % N_PIECES];
			r = piece_finish(copy, &copy->from, piece);
			copy->is_changed |= r == CTL_OK;
			if (r == CTL_OK)
				r = piece_start(copy, &copy->to, piece, true);
		} else {
			piece = &copy->pieces[done++ % N_PIECES];
			r = piece_finish(copy, &copy->to, piece);
			copy->done_bytes += r == CTL_OK ? piece->len : 0;
			progress_update(&progress, copy->done_bytes);
		}
	}
	progress_stop(&progress);
	return r;
}

static int fail_different(const struct copy *copy, const struct piece *a, const struct piece *b)
{
	const uint8_t *x = a->buffer, *y = b->buffer;
	size_t i = 0;

	while (x[i] == y[i])
		i++;
	return ctl_fail(copy->ctl,
			"%s: differs from %s at byte %" PRIu64
			": 0x%02x instead of 0x%02x: do not trust this copy, nor this device",
			copy->to.path, copy->from.path, b->off + i, y[i], x[i]);
}

/* Piece k of the source lies in buffer 2k, of the copy in 2k + 1; two at a time are read. */
static struct piece *pair_at(struct copy *copy, uint64_t number)
{
	return &copy->pieces[number % (N_PIECES / 2) * 2];
}

static int compare_pieces(struct copy *copy)
{
	uint64_t n = count_pieces(copy), reading = 0, done = 0;
	struct progress progress;
	int r = CTL_OK;

	progress_start(&progress, "comparing", copy->size);
	while (done < n && r == CTL_OK) {
		struct piece *pair = pair_at(copy, reading);

		if (is_interrupted) {
			r = copy_fail(copy, "interrupted");
		} else if (reading < n && reading - done < N_PIECES / 2) {
			piece_place(copy, &pair[0], reading);
			piece_place(copy, &pair[1], reading++);
			r = piece_start(copy, &copy->from, &pair[0], false);
			if (r == CTL_OK)
				r = piece_start(copy, &copy->to, &pair[1], false);
		} else {
			pair = pair_at(copy, done++);
			r = piece_finish(copy, &copy->from, &pair[0]);
			if (r == CTL_OK)
				r = piece_finish(copy, &copy->to, &pair[1]);
			if (r == CTL_OK && memcmp(pair[0].buffer, pair[1].buffer, pair[0].len) != 0)
				r = fail_different(copy, &pair[0], &pair[1]);
			progress_update(&progress, pair[0].off + pair[0].len);
		}
	}
	progress_stop(&progress);
	return r;
}

/* ---- the two files ---- */

static int open_from(struct copy *copy)
{
	struct side *from = &copy->from;
	struct stat st;

	/* Looked at first: opening a pipe would wait for a writer. */
	if (stat(from->path, &st) < 0)
		return ctl_fail(copy->ctl, "%s: %s", from->path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return ctl_fail(copy->ctl, "%s: is a directory: name one file", from->path);
	if (!S_ISREG(st.st_mode))
		return ctl_fail(copy->ctl, "%s: is no regular file: use cp(1) or dd(1)",
				from->path);
	from->fd = open(from->path, O_RDONLY | O_CLOEXEC);
	if (from->fd < 0 || fstat(from->fd, &st) < 0)
		return ctl_fail(copy->ctl, "%s: %s", from->path, strerror(errno));
	copy->size = (uint64_t)st.st_size;
	return CTL_OK;
}

/* The destination is made with the source's mode, but so that we may write and read it. */
static int open_to(struct copy *copy)
{
	struct side *to = &copy->to;
	int access_mode = is_verify ? O_RDWR : O_WRONLY;
	struct stat st, from_st;

	if (fstat(copy->from.fd, &from_st) < 0)
		return ctl_fail(copy->ctl, "%s: %s", copy->from.path, strerror(errno));
	if (stat(to->path, &st) == 0) {
		if (st.st_dev == from_st.st_dev && st.st_ino == from_st.st_ino)
			return ctl_fail(copy->ctl, "%s and %s are the same file: nothing was done",
					copy->from.path, to->path);
		if (!S_ISREG(st.st_mode))
			return ctl_fail(copy->ctl, "%s: is no regular file: use cp(1) or dd(1)",
					to->path);
		to->fd = open(to->path, access_mode | O_CLOEXEC);
	} else if (errno != ENOENT) {
		return ctl_fail(copy->ctl, "%s: %s", to->path, strerror(errno));
	} else if (lstat(to->path, &st) == 0 && S_ISLNK(st.st_mode)) {
		return ctl_fail(copy->ctl,
				"%s: is a symbolic link to nothing: remove it, or name its target",
				to->path);
	} else if (to->path[strlen(to->path) - 1] == '/') {
		return ctl_fail(copy->ctl, "%s: no such directory: make it first", to->path);
	} else {
		to->fd = open(to->path, access_mode | O_CREAT | O_EXCL | O_CLOEXEC,
			      (from_st.st_mode & 0777) | S_IRUSR | S_IWUSR);
		copy->is_made = to->fd >= 0;
	}
	if (to->fd < 0)
		return ctl_fail(copy->ctl, "%s: %s", to->path, strerror(errno));
	return CTL_OK;
}

/* Files of /proc and /sys say that they are empty. */
static int check_size(const struct copy *copy)
{
	char byte;

	if (copy->size == 0 && !copy->from.file && pread(copy->from.fd, &byte, 1, 0) > 0)
		return copy_fail(copy, "%s: does not tell its size: use cp(1)", copy->from.path);
	return CTL_OK;
}

/* Hands both to the daemon, as far as they are on its stores. */
static int attach_sides(struct copy *copy)
{
	struct side *sides[] = { &copy->from, &copy->to };
	char texts[2][512];

	for (unsigned i = 0; i < 2; i++) {
		int r = dsaio_file_from_fd(copy->client, sides[i]->fd, &sides[i]->file);

		if (r < 0 && r != -ENXIO && r != -EOPNOTSUPP)
			return ctl_fail(copy->ctl, "%s: %s", sides[i]->path, dsaio_error());
		if (r < 0)
			(void)snprintf(texts[i], sizeof(texts[i]), "%s", dsaio_error());
	}
	if (!copy->from.file && !copy->to.file)
		return ctl_fail(copy->ctl,
				"neither file can go through the daemon: %s; nor can %s: "
				"use cp(1), or --private",
				texts[0], copy->to.path);
	for (unsigned i = 0; i < 2; i++)
		if (!sides[i]->file)
			ctl_note(copy->ctl, "%s: %s without the daemon: %s", sides[i]->path,
				 i ? "written" : "read", texts[i]);
	return CTL_OK;
}

/* For the comparison: a side without the daemon is read past the page cache, if that can be. */
static int reopen_direct(const struct copy *copy, struct side *side)
{
	char path[64];
	int fd;

	if (side->file)
		return CTL_OK;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", side->fd);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0) {
		(void)posix_fadvise(side->fd, 0, 0, POSIX_FADV_DONTNEED); /* the best there is */
		ctl_note(copy->ctl, "%s: compared as the page cache has it: no direct I/O there",
			 side->path);
		return CTL_OK;
	}
	(void)close(side->fd);
	side->fd = fd;
	return CTL_OK;
}

/* What was made must also be found after a crash: the name lies in the directory. */
static int sync_directory(const struct copy *copy)
{
	_cleanup_(freep) char *path = strdup(copy->to.path);
	_cleanup_(closep) int fd = -1;

	if (!path)
		return copy_fail(copy, "out of memory");
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* A directory that may be searched but not read can not be synced: nor does cp(1). */
	if (fd >= 0 && fsync(fd) < 0 && errno != EINVAL)
		return copy_fail(copy, "%s: fsync of its directory: %s", copy->to.path,
				 strerror(errno));
	return CTL_OK;
}

/* Size, mode, and all of it on the device. */
static int complete(struct copy *copy)
{
	const struct side *to = &copy->to;
	struct stat st, from_st;
	int r;

	if (fstat(to->fd, &st) < 0 || fstat(copy->from.fd, &from_st) < 0)
		return copy_fail(copy, "%s: %s", to->path, strerror(errno));
	if ((uint64_t)from_st.st_size != copy->size)
		return copy_fail(copy, "%s: changed its size while it was copied", copy->from.path);
	if ((uint64_t)st.st_size > copy->size) {
		copy->is_changed = true;
		if (to->file)
			r = dsaio_truncate(to->file, copy->size);
		else
			r = ftruncate(to->fd, (off_t)copy->size) < 0 ? -errno : 0;
		if (r < 0)
			return copy_fail(copy, "%s: can not cut off what it had more: %s", to->path,
					 to->file ? dsaio_error() : strerror(-r));
	}
	if (copy->is_made && (from_st.st_mode & 0600) != 0600 &&
	    fchmod(to->fd, st.st_mode & from_st.st_mode & 0777) < 0)
		return copy_fail(copy, "%s: chmod: %s", to->path, strerror(errno));
	if (to->file)
		r = dsaio_fsync(copy->handle, to->file);
	else
		r = fsync(to->fd) < 0 ? -errno : 0;
	if (r < 0)
		return copy_fail(copy, "%s: fsync: %s", to->path,
				 to->file ? dsaio_error() : strerror(-r));
	return copy->is_made ? sync_directory(copy) : CTL_OK;
}

static int print_result(const struct copy *copy, uint64_t nsec)
{
	char size[UNITS_TEXT_BYTES], time[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
	struct json_object *object;

	if (!copy->ctl->is_json) {
		(void)printf("%s -> %s: %s in %s, %s, synced%s\n", copy->from.path, copy->to.path,
			     units_format_size(size, copy->size), units_format_nsec(time, nsec),
			     units_format_rate(rate, copy->size, nsec),
			     is_verify ? ", compared: no difference" : "");
		return ctl_flush(copy->ctl);
	}
	object = json_object_new_object();
	json_object_object_add(object, "from", json_object_new_string(copy->from.path));
	json_object_object_add(object, "to", json_object_new_string(copy->to.path));
	json_object_object_add(object, "bytes", json_object_new_uint64(copy->size));
	json_object_object_add(object, "seconds", json_object_new_double((double)nsec / 1e9));
	json_object_object_add(object, "is_read_by_daemon",
			       json_object_new_boolean(copy->from.file != NULL));
	json_object_object_add(object, "is_written_by_daemon",
			       json_object_new_boolean(copy->to.file != NULL));
	json_object_object_add(object, "is_verified", json_object_new_boolean(is_verify));
	return ctl_print_json(copy->ctl, object);
}

static int copy_run(struct copy *copy)
{
	uint64_t start, nsec;
	int r;

	if (dsaio_handle_open(copy->client, NULL, &copy->handle) < 0)
		return ctl_fail(copy->ctl, "%s", dsaio_error());
	r = attach_sides(copy);
	if (r == CTL_OK)
		r = check_size(copy);
	if (r == CTL_OK)
		r = make_pieces(copy);
	if (r != CTL_OK)
		return r;
	start = clock_nsec();
	r = copy_pieces(copy);
	if (r == CTL_OK)
		r = complete(copy);
	nsec = clock_nsec() - start;
	if (r != CTL_OK)
		return r;
	copy->is_complete = true;
	if (is_verify) {
		r = reopen_direct(copy, &copy->from);
		if (r == CTL_OK)
			r = reopen_direct(copy, &copy->to);
		if (r == CTL_OK)
			r = compare_pieces(copy);
	}
	return r == CTL_OK ? print_result(copy, nsec) : r;
}

/* The daemon lets go of the buffers before anything else goes. */
static void copy_deinit(struct copy *copy)
{
	dsaio_disconnect(copy->client);
	if (copy->is_made && !copy->is_complete && copy->done_bytes == 0)
		(void)unlink(copy->to.path); /* the sentence has been said already */
	closep(&copy->from.fd);
	closep(&copy->to.fd);
}

/* In a directory, the source's name.  Returns the path to be freed, or NULL. */
static char *make_to_path(const char *from, const char *to)
{
	const char *slash = strrchr(from, '/');
	struct stat st;
	char *path;

	if (stat(to, &st) < 0 || !S_ISDIR(st.st_mode))
		return strdup(to);
	return asprintf(&path, "%s%s%s", to, to[strlen(to) - 1] == '/' ? "" : "/",
			slash ? slash + 1 : from) < 0
		       ? NULL
		       : path;
}

/* Ctrl-C tells how far the copy got; a second one ends at once. */
static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

	/* Can not fail: the signals exist. */
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	(void)sigaction(SIGHUP, &action, NULL);
}

static int cp_run(struct ctl *ctl)
{
	_cleanup_(freep) char *to_path = NULL, *from_dir = NULL, *to_dir = NULL;
	_cleanup_(copy_deinit) struct copy copy = { .ctl = ctl, .from.fd = -1, .to.fd = -1 };
	const char *dirs[2];
	int r;

	if (ctl->n_args != 2 || !ctl->args[0][0] || !ctl->args[1][0])
		return ctl_usage(ctl,
				 "name two files: dsaioctl cp SRC DST: see dsaioctl cp --help");
	to_path = make_to_path(ctl->args[0], ctl->args[1]);
	from_dir = strdup(ctl->args[0]);
	to_dir = to_path ? strdup(to_path) : NULL;
	if (!from_dir || !to_dir)
		return ctl_fail(ctl, "out of memory");
	copy.from.path = ctl->args[0];
	copy.to.path = to_path;
	dirs[0] = dirname(from_dir);
	dirs[1] = dirname(to_dir);

	catch_signals();
	r = open_from(&copy);
	if (r == CTL_OK)
		r = open_to(&copy);
	if (r == CTL_OK)
		r = ctl_connect(ctl, dirs, 2, &copy.client);
	return r == CTL_OK ? copy_run(&copy) : r;
}

const struct command command_cp = { "cp", cp_run, "a file through the daemon, synced", help,
				    FLAG_TABLE(flags) };
