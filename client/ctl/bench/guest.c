#include "client/ctl/bench/guest.h"

#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/units.h"
#include "client/lib/api/client.h"
#include "client/lib/link/conn.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_MSEC 250u /* --exclusive, before the start: a guess, short and longer than a pause */

/* The bytes that a client had moved on the bench's stores at the last look. */
struct seen {
	uint32_t client;
	uint64_t bytes;
};

/* Over all stores. */
struct sums {
	struct bench_moves moves;
	uint64_t ops, open_ops, blocks, blocks_nsec;
	unsigned n_clients;
};

struct bench_guest {
	struct ctl *ctl;
	struct dsaio_client *client;
	uint32_t *stores; /* ids, each once */
	size_t n_stores;
	struct sums sums; /* when they were last looked at */
	struct bench_disks *disks;
	struct bench_disk_counters disks_before; /* bench_guest_begin() */
	const char *why_unknown;		 /* the last excess that is not known */
	struct seen *seen;
	size_t n_seen;
	bool is_admin;
	char daemon_version[64], cufile[128];
};

const char *bench_guest_daemon_version(const struct bench_guest *guest)
{
	return guest->daemon_version;
}

const char *bench_guest_cufile(const struct bench_guest *guest)
{
	return guest->cufile;
}

bool bench_guest_is_admin(const struct bench_guest *guest)
{
	return guest->is_admin;
}

static bool is_ours(const struct bench_guest *guest, uint32_t store)
{
	for (size_t i = 0; i < guest->n_stores; i++)
		if (guest->stores[i] == store)
			return true;
	return false;
}

/* Counts the client's channels on our stores, and sums their bytes. */
static unsigned sum_channels(const struct bench_guest *guest, const Wire__Client *client,
			     uint64_t *ret_bytes)
{
	unsigned n = 0;

	*ret_bytes = 0;
	for (size_t h = 0; h < client->n_handles; h++)
		for (size_t c = 0; c < client->handles[h]->n_channels; c++) {
			const Wire__Channel *channel = client->handles[h]->channels[c];

			if (!is_ours(guest, channel->store))
				continue;
			n++;
			if (channel->counters)
				*ret_bytes += channel->counters->read_bytes +
					      channel->counters->write_bytes;
		}
	return n;
}

/* Is it this process, which has a connection of its own, or one of the crew? */
static bool is_own_pid(uint32_t pid)
{
	char path[64], line[512], *end;
	_cleanup_(fclosep) FILE *file = NULL;
	unsigned parent = 0;

	if ((pid_t)pid == getpid())
		return true;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')'); /* the name before it may have any character */
	return end && sscanf(end + 1, " %*c %u", &parent) == 1 && (pid_t)parent == getpid();
}

/* Another user chose the name: control characters must not reach the terminal. */
static void add_name(char *names, size_t size, const Wire__Client *client)
{
	size_t n = strlen(names);
	char name[64];
	size_t i = 0;

	for (; client->name[i] && i + 1 < sizeof(name); i++) {
		unsigned char c = (unsigned char)client->name[i];

		name[i] = client->name[i];
		if (c < 0x20 || c == 0x7f)
			name[i] = '?';
	}
	name[i] = '\0';
	(void)snprintf(names + n, size - n, "%s%s (pid %" PRIu32 ", uid %" PRIu32 ")",
		       n ? ", " : "", name[0] ? name : "a program", client->pid, client->uid);
}

static uint64_t seen_bytes(const struct bench_guest *guest, uint32_t client)
{
	for (size_t i = 0; i < guest->n_seen; i++)
		if (guest->seen[i].client == client)
			return guest->seen[i].bytes;
	return 0;
}

/*
 * Names the clients that are not ours and have channels on the stores; only_busy: only those that
 * moved bytes since the last look.
 */
static int name_others(struct bench_guest *guest, const Wire__StatusReply *status, bool only_busy,
		       char *names, size_t size)
{
	struct seen *seen = calloc(status->n_clients + 1, sizeof(*seen));
	size_t n_seen = 0;

	if (!seen)
		return ctl_fail(guest->ctl, "out of memory");
	names[0] = '\0';
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];
		uint64_t bytes;

		if (sum_channels(guest, client, &bytes) == 0 || is_own_pid(client->pid))
			continue;
		if (!only_busy || bytes > seen_bytes(guest, client->client))
			add_name(names, size, client);
		seen[n_seen++] = (struct seen){ client->client, bytes };
	}
	free(guest->seen);
	guest->seen = seen;
	guest->n_seen = n_seen;
	return CTL_OK;
}

