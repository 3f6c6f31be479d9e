/*
 * dsaioctl kill: ends a client, so that it does not come back.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

static const char *reason = "";

static const struct flag flags[] = { { "reason", FLAG_STRING, &reason, 0, 0 } };

static const char help[] =
	"dsaioctl kill - end a client's use of the daemon\n"
	"\n"
	"    dsaioctl clients                                    the first column is the number\n"
	"    dsaioctl kill 7 --reason \"wrong disk: ask Ann\"      the client's messages say why\n"
	"\n"
	"The program goes on, but its connection ends and does not come back by itself: open ops end\n"
	"with ECONNRESET, later calls with ENOTCONN, and the messages say that an administrator ended\n"
	"it, who, and why.  A new connection is served.  For administrators.\n"
	"\n"
	"    --reason TEXT  for the client and the log: up to 199 bytes of printable ASCII\n" HELP_JSON
		HELP_SOCKET HELP_EXIT;

static int kill_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;
	struct json_object *object;
	uint64_t number = 0;
	int r;

	if (ctl->n_args != 1 || size_parse(ctl->args[0], &number) < 0 || !number ||
	    number > UINT32_MAX)
		return ctl_usage(ctl, "name a client by its number in dsaioctl clients: dsaioctl "
				      "kill CLIENT: see dsaioctl kill --help");
	kill.client = (uint32_t)number;
	kill.reason = (char *)(uintptr_t)reason; /* only read */
	r = ask(ctl, "kill", WIRE__REQUEST__BODY_CLIENT_KILL, &kill, &reply);
	if (r != CTL_OK)
		return r;
	if (!ctl->is_json)
		return ctl_print_line(ctl, "%s: ended", reply->text);
	object = json_object_new_object();
	json_add_text(object, "killed", reply->text);
	return ctl_print_json(ctl, object);
}

const struct command command_kill = COMMAND("kill", kill_run, "end a client's use of the daemon",
					    help, .flags = FLAG_TABLE(flags), .of_all = true);
