#include "daemon/config/limits.h"

#include "daemon/config/config.h"
#include "daemon/config/keys.h"
#include "proto/frame.h"
#include "proto/util/size.h"

#include <string.h>

#define UNREAD_FDS_MAX 16u /* the sessions' SESSION_UNREAD_FDS_MAX */

/*
 * Four keys bound what clients use: client_files, client_handles, client_ops and user_clients.  All other
 * limits on objects follow from them, by the factors of this table.
 *
 * The daemon's descriptors are shared out: the limits of one user allow at most PERCENT_OF_SYSTEM of
 * the system's daemon, so that two users never take each other's, and PERCENT_OF_OWN of a user's own
 * daemon.  Each kind gets shares (32nds) of that.  Files come last and get the rest.
 * With 20,000 descriptors one user may have 64 clients with 8 handles each, and the companions
 * that the library opens for handles with private memory.
 */
static const struct rule {
	enum quota_kind kind; /* quota_key() has its key */
	unsigned quarters;    /* of the key's value: the limit of one client */
	unsigned n_clients;   /* so many times the limit of one client: the limit of a user */
	unsigned descriptors; /* that one object takes at most; 0: its limit depends on none */
	unsigned share, share_of_own; /* 32nds; of a user's own daemon */
} rules[] = {
	{ QUOTA_SLABS, 16, 4, 1, 2, 2 },
	/* its piece's; 128 GiB for each of eight clients, where there are enough */
	{ QUOTA_VIEWS, 64, 4, 1, 2, 1 },
	/* a doorbell socket */
	{ QUOTA_HANDLES, 4, 4, 1, 4, 2 },
	/* ring and doorbell; a handle has one for each store that it uses */
	{ QUOTA_CHANNELS, 16, 4, 2, 8, 2 },
	/* received with the request, or sent with the reply */
	{ QUOTA_CALLS, 1, 4, 2, 1, 1 },
	/* socket, pidfd, file board; received and not yet looked at; in unread replies */
	{ QUOTA_SESSIONS, 4, 1, 3 + 2 * FRAME_FDS_MAX + UNREAD_FDS_MAX, 7, 4 },
	/* a buffered description is one more */
	{ QUOTA_FILES, 4, 16, 1, 8, 20 },
	{ QUOTA_ENTRIES, 4, 4, 0, 0, 0 },
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

static uint64_t *field_of(struct config *config, const char *name)
{
	return (uint64_t *)((char *)config + key_of_daemon(name)->offset);
}

static uint64_t preset_of(const char *name)
{
	uint64_t n = 0;

	(void)size_parse(key_of_daemon(name)->preset, &n); /* config_init() has checked it */
	return n;
}

/*
 * A limit that is not given follows a given one that it would contradict.  If both are given, that is
 * a mistake.
 */
static void pair_settle(struct config *config, const char *key, const char *limit_key)
{
	uint64_t *small = field_of(config, key), *large = field_of(config, limit_key);
	const struct config_place place = config_key_place(config, key);
	char small_text[SIZE_TEXT_BYTES], large_text[SIZE_TEXT_BYTES];

	if (*small <= *large)
		return;
	if (!place.line)
		*small = *large;
	else if (!config_key_place(config, limit_key).line && strcmp(limit_key, "pool_size") != 0)
		*large = *small;
	else
		config_mistake(config, "%s:%u: [daemon] %s = %s: must be at most %s, which is %s",
			       place.path, place.line, key,
			       size_format(small_text, (double)*small, ""), limit_key,
			       size_format(large_text, (double)*large, ""));
}

/* A user's limit within the share of the descriptors; takes that from *left. */
static uint64_t descriptors_bound(struct config *config, const struct rule *rule, uint64_t user,
				  uint64_t share, uint64_t *left)
{
	unsigned part = config->is_user ? rule->share_of_own : rule->share;
	uint64_t n;

	if (!rule->descriptors)
		return user;
	n = (rule->kind == QUOTA_FILES ? *left : share * part / SHARES) / rule->descriptors;
	n = at_most(user, n < LIMIT_MIN ? LIMIT_MIN : n);
	config->follows_descriptors[rule->kind] = n < user;
	*left -= at_most(*left, n * rule->descriptors);
	return n;
}

/*
 * A given key decides the limit of one client.  By default, one client leaves some to the user's others.  It may
 * take most of the files: data sets have ten thousand.
 */
static void rule_settle(struct config *config, const struct rule *rule, uint64_t share,
			uint64_t *left)
{
	const char *key = quota_key(rule->kind);
	bool is_given = config_key_place(config, key).line != 0;
	uint64_t client = (is_given ? *field_of(config, key) : preset_of(key)) * rule->quarters / 4;
	uint64_t user;

	client += !client;
	user = descriptors_bound(config, rule, client * rule->n_clients, share, left);
	if (!is_given)
		client = at_most(client, rule->kind == QUOTA_FILES ? user - user / 10 : user / 2);
	else if (user < client)
		user = client;
	config->client_limit[rule->kind] = client;
	config->user_limit[rule->kind] = user;
}

static void pool_settle(struct config *config)
{
	const uint64_t half = config->pool_size / 2;

	if (!config_key_place(config, "client_pool_max").line)
		config->client_limit[QUOTA_POOL_BYTES] = half;
	if (!config_key_place(config, "user_pool_max").line)
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
