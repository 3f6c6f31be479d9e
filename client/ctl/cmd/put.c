/*
 * dsaioctl put: standard input through the daemon into a file.
 *
 * Earlier chunks are written while a chunk is read.  An existing file is replaced as a whole at the
 * end, as cp does.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/file_copy.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/units.h"
#include "client/lib/base/uri.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_synced;
static uint64_t size_bytes = UINT64_MAX;
static const struct flag flags[] = {
	{ "size", FLAG_SIZE, &size_bytes, 0, INT64_MAX },
	{ "sync", FLAG_BOOL, &is_synced, 0, 0 },
};

static const char help[] =
	"dsaioctl put - write standard input to a file, through the daemon\n"
	"\n"
	"    tar c checkpoint | dsaioctl put --sync /nvme/checkpoint.tar\n"
	"    dsaioctl put --size 400M /nvme/w0.bin <w0.bin\n"
	"    dsaioctl cat /nvme/a | dsaioctl put /nvme/b\n"
	"    tar c step-1000 | dsaioctl put rados://tensors/llama/step-1000.tar\n"
	"    dsaioctl put --private model.bin <copy       without a running dsaiod\n"
	"\n"
	"FILE must lie on a store of the daemon.  The bytes go to a new file, which becomes FILE\n"
	"when all have come: after a failure FILE is as it was.  A new file gets mode 0666 less the\n"
	"umask, an old one keeps mode and owner.  A block device is written in place.  A bar shows\n"
	"the progress if the command takes over two seconds.\n"
	"\n"
	"    --size N[K|M|G|T]  so many bytes will come: room for them is taken first, and fewer\n"
	"                       or more are an error\n"
	"    --sync             be on the device, with its name, when the command ends\n" HELP_JSON
		HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static int check_size(struct file_copy *copy)
{
	struct chunk *chunk = &copy->chunks[0];
	size_t done = 0;
	int r;

	if (size_bytes == UINT64_MAX)
		return CTL_OK;
	if (copy->done_bytes < size_bytes)
		return file_copy_fail(copy,
				      "standard input: ended after %" PRIu64 " of the %" PRIu64
				      " bytes that --size says",
				      copy->done_bytes, size_bytes);
	/* Reads one byte more, to find out. */
	chunk_place(chunk, copy->chunk_bytes, size_bytes, size_bytes + 1);
	r = file_copy_start_chunk(copy, &copy->from, chunk, false);
	if (r == CTL_OK)
		r = file_copy_finish_read(copy, &copy->from, chunk, &done);
	if (r == CTL_OK && done > 0)
		return file_copy_fail(copy,
				      "standard input: has more than the %" PRIu64
				      " bytes that --size says",
				      size_bytes);
	return r;
}

static int print_result(const struct file_copy *copy, uint64_t nsec)
{
	char bytes[UNITS_TEXT_BYTES], time[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
	struct json_object *object;

	if (!copy->ctl->is_json)
		return ctl_print_line(copy->ctl, "%s: %s in %s, %s%s", copy->to.path,
				      units_format_size(bytes, copy->done_bytes),
				      units_format_nsec(time, nsec),
				      units_format_rate(rate, copy->done_bytes, nsec),
				      is_synced ? ", synced" : "");
	object = json_object_new_object();
	json_add_text(object, "to", copy->to.path);
	json_add_number(object, "bytes", copy->done_bytes);
	json_object_object_add(object, "seconds", json_object_new_double((double)nsec / 1e9));
	json_add_bool(object, "is_synced", is_synced);
	return ctl_print_json(copy->ctl, object);
}

/* After a crash the new name must not have fewer bytes than the old file had. */
static int sync_bytes(struct file_copy *copy)
{
	const struct destination *d = &copy->destination;
	char text[DESTINATION_TEXT_BYTES];

	if (copy->to.is_rados || (!is_synced && (d->is_device || !d->was_there)))
		return CTL_OK;
	if (destination_sync(&copy->destination, copy->handles[0], text) < 0)
		return file_copy_fail(copy, "%s", text);
	return CTL_OK;
}

static int put_opened(struct file_copy *copy)
{
	uint64_t start, nsec;
	int r = file_copy_attach(copy, &copy->to, "cp(1) or dd(1)");

	if (r == CTL_OK && size_bytes != UINT64_MAX)
		r = file_copy_reserve(copy);
	if (r == CTL_OK)
		r = file_copy_make_chunks(copy, size_bytes);
	if (r != CTL_OK)
		return r;
	start = clock_nsec();
	r = file_copy_run(copy, "writing", size_bytes, !isatty(STDIN_FILENO));
	if (r == CTL_OK)
		r = check_size(copy);
	if (r == CTL_OK)
		r = sync_bytes(copy);
	if (r == CTL_OK)
		r = file_copy_place(copy, is_synced);
	nsec = clock_nsec() - start;
	return r == CTL_OK ? print_result(copy, nsec) : r;
}

static int put_run(struct ctl *ctl)
{
	_cleanup_(file_copy_deinit) struct file_copy copy = FILE_COPY_INIT(ctl);
	struct stat st;
	int r;

	copy.from = (struct side){ .path = "standard input",
				   .fd = STDIN_FILENO,
				   .is_stream = true };
	copy.end = size_bytes;
	if (ctl->n_args != 1 || !ctl->args[0][0])
		return ctl_usage(ctl, "name one file: dsaioctl put FILE: see dsaioctl put --help");
	copy.to.path = ctl->args[0];
	copy.to.is_rados = uri_is_rados(copy.to.path);
	if (fstat(STDIN_FILENO, &st) < 0)
		return ctl_fail(ctl, "standard input: %s", strerror(errno));

	r = copy.to.is_rados ? CTL_OK : file_copy_check_to(&copy, &st);
	if (r == CTL_OK)
		r = file_copy_connect(&copy, &copy.to.path, 1);
	if (r == CTL_OK)
		r = file_copy_open_to(&copy, 0666, size_bytes == UINT64_MAX ? 0 : size_bytes);
	return r == CTL_OK ? put_opened(&copy) : r;
}

const struct command command_put = COMMAND("put", put_run, "stdin through the daemon into a file",
					   help, .flags = FLAG_TABLE(flags));
