#!/bin/bash
# dsaioctl's command line: help, versions, exit statuses, and what it says when something is wrong.
. "$(dirname "$0")/ctl_common.sh"

help_teaches_by_example() {
	expect 0 "$ctl" --help && says "$dir/out" "dsaioctl cp" "dsaioctl status" "exit status" &&
		expect 0 "$ctl" cp --help && says "$dir/out" "--verify" "exit status" &&
		expect 0 "$ctl" --help bench && says "$dir/out" "bench io" "bench sweep" &&
		expect 0 "$ctl" --help bench io && says "$dir/out" "--io_size" "--multi_process" &&
		expect 0 "$ctl" status -h && says "$dir/out" "P99" || return 1
	local command
	"$ctl" --help | sed -n '/^commands:/,/^$/s/^    \([a-z]*\) .*/\1/p' >"$dir/commands"
	while read -r command; do
		expect 0 "$ctl" "$command" --help && says "$dir/out" "dsaioctl $command" "exit status" &&
			says man/dsaioctl.1 ".Ss $command" || return 1
	done <"$dir/commands"
}

# It once lacked three of the benches.
the_synopsis_names_all_commands() {
	local command
	sed -n '/^.Sh SYNOPSIS/,/^.Sh DESCRIPTION/p' man/dsaioctl.1 >"$dir/synopsis"
	{ "$ctl" --help; "$ctl" bench --help; } | sed -nE 's/^    dsaioctl bench ([a-z]+) .*/\1/p; /^commands:/,/^$/s/^    ([a-z]+) .*/\1/p' |
		sort -u >"$dir/commands"
	why="commands: $(tr '\n' ' ' <"$dir/commands")"
	[ "$(wc -l <"$dir/commands")" -ge 14 ] || return 1
	while read -r command; do
		why="$command is missing"
		grep -qw -e "$command" "$dir/synopsis" || return 1
	done <"$dir/commands"
}

# Its options once said that --loops are loops of a point, and its text that they are times as long.
tune_explains_loops_once() {
	expect 0 "$ctl" bench tune --help && says "$dir/out" "--loops N              move N times the bytes" || return 1
	why="--loops is explained $(grep -c -e '--loops' "$dir/out") times"
	[ "$(grep -c -e --loops "$dir/out")" = 1 ]
}

version_is_reported() {
	local version
	version=$(sed -n 's/^.define DSAIO_VERSION "\(.*\)"/\1/p' client/lib/dsaio.h)
	expect 0 "$ctl" --version && says "$dir/out" "dsaioctl $version" &&
		expect 0 "$ctl" -V && says "$dir/out" "dsaioctl $version" &&
		expect 0 "$ctl" status -V && says "$dir/out" "dsaioctl $version" && expect 0 "$ctl" --version --json &&
		says "$dir/out" "\"library\": \"$version\""
}

wrong_usage_ends_with_2() {
	expect 2 "$ctl" && says "$dir/err" "dsaioctl: which command?" &&
		expect 2 "$ctl" copy a b && says "$dir/err" "dsaioctl: copy: no such command" &&
		expect 2 "$ctl" cp && says "$dir/err" "dsaioctl: cp: name two files" &&
		expect 2 "$ctl" cp a b c &&
		expect 2 "$ctl" cp --colour a b && says "$dir/err" "--colour: unknown option" &&
		expect 2 "$ctl" status extra &&
		expect 2 "$ctl" ls && expect 2 "$ctl" ls /nvme && says "$dir/err" "/nvme: is no rados://" "ls(1)" &&
		expect 2 "$ctl" rm && expect 2 "$ctl" rm rados://p/n/a b && says "$dir/err" "b: is no rados://" &&
		expect 2 "$ctl" stat && expect 2 "$ctl" stat --private rados://p/n/a && says "$dir/err" "--private" &&
		expect 2 "$ctl" cp "/x%20y" rados://p/n/ && says "$dir/err" "name the destination" &&
		expect 2 "$ctl" status --private --socket /x && says "$dir/err" "only one of them" &&
		expect 2 "$ctl" status --socket= && says "$dir/err" "--socket: its value is empty" &&
		expect 2 "$ctl" cp --socket "" a b && says "$dir/err" "--socket: its value is empty" &&
		expect 2 "$ctl" bench && says "$dir/err" "which one" "bench --help" && expect 2 "$ctl" bench no && says "$dir/err" "no: no such command"
}

