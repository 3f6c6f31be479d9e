/*
 * The lane's side of a ring under a client that writes any values at any time: never more entries
 * than there are slots, never a completion slot that the client may still need.
 *
 * Input: steps of a byte for what and four for a value.
 */
#include "proto/ring.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>

#define ENTRIES 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_Alignas(64) static char map[8192];
	struct ring_entry entry;
	struct ring_lane ring;
	bool is_broken = false;
	uint32_t open = 0;

	assert(ring_bytes(ENTRIES) <= sizeof(map));
	memset(map, 0, sizeof(map));
	ring_lane_init(&ring, map, ENTRIES);
	while (size && !is_broken) {
		uint8_t step;
		uint32_t value;
		int n;

		take_bytes(&data, &size, &step, 1);
		value = take_u32(&data, &size);
		switch (step % 8) {
		case 0: /* the client jumps */
			atomic_store(&ring.shared->sq_tail, value);
			break;
		case 1: /* or does about what it should */
			atomic_store(&ring.shared->sq_tail, ring.taken + value % (ENTRIES + 2));
			break;
		case 2:
			atomic_store(&ring.shared->cq_head, value);
			break;
		case 3:
			atomic_store(&ring.shared->cq_head, ring.cq_head + value % (ENTRIES + 2));
			break;
		case 4:
			atomic_store(&ring.shared->cq_wait, value);
			break;
		case 5: /* the lane looks */
			n = ring_lane_ready(&ring);
			if (n < 0) {
				is_broken = true;
				break;
			}
			assert(open + (uint32_t)n <= ENTRIES);
			for (; n; n--, open++)
				ring_lane_take(&ring, &entry);
			break;
		case 6: /* an op ends */
			if (!open)
				break;
			ring_lane_complete(&ring, entry.id, value);
			open--;
			assert(ring.cq_tail - ring.cq_head <= ENTRIES);
			break;
		default:
			if (ring_lane_publish(&ring))
				RING_FENCE_COMPLETE();
			(void)ring_lane_wake(&ring); /* nobody is there */
			assert(atomic_load(&ring.shared->cq_tail) == ring.cq_tail);
			break;
		}
		/* what the lane made once is not what it works with */
		ring.shared->entries = value;
		assert(ring.entries == ENTRIES && ring.taken - ring.cq_tail == open);
	}
	return 0;
}
