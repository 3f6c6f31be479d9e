#include "client/ctl/doctor/doctor.h"

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define LINE_BYTES 256
#define N_LAYERS_MAX 8 /* of device mapper and md: a guess; deeper ones are not looked at */

/* ---- a disk ---- */

/* The choice of a file of the device dir. */
static const char *look(const struct doctor *doctor, const char *dir, const char *name,
			char line[LINE_BYTES])
{
	char path[2 * DOCTOR_PATH_BYTES];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return doctor_choice(doctor, path, line, LINE_BYTES);
}

/* part: the partition that the store is on, or the disk itself. */
static void check_queue(struct doctor *doctor, const char *part, const char *disk, const char *name)
{
	char line[LINE_BYTES], logical[LINE_BYTES], physical[LINE_BYTES];
	const char *value = look(doctor, disk, "queue/scheduler", line);
	bool is_bad = *value && strcmp(value, "none") != 0 && strcmp(value, "mq-deadline") != 0;

	doctor_add(doctor, doctor_warn(is_bad), "scheduler", "%s", *value ? value : "none");
	doctor_mend(doctor, "echo none >/sys/block/%s/queue/scheduler", name);

	is_bad = strcmp(look(doctor, disk, "queue/rotational", line), "1") == 0;
	doctor_add(doctor, doctor_warn(is_bad), "rotational", is_bad ? "yes" : "no");
	doctor_mend(doctor,
		    "use an NVMe drive; if this is one: echo 0 >/sys/block/%s/queue/rotational",
		    name);

	value = look(doctor, disk, "queue/write_cache", line);
	doctor_add(doctor, DOCTOR_OK, "write cache", "%s", *value ? value : "not known");

	value = look(doctor, part, "alignment_offset", line);
	is_bad = *value && strcmp(value, "0") != 0;
	doctor_add(doctor, doctor_warn(is_bad), "alignment",
		   "blocks of %s bytes, physical ones of %s%s%s",
		   look(doctor, disk, "queue/logical_block_size", logical),
		   look(doctor, disk, "queue/physical_block_size", physical),
		   is_bad ? ": the partition is off by " : "", is_bad ? value : "");
	doctor_mend(doctor, "make the partition anew, from a multiple of 1 MiB");
}

static void check_disk(struct doctor *doctor, const char *part, const char *disk)
{
	char path[2 * DOCTOR_PATH_BYTES];
	_cleanup_(freep) char *real = NULL;
	const size_t end = strlen(doctor->subject);
	const char *name;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, disk);
	real = realpath(path, NULL);
	if (!real)
		return; /* a container without /sys */
	name = strrchr(real, '/') + 1;
	(void)snprintf(doctor->subject + end, sizeof(doctor->subject) - end, "%s: ", name);
	check_queue(doctor, part, disk, name);
	if (strncmp(name, "nvme", 4) == 0)
		doctor_wear(doctor, name);
	doctor->subject[end] = '\0';
}

/* dir: of a block device, below /sys. */
static void walk(struct doctor *doctor, const char *dir, unsigned n_layers)
{
	char path[DOCTOR_PATH_BYTES + 64], line[LINE_BYTES];
	glob_t slaves = { .gl_pathc = 0 };

	(void)snprintf(path, sizeof(path), "%s%s/slaves/*", doctor->root, dir);
	if (n_layers < N_LAYERS_MAX)
		(void)glob(path, GLOB_NOSORT, NULL, &slaves); /* else there are none */
	for (size_t i = 0; i < slaves.gl_pathc; i++)
		walk(doctor, slaves.gl_pathv[i] + strlen(doctor->root), n_layers + 1);
	if (!slaves.gl_pathc) {
		(void)snprintf(path, sizeof(path), "%s/partition", dir);
		/* dir is a link: .. is the parent of its target. */
		(void)snprintf(path, sizeof(path), "%s%s", dir,
			       *doctor_line(doctor, path, line, sizeof(line)) ? "/.." : "");
		check_disk(doctor, dir, path);
	}
	globfree(&slaves);
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
	doctor_add(doctor, doctor_warn(is_full), "space", "%s of %s free",
		   units_format_size(free_text, place.free_bytes),
		   units_format_size(size, place.size_bytes));
	doctor_mend(doctor, "remove files below %s", store->path);
	if (place.device)
		doctor_disks(doctor, place.device);
}

void doctor_stores(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;

	for (size_t i = 0; status && i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		(void)snprintf(doctor->subject, sizeof(doctor->subject), "store %s: ", store->name);
		doctor_add(doctor, DOCTOR_OK, "file system", "%s at %s", store->fs_type,
			   store->path);
		doctor_add(doctor,
			   doctor_warn(store->is_blocking && strcmp(store->fs_type, "tmpfs") != 0),
			   "engine", "%s: %s",
			   store->is_blocking ? "worker threads" : store->engine,
			   store->engine_text);
		doctor_mend(doctor, "put the store on ext4 or xfs, on a local disk");
		check_place(doctor, store);
		doctor->subject[0] = '\0';
	}
}
