/*
 * A library that is slow to open: its constructor runs until the test ends it.
 *
 * SLOW="FD FD": the constructor writes a byte to the first descriptor and reads one from the second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void be_slow(void)
{
	const char *fds = getenv("SLOW");
	int began, end;
	char byte = 0;

	if (!fds || sscanf(fds, "%d %d", &began, &end) != 2 || write(began, &byte, 1) != 1 ||
	    read(end, &byte, 1) != 1)
		abort();
}
