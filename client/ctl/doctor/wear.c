#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libnvme.h>
#include <stdio.h>
#include <string.h>

/* Opened here alone: dsaioctl needs it for this, and each of its commands would load it with its libraries. */
#define LIBRARY "libnvme.so.1"
#define TIMEOUT_MSEC 5000u  /* a drive that does not answer */
#define UNIT_BYTES 512000u  /* of data_units_written */
#define USED_WARN 80u	    /* percent of the rated writes: time to order the next one */
#define TEMPERATURE_WARN 75 /* degrees C; many drives slow down above: a guess */
#define KELVIN 273

static_assert(sizeof(struct nvme_smart_log) == DOCTOR_SMART_BYTES, "the log page");

/* The low half of a counter; UINT64_MAX: it is larger. */
static uint64_t counter(const uint8_t bytes[16])
{
	uint64_t value = 0;

	for (unsigned i = 16; i-- > 0;) {
		if (value >> 56)
			return UINT64_MAX;
		value = value << 8 | bytes[i];
	}
	return value;
}

void doctor_smart(struct doctor *doctor, const uint8_t page[DOCTOR_SMART_BYTES])
{
	struct nvme_smart_log log;
	char written[UNITS_TEXT_BYTES];
	enum doctor_level level;
	uint64_t units, errors;
	int degrees;

	memcpy(&log, page, sizeof(log));
	units = counter(log.data_units_written);
	errors = counter(log.media_errors);
	degrees = (log.temperature[0] | log.temperature[1] << 8) - KELVIN;
	level = doctor_warn(log.percent_used >= USED_WARN);
	if (log.percent_used >= 100 || log.avail_spare < log.spare_thresh)
		level = DOCTOR_FAIL;
	doctor_add(doctor, log.critical_warning ? DOCTOR_FAIL : DOCTOR_OK, "health",
		   "nvme smart-log says which; save its files elsewhere, and replace the drive",
		   "critical warnings: %#x", log.critical_warning);
	doctor_add(doctor, level, "wear", "replace the drive",
		   "%u%% used, %u%% spare (at least %u%%), %s written", log.percent_used,
		   log.avail_spare, log.spare_thresh,
		   units_format_size(written, units < UINT64_MAX / UNIT_BYTES ? units * UNIT_BYTES
									      : UINT64_MAX));
	doctor_add(doctor, doctor_warn(errors), "media errors",
		   "compare the files with a copy; replace the drive if the number grows",
		   "%" PRIu64, errors);
	doctor_add(doctor, doctor_warn(degrees >= TEMPERATURE_WARN), "temperature",
		   "give the drive a heat sink or more air: it slows down", "%d C", degrees);
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
