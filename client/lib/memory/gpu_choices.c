#include "client/lib/memory/gpu_choices.h"

#include "client/lib/base/debug.h"
#include "proto/gpu_rate.h"
#include "proto/util/cleanup.h"
#include "proto/util/clock.h"
#include "proto/util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_DIRECTIONS 2

struct gpu_choices_row {
	struct list_node node;
	uint32_t store;
	struct gpu_region_gpu gpu;
	bool are_copies_usual; /* as the daemon says */
	bool has_copied;
	struct gpu_choice choices[N_DIRECTIONS][N_GPU_CLASSES]; /* [is_write][class] */
	/* [is_write][class] of a choice that is made: the reason that ops borrow; NULL: none has needed it */
	char *whys[N_DIRECTIONS][N_GPU_CLASSES];
};

void gpu_choices_init(struct gpu_choices *choices, struct dsaio_conn *conn, bool is_direct_only)
{
	const struct conn_facts facts = conn_facts(conn);

	*choices = (struct gpu_choices){ .conn = conn };
	choices->has_choice = !is_direct_only && (facts.features & RING_FEATURE_DEVICE) &&
			      facts.gpu_way == WIRE__GPU_WAY__GPU_AUTO;
	choices->is_remembered = facts.features & RING_FEATURE_GPU_RATES;
	(void)pthread_mutex_init(&choices->lock, NULL); /* default attributes: cannot fail */
}

void gpu_choices_deinit(struct gpu_choices *choices)
{
	LIST_EACH(struct gpu_choices_row, row, &choices->rows, node) {
		for (unsigned i = 0; i < N_DIRECTIONS * N_GPU_CLASSES; i++)
			free(row->whys[i / N_GPU_CLASSES][i % N_GPU_CLASSES]);
		free(row);
	}
	(void)pthread_mutex_destroy(&choices->lock);
}

/* ---- rows ---- */

static struct gpu_choice *choice_of(struct gpu_choices_row *row,
				    const struct gpu_choices_kind *kind)
{
	return &row->choices[kind->is_write][gpu_class_of(kind->len)];
}

/* Under the lock. */
static struct gpu_choices_row *row_find(const struct gpu_choices *choices, uint32_t store,
					int number)
{
	LIST_EACH(struct gpu_choices_row, row, &choices->rows, node)
		if (row->store == store && row->gpu.number == number)
			return row;
	return NULL;
}

/* Under the lock.  NULL: there is no room. */
static struct gpu_choices_row *row_new(struct gpu_choices *choices, uint32_t store,
				       const struct gpu_region_gpu *gpu)
{
	struct gpu_choices_row *row = choices->n_rows < GPU_CHOICES_ROWS_MAX
					      ? calloc(1, sizeof(*row))
					      : NULL;

	if (!row)
		return NULL;
	row->store = store;
	row->gpu = *gpu;
	list_push(&choices->rows, &row->node);
	choices->n_rows++;
	return row;
}

/* Why ops of that kind are copied.  Under the lock. */
static const char *copied_why(struct gpu_choices_row *row, const struct gpu_choices_kind *kind)
{
	const struct gpu_choice *choice = choice_of(row, kind);
	char **why = &row->whys[kind->is_write][gpu_class_of(kind->len)];
	char copied[SIZE_TEXT_BYTES], direct[SIZE_TEXT_BYTES], reason[128];
	int r = 0;

	if (!choice->is_made)
		return choice->error ? "two ops failed directly"
				     : "which way is faster is not measured yet";
	if (!*why && choice->error)
		r = asprintf(why, "two ops failed directly: %s",
			     strerror_r(choice->error, reason, sizeof(reason)));
	else if (!*why)
		r = asprintf(why,
			     "copies are faster: %s, and %s directly, for ops of such a length",
			     size_format(copied, (double)choice->rate[false], "/s"),
			     size_format(direct, (double)choice->rate[true], "/s"));
	if (r < 0)
		*why = NULL;
	return *why ? *why : choice->error ? "two ops failed directly" : "copies are faster";
}

/* ---- the daemon's memory ---- */

static void request_init(const struct gpu_choices_row *row, Wire__GpuRates *ret_body,
			 Wire__Request *ret_request)
{
	*ret_body = (Wire__GpuRates)WIRE__GPU_RATES__INIT;
	ret_body->store = row->store;
	ret_body->uuid = (ProtobufCBinaryData){ sizeof(row->gpu.uuid.bytes), /* only read */
						(uint8_t *)(uintptr_t)row->gpu.uuid.bytes };
	*ret_request = (Wire__Request)WIRE__REQUEST__INIT;
	ret_request->body_case = WIRE__REQUEST__BODY_GPU_RATES;
	ret_request->gpu_rates = ret_body;
}

/* Learns what other clients have measured.  Without the lock. */
static void ask(struct gpu_choices *choices, struct gpu_choices_row *row)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Request request;
	Wire__GpuRates body;

	request_init(row, &body, &request);
	/* A daemon that refuses knows nothing, and one that is gone ends the op soon. */
	if (conn_call(choices->conn, "GPU memory", &request, NULL, 0, &reply, NULL, NULL) < 0)
		return;
	(void)pthread_mutex_lock(&choices->lock);
	row->are_copies_usual = reply->gpu_rates->are_copies_usual;
	for (size_t i = 0; i < reply->gpu_rates->n_rates; i++) {
		const Wire__GpuRate *rate = reply->gpu_rates->rates[i];

		if (rate->len_class < N_GPU_CLASSES)
			gpu_choice_set(&row->choices[!!rate->is_write][rate->len_class],
				       rate->is_direct, rate->direct_rate, rate->copied_rate,
				       (int)rate->error);
	}
	(void)pthread_mutex_unlock(&choices->lock);
}

