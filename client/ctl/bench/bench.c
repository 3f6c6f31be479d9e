#include "client/ctl/bench/bench.h"

#include "client/ctl/bench/logs.h"
#include "client/ctl/ui/json.h"
#include "client/ctl/ui/memory.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIME_TEXT_BYTES 32u
#define PAGE_BYTES 4096u

/* ---- opening ---- */

static int find_places(struct bench *bench)
{
	const struct flag_list *dirs = &bench->options->nvme_dir;
	char text[BENCH_TEXT_BYTES];

	bench->places = NEW_ARRAY(struct bench_place, dirs->n_items);
	bench->folders = NEW_ARRAY(const char *, dirs->n_items);
	bench->gpus = NEW_ARRAY(int, dirs->n_items);
	for (size_t i = 0; i < dirs->n_items; i++) {
		if (bench_place_find(dirs->items[i], &bench->places[i], text, sizeof(text)) < 0)
			return ctl_fail(bench->ctl, "%s", text);
		for (size_t k = 0; k < i; k++)
			if (bench->places[k].inode == bench->places[i].inode &&
			    bench->places[k].file_system == bench->places[i].file_system)
				return ctl_usage(bench->ctl,
						 "--dir: %s and %s are one folder: name each "
						 "folder once",
						 dirs->items[k], dirs->items[i]);
		bench->folders[i] = bench->places[i].folder;
		bench->gpus[i] = bench_gpu_number(&bench->options->gpu);
	}
	bench->n_places = (unsigned)dirs->n_items;
	return CTL_OK;
}

/* Options that a resumed run must have in common with the earlier one. */
static struct json_object *make_parameters(const struct bench *bench)
{
	const struct bench_options *options = bench->options;
	struct json_object *folders = json_object_new_array();
	struct json_object *parameters = json_object_new_object();

	if (bench->needs.space)
		json_object_object_add(parameters, "space", bench_space_json(bench->needs.space));
	for (unsigned i = 0; i < bench->n_places; i++)
		(void)json_object_array_add(folders,
					    json_object_new_string(bench->places[i].folder));
	json_object_object_add(parameters, "nvme_dir", folders);
	json_add_number(parameters, "io_size", options->io_size);
	json_add_number(parameters, "loops", options->loops);
	json_add_bool(parameters, "reads", !options->no_read);
	json_add_bool(parameters, "writes", !options->no_write);
	json_add_bool(parameters, "flush_page_cache", options->flush_page_cache);
	json_object_object_add(parameters, "gpu", bench_gpu_json(&options->gpu));
	json_add_bool(parameters, "gds", options->gpu.gds);
	return parameters;
}

/* Names the first parameter that differs from the earlier run's. */
static int check_same(struct bench *bench, const struct bench_results *old,
		      struct json_object *parameters)
{
	struct json_object *olds = bench_results_get(old, "parameters");
	struct json_object_iter i;

	json_object_object_foreachC(parameters, i)
	{
		struct json_object *was = json_object_object_get(olds, i.key);

		if (json_object_equal(i.val, was))
			continue;
		return ctl_usage(bench->ctl,
				 "--resume: %s was made with %s %s, not %s: give the same options, "
				 "or another --log_dir",
				 bench->options->log_dir, i.key,
				 json_object_to_json_string_ext(was, JSON_C_TO_STRING_PLAIN),
				 json_object_to_json_string_ext(i.val, JSON_C_TO_STRING_PLAIN));
	}
	return CTL_OK;
}

/* Opens log_dir and, with --resume, loads the run that lies there. */
static int open_logs(struct bench *bench, struct json_object *parameters)
{
	struct bench_results old = { NULL };
	const char *dir = bench->options->log_dir;
	int r = bench_logs_open(bench->ctl, dir, bench->needs.kind, &bench->logs);

	if (r != CTL_OK || !bench->options->resume)
		return r;
	r = bench_logs_resume(bench->logs, &old);
	if (r == CTL_OK && old.root)
		r = check_same(bench, &old, parameters);
	if (r != CTL_OK || !old.root) {
		if (r == CTL_OK)
			ctl_note(bench->ctl, "--resume: nothing is in %s yet: all is measured",
				 dir);
		bench_results_deinit(&old);
		return r;
	}
	(void)bench_results_drop_failed(&old);
	bench->results = old;
	bench->n_kept = bench_results_n_rows(&old);
	bench->is_resumed = true;
	return CTL_OK;
}

