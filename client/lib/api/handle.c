/*
 * Public calls on handles: they check the arguments.  io/handle.c opens, closes and makes the descriptor.
 * In the profile that a program asks for, struct dsaio_profile, zero means inherited.
 */
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/file.h"
#include "client/lib/io/submit.h"

#include <inttypes.h>

#define ENTRIES_DEFAULT 1024u

/* given: NULL: all is inherited.  Numbers are checked by the daemon.  Returns 0, -EINVAL or -E2BIG, with a message. */
static int asked_profile_read(const char *function, const struct dsaio_profile *given,
			      struct partial_profile *ret_profile)
{
	struct dsaio_profile p = DSAIO_PROFILE_INIT;
	struct partial_profile partial;
	int r = given ? sized_read(function, &SIZED_PROFILE, given, &p) : 0;

	if (r < 0)
		return r;
	if (p.zero)
		return fail_unknown(function, "field zero of struct dsaio_profile", p.zero);
	if (p.single_submit > DSAIO_NO || p.overlap_events > DSAIO_NO)
		return error_fail(-EINVAL,
				  "%s: profile: single_submit %u, overlap_events %u: each must be "
				  "DSAIO_INHERIT (%d), DSAIO_YES (%d) or DSAIO_NO (%d)",
				  function, p.single_submit, p.overlap_events, DSAIO_INHERIT,
				  DSAIO_YES, DSAIO_NO);
	partial.profile = (struct profile){
		.block_size = p.block_size,
		.queue_depth = p.queue_depth,
		.single_submit = p.single_submit == DSAIO_YES,
		.overlap_events = p.overlap_events == DSAIO_YES,
		.intra_op_parallelism = p.intra_op_parallelism,
	};
	partial.given = (p.block_size ? PROFILE_BLOCK_SIZE : 0) |
			(p.queue_depth ? PROFILE_QUEUE_DEPTH : 0) |
			(p.single_submit ? PROFILE_SINGLE_SUBMIT : 0) |
			(p.overlap_events ? PROFILE_OVERLAP_EVENTS : 0) |
			(p.intra_op_parallelism ? PROFILE_PARALLELISM : 0);
	partial.profile = profile_fill(&partial, &PROFILE_DEFAULT);
	*ret_profile = partial;
	return 0;
}

/* Checks the options as far as the daemon does not, and fills in the settings, which are zero. */
static int read_options(const struct dsaio_client *client, const struct dsaio_handle_options *o,
			struct handle_settings *ret)
{
	if (o->flags)
		return fail_unknown("handle_open", "flags", o->flags);
	if (o->io_class > DSAIO_CLASS_BACKGROUND)
		return error_fail(-EINVAL, "handle_open: io_class %u: must be from 0 to %d",
				  o->io_class, DSAIO_CLASS_BACKGROUND);
	if (o->entries && (o->entries < RING_ENTRIES_MIN || o->entries > RING_ENTRIES_MAX))
		return error_fail(-EINVAL, "handle_open: entries %u: must be 0 or from %u to %u",
				  o->entries, RING_ENTRIES_MIN, RING_ENTRIES_MAX);
	if (o->op_timeout_usec < -1 || o->op_timeout_usec > (int64_t)UINT32_MAX * 1000)
		return error_fail(-EINVAL,
				  "handle_open: op_timeout_usec %" PRId64
				  ": must be 0 (the default), -1 (never) or up to %" PRId64,
				  o->op_timeout_usec, (int64_t)UINT32_MAX * 1000);
	if (o->spin_usec < -1 || o->spin_usec > 1000000)
		return error_fail(-EINVAL,
				  "handle_open: spin_usec %" PRId64 ": must be 0 (the default), -1 "
				  "(never) or up to 1000000",
				  o->spin_usec);
	ret->entries = o->entries ? o->entries : ENTRIES_DEFAULT;
	ret->io_class = (enum dsaio_class)o->io_class;
	ret->weight = o->weight ? o->weight : 1;
	if (o->op_timeout_usec > 0)
		ret->timeout_msec = (uint32_t)((o->op_timeout_usec + 999) / 1000);
	ret->is_spin_given = o->spin_usec;
	if (o->spin_usec >= 0)
		ret->spin_nsec = 1000 * (o->spin_usec ? (uint64_t)o->spin_usec : client->spin_usec);
	return asked_profile_read("handle_open", o->profile, &ret->profile);
}

