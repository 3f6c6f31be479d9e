/*
 * Counts of the pages that open ops touch, by a hash of file and page.  A range none of whose pages is
 * counted overlaps no op.  The opposite is not certain: other pages may have the same hash.
 *
 * Ops of many pages are counted as large ones.  While one is open, any range may overlap it.
 */
#ifndef DSAIO_DAEMON_LANE_PAGE_COUNTS_H
#define DSAIO_DAEMON_LANE_PAGE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Pages of an op that are counted one by one: each costs a nanosecond.  A guess. */
#define PAGE_COUNTS_MAX 8u

struct page_counts {
	uint16_t *counts; /* owned; the most is PAGE_COUNTS_MAX for each op */
	uint32_t n_large; /* ops of more pages */
	uint16_t shift;
};

/* 2^bits counts.  False: no memory. */
static inline bool page_counts_init(struct page_counts *counts, uint16_t bits)
{
	*counts = (struct page_counts){ .counts = calloc((size_t)1 << bits,
							 sizeof(*counts->counts)),
					.shift = (uint16_t)(64 - bits) };
	return counts->counts;
}

static inline void page_counts_deinit(struct page_counts *counts)
{
	free(counts->counts);
	counts->counts = NULL;
}

static inline uint16_t *page_counts_at(const struct page_counts *counts, uint64_t file,
				       uint64_t page)
{
	return &counts->counts[(page + (file << 48)) * UINT64_C(0x9e3779b97f4a7c15) >>
			       counts->shift];
}

/* n: 1 for an op that is opened, -1 for one that has ended; of the pages from first to before end. */
static inline void page_counts_add(struct page_counts *counts, uint64_t file, uint64_t first,
				   uint64_t end, int n)
{
	if (end - first > PAGE_COUNTS_MAX) {
		counts->n_large += (uint32_t)n;
		return;
	}
	for (uint64_t page = first; page < end; page++)
		*page_counts_at(counts, file, page) += (uint16_t)n;
}

static inline bool page_counts_may_overlap(const struct page_counts *counts, uint64_t file,
					   uint64_t first, uint64_t end)
{
	if (counts->n_large || end - first > PAGE_COUNTS_MAX)
		return true;
	for (uint64_t page = first; page < end; page++)
		if (*page_counts_at(counts, file, page))
			return true;
	return false;
}

#endif