static struct json_object *time_json(void)
{
	char text[TIME_TEXT_BYTES] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (gmtime_r(&now, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_object_new_string(text);
}

static struct json_object *command_json(void)
{
	struct json_object *words = json_object_new_array();
	_cleanup_(closep) int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char text[8192];
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		n = 0;
	text[n] = '\0';
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(text + i) + 1)
		(void)json_object_array_add(words, json_object_new_string(text + i));
	return words;
}

/* Takes parameters. */
static void describe(struct bench *bench, struct json_object *parameters)
{
	struct json_object *daemon = json_object_new_object(), *folders = json_object_new_array();

	if (!bench->results.root)
		bench_results_init(&bench->results, bench->needs.kind);
	json_add_text(daemon, "version", bench->guest.daemon_version);
	json_add_bool(daemon, "is_private", bench->ctl->is_private);
	for (unsigned i = 0; i < bench->n_places; i++)
		(void)json_object_array_add(folders, bench_place_json(&bench->places[i]));
	if (!bench->is_resumed)
		bench_results_set(&bench->results, "began", time_json());
	bench_results_set(&bench->results, "is_complete", json_object_new_boolean(false));
	bench_results_set(&bench->results, "command", command_json());
	bench_results_set(&bench->results, "machine", bench_machine_json());
	bench_results_set(&bench->results, "daemon", daemon);
	bench_results_set(&bench->results, "folders", folders);
	bench_results_set(&bench->results, "parameters", parameters);
}

/* Connects, and checks that the options are possible there. */
static int start_guest(struct bench *bench)
{
	struct ctl *ctl = bench->ctl;
	int r = bench_guest_start(ctl, bench->folders, bench->places, bench->n_places,
				  &bench->guest);

	/* Nothing has to be removed yet, so until here a signal may end the process at once. */
	if (r == CTL_OK && stop_catch(SA_RESTART) < 0)
		r = ctl_fail(ctl, "signals: %s", strerror(errno));
	if (r == CTL_OK && bench->needs.sets_profiles && !bench->guest.is_admin)
		r = ctl_fail(ctl,
			     "--apply: only administrators may set a store's profile: without "
			     "it the profile is found and printed, and an administrator can set "
			     "it with: dsaioctl profile set");
	if (r == CTL_OK && bench->options->exclusive)
		r = bench_guest_check_alone(&bench->guest);
	return r;
}

int bench_open(struct ctl *ctl, const struct bench_needs *needs, struct bench **ret_bench)
{
	struct bench *bench = NEW_ARRAY(struct bench, 1);
	_cleanup_(json_putp) struct json_object *parameters = NULL;
	int r;

	*ret_bench = bench;
	bench->ctl = ctl;
	bench->needs = *needs;
	bench->options = needs->options;
	r = find_places(bench);
	parameters = make_parameters(bench);
	if (r == CTL_OK)
		r = start_guest(bench);
	if (r == CTL_OK && bench->options->log_dir)
		r = open_logs(bench, parameters);
	if (r == CTL_OK)
		describe(bench, TAKE_PTR(parameters));
	return r;
}

/* ---- preparing ---- */

static void tick(void *data)
{
	struct bench *bench = data;

	progress_points_tick(&bench->progress);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int start_crew(struct bench *bench)
{
	struct bench_crew_options options = {
		.socket_path = bench->ctl->socket_path,
		.folders = bench->folders,
		.files = bench->files,
		.gpus = bench->options->gpu.gpu.is_given ? bench->gpus : NULL,
		.is_gpu_direct_only = bench->options->gpu.gds,
		.n_processes = bench->n_places,
		.buffer_bytes = bench->options->io_size,
		.shared_bytes = larger(bench->needs.shared_bytes,
				       bench_point_shared_bytes(bench->options->loops)),
		.tick = tick,
		.tick_data = bench,
	};

	return bench_crew_start(bench->ctl, &options, &bench->crew);
}

/* Where the buffers lie, and the share of huge pages, decide the speed, so the results have it. */
static int look_at_memory(struct bench *bench)
{
	struct json_object *object = json_object_new_object(), *gpus = json_object_new_array();

	bench->buffer_bytes = bench->n_places * bench->options->io_size;
	for (unsigned i = 0; i < bench->n_places; i++) {
		const struct bench_memory *memory = bench_crew_memory(bench->crew, i);

		bench_gpu_add(gpus, memory->gpu);
		if (memory->huge_bytes == UINT64_MAX || bench->huge_bytes == UINT64_MAX)
			bench->huge_bytes = UINT64_MAX;
		else
			bench->huge_bytes += memory->huge_bytes;
	}
	json_add_number(object, "bytes", bench->buffer_bytes);
	json_object_object_add(object, "huge_page_bytes", bench_bytes_json(bench->huge_bytes));
	json_object_object_add(object, "gpus", gpus);
	return bench_append(bench, "buffers", object);
}

int bench_prepare(struct bench *bench)
{
	const struct bench_options *options = bench->options;
	int r = CTL_OK;

	/* Fails now, and not after the measurements, if results cannot be written. */
	if (bench->logs)
		r = bench_logs_begin(bench->logs, &bench->results);
	if (r != CTL_OK)
		return r;
	r = bench_files_make(bench->ctl, bench->places, bench->n_places, !options->no_read,
			     !options->no_write, options->io_size, options->keep, &bench->files);
	if (r != CTL_OK)
		return r;
	r = start_crew(bench);
	if (r == CTL_OK)
		r = look_at_memory(bench);
	if (r == CTL_OK)
		r = bench_guest_look(&bench->guest);
	bench->began_nsec = clock_nsec();
	return r;
}

/* ---- a point ---- */

static void flush_page_cache(struct bench *bench)
{
	_cleanup_(closep) int fd = -1;

	if (!bench->options->flush_page_cache || bench->cannot_flush)
		return;
	sync(); /* drop_caches keeps dirty pages */
	fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "1", 1) == 1)
		return;
	bench->cannot_flush = true;
	progress_points_stop(&bench->progress);
	ctl_note(bench->ctl,
		 "--flush_page_cache: needs root, and the page cache is not flushed: %s; the reads "
		 "are direct in any case",
		 strerror(errno));
}

