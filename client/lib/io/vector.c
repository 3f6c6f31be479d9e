#include "client/lib/io/vector.h"

#include "client/lib/io/handle.h"

#include <stdlib.h>

int vector_open(struct dsaio_op *whole, uint32_t n_max)
{
	struct vector *vector = calloc(1, sizeof(*vector) + n_max * sizeof(vector->parts[0]));

	if (!vector)
		return -ENOMEM;
	vector->whole = whole;
	vector->n_open = 1;
	vector->stop_off = UINT64_MAX;
	whole->vector = vector;
	whole->is_vector = true;
	return 0;
}

void vector_add(struct dsaio_op *whole, struct dsaio_op *part)
{
	struct vector *vector = whole->vector;

	part->vector = vector;
	op_ref(part);
	LOCKED(&whole->handle->lock);
	vector->parts[vector->n_parts++] = part;
	vector->n_open++;
}

/* The op's bytes end at off.  Takes the message.  Under the lock. */
static void stop_at(struct vector *vector, uint64_t off, int error, char *text)
{
	if (off >= vector->stop_off) {
		free(text);
		return;
	}
	free(vector->text);
	vector->stop_off = off;
	vector->error = error;
	vector->text = text;
}

void vector_fail(struct dsaio_op *whole, uint64_t off, int error, char *text)
{
	LOCKED(&whole->handle->lock);

	stop_at(whole->vector, off, error, text);
}

/*
 * A part has ended, or no further part comes.  Returns true if the whole op ends.  Under the lock.
 */
static bool finish_one(struct vector *vector)
{
	struct dsaio_op *whole = vector->whole;
	uint64_t done = vector->stop_off == UINT64_MAX ? whole->len : vector->stop_off - whole->off;

	if (--vector->n_open)
		return false;
	while (vector->n_parts)
		op_pool_unref(&whole->handle->pool, vector->parts[--vector->n_parts]);
	op_set_text(whole, TAKE_PTR(vector->text));
	op_set_result(whole, vector->error ? vector->error : (int64_t)done, done);
	return true;
}

bool vector_close(struct dsaio_op *whole)
{
	LOCKED(&whole->handle->lock);

	return finish_one(whole->vector);
}

struct dsaio_op *vector_end_part(struct dsaio_op *part)
{
	struct dsaio_op *whole = part->vector->whole;
	uint64_t done = part->result < 0 ? part->done : (uint64_t)part->result;
	bool is_last;
	LOCKED(&whole->handle->lock);

	whole->is_unknown |= part->is_unknown;
	if (part->result < 0 || done < part->len)
		stop_at(whole->vector, part->off + done, part->result < 0 ? (int)part->result : 0,
			TAKE_PTR(part->text));
	is_last = finish_one(whole->vector);
	return is_last ? whole : NULL;
}

struct dsaio_op *vector_part(struct dsaio_op *whole, uint32_t i)
{
	struct vector *vector = whole->vector;
	struct dsaio_op *part = NULL;
	LOCKED(&whole->handle->lock);

	if (i < vector->n_parts) {
		part = vector->parts[i];
		op_ref(part);
	}
	return part;
}
