/*
 * The checks of dsaioctl doctor.  Each looks at one thing of the host or the daemon and adds findings: a level,
 * what was looked at, its value, and for a level above OK the command or change that mends it.
 *
 * Files of /proc, /sys and /dev are read below a root, which tests replace.  A file that cannot be read is no
 * finding, except where the text says so.
 */
#ifndef DSAIO_CLIENT_CTL_DOCTOR_DOCTOR_H
#define DSAIO_CLIENT_CTL_DOCTOR_DOCTOR_H

#include "proto/dsaio.pb-c.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_N_LEVELS };

#define DOCTOR_MEMLOCK                                                                           \
	"systemctl edit dsaiod: [Service] LimitMEMLOCK=infinity, or, where that has no effect, " \
	"AmbientCapabilities=CAP_IPC_LOCK; for a daemon of your own: ulimit -l unlimited"

#define DOCTOR_PATH_BYTES 512 /* longer paths are cut, and so not found */

struct doctor {
	const char *root;		 /* "": the host's; no '/' at its end */
	const Wire__StatusReply *status; /* NULL: no daemon answers */
	const char *build;		 /* of dsaioctl */
	struct json_object *findings;	 /* array of objects: level, what, value, remedy */
	unsigned n_findings[DOCTOR_N_LEVELS];
	char subject[256]; /* before what: "store nvme0: disk nvme0n1: ", or "" */
};

void doctor_init(struct doctor *doctor);
void doctor_deinit(struct doctor *doctor);

static inline enum doctor_level doctor_warn(bool is_bad)
{
	return is_bad ? DOCTOR_WARN : DOCTOR_OK;
}

/* Adds a finding. */
void doctor_add(struct doctor *doctor, enum doctor_level level, const char *what,
		const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Says what mends the finding that was added last, unless that is OK. */
void doctor_mend(struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Opens a file below the root for reading.  NULL: it cannot be read. */
FILE *doctor_open(const struct doctor *doctor, const char *path);
/* The first line of a file below the root, without the newline; "": it cannot be read. */
const char *doctor_line(const struct doctor *doctor, const char *path, char *line, size_t size);
/* The word in brackets of such a line, "[mq-deadline] none"; without brackets all of it. */
const char *doctor_choice(const struct doctor *doctor, const char *path, char *line, size_t size);

/* ---- the checks ---- */

typedef void doctor_check(struct doctor *doctor);

/* host.c */
doctor_check doctor_kernel, doctor_aio, doctor_memlock, doctor_huge_pages;
/* service.c */
doctor_check doctor_daemon, doctor_socket, doctor_units, doctor_pool, doctor_gpus, doctor_clients,
	doctor_hung;
/* disks.c */
doctor_check doctor_stores;

/* Parts of them, for tests. */

/* show: the output of systemctl show, a block of KEY=VALUE for each unit. */
void doctor_read_units(struct doctor *doctor, FILE *show);
/* The disks below a block device, which may be a partition or of device mapper or md. */
void doctor_disks(struct doctor *doctor, dev_t device);
/* A log page SMART / Health Information of an NVMe drive. */
#define DOCTOR_SMART_BYTES 512
void doctor_smart(struct doctor *doctor, const uint8_t page[DOCTOR_SMART_BYTES]);
/* wear.c: reads that page of the drive, only as root. */
void doctor_wear(struct doctor *doctor, const char *name);

#endif
