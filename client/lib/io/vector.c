#include "client/lib/io/vector.h"

#include "client/lib/io/handle.h"

#include <stdlib.h>

void vector_open(struct dsaio_op *whole)
{
	whole->parts = (struct op_parts){ .is_vector = true, .n_open = 1, .stop_off = UINT64_MAX };
}

void vector_add(struct dsaio_op *whole, struct dsaio_op *part)
{
	struct op_parts *parts = &whole->parts;

	part->whole = whole;
	op_ref(part);
	(void)pthread_mutex_lock(&whole->handle->lock); /* a plain mutex: cannot fail */
	if (parts->last)
		parts->last->next_part = part;
	else
		parts->first = part;
	parts->last = part;
	parts->n_open++;
	(void)pthread_mutex_unlock(&whole->handle->lock);
}

/* The op does not get beyond off.  Returns the sentence that is not needed.  Under the lock. */
static char *stop_at(struct dsaio_op *whole, uint64_t off, int error, char *text)
{
	struct op_parts *parts = &whole->parts;
	char *unwanted;

	if (off >= parts->stop_off)
		return text;
	unwanted = parts->text;
	parts->stop_off = off;
	parts->error = error;
	parts->text = text;
	return unwanted;
}

void vector_fail(struct dsaio_op *whole, uint64_t off, int error, char *text)
{
	char *unwanted;

	(void)pthread_mutex_lock(&whole->handle->lock);
	unwanted = stop_at(whole, off, error, text);
	(void)pthread_mutex_unlock(&whole->handle->lock);
	free(unwanted);
}

/* All parts have ended.  Under the lock. */
static void finish(struct dsaio_op *whole)
{
	struct op_parts *parts = &whole->parts;
	uint64_t done = parts->stop_off == UINT64_MAX ? whole->len : parts->stop_off - whole->off;
	struct dsaio_op *part, *next;

	for (part = parts->first; part; part = next) {
		next = part->next_part;
		part->next_part = NULL; /* for vector_next() */
		op_pool_unref(&whole->handle->pool, part);
	}
	parts->first = parts->last = NULL;
	op_set_text(whole, TAKE_PTR(parts->text));
	op_set_result(whole, parts->error ? parts->error : (int64_t)done, done);
}

bool vector_close(struct dsaio_op *whole)
{
	bool is_last;

	(void)pthread_mutex_lock(&whole->handle->lock);
	is_last = --whole->parts.n_open == 0;
	if (is_last)
		finish(whole);
	(void)pthread_mutex_unlock(&whole->handle->lock);
	return is_last;
}

struct dsaio_op *vector_end_part(struct dsaio_op *part)
{
	struct dsaio_op *whole = part->whole;
	uint64_t done = part->result < 0 ? part->done : (uint64_t)part->result;
	char *unwanted = NULL;
	bool is_last;

	(void)pthread_mutex_lock(&whole->handle->lock);
	if (part->result < 0 || done < part->len)
		unwanted = stop_at(whole, part->off + done,
				   part->result < 0 ? (int)part->result : 0, TAKE_PTR(part->text));
	is_last = --whole->parts.n_open == 0;
	if (is_last)
		finish(whole);
	(void)pthread_mutex_unlock(&whole->handle->lock);
	free(unwanted);
	return is_last ? whole : NULL;
}

struct dsaio_op *vector_next(struct dsaio_op *whole, struct dsaio_op *part)
{
	struct dsaio_op *next;

	(void)pthread_mutex_lock(&whole->handle->lock);
	next = part ? part->next_part : whole->parts.first;
	if (next)
		op_ref(next);
	(void)pthread_mutex_unlock(&whole->handle->lock);
	return next;
}
