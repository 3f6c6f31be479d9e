/*
 * dsaioctl completion: prints what lets a shell complete commands and options, from their tables.
 *
 * bash and zsh share one function, which finds the words that may follow.  Where it finds none, both
 * complete the names of files.
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
	"\n"
	"The installation of dsaiod has the same scripts where each shell looks for them, so this is\n"
	"for other installations, such as that of the wheel.\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage\n";

/* Calls print for each command, those of two words behind their first. */
static void for_each(const struct ctl *ctl, void (*print)(const struct command *command))
{
	for (const struct command *const *at = ctl->commands; *at; at++) {
		print(*at);
		for (const struct command *const *part = (*at)->parts; part && *part; part++)
			print(*part);
	}
}

static void print_options(const struct flag_table *table)
{
	for (size_t i = 0; i < table->n_flags; i++)
		(void)printf(" %s%s", table->flags[i].name[1] ? "--" : "-", table->flags[i].name);
}

/* "io" of "bench io" */
static const char *last_word(const struct command *command)
{
	const char *space = strrchr(command->name, ' ');

	return space ? space + 1 : command->name;
}

static void print_known(const struct command *command)
{
	(void)printf("|\"%s%s\"", strchr(command->name, ' ') ? "" : " ", command->name);
}

/* The words that may follow a command: its options if a dash has been typed. */
static void print_choices(const struct command *command)
{
	(void)printf("\t(\"%s:-\"*) choices=(", command->name);
	print_options(&command->flags);
	(void)printf(" ) ;;\n\t(\"%s:\"*) choices=(", command->name);
	for (const struct command *const *part = command->parts; part && *part; part++)
		(void)printf(" %s", last_word(*part));
	(void)puts(" ) ;;");
}

/* Sets choices from the word that is typed and those before it. */
static void print_function(const struct ctl *ctl)
{
	const struct command none = { .name = "", .parts = ctl->commands };

	(void)fputs("_dsaioctl_choices() {\n"
		    "\tlocal command= current=$1 word\n"
		    "\tshift\n"
		    "\tfor word; do\n"
		    "\t\tcase \"$command $word\" in\n"
		    "\t\t(\"\"",
		    stdout);
	for_each(ctl, print_known);
	(void)puts(") command=\"$command${command:+ }$word\" ;;\n"
		   "\t\tesac\n"
		   "\tdone\n"
		   "\tcase \"$command:$current\" in");
	print_choices(&none);
	for_each(ctl, print_choices);
	(void)fputs("\tesac\n"
		    "\t[[ $current != -* ]] || choices+=(",
		    stdout);
	print_options(ctl->flags);
	(void)puts(" )\n}");
}

static void print_bash(const struct ctl *ctl)
{
	(void)puts("# dsaioctl completion bash");
	print_function(ctl);
	(void)puts("_dsaioctl() {\n"
		   "\tlocal choices\n"
		   "\t_dsaioctl_choices \"$2\" \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n"
		   "\tCOMPREPLY=($(compgen -W \"${choices[*]}\" -- \"$2\"))\n"
		   "}\n"
		   "complete -o bashdefault -o default -F _dsaioctl dsaioctl");
}

static void print_zsh(const struct ctl *ctl)
{
	(void)puts("#compdef dsaioctl\n"
		   "# dsaioctl completion zsh");
	print_function(ctl);
	(void)puts(
		"_dsaioctl() {\n"
		"\tlocal -a choices\n"
		"\t_dsaioctl_choices \"$PREFIX\" \"${(@)words[2,CURRENT-1]}\"\n"
		"\tif (( $#choices )); then compadd -a choices; else _files; fi\n"
		"}\n"
		"if [ \"$funcstack[1]\" = _dsaioctl ]; then _dsaioctl; else compdef _dsaioctl dsaioctl; fi");
}

static void print_fish_options(const char *pattern, const struct flag_table *table)
{
	for (size_t i = 0; i < table->n_flags; i++)
		(void)printf("complete -c dsaioctl -n \"__dsaioctl_at '%s'\" -%c %s%s\n", pattern,
			     table->flags[i].name[1] ? 'l' : 's', table->flags[i].name,
			     table->flags[i].kind == FLAG_BOOL ||
					     table->flags[i].kind == FLAG_OPTIONAL
				     ? ""
				     : " -r");
}

static void print_fish_command(const struct command *command)
{
	const char *last = last_word(command);
	char pattern[64];

	(void)snprintf(pattern, sizeof(pattern), "^%s\\b", command->name);
	print_fish_options(pattern, &command->flags);
	(void)printf("complete -c dsaioctl -n \"__dsaioctl_at '^%.*s\\z'\" -f -a %s -d \"%s\"\n",
		     (int)(last - command->name), command->name, last, command->line);
}

static void print_fish(const struct ctl *ctl)
{
	(void)puts("# dsaioctl completion fish\n"
		   "function __dsaioctl_at\n"
		   "\tset -l words (string match -v -- '-*' (commandline -opc)[2..]) ''\n"
		   "\tstring match -qr -- $argv \"$words\"\n"
		   "end");
	print_fish_options("", ctl->flags);
	for_each(ctl, print_fish_command);
}

static int completion_run(struct ctl *ctl)
{
	static const struct {
		const char *name;
		void (*print)(const struct ctl *ctl);
	} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

	if (ctl->is_json)
		return ctl_usage(ctl, "--json: a script is for a shell: leave it out");
	for (size_t i = 0; ctl->n_args == 1 && i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (strcmp(ctl->args[0], shells[i].name) != 0)
			continue;
		shells[i].print(ctl);
		return ctl_flush(ctl);
	}
	return ctl_usage(ctl, "name one shell: dsaioctl completion bash|zsh|fish");
}

const struct command command_completion = {
	"completion", completion_run, "a script for bash, zsh or fish", help, { NULL, 0 }, NULL
};
