/*
 * The number of cores that this thread may use, and the pause between two polls of a spin.
 */
#ifndef DSAIO_PROTO_UTIL_CPU_H
#define DSAIO_PROTO_UTIL_CPU_H

#include <sched.h>
#include <unistd.h>

/* The number of cores that this thread may run on. */
static inline unsigned cpu_count(void)
{
	cpu_set_t cpus;

	/* It fails on hosts with more cores than the set has bits. */
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	return (unsigned)CPU_COUNT(&cpus);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
