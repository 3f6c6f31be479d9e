#include "client/ctl/doctor/doctor.h"

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define LINE_BYTES 256
#define N_LAYERS_MAX 8 /* of device mapper and md: a guess; deeper ones are not looked at */

static void closedirp(DIR **dir)
{
	if (*dir)
		(void)closedir(*dir); /* opened for reading: nothing to lose */
}

/* ---- a disk ---- */

static const char *queue(const struct doctor *doctor, const char *disk, const char *name,
			 char line[LINE_BYTES])
{
	char path[DOCTOR_PATH_BYTES + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", disk, name);
	return doctor_choice(doctor, path, line, LINE_BYTES);
}

static void check_scheduler(struct doctor *doctor, const char *disk, const char *name)
{
	char line[LINE_BYTES];
	const char *choice = queue(doctor, disk, "queue/scheduler", line);
	const bool is_good = !*choice || strcmp(choice, "none") == 0 ||
			     strcmp(choice, "mq-deadline") == 0;

	doctor_add(doctor, is_good ? DOCTOR_OK : DOCTOR_WARN, "scheduler", "%s",
		   *choice ? choice : "none");
	doctor_mend(doctor, "echo none >/sys/block/%s/queue/scheduler", name);
}

static void check_kind(struct doctor *doctor, const char *disk, const char *name)
{
	char line[LINE_BYTES];
	const bool is_rotational = strcmp(queue(doctor, disk, "queue/rotational", line), "1") == 0;

	doctor_add(doctor, is_rotational ? DOCTOR_WARN : DOCTOR_OK, "kind", "%s",
		   is_rotational ? "rotational, as the kernel has it" : "not rotational");
	doctor_mend(
		doctor,
		"use an NVMe drive; if it is one behind a virtual disk: echo 0 >/sys/block/%s/queue/rotational",
		name);
}

static void check_write_cache(struct doctor *doctor, const char *disk)
{
	char line[LINE_BYTES];
	const char *cache = queue(doctor, disk, "queue/write_cache", line);

	doctor_add(doctor, DOCTOR_OK, "write cache", "%s",
		   strcmp(cache, "write back") == 0 ? "write back: a sync flushes it"
		   : *cache			    ? cache
						    : "not known");
}

/* part: the partition that the store is on, or the disk itself. */
static void check_alignment(struct doctor *doctor, const char *part, const char *disk)
{
	char logical[LINE_BYTES], physical[LINE_BYTES], offset[LINE_BYTES];
	const char *off = queue(doctor, part, "alignment_offset", offset);
	const bool is_aligned = !*off || strcmp(off, "0") == 0;

	doctor_add(doctor, is_aligned ? DOCTOR_OK : DOCTOR_WARN, "alignment",
		   "logical blocks of %s bytes, physical ones of %s%s%s",
		   queue(doctor, disk, "queue/logical_block_size", logical),
		   queue(doctor, disk, "queue/physical_block_size", physical),
		   is_aligned ? "" : ": the partition is off by ", is_aligned ? "" : off);
	doctor_mend(doctor, "make the partition anew, from a multiple of 1 MiB: parted -a optimal");
}

static void check_disk(struct doctor *doctor, const char *part, const char *disk)
{
	char path[DOCTOR_PATH_BYTES];
	_cleanup_(freep) char *real = NULL;
	const size_t end = strlen(doctor->subject);
	const char *name;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, disk);
	real = realpath(path, NULL);
	if (!real)
		return; /* a container without /sys */
	name = strrchr(real, '/') + 1;
	(void)snprintf(doctor->subject + end, sizeof(doctor->subject) - end, "%s: ", name);
	check_scheduler(doctor, disk, name);
	check_kind(doctor, disk, name);
	check_write_cache(doctor, disk);
	check_alignment(doctor, part, disk);
	if (strncmp(name, "nvme", 4) == 0)
		doctor_wear(doctor, name);
	doctor->subject[end] = '\0';
}

/* dir: of a block device, below /sys. */
static void walk(struct doctor *doctor, const char *dir, unsigned n_layers)
{
	char path[DOCTOR_PATH_BYTES], line[LINE_BYTES];
	_cleanup_(closedirp) DIR *slaves = NULL;
	const struct dirent *entry;
	bool is_disk = true;

	(void)snprintf(path, sizeof(path), "%s%s/slaves", doctor->root, dir);
	slaves = opendir(path);
	while (slaves && n_layers < N_LAYERS_MAX && (entry = readdir(slaves))) {
		if (entry->d_name[0] == '.')
			continue;
		is_disk = false;
		(void)snprintf(path, sizeof(path), "%s/slaves/%s", dir, entry->d_name);
		walk(doctor, path, n_layers + 1);
	}
	if (!is_disk)
		return;
	(void)snprintf(path, sizeof(path), "%s/partition", dir);
	if (*doctor_line(doctor, path, line, sizeof(line)))
		(void)snprintf(path, sizeof(path), "%s/..",
			       dir); /* dir is a link: its target's parent */
	else
		(void)snprintf(path, sizeof(path), "%s", dir);
	check_disk(doctor, dir, path);
}

void doctor_disks(struct doctor *doctor, dev_t device)
{
	char dir[64];

	(void)snprintf(dir, sizeof(dir), "/sys/dev/block/%u:%u", major(device), minor(device));
	walk(doctor, dir, 0);
}

/* ---- a store ---- */

static void check_place(struct doctor *doctor, const Wire__Store *store)
{
	char text[512], size[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
	struct bench_place place;
	struct stat st;
	bool is_full;

	if (stat(store->path, &st) == 0 && S_ISBLK(st.st_mode)) {
		doctor_disks(doctor, st.st_rdev);
		return;
	}
	if (bench_place_find(store->path, &place, text, sizeof(text)) < 0) {
		doctor_add(doctor, DOCTOR_WARN, "space", "%s cannot be looked at here",
			   store->path);
		doctor_mend(doctor, "sudo dsaioctl doctor, in the daemon's mount namespace");
		return;
	}
	is_full = place.free_bytes < place.size_bytes / 20;
	doctor_add(doctor, is_full ? DOCTOR_WARN : DOCTOR_OK, "space", "%s of %s free",
		   units_format_size(free_text, place.free_bytes),
		   units_format_size(size, place.size_bytes));
	doctor_mend(doctor,
		    "remove files below %s: a full file system is slow, and then writes fail",
		    store->path);
	if (place.device)
		doctor_disks(doctor, place.device);
}

void doctor_stores(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;

	for (size_t i = 0; status && i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];
		const bool is_memory = strcmp(store->fs_type, "tmpfs") == 0;

		(void)snprintf(doctor->subject, sizeof(doctor->subject), "store %s: ", store->name);
		doctor_add(doctor, DOCTOR_OK, "file system", "%s at %s", store->fs_type,
			   store->path);
		doctor_add(doctor, store->is_blocking && !is_memory ? DOCTOR_WARN : DOCTOR_OK,
			   "engine", "%s%s%s",
			   store->is_blocking ? "worker threads" : store->engine,
			   store->engine_text[0] ? ": " : "", store->engine_text);
		doctor_mend(doctor, "put the store on ext4 or xfs, on a local disk");
		check_place(doctor, store);
		doctor->subject[0] = '\0';
	}
}
