/*
 * dsaioctl cp: a file through the daemon.
 *
 * A side that is on none of the daemon's stores is read or written by plain system calls, and the
 * command reports that.  At least one side must be on a store.  file_copy.c copies to a new file,
 * which is synced and, with --verify, compared.  Then it takes the place of the destination.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/file_copy.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "client/lib/base/uri.h"
#include "client/lib/io/file.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
	"    dsaioctl cp /nvme/ckpt rados://tensors/llama/ckpt    to a RADOS store, and back\n"
	"    dsaioctl cp --private a b              without a running dsaiod\n"
	"\n"
	"At least one of the two must lie on a store of the daemon; the other is then read or\n"
	"written without it.  The copy has the size of the original and is on the device when the\n"
	"command says so.  It is written to a new file, which becomes DST in the end: after a\n"
	"failure DST is as it was.  A DST that is there keeps mode and owner.  Holes stay holes.  A\n"
	"block device is written in place.  A bar shows the progress if the command takes over two\n"
	"seconds.  A copy from or to a RADOS store is of the background class; holes are written.\n"
	"\n"
	"    --verify       read both files from their devices and compare all bytes\n" HELP_JSON
		HELP_SOCKET HELP_PRIVATE HELP_EXIT;

/* ---- comparing ---- */

static int fail_different(struct file_copy *copy, const struct chunk *a, const struct chunk *b)
{
	const char *x = a->data, *y = b->data;
	size_t i = 0;

	progress_stop(&copy->progress);
	while (x[i] == y[i])
		i++;
	return ctl_fail(copy->ctl,
			"%s: differs from %s at byte %" PRIu64
			": 0x%02x instead of 0x%02x: do not trust this device%s",
			copy->to.path, copy->from.path, b->off + i, (unsigned char)y[i],
			(unsigned char)x[i],
			copy->destination.is_device ? "" : "; the copy is removed");
}

static int compare_files(struct file_copy *copy)
{
	struct chunk *a = &copy->chunks[0], *b = &copy->chunks[1];
	int r = CTL_OK;

	progress_start(&copy->progress, "comparing", copy->end);
	for (uint64_t pos = 0; r == CTL_OK && pos < copy->end; pos += a->len) {
		size_t done; /* all, or an error was reported */

		if (stop_signal())
			return file_copy_fail(copy, "interrupted");
		chunk_place(a, copy->chunk_bytes, pos, copy->end);
		chunk_place(b, copy->chunk_bytes, pos, copy->end);
		r = file_copy_start_chunk(copy, &copy->from, a, false);
		if (r == CTL_OK)
			r = file_copy_start_chunk(copy, &copy->to, b, false);
		if (r == CTL_OK)
			r = file_copy_finish_read(copy, &copy->from, a, &done);
		if (r == CTL_OK)
			r = file_copy_finish_read(copy, &copy->to, b, &done);
		if (r == CTL_OK && memcmp(a->data, b->data, a->len) != 0)
			r = fail_different(copy, a, b);
		progress_update(&copy->progress, pos + a->len);
	}
	progress_stop(&copy->progress);
	return r;
}

/* ---- the two files ---- */

/* Files of /proc and /sys report a size of 0. */
static int check_size(struct file_copy *copy)
{
	char byte;

	if (copy->end == 0 && !copy->from.file && pread(copy->from.fd, &byte, 1, 0) > 0)
		return file_copy_fail(copy, "%s: does not tell its size: use cp(1)",
				      copy->from.path);
	return CTL_OK;
}

