/* The kinds of sides, for the table in side.c. */
#ifndef DSAIO_TESTS_BENCH_KINDS_H
#define DSAIO_TESTS_BENCH_KINDS_H

#include "tests/bench/side.h"

/* side_ours.c */
int ours_pinned_open(struct side *side);
int ours_not_spinning_open(struct side *side);
int ours_spinning_open(struct side *side);
int ours_side_run(struct side *side, struct result *ret_result);
void ours_side_close(struct side *side);

/* side_fio.c */
int fio_libaio_open(struct side *side);
int fio_uring_open(struct side *side);
int fio_libaio_huge_open(struct side *side);
int fio_uring_huge_open(struct side *side);
int fio_side_run(struct side *side, struct result *ret_result);
void fio_side_close(struct side *side);
int fio_libaio_command(const struct point *point, char *ret_text, size_t size);
int fio_uring_command(const struct point *point, char *ret_text, size_t size);
int fio_libaio_huge_command(const struct point *point, char *ret_text, size_t size);
int fio_uring_huge_command(const struct point *point, char *ret_text, size_t size);

/* side_local.c */
int local_side_open(struct side *side);

/* side_uring.c */
int uring_side_open(struct side *side);

/* side_deepnvme.c */
int deepnvme_side_open(struct side *side);

#endif
