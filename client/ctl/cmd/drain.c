/*
 * dsaioctl drain: takes a store out of service, or closes the idle files of all clients there, so that it can be
 * unmounted.  dsaioctl undrain: the store is served again.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char help[] =
	"dsaioctl drain, undrain - take a store out of service, for example to unmount it\n"
	"\n"
	"    dsaioctl drain /nvme && umount /nvme  no new op starts there,\n"
	"    mount /nvme && dsaioctl undrain /nvme until it is served again\n"
	"    dsaioctl drain nvme0                  the store of that name\n"
	"    dsaioctl drain --once /nvme && umount /nvme    only closes what is cached\n"
	"    dsaioctl drain /nvme --json | jq '.clients[] | select(.files > 0)'\n"
	"\n"
	"New files and new ops of the store end with an error that says so (ENOMEDIUM); ops that the\n"
	"daemon has taken end as ever.  It survives a restart of the daemon (a failure is reported).\n"
	"Files that programs have closed, but the daemon keeps open for a while, are closed at once;\n"
	"those in use stay, and the table has their clients.  FILES keep the file system busy,\n"
	"CHANNELS do not.  A STORE with a '/' is a path, any other a name; a path names the store of\n"
	"what is mounted there.  drain --once lets the store be served as before: what is opened\n"
	"afterwards is open again.  For administrators.\n"
	"\n"
	"    --json         the same as JSON; clients are the rows of the table\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 no client has a file open there (undrain: done), 1 some have, or failed,\n"
	"2 wrong usage, 3 no daemon answers\n";

static bool is_once;
static const struct flag flags[] = { { "once", FLAG_BOOL, &is_once, 0, 0 } };

static int print_drained(const struct ctl *ctl, const Wire__StoreDrainReply *drained)
{
	_cleanup_(table_deinit) struct table table = {
		.columns = ">CLIENT|NAME|>PID|>UID|>FILES|>CHANNELS"
	};

	for (size_t i = 0; i < drained->n_clients; i++) {
		const Wire__Holder *holder = drained->clients[i];

		table_add(&table, "%" PRIu32, holder->client);
		table_add(&table, "%s", holder->name);
		table_add(&table, "%" PRIu32, holder->pid);
		table_add(&table, "%" PRIu32, holder->uid);
		table_add(&table, "%" PRIu32, holder->files);
		table_add(&table, "%" PRIu32, holder->channels);
	}
	if (ctl_print_line(ctl, "store %s (%s): %s%" PRIu32 " idle file%s closed", drained->store,
			   drained->path, is_once ? "" : "takes no new op; ", drained->closed,
			   plural(drained->closed)) != CTL_OK)
		return CTL_FAILED;
	if (table.n_cells)
		table_print(&table, stdout);
	if (drained->n_clients < drained->n_all_clients)
		(void)printf("showing %zu of %" PRIu32 " clients\n", drained->n_clients,
			     drained->n_all_clients);
	return ctl_flush(ctl);
}

static int run(struct ctl *ctl, Wire__DrainMode mode)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__StoreDrain drain = WIRE__STORE_DRAIN__INIT;
	const Wire__StoreDrainReply *drained;
	int r;

	if (ctl->n_args != 1)
		return ctl_usage(ctl,
				 "name one store or path: dsaioctl %s STORE: see dsaioctl %s "
				 "--help",
				 ctl->command, ctl->command);
	drain.mode = mode;
	r = ask_on_store(ctl, ctl->args[0], WIRE__REQUEST__BODY_STORE_DRAIN, &drain, &drain.name,
			 &reply);
	if (r != CTL_OK)
		return r;
	if (reply->text[0]) /* the change is not saved */
		ctl_note(ctl, "%s", reply->text);
	drained = reply->store_drain;
	if (ctl->is_json)
		r = ctl_print_json(ctl, show_json(&drained->base));
	else if (mode == WIRE__DRAIN_MODE__DRAIN_END)
		r = ctl_print_line(ctl, "store %s (%s): is served again", drained->store,
				   drained->path);
	else
		r = print_drained(ctl, drained);
	if (r != CTL_OK || !drained->files || mode == WIRE__DRAIN_MODE__DRAIN_END)
		return r;
	ctl_note(ctl, "store %s: %" PRIu32 " file%s of clients there %s still open: %s",
		 drained->store, drained->files, plural(drained->files),
		 drained->files == 1 ? "is" : "are",
		 drained->closing ? "the close of some does not return (dsaioctl status says what "
				    "frees it)"
				  : "close them, or end these programs, then run this again");
	return CTL_FAILED;
}

static int drain_run(struct ctl *ctl)
{
	return run(ctl, is_once ? WIRE__DRAIN_MODE__DRAIN_CLOSE : WIRE__DRAIN_MODE__DRAIN_BEGIN);
}

static int undrain_run(struct ctl *ctl)
{
	return run(ctl, WIRE__DRAIN_MODE__DRAIN_END);
}

const struct command command_drain = COMMAND("drain", drain_run, "take a store out of service",
					     help, .flags = FLAG_TABLE(flags), .of_all = true);
const struct command command_undrain = COMMAND(
	"undrain", undrain_run, "serve a store again that was drained", help, .of_all = true);