static struct sums sum_stores(const struct bench_guest *guest, const Wire__StatusReply *status)
{
	struct sums sums = { 0 };

	for (size_t i = 0; i < status->n_stores; i++) {
		const Wire__Store *store = status->stores[i];
		const Wire__Counters *counters = store->counters;

		if (!is_ours(guest, store->store))
			continue;
		sums.n_clients += store->clients;
		if (!counters)
			continue;
		sums.moves.read_bytes += counters->read_bytes;
		sums.moves.write_bytes += counters->write_bytes;
		sums.ops += counters->reads + counters->writes;
		sums.open_ops += counters->open_ops;
		sums.blocks += counters->blocks;
		sums.blocks_nsec += counters->blocks_nsec;
	}
	return sums;
}

/* A daemon that was started anew counts from zero. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

void bench_guest_begin(struct bench_guest *guest)
{
	guest->disks_before = bench_disks_read(guest->disks);
}

/* Why the disks' counters say nothing of this interval; NULL: they do. */
static const char *why_unknown(const struct bench_guest *guest, const struct sums *before,
			       const struct bench_own *own, const struct bench_disk_counters *now)
{
	if (bench_disks_why_not(guest->disks)[0])
		return bench_disks_why_not(guest->disks);
	if (!now->is_known || !guest->disks_before.is_known)
		return "its counters cannot be read";
	if (own->is_unaligned)
		return "transfers that are no multiples of 4096 bytes are buffered in part";
	/* The daemon counts an op when it ends, the disk its parts before. */
	if (before->open_ops || guest->sums.open_ops)
		return "other clients' transfers went on meanwhile";
	return NULL;
}

/* now: read before the stores' counters, so bytes that move in between do not count as excess. */
static void find_excess(struct bench_guest *guest, const struct sums *before,
			const struct bench_own *own, const struct bench_disk_counters *now,
			struct bench_others *others)
{
	const struct bench_moves moved = {
		.read_bytes = grown(guest->sums.moves.read_bytes, before->moves.read_bytes) +
			      own->past_bytes,
		.write_bytes = grown(guest->sums.moves.write_bytes, before->moves.write_bytes),
	};
	const char *why = why_unknown(guest, before, own, now);

	if (why) {
		guest->why_unknown = why;
		return;
	}
	others->is_excess_known = true;
	others->excess = bench_disks_excess(&guest->disks_before, now, &moved);
	others->is_shared = bench_disks_are_shared(&others->excess,
						   moved.read_bytes + moved.write_bytes);
}

static void name_programs(const struct bench_guest *guest, char *names, size_t size)
{
	const size_t n = strlen(names);

	(void)snprintf(names + n, size - n, "%sother programs on %s", n ? ", " : "",
		       bench_disks_names(guest->disks));
}

int bench_guest_look(struct bench_guest *guest, const struct bench_own *own,
		     struct bench_others *ret_others)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	const struct bench_disk_counters now = bench_disks_read(guest->disks);
	const struct sums before = guest->sums;
	uint64_t all_before = before.moves.read_bytes + before.moves.write_bytes, all_now;
	int r = ask_status(guest->ctl, &guest->client, &reply);

	if (r != CTL_OK)
		return r;
	guest->sums = sum_stores(guest, reply->status);
	all_now = guest->sums.moves.read_bytes + guest->sums.moves.write_bytes;
	*ret_others = (struct bench_others){
		.bytes = grown(all_now, all_before + own->bytes),
		.ops = grown(guest->sums.ops, before.ops + own->ops),
		.all_bytes = grown(all_now, all_before),
		.all_blocks = grown(guest->sums.blocks, before.blocks),
		.all_blocks_nsec = grown(guest->sums.blocks_nsec, before.blocks_nsec),
	};
	if (guest->sums.n_clients > own->n_processes)
		ret_others->n_clients = guest->sums.n_clients - own->n_processes;
	guest->is_admin = reply->status->is_admin;
	(void)snprintf(guest->cufile, sizeof(guest->cufile), "%s",
		       reply->status->gpus ? reply->status->gpus->cufile : "");
	r = name_others(guest, reply->status, ret_others->bytes > 0 || !ret_others->n_clients,
			ret_others->names, sizeof(ret_others->names));
	if (r != CTL_OK)
		return r;
	find_excess(guest, &before, own, &now, ret_others);
	if (ret_others->is_shared)
		name_programs(guest, ret_others->names, sizeof(ret_others->names));
	return CTL_OK;
}

