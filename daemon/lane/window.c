#include "daemon/lane/window.h"

#include <stddef.h>
#include <string.h>

/* Limits on the bytes that queue in the device: between them the window stays.  On a virtual disk of
   3 GB/s: with a quarter of it nothing was there to do when a block came back. */
#define QUEUED_MOST_BYTES (4u << 20)
#define QUEUED_LEAST_BYTES (2u << 20)
/* It is never more than the device does in so long, beside what a block takes by itself: what
   comes behind it waits that long. */
#define WINDOW_NSEC 4000000u
/* The rate is averaged over about so many intervals, because shared virtual disks stall. */
#define RATE_WEIGHT 8
/* Ratios are in 1/256. */
#define RATIO_ONE 256u

void window_init(struct window *window)
{
	memset(window, 0, sizeof(*window));
	window->bytes = WINDOW_START_BYTES;
	window_set_most(window, UINT64_MAX);
}

static void keep_bounds(struct window *window)
{
	if (window->bytes > window->most_bytes)
		window->bytes = window->most_bytes;
	if (window->bytes < window->least_bytes)
		window->bytes = window->least_bytes;
}

void window_set_most(struct window *window, uint64_t most_bytes)
{
	window->most_bytes = most_bytes;
	window->least_bytes = most_bytes < WINDOW_LEAST_BYTES ? most_bytes : WINDOW_LEAST_BYTES;
	keep_bounds(window);
}

static void begin_interval(struct window *window, uint64_t now_nsec)
{
	window->since_nsec = now_nsec;
	window->done_bytes = window->own_nsec = 0;
	window->n_done = 0;
	window->was_full = window->was_idle = false;
}

void window_open(struct window *window, uint64_t now_nsec)
{
	window->is_closed = !window->was_closed;
	window->was_closed = true;
	begin_interval(window, now_nsec);
}

uint64_t window_bytes(const struct window *window)
{
	return window->is_closed ? window->least_bytes : window->bytes;
}

uint64_t window_alone_bytes(const struct window *window)
{
	uint64_t in_time = (uint64_t)(window->bytes_per_sec / 1e9 * WINDOW_ALONE_NSEC);

	return in_time > WINDOW_ALONE_BYTES ? in_time : WINDOW_ALONE_BYTES;
}

/* ---- latencies ---- */

static unsigned size_of(uint32_t bytes)
{
	unsigned log2 = bytes < 4096 ? 12 : 31u - (unsigned)__builtin_clz(bytes);

	return log2 - 12 < WINDOW_SIZES ? log2 - 12 : WINDOW_SIZES - 1;
}

uint64_t window_lowest_nsec(const struct window *window, unsigned kind, uint32_t bytes)
{
	unsigned size = size_of(bytes);
	uint64_t now = window->lowest_nsec[0][kind][size];
	uint64_t before = window->lowest_nsec[1][kind][size];

	return !now || (before && before < now) ? before : now;
}

/* ---- the window ---- */

static uint16_t median_ratio(struct window *window)
{
	uint32_t n = window->n_done < WINDOW_SAMPLES ? window->n_done : WINDOW_SAMPLES;
	uint16_t *ratios = window->ratios;

	for (uint32_t i = 1; i < n; i++) { /* some dozens, each 10 ms */
		uint16_t ratio = ratios[i];
		uint32_t at = i;

		for (; at > 0 && ratios[at - 1] > ratio; at--)
			ratios[at] = ratios[at - 1];
		ratios[at] = ratio;
	}
	return ratios[n / 2];
}

static void note_rate(struct window *window, uint64_t nsec)
{
	double rate = (double)window->done_bytes * 1e9 / (double)nsec;

	if (window->bytes_per_sec > 0)
		window->bytes_per_sec += (rate - window->bytes_per_sec) / RATE_WEIGHT;
	else
		window->bytes_per_sec = rate;
}

