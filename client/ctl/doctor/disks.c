#include "client/ctl/doctor/doctor.h"
#include "client/lib/base/uri.h"

#include "client/ctl/bench/place.h"
#include "client/ctl/ui/ctl.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define N_LAYERS_MAX 8 /* of device mapper and md: a guess; deeper ones are not looked at */

/* ---- a disk ---- */

/* part: the partition that the store is on, or the disk itself. */
static void check_queue(struct doctor *doctor, const char *part, const char *disk, const char *name)
{
	char lines[3][DOCTOR_LINE_BYTES], remedy[128];
	const char *value = doctor_read(doctor, lines[0], "", "%s/queue/scheduler", disk);

	(void)snprintf(remedy, sizeof(remedy), "echo none >/sys/block/%s/queue/scheduler", name);
	doctor_add(doctor,
		   doctor_warn(*value && strcmp(value, "none") != 0 &&
			       strcmp(value, "mq-deadline") != 0),
		   "scheduler", remedy, "%s", *value ? value : "none");
	doctor_add(doctor, DOCTOR_OK, "write cache", "", "%s",
		   doctor_read(doctor, lines[0], "", "%s/queue/write_cache", disk));
	value = doctor_read(doctor, lines[0], "", "%s/alignment_offset", part);
	doctor_add(doctor, doctor_warn(strspn(value, "0") != strlen(value)), "alignment",
		   "make the partition anew, from a multiple of 1 MiB",
		   "off by %s of blocks of %s bytes, physical ones of %s", *value ? value : "0",
		   doctor_read(doctor, lines[1], "", "%s/queue/logical_block_size", disk),
		   doctor_read(doctor, lines[2], "", "%s/queue/physical_block_size", disk));
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
	char path[DOCTOR_PATH_BYTES + 64], line[DOCTOR_LINE_BYTES];
	glob_t slaves = { .gl_pathc = 0 };

	(void)snprintf(path, sizeof(path), "%s%s/slaves/*", doctor->root, dir);
	if (n_layers < N_LAYERS_MAX)
		(void)glob(path, GLOB_NOSORT, NULL, &slaves); /* else there are none */
	for (size_t i = 0; i < slaves.gl_pathc; i++)
		walk(doctor, slaves.gl_pathv[i] + strlen(doctor->root), n_layers + 1);
	if (!slaves.gl_pathc) {
		/* dir is a link: .. is the parent of its target. */
		(void)snprintf(path, sizeof(path), "%s%s", dir,
			       *doctor_read(doctor, line, "", "%s/partition", dir) ? "/.." : "");
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

static void check_place(struct doctor *doctor, const char *path)
{
	struct bench_place place;
	char text[512];
	struct stat st;

	if (stat(path, &st) == 0 && S_ISBLK(st.st_mode))
		doctor_disks(doctor, st.st_rdev);
	else if (bench_place_find(path, &place, text, sizeof(text)) < 0)
		doctor_add(doctor, DOCTOR_WARN, "disks",
			   "sudo dsaioctl doctor, in the daemon's mount namespace", "%s", text);
	else if (place.device)
		doctor_disks(doctor, place.device);
}

static void check_ops(struct doctor *doctor, const Wire__Store *store)
{
	const uint64_t errors = store->counters ? store->counters->errors : 0;
	char remedy[320];

	doctor_add(doctor, store->hung ? DOCTOR_FAIL : DOCTOR_OK, "calls",
		   "dsaioctl status shows them, and what frees each", "%" PRIu64 " hang",
		   (uint64_t)store->hung);
	doctor_add(
		doctor, doctor_warn(errors), "ops",
		"journalctl -u dsaiod DSAIO_EVENT=io-error has those of a failing device, dsaioctl "
		"trace --errors the last ones of all kinds; the count ends with the daemon",
		"%" PRIu64 " failed since the daemon's start", errors);
	(void)snprintf(remedy, sizeof(remedy), "dsaioctl undrain %s", store->name);
	if (store->is_drained)
		doctor_add(doctor, DOCTOR_WARN, "drained", remedy, "refuses new files and ops");
}

/* A RADOS store has no directory and no disks here. */
static void check_cluster(struct doctor *doctor, const Wire__Store *store)
{
	char pause[UNITS_TEXT_BYTES];

	doctor_add(doctor, store->is_offline ? DOCTOR_FAIL : DOCTOR_OK, "cluster",
		   "ceph -s, with the store's ceph_conf, says whether the cluster is well; "
		   "journalctl -u dsaiod@rados what the daemon has met",
		   "%s", store->is_offline ? store->offline_text : "online");
	doctor_add(doctor, doctor_warn(store->longest_pause_usec >= 1000000), "pauses",
		   "ceph health detail; ceph osd perf shows slow osds", "%" PRIu32 "%s%s",
		   store->pauses, store->pauses ? " since the daemon's start, the longest of " : "",
		   store->pauses ? units_format_nsec(pause, store->longest_pause_usec * 1000) : "");
}

void doctor_stores(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;

	for (size_t i = 0; status && i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];

		(void)snprintf(doctor->subject, sizeof(doctor->subject), "store %s: ", store->name);
		doctor_add(doctor,
			   doctor_warn(store->is_blocking && strcmp(store->fs_type, "tmpfs") != 0),
			   "engine", "put the store on ext4 or xfs, on a local disk",
			   "%s at %s: %s: %s", store->fs_type, store->path,
			   store->is_blocking ? "worker threads" : store->engine,
			   store->engine_text);
		check_ops(doctor, store);
		if (uri_is_rados(store->path))
			check_cluster(doctor, store);
		else if (!store->hung) /* looking at its path might hang, too */
			check_place(doctor, store->path);
		doctor->subject[0] = '\0';
	}
}
