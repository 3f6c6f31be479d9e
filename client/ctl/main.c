/*
 * dsaioctl: shows the state of a dsaiod, sets profiles, moves files through it and measures it.
 *
 * This file has the table of commands and the options that all commands share.  These may stand
 * before or after the command's name.  A command's own options are in its file, cmd/NAME.c, and
 * stand after its name.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/ui/stop.h"
#include "client/lib/base/error.h"
#include "proto/build.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_ADDRESS(name) &command_##name,
static const struct command *const commands[] = { COMMANDS(COMMAND_ADDRESS) NULL };
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]) - 1)

static struct ctl ctl = { .build = DSAIO_BUILD, .commands = commands };
static bool is_help, is_version;

static const struct flag common_flags[] = {
	{ "json", FLAG_BOOL, &ctl.is_json, 0, 0 },
	{ "socket", FLAG_STRING, &ctl.socket_path, 0, 0 },
	{ "private", FLAG_BOOL, &ctl.is_private, 0, 0 },
	FLAG_NAMES("help", "h", FLAG_BOOL, &is_help, 0, 0),
	FLAG_NAMES("version", "V", FLAG_BOOL, &is_version, 0, 0),
};
static const struct flag_table common_table = FLAG_TABLE(common_flags);

/*
 * A descriptor of these three that is closed would be given to the next file or socket, and what
 * we print would go there.  Standard output then fails at each write, so that ctl_flush() reports it,
 * and standard input at each read, so that it is not taken for an empty one.
 */
static int open_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* The lowest that is free, and so this one. */
		if (open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) != fd)
			return ctl_fail(&ctl, "/dev/null: %s", strerror(errno));
	}
	return CTL_OK;
}

static void print_help(void)
{
	(void)puts(
		"dsaioctl - look at dsaiod, tune it, move files through it, measure it\n"
		"\n"
		"    dsaioctl status                              who uses the disks, are they healthy\n"
		"    dsaioctl stores /nvme/model.bin              which store a path belongs to\n"
		"    dsaioctl profile set /nvme/ queue_depth=64   how it is used from now on\n"
		"    dsaioctl drain /nvme && umount /nvme         no new op, no file keeps it busy\n"
		"    dsaioctl doctor                              what is wrong here, and what mends it\n"
		"    dsaioctl cp model.bin /nvme/                 a file to a store, synced\n"
		"    dsaioctl ls rados://tensors/llama/           the files of a RADOS store\n"
		"    dsaioctl bench io --dir /nvme --io_size 400M --read\n"
		"    dsaioctl bench tune --dir /nvme --apply      the best profile, set at once\n"
		"    dsaioctl cp --private a b                    without a running dsaiod\n"
		"\n"
		"commands:");
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)printf("    %-12s %s\n", commands[i]->name, commands[i]->line);
	(void)puts(
		"\n"
		"dsaioctl COMMAND --help has more.  Options of all commands, before or after its name\n"
		"(a command's own options stand after it):\n"
		"    --json         print JSON, for programs (not of cat and top)\n"
		"    --socket PATH  the daemon's socket (else $DSAIO_SOCKET, else the system's\n"
		"                   /run/dsaiod/dsaiod.sock, else the user's own, whose daemon cp,\n"
		"                   cat, put and bench start where there is none; for rados:// names\n"
		"                   $DSAIO_RADOS_SOCKET, else /run/dsaiod-rados/dsaiod.sock if it is\n"
		"                   there)\n"
		"    --private      start a daemon for this command alone, and stop it at the end\n"
		"    -h, --help     this text, or a command's\n"
		"    -V, --version  print the version\n"
		"\n"
		"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers; after a signal 129\n"
		"(hang-up), 130 (Ctrl-C) or 143 (SIGTERM)");
}

static int print_version(void)
{
	if (ctl.is_json) {
		struct json_object *object = json_object_new_object();

		json_object_object_add(object, "dsaioctl", json_object_new_string(DSAIO_VERSION));
		json_object_object_add(object, "build", json_object_new_string(DSAIO_BUILD));
		json_object_object_add(object, "library", json_object_new_string(dsaio_version()));
		return ctl_print_json(&ctl, object);
	}
	(void)printf("dsaioctl %s (build %s)\n", dsaio_version(), DSAIO_BUILD);
	return ctl_flush(&ctl);
}

