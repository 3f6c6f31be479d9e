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
	doctor_add(doctor, number < 5010 ? DOCTOR_FAIL : doctor_warn(number < 6005), "kernel", "%s",
		   line);
	doctor_mend(
		doctor,
		"install 6.5 or later, which identifies a client by its socket; 5.10 is needed");
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

/* The soft limit of a process in bytes; 0: not known. */
static uint64_t memlock_of(const struct doctor *doctor, const char *process)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[64], line[LINE_BYTES], word[32];

	(void)snprintf(path, sizeof(path), "/proc/%s/limits", process);
	file = doctor_open(doctor, path);
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Max locked memory %31s", word) == 1)
			return strcmp(word, "unlimited") == 0 ? UINT64_MAX
							      : strtoull(word, NULL, 10);
	return 0;
}

static const char *memlock_text(char text[UNITS_TEXT_BYTES], uint64_t bytes)
{
	return !bytes		     ? "not known"
	       : bytes == UINT64_MAX ? "unlimited"
				     : units_format_size(text, bytes);
}

/* That of the daemon matters; a daemon to come has that of the caller. */
void doctor_memlock(struct doctor *doctor)
{
	const Wire__Pool *pool = doctor->status ? doctor->status->pool : NULL;
	const uint64_t here = memlock_of(doctor, "self");
	const bool is_bad = pool ? !pool->is_locked : here < MEMLOCK_BYTES_MIN;
	char process[16] = "self", text[2][UNITS_TEXT_BYTES];

	if (pool)
		(void)snprintf(process, sizeof(process), "%" PRIu32, doctor->status->pid);
	doctor_add(doctor, doctor_warn(is_bad), "RLIMIT_MEMLOCK", "%s here, %s for the daemon",
		   memlock_text(text[0], here), memlock_text(text[1], memlock_of(doctor, process)));
	doctor_mend(doctor, DOCTOR_MEMLOCK);
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
	const uint64_t free_bytes = meminfo(doctor, "HugePages_Free") * page_bytes;
	char line[LINE_BYTES], all[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
	const char *shmem = doctor_choice(doctor, MAP_SHMEM_PATH, line, sizeof(line));
	const bool is_never = !*shmem || strcmp(shmem, "never") == 0 || strcmp(shmem, "deny") == 0;
	const bool is_short = !free_bytes ||
			      (pool && free_bytes + pool->huge_bytes < pool->size_bytes);

	doctor_add(doctor, doctor_warn(is_never && is_short && !(pool && !pool->wants_huge)),
		   "huge pages", "%s reserved, %s of them free; transparent: %s",
		   units_format_size(all, meminfo(doctor, "HugePages_Total") * page_bytes),
		   units_format_size(free_text, free_bytes), shmem);
	doctor_mend(doctor, "echo advise >" MAP_SHMEM_PATH ", or sysctl vm.nr_hugepages=NUMBER");
}
