#include "client/ctl/cmd/rates.h"

#include "client/ctl/ui/json.h"

#include <stddef.h>

#define P99 0.99

/* Latencies of at most 1024 << place nsec; the shift of a place that no daemon has would overflow. */
#define FIRST_PLACE_NSEC 1024u
#define N_PLACES_MAX 54u

static uint64_t interval_nsec(const Wire__StatusReply *before, const Wire__StatusReply *now)
{
	if (!before || before->pid != now->pid || before->uptime_usec >= now->uptime_usec)
		return 0;
	return (now->uptime_usec - before->uptime_usec) * 1000;
}

static uint64_t grown(uint64_t before, uint64_t now)
{
	return now >= before ? now - before : now;
}

static uint64_t grown_at(const Wire__Counters *before, const Wire__Counters *now, size_t place)
{
	return grown(place < before->n_latencies ? before->latencies[place] : 0,
		     now->latencies[place]);
}

/* The latency within a place is taken for evenly spread. */
static uint64_t p99_between(const Wire__Counters *before, const Wire__Counters *now)
{
	const size_t n = now->n_latencies < N_PLACES_MAX ? now->n_latencies : N_PLACES_MAX;
	double all = 0, below = 0;

	for (size_t i = 0; i < n; i++)
		all += (double)grown_at(before, now, i);
	for (size_t i = 0; i < n; i++) {
		const double here = (double)grown_at(before, now, i);
		const double end = (double)((uint64_t)FIRST_PLACE_NSEC << i);
		const double start = i ? end / 2 : 0;

		if (here > 0 && below + here >= P99 * all)
			return (uint64_t)(start + (end - start) * (P99 * all - below) / here);
		below += here;
	}
	return 0;
}

static uint64_t ops_of(const Wire__Counters *counters)
{
	return counters->reads + counters->writes + counters->fsyncs;
}

/* before: NULL: none; they count from 0. */
static void add_counters(struct rates *rates, const Wire__Counters *before,
			 const Wire__Counters *now)
{
	static const Wire__Counters zero = WIRE__COUNTERS__INIT;
	uint64_t ops, p99;

	if (!now)
		return;
	if (!before || ops_of(before) > ops_of(now))
		before = &zero;
	ops = ops_of(now) - ops_of(before);
	p99 = now->n_latencies	    ? p99_between(before, now)
	      : ops || !rates->nsec ? now->latency_p99_nsec
				    : 0;
	rates->ops += ops;
	rates->read_bytes += grown(before->read_bytes, now->read_bytes);
	rates->write_bytes += grown(before->write_bytes, now->write_bytes);
	rates->errors += grown(before->errors, now->errors);
	rates->all_errors += now->errors;
	rates->open_ops += now->open_ops;
	if (p99 > rates->p99_nsec)
		rates->p99_nsec = p99;
}

struct rates rates_of_store(const Wire__StatusReply *before, const Wire__StatusReply *now,
			    const Wire__Store *store)
{
	struct rates rates = { .nsec = interval_nsec(before, now) };
	const Wire__Counters *earlier = NULL;

	for (size_t i = 0; rates.nsec && i < before->n_stores; i++)
		if (before->stores[i]->store == store->store)
			earlier = before->stores[i]->counters;
	add_counters(&rates, earlier, store->counters);
	return rates;
}

static const Wire__Counters *find_channel(const Wire__Client *client, uint32_t channel)
{
	for (size_t i = 0; client && i < client->n_handles; i++)
		for (size_t k = 0; k < client->handles[i]->n_channels; k++)
			if (client->handles[i]->channels[k]->channel == channel)
				return client->handles[i]->channels[k]->counters;
	return NULL;
}

struct rates rates_of_client(const Wire__StatusReply *before, const Wire__StatusReply *now,
			     const Wire__Client *client)
{
	struct rates rates = { .nsec = interval_nsec(before, now) };
	const Wire__Client *earlier = NULL;

	for (size_t i = 0; rates.nsec && i < before->n_clients; i++)
		if (before->clients[i]->client == client->client)
			earlier = before->clients[i];
	for (size_t i = 0; i < client->n_handles; i++)
		for (size_t k = 0; k < client->handles[i]->n_channels; k++) {
			const Wire__Channel *channel = client->handles[i]->channels[k];

			add_counters(&rates, find_channel(earlier, channel->channel),
				     channel->counters);
		}
	return rates;
}

double rates_per_sec(const struct rates *rates, uint64_t number)
{
	return rates->nsec ? (double)number * 1e9 / (double)rates->nsec : 0;
}

struct json_object *rates_json(const struct rates *rates)
{
	struct json_object *object;

	if (!rates->nsec)
		return NULL;
	object = json_object_new_object();
	json_add_number(object, "interval_nsec", rates->nsec);
	json_add_float(object, "read_bytes_per_sec", rates_per_sec(rates, rates->read_bytes));
	json_add_float(object, "write_bytes_per_sec", rates_per_sec(rates, rates->write_bytes));
	json_add_float(object, "ops_per_sec", rates_per_sec(rates, rates->ops));
	json_add_number(object, "errors", rates->errors);
	json_add_number(object, "latency_p99_nsec", rates->p99_nsec);
	return object;
}