/*
 * The command's next word at or after argv[*i]; moves *i behind it.  Only options of all commands
 * may stand before it: a command's own list option would take the word as one of its values.
 * Returns NULL at the end, or at another option, which *i then names.
 */
static const char *next_word(int argc, char **argv, int *i)
{
	for (; *i < argc; ++*i) {
		const char *arg = argv[*i];
		size_t len = strcspn(arg, "=");
		const struct flag *flag;

		if (!flags_is_option(arg))
			return argv[(*i)++];
		if (strcmp(arg, "--") == 0)
			continue;
		flag = flags_find(&common_table, 1, arg, len);
		if (!flag)
			return NULL;
		if (flag->kind != FLAG_BOOL && arg[len] != '=')
			++*i;
	}
	return NULL;
}

/* The command of the list, up to NULL, whose name is the word, or ends with it: "bench io". */
static const struct command *find_command(const struct command *const *list, const char *word)
{
	while (word && *list && strcmp(command_word(*list), word) != 0)
		list++;
	return word ? *list : NULL;
}

int main(int argc, char **argv)
{
	int i = 1;
	const char *name = next_word(argc, argv, &i);
	const struct command *command = find_command(commands, name);
	bool has_parts = command && command->parts;
	const char *second = has_parts ? next_word(argc, argv, &i) : NULL;
	const struct command *part = has_parts ? find_command(command->parts, second) : NULL;
	struct flag_table tables[] = { common_table, { NULL, 0 } };
	char text[512];
	int n_args, r;

	error_reconnect = "run the command again";
	if (open_standard_fds() != CTL_OK)
		return CTL_FAILED;
	if ((!name || (has_parts && !second && !command->run)) && i < argc)
		return ctl_usage(&ctl,
				 "%.*s: no option of all commands: a command's own options stand "
				 "after its name: see dsaioctl --help",
				 (int)strcspn(argv[i], "="), argv[i]);
	if (part)
		command = part;
	if (command)
		tables[1] = command->flags;
	ctl.command = command ? command->name : NULL;
	if (name && !command)
		return ctl_usage(&ctl, "%s: no such command: see dsaioctl --help", name);
	if (has_parts && !part && second && !command->run)
		return ctl_usage(&ctl, "%s: no such command: see dsaioctl %s --help", second, name);
	if (flags_parse(tables, 2, argc, argv, &n_args, text, sizeof(text)) < 0)
		return ctl_usage(&ctl, "%s: see dsaioctl %s%s--help", text,
				 command ? command->name : "", command ? " " : "");
	if (is_help && !command) {
		print_help();
		return ctl_flush(&ctl);
	}
	if (is_help) {
		(void)fputs(command->help, stdout); /* ctl_flush() looks */
		return ctl_flush(&ctl);
	}
	if (is_version)
		return print_version();
	if (!command)
		return ctl_usage(&ctl, "which command? see dsaioctl --help");
	if (has_parts && !part && !command->run)
		return ctl_usage(&ctl, "which one? see dsaioctl %s --help", name);
	if (ctl.is_private && ctl.socket_path)
		return ctl_usage(&ctl, "--private and --socket: only one of them makes sense");

	ctl.flags = &common_table;
	ctl.args = argv + (part ? 2 : 1); /* what stands before is now the command's name */
	ctl.n_args = n_args - (part ? 2 : 1);
	ctl.is_of_all = command->of_all;
	if (command->no_arguments && ctl.n_args)
		return ctl_usage(&ctl, "%s: takes no arguments: see dsaioctl %s --help",
				 ctl.args[0], command->name);
	if (command->of_all && ctl.is_private)
		return ctl_usage(&ctl, "--private: a daemon for this command alone serves no "
				       "others: leave it out");
	if (command->no_json && ctl.is_json)
		return ctl_usage(&ctl, "--json: %s", command->no_json);
	r = command->run(&ctl);
	ctl_disconnect(&ctl);
	private_stop(&ctl.private_daemon);
	return stop_end(r);
}
