/*
 * dsaioctl doctor: what is wrong with the host, the daemon and its stores, and what mends it.
 */
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"

#include <stdlib.h>

static const char help[] =
	"dsaioctl doctor - what is wrong with the host, the daemon and its stores, and what mends it\n"
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

/* Why there is no connection: the library's message goes on about starting a daemon, which nobody asked for. */
static const char *connect_problem(const struct ctl *ctl, int error)
{
	const char *named = getenv("DSAIO_SOCKET");

	if ((error == -ENOENT || error == -ECONNREFUSED) && !ctl->socket_path && !(named && *named))
		return "no daemon listens";
	return dsaio_error();
}

/* The status of the daemon, or NULL and in *ret_problem why there is none.  Starts no daemon. */
static const Wire__StatusReply *look(struct ctl *ctl, struct dsaio_client **client,
				     Wire__Reply **reply, const char **ret_problem)
{
	struct dsaio_connect_options options = DSAIO_CONNECT_OPTIONS_INIT;
	int r;

	(void)setenv("DSAIO_AUTOSTART", "0", 1);
	options.socket_path = ctl->socket_path;
	options.flags = DSAIO_NO_RECONNECT;
	stop_wait_begin(ctl->command);
	r = dsaio_connect(&options, client);
	stop_wait_end();
	*ret_problem = r < 0 ? connect_problem(ctl, r) : "it answers no status";
	return r == 0 && ask_status(ctl, client, reply) == CTL_OK ? (*reply)->status : NULL;
}

static int print_findings(const struct ctl *ctl, const struct doctor *doctor)
{
	const unsigned n_warn = doctor->n_findings[DOCTOR_WARN],
		       n_fail = doctor->n_findings[DOCTOR_FAIL];

	for (size_t i = 0; i < json_object_array_length(doctor->findings); i++) {
		struct json_object *finding = json_object_array_get_idx(doctor->findings, i);
		const char *remedy = json_text(finding, "remedy");

		if (ctl_print_line(ctl, "%-4s  %s: %s", json_text(finding, "level"),
				   json_text(finding, "what"),
				   json_text(finding, "value")) != CTL_OK ||
		    (*remedy && ctl_print_line(ctl, "      mend it: %s", remedy) != CTL_OK))
			return CTL_FAILED;
	}
	return ctl_print_line(ctl, "%u warning%s, %u failure%s", n_warn, plural(n_warn), n_fail,
			      plural(n_fail));
}

static int print_json(const struct ctl *ctl, const struct doctor *doctor)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "findings", json_object_get(doctor->findings));
	json_add_number(object, "warnings", doctor->n_findings[DOCTOR_WARN]);
	json_add_number(object, "failures", doctor->n_findings[DOCTOR_FAIL]);
	return ctl_print_json(ctl, object);
}

static int doctor_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
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
	doctor.build = ctl->build;
	doctor.status = look(ctl, &client, &reply, &doctor.problem);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&doctor);
	r = ctl->is_json ? print_json(ctl, &doctor) : print_findings(ctl, &doctor);
	return r == CTL_OK && doctor.n_findings[DOCTOR_FAIL] ? CTL_FAILED : r;
}

const struct command command_doctor = {
	"doctor", doctor_run, "what is wrong with the host, and mends it", help, { NULL, 0 }, NULL
};
