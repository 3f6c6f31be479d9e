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
	"ENGINE is what does the blocks: libaio, or as many worker threads as the profile's queue\n"
	"depth says, where io_submit(2) would wait until the bytes are moved; in brackets why.\n"
	"FROM is the source of the profile: the default, the configuration, saved by\n"
	"dsaioctl profile set, or set and not saved.  AUTO is a store that no configuration names.\n"
	"BLOCK SIZE is what one request to the device has: the profile's block size, or less where\n"
	"the device takes less at once.\n"
	"DRAINED stores refuse new files and ops, until dsaioctl undrain.  USERS are those it serves,\n"
	"CLIENTS how many have files or channels there.  OPEN are ops taken and not ended, IN FLIGHT\n"
	"their bytes at the device, WINDOW how many of those the store lets be while several clients\n"
	"are active, P50 and P99 the times that half and 99% of the ops did not pass; QUEUE and\n"
	"DEVICE shares of that time: waiting for their turn, and with a block in flight.\n"
	"A PATH that is on no store yet gets an automatic one, where the daemon makes such.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_PRIVATE HELP_EXIT;

static int stores_run(struct ctl *ctl)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	int r;

	if (ctl->n_args > 1)
		return ctl_usage(ctl,
				 "name one store or path, or none for all: see dsaioctl %s --help",
				 ctl->command);
	r = ctl->n_args ? ask_store(ctl, &client, ctl->args[0], &reply)
			: ask_status(ctl, &client, &reply);
	if (r != CTL_OK)
		return r;
	return ctl->n_args ? show_stores(ctl, &reply->store_get, 1)
			   : show_stores(ctl, reply->status->stores, reply->status->n_stores);
}

const struct command command_stores = { "stores", stores_run,  "what is served, and how",
					help,	  { NULL, 0 }, NULL };
