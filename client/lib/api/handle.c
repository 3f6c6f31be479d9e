/*
 * Public calls on handles: they check the arguments.  io/handle.c opens, closes and makes the descriptor.
 */
#include "client/lib/api/profile.h"
#include "client/lib/api/sized.h"
#include "client/lib/base/cancel.h"
#include "client/lib/base/deadline.h"
#include "client/lib/io/handle_close.h"
#include "client/lib/io/submit.h"

#include <inttypes.h>

#define ENTRIES_DEFAULT 1024u

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
