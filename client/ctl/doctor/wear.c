#include "client/ctl/doctor/doctor.h"

#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libnvme.h>
#include <stdio.h>
#include <string.h>

/* Opened here alone: dsaioctl needs it for this, and each of its commands would load it with its libraries. */
#define LIBRARY "libnvme.so.1"
#define TIMEOUT_MSEC 5000u /* a drive that does not answer */
#define UNIT_BYTES 512000  /* of data_units_written */
#define USED_WARN 80u	   /* percent of the rated writes: time to order the next one */

static_assert(sizeof(struct nvme_smart_log) == DOCTOR_SMART_BYTES, "the log page");

void doctor_smart(struct doctor *doctor, const uint8_t page[DOCTOR_SMART_BYTES])
{
	struct nvme_smart_log log;
	enum doctor_level level;
	double units = 0;

	memcpy(&log, page, sizeof(log));
	for (unsigned i = sizeof(log.data_units_written); i-- > 0;)
		units = units * 256 + log.data_units_written[i];
	level = doctor_warn(log.percent_used >= USED_WARN);
	if (log.percent_used >= 100 || log.avail_spare < log.spare_thresh)
		level = DOCTOR_FAIL;
	doctor_add(doctor, log.critical_warning ? DOCTOR_FAIL : DOCTOR_OK, "health",
		   "nvme smart-log says which; save its files elsewhere, and replace the drive",
		   "critical warnings: %#x", log.critical_warning);
	doctor_add(doctor, level, "wear", "replace the drive",
		   "%u%% used, %u%% spare (at least %u%%), %s written", log.percent_used,
		   log.avail_spare, log.spare_thresh, SIZE_TEXT(units * UNIT_BYTES));
}

/* Returns NULL, or why it cannot be read. */
static const char *read_page(const char *path, uint8_t page[DOCTOR_SMART_BYTES])
{
	void *library = dlopen(LIBRARY, RTLD_NOW); /* stays open: the process ends soon */
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct nvme_get_log_args args = {
		.args_size = sizeof(args),
		.fd = fd,
		.timeout = TIMEOUT_MSEC,
		.lid = NVME_LOG_LID_SMART,
		.nsid = NVME_NSID_ALL,
		.log = page,
		.len = DOCTOR_SMART_BYTES,
	};
	int (*get_log)(struct nvme_get_log_args * of_page);
	int r;

	if (fd < 0)
		return strerror(errno);
	*(void **)&get_log = library ? dlsym(library, "nvme_get_log") : NULL;
	if (!get_log)
		return dlerror();
	r = get_log(&args);
	return r < 0 ? strerror(errno) : r > 0 ? "the drive refuses it" : NULL;
}

void doctor_wear(struct doctor *doctor, const char *name)
{
	char path[DOCTOR_PATH_BYTES];
	uint8_t page[DOCTOR_SMART_BYTES] = { 0 };
	const char *problem;

	(void)snprintf(path, sizeof(path), "%s/dev/%s", doctor->root, name);
	problem = read_page(path, page);
	if (problem)
		doctor_add(
			doctor, DOCTOR_WARN, "wear",
			"sudo dsaioctl doctor, where libnvme is installed: apt-get install libnvme1",
			"cannot be read: %s", problem);
	else
		doctor_smart(doctor, page);
}