int dsaio_handle_open(struct dsaio_client *client, const struct dsaio_handle_options *options,
		      struct dsaio_handle **ret_handle)
{
	CANCEL_DISABLE();
	struct dsaio_handle_options o = DSAIO_HANDLE_OPTIONS_INIT;
	struct handle_settings settings = { .entries = 0 };
	int r = client_check_call(client, "handle_open", ret_handle, "place for the handle");

	if (r == 0 && options)
		r = sized_read("handle_open", &SIZED_HANDLE_OPTIONS, options, &o);
	if (r == 0)
		r = read_options(client, &o, &settings);
	return r < 0 ? r : handle_open(client, &settings, handle_on_disconnect, ret_handle);
}

int dsaio_handle_fd(struct dsaio_handle *handle)
{
	CANCEL_DISABLE();
	int r = handle_check(handle, "handle_fd");

	return r < 0 ? r : handle_fd(handle);
}

int dsaio_handle_close(struct dsaio_handle *handle, int64_t timeout_usec)
{
	CANCEL_DISABLE();
	if (!handle || client_is_forked(handle->client))
		return 0;
	/* The time of a program that counts down is over: an errno might be an op's. */
	if (timeout_usec < -1)
		timeout_usec = 0;
	return handle_close(handle, deadline_in_usec(timeout_usec));
}

int dsaio_handle_cancel(struct dsaio_handle *handle)
{
	CANCEL_DISABLE();
	int r = handle_check(handle, "handle_cancel");

	if (r == 0)
		submit_cancel_all(handle);
	return r;
}

/* ---- the profile that is used ---- */

static enum dsaio_choice choice_of(bool value, unsigned is_given)
{
	if (!is_given)
		return DSAIO_INHERIT;
	return value ? DSAIO_YES : DSAIO_NO;
}

/* Fills in a struct that the program has set the size of.  Returns 0 or -EINVAL, with a message. */
static int asked_profile_write(const char *function, const struct partial_profile *profile,
			       struct dsaio_profile *ret_given)
{
	const struct profile *values = &profile->profile;
	const unsigned given = profile->given;
	struct dsaio_profile p = DSAIO_PROFILE_INIT;

	p.block_size = given & PROFILE_BLOCK_SIZE ? values->block_size : 0;
	p.queue_depth = given & PROFILE_QUEUE_DEPTH ? values->queue_depth : 0;
	p.single_submit = choice_of(values->single_submit, given & PROFILE_SINGLE_SUBMIT);
	p.overlap_events = choice_of(values->overlap_events, given & PROFILE_OVERLAP_EVENTS);
	p.intra_op_parallelism = given & PROFILE_PARALLELISM ? values->intra_op_parallelism : 0;
	return sized_write(function, &SIZED_PROFILE, &p, ret_given);
}

/* The profile that the store of the file uses for the handle. */
static int profile_on(struct dsaio_handle *handle, const struct dsaio_file *file,
		      struct partial_profile *ret_profile, struct dsaio_granted *ret_granted)
{
	struct handle_channel *channel;
	int r;

	if (file->client != handle->client)
		return error_fail(-EBADF,
				  "handle_profile: file %s and handle belong to different "
				  "clients: open the file with the handle's",
				  file->name);
	r = client_check_alive(handle->client, "handle_profile");
	if (r == 0)
		r = handle_channel(handle, file->session.store, &channel);
	if (r < 0)
		return r;
	LOCKED(&channel->submit_lock);
	*ret_profile = (struct partial_profile){ channel->profile, PROFILE_ALL };
	ret_granted->block_size = channel->block_size;
	ret_granted->queue_depth = channel->queue_depth;
	return 0;
}

int dsaio_handle_profile(struct dsaio_handle *handle, struct dsaio_file *file,
			 struct dsaio_profile *ret_profile, struct dsaio_granted *ret_granted)
{
	CANCEL_DISABLE();
	struct dsaio_granted granted = DSAIO_GRANTED_INIT;
	struct partial_profile profile;
	int r = handle_check(handle, "handle_profile");

	if (r < 0)
		return r;
	profile = handle->settings.profile;
	if (file)
		r = profile_on(handle, file, &profile, &granted);
	else if (ret_granted)
		r = error_fail(-EINVAL, "handle_profile: without a file no store grants anything: "
					"give a file, or no place for what is granted");
	if (r == 0 && ret_profile)
		r = asked_profile_write("handle_profile", &profile, ret_profile);
	if (r == 0 && ret_granted)
		r = sized_write("handle_profile", &SIZED_GRANTED, &granted, ret_granted);
	return r;
}
