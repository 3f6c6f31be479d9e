/*
 * dsaioctl doctor: what is wrong with the host, the daemon and its stores, and what mends it.
 */
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"

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

static doctor_check *const checks[] = {
	doctor_kernel, doctor_aio,  doctor_memlock, doctor_huge_pages, doctor_units,  doctor_socket,
	doctor_daemon, doctor_pool, doctor_hung,    doctor_clients,    doctor_stores, doctor_gpus,
};

static int print_findings(const struct ctl *ctl, const struct doctor *doctor)
{
	const unsigned n_warn = doctor->n_findings[DOCTOR_WARN],
		       n_fail = doctor->n_findings[DOCTOR_FAIL];

	for (size_t i = 0; i < json_object_array_length(doctor->findings); i++) {
		struct json_object *finding = json_object_array_get_idx(doctor->findings, i);
		const char *remedy = json_text(finding, "remedy");

		(void)ctl_print_line(ctl, "%-4s  %s: %s", json_text(finding, "level"),
				     json_text(finding, "what"), json_text(finding, "value"));
		if (*remedy)
			(void)ctl_print_line(ctl, "      mend it: %s",
					     remedy); /* ctl_flush() looks */
	}
	return ctl_print_line(ctl, "%u warning%s, %u failure%s", n_warn, plural(n_warn), n_fail,
			      plural(n_fail));
}

static int print_json(const struct ctl *ctl, const struct doctor *doctor)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "findings", json_object_get(doctor->findings));
	json_object_object_add(object, "errors", json_object_get(ctl->errors));
	return ctl_print_json(ctl, object);
}

static int doctor_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	_cleanup_(json_putp) struct json_object *errors = NULL;
	_cleanup_(doctor_deinit) struct doctor doctor;
	int r;

	doctor_init(&doctor);
	if (ctl->n_args > 0)
		return ctl_usage(ctl, "%s: takes no arguments: see dsaioctl doctor --help",
				 ctl->args[0]);
	if (ctl->is_private)
		return ctl_usage(
			ctl,
			"--private: a daemon for this command alone is not the host's: leave it out");
	ctl->is_of_all = true;
	ctl->errors = errors = json_object_new_array();
	if (ask_status(ctl, &client, &reply) == CTL_OK)
		doctor.status = reply->status;
	doctor.build = ctl->build;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&doctor);
	r = ctl->is_json ? print_json(ctl, &doctor) : print_findings(ctl, &doctor);
	return r == CTL_OK && doctor.n_findings[DOCTOR_FAIL] ? CTL_FAILED : r;
}

const struct command command_doctor = {
	"doctor", doctor_run, "what is wrong with the host, and mends it", help, { NULL, 0 }, NULL
};
