#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define RESTART "systemctl restart dsaiod, or, for a user's own daemon, kill %" PRIu32

void doctor_daemon(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	char up[UNITS_TEXT_BYTES];

	if (!status) {
		doctor_add(doctor, DOCTOR_WARN, "daemon", "%s", doctor->problem);
		doctor_mend(doctor,
			    "systemctl start dsaiod, or, for a daemon of your own, dsaiod --user");
		return;
	}
	doctor_add(doctor, DOCTOR_OK, "daemon", "version %s, pid %" PRIu32 ", up %s",
		   status->daemon_version, status->pid,
		   units_format_nsec(up, status->uptime_usec * 1000));
	if (status->is_replaced)
		doctor_add(doctor, DOCTOR_WARN, "daemon's program", "was replaced after its start");
	else if (strcmp(status->daemon_build, doctor->build) != 0)
		doctor_add(doctor, DOCTOR_WARN, "daemon's program",
			   "build %s, and dsaioctl is build %s", status->daemon_build,
			   doctor->build);
	else
		doctor_add(doctor, DOCTOR_OK, "daemon's program", "is the one that is installed");
	doctor_mend(doctor, RESTART, status->pid);
	if (status->crashes) {
		doctor_add(doctor, DOCTOR_WARN, "crashes",
			   "%" PRIu64 ": daemons before this one did not stop in order",
			   status->crashes);
		doctor_mend(doctor, "journalctl -u dsaiod; dsaioctl trace --last-crash");
	}
}

void doctor_socket(struct doctor *doctor)
{
	char path[DOCTOR_PATH_BYTES];

	(void)snprintf(path, sizeof(path), "%s" SOCKET_SYSTEM, doctor->root);
	if (access(path, R_OK | W_OK) == 0)
		doctor_add(doctor, DOCTOR_OK, "socket", SOCKET_SYSTEM);
	else if (errno == ENOENT)
		doctor_add(doctor, DOCTOR_OK, "socket",
			   SOCKET_SYSTEM " is not there: programs use daemons of their users");
	else
		doctor_add(doctor, DOCTOR_FAIL, "socket", SOCKET_SYSTEM ": %s", strerror(errno));
	doctor_mend(doctor, "systemctl restart dsaiod.socket");
}

/* ---- the units ---- */

struct unit {
	char id[64], load[32], active[32], sub[32], result[32], restarts[16], memlock[32];
};

static void unit_take(struct unit *unit, const char *line)
{
	const struct {
		const char *key;
		char *value;
		size_t size;
	} fields[] = {
		{ "Id=", unit->id, sizeof(unit->id) },
		{ "LoadState=", unit->load, sizeof(unit->load) },
		{ "ActiveState=", unit->active, sizeof(unit->active) },
		{ "SubState=", unit->sub, sizeof(unit->sub) },
		{ "Result=", unit->result, sizeof(unit->result) },
		{ "NRestarts=", unit->restarts, sizeof(unit->restarts) },
		{ "LimitMEMLOCK=", unit->memlock, sizeof(unit->memlock) },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strncmp(line, fields[i].key, strlen(fields[i].key)) == 0)
			(void)snprintf(fields[i].value, fields[i].size, "%.*s",
				       (int)strcspn(line, "\n") - (int)strlen(fields[i].key),
				       line + strlen(fields[i].key));
}

static void unit_report(struct doctor *doctor, const struct unit *unit)
{
	const bool is_service = strstr(unit->id, ".service");
	const bool is_active = strcmp(unit->active, "active") == 0;
	char what[80];

	(void)snprintf(what, sizeof(what), "unit %s", unit->id);
	if (strcmp(unit->load, "loaded") != 0) {
		doctor_add(doctor, doctor->status ? DOCTOR_OK : DOCTOR_WARN, what, "%s",
			   unit->load);
		doctor_mend(
			doctor,
			"install dsaiod's package (make install), then systemctl enable --now dsaiod.socket");
	} else if (strcmp(unit->active, "failed") == 0) {
		doctor_add(doctor, DOCTOR_FAIL, what, "failed: %s", unit->result);
		doctor_mend(doctor, "journalctl -u %s says why; then systemctl restart %s",
			    unit->id, unit->id);
	} else if (!is_active && !is_service) {
		doctor_add(doctor, DOCTOR_WARN, what, "%s: no client starts the service",
			   unit->active);
		doctor_mend(doctor, "systemctl enable --now %s", unit->id);
	} else if (is_active && unit->restarts[0] && strcmp(unit->restarts, "0") != 0) {
		doctor_add(doctor, DOCTOR_WARN, what, "%s (%s), restarted %s times by itself",
			   unit->active, unit->sub, unit->restarts);
		doctor_mend(doctor, "journalctl -u %s; dsaioctl trace --last-crash", unit->id);
	} else if (is_service && strcmp(unit->memlock, "infinity") != 0) {
		doctor_add(doctor, DOCTOR_WARN, what, "%s (%s), LimitMEMLOCK=%s", unit->active,
			   unit->sub, unit->memlock);
		doctor_mend(doctor, "systemctl edit %s: [Service] LimitMEMLOCK=infinity", unit->id);
	} else {
		doctor_add(doctor, DOCTOR_OK, what, "%s (%s)%s", unit->active, unit->sub,
			   is_service ? ", LimitMEMLOCK=infinity" : "");
	}
}