/* Hands the files that are on its stores to the daemon. */
static int attach_sides(struct file_copy *copy)
{
	struct side *sides[] = { &copy->from, &copy->to };
	char texts[2][512];
	int r = 0;

	for (unsigned i = 0; i < 2; i++) {
		if (sides[i]->is_rados)
			continue;
		r = dsaio_file_from_fd(copy->clients[0], sides[i]->fd, &sides[i]->file);
		if (r < 0 && r != -ENXIO && r != -EOPNOTSUPP)
			return ctl_fail(copy->ctl, "%s: %s", sides[i]->path, dsaio_error());
		if (r < 0)
			(void)snprintf(texts[i], sizeof(texts[i]), "%s", dsaio_error());
	}
	if (!copy->from.file && !copy->to.file)
		return ctl_fail(copy->ctl,
				"neither file can go through the daemon: %s; nor can %s: "
				"use cp(1)%s",
				texts[0], copy->to.path, ctl_or_private(copy->ctl, r));
	if (copy->to.file && !copy->to.is_rados)
		file_set_temporary(copy->to.file, copy->to.path);
	for (unsigned i = 0; i < 2; i++)
		if (!sides[i]->file)
			ctl_note(copy->ctl, "%s: %s without the daemon: %s", sides[i]->path,
				 i ? "written" : "read", texts[i]);
	return CTL_OK;
}

/*
 * For the comparison: reads a side without the daemon past the page cache, where that is possible.
 */
static void reopen_direct(const struct file_copy *copy, struct side *side)
{
	char path[64];
	int fd;

	if (side->file)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", side->fd);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0) {
		(void)posix_fadvise(side->fd, 0, 0, POSIX_FADV_DONTNEED); /* no better way there */
		ctl_note(copy->ctl, "%s: compared as the page cache has it: no direct I/O there",
			 side->path);
		return;
	}
	(void)close(side->fd);
	side->fd = fd;
}

/* Sets size and mode, and syncs.  A file of a RADOS store has its size, never changes, and its writes are stable. */
static int complete(struct file_copy *copy)
{
	struct destination *d = &copy->destination;
	const struct side *to = &copy->to, *from = &copy->from;
	char text[DESTINATION_TEXT_BYTES];
	struct stat st, from_st = { .st_mode = 0600, .st_size = (off_t)copy->end };
	int r;

	if (!from->is_rados && fstat(from->fd, &from_st) < 0)
		return file_copy_fail(copy, "%s: %s", from->path, strerror(errno));
	if ((uint64_t)from_st.st_size != copy->end)
		return file_copy_fail(copy, "%s: changed its size while it was copied",
				      copy->from.path);
	if (to->is_rados)
		return CTL_OK;
	if (fstat(to->fd, &st) < 0)
		return file_copy_fail(copy, "%s: %s", to->path, strerror(errno));
	if (!d->is_device && ftruncate(to->fd, (off_t)copy->end) < 0) /* its end may be a hole */
		return file_copy_fail(copy, "%s: %s", to->path, strerror(errno));
	if (!d->was_there && (from_st.st_mode & 0600) != 0600 &&
	    fchmod(to->fd, st.st_mode & from_st.st_mode & 0777) < 0)
		return file_copy_fail(copy, "%s: chmod: %s", to->path, strerror(errno));
	r = destination_sync(d, copy->handles[0], text);
	return r < 0 ? file_copy_fail(copy, "%s", text) : CTL_OK;
}

