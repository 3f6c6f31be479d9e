/*
 * The end of a process whose lines are counted.  _exit(2) writes the counters first, as exit(3) does: forked
 * processes of the daemon and of tests end so.  Program and library have counters of their own, and each has this.
 */
#include <dlfcn.h>
#include <gcov.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

void coverage_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

/* A limit that a test has set does not end the process. */
__attribute__((destructor)) static void allow_writing(void)
{
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };

	(void)signal(SIGXFSZ, SIG_IGN);
	(void)setrlimit(RLIMIT_FSIZE, &none); /* for root */
}

void coverage_dump(void)
{
	void (*next)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_NEXT, "coverage_dump");

	allow_writing();
	__gcov_dump();
	if (next)
		next();
}

_Noreturn void __wrap__exit(int status)
{
	coverage_dump();
	__real__exit(status);
}
