/*
 * A client of a pool, and what the pool reports to it of its slabs.
 */
#ifndef DSAIO_TESTS_UNIT_SLAB_REPORTS_H
#define DSAIO_TESTS_UNIT_SLAB_REPORTS_H

#include "daemon/object/pool.h"
#include "tests/unit/main_mailbox.h"

static struct pool pool;
static struct quota user, client;
static struct work_queue *work_queue;

/* As reported last, and how often. */
static struct slab *made;
static struct error made_error;
static int made_result, n_made, n_freed;

static inline void on_made(struct slab *slab, int result, const struct error *error, void *arg)
{
	ck_assert_ptr_eq(arg, &client);
	made = slab;
	made_result = result;
	if (error)
		made_error = *error;
	n_made++;
}

static inline void on_freed(void *arg)
{
	ck_assert_ptr_eq(arg, &client);
	ck_assert(quota_is_zero(&client)); /* quota is discharged before the report */
	n_freed++;
}

#endif
