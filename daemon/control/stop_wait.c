#include "daemon/control/stop_wait.h"

#include "daemon/store/store.h"
#include "proto/util/cleanup.h"

bool stop_wait_is_over(struct stop_wait *wait, const struct registry *registry)
{
	const struct stop_wait last = *wait;
	uint64_t n_in_flight = 0, n_open = 0;

	*wait = (struct stop_wait){ .n_started = 0 };
	hung_count(&wait->counts);
	LIST_EACH(const struct store, store, &registry->stores, node) {
		struct metrics sum;

		lane_store_sum(&store->lane_store, &sum);
		n_in_flight += metrics_get(&sum.blocks_in_flight);
		n_open += metrics_get(&sum.open_ops);
		wait->n_started += metrics_get(&sum.blocks);
	}
	wait->is_alone = wait->counts.n_without_bytes && !wait->counts.n_with_bytes && !n_in_flight;
	if (wait->is_alone && last.is_alone &&
	    (!n_open || (wait->counts.n_begun == last.counts.n_begun &&
			 wait->counts.n_without_bytes == last.counts.n_without_bytes &&
			 wait->n_started == last.n_started)))
		wait->n_sec = last.n_sec + 1;
	return wait->n_sec >= STOP_WAIT_SEC;
}