# --nvme_dir takes every word up to the next option: before the command it took the command, and the
# folders "bench" and "sweep" were measured without a word.
a_list_option_before_the_command_takes_no_command() {
	local before
	mkdir "$dir/cwd" "$dir/cwd/bench" "$dir/cwd/sweep" "$dir/cwd/a" || return 1
	for before in "--nvme_dir a bench sweep" "bench --nvme_dir a sweep" "--nvme_dir a bench sweep --json"; do
		# shellcheck disable=SC2086 # words
		expect 2 env -C "$dir/cwd" "$ctl" $before && says "$dir/err" "--nvme_dir: " "stand after its name" || return 1
	done
	expect 2 "$ctl" --verify cp a b && says "$dir/err" "--verify: " "stand after its name" &&
		expect 2 "$ctl" --nonsense cp a b && says "$dir/err" "--nonsense: no option of all commands" &&
		expect 0 "$ctl" --json --socket "$dir/nobody.sock" bench --json io --help &&
		says "$dir/out" "--io_size" || return 1
	why="something was measured: $(ls -A "$dir/cwd"/*)"
	[ -z "$(find "$dir/cwd" -type f)" ]
}

without_a_daemon_it_says_what_to_do() {
	expect 3 "$ctl" status --socket "$dir/nobody.sock" &&
		says "$dir/err" "dsaioctl: status: " "$dir/nobody.sock" "--private" &&
		expect 3 "$ctl" --json status --socket "$dir/nobody.sock" &&
		says "$dir/out" '"error": "' "nobody.sock"
}

no_daemon_ends_with_3() {
	local command
	: >"$dir/file"
	echo "[a]" >"$dir/job.fio"
	for command in status stores "stores $dir" clients wear metrics "profile show" "profile set t block_size=1M" "profile reset t" \
		"cp $dir/file $dir/copy" "cat $dir/file" "put $dir/copy" "ls rados://p/n/" "rm rados://p/n/a" "stat rados://p/n/a" "cp $dir/file rados://p/n/" \
		"bench io --folder $dir --io_size 1M" \
		"bench sweep --nvme_dir $dir --log_dir $dir/log" "bench tune --nvme_dir $dir --log_dir $dir/log" \
		"bench latency --nvme_path $dir" "bench mix $dir/job.fio --dir $dir"; do
		# shellcheck disable=SC2086 # command and what follows
		expect 3 "$ctl" $command --socket "$dir/nobody.sock" || return 1
		# shellcheck disable=SC2086
		expect 0 "$ctl" $command --help || return 1
		why="$command --help does not say so"
		tr '\n' ' ' <"$dir/out" | grep -q "3 no daemon answers" || return 1
	done
	expect 2 "$ctl" status extra --socket "$dir/nobody.sock" && expect 1 "$ctl" status --socket "$dir/file"
}

a_daemon_that_cannot_be_started_ends_with_3() {
	why="this host has a daemon"
	[ ! -e /run/dsaiod/dsaiod.sock ] || return 2
	mkdir -m 700 "$dir/starts"
	: >"$dir/file"
	expect 3 env -u DSAIO_AUTOSTART XDG_RUNTIME_DIR="$dir/starts" DSAIOD="$dir/nowhere" "$ctl" cat "$dir/file" &&
		says "$dir/err" "$dir/nowhere" &&
		expect 3 env -u DSAIO_AUTOSTART XDG_RUNTIME_DIR="$dir/starts" DSAIOD=/bin/true "$ctl" cat "$dir/file" &&
		says "$dir/err" "ended at once"
}

# The kernel's answer after 30 s of a full backlog.
a_connect_that_times_out_ends_with_3() {
	why="needs strace"
	strace -qq -e trace=none true 2>/dev/null || return 2
	# A leak check cannot run while traced.
	expect 3 env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" strace -qq -o /dev/null -e trace=connect \
		-e inject=connect:error=EAGAIN "$ctl" status --socket "$dir/nobody.sock" &&
		says "$dir/err" "has taken no connection for 30 s"
}

# Where programs would start a daemon of the user's own.
looking_starts_no_daemon() {
	local command
	why="this host has a daemon"
	[ ! -e /run/dsaiod/dsaiod.sock ] || return 2
	mkdir -m 700 "$dir/runtime"
	for command in status stores clients "profile show" "drain t" "kill 1"; do
		# shellcheck disable=SC2086 # command and what follows
		expect 3 env -u DSAIO_AUTOSTART XDG_RUNTIME_DIR="$dir/runtime" "$ctl" $command &&
			says "$dir/err" "no daemon listens, and this command starts none" || return 1
		# A drain is of no use there.
		[[ $command = @(drain|kill)* ]] || says "$dir/err" "--private" || return 1
	done
	why="something was started: $(ls "$dir/runtime")"
	[ -z "$(ls "$dir/runtime")" ]
}