int bench_begin(struct bench *bench, const struct bench_task *task, struct bench_row *ret_row)
{
	*ret_row = (struct bench_row){ .task = *task,
				       .n_processes = bench->n_places,
				       .device_bytes = UINT64_MAX,
				       .others_bytes = UINT64_MAX };
	if (stop_signal())
		return stop_status();
	flush_page_cache(bench);
	ret_row->served = bench_guest_served(&bench->guest, &task->profile);
	bench->traffic = bench_place_traffic(bench->places, bench->n_places);
	bench->paths = bench_crew_paths(bench->crew);
	return CTL_OK;
}

/* Finds the source of the bytes, or their destination, by the device's counters. */
static void find_source(struct bench *bench, struct bench_row *row, uint64_t moved_bytes)
{
	struct bench_traffic now = bench_place_traffic(bench->places, bench->n_places);
	bool is_memory = true;

	for (unsigned i = 0; i < bench->n_places; i++)
		is_memory = is_memory && bench->places[i].is_memory;
	if (is_memory)
		row->source = BENCH_FROM_MEMORY;
	if (is_memory || !now.is_known || !bench->traffic.is_known)
		return;
	row->device_bytes = row->task.op == BENCH_READ
				    ? now.read_bytes - bench->traffic.read_bytes
				    : now.write_bytes - bench->traffic.write_bytes;
	/* Traffic of others only adds.  Up to 5% may be missing: a file system's own buffer. */
	if (row->device_bytes >= moved_bytes - moved_bytes / 20)
		row->source = BENCH_FROM_DEVICE;
	else if (row->device_bytes <= moved_bytes / 20)
		row->source = BENCH_FROM_CACHE;
	else
		row->source = BENCH_FROM_BOTH;
}

static void count(struct bench *bench, const struct bench_row *row, const struct bench_moved *moved)
{
	bench->n_measured++;
	bench->n_failed += row->error[0] ? 1 : 0;
	bench->n_disturbed += row->is_disturbed ? 1 : 0;
	bench->others_bytes += row->is_disturbed ? row->others_bytes : 0;
	bench->n_cached += row->task.op == BENCH_READ &&
			   (row->source == BENCH_FROM_CACHE || row->source == BENCH_FROM_BOTH);
	bench->moving_nsec += moved->nsec;
}

