#include "client/ctl/bench/disks.h"

#include "proto/util/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define SECTOR_BYTES 512u /* of the counters, whatever the device's are */
#define LEVELS_MAX 16u	  /* of a stack: a guess; more would be a mistake of ours */
#define LINE_BYTES 256u

/*
 * Bytes that the kernel and the daemon move beside the transfers.  Measured on ext4 on a loop device: the
 * daemon's probe of a store, once, 1.0 MiB written and 1.1 MiB read; journal and metadata mostly
 * nothing, at most 0.1 MiB in an interval.  A share, because both grow with the interval: what takes
 * 1% of a device changes no speed that intervals could tell apart.
 */
#define EXCESS_SHARE 100u /* one part of so many of our own bytes */
#define EXCESS_BYTES_MIN (UINT64_C(4) << 20)

struct disk_set {
	dev_t *devices; /* each once */
	size_t n;
};

struct bench_disks {
	char sysfs[PATH_MAX];
	struct disk_set top, bottom;
	char names[BENCH_DISKS_TEXT_BYTES], why_not[BENCH_DISKS_TEXT_BYTES];
};

/* A file of the device's directory in sysfs; "" if there is none. */
static const char *read_attribute(const char *sysfs, dev_t device, const char *name, char *line)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[PATH_MAX + 128];

	(void)snprintf(path, sizeof(path), "%s/dev/block/%u:%u/%s", sysfs, major(device),
		       minor(device), name);
	file = fopen(path, "re");
	line[0] = '\0';
	if (!file || !fgets(line, LINE_BYTES, file))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* The device whose "dev" that is; fallback if there is none. */
static dev_t read_device(const char *sysfs, dev_t device, const char *name, dev_t fallback)
{
	char line[LINE_BYTES];
	unsigned number[2];

	if (sscanf(read_attribute(sysfs, device, name, line), "%u:%u", &number[0], &number[1]) != 2)
		return fallback;
	return makedev(number[0], number[1]);
}

static dev_t find_whole_disk(const char *sysfs, dev_t device)
{
	char line[LINE_BYTES];

	if (!read_attribute(sysfs, device, "partition", line)[0])
		return device;
	return read_device(sysfs, device, "../dev", device);
}

/* The only device below this one; 0: it has none, or several. */
static dev_t find_only_slave(const char *sysfs, dev_t device)
{
	char path[PATH_MAX + 128], name[sizeof(((struct dirent *)NULL)->d_name) + 32] = "";
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "%s/dev/block/%u:%u/slaves", sysfs, major(device),
		       minor(device));
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		n++;
		(void)snprintf(name, sizeof(name), "slaves/%s/dev", entry->d_name);
	}
	if (dir)
		(void)closedir(dir);
	return n == 1 ? read_device(sysfs, device, name, 0) : 0;
}

static dev_t find_bottom(const char *sysfs, dev_t disk)
{
	for (unsigned level = 0; level < LEVELS_MAX; level++) {
		const dev_t slave = find_only_slave(sysfs, disk);

		if (!slave)
			break;
		disk = find_whole_disk(sysfs, slave);
	}
	return disk;
}

/* Returns false if it was there already. */
static bool add_disk(struct disk_set *set, dev_t disk)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->devices[i] == disk)
			return false;
	set->devices[set->n++] = disk;
	return true;
}

static void add_name(struct bench_disks *disks, dev_t disk)
{
	const size_t n = strlen(disks->names);
	char path[PATH_MAX + 128], target[PATH_MAX], *name;
	ssize_t len;

	(void)snprintf(path, sizeof(path), "%s/dev/block/%u:%u", disks->sysfs, major(disk),
		       minor(disk));
	len = readlink(path, target, sizeof(target) - 1);
	target[len < 0 ? 0 : len] = '\0';
	name = strrchr(target, '/');
	(void)snprintf(disks->names + n, sizeof(disks->names) - n, "%s%s", n ? ", " : "",
		       name ? name + 1 : "a disk");
}

/* Counters that are switched off look like those of an idle disk. */
static bool has_counters(const char *sysfs, dev_t disk)
{
	char line[LINE_BYTES];

	return strcmp(read_attribute(sysfs, disk, "queue/iostats", line), "0") != 0 &&
	       read_attribute(sysfs, disk, "stat", line)[0];
}

