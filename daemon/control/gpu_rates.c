#include "daemon/control/gpu_rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void row_free(struct gpu_rates *rates, struct gpu_rates_row *row)
{
	list_remove(&rates->rows, &row->node);
	rates->n--;
	free(row->store);
	free(row);
}

void gpu_rates_deinit(struct gpu_rates *rates)
{
	LIST_EACH(struct gpu_rates_row, row, &rates->rows, node)
		row_free(rates, row);
}

struct gpu_rates_row *gpu_rates_find(const struct gpu_rates *rates, uid_t uid, const char *store,
				     const char *gpu)
{
	LIST_EACH(struct gpu_rates_row, row, &rates->rows, node)
		if (row->uid == uid && strcmp(row->store, store) == 0 && strcmp(row->gpu, gpu) == 0)
			return row;
	return NULL;
}

/* Makes room for a row of the user. */
static void rates_trim(struct gpu_rates *rates, uid_t uid)
{
	struct gpu_rates_row *oldest = NULL;
	unsigned n = 0;

	LIST_EACH(struct gpu_rates_row, row, &rates->rows, node) {
		if (row->uid != uid)
			continue;
		n++;
		if (!oldest)
			oldest = row;
	}
	if (n >= GPU_RATES_USER_MAX)
		row_free(rates, oldest);
	else if (rates->n >= GPU_RATES_MAX)
		row_free(rates, list_entry(rates->rows.first, struct gpu_rates_row, node));
}

struct gpu_rates_row *gpu_rates_get(struct gpu_rates *rates, uid_t uid, const char *store,
				    const char *gpu)
{
	struct gpu_rates_row *row = gpu_rates_find(rates, uid, store, gpu);

	if (row) {
		list_remove(&rates->rows, &row->node);
		list_push(&rates->rows, &row->node);
		return row;
	}
	row = calloc(1, sizeof(*row));
	if (row)
		row->store = strdup(store);
	if (!row || !row->store) {
		free(row);
		return NULL;
	}
	row->uid = uid;
	(void)snprintf(row->gpu, sizeof(row->gpu), "%s", gpu);
	rates_trim(rates, uid);
	list_push(&rates->rows, &row->node);
	rates->n++;
	return row;
}
