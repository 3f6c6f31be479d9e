#include "proto/util/process.h"

#include "proto/util/cleanup.h"

#include <stdio.h>
#include <string.h>

bool process_look(pid_t pid, struct process *ret_process)
{
	_cleanup_(fclosep) FILE *file = NULL;
	char path[32], line[1024], *end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')'); /* the name in parentheses may contain anything */
	return end && sscanf(end + 1,
			     " %c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			     "%*d %*d %llu %*u %*d %*u %*u %*u %*u %*u %*u %lu",
			     &ret_process->state, &ret_process->flags, &ret_process->started,
			     &ret_process->pending) == 4;
}