int bench_end(struct bench *bench, struct bench_row *row, const struct bench_moved *moved, int r,
	      const char *text)
{
	const bool is_read = row->task.op == BENCH_READ;
	const struct bench_traffic own = { .read_bytes = is_read ? moved->bytes : 0,
					   .write_bytes = is_read ? 0 : moved->bytes };
	const struct bench_work *work = &bench->guest.work;
	struct bench_gpu_paths paths;
	bool is_direct, is_copied;
	int status;

	if (r == -EINTR)
		return stop_status();
	status = bench_guest_look(&bench->guest);
	if (status != CTL_OK)
		return stop_signal() ? stop_status() : status;
	if (r < 0) {
		/* It is not known how many bytes the failed op moved. */
		(void)snprintf(row->error, sizeof(row->error), "%s", text);
	} else {
		find_source(bench, row, moved->bytes);
		/* The unaligned part of other sizes is buffered, so the devices move more. */
		if (row->task.io_size % PAGE_BYTES == 0)
			row->others_bytes = bench_place_others(bench->places, bench->n_places,
							       &bench->traffic, &own);
		row->is_disturbed = bench_is_disturbed(row->others_bytes, moved->bytes);
		if (work->blocks && moved->nsec) {
			row->served.mean_block = (double)work->bytes / (double)work->blocks;
			row->served.mean_depth = (double)work->blocks_nsec / (double)moved->nsec;
		}
		paths = bench_crew_paths(bench->crew);
		is_direct = paths.n_direct > bench->paths.n_direct;
		is_copied = paths.n_copied > bench->paths.n_copied;
		(void)snprintf(row->gpu_path, sizeof(row->gpu_path), "%s",
			       is_direct && is_copied ? "both"
			       : is_direct	      ? "direct"
			       : is_copied	      ? "copied"
						      : "");
	}
	count(bench, row, moved);
	return CTL_OK;
}

int bench_measure(struct bench *bench, const struct bench_task *task, struct bench_row *ret_row)
{
	struct bench_moved moved = { 0 };
	char text[BENCH_TEXT_BYTES] = "";
	int r = bench_begin(bench, task, ret_row);

	if (r != CTL_OK)
		return r;
	ret_row->repetitions = NEW_ARRAY(struct bench_repetition, task->loops);
	r = bench_point_run(bench->crew, bench->n_places, task, ret_row->repetitions,
			    &ret_row->total, &moved, text);
	if (r == 0)
		ret_row->n_repetitions = task->loops;
	return bench_end(bench, ret_row, &moved, r, text);
}

int bench_append(struct bench *bench, const char *key, struct json_object *object)
{
	bench_results_append(&bench->results, key, object);
	return bench->logs ? bench_logs_add(bench->logs, &bench->results, key) : CTL_OK;
}

int bench_add(struct bench *bench, const struct bench_row *row)
{
	const int r = bench_append(bench, "points", bench_row_json(row));

	if (r == CTL_OK)
		bench->n_kept++;
	return r;
}

void bench_end_point(struct bench *bench, const struct bench_row *row, const char *suffix)
{
	char name[BENCH_LOG_NAME_BYTES], text[BENCH_TEXT_BYTES + BENCH_LOG_NAME_BYTES + 16];

	(void)bench_log_name(name, row->task.op, &row->task.profile, bench->n_places);
	if (row->error[0])
		(void)snprintf(text, sizeof(text), "%s failed: %s", name, row->error);
	else
		(void)snprintf(text, sizeof(text), "%.2f GB/s %s%s", row->total.e2e_speed, name,
			       suffix);
	progress_points_end(&bench->progress, text);
}

/* ---- the end ---- */

/* Small pages cost the kernel so much time that the program's own hardly matters. */
static void note_memory(const struct bench *bench)
{
	char bytes[UNITS_TEXT_BYTES], huge[UNITS_TEXT_BYTES];

	if (!bench->buffer_bytes || bench->huge_bytes == UINT64_MAX)
		return;
	(void)units_format_size(bytes, bench->buffer_bytes);
	if (bench->huge_bytes == bench->buffer_bytes)
		ctl_note(bench->ctl, "buffers: all of %s in huge pages", bytes);
	else
		ctl_note(
			bench->ctl,
			"buffers: %s of %s in huge pages: with all of it there large transfers are "
			"faster: huge_pages in dsaiod.conf(5)",
			bench->huge_bytes ? units_format_size(huge, bench->huge_bytes) : "none",
			bytes);
}

