#include "daemon/base/quota.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* What each kind is called, in messages and in the configuration; its errno, and what helps. */
static const struct {
	const char *name, *key;
	int code;
	const char *help;
} kinds[N_CHARGE_KINDS] = {
	[CHARGE_POOL_BYTES] = { "bytes of slabs", NULL, -ENOMEM, "free buffers" },
	[CHARGE_SLABS] = { "slabs", "slabs", -EMFILE,
			   "free some first, use fewer and larger ones" },
	[CHARGE_FILES] = { "open files", "files", -EMFILE, "close some first" },
	[CHARGE_HANDLES] = { "handles", "handles", -EMFILE, "close some first" },
	[CHARGE_CHANNELS] = { "channels", "channels", -EMFILE, "close some handles first" },
	[CHARGE_ENTRIES] = { "ring entries", "entries", -EMFILE,
			     "close some handles first, open them with fewer entries" },
	[CHARGE_CALLS] = { "unanswered requests", "requests", -EMFILE, "wait for replies first" },
	[CHARGE_SESSIONS] = { "connections", "clients", -EUSERS, "end some of its programs first" },
};

enum level { LEVEL_CLIENT, LEVEL_USER, LEVEL_DAEMON };

static enum level account_level(const struct account *account)
{
	if (!account->parent)
		return LEVEL_DAEMON;
	return account->parent->parent ? LEVEL_CLIENT : LEVEL_USER;
}

/* "client_files": the bound's key in dsaiod.conf. */
static const char *key_of(const struct account *account, enum charge_kind kind, char *key,
			  size_t size)
{
	static const char *const pool_keys[] = { "client_pool_max", "user_pool_max", "pool_size" };
	enum level level = account_level(account);

	if (!kinds[kind].key)
		return pool_keys[level];
	(void)snprintf(key, size, "%s_%s", level == LEVEL_CLIENT ? "client" : "user",
		       kinds[kind].key); /* the daemon as a whole has no bound of these */
	return key;
}

/* What the default of a bound follows from, for the end of a sentence. */
static void text_descriptors(const struct account *account, enum charge_kind kind, char *text,
			     size_t size)
{
	while (account->parent)
		account = account->parent;
	text[0] = 0;
	if (account->follows_descriptors[kind])
		(void)snprintf(text, size,
			       "; its default follows from the descriptors of the daemon (pid %d, "
			       "RLIMIT_NOFILE %" PRIu64
			       "): ulimit -n where it starts, LimitNOFILE= "
			       "of a service",
			       getpid(), account->n_descriptors);
}

int charge_take(struct charge *charge, struct account *account, enum charge_kind kind, uint64_t n,
		struct error *error)
{
	char key[32], descriptors[192];

	for (const struct account *a = account; a; a = a->parent) {
		uint64_t sum;

		if (!__builtin_add_overflow(a->used[kind], n, &sum) && sum <= a->limit[kind])
			continue;
		text_descriptors(a, kind, descriptors, sizeof(descriptors));
		return error_set_plain(
			error, kinds[kind].code,
			"%s has %" PRIu64 " of at most %" PRIu64 " %s and asks for %" PRIu64
			" more: %s, or raise %s in dsaiod.conf%s",
			a->name, a->used[kind], a->limit[kind], kinds[kind].name, n,
			kinds[kind].help, key_of(a, kind, key, sizeof(key)), descriptors);
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
