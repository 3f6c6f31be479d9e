/*
 * Foreign bytes that dsaioctl doctor reads: the log page of a drive, and the output of systemctl.
 */
#include "client/ctl/doctor/doctor.h"
#include "tests/fuzz/fuzz.h"

static void check_findings(struct doctor *doctor)
{
	assert(json_object_array_length(doctor->findings) ==
	       doctor->n_findings[DOCTOR_OK] + doctor->n_findings[DOCTOR_WARN] +
		       doctor->n_findings[DOCTOR_FAIL]);
	doctor_deinit(doctor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct doctor doctor;
	FILE *show;

	if (size >= DOCTOR_SMART_BYTES) {
		doctor_init(&doctor);
		doctor_smart(&doctor, data);
		assert(json_object_array_length(doctor.findings) == 4);
		check_findings(&doctor);
	}
	show = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	if (!show)
		return 0;
	doctor_init(&doctor);
	doctor_read_units(&doctor, show);
	(void)fclose(show); /* of memory */
	check_findings(&doctor);
	return 0;
}
