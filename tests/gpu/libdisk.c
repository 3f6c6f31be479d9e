/*
 * A stand-in for a disk: libaio's calls, preloaded into the daemon (LD_PRELOAD).
 *
 * It carries out what is submitted in that order, each after the time that STANDIN says, and moves no
 * bytes: disk_nsec_per_kib=N, and disk_nsec=N from a request's start to its end even if it is alone.
 * So a measurement depends neither on this host's disk nor on its memory's speed.
 */
#include "tests/gpu/standin.h"

#include <errno.h>
#include <libaio.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

#define REQUESTS_MAX 4096u

struct request {
	struct io_event event;
	uint64_t end_nsec;
	int event_fd;
};

/* In the place of a kernel's ring, without its magic number. */
struct io_context {
	uint32_t zero[8];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool is_ending;
	struct request requests[REQUESTS_MAX]; /* a ring */
	uint64_t n_submitted, n_ended, n_taken;
	uint64_t busy_nsec; /* until then */
};

static uint64_t now_nsec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Ends requests when their time has come. */
static void *disk_main(void *arg)
{
	struct io_context *disk = arg;

	(void)prctl(PR_SET_TIMERSLACK, 1);
	(void)pthread_mutex_lock(&disk->lock);
	while (!disk->is_ending) {
		const struct request *request = &disk->requests[disk->n_ended % REQUESTS_MAX];
		const uint64_t now = now_nsec();

		if (disk->n_ended == disk->n_submitted) {
			(void)pthread_cond_wait(&disk->more, &disk->lock);
		} else if (now < request->end_nsec) {
			const struct timespec rest = { .tv_nsec = (long)(request->end_nsec - now) };

			(void)pthread_mutex_unlock(&disk->lock);
			(void)nanosleep(&rest, NULL);
			(void)pthread_mutex_lock(&disk->lock);
		} else {
			disk->n_ended++;
			(void)eventfd_write(request->event_fd, 1);
		}
	}
	(void)pthread_mutex_unlock(&disk->lock);
	return NULL;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT int io_setup(int depth, io_context_t *ret_context)
{
	struct io_context *disk = calloc(1, sizeof(*disk));

	(void)depth;
	if (!disk)
		return -ENOMEM;
	(void)pthread_mutex_init(&disk->lock, NULL);
	(void)pthread_cond_init(&disk->more, NULL);
	if (pthread_create(&disk->thread, NULL, disk_main, disk) != 0) {
		free(disk);
		return -EAGAIN;
	}
	*ret_context = disk;
	return 0;
}

EXPORT int io_destroy(io_context_t disk)
{
	(void)pthread_mutex_lock(&disk->lock);
	disk->is_ending = true;
	(void)pthread_cond_signal(&disk->more);
	(void)pthread_mutex_unlock(&disk->lock);
	(void)pthread_join(disk->thread, NULL);
	free(disk);
	return 0;
}

EXPORT int io_submit(io_context_t disk, long n, struct iocb **iocbs)
{
	const uint64_t nsec_per_kib = (uint64_t)standin_number("disk_nsec_per_kib", 0),
		       latency = (uint64_t)standin_number("disk_nsec", 0), now = now_nsec();

	(void)pthread_mutex_lock(&disk->lock);
	for (long i = 0; i < n; i++) {
		const uint64_t bytes = iocbs[i]->u.c.nbytes, nsec = bytes * nsec_per_kib / 1024;
		uint64_t end = (disk->busy_nsec > now ? disk->busy_nsec : now) + nsec;

		disk->busy_nsec = end;
		if (end < now + latency)
			end = now + latency;
		disk->requests[disk->n_submitted++ % REQUESTS_MAX] = (struct request){
			.event = { .data = iocbs[i]->data, .res = bytes },
			.end_nsec = end,
			.event_fd = (int)iocbs[i]->u.c.resfd,
		};
	}
	(void)pthread_cond_signal(&disk->more);
	(void)pthread_mutex_unlock(&disk->lock);
	return (int)n;
}

/* Those that have ended, as the daemon asks for them. */
EXPORT int io_getevents(io_context_t disk, long n_min, long n, struct io_event *ret_events,
			struct timespec *timeout)
{
	int got = 0;

	(void)n_min;
	(void)timeout;
	(void)pthread_mutex_lock(&disk->lock);
	while (got < n && disk->n_taken < disk->n_ended)
		ret_events[got++] = disk->requests[disk->n_taken++ % REQUESTS_MAX].event;
	(void)pthread_mutex_unlock(&disk->lock);
	return got;
}
