/*
 * dsaioctl reload: the daemon reads its configuration again.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/ask.h"
#include "proto/util/cleanup.h"

static const char help[] =
	"dsaioctl reload - have the daemon read its configuration again\n"
	"\n"
	"    dsaioctl reload\n"
	"    systemctl reload dsaiod               the same, for the service\n"
	"    dsaioctl reload --json | jq -r '.needs_restart[]'\n"
	"\n"
	"Applies limits, administrators, users, groups and profiles of stores, and stores that are\n"
	"new, while programs go on.  Prints what has changed, and what a restart of the daemon would\n"
	"change.  If anything is wrong, nothing is applied, and the first mistake is printed.\n"
	"For administrators.\n"
	"\n" HELP_JSON HELP_SOCKET HELP_EXIT;

/* ctl_flush() looks at their errors. */
static int print_reloaded(const struct ctl *ctl, const Wire__ReloadReply *reloaded)
{
	for (size_t i = 0; i < reloaded->n_applied; i++)
		(void)ctl_print_line(ctl, "applied: %s", reloaded->applied[i]);
	for (size_t i = 0; i < reloaded->n_needs_restart; i++)
		(void)ctl_print_line(ctl, "needs a restart: %s", reloaded->needs_restart[i]);
	if (!reloaded->n_applied && !reloaded->n_needs_restart)
		(void)ctl_print_line(ctl, "nothing has changed");
	return ctl_flush(ctl);
}

static int reload_run(struct ctl *ctl)
{
	_cleanup_(wire_replyp) Wire__Reply *reply = NULL;
	Wire__Reload reload = WIRE__RELOAD__INIT;
	int r = ask(ctl, "reload", WIRE__REQUEST__BODY_RELOAD, &reload, &reply);

	if (r != CTL_OK)
		return r;
	return ctl->is_json ? ctl_print_json(ctl, show_json(&reply->reload->base))
			    : print_reloaded(ctl, reply->reload);
}

const struct command command_reload = COMMAND("reload", reload_run,
					      "have the daemon read its configuration again", help,
					      .no_arguments = true, .of_all = true);