# A daemon in its stop listens no more, and holds the lock.  Here the test holds it.
a_daemon_in_its_stop_is_possible() {
	local lock=$dir/stopping/dsaiod/dsaiod.sock.lock fd command
	why="this host has a daemon"
	[ ! -e /run/dsaiod/dsaiod.sock ] || return 2
	mkdir -m 700 "$dir/stopping" "$dir/stopping/dsaiod"
	: >"$lock"
	exec {fd}<"$lock"
	flock "$fd" || return 1
	for command in status stores clients "profile show" "drain t" "kill 1"; do
		# shellcheck disable=SC2086 # command and what follows
		expect 3 env -u DSAIO_AUTOSTART XDG_RUNTIME_DIR="$dir/stopping" "$ctl" $command &&
			says "$dir/err" "is stopping" &&
			says_not "$dir/err" "no daemon runs" || return 1
	done
	exec {fd}<&-
	why="something was started: $(ls "$dir/stopping/dsaiod")"
	[ "$(ls "$dir/stopping/dsaiod")" = dsaiod.sock.lock ]
}

a_full_standard_output_is_an_error() {
	"$ctl" --help >/dev/full 2>"$dir/err"
	[ $? = 1 ] && says "$dir/err" "standard output"
}

torch_only_flags_end_with_2_and_one_message() {
	local flag base=(bench io --folder "$dir" --io_size 1M)
	for flag in "--engine torch_io" "--engine=aio_basic" --torch_legacy_save "--fast_io_size 64M" \
		--use_accelerator_pin_memory --slow_bounce_buffer --use-gds; do
		# shellcheck disable=SC2086 # flag and value are two words
		expect 2 "$ctl" "${base[@]}" $flag || return 1
		[ "$(wc -l <"$dir/err")" = 1 ] || { why="$flag: more than one line"; return 1; }
		flag=${flag%%[ =]*}
		says "$dir/err" "$(printf '%s' "${flag//-/_}" | sed 's/^__/--/')" || return 1
	done
}

bench_checks_its_options() {
	expect 2 "$ctl" bench io --io_size 1M && says "$dir/err" "--dir" "--folder_to_device_mapping" &&
		expect 2 "$ctl" bench latency && says "$dir/err" "--dir" &&
		expect 2 "$ctl" bench sweep --dir "$dir" --parallel 65 && says "$dir/err" "--parallel 65" "from 1 to 64" &&
		expect 2 "$ctl" bench io --folder "$dir" && says "$dir/err" "--io_size" &&
		expect 2 "$ctl" bench io --folder "$dir" --folder_to_device_mapping "$dir:0" --io_size 1M &&
		expect 2 "$ctl" bench io --folder_to_device_mapping "$dir" --io_size 1M &&
		says "$dir/err" "FOLDER:DEVICE" &&
		expect 2 "$ctl" bench io --folder "$dir" --io_size 1M --queue_depth 5000 &&
		says "$dir/err" "queue_depth 5000" "4096" &&
		expect 2 "$ctl" bench io --folder "$dir" --io_size 1M --block_size 5000 &&
		says "$dir/err" "block_size 5000" &&
		expect 2 "$ctl" bench io --folder "$dir" --io-size 1M --io-parallel 65 &&
		says "$dir/err" "intra_op_parallelism 65" &&
		expect 1 "$ctl" bench io --folder "$dir/missing" --io_size 1M &&
		says "$dir/err" "$dir/missing" "No such file"
}

for t in help_teaches_by_example the_synopsis_names_all_commands tune_explains_loops_once version_is_reported wrong_usage_ends_with_2 \
	a_list_option_before_the_command_takes_no_command without_a_daemon_it_says_what_to_do \
	no_daemon_ends_with_3 a_daemon_that_cannot_be_started_ends_with_3 a_connect_that_times_out_ends_with_3 looking_starts_no_daemon \
	a_daemon_in_its_stop_is_possible a_full_standard_output_is_an_error \
	torch_only_flags_end_with_2_and_one_message bench_checks_its_options; do
	run_test $t
done
exit $failed