bool bench_others_disturb(const struct bench_others *others)
{
	return others->n_clients > 0 || others->bytes > 0 || others->is_shared;
}

/* Are the disks idle?  Looks at them for a moment. */
static int check_disks_idle(const struct bench_guest *guest)
{
	static const struct bench_moves none = { 0, 0 };
	const struct timespec moment = { .tv_nsec = WATCH_MSEC * 1000000L };
	const struct bench_disk_counters before = bench_disks_read(guest->disks);
	struct bench_disk_counters now;
	char texts[2][UNITS_TEXT_BYTES];
	struct bench_moves moves;

	(void)nanosleep(&moment, NULL); /* a signal ends it: then less is seen */
	now = bench_disks_read(guest->disks);
	moves = bench_disks_excess(&before, &now, &none);
	if (!bench_disks_are_shared(&moves, 0))
		return CTL_OK;
	return ctl_fail(guest->ctl,
			"--exclusive: other programs use %s: %s read and %s written in %u ms: wait "
			"until they are done, or measure beside them without --exclusive",
			bench_disks_names(guest->disks),
			units_format_size(texts[0], moves.read_bytes),
			units_format_size(texts[1], moves.write_bytes), WATCH_MSEC);
}

int bench_guest_check_alone(struct bench_guest *guest)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	char names[BENCH_NAMES_BYTES];
	unsigned n_clients;
	int r = ask_status(guest->ctl, &guest->client, &reply);

	if (r != CTL_OK)
		return r;
	n_clients = sum_stores(guest, reply->status).n_clients;
	if (n_clients == 0)
		return check_disks_idle(guest);
	r = name_others(guest, reply->status, false, names, sizeof(names));
	if (r != CTL_OK)
		return r;
	return ctl_fail(guest->ctl,
			"--exclusive: the store is used by %u other client%s%s%s: wait until they "
			"are done, or measure beside them without --exclusive",
			n_clients, n_clients == 1 ? "" : "s", names[0] ? ": " : "", names);
}

void bench_total_add(struct bench_total *total, uint64_t own_bytes,
		     const struct bench_others *others)
{
	total->own_bytes += own_bytes;
	total->others_bytes += others->bytes;
	if (others->bytes && others->names[0])
		memcpy(total->names, others->names, sizeof(total->names));
	total->n_unknown += !others->is_excess_known;
	total->excess.read_bytes += others->excess.read_bytes;
	total->excess.write_bytes += others->excess.write_bytes;
	total->is_shared |= others->is_shared ||
			    bench_disks_are_shared(&total->excess,
						   total->own_bytes + total->others_bytes);
}

void bench_guest_report(const struct bench_guest *guest, const struct bench_total *total)
{
	const uint64_t all = total->own_bytes + total->others_bytes;
	const char *disks = bench_disks_names(guest->disks);
	char texts[2][UNITS_TEXT_BYTES];

	if (total->others_bytes)
		ctl_note(guest->ctl, "the store was busy with others: %s, %.1f%% of all bytes%s%s",
			 units_format_size(texts[0], total->others_bytes),
			 100 * (double)total->others_bytes / (double)all,
			 total->names[0] ? ", by " : "", total->names);
	if (total->is_shared)
		ctl_note(guest->ctl,
			 "other programs used %s without the daemon: %s read and %s written beside "
			 "the transfers of clients",
			 disks, units_format_size(texts[0], total->excess.read_bytes),
			 units_format_size(texts[1], total->excess.write_bytes));
	if (total->n_unknown)
		ctl_note(
			guest->ctl,
			"%sother programs that use its device without the daemon cannot be seen: %s",
			total->others_bytes ? "" : "no other client used the store; ",
			guest->why_unknown);
	else if (!total->others_bytes && !total->is_shared)
		ctl_note(
			guest->ctl,
			"nobody else used the store: no other client, and %s moved no more than the "
			"daemon asked for",
			disks);
}

int bench_guest_ask_served(struct bench_guest *guest, const struct profile *profile,
			   struct bench_served *ret_served, char *text, size_t size)
{
	struct dsaio_conn *conn = client_conn(guest->client);
	_cleanup_(wire_replyp) Wire__Reply *opened = NULL, *channel = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__HandleOpen open_handle = WIRE__HANDLE_OPEN__INIT;
	Wire__HandleClose close_handle = WIRE__HANDLE_CLOSE__INIT;
	Wire__ChannelOpen open_channel = WIRE__CHANNEL_OPEN__INIT;
	Wire__Profile wire = WIRE__PROFILE__INIT;
	int fds[FRAME_FDS_MAX], r;
	unsigned n_fds = 0;

