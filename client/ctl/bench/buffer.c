#include "client/ctl/bench/buffer.h"

#include "client/ctl/bench/gpu.h"
#include "client/ctl/bench/random.h"
#include "client/ctl/ui/memory.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STEP_BYTES (8u << 20) /* in which a GPU's memory is filled */

void bench_fill_random(void *memory, size_t len)
{
	uint64_t state, word;
	uint8_t *byte = memory;

	if (getrandom(&state, sizeof(state), 0) != sizeof(state))
		state = clock_nsec(); /* the kernel has no random bytes yet: the time will do */
	for (size_t done = 0; done < len; done += sizeof(word)) {
		word = random_next(&state);
		memcpy(byte + done, &word, len - done < sizeof(word) ? len - done : sizeof(word));
	}
}

/* Writes the step to the whole buffer, again and again; is_random: with new bytes each time. */
static int put_steps(struct bench_process *process, uint8_t *step, bool is_random, size_t len)
{
	int r = 0;

	for (size_t done = 0; r == 0 && done < len; done += STEP_BYTES) {
		const size_t n = len - done < STEP_BYTES ? len - done : STEP_BYTES;

		if (is_random)
			bench_fill_random(step, n);
		r = bench_gpu_put(process, done, step, n);
	}
	return r;
}

int bench_process_fill(struct bench_process *process, size_t len)
{
	_cleanup_(freep) uint8_t *step = NULL;

	if (!process->gpu) {
		bench_fill_random(process->buffer, len);
		return 0;
	}
	step = need_memory(malloc(STEP_BYTES));
	return put_steps(process, step, true, len);
}

int bench_process_set(struct bench_process *process, char value, size_t len)
{
	_cleanup_(freep) uint8_t *step = NULL;

	if (!process->gpu) {
		memset(process->buffer, value, len);
		return 0;
	}
	step = need_memory(malloc(STEP_BYTES));
	memset(step, value, STEP_BYTES);
	return put_steps(process, step, false, len);
}

const uint8_t *bench_process_look(struct bench_process *process, uint64_t off, void *room,
				  size_t len)
{
	if (!process->gpu)
		return (const uint8_t *)process->buffer + off;
	return bench_gpu_get(process, off, room, len) < 0 ? NULL : room;
}
