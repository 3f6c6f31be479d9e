/*
 * A load: a thread of its own keeps ops of one file in flight, and knows all results and bytes.
 */
#ifndef DSAIO_TESTS_RADOS_LOAD_H
#define DSAIO_TESTS_RADOS_LOAD_H

#include "tests/rados/ceph.h"

#include <pthread.h>

#define LOAD_DEPTH_MAX 64

struct load {
	struct dsaio_client *client;
	const char *name;      /* of a file that is made for it, in the test's namespace */
	const char *full_name; /* the same; NULL: name has it */
	size_t block, size;
	unsigned depth;
	bool is_write;
	/* results; others may look at any time */
	_Atomic unsigned n_ended, n_failed, n_unknown;
	_Atomic int first_error;
	_Atomic int64_t longest_usec; /* of one op */
	int64_t *times;		      /* of the last n_times ops, usec */
	size_t n_times;
	/* its own */
	struct dsaio_handle *handle;
	struct dsaio_file *file;
	uint8_t *memory;
	struct load_slot {
		struct dsaio_op *op;
		uint64_t off;
		int64_t since;
	} slots[LOAD_DEPTH_MAX];
	uint64_t random;
	_Atomic bool must_stop;
	pthread_t thread;
};

static inline void load_begin_op(struct load *load, unsigned i)
{
	struct load_slot *slot = &load->slots[i];
	uint8_t *memory = load->memory + i * load->block;

	slot->off = test_random(&load->random) % (load->size / load->block) * load->block;
	slot->since = now_usec();
	if (load->is_write) /* the same bytes each time: ops that overlap leave them */
		pattern_fill(memory, load->block, 9, slot->off);
	CHECK_CALL(load->is_write ? dsaio_pwrite_async(load->handle, load->file, memory,
						       load->block, slot->off, &slot->op)
				  : dsaio_pread_async(load->handle, load->file, memory, load->block,
						      slot->off, &slot->op));
}

static inline void load_end_op(struct load *load, unsigned i)
{
	struct load_slot *slot = &load->slots[i];
	int64_t result = op_wait(slot->op, -1), usec = now_usec() - slot->since;

	if (result < 0) {
		if (!load->n_failed)
			load->first_error = (int)result;
		load->n_unknown += dsaio_op_is_unknown(slot->op);
		load->n_failed++;
	} else {
		CHECK_EQ(result, load->block);
		if (!load->is_write)
			pattern_check(load->memory + i * load->block, load->block, 9, slot->off,
				      "a read");
	}
	if (usec > load->longest_usec)
		load->longest_usec = usec;
	if (load->times)
		load->times[load->n_ended % load->n_times] = usec;
	load->n_ended++;
	dsaio_op_free(slot->op);
	slot->op = NULL;
}

static inline void *load_run(void *arg)
{
	struct load *load = arg;

	for (unsigned i = 0; i < load->depth; i++)
		load_begin_op(load, i);
	for (unsigned i = 0;; i = (i + 1) % load->depth) {
		if (!load->slots[i].op)
			return NULL; /* all have ended */
		load_end_op(load, i);
		if (!load->must_stop)
			load_begin_op(load, i);
	}
}

/* Makes its file, whole, and starts. */
static inline void load_start(struct load *load)
{
	struct dsaio_handle_options options = DSAIO_HANDLE_OPTIONS_INIT;
	void *memory;

	load->random = test_seed();
	CHECK_CALL(dsaio_handle_open(load->client, &options, &load->handle));
	CHECK_CALL(dsaio_alloc(load->client, load->block * load->depth, NULL, &memory));
	load->memory = memory;
	if (!load->full_name)
		load->full_name = ceph_name(load->name);
	load->file = ceph_create_named(load->client, load->full_name, load->size,
				       DSAIO_CREATE_SPARSE);
	for (uint64_t off = 0; !load->is_write && off < load->size; off += load->block) {
		pattern_fill(memory, load->block, 9, off);
		CHECK_EQ(dsaio_pwrite(load->handle, load->file, memory, load->block, off),
			 load->block);
	}
	if (!load->is_write)
		CHECK_CALL(dsaio_file_commit(load->file, 0));
	CHECK(pthread_create(&load->thread, NULL, load_run, load) == 0);
}

/* Until so many further ops have ended. */
static inline void load_await(const struct load *load, unsigned n)
{
	const unsigned before = load->n_ended;

	while (load->n_ended < before + n)
		(void)usleep(1000);
}

/* Awaits its ops, and looks at all that it wrote. */
static inline void load_stop(struct load *load)
{
	load->must_stop = true;
	CHECK(pthread_join(load->thread, NULL) == 0);
	dsaio_file_close(load->file);
	CHECK_CALL(dsaio_handle_close(load->handle, -1));
	CHECK_CALL(dsaio_free(load->client, load->memory));
}

#endif
