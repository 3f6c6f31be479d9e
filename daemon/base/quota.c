#include "daemon/base/quota.h"

#include "proto/util/size.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* For each kind: its name in messages, the key that decides its limits, its errno, and the advice. */
static const struct {
	const char *name, *key;
	int code;
	const char *help;
} kinds[N_QUOTA_KINDS] = {
	[QUOTA_POOL_BYTES] = { "of slabs", NULL, -ENOMEM, "free buffers" },
	[QUOTA_GPU_BYTES] = { "of GPU memory", "client_device_max", -EDQUOT,
			      "free GPU memory that it has used" },
	[QUOTA_SLABS] = { "slabs", "client_handles", -EMFILE,
			  "free some first, use fewer and larger ones" },
	[QUOTA_VIEWS] = { "pieces of views", "client_handles", -EMFILE, "free views first" },
	[QUOTA_FILES] = { "open files", "client_files", -EMFILE, "close some first" },
	[QUOTA_HANDLES] = { "handles", "client_handles", -EMFILE, "close some first" },
	[QUOTA_CHANNELS] = { "channels", "client_handles", -EMFILE, "close some handles first" },
	[QUOTA_ENTRIES] = { "ring entries", "client_ops", -EMFILE,
			    "close some handles first, open them with fewer entries" },
	[QUOTA_CALLS] = { "unanswered requests", "client_handles", -EMFILE,
			  "wait for replies first" },
	[QUOTA_SESSIONS] = { "connections", "user_clients", -EUSERS,
			     "end some of its programs first" },
};

enum level { LEVEL_CLIENT, LEVEL_USER, LEVEL_DAEMON };

static enum level quota_level(const struct quota *quota)
{
	if (!quota->parent)
		return LEVEL_DAEMON;
	return quota->parent->parent ? LEVEL_CLIENT : LEVEL_USER;
}

const char *quota_key(enum quota_kind kind)
{
	return kinds[kind].key;
}

static const char *key_of(const struct quota *quota, enum quota_kind kind)
{
	static const char *const pool_keys[] = { "client_pool_max", "user_pool_max", "pool_size" };

	return kinds[kind].key ? kinds[kind].key : pool_keys[quota_level(quota)];
}

/* The other bound on a limit, as the end of a message. */
static void text_descriptors(const struct quota *quota, enum quota_kind kind, char *text,
			     size_t size)
{
	while (quota->parent)
		quota = quota->parent;
	text[0] = 0;
	if (quota->follows_descriptors[kind])
		(void)snprintf(
			text, size,
			"; the descriptors of the daemon (pid %d, RLIMIT_NOFILE %" PRIu64
			") limit it, too: ulimit -n where it starts, LimitNOFILE= of a service",
			getpid(), quota->n_descriptors);
}

/* Writes "1.50 GiB" or "12" into text, of SIZE_TEXT_BYTES, and returns it. */
static const char *amount_text(enum quota_kind kind, uint64_t n, char *text)
{
	if (kind == QUOTA_POOL_BYTES || kind == QUOTA_GPU_BYTES)
		return size_format(text, (double)n, "");
	(void)snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64, n);
	return text;
}

int quota_charge(struct charge *charge, struct quota *quota, enum quota_kind kind, uint64_t n,
		 struct error *error)
{
	char descriptors[192], used[SIZE_TEXT_BYTES], limit[SIZE_TEXT_BYTES], more[SIZE_TEXT_BYTES];

	for (const struct quota *a = quota; a; a = a->parent) {
		uint64_t sum;

		if (!__builtin_add_overflow(a->used[kind], n, &sum) && sum <= a->limit[kind])
			continue;
		text_descriptors(a, kind, descriptors, sizeof(descriptors));
		return error_set_plain(
			error, kinds[kind].code,
			"%s has %s of at most %s %s and asks for %s more: %s, or raise %s in "
			"dsaiod.conf, which decides this limit%s",
			a->name, amount_text(kind, a->used[kind], used),
			amount_text(kind, a->limit[kind], limit), kinds[kind].name,
			amount_text(kind, n, more), kinds[kind].help, key_of(a, kind), descriptors);
	}
	for (struct quota *a = quota; a; a = a->parent)
		a->used[kind] += n;
	*charge = (struct charge){ .quota = quota, .kind = kind, .n = n };
	return 0;
}

void quota_discharge(struct charge *charge)
{
	quota_adjust(charge, 0);
	charge->quota = NULL;
}

void quota_adjust(struct charge *charge, uint64_t n)
{
	for (struct quota *a = charge->quota; a; a = a->parent) {
		assert(a->used[charge->kind] >= charge->n);
		a->used[charge->kind] += n - charge->n;
	}
	charge->n = n;
}

int quota_is_zero(const struct quota *quota)
{
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		if (quota->used[i])
			return 0;
	return 1;
}
