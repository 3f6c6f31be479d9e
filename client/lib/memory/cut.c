#include "client/lib/memory/cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct cut_piece *piece_new(size_t off, size_t len)
{
	struct cut_piece *piece = calloc(1, sizeof(*piece));

	if (!piece)
		return NULL;
	piece->off = off;
	piece->len = len;
	piece->is_free = true;
	return piece;
}

static int cut_reserve(struct cut *cut, size_t n)
{
	struct cut_piece **pieces;
	size_t n_allocated = cut->n_allocated ? 2 * cut->n_allocated : 16;

	if (n <= cut->n_allocated)
		return 0;
	pieces = reallocarray(cut->pieces, n_allocated, sizeof(*pieces));
	if (!pieces)
		return -ENOMEM;
	cut->pieces = pieces;
	cut->n_allocated = n_allocated;
	return 0;
}

int cut_init(struct cut *cut, size_t bytes)
{
	*cut = (struct cut){ .bytes = bytes };
	if (cut_reserve(cut, 1) < 0)
		return -ENOMEM;
	cut->pieces[0] = piece_new(0, bytes);
	if (!cut->pieces[0]) {
		cut_deinit(cut);
		return -ENOMEM;
	}
	cut->n = 1;
	return 0;
}

void cut_deinit(struct cut *cut)
{
	for (size_t i = 0; i < cut->n; i++)
		free(cut->pieces[i]);
	free(cut->pieces);
	*cut = (struct cut){ .bytes = 0 };
}

/* Forgets the piece at that index; what it covered is its neighbour's. */
static void cut_remove(struct cut *cut, size_t index)
{
	free(cut->pieces[index]);
	cut->n--;
	memmove(&cut->pieces[index], &cut->pieces[index + 1],
		(cut->n - index) * sizeof(cut->pieces[0]));
}

int cut_take(struct cut *cut, size_t len, struct cut_piece **ret_piece)
{
	struct cut_piece *piece, *rest;
	size_t i;

	len = (len + CUT_PAGE - 1) & ~(size_t)(CUT_PAGE - 1);
	if (len > cut->bytes - cut->used_bytes - cut->retired_bytes)
		return -ENOSPC;
	for (i = 0; i < cut->n; i++)
		if (cut->pieces[i]->is_free && !cut->pieces[i]->is_retired &&
		    cut->pieces[i]->len >= len)
			break;
	if (i == cut->n)
		return -ENOSPC;
	piece = cut->pieces[i];
	if (piece->len > len) {
		if (cut_reserve(cut, cut->n + 1) < 0)
			return -ENOMEM;
		rest = piece_new(piece->off + len, piece->len - len);
		if (!rest)
			return -ENOMEM;
		rest->is_dirty = piece->is_dirty;
		memmove(&cut->pieces[i + 2], &cut->pieces[i + 1],
			(cut->n - i - 1) * sizeof(cut->pieces[0]));
		cut->pieces[i + 1] = rest;
		cut->n++;
		piece->len = len;
	}
	piece->is_free = false;
	cut->used_bytes += len;
	*ret_piece = piece;
	return 0;
}

size_t cut_find(const struct cut *cut, size_t off)
{
	size_t low = 0, high = cut->n; /* it lies in [low, high) */

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (cut->pieces[middle]->off <= off)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The free piece at that index takes in the one after it, if that is free, too, and of its kind. */
static void cut_merge(struct cut *cut, size_t index)
{
	struct cut_piece *piece = cut->pieces[index], *next;

	if (index + 1 == cut->n)
		return;
	next = cut->pieces[index + 1];
	if (!next->is_free || next->is_retired != piece->is_retired)
		return;
	piece->len += next->len;
	piece->is_dirty |= next->is_dirty;
	cut_remove(cut, index + 1);
}

void cut_release(struct cut *cut, size_t index, bool is_retired)
{
	struct cut_piece *piece = cut->pieces[index];

	cut->used_bytes -= piece->len;
	cut->retired_bytes += is_retired ? piece->len : 0;
	piece->is_free = true;
	piece->is_dirty = true;
	piece->is_retired = is_retired;
	cut_merge(cut, index);
	if (index > 0 && cut->pieces[index - 1]->is_free)
		cut_merge(cut, index - 1);
}

bool cut_revive(struct cut *cut)
{
	if (!cut->retired_bytes)
		return false;
	cut->retired_bytes = 0;
	for (size_t i = cut->n; i > 0; i--) {
		cut->pieces[i - 1]->is_retired = false;
		if (cut->pieces[i - 1]->is_free)
			cut_merge(cut, i - 1);
	}
	return true;
}
