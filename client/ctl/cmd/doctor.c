/*
 * dsaioctl doctor: what is wrong with the host, the daemon and its stores, and what mends it.
 */
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"

static const char help[] =
	"dsaioctl doctor - what is wrong with host, daemon and stores, and what mends it\n"
	"\n"
	"    sudo dsaioctl doctor\n"
	"    dsaioctl doctor | grep -A1 -e ^WARN -e ^FAIL\n"
	"    dsaioctl doctor --json | jq '.findings[] | select(.level != \"OK\")'\n"
	"\n"
	"A line for each check: OK, WARN or FAIL, what was looked at, and its value; below WARN and\n"
	"FAIL the command or change that mends it.  The host is checked without a daemon, too.  For\n"
	"root there is more: the wear of the NVMe drives below stores.  Changes nothing.\n"
	"\n"
	"    --json         the same as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 no FAIL, 1 a FAIL, 2 wrong usage\n";

#define TIMEOUT_NSEC 5000000000u /* a daemon that is stopped */

static doctor_check *const checks[] = {
	doctor_kernel, doctor_aio,     doctor_limits, doctor_huge_pages,
	doctor_daemon, doctor_clients, doctor_stores, doctor_gpus,
};

static int print_findings(const struct ctl *ctl, const struct doctor *doctor)
{
	for (size_t i = 0; i < json_object_array_length(doctor->findings); i++) {
		struct json_object *finding = json_object_array_get_idx(doctor->findings, i);
		const char *remedy = json_text(finding, "remedy");

		(void)ctl_print_line(ctl, "%-4s  %s: %s", json_text(finding, "level"),
				     json_text(finding, "what"), json_text(finding, "value"));
		if (*remedy) /* ctl_flush() looks */
			(void)ctl_print_line(ctl, "      mend it: %s", remedy);
	}
	return ctl_print_line(ctl, "%u WARN, %u FAIL", doctor->n_findings[DOCTOR_WARN],
			      doctor->n_findings[DOCTOR_FAIL]);
}

static int doctor_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(json_putp) struct json_object *object = json_object_new_object();
	char message[CTL_MESSAGE_BYTES] = "";
	struct doctor doctor = { .root = "",
				 .build = ctl->build,
				 .message = message,
				 .findings = json_object_new_array() };
	int r;

	json_object_object_add(object, "findings", doctor.findings);
	ctl->message = message;
	ctl->timeout_nsec = TIMEOUT_NSEC;
	if (ask_status(ctl, &reply) == CTL_OK)
		doctor.status = reply->status;
	ctl->message = NULL;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&doctor);
	r = ctl->is_json ? ctl_print_json(ctl, json_object_get(object))
			 : print_findings(ctl, &doctor);
	return r == CTL_OK && doctor.n_findings[DOCTOR_FAIL] ? CTL_FAILED : r;
}

const struct command command_doctor = COMMAND("doctor", doctor_run,
					      "what is wrong with the host, and mends it", help,
					      .no_arguments = true, .of_all = true);
