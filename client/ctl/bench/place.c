#include "client/ctl/bench/place.h"

#include "client/ctl/ui/json.h"
#include "client/ctl/ui/line.h"
#include "proto/util/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#define SECTOR_BYTES 512u /* of the counters in /sys/dev/block, for any device */
#define LINE_BYTES 1024u

/*
 * Bytes that the kernel and the daemon move beside the transfers.  Measured on ext4 on a loop device: the
 * daemon's probe of a store, once, 1.0 MiB written and 1.1 MiB read; journal and metadata mostly
 * nothing, at most 0.1 MiB in an interval.  A share, because both grow with the interval: what takes
 * 1% of a device changes no speed that intervals could tell apart.
 */
#define OTHERS_SHARE 100u /* one part of so many of our own bytes */
#define OTHERS_BYTES_MIN (UINT64_C(4) << 20)

static void copy(char *to, size_t size, const char *from)
{
	size_t n = strnlen(from, size - 1); /* what is too long is cut */

	memcpy(to, from, n);
	to[n] = '\0';
}

static bool is_virtual_machine(void)
{
	char line[4096];

	return strstr(line_read(line, sizeof(line), "flags", "/proc/cpuinfo"), " hypervisor");
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (dir[n - 1] == '/' || path[n] == '/' || !path[n]);
}

/* The mount that the folder lies on: the last of the longest. */
static void find_mount(struct bench_place *place, char *source, size_t size)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	char buffer[2 * PATH_MAX];
	struct mntent entry;
	size_t longest = 0;

	source[0] = '\0';
	if (!mounts)
		return;
	while (getmntent_r(mounts, &entry, buffer, sizeof(buffer))) {
		size_t len = strlen(entry.mnt_dir);

		if (len < longest || !is_below(place->folder, entry.mnt_dir))
			continue;
		longest = len;
		copy(place->mount, sizeof(place->mount), entry.mnt_dir);
		copy(place->fs_type, sizeof(place->fs_type), entry.mnt_type);
		copy(source, size, entry.mnt_fsname);
	}
	(void)endmntent(mounts);
}

static void find_device(struct bench_place *place, const char *source)
{
	char path[64], target[PATH_MAX], *name;
	ssize_t n;
	unsigned number[2];
	struct stat st;

	if (major(place->file_system) != 0)
		place->device = place->file_system;
	else if (source[0] == '/' && stat(source, &st) == 0 && S_ISBLK(st.st_mode))
		place->device = st.st_rdev;
	if (!place->device)
		return;
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(place->device),
		       minor(place->device));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0) {
		place->device = 0; /* a container without /sys */
		return;
	}
	target[n] = '\0';
	name = strrchr(target, '/');
	copy(place->device_name, sizeof(place->device_name), name ? name + 1 : target);

	/* A partition's counters do not show its neighbours. */
	place->disk = place->device;
	if (*line_read(target, sizeof(target), "", "%s/partition", path) &&
	    sscanf(line_read(target, sizeof(target), "", "%s/../dev", path), "%u:%u", &number[0],
		   &number[1]) == 2)
		place->disk = makedev(number[0], number[1]);
	(void)line_read(place->model, sizeof(place->model), "", "/sys/dev/block/%u:%u/device/model",
			major(place->disk), minor(place->disk));
}

int bench_place_find(const char *folder, struct bench_place *ret_place, char *text, size_t size)
{
	struct bench_place place = { 0 };
	char source[PATH_MAX];
	struct statvfs fs;
	struct stat st;

	if (!realpath(folder, place.folder) || stat(place.folder, &st) < 0 ||
	    statvfs(place.folder, &fs) < 0) {
		int r = -errno;

		(void)snprintf(text, size, "%s: %s: name an existing folder", folder, strerror(-r));
		return r;
	}
	if (!S_ISDIR(st.st_mode)) {
		(void)snprintf(text, size, "%s: is no folder", folder);
		return -ENOTDIR;
	}
	place.file_system = st.st_dev;
	place.inode = st.st_ino;
	place.size_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	place.free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	find_mount(&place, source, sizeof(source));
	place.is_memory = strcmp(place.fs_type, "tmpfs") == 0 ||
			  strcmp(place.fs_type, "ramfs") == 0;
	if (!place.is_memory)
		find_device(&place, source);
	/* A loop device's file may be cached, too. */
	place.is_virtual = place.device &&
			   (strncmp(place.device_name, "loop", 4) == 0 ||
			    strncmp(place.device_name, "zram", 4) == 0 || is_virtual_machine());
	*ret_place = place;
	return 0;
}