	profile_to_wire(profile, &wire);
	open_handle.profile = &wire;
	open_handle.io_class = WIRE__CLASS__BACKGROUND;
	request.body_case = WIRE__REQUEST__BODY_HANDLE_OPEN;
	request.handle_open = &open_handle;
	r = conn_call(conn, "handle", &request, NULL, 0, &opened, fds, &n_fds);
	while (r == 0 && n_fds > 0)
		(void)close(fds[--n_fds]); /* its doorbell is not used */
	if (r == 0) {
		close_handle.handle = open_channel.handle = opened->handle_open->handle;
		open_channel.store = guest->stores[0];
		open_channel.without_rings = true;
		request.body_case = WIRE__REQUEST__BODY_CHANNEL_OPEN;
		request.channel_open = &open_channel;
		r = conn_call(conn, "channel", &request, NULL, 0, &channel, NULL, NULL);
		if (r == 0)
			*ret_served = (struct bench_served){
				.block_size = channel->channel_open->block_size,
				.queue_depth = channel->channel_open->queue_depth,
				.lanes = channel->channel_open->lanes,
			};
		else
			(void)snprintf(text, size, "%s", dsaio_error());
		request.body_case = WIRE__REQUEST__BODY_HANDLE_CLOSE;
		request.handle_close = &close_handle;
		/* If it fails, the end of the session closes the handle. */
		(void)conn_call(conn, "handle", &request, NULL, 0, NULL, NULL, NULL);
		return r < 0 ? CTL_FAILED : CTL_OK;
	}
	(void)snprintf(text, size, "%s", dsaio_error());
	return CTL_FAILED;
}

static int find_store(struct bench_guest *guest, struct bench_place *place)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r = ask_store(guest->ctl, &guest->client, place->folder, &reply);

	if (r != CTL_OK)
		return r;
	place->store = reply->store_get->store;
	(void)snprintf(place->store_name, sizeof(place->store_name), "%s", reply->store_get->name);
	(void)snprintf(place->engine, sizeof(place->engine), "%s", reply->store_get->engine);
	if (reply->store_get->profile)
		place->profile = profile_from_wire(reply->store_get->profile);
	if (!is_ours(guest, place->store))
		guest->stores[guest->n_stores++] = place->store;
	return CTL_OK;
}

int bench_guest_start(struct ctl *ctl, struct bench_place *places, unsigned n_places,
		      struct bench_guest **ret_guest)
{
	struct bench_guest *guest = calloc(1, sizeof(*guest));
	static const struct bench_own none = { .bytes = 0 };
	struct bench_others others;
	int r = CTL_OK;

	if (guest)
		guest->stores = calloc(n_places, sizeof(*guest->stores));
	if (!guest || !guest->stores) {
		free(guest);
		return ctl_fail(ctl, "out of memory");
	}
	guest->ctl = ctl;
	{
		_cleanup_(freep) const char **folders = calloc(n_places, sizeof(*folders));

		if (!folders)
			r = ctl_fail(ctl, "out of memory");
		for (unsigned i = 0; r == CTL_OK && i < n_places; i++)
			folders[i] = places[i].folder;
		if (r == CTL_OK)
			r = ctl_connect(ctl, folders, n_places, &guest->client);
	}
	for (unsigned i = 0; r == CTL_OK && i < n_places; i++)
		r = find_store(guest, &places[i]);
	if (r == CTL_OK && bench_disks_find(BENCH_SYSFS, places, n_places, &guest->disks) < 0)
		r = ctl_fail(ctl, "out of memory");
	if (r == CTL_OK)
		r = bench_guest_look(guest, &none, &others);
	if (r != CTL_OK) {
		bench_guest_free(guest);
		return r;
	}
	(void)snprintf(guest->daemon_version, sizeof(guest->daemon_version), "%s",
		       conn_facts(client_conn(guest->client)).daemon_version);
	*ret_guest = guest;
	return CTL_OK;
}

void bench_guest_free(struct bench_guest *guest)
{
	if (!guest)
		return;
	dsaio_disconnect(guest->client);
	bench_disks_free(guest->disks);
	free(guest->stores);
	free(guest->seen);
	free(guest);
}
