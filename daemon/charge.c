#include "daemon/charge.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

/* What each kind is called, its errno, and what helps at the client's, the user's, the daemon's. */
static const struct {
	const char *name;
	int code;
	const char *help[3];
} kinds[N_CHARGE_KINDS] = {
	[CHARGE_POOL_BYTES] = { "bytes of slabs",
				-ENOMEM,
				{ "free buffers, or raise client_pool_max in the daemon's "
				  "configuration",
				  "free buffers in this user's programs, or raise user_pool_max in the "
				  "daemon's configuration",
				  "wait until other programs free theirs, or raise pool_size in the "
				  "daemon's configuration" } },
	[CHARGE_SLABS] = { "slabs", -EMFILE, { "free some first, or use fewer and larger ones" } },
	[CHARGE_FILES] = { "open files",
			   -EMFILE,
			   { "close some first",
			     "close some first, or raise LimitNOFILE= of the daemon" } },
	[CHARGE_HANDLES] = { "handles", -EMFILE, { "close some first" } },
	[CHARGE_CHANNELS] = { "channels", -EMFILE, { "close some handles first" } },
	[CHARGE_ENTRIES] = { "ring entries",
			     -EMFILE,
			     { "close some handles first, or open them with fewer entries" } },
	[CHARGE_CALLS] = { "unanswered requests", -EMFILE, { "wait for replies first" } },
	[CHARGE_SESSIONS] = { "connections", -EUSERS, { "end some of its programs first" } },
};

static unsigned account_level(const struct account *account)
{
	if (!account->parent)
		return 2;
	return account->parent->parent ? 0 : 1;
}

static const char *help_for(const struct account *account, enum charge_kind kind)
{
	const char *help = kinds[kind].help[account_level(account)];

	return help ? help : kinds[kind].help[0];
}

int charge_take(struct charge *charge, struct account *account, enum charge_kind kind, uint64_t n,
		struct error *error)
{
	for (const struct account *a = account; a; a = a->parent) {
		uint64_t sum;

		if (__builtin_add_overflow(a->used[kind], n, &sum) || sum > a->limit[kind])
			return error_set_plain(error, kinds[kind].code,
					       "%s has %" PRIu64 " of at most %" PRIu64
					       " %s and asks for %" PRIu64 " more: %s",
					       a->name, a->used[kind], a->limit[kind],
					       kinds[kind].name, n, help_for(a, kind));
	}
	for (struct account *a = account; a; a = a->parent)
		a->used[kind] += n;
	*charge = (struct charge){ .account = account, .kind = kind, .n = n };
	return 0;
}

void charge_give(struct charge *charge)
{
	for (struct account *a = charge->account; a; a = a->parent) {
		assert(a->used[charge->kind] >= charge->n);
		a->used[charge->kind] -= charge->n;
	}
	charge->account = NULL;
}

int account_is_zero(const struct account *account)
{
	for (unsigned i = 0; i < N_CHARGE_KINDS; i++)
		if (account->used[i])
			return 0;
	return 1;
}
