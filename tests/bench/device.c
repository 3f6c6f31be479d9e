#include "tests/bench/device.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/util/cleanup.h"

#define SECTOR_BYTES 512 /* of the counters, whatever the device's is */

void device_find(const char *dir, struct device *ret_device)
{
	struct device device = { "" };
	struct stat st;

	if (stat(dir, &st) == 0)
		(void)snprintf(device.path, sizeof(device.path), "/sys/dev/block/%u:%u/stat",
			       major(st.st_dev), minor(st.st_dev));
	if (access(device.path, R_OK) < 0)
		device.path[0] = '\0';
	*ret_device = device;
}

int device_parse(const char *line, struct device_counters *ret_counters)
{
	uint64_t reads, read_sectors, writes, write_sectors, waited;

	/* Reads, then writes: ended, merged, sectors, time.  Then in flight, busy time, waited. */
	if (sscanf(line,
		   "%" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64
		   " %*u %*u %*u %" SCNu64,
		   &reads, &read_sectors, &writes, &write_sectors, &waited) != 5)
		return -EBADMSG;
	*ret_counters = (struct device_counters){
		.requests = reads + writes,
		.bytes = (read_sectors + write_sectors) * SECTOR_BYTES,
		.waited_msec = waited,
	};
	return 0;
}

void device_count(const struct device *device, struct device_counters *ret_counters)
{
	_cleanup_(fclosep) FILE *f = NULL;
	char line[512];

	*ret_counters = (struct device_counters){ 0 };
	if (device->path[0])
		f = fopen(device->path, "re");
	if (f && fgets(line, sizeof(line), f))
		(void)device_parse(line, ret_counters); /* all 0 then */
}
