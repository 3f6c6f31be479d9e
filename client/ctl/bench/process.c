#include "client/ctl/bench/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int bench_process_fail(struct bench_process *process, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(process->text, sizeof(process->text), format, args);
	va_end(args);
	return -EIO;
}