static void find_one(struct bench_disks *disks, const struct bench_place *place)
{
	dev_t top, bottom;

	if (!place->device) {
		(void)snprintf(disks->why_not, sizeof(disks->why_not), "%s on %.128s: has no %s",
			       place->fs_type[0] ? place->fs_type : "the file system", place->mount,
			       place->is_memory ? "device" : "device that is known");
		return;
	}
	top = find_whole_disk(disks->sysfs, place->device);
	bottom = find_bottom(disks->sysfs, top);
	if (add_disk(&disks->top, top) && top != bottom)
		add_name(disks, top);
	if (add_disk(&disks->bottom, bottom))
		add_name(disks, bottom);
	if (!has_counters(disks->sysfs, top) || !has_counters(disks->sysfs, bottom))
		(void)snprintf(disks->why_not, sizeof(disks->why_not),
			       "%.128s: the kernel counts nothing (queue/iostats in /sys/block)",
			       disks->names);
}

int bench_disks_find(const char *sysfs, const struct bench_place *places, size_t n_places,
		     struct bench_disks **ret_disks)
{
	struct bench_disks *disks = calloc(1, sizeof(*disks));

	if (!disks)
		return -ENOMEM;
	(void)snprintf(disks->sysfs, sizeof(disks->sysfs), "%s", sysfs);
	disks->top.devices = calloc(n_places, sizeof(*disks->top.devices));
	disks->bottom.devices = calloc(n_places, sizeof(*disks->bottom.devices));
	if (!disks->top.devices || !disks->bottom.devices) {
		bench_disks_free(disks);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n_places; i++)
		find_one(disks, &places[i]);
	*ret_disks = disks;
	return 0;
}

void bench_disks_free(struct bench_disks *disks)
{
	if (!disks)
		return;
	free(disks->top.devices);
	free(disks->bottom.devices);
	free(disks);
}

const char *bench_disks_names(const struct bench_disks *disks)
{
	return disks->names;
}

const char *bench_disks_why_not(const struct bench_disks *disks)
{
	return disks->why_not;
}

static bool add_counters(const char *sysfs, const struct disk_set *set, struct bench_moves *moves)
{
	for (size_t i = 0; i < set->n; i++) {
		uint64_t read_sectors, write_sectors;
		char line[LINE_BYTES];

		if (sscanf(read_attribute(sysfs, set->devices[i], "stat", line),
			   "%*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, &read_sectors,
			   &write_sectors) != 2)
			return false; /* the disk was removed */
		moves->read_bytes += read_sectors * SECTOR_BYTES;
		moves->write_bytes += write_sectors * SECTOR_BYTES;
	}
	return true;
}

struct bench_disk_counters bench_disks_read(const struct bench_disks *disks)
{
	struct bench_disk_counters counters = { .is_known = !disks->why_not[0] };

	counters.is_known = counters.is_known &&
			    add_counters(disks->sysfs, &disks->top, &counters.top) &&
			    add_counters(disks->sysfs, &disks->bottom, &counters.bottom);
	return counters;
}

static uint64_t excess(uint64_t before, uint64_t now, uint64_t own)
{
	return now > before && now - before > own ? now - before - own : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

struct bench_moves bench_disks_excess(const struct bench_disk_counters *before,
				      const struct bench_disk_counters *now,
				      const struct bench_moves *own)
{
	if (!before->is_known || !now->is_known)
		return (struct bench_moves){ 0 };
	return (struct bench_moves){
		.read_bytes = larger(
			excess(before->top.read_bytes, now->top.read_bytes, own->read_bytes),
			excess(before->bottom.read_bytes, now->bottom.read_bytes, own->read_bytes)),
		.write_bytes = larger(
			excess(before->top.write_bytes, now->top.write_bytes, own->write_bytes),
			excess(before->bottom.write_bytes, now->bottom.write_bytes,
			       own->write_bytes)),
	};
}

bool bench_disks_are_shared(const struct bench_moves *excess, uint64_t own_bytes)
{
	return excess->read_bytes + excess->write_bytes >
	       larger(own_bytes / EXCESS_SHARE, EXCESS_BYTES_MIN);
}
