#include "client/ctl/bench/guest.h"

#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/units.h"
#include "client/lib/api/client.h"
#include "client/lib/link/conn.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"

#include <stdio.h>
#include <time.h>

#define WATCH_MSEC 250u /* --exclusive, before the start: a guess, short and longer than a pause */

static bool is_ours(const struct bench_guest *guest, uint32_t store)
{
	for (unsigned i = 0; i < guest->n_places; i++)
		if (guest->places[i].store == store)
			return true;
	return false;
}

/* A daemon that was started anew counts from zero. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

int bench_guest_look(struct bench_guest *guest)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	struct bench_work now = { 0 };
	int r = ask_status(guest->ctl, &reply);

	if (r != CTL_OK)
		return r;
	guest->n_clients = 0;
	for (size_t i = 0; i < reply->status->n_stores; i++) {
		const Wire__Store *store = reply->status->stores[i];
		const Wire__Counters *counters = store->counters;

		if (!is_ours(guest, store->store))
			continue;
		guest->n_clients += store->clients;
		if (!counters)
			continue;
		now.bytes += counters->read_bytes + counters->write_bytes;
		now.blocks += counters->blocks;
		now.blocks_nsec += counters->blocks_nsec;
	}
	guest->work = (struct bench_work){
		.bytes = grown(now.bytes, guest->all.bytes),
		.blocks = grown(now.blocks, guest->all.blocks),
		.blocks_nsec = grown(now.blocks_nsec, guest->all.blocks_nsec),
	};
	guest->all = now;
	guest->is_admin = reply->status->is_admin;
	(void)snprintf(guest->cufile, sizeof(guest->cufile), "%s",
		       reply->status->gpus ? reply->status->gpus->cufile : "");
	return CTL_OK;
}

int bench_guest_check_alone(const struct bench_guest *guest)
{
	static const struct bench_traffic none = { 0 };
	const struct timespec moment = { .tv_nsec = WATCH_MSEC * 1000000L };
	const struct bench_traffic before = bench_place_traffic(guest->places, guest->n_places);
	char text[UNITS_TEXT_BYTES];
	uint64_t moved;

	/* bench_guest_start() has just looked. */
	if (guest->n_clients)
		return ctl_fail(
			guest->ctl,
			"--exclusive: the store is used by %u other client%s: wait until "
			"they are done (dsaioctl status shows them), or measure beside them "
			"without --exclusive",
			guest->n_clients, guest->n_clients == 1 ? "" : "s");
	(void)nanosleep(&moment, NULL); /* a signal ends it: then less is seen */
	moved = bench_place_others(guest->places, guest->n_places, &before, &none);
	if (!bench_is_disturbed(moved, 0))
		return CTL_OK;
	return ctl_fail(guest->ctl,
			"--exclusive: others on this device moved %s in %u ms: wait until they are "
			"done, or measure beside them without --exclusive",
			units_format_size(text, moved), WATCH_MSEC);
}

struct bench_served bench_guest_served(const struct bench_guest *guest,
				       const struct profile *profile)
{
	struct bench_served served = { 0 };
	struct dsaio_conn *conn = client_conn(guest->ctl->client);
	_cleanup_(wire_replyp) Wire__Reply *opened = NULL, *channel = NULL;
	Wire__Request request = WIRE__REQUEST__INIT;
	Wire__HandleOpen open_handle = WIRE__HANDLE_OPEN__INIT;
	Wire__HandleClose close_handle = WIRE__HANDLE_CLOSE__INIT;
	Wire__ChannelOpen open_channel = WIRE__CHANNEL_OPEN__INIT;
	Wire__Profile wire = WIRE__PROFILE__INIT;

	profile_to_wire(profile, &wire);
	open_handle.profile = &wire;
	open_handle.io_class = WIRE__CLASS__BACKGROUND;
	request.body_case = WIRE__REQUEST__BODY_HANDLE_OPEN;
	request.handle_open = &open_handle;
	if (conn_call(conn, "handle", &request, NULL, 0, &opened, NULL) < 0)
		return served;
	close_handle.handle = open_channel.handle = opened->handle_open->handle;
	open_channel.store = guest->places[0].number;
	open_channel.without_rings = true;
	request.body_case = WIRE__REQUEST__BODY_CHANNEL_OPEN;
	request.channel_open = &open_channel;
	if (conn_call(conn, "channel", &request, NULL, 0, &channel, NULL) == 0)
		served = (struct bench_served){
			.block_size = channel->channel_open->block_size,
			.queue_depth = channel->channel_open->queue_depth,
		};
	request.body_case = WIRE__REQUEST__BODY_HANDLE_CLOSE;
	request.handle_close = &close_handle;
	/* If it fails, the end of the session closes the handle. */
	(void)conn_call(conn, "handle", &request, NULL, 0, NULL, NULL);
	return served;
}

static int find_store(struct ctl *ctl, struct bench_place *place)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r = ask_store(ctl, place->folder, &reply);

	if (r != CTL_OK)
		return r;
	place->store = reply->store_get->store;
	place->number = reply->store_get->number;
	(void)snprintf(place->store_name, sizeof(place->store_name), "%s", reply->store_get->name);
	(void)snprintf(place->engine, sizeof(place->engine), "%s", reply->store_get->engine);
	if (reply->store_get->profile)
		place->profile = profile_from_wire(reply->store_get->profile);
	return CTL_OK;
}

int bench_guest_start(struct ctl *ctl, const char *const *folders, struct bench_place *places,
		      unsigned n_places, struct bench_guest *ret_guest)
{
	int r = ctl_connect(ctl, folders, n_places, &ctl->client);

	for (unsigned i = 0; r == CTL_OK && i < n_places; i++)
		r = find_store(ctl, &places[i]);
	if (r != CTL_OK)
		return r;
	*ret_guest = (struct bench_guest){ .ctl = ctl, .places = places, .n_places = n_places };
	(void)snprintf(ret_guest->daemon_version, sizeof(ret_guest->daemon_version), "%s",
		       conn_facts(client_conn(ctl->client)).daemon_version);
	return bench_guest_look(ret_guest);
}
