#include "client/lib/link/silence.h"

#include "client/lib/base/deadline.h"

void silence_heard(struct silence *silence, uint64_t now_nsec)
{
	silence->heard_nsec = now_nsec;
	silence->asked_nsec = 0;
}

int silence_left(struct silence *silence, uint64_t began_nsec, uint64_t now_nsec,
		 bool *ret_must_ask)
{
	uint64_t wait = silence->limit_msec * NSEC_PER_MSEC, since;

	if (ret_must_ask)
		*ret_must_ask = false;
	if (silence->is_silent)
		return 0;
	since = silence->heard_nsec > began_nsec ? silence->heard_nsec : began_nsec;
	if (ret_must_ask) {
		wait /= 2;
		*ret_must_ask = !silence->asked_nsec && now_nsec - since >= wait;
		if (*ret_must_ask)
			silence->asked_nsec = now_nsec;
		if (silence->asked_nsec)
			since = silence->asked_nsec;
	}
	return now_nsec - since < wait ? (int)((wait - (now_nsec - since)) / NSEC_PER_MSEC + 1) : 0;
}
