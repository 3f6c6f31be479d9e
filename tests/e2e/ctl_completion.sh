#!/bin/bash
# dsaioctl completion: what bash, zsh and fish propose from its scripts.
. "$(dirname "$0")/ctl_common.sh"
PATH=$(dirname "$ctl"):$PATH # the scripts call it

# proposals SHELL WORD...: the words proposed for the last one, each on a line in $dir/proposed.  Nothing is proposed
# where names of files are wanted.
proposals() {
	local shell=$1
	shift
	case $shell in
	bash) bash -c '. "$0" && COMP_WORDS=(dsaioctl "$@") COMP_CWORD=$# && _dsaioctl dsaioctl "${!#}" "${@: -2:1}" &&
		printf "%s\n" "${COMPREPLY[@]}"' "$dir/bash" "$@" ;;
	# Its function is for the line editor, which needs a terminal.
	zsh) zsh -f -c 'compdef() { made="$*" }; compadd() { print -rl -- $choices }; _files() { print }; . "$0" &&
		[ "$made" = "_dsaioctl dsaioctl" ] && words=(dsaioctl "$@") CURRENT=$#words PREFIX=$words[-1] && _dsaioctl' "$dir/zsh" "$@" ;;
	fish) fish --no-config -c 'source $argv[1]; complete -C "dsaioctl $argv[2..]"' "$dir/fish" "$@" | cut -f 1 ;;
	esac >"$dir/proposed" 2>"$dir/err" </dev/null
}

# proposes SHELL "PROPOSAL..." WORD...: exactly these, for the last word.
proposes() {
	local shell=$1 wanted=$2
	shift 2
	proposals "$shell" "$@"
	why="$shell: dsaioctl $*: proposed: $(tr '\n' ' ' <"$dir/proposed"): wanted: $wanted: $(head -c 300 "$dir/err")"
	[ "$(sort "$dir/proposed" | xargs)" = "$wanted" ]
}

script_of() {
	why="needs $1"
	command -v "$1" >/dev/null || return 2
	expect 0 "$ctl" completion "$1" && cp "$dir/out" "$dir/$1" && expect 0 "$1" -n "$dir/$1"
}

commands_and_options() {
	script_of "$1" &&
		proposes "$1" "stat status stores" st &&
		proposes "$1" "io latency mix replay report sweep tune" bench "" &&
		proposes "$1" "stat status stores" --json st &&
		proposes "$1" "--io_parallel --io_size" bench io --io &&
		proposes "$1" "" cp --io && proposes "$1" "--verify --version" cp a --ver &&
		proposes "$1" "--socket" stores --so
}

bash_proposes_commands_and_options() {
	commands_and_options bash
}

zsh_proposes_commands_and_options() {
	commands_and_options zsh
}

fish_proposes_commands_and_options() {
	commands_and_options fish
}

# Where no word is known, bash completes names of files.
bash_proposes_no_word_where_files_are_named() {
	script_of bash && proposes bash "" cp "" && proposes bash "" bench io --dir "" && says "$dir/bash" "-o default"
}

# The command and each option that its help explains.
bash_proposes_all_that_help_explains() {
	local command option
	script_of bash || return
	{ "$ctl" --help | sed -n '/^commands:/,/^$/s/^    \([a-z]*\) .*/\1/p' | grep -vx bench
	  "$ctl" bench --help | sed -n 's/^    dsaioctl \(bench [a-z]*\) .*/\1/p'; } | sort -u >"$dir/commands"
	while read -r command; do
		# shellcheck disable=SC2086 # words
		proposals bash $command -
		"$ctl" $command --help | sed -nE 's/^ {4,6}(-[-a-z_]+).*/\1/p' >"$dir/options"
		while read -r option; do
			why="$command: $option is not proposed"
			tr - _ <"$dir/proposed" | grep -qxF -e "${option//-/_}" || return 1 # both are the same in a name
		done <"$dir/options"
	done <"$dir/commands"
	why="few options: $(wc -l <"$dir/options")"
	[ "$(wc -l <"$dir/commands")" -ge 14 ]
}

another_word_is_wrong_usage() {
	expect 2 "$ctl" completion && says "$dir/err" "name one shell" && expect 2 "$ctl" completion csh &&
		expect 2 "$ctl" completion bash zsh && expect 2 "$ctl" completion bash --json &&
		expect 1 sh -c '"$0" completion bash >/dev/full' "$ctl"
}

for t in bash_proposes_commands_and_options zsh_proposes_commands_and_options fish_proposes_commands_and_options \
	bash_proposes_no_word_where_files_are_named bash_proposes_all_that_help_explains another_word_is_wrong_usage; do
	run_test $t
done
exit $failed