struct bench_traffic bench_place_traffic(const struct bench_place *places, size_t n_places)
{
	struct bench_traffic sum = { .is_known = true };

	for (size_t i = 0; i < n_places; i++) {
		uint64_t read_sectors, write_sectors;
		char line[LINE_BYTES];
		size_t k = 0;

		while (places[k].disk != places[i].disk)
			k++;
		if (k < i)
			continue; /* counted */
		if (!places[i].disk ||
		    sscanf(line_read(line, sizeof(line), "", "/sys/dev/block/%u:%u/stat",
				     major(places[i].disk), minor(places[i].disk)),
			   "%*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, &read_sectors,
			   &write_sectors) != 2) {
			sum.is_known = false;
			continue;
		}
		sum.read_bytes += read_sectors * SECTOR_BYTES;
		sum.write_bytes += write_sectors * SECTOR_BYTES;
	}
	return sum;
}

static uint64_t grown(uint64_t now, uint64_t before, uint64_t own)
{
	return now > before && now - before > own ? now - before - own : 0;
}

uint64_t bench_place_others(const struct bench_place *places, size_t n_places,
			    const struct bench_traffic *before, const struct bench_traffic *own)
{
	const struct bench_traffic now = bench_place_traffic(places, n_places);

	if (!before->is_known || !now.is_known)
		return UINT64_MAX;
	return grown(now.read_bytes, before->read_bytes, own->read_bytes) +
	       grown(now.write_bytes, before->write_bytes, own->write_bytes);
}

bool bench_is_disturbed(uint64_t others_bytes, uint64_t own_bytes)
{
	const uint64_t share = own_bytes / OTHERS_SHARE;

	return others_bytes != UINT64_MAX &&
	       others_bytes > (share > OTHERS_BYTES_MIN ? share : OTHERS_BYTES_MIN);
}

struct json_object *bench_place_json(const struct bench_place *place)
{
	struct json_object *object = json_object_new_object();

	json_add_text(object, "folder", place->folder);
	json_add_text(object, "device", place->device_name);
	json_add_text(object, "model", place->model);
	json_add_bool(object, "is_virtual", place->is_virtual);
	json_add_text(object, "fs_type", place->fs_type);
	json_add_text(object, "mount", place->mount);
	json_add_number(object, "size_bytes", place->size_bytes);
	json_add_number(object, "free_bytes", place->free_bytes);
	json_add_text(object, "store", place->store_name);
	json_add_text(object, "engine", place->engine);
	json_object_object_add(object, "profile", json_profile(&place->profile));
	return object;
}

struct json_object *bench_machine_json(void)
{
	struct json_object *object = json_object_new_object();
	struct utsname name;
	struct sysinfo info;
	char line[LINE_BYTES];
	const char *cpu = line_read(line, sizeof(line), "model name", "/proc/cpuinfo");

	if (uname(&name) == 0) {
		json_add_text(object, "host", name.nodename);
		json_add_text(object, "kernel", name.release);
		json_add_text(object, "architecture", name.machine);
	}
	json_add_text(object, "cpu", cpu + strspn(cpu, "\t :"));
	json_add_number(object, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	if (sysinfo(&info) == 0)
		json_add_number(object, "memory_bytes", (uint64_t)info.totalram * info.mem_unit);
	json_add_bool(object, "is_virtual", is_virtual_machine());
	return object;
}
