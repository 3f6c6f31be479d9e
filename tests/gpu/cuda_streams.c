/*
 * The streams of the stand-in for libcuda, their copies and events.
 *
 * The copies of a stream happen in their order, when a caller asks for an event or waits, and not before
 * their simulated time is over.  So a caller that does not wait finds old bytes.  STANDIN (standin.h):
 *
 *     nsec_per_kib=N   time of a copy; each direction of a GPU makes one copy at a time
 *     no_bytes=1       copies take time, but move no bytes: the host's processors have nothing to do
 *     copy_fails=N     the N-th copy ends with an error, and so does all behind it in its stream
 */
#include "tests/gpu/cuda_parts.h"
#include "tests/gpu/standin.h"

#include <stdbool.h>
#include <time.h>

#define CUDA_ERROR_LAUNCH_FAILED 719

#define STREAMS_MAX 64
#define COPIES_MAX 1024 /* in a stream */
#define EVENTS_MAX 1024

/* The declarations are those of the daemon and the library: another prototype does not compile. */
CUDA_COPY_FUNCTIONS(STANDIN_DECLARE)
CUDA_IMPORT_FUNCTIONS(STANDIN_DECLARE)

struct copy {
	char *to;
	const char *from;
	const char *host; /* which of the two is the host's */
	size_t bytes;
	uint64_t number;   /* of all copies, from 1 */
	uint64_t end_nsec; /* simulated */
};

struct CUstream_st {
	bool is_there;
	int device;
	struct copy copies[COPIES_MAX]; /* a ring */
	uint64_t n_queued, n_done;	/* so far */
	uint64_t failed;		/* the first copy that failed, from 1; 0: none */
};

struct CUevent_st {
	bool is_there;
	int device;
	CUstream stream; /* NULL: not recorded yet */
	uint64_t n;	 /* copies of the stream that it stands behind */
};

/* All below under the lock. */
static pthread_cond_t let = PTHREAD_COND_INITIALIZER; /* n_let has changed */
static uint64_t n_let = UINT64_MAX;		      /* copies that may end */
static uint64_t busy_nsec[GPUS_MAX_HERE][2];	      /* each direction of a GPU, until then */
static struct CUstream_st streams[STREAMS_MAX + GPUS_MAX_HERE]; /* behind others: default streams */
static struct CUevent_st events[EVENTS_MAX];

static uint64_t now_nsec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

CUresult cuStreamCreate(CUstream *ret_stream, unsigned int flags)
{
	CUresult result = cuda_context_call("cuStreamCreate");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || flags != CU_STREAM_NON_BLOCKING)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cuda_lock);
	while (streams[i].is_there)
		i++;
	streams[i] = (struct CUstream_st){ .is_there = true, .device = standin_current() };
	cuda_counts.n_streams++;
	(void)pthread_mutex_unlock(&cuda_lock);
	*ret_stream = &streams[i];
	return CUDA_SUCCESS;
}

