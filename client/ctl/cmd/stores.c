/*
 * dsaioctl stores: what is served, and how: all of them, or the one that a path belongs to.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "proto/util/cleanup.h"

static const char help[] =
	"dsaioctl stores - what the daemon serves, and how\n"
	"\n"
	"    dsaioctl stores                     all\n"
	"    dsaioctl stores /nvme/model.bin     the one that this path belongs to\n"
	"    dsaioctl stores --json | jq '.stores[].profile'\n"
	"\n"
	"A PATH that is on no store yet gets an automatic one, where the daemon makes such.  dsaioctl(1)\n"
	"explains the columns.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static int stores_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	if (ctl->n_args > 1)
		return ctl_usage(ctl,
				 "name one store or path, or none for all: see dsaioctl %s --help",
				 ctl->command);
	r = ctl->n_args ? ask_store(ctl, ctl->args[0], &reply) : ask_status(ctl, &reply);
	if (r != CTL_OK)
		return r;
	return ctl->n_args ? show_stores(ctl, &reply->store_get, 1)
			   : show_stores(ctl, reply->status->stores, reply->status->n_stores);
}

const struct command command_stores = COMMAND("stores", stores_run, "what is served, and how",
					      help);
