/*
 * dsaioctl trace record: the ops of a job, into a file for dsaioctl bench replay (bench/ops_file.h).
 *
 * It reads the flight recorder of each lane again and again, and asks no daemon.  Ops stay in memory until the end.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/newfile.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/plural.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* At a million events a second, a lane needs 16 ms to write over its oldest ones. */
#define LOOK_NSEC 4000000
#define NSEC_PER_SEC UINT64_C(1000000000)

static const char help[] =
	"dsaioctl trace record - the ops of a job, into a file for dsaioctl bench replay\n"
	"\n"
	"    dsaioctl trace record job.ops -- python3 train.py    what all do until it ends\n"
	"    dsaioctl trace record job.ops --user anna --seconds 60\n"
	"    dsaioctl trace record job.ops --store nvme0          until Ctrl-C\n"
	"    dsaioctl bench replay job.ops --dir /nvme            the same again, on any host\n"
	"\n"
	"An op is a row of dsaioctl trace that began and ended meanwhile, and did not fail.  The\n"
	"file is written at the end, and has no bytes of other files.  Only root and the daemon's\n"
	"user may record.  PROGRAM has their rights, too, unless sudo -u anna is before it.\n"
	"\n"
	"    --seconds N    end after so many seconds\n"
	"    --store NAME   only ops on this store\n"
	"    --pid N        only this process's\n"
	"    --user USER    only this user's: a name or a number\n"
	"    --json         the numbers as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, or no op came, 2 wrong usage; else that of PROGRAM; 129, 130 and 143\n"
	"after a signal (what came until then is in the file, and PROGRAM goes on)\n";

static uint32_t n_seconds;
static struct trace_filter filter;

static const struct flag flags[] = {
	{ "seconds", FLAG_COUNT, &n_seconds, 1, OPS_FILE_NSEC_MAX / NSEC_PER_SEC },
	TRACE_FILTER_FLAGS(filter),
};

struct record {
	const struct ctl *ctl;
	const char *path;
	int fd;
	struct trace_files files;
	struct ops_file_header header;
};

static void record_deinit(struct record *record)
{
	closep(&record->fd);
	trace_files_deinit(&record->files);
}

/* Waits for the end.  program: 0: none.  *ret_status: its. */
static int follow(struct record *record, pid_t program, int *ret_status)
{
	const struct timespec pause = { .tv_nsec = LOOK_NSEC };
	const uint64_t end_nsec = clock_nsec() +
				  (n_seconds ? n_seconds * NSEC_PER_SEC : OPS_FILE_NSEC_MAX);
	bool is_end = false;
	int status, r = CTL_OK;

	while (r == CTL_OK && !is_end) {
		/* First, or the last ops could be missing. */
		is_end = clock_nsec() >= end_nsec || record->files.ops.n >= OPS_FILE_OPS_MAX ||
			 stop_signal();
		if (program && waitpid(program, &status, WNOHANG) > 0) {
			is_end = true;
			*ret_status = WIFEXITED(status) ? WEXITSTATUS(status)
							: 128 + WTERMSIG(status);
		}
		r = trace_files_read(record->ctl, &record->files, RECORDING_NOW, &filter);
		if (!is_end)
			(void)nanosleep(&pause, NULL); /* a signal ends it: the better */
	}
	return r;
}

static int record_job(struct record *record, char **args, int *ret_status)
{
	pid_t program = 0;
	int r = trace_files_read(record->ctl, &record->files, RECORDING_NOW, &filter);

	/* Earlier ops do not count. */
	trace_ops_deinit(&record->files.ops);
	for (unsigned i = 0; i < RECORDING_FILES_MAX; i++)
		record->files.files[i].n_lost = 0;
	if (r == CTL_OK && args[0]) {
		const int error = posix_spawnp(&program, args[0], NULL, NULL, args, environ);

		if (error)
			return ctl_fail(record->ctl, "%s: %s", args[0], strerrordesc_np(error));
	}
	if (r == CTL_OK && !program)
		ctl_note(record->ctl, "recording%s", n_seconds ? "" : ": Ctrl-C ends it");
	return r == CTL_OK ? follow(record, program, ret_status) : r;
}