/* NULL, 1 and 2 name the default stream of the current context.  Under the lock. */
static CUstream stream_of(CUstream stream)
{
	CUstream usual;

	if ((uintptr_t)stream > 2)
		return stream;
	usual = &streams[STREAMS_MAX + standin_current()];
	usual->is_there = true;
	usual->device = standin_current();
	return usual;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult result = cuda_context_call("cuStreamDestroy_v2");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (!stream->is_there || stream->n_done < stream->n_queued)
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	else
		cuda_counts.n_streams--;
	stream->is_there = false;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

/* Makes the copies whose time is over.  Under the lock. */
static void advance(CUstream stream)
{
	const bool has_bytes = !standin_number("no_bytes", 0);
	const uint64_t fails = (uint64_t)standin_number("copy_fails", 0), now = now_nsec();

	for (; stream->n_done < stream->n_queued; stream->n_done++) {
		const struct copy *copy = &stream->copies[stream->n_done % COPIES_MAX];

		if (copy->number > n_let || copy->end_nsec > now)
			return;
		if (copy->number == fails)
			stream->failed = stream->n_done + 1;
		if (has_bytes && !stream->failed)
			memcpy(copy->to, copy->from, copy->bytes);
	}
}

/* The result of the first n copies; CUDA_ERROR_NOT_READY: some have not ended.  Under the lock. */
static CUresult result_of(CUstream stream, uint64_t n)
{
	advance(stream);
	if (stream->n_done < n)
		return CUDA_ERROR_NOT_READY;
	return stream->failed && stream->failed <= n ? (CUresult)CUDA_ERROR_LAUNCH_FAILED
						     : CUDA_SUCCESS;
}

/* Sleeps until the first n copies have ended.  Under the lock, which is released meanwhile. */
static CUresult await(CUstream stream, uint64_t n)
{
	CUresult result;

	while ((result = result_of(stream, n)) == CUDA_ERROR_NOT_READY) {
		const struct copy *copy = &stream->copies[stream->n_done % COPIES_MAX];
		const struct timespec end = { .tv_sec = (time_t)(copy->end_nsec / 1000000000),
					      .tv_nsec = (long)(copy->end_nsec % 1000000000) };

		if (copy->number > n_let)
			(void)pthread_cond_wait(&let, &cuda_lock);
		else
			(void)pthread_cond_clockwait(&let, &cuda_lock, CLOCK_MONOTONIC, &end);
	}
	return result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult result = cuda_context_call("cuStreamSynchronize");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	stream = stream_of(stream);
	result = stream->is_there ? await(stream, stream->n_queued)
				  : (CUresult)CUDA_ERROR_INVALID_HANDLE;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

void standin_let(uint64_t n)
{
	(void)pthread_mutex_lock(&cuda_lock);
	n_let = n;
	(void)pthread_cond_broadcast(&let);
	(void)pthread_mutex_unlock(&cuda_lock);
}

/* Whether a copy that has not ended uses some of these bytes of the host's.  Under the lock. */
static bool is_in_use(const char *host, size_t bytes)
{
	for (unsigned i = 0; i < STREAMS_MAX + GPUS_MAX_HERE; i++)
		for (uint64_t n = streams[i].n_done; streams[i].is_there && n < streams[i].n_queued;
		     n++) {
			const struct copy *copy = &streams[i].copies[n % COPIES_MAX];

			if (host < copy->host + copy->bytes && copy->host < host + bytes)
				return true;
		}
	return false;
}

static CUresult copy_add(const char *name, CUdeviceptr memory, const char *host, size_t bytes,
			 bool is_to_device, CUstream stream)
{
	CUresult result = cuda_context_call(name);
	uint64_t nsec = (uint64_t)standin_number("nsec_per_kib", 0) * bytes / 1024,
		 now = now_nsec(), *busy;
	struct allocation *allocation;
	struct copy *copy;
	char *place;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	stream = stream_of(stream);
	allocation = cuda_find_memory(memory, bytes);
	if (!stream->is_there || stream->device != standin_current() ||
	    stream->n_queued - stream->n_done == COPIES_MAX) {
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	} else if (!allocation || allocation->device != standin_current()) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		if (is_in_use(host, bytes))
			cuda_counts.n_races++;
		place = allocation->bytes + (cuda_pointer(memory) - allocation->address);
		busy = &busy_nsec[standin_current()][is_to_device];
		*busy = (*busy > now ? *busy : now) + nsec;
		copy = &stream->copies[stream->n_queued++ % COPIES_MAX];
		*copy = (struct copy){ .to = is_to_device ? place : (char *)(uintptr_t)host,
				       .from = is_to_device ? host : place,
				       .host = host,
				       .bytes = bytes,
				       .number = ++cuda_counts.n_copies,
				       .end_nsec = *busy };
		cuda_counts.copied_bytes += bytes;
		if (stream->n_queued - stream->n_done > cuda_counts.n_ahead)
			cuda_counts.n_ahead = stream->n_queued - stream->n_done;
		if (!cuda_is_registered(host, bytes))
			cuda_counts.n_pageable++;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_add("cuMemcpyHtoDAsync_v2", to, from, bytes, true, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_add("cuMemcpyDtoHAsync_v2", from, to, bytes, false, stream);
}

/* A copy on the default stream that waits. */
static CUresult copy_now(const char *name, CUdeviceptr memory, char *host, size_t bytes,
			 bool is_to_device)
{
	CUresult result = cuda_context_call(name);
	const struct allocation *allocation;
	char *place;

	if (result == CUDA_SUCCESS)
		result = cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	allocation = cuda_find_memory(memory, bytes);
	if (allocation && allocation->device == standin_current()) {
		place = allocation->bytes + (cuda_pointer(memory) - allocation->address);
		memcpy(is_to_device ? place : host, is_to_device ? host : place, bytes);
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_now("cuMemcpyHtoD_v2", to, (char *)(uintptr_t)from, bytes, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_now("cuMemcpyDtoH_v2", from, to, bytes, false);
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	CUresult result = cuda_context_call("cuEventCreate");
	unsigned i = 0;

	if (result != CUDA_SUCCESS || (flags & ~3u))
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cuda_lock);
	while (events[i].is_there)
		i++;
	events[i] = (struct CUevent_st){ .is_there = true, .device = standin_current() };
	cuda_counts.n_events++;
	(void)pthread_mutex_unlock(&cuda_lock);
	*ret_event = &events[i];
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	CUresult result = cuda_context_call("cuEventDestroy_v2");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (!event->is_there)
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	else
		cuda_counts.n_events--;
	event->is_there = false;
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult result = cuda_context_call("cuEventRecord");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	stream = stream_of(stream);
	if (!event->is_there || !stream->is_there || event->device != standin_current() ||
	    stream->device != standin_current()) {
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	} else {
		event->stream = stream;
		event->n = stream->n_queued;
	}
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}

CUresult cuEventQuery(CUevent event)
{
	CUresult result = cuda_context_call("cuEventQuery");

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cuda_lock);
	if (!event->is_there || event->device != standin_current())
		result = (CUresult)CUDA_ERROR_INVALID_HANDLE;
	else if (event->stream)
		result = result_of(event->stream, event->n);
	(void)pthread_mutex_unlock(&cuda_lock);
	return result;
}
