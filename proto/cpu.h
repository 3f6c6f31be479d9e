/*
 * The clock that waits are measured by, and what a spin does between two looks; no protocol.
 */
#ifndef DSAIO_PROTO_CPU_H
#define DSAIO_PROTO_CPU_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_nsec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* this clock is always there */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
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
