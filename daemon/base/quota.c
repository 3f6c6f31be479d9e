#include "daemon/base/quota.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* For each kind: its name in messages and in the configuration, its errno, and the advice. */
static const struct {
	const char *name, *key;
	int code;
	const char *help;
} kinds[N_QUOTA_KINDS] = {
	[QUOTA_POOL_BYTES] = { "bytes of slabs", NULL, -ENOMEM, "free buffers" },
	[QUOTA_GPU_BYTES] = { "bytes of GPU memory", "device_max", -EDQUOT,
			      "free GPU memory that it has used" },
	[QUOTA_SLABS] = { "slabs", "slabs", -EMFILE, "free some first, use fewer and larger ones" },
	[QUOTA_FILES] = { "open files", "files", -EMFILE, "close some first" },
	[QUOTA_HANDLES] = { "handles", "handles", -EMFILE, "close some first" },
	[QUOTA_CHANNELS] = { "channels", "channels", -EMFILE, "close some handles first" },
	[QUOTA_ENTRIES] = { "ring entries", "entries", -EMFILE,
			    "close some handles first, open them with fewer entries" },
	[QUOTA_CALLS] = { "unanswered requests", "requests", -EMFILE, "wait for replies first" },
	[QUOTA_SESSIONS] = { "connections", "clients", -EUSERS, "end some of its programs first" },
};

enum level { LEVEL_CLIENT, LEVEL_USER, LEVEL_DAEMON };

static enum level quota_level(const struct quota *quota)
{
	if (!quota->parent)
		return LEVEL_DAEMON;
	return quota->parent->parent ? LEVEL_CLIENT : LEVEL_USER;
}

/* "client_files": the limit's key in dsaiod.conf. */
static const char *key_of(const struct quota *quota, enum quota_kind kind, char *key, size_t size)
{
	static const char *const pool_keys[] = { "client_pool_max", "user_pool_max", "pool_size" };
	enum level level = quota_level(quota);

	if (!kinds[kind].key)
		return pool_keys[level];
	(void)snprintf(key, size, "%s_%s", level == LEVEL_CLIENT ? "client" : "user",
		       kinds[kind].key); /* the daemon as a whole has no limit on these */
	return key;
}

/* The source of a limit's default, as the end of a message. */
static void text_descriptors(const struct quota *quota, enum quota_kind kind, char *text,
			     size_t size)
{
	while (quota->parent)
		quota = quota->parent;
	text[0] = 0;
	if (quota->follows_descriptors[kind])
		(void)snprintf(text, size,
			       "; its default follows from the descriptors of the daemon (pid %d, "
			       "RLIMIT_NOFILE %" PRIu64
			       "): ulimit -n where it starts, LimitNOFILE= "
			       "of a service",
			       getpid(), quota->n_descriptors);
}

int quota_charge(struct charge *charge, struct quota *quota, enum quota_kind kind, uint64_t n,
		 struct error *error)
{
	char key[32], descriptors[192];

	for (const struct quota *a = quota; a; a = a->parent) {
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
	for (struct quota *a = quota; a; a = a->parent)
		a->used[kind] += n;
	*charge = (struct charge){ .quota = quota, .kind = kind, .n = n };
	return 0;
}

void quota_discharge(struct charge *charge)
{
	for (struct quota *a = charge->quota; a; a = a->parent) {
		assert(a->used[charge->kind] >= charge->n);
		a->used[charge->kind] -= charge->n;
	}
	charge->quota = NULL;
}

int quota_is_zero(const struct quota *quota)
{
	for (unsigned i = 0; i < N_QUOTA_KINDS; i++)
		if (quota->used[i])
			return 0;
	return 1;
}
