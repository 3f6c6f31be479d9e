#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Guesses: a user's own daemon has little to lend below this, and few clients' files fit. */
#define MEMLOCK_BYTES_MIN (UINT64_C(64) << 20)
#define DESCRIPTORS_MIN 16384u
#define NOT_KNOWN "not known here: the daemon is in another pid namespace"

void doctor_kernel(struct doctor *doctor)
{
	char line[DOCTOR_LINE_BYTES];
	const char *release = doctor_read(doctor, line, "", "/proc/sys/kernel/osrelease");
	unsigned version = 0, part = 0, number;

	(void)sscanf(release, "%u.%u", &version, &part);
	number = version * 1000 + part;
	doctor_add(doctor, number < 5010 ? DOCTOR_FAIL : doctor_warn(number < 6005), "kernel",
		   "install 6.5 or later, which identifies a client by its socket; 5.10 is needed",
		   "%s", release);
}

/* "unlimited" is UINT64_MAX; 0: not known. */
static uint64_t number_of(const struct doctor *doctor, const char *key, const char *path)
{
	char line[DOCTOR_LINE_BYTES];
	const char *text = doctor_read(doctor, line, key, "%s", path);

	text += strspn(text, " ");
	return strncmp(text, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
}

void doctor_aio(struct doctor *doctor)
{
	const uint64_t max = number_of(doctor, "", "/proc/sys/fs/aio-max-nr");
	const uint64_t used = number_of(doctor, "", "/proc/sys/fs/aio-nr");
	const uint64_t left = used < max ? max - used : 0;
	char remedy[64];

	(void)snprintf(remedy, sizeof(remedy), "sysctl fs.aio-max-nr=%" PRIu64,
		       max < 524288 ? UINT64_C(1048576) : 2 * max);
	/* A lane takes as many as its queue is deep, at once. */
	doctor_add(doctor, left ? doctor_warn(left < max / 4) : DOCTOR_FAIL, "fs.aio-max-nr",
		   remedy, "%" PRIu64 ", %" PRIu64 " in use", max, used);
}

/* Elsewhere its pid is of no process, or of another one. */
static bool sees_daemon(const struct doctor *doctor)
{
	char line[DOCTOR_LINE_BYTES];

	return strcmp(doctor_read(doctor, line, "", "/proc/%" PRIu32 "/comm", doctor->status->pid),
		      "dsaiod") == 0;
}

/* Those of the daemon matter; a daemon to come has those of the caller. */
void doctor_limits(struct doctor *doctor)
{
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	const bool is_known = !pool || sees_daemon(doctor);
	char path[64] = "/proc/self/limits", text[64] = "unlimited", files_text[64] = NOT_KNOWN;
	uint64_t memory, files;

	if (pool)
		(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/limits", doctor->status->pid);
	memory = number_of(doctor, "Max locked memory", path);
	files = number_of(doctor, "Max open files", path);
	if (!is_known)
		(void)strcpy(text, NOT_KNOWN);
	else if (memory < UINT64_MAX)
		(void)units_format_size(text, memory);
	if (is_known)
		(void)snprintf(files_text, sizeof(files_text), "%" PRIu64, files);
	doctor_add(doctor, doctor_warn(pool ? !pool->is_locked : memory < MEMLOCK_BYTES_MIN),
		   "RLIMIT_MEMLOCK",
		   "systemctl edit dsaiod: [Service] LimitMEMLOCK=infinity, or, where that has no "
		   "effect, AmbientCapabilities=CAP_IPC_LOCK; for a daemon of your own: ulimit -l "
		   "unlimited",
		   "%s%s%s", text,
		   !pool	     ? " here"
		   : pool->is_locked ? ", the pool is locked"
				     : ", the pool cannot all be locked: ",
		   pool ? pool->why_unlocked : "");
	if (pool)
		doctor_add(
			doctor, doctor_warn(is_known && files < DESCRIPTORS_MIN), "RLIMIT_NOFILE",
			"systemctl edit dsaiod: [Service] LimitNOFILE=4194304; for a daemon of your "
			"own: ulimit -n 65536",
			"%s", files_text);
}

void doctor_huge_pages(struct doctor *doctor)
{
	static const char path[] = "/proc/meminfo";
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	const uint64_t page_bytes = number_of(doctor, "Hugepagesize:", path) * 1024;
	const uint64_t free_bytes = number_of(doctor, "HugePages_Free:", path) * page_bytes;
	char line[DOCTOR_LINE_BYTES], all[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
	const char *shmem = doctor_read(doctor, line, "", MAP_SHMEM_PATH);
	const bool is_never = !*shmem || strcmp(shmem, "never") == 0 || strcmp(shmem, "deny") == 0;
	const bool is_short = !free_bytes ||
			      (pool && free_bytes + pool->huge_bytes < pool->size_bytes);

	doctor_add(doctor, doctor_warn(is_never && is_short && !(pool && !pool->wants_huge)),
		   "huge pages",
		   "echo advise >" MAP_SHMEM_PATH ", or sysctl vm.nr_hugepages=NUMBER",
		   "%s reserved, %s of them free; transparent: %s",
		   units_format_size(all, number_of(doctor, "HugePages_Total:", path) * page_bytes),
		   units_format_size(free_text, free_bytes), shmem);
}
