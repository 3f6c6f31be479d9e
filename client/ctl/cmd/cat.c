/*
 * dsaioctl cat: files through the daemon to standard output.
 *
 * Reads run ahead of the writes.  A file is read until there is nothing more of it, so one that
 * grows is followed to its end.  One that ends before the size that it had when it was opened is an
 * error, because bytes are missing.
 *
 * If the reader goes away, the command ends as cat(1) does: by SIGPIPE, which keeps its default
 * action, or with status 1 where SIGPIPE is ignored.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/file_copy.h"
#include "client/lib/base/uri.h"
#include "proto/util/cleanup.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t first, length = UINT64_MAX;
static const struct flag flags[] = {
	{ "offset", FLAG_SIZE, &first, 0, INT64_MAX },
	{ "length", FLAG_SIZE, &length, 0, INT64_MAX },
};

static const char help[] =
	"dsaioctl cat - write files to standard output, read through the daemon\n"
	"\n"
	"    dsaioctl cat /nvme/model.bin | sha256sum\n"
	"    dsaioctl cat /nvme/part.0 /nvme/part.1 >whole\n"
	"    dsaioctl cat --offset 4K --length 512 /nvme/model.bin | xxd\n"
	"    dsaioctl cat rados://tensors/llama/step-1000/MANIFEST\n"
	"    dsaioctl cat --private model.bin | wc -c     without a running dsaiod\n"
	"\n"
	"Each FILE, or block device, must lie on a store of the daemon.  It is read until it ends,\n"
	"also where it grows meanwhile; one that becomes shorter is an error.  After a FILE that\n"
	"cannot be read the others are still written.  A bar is shown on a terminal that does not\n"
	"get the output.  If the reader goes away the command ends quietly, as cat(1) does.\n"
	"\n"
	"    --offset N[K|M|G|T]  of each FILE, the first byte to write (0)\n"
	"    --length N[K|M|G|T]  at most so many bytes of it (all)\n" HELP_SOCKET HELP_PRIVATE
		HELP_EXIT;

/* Not on a terminal that gets the output, too. */
static bool is_bar_wanted(void)
{
	struct stat out, err;

	return !isatty(STDOUT_FILENO) || fstat(STDOUT_FILENO, &out) < 0 ||
	       fstat(STDERR_FILENO, &err) < 0 || out.st_rdev != err.st_rdev;
}

/* cat would read the growing file forever. */
static int check_not_output(const struct file_copy *copy, const struct stat *st)
{
	struct stat out;

	if (fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode) && out.st_dev == st->st_dev &&
	    out.st_ino == st->st_ino)
		return ctl_fail(copy->ctl, "%s: is also standard output: name another file there",
				copy->from.path);
	return CTL_OK;
}

static int cat_opened(struct file_copy *copy)
{
	uint64_t wanted;
	int64_t size;
	int r;

	copy->done_bytes = 0;
	r = file_copy_attach(copy, &copy->from, "cat(1)");
	if (r != CTL_OK)
		return r;
	size = dsaio_file_size(copy->from.file);
	if (size < 0)
		return ctl_fail(copy->ctl, "%s", dsaio_error());
	copy->start = first;
	if (__builtin_add_overflow(first, length, &copy->end) || copy->end > INT64_MAX)
		copy->end = UINT64_MAX;
	copy->end_min = copy->end < (uint64_t)size ? copy->end : (uint64_t)size;
	wanted = copy->end_min > first ? copy->end_min - first : 0;
	if (copy->chunk_bytes == 0) /* later files may be larger */
		r = file_copy_make_chunks(copy, copy->ctl->n_args == 1 ? wanted : UINT64_MAX);
	if (r == CTL_OK)
		r = file_copy_run(copy, "reading", wanted, is_bar_wanted());
	file_copy_drain(copy);
	return r;
}

static int cat_file(struct file_copy *copy, const char *path)
{
	struct stat st;
	int r;

	copy->from = (struct side){ .path = path, .fd = -1, .is_rados = uri_is_rados(path) };
	r = file_copy_open_from(copy, true, &st);
	if (r == CTL_OK && !copy->from.is_rados)
		r = check_not_output(copy, &st);
	if (r == CTL_OK)
		r = cat_opened(copy);
	dsaio_file_close(copy->from.file);
	closep(&copy->from.fd);
	copy->from.fd = -1;
	return r;
}

static int cat_run(struct ctl *ctl)
{
	_cleanup_(file_copy_deinit) struct file_copy copy = FILE_COPY_INIT(ctl);
	int r;

	copy.to = (struct side){ .path = "standard output",
				 .fd = STDOUT_FILENO,
				 .is_stream = true };
	if (ctl->n_args == 0)
		return ctl_usage(ctl, "name a file: dsaioctl cat FILE...: see dsaioctl cat --help");
	for (int i = 0; i < ctl->n_args; i++)
		if (!ctl->args[i][0])
			return ctl_usage(ctl, "a file's name is empty");
	r = file_copy_connect(&copy, (const char *const *)ctl->args, (size_t)ctl->n_args);
	if (r != CTL_OK)
		return r;
	for (int i = 0; i < ctl->n_args && !copy.is_output_lost; i++)
		if (cat_file(&copy, ctl->args[i]) != CTL_OK)
			r = CTL_FAILED;
	return r;
}

const struct command command_cat = COMMAND("cat", cat_run, "files through the daemon to stdout",
					   help, .flags = FLAG_TABLE(flags),
					   .no_json = "standard output is for the files' bytes");
