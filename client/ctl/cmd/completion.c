/*
 * dsaioctl completion: prints what lets a shell complete commands and options.
 *
 * The shells' functions ask this command for the words that may follow.  Where there are none, they complete the
 * names of files.
 */
#include "client/ctl/cmd/command.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
	"dsaioctl completion - let a shell complete commands and options\n"
	"\n"
	"    source <(dsaioctl completion bash)      in ~/.bashrc\n"
	"    source <(dsaioctl completion zsh)       in ~/.zshrc, after compinit\n"
	"    dsaioctl completion fish | source       in ~/.config/fish/config.fish\n"
	"    dsaioctl completion words -- bench i    what they ask: \"io\"\n"
	"\n"
	"The installation of dsaiod has the same scripts where each shell looks for them, so this is\n"
	"for other installations, such as that of the wheel.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

static const struct {
	const char *shell, *script;
} scripts[] = {
	{ "bash",
	  "_dsaioctl() {\n"
	  "\tCOMPREPLY=($(\"$1\" completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD-1}\" \"$2\" 2>/dev/null))\n"
	  "}\n"
	  "complete -o bashdefault -o default -F _dsaioctl dsaioctl" },
	{ "zsh",
	  "#compdef dsaioctl\n"
	  "_dsaioctl() {\n"
	  "\tlocal -a choices\n"
	  "\tchoices=($($words[1] completion words -- \"${(@)words[2,CURRENT-1]}\" \"$PREFIX\" 2>/dev/null))\n"
	  "\tif (( $#choices )); then compadd -a choices; else _files; fi\n"
	  "}\n"
	  "if [ \"$funcstack[1]\" = _dsaioctl ]; then _dsaioctl; else compdef _dsaioctl dsaioctl; fi" },
	{ "fish",
	  "function __dsaioctl_words\n"
	  "\tset -l typed (commandline -ct)\n"
	  "\tdsaioctl completion words -- (commandline -opc)[2..] \"$typed\" 2>/dev/null\n"
	  "end\n"
	  "complete -c dsaioctl -n 'count (__dsaioctl_words) >/dev/null' -f -a '(__dsaioctl_words)'" },
};

static void print_options(const struct flag_table *table, const char *typed)
{
	char name[64];

	for (size_t i = 0; i < table->n_flags; i++) {
		(void)snprintf(name, sizeof(name), "%s%s", table->flags[i].name[1] ? "--" : "-",
			       table->flags[i].name);
		if (strncmp(name, typed, strlen(typed)) == 0)
			(void)puts(name);
	}
}

/* Prints what may stand in place of the last word. */
static void print_words(const struct ctl *ctl, char *const *words, int n)
{
	const struct command root = { .parts = ctl->commands }, *command = &root;
	const char *typed = words[n - 1];

	for (int i = 0; i < n - 1; i++)
		for (const struct command *const *part = command->parts; part && *part; part++)
			if (strcmp(command_word(*part), words[i]) == 0) {
				command = *part;
				break;
			}
	if (*typed == '-') {
		print_options(&command->flags, typed);
		print_options(ctl->flags, typed);
		return;
	}
	for (const struct command *const *part = command->parts; part && *part; part++)
		if (strncmp(command_word(*part), typed, strlen(typed)) == 0)
			(void)puts(command_word(*part));
}

static int completion_run(struct ctl *ctl)
{
	if (ctl->n_args > 1 && strcmp(ctl->args[0], "words") == 0) {
		print_words(ctl, ctl->args + 1, ctl->n_args - 1);
		return ctl_flush(ctl);
	}
	for (size_t i = 0; ctl->n_args == 1 && i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (strcmp(ctl->args[0], scripts[i].shell) == 0) {
			(void)puts(scripts[i].script);
			return ctl_flush(ctl);
		}
	return ctl_usage(ctl, "name one shell: dsaioctl completion bash|zsh|fish");
}

const struct command command_completion = COMMAND(
	"completion", completion_run, "a script for bash, zsh or fish", help,
	.no_json = "a script is for a shell: leave it out");
