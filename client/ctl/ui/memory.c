#include "client/ctl/ui/memory.h"

#include "client/ctl/ui/ctl.h"

#include <stdio.h>
#include <unistd.h>

void *need_memory(void *memory)
{
	static const char message[] = "dsaioctl: out of memory\n";

	if (memory)
		return memory;
	(void)!write(STDERR_FILENO, message, sizeof(message) - 1);
	_exit(CTL_FAILED);
}

char *text_vnew(const char *format, va_list args)
{
	char *text;

	return need_memory(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *text_new(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = text_vnew(format, args);
	va_end(args);
	return text;
}