static int print_result(const struct file_copy *copy, uint64_t nsec)
{
	char size[UNITS_TEXT_BYTES], time[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
	char data[UNITS_TEXT_BYTES + 16] = "";
	struct json_object *object;

	/* Holes are not moved, so they do not count as speed. */
	if (copy->done_bytes < copy->end)
		(void)snprintf(data, sizeof(data), " (%s of data)",
			       units_format_size(size, copy->done_bytes));
	if (!copy->ctl->is_json)
		return ctl_print_line(copy->ctl, "%s -> %s: %s%s in %s, %s, synced%s",
				      copy->from.path, copy->to.path,
				      units_format_size(size, copy->end), data,
				      units_format_nsec(time, nsec),
				      units_format_rate(rate, copy->done_bytes, nsec),
				      is_verify ? ", compared: no difference" : "");
	object = json_object_new_object();
	json_add_text(object, "from", copy->from.path);
	json_add_text(object, "to", copy->to.path);
	json_add_number(object, "bytes", copy->end);
	json_object_object_add(object, "seconds", json_object_new_double((double)nsec / 1e9));
	json_add_bool(object, "is_read_by_daemon", copy->from.file != NULL);
	json_add_bool(object, "is_written_by_daemon", copy->to.file != NULL);
	json_add_bool(object, "is_verified", is_verify);
	return ctl_print_json(copy->ctl, object);
}

static int copy_files(struct file_copy *copy)
{
	uint64_t start, nsec;
	int r = attach_sides(copy);

	if (r == CTL_OK)
		r = check_size(copy);
	if (r == CTL_OK)
		r = file_copy_reserve(copy);
	if (r == CTL_OK)
		r = file_copy_make_chunks(copy, copy->end);
	if (r != CTL_OK)
		return r;
	start = clock_nsec();
	r = file_copy_run(copy, "copying", copy->end, true);
	if (r == CTL_OK)
		r = complete(copy);
	nsec = clock_nsec() - start;
	if (r != CTL_OK)
		return r;
	if (is_verify) {
		reopen_direct(copy, &copy->from);
		reopen_direct(copy, &copy->to);
		r = compare_files(copy);
	}
	if (r == CTL_OK)
		r = file_copy_place(copy, true);
	return r == CTL_OK ? print_result(copy, nsec) : r;
}

/* In a directory, or behind a RADOS store's name that ends with a '/', the source's name.  To be freed. */
static char *make_to_path(const char *from, const char *to)
{
	const char *slash = strrchr(from, '/');
	const bool is_rados = uri_is_rados(to);
	struct stat st;

	if (is_rados ? to[strlen(to) - 1] != '/' : stat(to, &st) < 0 || !S_ISDIR(st.st_mode))
		return text_new("%s", to);
	return text_new("%s%s%s", to, to[strlen(to) - 1] == '/' ? "" : "/",
			slash ? slash + 1 : from);
}

static int cp_run(struct ctl *ctl)
{
	_cleanup_(freep) char *to_path = NULL;
	_cleanup_(file_copy_deinit) struct file_copy copy = FILE_COPY_INIT(ctl);
	const char *paths[2];
	struct stat st = { .st_size = 0 };
	int r = CTL_OK;

	if (ctl->n_args != 2 || !ctl->args[0][0] || !ctl->args[1][0])
		return ctl_usage(ctl,
				 "name two files: dsaioctl cp SRC DST: see dsaioctl cp --help");
	to_path = make_to_path(ctl->args[0], ctl->args[1]);
	if (uri_is_rados(ctl->args[0]) != uri_is_rados(to_path) &&
	    strlen(to_path) > strlen(ctl->args[1]) && strchr(to_path + strlen(ctl->args[1]), '%'))
		return ctl_usage(ctl,
				 "%s: a '%%' has a meaning in rados:// names alone: name the "
				 "destination's file, too",
				 ctl->args[0]);
	paths[0] = copy.from.path = ctl->args[0];
	paths[1] = copy.to.path = to_path;

	copy.from.is_rados = uri_is_rados(paths[0]);
	copy.to.is_rados = uri_is_rados(paths[1]);

	if (!copy.from.is_rados)
		r = file_copy_open_from(&copy, false, &st);
	if (r == CTL_OK && !copy.to.is_rados)
		r = file_copy_check_to(&copy, &st);
	if (r == CTL_OK)
		r = file_copy_connect(&copy, paths, 2);
	if (r == CTL_OK && copy.from.is_rados)
		r = file_copy_open_from(&copy, false, &st);
	/* Made with the source's mode, but so that we may write and read it. */
	if (r == CTL_OK)
		r = file_copy_open_to(&copy, (st.st_mode & 0777) | S_IRUSR | S_IWUSR,
				      (uint64_t)st.st_size);
	if (r != CTL_OK)
		return r;
	copy.end = copy.end_min = (uint64_t)st.st_size;
	return copy_files(&copy);
}

const struct command command_cp = COMMAND("cp", cp_run, "a file through the daemon, synced", help,
					  .flags = FLAG_TABLE(flags));
