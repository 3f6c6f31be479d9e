#include "daemon/config/limits.h"

#include "daemon/config/config.h"
#include "daemon/config/keys.h"
#include "proto/frame.h"
#include "proto/util/size.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define UNREAD_FDS_MAX 16u /* the sessions' SESSION_UNREAD_FDS_MAX */

/*
 * The daemon's descriptors are shared out: the limits of one user allow at most PERCENT_OF_SYSTEM of
 * the system's daemon, so that two users never take each other's, and PERCENT_OF_OWN of a user's own
 * daemon.  Each kind gets shares (32nds) of that.  Files come last and get the rest.
 * With 20,000 descriptors one user may have 64 clients with 8 handles each, and the companions
 * that the library opens for handles with private memory.
 */
static const struct rule {
	enum quota_kind kind;
	const char *client_key, *user_key;
	unsigned descriptors; /* that one object takes at most; 0: its limit depends on none */
	unsigned share, share_of_own; /* 32nds; of a user's own daemon */
} rules[] = {
	{ QUOTA_SLABS, "client_slabs", "user_slabs", 1, 3, 2 },
	/* a doorbell socket */
	{ QUOTA_HANDLES, "client_handles", "user_handles", 1, 4, 2 },
	/* ring and doorbell */
	{ QUOTA_CHANNELS, "client_channels", "user_channels", 2, 8, 3 },
	/* received with the request, or sent with the reply */
	{ QUOTA_CALLS, "client_requests", "user_requests", 2, 1, 1 },
	/* socket, pidfd, file board; received and not yet looked at; in unread replies */
	{ QUOTA_SESSIONS, NULL, "user_clients", 3 + 2 * FRAME_FDS_MAX + UNREAD_FDS_MAX, 8, 4 },
	/* a buffered description is one more */
	{ QUOTA_FILES, "client_files", "user_files", 1, 8, 20 },
	{ QUOTA_ENTRIES, "client_entries", "user_entries", 0, 0, 0 },
};
#define SHARES 32u
#define PERCENT_OF_SYSTEM 45u
#define PERCENT_OF_OWN 90u
/* A daemon with few descriptors still serves somebody. */
#define LIMIT_MIN 4u

static uint64_t at_most(uint64_t n, uint64_t limit)
{
	return n < limit ? n : limit;
}

static const struct key *key_of(const char *name)
{
	const struct key *key = key_find(KEYS_DAEMON, name, &(struct error){ 0 });

	assert(key); /* the names above are the table's */
	return key;
}

static uint64_t *field_of(struct config *config, const char *name)
{
	return (uint64_t *)((char *)config + key_of(name)->offset);
}

static uint64_t preset_of(const char *name)
{
	uint64_t n = 0;

	(void)size_parse(key_of(name)->preset, &n); /* config_init() has checked it */
	return n;
}

/*
 * A limit that is not given follows a given one that it would contradict.  If both are given, that is
 * a mistake.
 */
static void pair_settle(struct config *config, const char *key, const char *limit_key)
{
	uint64_t *small = field_of(config, key), *large = field_of(config, limit_key);
	unsigned line = config_key_line(config, key);

	if (*small <= *large)
		return;
	if (!line)
		*small = *large;
	else if (!config_key_line(config, limit_key) && strcmp(limit_key, "pool_size") != 0)
		*large = *small;
	else
		config_mistake(config,
			       "%s:%u: [daemon] %s = %" PRIu64
			       ": must be at most %s, which is %" PRIu64,
			       config->path, line, key, *small, limit_key, *large);
}

/* The default of a user's limit under the share of the descriptors; takes that from *left. */
static uint64_t user_default(struct config *config, const struct rule *rule, uint64_t share,
			     uint64_t *left)
{
	unsigned part = config->is_user ? rule->share_of_own : rule->share;
	uint64_t preset = preset_of(rule->user_key), n;

	if (!rule->descriptors)
		return preset;
	n = at_most(preset, (rule->kind == QUOTA_FILES ? *left : share * part / SHARES) /
				    rule->descriptors);
	config->follows_descriptors[rule->kind] = n < preset;
	if (n < LIMIT_MIN)
		n = LIMIT_MIN;
	*left -= at_most(*left, n * rule->descriptors);
	return n;
}

/* One client leaves some to the user's others.  It may take most of the files: data sets have ten
   thousand. */
static uint64_t client_default(const struct rule *rule, uint64_t user)
{
	if (!rule->client_key)
		return 1;
	if (!rule->descriptors)
		return preset_of(rule->client_key);
	return at_most(preset_of(rule->client_key),
		       rule->kind == QUOTA_FILES ? user - user / 10 : user / 2);
}

static void rule_settle(struct config *config, const struct rule *rule, uint64_t share,
			uint64_t *left)
{
	uint64_t user = user_default(config, rule, share, left);
	bool client_is_given = rule->client_key && config_key_line(config, rule->client_key);
	bool user_is_given = config_key_line(config, rule->user_key);

	if (!user_is_given)
		config->user_limit[rule->kind] = user;
	if (!client_is_given)
		config->client_limit[rule->kind] = client_default(rule, user);
	if (client_is_given || user_is_given)
		config->follows_descriptors[rule->kind] = false;
	if (rule->client_key)
		pair_settle(config, rule->client_key, rule->user_key);
}

static void pool_settle(struct config *config)
{
	const uint64_t half = config->pool_size / 2;

	if (!config_key_line(config, "client_pool_max"))
		config->client_limit[QUOTA_POOL_BYTES] = half;
	if (!config_key_line(config, "user_pool_max"))
		config->user_limit[QUOTA_POOL_BYTES] = config->is_user ? config->pool_size : half;
	pair_settle(config, "user_pool_max", "pool_size");
	pair_settle(config, "client_pool_max", "pool_size");
	pair_settle(config, "client_pool_max", "user_pool_max");
	config->user_limit[QUOTA_GPU_BYTES] = UINT64_MAX;
	if (!config->client_limit[QUOTA_GPU_BYTES]) /* client_device_max = 0 */
		config->client_limit[QUOTA_GPU_BYTES] = UINT64_MAX;
}

void limits_settle(struct config *config)
{
	uint64_t share = config->n_descriptors *
			 (config->is_user ? PERCENT_OF_OWN : PERCENT_OF_SYSTEM) / 100;
	uint64_t left = share;

	pool_settle(config);
	for (unsigned i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		rule_settle(config, &rules[i], share, &left);
}
