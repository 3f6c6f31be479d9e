#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORD_BYTES 64
#define RESTART "systemctl restart dsaiod, or, for a user's own daemon, kill %" PRIu32

void doctor_daemon(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	char up[UNITS_TEXT_BYTES];
	bool is_other;

	doctor_add(doctor, doctor_warn(!status), "daemon", status ? "answers" : "none answers");
	doctor_mend(doctor, "systemctl start dsaiod, or, for a daemon of your own, dsaiod --user");
	if (!status)
		return;
	is_other = status->is_replaced || strcmp(status->daemon_build, doctor->build) != 0;
	doctor_add(doctor, doctor_warn(is_other), "daemon's program", "build %s, up %s%s",
		   status->daemon_build, units_format_nsec(up, status->uptime_usec * 1000),
		   status->is_replaced ? ", replaced since then" : "");
	doctor_mend(doctor, "after an upgrade (dsaioctl is build %s): " RESTART, doctor->build,
		    status->pid);
	doctor_add(doctor, doctor_warn(status->crashes), "crashes", "%" PRIu64, status->crashes);
	doctor_mend(doctor, "journalctl -u dsaiod DSAIO_EVENT=crash; dsaioctl trace --last-crash");
}

void doctor_socket(struct doctor *doctor)
{
	char path[DOCTOR_PATH_BYTES];
	const char *problem = NULL;

	(void)snprintf(path, sizeof(path), "%s" SOCKET_SYSTEM, doctor->root);
	if (access(path, R_OK | W_OK) < 0)
		problem = errno == ENOENT ? "not there" : strerror(errno);
	/* Without it users have daemons of their own. */
	doctor_add(doctor, problem && errno != ENOENT ? DOCTOR_FAIL : DOCTOR_OK,
		   "socket " SOCKET_SYSTEM, "%s", problem ? problem : "can be used");
	doctor_mend(doctor, "systemctl restart dsaiod.socket");
}

/* ---- the units ---- */

static const char *field(const char *unit, const char *key, char value[WORD_BYTES])
{
	const char *at = strstr(unit, key);

	value[0] = '\0';
	if (at)
		(void)sscanf(at + strlen(key), "%63[^\n]", value);
	return value;
}

/* unit: its lines KEY=VALUE. */
static void check_unit(struct doctor *doctor, const char *unit)
{
	char id[WORD_BYTES], load[WORD_BYTES], active[WORD_BYTES], restarts[WORD_BYTES],
		memlock[WORD_BYTES], what[WORD_BYTES + 8];
	bool is_bad;

	if (!*field(unit, "Id=", id))
		return;
	(void)field(unit, "LoadState=", load);
	(void)field(unit, "ActiveState=", active);
	(void)field(unit, "NRestarts=", restarts);
	(void)field(unit, "LimitMEMLOCK=", memlock);
	if (strcmp(load, "loaded") != 0)
		is_bad = !doctor->status; /* a daemon that answers is no service */
	else
		is_bad = atoi(restarts) > 0 ||
			 (strstr(id, ".socket") && strcmp(active, "active") != 0);
	(void)snprintf(what, sizeof(what), "unit %s", id);
	doctor_add(doctor, strcmp(active, "failed") == 0 ? DOCTOR_FAIL : doctor_warn(is_bad), what,
		   "%s, %s%s%s%s%s", load, active, *restarts ? ", restarts by itself: " : "",
		   restarts, *memlock ? ", LimitMEMLOCK=" : "", memlock);
	doctor_mend(doctor, "journalctl -u %s says why; systemctl enable --now dsaiod.socket", id);
}

void doctor_read_units(struct doctor *doctor, FILE *show)
{
	char text[4096], *next;

	text[fread(text, 1, sizeof(text) - 1, show)] = '\0';
	for (char *unit = text; unit; unit = next) {
		next = strstr(unit, "\n\n");
		if (next)
			*next++ = '\0';
		check_unit(doctor, unit);
	}
}

/* Where no systemd runs, the command is missing or prints nothing. */
void doctor_units(struct doctor *doctor)
{
	/* NOLINTNEXTLINE(cert-env33-c): a constant command. */
	FILE *show = popen(
		"timeout 5 systemctl show dsaiod.service dsaiod.socket --no-pager -p Id -p LoadState "
		"-p ActiveState -p NRestarts -p LimitMEMLOCK 2>/dev/null",
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
	doctor_add(doctor, doctor_warn(!pool->is_locked), "pool", "%s of %s used, %s %s",
		   units_format_size(used, pool->used_bytes),
		   units_format_size(size, pool->size_bytes),
		   pool->is_locked ? "locked" : "cannot all be locked:", pool->why_unlocked);
	doctor_mend(doctor, DOCTOR_MEMLOCK);
}

void doctor_gpus(struct doctor *doctor)
{
	const Wire__Gpus *gpus = doctor->status ? doctor->status->gpus : NULL;

	if (!gpus)
		return;
	doctor_add(doctor, doctor_warn(gpus->problem[0] || gpus->call[0]), "GPUs",
		   "%zu, CUDA %" PRIu32 ", %s%s; %s", gpus->n_gpus, gpus->cuda_version,
		   gpus->cufile, gpus->problem, gpus->call[0] ? gpus->call : gpus->why);
	doctor_mend(doctor, "nvidia-smi says whether the driver works; then " RESTART,
		    doctor->status->pid);
}

void doctor_clients(struct doctor *doctor)
{
	const Wire__StatusReply *status = doctor->status;
	const Wire__Client *old = NULL;
	unsigned n_old = 0;

	if (!status)
		return;
	for (size_t i = 0; i < status->n_clients; i++)
		if (strcmp(status->clients[i]->library, status->daemon_version) != 0 &&
		    n_old++ == 0)
			old = status->clients[i];
	doctor_add(doctor, doctor_warn(n_old), "clients",
		   "%u of %zu have not the daemon's version of the library", n_old,
		   status->n_clients);
	if (old)
		doctor_mend(doctor, "restart them after an upgrade: pid %" PRIu32 " has version %s",
			    old->pid, old->library[0] ? old->library : "unknown");
}

void doctor_hung(struct doctor *doctor)
{
	char time[UNITS_TEXT_BYTES];

	for (size_t i = 0; doctor->status && i < doctor->status->n_hung; i++) {
		const Wire__Hung *hung = doctor->status->hung[i];

		doctor_add(doctor, DOCTOR_FAIL, "hung call",
			   "user %" PRIu32 ": %s of %s on %s, for %s", hung->uid, hung->what,
			   hung->file, hung->mount, units_format_nsec(time, hung->usec * 1000));
		doctor_mend(doctor, "%s", hung->text);
	}
	if (doctor->status && !doctor->status->n_hung)
		doctor_add(doctor, DOCTOR_OK, "hung calls", "none");
}