/* At the end of an interval. */
static void adapt(struct window *window)
{
	uint64_t queued = window->bytes - window->bytes * RATIO_ONE / median_ratio(window);
	uint64_t in_time;

	if (queued > QUEUED_MOST_BYTES)
		window->bytes -= window->bytes / 8;
	else if (queued < QUEUED_LEAST_BYTES && window->was_full)
		window->bytes += window->bytes / 8;
	in_time = (uint64_t)(window->bytes_per_sec / 1e9 *
			     (WINDOW_NSEC + (double)window->own_nsec / window->n_done));
	if (in_time && window->bytes > in_time)
		window->bytes = in_time;
	keep_bounds(window);
}

static void begin_era(struct window *window, bool is_shared, uint64_t now_nsec)
{
	memcpy(window->lowest_nsec[1], window->lowest_nsec[0], sizeof(window->lowest_nsec[0]));
	memset(window->lowest_nsec[0], 0, sizeof(window->lowest_nsec[0]));
	window->era_nsec = now_nsec;
	window->is_closed = window->was_closed = is_shared;
	begin_interval(window, now_nsec);
}

void window_note_done(struct window *window, unsigned kind, uint32_t bytes, uint64_t nsec,
		      bool is_shared, uint64_t now_nsec)
{
	uint64_t *lowest = &window->lowest_nsec[0][kind][size_of(bytes)];
	uint64_t own, ratio;

	nsec += !nsec; /* the caller's clock stands still within a turn */
	if (!*lowest || nsec < *lowest)
		*lowest = nsec;
	if (now_nsec - window->era_nsec >= WINDOW_ERA_NSEC)
		begin_era(window, is_shared, now_nsec);
	own = window_lowest_nsec(window, kind, bytes);
	ratio = nsec * RATIO_ONE / own;
	window->own_nsec += own;
	window->ratios[window->n_done++ % WINDOW_SAMPLES] = ratio < UINT16_MAX ? (uint16_t)ratio
									       : UINT16_MAX;
	window->done_bytes += bytes;
	if (now_nsec - window->since_nsec < WINDOW_INTERVAL_NSEC ||
	    window->n_done < WINDOW_INTERVAL_BLOCKS)
		return;
	/* A client that is alone may pause: that is no rate of the device's. */
	if (window->was_full && !window->is_closed && (is_shared || !window->was_idle))
		note_rate(window, now_nsec - window->since_nsec);
	if (is_shared && !window->is_closed)
		adapt(window);
	window->is_closed = false;
	begin_interval(window, now_nsec);
}

/* ---- the guard ---- */

void window_small_start(struct window *window, struct window_small *small, unsigned kind,
			uint32_t bytes, uint64_t now_nsec)
{
	uint64_t deadline = 4 * window_lowest_nsec(window, kind, bytes);

	small->since_nsec = now_nsec;
	small->deadline_nsec = deadline > WINDOW_LATE_NSEC ? deadline : WINDOW_LATE_NSEC;
	list_push(&window->smalls, &small->node);
}

void window_small_end(struct window *window, struct window_small *small)
{
	list_remove(&window->smalls, &small->node);
}

static bool is_any_late(const struct window *window, uint64_t now_nsec)
{
	LIST_EACH(const struct window_small, s, &window->smalls, node) {
		uint64_t age = now_nsec - s->since_nsec;

		if (age <= WINDOW_LATE_NSEC)
			return false; /* the others are younger still */
		if (age > s->deadline_nsec && age < WINDOW_HUNG_NSEC)
			return true;
	}
	return false;
}

uint64_t window_guard(struct window *window, uint64_t now_nsec)
{
	if (!is_any_late(window, now_nsec)) {
		window->guard_nsec = 0;
		return 0;
	}
	/* It rests as long as it guards: with many clients on a slow device one is always late. */
	if (!window->guard_nsec || now_nsec - window->guard_nsec >= 2 * WINDOW_GUARD_NSEC)
		window->guard_nsec = now_nsec;
	if (now_nsec - window->guard_nsec >= WINDOW_GUARD_NSEC)
		return 0;
	return window->guard_nsec + WINDOW_GUARD_NSEC;
}