void doctor_read_units(struct doctor *doctor, FILE *show)
{
	struct unit unit = { .id = "" };
	char line[256];

	while (fgets(line, sizeof(line), show)) {
		if (line[0] != '\n') {
			unit_take(&unit, line);
			continue;
		}
		unit_report(doctor, &unit);
		unit = (struct unit){ .id = "" };
	}
	if (unit.id[0])
		unit_report(doctor, &unit);
}

/* Where no systemd runs, the command is missing or prints nothing. */
void doctor_units(struct doctor *doctor)
{
	FILE *show = popen(
		"timeout 5 systemctl show dsaiod.service dsaiod.socket --no-pager -p Id -p LoadState "
		"-p ActiveState -p SubState -p Result -p NRestarts -p LimitMEMLOCK 2>/dev/null",
		"re");

	if (!show)
		return;
	doctor_read_units(doctor, show);
	(void)pclose(show); /* its status says no more than its output */
}

/* ---- what the daemon reports ---- */

void doctor_pool(struct doctor *doctor)
{
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	char used[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES];

	if (!pool)
		return;
	doctor_add(doctor, pool->is_locked ? DOCTOR_OK : DOCTOR_WARN, "pool",
		   "%s of %s used, %s%s%s", units_format_size(used, pool->used_bytes),
		   units_format_size(size, pool->size_bytes),
		   pool->is_locked ? "locked" : "cannot all be locked",
		   pool->why_unlocked[0] ? ": " : "", pool->why_unlocked);
	doctor_mend(
		doctor,
		"systemctl edit dsaiod: [Service] LimitMEMLOCK=infinity (ulimit -l unlimited), or, where "
		"that has no effect, AmbientCapabilities=CAP_IPC_LOCK");
}

void doctor_gpus(struct doctor *doctor)
{
	const Wire__Gpus *gpus = doctor->status ? doctor->status->gpus : NULL;

	if (!doctor->status)
		return;
	if (!gpus)
		doctor_add(doctor, DOCTOR_OK, "GPUs", "none");
	else if (gpus->problem[0])
		doctor_add(doctor, DOCTOR_WARN, "GPUs", "cannot be used: %s", gpus->problem);
	else if (gpus->call[0])
		doctor_add(doctor, DOCTOR_WARN, "GPUs", "the driver has not answered yet: %s",
			   gpus->call);
	else
		doctor_add(doctor, DOCTOR_OK, "GPUs", "%zu, CUDA %" PRIu32 ".%" PRIu32 "%s%s; %s",
			   gpus->n_gpus, gpus->cuda_version / 1000, gpus->cuda_version % 1000 / 10,
			   gpus->cufile[0] ? ", " : "", gpus->cufile, gpus->why);
	doctor_mend(doctor, "nvidia-smi says whether the driver works; then " RESTART,
		    doctor->status->pid);
}

void doctor_clients(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	const Wire__Client *old = NULL;
	unsigned n_old = 0;

	for (size_t i = 0; status && i < status->n_clients; i++)
		if (strcmp(status->clients[i]->library, status->daemon_version) != 0 &&
		    n_old++ == 0)
			old = status->clients[i];
	if (!status)
		return;
	if (!old) {
		doctor_add(doctor, DOCTOR_OK, "clients",
			   "%zu, all with the daemon's version of the library%s", status->n_clients,
			   status->others ? "; those of other users are not shown" : "");
		return;
	}
	doctor_add(doctor, DOCTOR_WARN, "clients",
		   "%u of %zu ha%s a library of another version: pid %" PRIu32 " (%s)%s", n_old,
		   status->n_clients, n_old == 1 ? "s" : "ve", old->pid,
		   old->library[0] ? old->library : "too old to say which",
		   n_old > 1 ? " and others" : "");
	doctor_mend(doctor, "restart %s after the upgrade: dsaioctl clients names all",
		    n_old == 1 ? "this program" : "these programs");
}

void doctor_hung(struct doctor *doctor)
{
	char time[UNITS_TEXT_BYTES];

	if (doctor->status && !doctor->status->n_hung)
		doctor_add(doctor, DOCTOR_OK, "hung calls", "none");
	for (size_t i = 0; doctor->status && i < doctor->status->n_hung; i++) {
		const Wire__Hung *hung = doctor->status->hung[i];

		doctor_add(doctor, DOCTOR_FAIL, "hung call",
			   "user %" PRIu32 ": %s of %s on %s, for %s", hung->uid, hung->what,
			   hung->file, hung->mount, units_format_nsec(time, hung->usec * 1000));
		doctor_mend(doctor, "%s", hung->text);
	}
}
