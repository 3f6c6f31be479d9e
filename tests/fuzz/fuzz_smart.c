/*
 * Foreign bytes that dsaioctl doctor reads: the log page of a drive.
 */
#include "client/ctl/doctor/doctor.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct doctor doctor = { .root = "" };

	if (size < DOCTOR_SMART_BYTES)
		return 0;
	doctor.findings = json_object_new_array();
	doctor_smart(&doctor, data);
	assert(json_object_array_length(doctor.findings) == 2);
	(void)json_object_put(doctor.findings);
	return 0;
}
