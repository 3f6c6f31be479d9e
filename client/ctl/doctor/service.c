#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RESTART "systemctl restart dsaiod, or kill a user's own daemon: the next client starts one"

void doctor_daemon(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	char up[UNITS_TEXT_BYTES];
	bool is_other;

	doctor_add(
		doctor, doctor_warn(!status), "daemon",
		"systemctl start dsaiod, or, for a daemon of your own, dsaiod --user; journalctl "
		"-u dsaiod says why it has ended",
		"%s", status ? "answers" : doctor->message);
	if (!status)
		return;
	is_other = strcmp(status->daemon_build, doctor->build) != 0;
	doctor_add(doctor, doctor_warn(is_other || status->is_replaced), "daemon's program",
		   RESTART, "pid %" PRIu32 ", build %s, up %s%s%s", status->pid,
		   status->daemon_build, units_format_nsec(up, status->uptime_usec * 1000),
		   is_other ? ", dsaioctl has another" : "",
		   status->is_replaced ? ", replaced since then" : "");
}

void doctor_gpus(struct doctor *doctor)
{
	const Wire__Gpus *gpus = doctor->status ? doctor->status->gpus : NULL;

	if (gpus)
		doctor_add(doctor, doctor_warn(gpus->problem[0] || gpus->call[0]), "GPUs",
			   "nvidia-smi says whether the driver works; then " RESTART,
			   "%zu, CUDA %" PRIu32 ".%" PRIu32 ", %s; gpu = %s: %s", gpus->n_gpus,
			   gpus->cuda_version / 1000, gpus->cuda_version % 1000 / 10, gpus->cufile,
			   gpus->path == WIRE__GPU_PATH__GPU_DIRECT ? "direct"
			   : gpus->path == WIRE__GPU_PATH__GPU_AUTO ? "auto"
								    : "copy",
			   gpus->problem[0] ? gpus->problem
			   : gpus->call[0]  ? gpus->call
					    : gpus->why);
}

void doctor_clients(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	char pids[128] = "";
	size_t n = 0;

	for (size_t i = 0; status && i < status->n_clients; i++)
		if (strcmp(status->clients[i]->library, status->daemon_version) != 0 &&
		    n < sizeof(pids))
			n += (size_t)snprintf(pids + n, sizeof(pids) - n, " %" PRIu32,
					      status->clients[i]->pid);
	if (status)
		doctor_add(doctor, doctor_warn(n), "clients", "restart these programs",
			   n ? "another version of the library: pid%s"
			     : "have the daemon's library%s",
			   pids);
}
