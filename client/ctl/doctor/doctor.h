/*
 * The checks of dsaioctl doctor.  Each looks at one thing of the host or the daemon and adds findings: a level,
 * what was looked at, its value, and for a level above OK the command or change that mends it.
 *
 * Files of /proc, /sys and /dev are read below a root, which tests replace.  A file that cannot be read is empty.
 */
#ifndef DSAIO_CLIENT_CTL_DOCTOR_DOCTOR_H
#define DSAIO_CLIENT_CTL_DOCTOR_DOCTOR_H

#include "proto/dsaio.pb-c.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_N_LEVELS };

#define DOCTOR_PATH_BYTES 512 /* longer paths are cut, and so not found */
#define DOCTOR_LINE_BYTES 256

struct doctor {
	const char *root;		 /* "": the host's; no '/' at its end */
	const Wire__StatusReply *status; /* NULL: no daemon answers */
	const char *build;		 /* of dsaioctl */
	const char *message;		 /* why no daemon answers */
	struct json_object *findings;	 /* array of objects: level, what, value, remedy */
	unsigned n_findings[DOCTOR_N_LEVELS];
	char subject[256]; /* before what: "store nvme0: disk nvme0n1: ", or "" */
};

static inline enum doctor_level doctor_warn(bool is_bad)
{
	return is_bad ? DOCTOR_WARN : DOCTOR_OK;
}

/* Adds a finding.  remedy: left out if it is OK. */
void doctor_add(struct doctor *doctor, enum doctor_level level, const char *what,
		const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));

/*
 * The text behind key in the first line of the file that begins with it, or only the word in brackets there,
 * "[mq-deadline] none"; "": there is none.  line: of DOCTOR_LINE_BYTES; format: of the path.
 */
const char *doctor_read(const struct doctor *doctor, char *line, const char *key,
			const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- the checks ---- */

typedef void doctor_check(struct doctor *doctor);

/* host.c */
doctor_check doctor_kernel, doctor_aio, doctor_limits, doctor_huge_pages;
/* service.c */
doctor_check doctor_daemon, doctor_gpus, doctor_clients;
/* disks.c */
doctor_check doctor_stores;

/* Parts of them, for tests. */

/* The disks below a block device, which may be a partition or of device mapper or md. */
void doctor_disks(struct doctor *doctor, dev_t device);
/* A log page SMART / Health Information of an NVMe drive. */
#define DOCTOR_SMART_BYTES 512
void doctor_smart(struct doctor *doctor, const uint8_t page[DOCTOR_SMART_BYTES]);
/* wear.c: reads that page of the drive, only as root. */
void doctor_wear(struct doctor *doctor, const char *name);

#endif
