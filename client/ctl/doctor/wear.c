#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libnvme.h>
#include <string.h>
#include <unistd.h>

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

static void check_warnings(struct doctor *doctor, uint8_t bits)
{
	static const char *const texts[] = {
		"the spare blocks are used up", "too hot or too cold",
		"unreliable after errors",	"read-only",
		"its cache has no backup",	"its memory region is read-only",
	};
	char text[256] = "";

	for (unsigned i = 0; i < 8; i++)
		if (bits >> i & 1)
			(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
				       *text ? ", " : "",
				       i < sizeof(texts) / sizeof(texts[0]) ? texts[i]
									    : "an unknown warning");
	doctor_add(doctor, bits ? DOCTOR_FAIL : DOCTOR_OK, "health", "%s",
		   bits ? text : "no critical warning");
	doctor_mend(doctor, "save its files elsewhere, and replace it");
}

void doctor_smart(struct doctor *doctor, const uint8_t page[DOCTOR_SMART_BYTES])
{
	struct nvme_smart_log log;
	char written[UNITS_TEXT_BYTES];
	enum doctor_level level = DOCTOR_OK;
	uint64_t units, errors;
	int degrees;

	memcpy(&log, page, sizeof(log));
	check_warnings(doctor, log.critical_warning);

	units = counter(log.data_units_written);
	if (log.percent_used >= USED_WARN)
		level = DOCTOR_WARN;
	if (log.percent_used >= 100 || log.avail_spare < log.spare_thresh)
		level = DOCTOR_FAIL;
	doctor_add(doctor, level, "wear", "%u%% used, %u%% spare (at least %u%%), %s written",
		   log.percent_used, log.avail_spare, log.spare_thresh,
		   units_format_size(written, units < UINT64_MAX / UNIT_BYTES ? units * UNIT_BYTES
									      : UINT64_MAX));
	doctor_mend(doctor, "replace the drive");

	errors = counter(log.media_errors);
	doctor_add(doctor, errors ? DOCTOR_WARN : DOCTOR_OK, "media errors", "%" PRIu64, errors);
	doctor_mend(doctor, "compare the files with a copy; replace the drive if the number grows");

	degrees = (log.temperature[0] | log.temperature[1] << 8) - KELVIN;
	doctor_add(doctor, degrees >= TEMPERATURE_WARN ? DOCTOR_WARN : DOCTOR_OK, "temperature",
		   "%d C", degrees);
	doctor_mend(doctor, "give the drive a heat sink or more air: it slows down");
}

/* Returns 0, -1 (errno says why), or the drive's status. */
static int read_page(void *library, int fd, uint8_t *page)
{
	int (*get_log)(struct nvme_get_log_args * args);
	struct nvme_get_log_args args = {
		.args_size = sizeof(args),
		.fd = fd,
		.timeout = TIMEOUT_MSEC,
		.lid = NVME_LOG_LID_SMART,
		.nsid = NVME_NSID_ALL,
		.log = page,
		.len = DOCTOR_SMART_BYTES,
		.lsp = NVME_LOG_LSP_NONE,
		.uuidx = NVME_UUID_NONE,
		.csi = NVME_CSI_NVM,
	};

	*(void **)&get_log = dlsym(library, "nvme_get_log");
	if (get_log)
		return get_log(&args);
	errno = ENOSYS;
	return -1;
}

void doctor_wear(struct doctor *doctor, const char *name)
{
	char path[DOCTOR_PATH_BYTES];
	uint8_t page[DOCTOR_SMART_BYTES] = { 0 };
	_cleanup_(closep) int fd = -1;
	void *library;
	int r;

	if (geteuid() != 0) {
		doctor_add(doctor, DOCTOR_WARN, "wear", "only root can read it");
		doctor_mend(doctor, "sudo dsaioctl doctor");
		return;
	}
	library = dlopen(LIBRARY, RTLD_NOW); /* stays open: the process ends soon */
	if (!library) {
		doctor_add(doctor, DOCTOR_WARN, "wear", "cannot be read: %s", dlerror());
		doctor_mend(doctor, "apt-get install libnvme1");
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/dev/%s", doctor->root, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	r = fd < 0 ? -1 : read_page(library, fd, page);
	if (r == 0) {
		doctor_smart(doctor, page);
		return;
	}
	if (r < 0)
		doctor_add(doctor, DOCTOR_WARN, "wear", "cannot be read: /dev/%s: %s", name,
			   strerror(errno));
	else
		doctor_add(doctor, DOCTOR_WARN, "wear",
			   "cannot be read: the drive answers with status %#x", (unsigned)r);
	doctor_mend(doctor, "nvme smart-log /dev/%s", name);
}