/* choice: a copy of the row's, which is made. */
static void report(struct gpu_choices *choices, const struct gpu_choices_row *row,
		   const struct gpu_choices_kind *kind, const struct gpu_choice *choice)
{
	Wire__GpuRate rate = WIRE__GPU_RATE__INIT, *all = &rate;
	Wire__Request request;
	Wire__GpuRates body;

	debug_log("GPU memory: store %" PRIu32 ", GPU %d: %s like one of %" PRIu64
		  " bytes go %s: %" PRIu64 " bytes/s, copied %" PRIu64,
		  row->store, row->gpu.number, kind->is_write ? "writes" : "reads", kind->len,
		  choice->is_direct ? "directly" : "by copies", choice->rate[true],
		  choice->rate[false]);
	if (!choices->is_remembered)
		return;
	request_init(row, &body, &request);
	rate.is_write = kind->is_write;
	rate.len_class = gpu_class_of(kind->len);
	rate.is_direct = choice->is_direct;
	rate.direct_rate = choice->rate[true];
	rate.copied_rate = choice->rate[false];
	rate.error = (uint32_t)choice->error;
	body.rates = &all;
	body.n_rates = 1;
	conn_post(choices->conn, &request);
}

/* ---- ops ---- */

bool gpu_choices_is_copied(struct gpu_choices *choices, const struct gpu_choices_kind *kind,
			   int number, const char **ret_why)
{
	const struct gpu_choice *choice;
	struct gpu_choices_row *row;
	bool is_copied = false;

	(void)pthread_mutex_lock(&choices->lock); /* a plain mutex: cannot fail */
	row = row_find(choices, kind->store, number);
	if (row) {
		choice = choice_of(row, kind);
		is_copied = choice->is_made && !choice->is_direct;
		if (is_copied)
			*ret_why = copied_why(row, kind);
	}
	(void)pthread_mutex_unlock(&choices->lock);
	return is_copied;
}

bool gpu_choices_next(struct gpu_choices *choices, const struct gpu_choices_kind *kind,
		      const struct gpu_region_gpu *gpu, struct gpu_choices_row **ret_row,
		      const char **ret_why)
{
	bool is_new = false, is_direct = true;
	struct gpu_choices_row *row;

	*ret_row = NULL;
	(void)pthread_mutex_lock(&choices->lock);
	row = row_find(choices, kind->store, gpu->number);
	if (!row) {
		row = row_new(choices, kind->store, gpu);
		is_new = row;
	}
	if (is_new && choices->is_remembered) { /* other threads measure meanwhile */
		(void)pthread_mutex_unlock(&choices->lock);
		ask(choices, row);
		(void)pthread_mutex_lock(&choices->lock);
	}
	if (row) {
		struct gpu_choice *choice = choice_of(row, kind);

		is_direct = gpu_choice_next(choice, !row->are_copies_usual,
					    !choices->n_open &&
						    gpu_choice_is_like(choice, kind->len));
		if (!choice->is_made)
			*ret_row = row;
		if (!is_direct)
			*ret_why = copied_why(row, kind);
	}
	(void)pthread_mutex_unlock(&choices->lock);
	return is_direct;
}

void gpu_choices_begin(struct gpu_choices *choices, struct gpu_choices_row *row, bool is_part,
		       struct gpu_choices_op *ret_op)
{
	*ret_op = (struct gpu_choices_op){ .row = row, .began_nsec = clock_nsec() };
	(void)pthread_mutex_lock(&choices->lock);
	ret_op->number = ++choices->n_begun;
	ret_op->is_alone = !choices->n_open++ && !is_part;
	(void)pthread_mutex_unlock(&choices->lock);
}

/* The other way would have failed, too, or might have. */
static bool is_no_ways_fault(int64_t error)
{
	return error == -ECONNRESET || error == -ENOTCONN || error == -ETIMEDOUT ||
	       error == -ECANCELED || error == -ENOSPC || error == -EDQUOT || error == -EFBIG;
}

void gpu_choices_end(struct gpu_choices *choices, const struct gpu_choices_op *op,
		     const struct gpu_choices_kind *kind, bool is_direct, bool is_timely,
		     int64_t result)
{
	const uint64_t nsec = clock_nsec() - op->began_nsec;
	struct gpu_choices_row *row = op->row;
	struct gpu_choice *choice = row ? choice_of(row, kind) : NULL, made;
	bool is_made = false, counts;

	(void)pthread_mutex_lock(&choices->lock);
	choices->n_open--;
	counts = is_timely && op->is_alone && choices->n_begun == op->number && result > 0 &&
		 (is_direct || (row && row->has_copied));
	if (row && !is_direct)
		row->has_copied = true;
	if (choice && counts && gpu_choice_take_len(choice, kind->len))
		is_made = gpu_choice_add(choice, is_direct, (uint64_t)result, nsec);
	else if (choice && result < 0 && !is_no_ways_fault(result))
		is_made = gpu_choice_fail(choice, is_direct, (int)-result);
	if (is_made)
		made = *choice;
	(void)pthread_mutex_unlock(&choices->lock);
	if (is_made)
		report(choices, row, kind, &made);
}
