/*
 * The clock that waits are measured by, what a spin does between two looks, and how many cores it
 * shares with the other side; no protocol.
 */
#ifndef DSAIO_PROTO_UTIL_CPU_H
#define DSAIO_PROTO_UTIL_CPU_H

#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t clock_nsec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* this clock is always there */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The cores that this thread may run on. */
static inline unsigned cpu_count(void)
{
	cpu_set_t cpus;

	/* It fails where there are more than the set holds. */
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
