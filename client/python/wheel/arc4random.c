/*
 * arc4random(3) for the wheel alone.  Debian's libevent is compiled with it, but glibc has it only since
 * 2.36, and the wheel runs with older ones.  dsaiod uses none of the functions of libevent that call it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

void arc4random_buf(void *buf, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = getrandom((char *)buf + done, size - done, 0);

		if (n < 0 && errno != EINTR)
			abort(); /* as glibc's does: the caller cannot be given bytes that are not random */
		done += n > 0 ? (size_t)n : 0;
	}
}

uint32_t arc4random(void)
{
	uint32_t value;

	arc4random_buf(&value, sizeof(value));
	return value;
}
