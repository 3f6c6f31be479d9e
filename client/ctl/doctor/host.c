#include "client/ctl/doctor/doctor.h"

#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 256
/* A user's own daemon has little to lend below this: a guess. */
#define MEMLOCK_BYTES_MIN (UINT64_C(64) << 20)

void doctor_kernel(struct doctor *doctor)
{
	char line[LINE_BYTES];
	unsigned version = 0, part = 0, number;

	(void)sscanf(doctor_line(doctor, "/proc/sys/kernel/osrelease", line, sizeof(line)), "%u.%u",
		     &version, &part);
	number = version * 1000 + part;
	if (number < 5010)
		doctor_add(doctor, DOCTOR_FAIL, "kernel", "%s is older than 5.10", line);
	else if (number < 6005)
		doctor_add(doctor, DOCTOR_WARN, "kernel",
			   "%s: before 6.5 a client is found by its pid, not by its socket's pidfd",
			   line);
	else
		doctor_add(doctor, DOCTOR_OK, "kernel", "%s", line);
	doctor_mend(doctor, "install Linux 6.5 or later");
}

void doctor_aio(struct doctor *doctor)
{
	char line[LINE_BYTES];
	const uint64_t max = strtoull(
		doctor_line(doctor, "/proc/sys/fs/aio-max-nr", line, sizeof(line)), NULL, 10);
	const uint64_t used = strtoull(
		doctor_line(doctor, "/proc/sys/fs/aio-nr", line, sizeof(line)), NULL, 10);
	enum doctor_level level = used >= max ? DOCTOR_FAIL : DOCTOR_OK;

	/* A lane takes as many as its queue is deep, at once. */
	if (used < max && max - used < max / 4)
		level = DOCTOR_WARN;
	doctor_add(doctor, level, "fs.aio-max-nr", "%" PRIu64 ", %" PRIu64 " in use", max, used);
	doctor_mend(doctor, "sysctl fs.aio-max-nr=%" PRIu64,
		    max < 524288 ? UINT64_C(1048576) : 2 * max);
}

/* The soft limit of a process in bytes, UINT64_MAX for none.  False: it cannot be read. */
static bool memlock_of(const struct doctor *doctor, const char *process, uint64_t *ret_bytes)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[64], line[LINE_BYTES], word[32];

	(void)snprintf(path, sizeof(path), "/proc/%s/limits", process);
	file = doctor_open(doctor, path);
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Max locked memory %31s", word) != 1)
			continue;
		*ret_bytes = strcmp(word, "unlimited") == 0 ? UINT64_MAX : strtoull(word, NULL, 10);
		return true;
	}
	return false;
}

static const char *memlock_text(char *text, uint64_t bytes)
{
	return bytes == UINT64_MAX ? "unlimited" : units_format_size(text, bytes);
}

void doctor_memlock(struct doctor *doctor)
{
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	char process[16], path[64], name[32], text[UNITS_TEXT_BYTES];
	uint64_t bytes;

	if (memlock_of(doctor, "self", &bytes)) {
		doctor_add(doctor,
			   doctor->status || bytes >= MEMLOCK_BYTES_MIN ? DOCTOR_OK : DOCTOR_WARN,
			   "RLIMIT_MEMLOCK here", "%s", memlock_text(text, bytes));
		doctor_mend(doctor, "ulimit -l unlimited, or \"* - memlock unlimited\" in "
				    "/etc/security/limits.conf: a daemon of your own has it, too");
	}
	if (!pool)
		return;
	/* In another PID namespace it may be any process. */
	(void)snprintf(process, sizeof(process), "%" PRIu32, doctor->status->pid);
	(void)snprintf(path, sizeof(path), "/proc/%s/comm", process);
	if (strcmp(doctor_line(doctor, path, name, sizeof(name)), "dsaiod") != 0 ||
	    !memlock_of(doctor, process, &bytes))
		return;
	doctor_add(doctor, bytes < pool->size_bytes && !pool->is_locked ? DOCTOR_WARN : DOCTOR_OK,
		   "RLIMIT_MEMLOCK of the daemon", "%s", memlock_text(text, bytes));
	doctor_mend(
		doctor,
		"systemctl edit dsaiod: [Service] LimitMEMLOCK=infinity; then systemctl restart dsaiod");
}

/* A line of /proc/meminfo, "HugePages_Free:       16" or "Hugepagesize:       2048 kB". */
static uint64_t meminfo(const struct doctor *doctor, const char *key)
{
	_cleanup_(fclosep) FILE *file = doctor_open(doctor, "/proc/meminfo");
	char line[LINE_BYTES];
	const size_t n = strlen(key);

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, key, n) == 0 && line[n] == ':')
			return strtoull(line + n + 1, NULL, 10);
	return 0;
}

void doctor_huge_pages(struct doctor *doctor)
{
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	const uint64_t page_bytes = meminfo(doctor, "Hugepagesize") * 1024;
	const uint64_t n_free = meminfo(doctor, "HugePages_Free");
	const uint64_t wanted = pool && pool->wants_huge && pool->size_bytes > pool->huge_bytes
					? pool->size_bytes - pool->huge_bytes
					: 0;
	char line[LINE_BYTES], all[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
	const char *shmem = doctor_choice(doctor, MAP_SHMEM_PATH, line, sizeof(line));
	const bool has_transparent = *shmem && strcmp(shmem, "never") != 0 &&
				     strcmp(shmem, "deny") != 0;

	doctor_add(doctor,
		   has_transparent || (n_free && n_free * page_bytes >= wanted) ? DOCTOR_OK
										: DOCTOR_WARN,
		   "huge pages",
		   "%s reserved, %s of them free; transparent ones of shared memory: %s",
		   units_format_size(all, meminfo(doctor, "HugePages_Total") * page_bytes),
		   units_format_size(free_text, n_free * page_bytes),
		   *shmem ? shmem : "not in this kernel");
	doctor_mend(doctor, "echo advise >" MAP_SHMEM_PATH
			    ", or reserve pages: sysctl vm.nr_hugepages=NUMBER");
}
