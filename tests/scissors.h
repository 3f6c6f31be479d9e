/*
 * Scissors: a thread that cuts a file of the test's own, grows it again and punches it, at random
 * places, without end, while ops run on the memory that it is.
 */
#ifndef DSAIO_TESTS_SCISSORS_H
#define DSAIO_TESTS_SCISSORS_H

#include "tests/harness.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <unistd.h>

struct scissors {
	pthread_t thread;
	int fd;
	size_t bytes; /* the file's size */
	_Atomic bool must_stop;
};

static inline void *scissors_main(void *arg)
{
	struct scissors *scissors = arg;
	uint64_t random = test_seed();

	while (!atomic_load(&scissors->must_stop)) {
		off_t at = (off_t)(test_random(&random) % scissors->bytes);

		CHECK_SYS(ftruncate(scissors->fd, at));
		CHECK_SYS(ftruncate(scissors->fd, (off_t)scissors->bytes));
		CHECK_SYS(fallocate(scissors->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
				    (off_t)scissors->bytes - at));
	}
	return NULL;
}

/* fd: of a file of so many bytes. */
static inline void scissors_start(struct scissors *scissors, int fd, size_t bytes)
{
	scissors->fd = fd;
	scissors->bytes = bytes;
	atomic_init(&scissors->must_stop, false);
	CHECK_EQ(pthread_create(&scissors->thread, NULL, scissors_main, scissors), 0);
}

static inline void scissors_stop(struct scissors *scissors)
{
	atomic_store(&scissors->must_stop, true);
	CHECK_EQ(pthread_join(scissors->thread, NULL), 0);
}

#endif
