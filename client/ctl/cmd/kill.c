/*
 * dsaioctl kill: ends clients, so that they do not come back.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/ask.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "proto/util/size.h"

#include <stdlib.h>

static const char *reason = "";

static const struct flag flags[] = { { "reason", FLAG_STRING, &reason, 0, 0 } };

static const char help[] =
	"dsaioctl kill - end a client's use of the daemon\n"
	"\n"
	"    dsaioctl clients                                    the first column is the number\n"
	"    dsaioctl kill 7\n"
	"    dsaioctl kill 7 9 --reason \"wrong disk: ask Ann\"    the clients' messages say why\n"
	"\n"
	"The program goes on, but its connection ends and does not come back by itself: open ops end\n"
	"with ECONNRESET, later calls with ENOTCONN, and the messages say that an administrator ended\n"
	"it, who, and why.  A new connection is served.  Blocks at the device are waited for; ops of\n"
	"other clients are not touched.  The daemon's log has one line for each.  After a client that\n"
	"is not there the others are still ended.  For administrators.\n"
	"\n"
	"    --reason TEXT  for the client and the log: up to 199 bytes of printable ASCII\n"
	"    --json         the same as JSON\n"
	"    --socket PATH  the daemon's socket\n"
	"\n"
	"exit status: 0 all are ended, 1 failed, 2 wrong usage, 3 no daemon answers\n";

static int kill_all(struct ctl *ctl, const uint32_t *numbers, struct json_object *killed)
{
	_cleanup_(client_disconnectp) struct dsaio_client *client = NULL;
	int status = CTL_OK;

	for (int i = 0; i < ctl->n_args; i++) {
		_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
		Wire__ClientKill kill = WIRE__CLIENT_KILL__INIT;
		int r;

		kill.client = numbers[i];
		kill.reason = (char *)(uintptr_t)reason; /* only read */
		r = ask(ctl, &client, "kill", WIRE__REQUEST__BODY_CLIENT_KILL, &kill, &reply);
		if (r == CTL_OK && ctl->is_json)
			json_object_array_add(killed, json_object_new_uint64(numbers[i]));
		else if (r == CTL_OK)
			r = ctl_print_line(ctl, "%s: ended", reply->text);
		if (r != CTL_OK)
			status = r;
		if (!client) /* without a daemon the others would fail, too */
			break;
	}
	return status;
}

static int kill_run(struct ctl *ctl)
{
	_cleanup_(freep) uint32_t *numbers = calloc((size_t)ctl->n_args + 1, sizeof(*numbers));
	_cleanup_(json_putp) struct json_object *killed = json_object_new_array();
	struct json_object *object;
	int r, status;

	if (!numbers || !killed)
		return ctl_fail(ctl, "out of memory");
	if (!ctl->n_args)
		return ctl_usage(ctl,
				 "name a client by its number in dsaioctl clients: dsaioctl kill "
				 "CLIENT...: see dsaioctl kill --help");
	if (ctl->is_private)
		return ctl_usage(ctl, "--private: a daemon for this command alone has no other "
				      "clients: leave it out");
	for (int i = 0; i < ctl->n_args; i++) {
		uint64_t number = 0;

		if (size_parse(ctl->args[i], &number) < 0 || !number || number > UINT32_MAX)
			return ctl_usage(ctl,
					 "%s: is no client's number: dsaioctl clients shows them",
					 ctl->args[i]);
		numbers[i] = (uint32_t)number;
	}
	ctl->is_of_all = true;
	if (!ctl->is_json)
		return kill_all(ctl, numbers, killed);
	object = json_object_new_object();
	ctl->errors = json_object_new_array();
	status = kill_all(ctl, numbers, killed);
	json_object_object_add(object, "killed", json_object_get(killed));
	json_object_object_add(object, "errors", ctl->errors);
	ctl->errors = NULL;
	r = ctl_print_json(ctl, object);
	return r == CTL_OK ? status : r;
}

const struct command command_kill = { "kill", kill_run,		 "end a client's use of the daemon",
				      help,   FLAG_TABLE(flags), NULL };
