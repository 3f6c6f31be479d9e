/*
 * dsaioctl profile: shows (as dsaioctl stores does), sets or resets the profiles of stores.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/setting.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "proto/util/cleanup.h"
#include "proto/wire.h"

#include <string.h>

static const char help[] =
	"dsaioctl profile - the tuning numbers of stores\n"
	"\n"
	"    dsaioctl profile show                       of all stores\n"
	"    dsaioctl profile show nvme0                 of the store of that name\n"
	"    dsaioctl profile show /nvme/model.bin       of the store that this path is on\n"
	"    dsaioctl profile set nvme0 block_size=1M queue_depth=64\n"
	"    dsaioctl profile set ./ overlap_events=no   of the one that this directory is on\n"
	"    dsaioctl profile reset nvme0                as configured, or the default, again\n"
	"\n"
	"Shown is what dsaioctl stores shows.  A STORE with a '/' is a path, any other a name.\n"
	"Values that are not named stay.  A profile that is set is saved across restarts (a failure is\n"
	"reported).  It applies to handles that open a channel from now on, except handles opened with\n"
	"a profile of their own.\n"
	"Setting and resetting are for administrators.\n"
	"\n"
	"    block_size=N[K|M]       bytes of one request to the device: 512 to 64M, in steps of 512\n"
	"    queue_depth=N           requests in flight: 1 to 4096\n"
	"    single_submit=yes|no    hand over requests one by one\n"
	"    overlap_events=yes|no   refill the queue as requests end; no: fill, wait for all\n"
	"    intra_op_parallelism=N  multiplies queue_depth: 1 to 64\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

/* The daemon's own message says more: for example why it cannot be saved. */
static int print_changed(const struct ctl *ctl, const Wire__Reply *reply, const char *message)
{
	int r = show_stores(ctl, &reply->store_get, 1);

	if (reply->text[0])
		message = reply->text;
	if (r != CTL_OK)
		return r;
	if (ctl->is_json) {
		if (reply->text[0])
			ctl_note(ctl, "%s", message);
		return CTL_OK;
	}
	return ctl_print_line(ctl, "%s", message);
}

/* The message names the profile, as the command's name does. */
static int check_profile(const struct ctl *ctl, const struct profile *profile)
{
	static const char prefix[] = "profile: ";
	char text[256];

	if (profile_check(profile, text, sizeof(text)) == 0)
		return CTL_OK;
	return ctl_usage(ctl, "%s",
			 text + (strncmp(text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0));
}

static int apply_settings(const struct ctl *ctl, struct partial_profile *profile)
{
	char text[256];

	for (int i = 2; i < ctl->n_args; i++)
		if (setting_parse(ctl->args[i], profile, text, sizeof(text)) < 0)
			return ctl_usage(ctl, "%s", text);
	return CTL_OK;
}

static int set_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *after = NULL;
	Wire__Profile wire = WIRE__PROFILE__INIT;
	struct partial_profile profile = PARTIAL_PROFILE_NONE;
	int r;

	if (ctl->n_args < 3)
		return ctl_usage(ctl, "set: name a store or path and values: dsaioctl profile set "
				      "STORE KEY=VALUE...: see dsaioctl profile --help");
	/* A wrong value is refused without a daemon. */
	r = apply_settings(ctl, &profile);
	if (r == CTL_OK)
		r = check_profile(ctl, &profile.profile);
	if (r != CTL_OK)
		return r;
	partial_to_wire(&profile, &wire);
	r = ask_profile_set(ctl, ctl->args[1], &wire, &after);
	if (r != CTL_OK)
		return r;
	return print_changed(
		ctl, after,
		"saved across restarts; holds for handles that open a channel from now "
		"on");
}

static int reset_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	if (ctl->n_args != 2)
		return ctl_usage(ctl,
				 "reset: name one store or path: dsaioctl profile reset STORE: "
				 "see dsaioctl profile --help");
	r = ask_profile_set(ctl, ctl->args[1], NULL, &reply);
	if (r != CTL_OK)
		return r;
	return print_changed(
		ctl, reply,
		"the profile that was set is forgotten; holds for handles that open a channel "
		"from now on");
}

static int profile_run(struct ctl *ctl)
{
	const char *what = ctl->n_args > 0 ? ctl->args[0] : "";

	if (strcmp(what, "show") == 0) {
		ctl->args++;
		ctl->n_args--;
		return command_stores.run(ctl);
	}
	if (strcmp(what, "set") == 0)
		return set_run(ctl);
	if (strcmp(what, "reset") == 0)
		return reset_run(ctl);
	return ctl_usage(ctl, "%s%sshow, set or reset? see dsaioctl profile --help", what,
			 what[0] ? ": " : "");
}

const struct command command_profile = COMMAND("profile", profile_run,
					       "the tuning numbers of stores", help);