static void note_all(struct bench *bench)
{
	char text[UNITS_TEXT_BYTES];

	if (bench->n_disturbed)
		ctl_note(bench->ctl,
			 "%u of %u points were disturbed: others on this device moved %s meanwhile",
			 bench->n_disturbed, bench->n_measured,
			 units_format_size(text, bench->others_bytes));
	if (bench->n_cached)
		ctl_note(bench->ctl,
			 "%u of %u points did not read from the device, but (partly) from a cache",
			 bench->n_cached, bench->n_measured);
	for (unsigned i = 0; i < bench->n_places && bench->n_measured; i++) {
		if (!bench->places[i].is_virtual)
			continue;
		ctl_note(
			bench->ctl,
			"%s: is a virtual device: what it says it reads may come from a cache below",
			bench->places[i].device_name);
		break;
	}
	if (bench->n_measured)
		note_memory(bench);
}

/* Those of the ops of all points. */
static void add_gpu_paths(struct bench *bench)
{
	struct json_object *array = bench_results_get(&bench->results, "gpu_paths");
	_cleanup_(json_putp) struct json_object *gpus = json_object_new_array();

	if (!bench->options->gpu.gpu.is_given || !bench->crew || stop_signal())
		return;
	if (!array) {
		array = json_object_new_array();
		bench_results_set(&bench->results, "gpu_paths", array);
	}
	bench_crew_note_gpus(bench->ctl, bench->crew, bench->guest.cufile, gpus, array);
}

static void add_overhead(struct bench *bench)
{
	struct json_object *object = json_object_new_object();
	double wall = (double)(clock_nsec() - bench->began_nsec) / 1e9;
	double moving = (double)bench->moving_nsec / 1e9;

	json_add_float(object, "wall_sec", wall);
	json_add_float(object, "transfers_sec", moving);
	json_add_float(object, "share", wall > moving ? 1 - moving / wall : 0);
	bench_results_set(&bench->results, "overhead", object);
}

/* A run in which every point failed is not complete: it replaces no other run. */
static int end_results(struct bench *bench, int status)
{
	const bool is_complete = status == CTL_OK && bench_results_n_good(&bench->results) > 0;
	int r;

	bench_results_set(&bench->results, "is_complete", json_object_new_boolean(is_complete));
	bench_results_set(&bench->results, "ended", time_json());
	r = bench->logs ? bench_logs_end(bench->logs, &bench->results, is_complete) : CTL_OK;
	return status == CTL_OK ? r : status;
}

int bench_close(struct bench *bench, int status)
{
	progress_points_stop(&bench->progress);
	if (bench->results.root && bench->n_measured) {
		add_overhead(bench);
		add_gpu_paths(bench);
	}
	bench_crew_free(bench->crew);
	bench->crew = NULL;
	bench_files_free(bench->files);
	bench->files = NULL;
	if (bench->results.root) {
		status = end_results(bench, status);
		note_all(bench);
	}
	return status;
}

void bench_note_complete(const struct bench *bench)
{
	if (bench->is_resumed)
		ctl_note(bench->ctl, "--resume: all is measured: the results in %s are complete",
			 bench->options->log_dir);
}

static void report_unfinished(const struct bench *bench, int status)
{
	const char *how = status > CTL_NO_DAEMON ? "interrupted" : "not complete", *kept = NULL;
	char path[PATH_MAX];

	if (!bench->results.root || status == CTL_OK || status == CTL_USAGE)
		return;
	/* A directory that was removed, or a full disk, may have fewer than were measured. */
	if (bench->logs && bench->n_kept)
		kept = bench_logs_path(bench->logs, path);
	if (kept)
		ctl_note(bench->ctl, "%s: %zu points are in %s%s", how, bench->n_kept, kept,
			 bench->needs.space ? ": --resume goes on" : "");
	else if (bench->n_measured)
		ctl_note(bench->ctl, "%s after %u points%s", how, bench->n_measured,
			 bench->logs ? ", which could not be saved" : "");
	else if (status > CTL_NO_DAEMON)
		ctl_note(bench->ctl, "%s before anything was measured", how);
}

int bench_finish(struct bench *bench, int status)
{
	int r = CTL_OK;

	report_unfinished(bench, status);
	if (bench->ctl->is_json && bench->results.root && status != CTL_USAGE)
		r = ctl_print_json(bench->ctl, json_object_get(bench->results.root));
	bench_logs_close(bench->logs);
	bench_results_deinit(&bench->results);
	free(bench->places);
	free(bench->folders);
	free(bench->gpus);
	free(bench);
	return status == CTL_OK ? r : status;
}