/* ---- the file ---- */

static int write_file(struct record *record)
{
	struct ops_file_header *header = &record->header;
	struct trace_ops *ops = &record->files.ops;
	int r = 0;

	if (trace_ops_end(ops) < 0)
		return ctl_fail(record->ctl, "out of memory");
	*header = (struct ops_file_header){ .version = OPS_FILE_VERSION,
					    .op_bytes = sizeof(*ops->ops),
					    .n_left_out = ops->n_lost };
	memcpy(header->magic, OPS_FILE_MAGIC, sizeof(header->magic));
	for (size_t i = 0; i < ops->n; i++) {
		if (ops_file_has(&ops->ops[i]) && header->n_ops < OPS_FILE_OPS_MAX)
			ops->ops[header->n_ops++] = ops->ops[i];
		else
			header->n_left_out++;
	}
	if (!header->n_ops)
		return ctl_fail(record->ctl,
				"no op came: nothing is written; the daemon may have no flight "
				"recorder (its log says so), or the choice of ops has none");
	if (ftruncate(record->fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = write_all(record->fd, (const char *)header, sizeof(*header));
	if (r == 0)
		r = write_all(record->fd, (const char *)ops->ops,
			      header->n_ops * sizeof(*ops->ops));
	return r < 0 ? ctl_fail(record->ctl, "%s: %s", record->path, strerrordesc_np(-r)) : CTL_OK;
}

static int report(const struct record *record)
{
	const struct ops_file_header *header = &record->header;
	struct json_object *object;
	char size[UNITS_TEXT_BYTES];
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < header->n_ops; i++)
		bytes += (uint64_t)record->files.ops.ops[i].result;
	if (record->ctl->is_json) {
		object = json_object_new_object();
		json_add_text(object, "file", record->path);
		json_add_number(object, "ops", header->n_ops);
		json_add_number(object, "bytes", bytes);
		json_add_number(object, "ops_left_out", header->n_left_out);
		json_add_number(object, "events_lost", record->files.n_lost);
		return ctl_print_json(record->ctl, object);
	}
	return ctl_print_line(record->ctl,
			      "%s: %" PRIu64 " op%s, %s; left out: %" PRIu64
			      " that failed or had not ended, and those of %" PRIu64
			      " events that were gone before they were read",
			      record->path, header->n_ops, plural(header->n_ops),
			      units_format_size(size, bytes), header->n_left_out,
			      record->files.n_lost);
}

/* ---- the command ---- */

static int record_run(struct ctl *ctl)
{
	_cleanup_(record_deinit) struct record record = { .ctl = ctl, .fd = -1 };
	int status = 0, r = trace_filter_check(ctl, &filter);

	if (r != CTL_OK)
		return r;
	if (ctl->n_args < 1)
		return ctl_usage(ctl,
				 "where to? name a file, as in: dsaioctl trace record job.ops");
	ctl->args[ctl->n_args] = NULL;	       /* argv has room: there was "record" */
	if (stop_catch((int)SA_RESETHAND) < 0) /* a second signal ends it without a file */
		return ctl_fail(ctl, "signals: %s", strerror(errno));
	record.path = ctl->args[0];
	record.fd = open(record.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (record.fd < 0)
		return ctl_fail(ctl, "%s: %s", record.path, strerrordesc_np(errno));
	r = trace_files_find(ctl, &record.files);
	if (r == CTL_OK)
		r = record_job(&record, ctl->args + 1, &status);
	if (r == CTL_OK)
		r = write_file(&record);
	if (r == CTL_OK)
		r = report(&record);
	return r == CTL_OK ? status : r;
}

const struct command command_trace_record = {
	"trace record", record_run,	   "the ops of a job, into a file for bench replay",
	help,		FLAG_TABLE(flags), NULL
};
