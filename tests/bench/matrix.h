/*
 * The matrix of bench full: lists of what is to be measured, and the points of their product.
 * Pure.
 *
 * Points are ordered so that those on the same files stand together (a group): by place, number of
 * processes and size of the files; in a group by direction, op size and depth.
 */
#ifndef DSAIO_TESTS_BENCH_MATRIX_H
#define DSAIO_TESTS_BENCH_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/side.h"

#define MATRIX_LIST_MAX 16

/* A list of numbers, in the order in which they were given. */
struct list {
	unsigned n;
	uint64_t values[MATRIX_LIST_MAX];
};

/*
 * "4K,64K,1M": sizes with K, M or G (1024s), or plain numbers.  Returns 0, -EINVAL (empty, no
 * number, 0, or something behind it) or -E2BIG (too many).
 */
int list_parse(const char *text, struct list *ret_list);

/* "read,write": the places of these names in names, which ends with NULL; as list_parse(). */
int list_parse_names(const char *text, const char *const *names, struct list *ret_list);

struct matrix {
	struct list places; /* indices into dirs */
	struct list writes; /* 0: read, 1: write */
	struct list sizes;  /* of an op */
	struct list depths;
	struct list processes;
	const char *dirs[MATRIX_LIST_MAX];
	int64_t slice_usec;
	uint64_t file_bytes; /* at most, of a process's file for ops that are measured in slices */
};

/*
 * So large that ops in flight (at most 128 MiB of them) hardly ever meet, in whichever order.
 */
#define MATRIX_FILE_BYTES (UINT64_C(256) << 20)

unsigned matrix_count(const struct matrix *matrix);
/* Point i; ret_place: the index of its directory. */
void matrix_point(const struct matrix *matrix, unsigned i, struct point *ret_point,
		  unsigned *ret_place);
/* Do both use the same files? */
bool point_is_same_group(const struct point *a, const struct point *b);

#endif
