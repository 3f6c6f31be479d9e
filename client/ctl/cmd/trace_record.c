/*
 * dsaioctl trace record: the ops of a job, into a file for dsaioctl bench replay.
 *
 * It reads the flight recorder of each lane again and again, and asks no daemon.  The file is one of the flight
 * recorder, too, with the events of all lanes at which ops began and ended; its header is written at the end.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/stop.h"
#include "client/ctl/ui/units.h"
#include "proto/ring.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* At a million events a second, a lane needs 16 ms to write over its oldest ones. */
#define LOOK_NSEC 4000000

static const char help[] =
	"dsaioctl trace record - the ops of a job, into a file for dsaioctl bench replay\n"
	"\n"
	"    dsaioctl trace record job.ops -- python3 train.py    what all do until it ends\n"
	"    dsaioctl trace record job.ops --user anna -- sleep 60\n"
	"    dsaioctl trace record job.ops --store nvme0          until Ctrl-C\n"
	"    dsaioctl bench replay job.ops --dir /nvme            the same again, on any host\n"
	"\n"
	"Only root and the daemon's user may record.  PROGRAM has their rights, unless sudo -u anna is\n"
	"before it.\n"
	"\n"
	"    --store NAME   only ops on this store\n"
	"    --pid N        only this process's\n"
	"    --user USER    only this user's: a name or a number\n"
	"    --json         the numbers as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 done, 1 failed, or no op came, 2 wrong usage; else that of PROGRAM; 129, 130 and 143\n"
	"after a signal (what came until then is in the file, and PROGRAM goes on)\n";

static struct trace_filter filter;

static const struct flag flags[] = { TRACE_FILTER_FLAGS(filter) };

struct record {
	const struct ctl *ctl;
	const char *path;
	FILE *file;
	struct trace_files files;
	uint64_t n_events, n_ops, n_bytes, n_lost;
};

static void record_deinit(struct record *record)
{
	fclosep(&record->file);
	trace_files_deinit(&record->files);
}

static int write_event(struct record *record, const char *store,
		       const struct recording_event *event)
{
	if ((event->kind != RECORDING_TAKEN && event->kind != RECORDING_ENDED) ||
	    !trace_filter_has_event(&filter, store, event) ||
	    record->n_events >= TRACE_JOB_EVENTS_MAX)
		return CTL_OK;
	if (fwrite(event, sizeof(*event), 1, record->file) != 1)
		return ctl_fail(record->ctl, "%s: %s", record->path, strerrordesc_np(errno));
	record->n_events++;
	if (event->kind == RECORDING_ENDED && !ring_result_errno(event->result)) {
		record->n_ops++;
		record->n_bytes += ring_result_done(event->result);
	}
	return CTL_OK;
}

static int write_events(struct record *record)
{
	int r = trace_files_read(record->ctl, &record->files, RECORDING_NOW);

	for (unsigned i = 0; r == CTL_OK && i < RECORDING_FILES_MAX; i++) {
		const struct trace_file *file = &record->files.files[i];

		record->n_lost += file->n_lost;
		for (uint64_t k = file->first; r == CTL_OK && k < file->n_written; k++)
			r = write_event(record, file->recording->store, trace_file_event(file, k));
	}
	return r;
}

/* Waits for the end.  program: 0: none.  *ret_status: its. */
static int follow(struct record *record, pid_t program, int *ret_status)
{
	const struct timespec pause = { .tv_nsec = LOOK_NSEC };
	bool is_end = false;
	int status, r = CTL_OK;

	while (r == CTL_OK && !is_end) {
		/* First, or the last ops could be missing. */
		is_end = record->n_events >= TRACE_JOB_EVENTS_MAX || stop_signal();
		if (program && waitpid(program, &status, WNOHANG) > 0) {
			is_end = true;
			*ret_status = WIFEXITED(status) ? WEXITSTATUS(status)
							: 128 + WTERMSIG(status);
		}
		r = write_events(record);
		if (!is_end)
			(void)nanosleep(&pause, NULL); /* a signal ends it: the better */
	}
	return r;
}

static int record_job(struct record *record, char **args, int *ret_status)
{
	pid_t program = 0;
	/* Earlier ops do not count. */
	int r = trace_files_read(record->ctl, &record->files, RECORDING_NOW);

	if (r == CTL_OK && args[0]) {
		const int error = posix_spawnp(&program, args[0], NULL, NULL, args, environ);

		if (error)
			return ctl_fail(record->ctl, "%s: %s", args[0], strerrordesc_np(error));
	}
	if (r == CTL_OK && !program)
		ctl_note(record->ctl, "recording: Ctrl-C ends it");
	return r == CTL_OK ? follow(record, program, ret_status) : r;
}

/* Writes the header. */
static int finish(struct record *record)
{
	struct recording header = { .version = RECORDING_VERSION,
				    .event_bytes = sizeof(struct recording_event),
				    .n_events = (uint32_t)record->n_events + 2 * RECORDING_MARGIN };

	if (!record->n_ops)
		return ctl_fail(record->ctl,
				"no op came: the daemon may have no flight recorder (its log says "
				"so), or the choice of ops has none");
	memcpy(header.magic, RECORDING_MAGIC, sizeof(header.magic));
	atomic_init(&header.n_written, record->n_events);
	if (fseek(record->file, 0, SEEK_SET) != 0 ||
	    fwrite(&header, sizeof(header), 1, record->file) != 1 || fflush(record->file) != 0 ||
	    ftruncate(fileno(record->file), (off_t)RECORDING_BYTES(header.n_events)) < 0)
		return ctl_fail(record->ctl, "%s: %s", record->path, strerrordesc_np(errno));
	return CTL_OK;
}

static int report(const struct record *record)
{
	struct json_object *object;
	char size[UNITS_TEXT_BYTES];

	if (record->ctl->is_json) {
		object = json_object_new_object();
		json_add_text(object, "file", record->path);
		json_add_number(object, "ops", record->n_ops);
		json_add_number(object, "bytes", record->n_bytes);
		json_add_number(object, "events_lost", record->n_lost);
		return ctl_print_json(record->ctl, object);
	}
	return ctl_print_line(record->ctl,
			      "%s: %" PRIu64 " ops, %s; %" PRIu64
			      " events were gone before they were read",
			      record->path, record->n_ops, units_format_size(size, record->n_bytes),
			      record->n_lost);
}

/* ---- the command ---- */

static int record_run(struct ctl *ctl)
{
	_cleanup_(record_deinit) struct record record = { .ctl = ctl };
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
	record.file = fopen(record.path, "we");
	if (!record.file || fseek(record.file, sizeof(struct recording), SEEK_SET) != 0)
		return ctl_fail(ctl, "%s: %s", record.path, strerrordesc_np(errno));
	r = record_job(&record, ctl->args + 1, &status);
	if (r == CTL_OK)
		r = finish(&record);
	if (r == CTL_OK)
		r = report(&record);
	return r == CTL_OK ? status : r;
}

const struct command command_trace_record = COMMAND(
	"trace record", record_run, "the ops of a job, into a file for bench replay", help,
	.flags = FLAG_TABLE(flags), .of_all = true);
