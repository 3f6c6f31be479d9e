#include "client/lib/memory/gpu_choice.h"

#include "proto/gpu_rate.h"

bool gpu_choice_next(struct gpu_choice *choice, bool is_usual_direct, bool is_alone)
{
	const bool usual = is_usual_direct, other = !usual;

	if (choice->is_made)
		return choice->is_direct;
	if (choice->n_failed[usual] >= GPU_CHOICE_FAILURES)
		return other;
	if (!is_alone || choice->n[usual] < GPU_CHOICE_TIMES ||
	    choice->n[other] == GPU_CHOICE_TIMES || choice->n_tries == GPU_CHOICE_TRIES)
		return usual;
	choice->n_tries++;
	return other;
}

bool gpu_choice_is_like(const struct gpu_choice *choice, uint64_t len)
{
	return !choice->len ||
	       (len - len / 4 <= choice->len && choice->len - choice->len / 4 <= len);
}

bool gpu_choice_take_len(struct gpu_choice *choice, uint64_t len)
{
	if (!gpu_choice_is_like(choice, len)) {
		if (choice->n_tries)
			return false;
		for (unsigned way = 0; way < 2; way++)
			if (choice->n_failed[way] < GPU_CHOICE_FAILURES)
				choice->n[way] = 0;
		choice->len = 0;
	}
	if (!choice->len)
		choice->len = len;
	return true;
}

/* Rates stay sorted. */
static void rates_add(uint64_t *rates, unsigned n, uint64_t rate)
{
	for (; n && rates[n - 1] > rate; n--)
		rates[n] = rates[n - 1];
	rates[n] = rate;
}

static uint64_t median(const uint64_t rates[GPU_CHOICE_TIMES])
{
	return (rates[GPU_CHOICE_TIMES / 2 - 1] + rates[GPU_CHOICE_TIMES / 2]) / 2;
}

static uint64_t rate_of(uint64_t bytes, uint64_t nsec)
{
	const double rate = (double)bytes * 1e9 / (double)(nsec ? nsec : 1);

	if (rate < 1)
		return 1;
	return rate < (double)GPU_RATE_MAX ? (uint64_t)rate : GPU_RATE_MAX;
}

/* Makes the choice if both ways have been measured. */
static bool make(struct gpu_choice *choice)
{
	if (choice->n[false] < GPU_CHOICE_TIMES || choice->n[true] < GPU_CHOICE_TIMES)
		return false;
	if (choice->n_failed[false] >= GPU_CHOICE_FAILURES &&
	    choice->n_failed[true] >= GPU_CHOICE_FAILURES) {
		*choice = (struct gpu_choice){ .is_made = false };
		return false;
	}
	choice->rate[false] = median(choice->rates[false]);
	choice->rate[true] = median(choice->rates[true]);
	choice->is_direct = choice->rate[true] * 100 >= choice->rate[false] * GPU_CHOICE_PERCENT;
	choice->is_made = true;
	return true;
}

bool gpu_choice_fail(struct gpu_choice *choice, bool is_direct, int error)
{
	if (choice->is_made || ++choice->n_failed[is_direct] < GPU_CHOICE_FAILURES)
		return false;
	choice->error = error;
	for (unsigned i = 0; i < GPU_CHOICE_TIMES; i++)
		choice->rates[is_direct][i] = 1;
	choice->n[is_direct] = GPU_CHOICE_TIMES;
	return make(choice);
}

bool gpu_choice_add(struct gpu_choice *choice, bool is_direct, uint64_t bytes, uint64_t nsec)
{
	if (choice->is_made || !bytes || choice->n[is_direct] == GPU_CHOICE_TIMES)
		return false;
	choice->n_failed[is_direct] = 0;
	rates_add(choice->rates[is_direct], choice->n[is_direct]++, rate_of(bytes, nsec));
	return make(choice);
}

void gpu_choice_set(struct gpu_choice *choice, bool is_direct, uint64_t direct_rate,
		    uint64_t copied_rate, int error)
{
	choice->is_made = true;
	choice->is_direct = is_direct;
	choice->rate[true] = direct_rate;
	choice->rate[false] = copied_rate;
	choice->error = error;
}
