#!/bin/bash
# Input and output of dsaioctl: sizes as it prints them, names with control characters, and a
# log of the library that cannot be written.
. "$(dirname "$0")/ctl_common.sh"

no_escape() { # FILE
	why="a raw control character in $1: $(head -c 200 "$1" | cat -v)"
	! grep -q $'[\033\r]' "$1"
}

raw_escapes_in_file_names_do_not_reach_the_terminal() {
	local evil=$store/$'a\033[31mb\rc'
	random_file "$evil" 5000
	expect 0 "$ctl" cp "$evil" "$evil.copy" && no_escape "$dir/out" && says "$dir/out" 'a\x1b[31mb\x0dc' || return 1
	expect 1 "$ctl" cat "$evil.none" && no_escape "$dir/err" && says "$dir/err" 'a\x1b[31mb\x0dc.none' || return 1
	expect 2 "$ctl" bench io --folder "$store" --io_size $'\033[1m' && no_escape "$dir/err" || return 1
	"$ctl" put "$evil.put" <"$evil" >"$dir/out" 2>"$dir/err" || return 1
	no_escape "$dir/out" && says "$dir/out" '\x1b[31m' || return 1
	expect 0 "$ctl" cp --json "$evil" "$evil.copy" && no_escape "$dir/out" && says "$dir/out" '\u001b[31m'
}

sizes_are_taken_as_they_are_printed() {
	expect 0 "$ctl" bench io --folder "$store" --io_size 64KiB --block_size 16kib --loops 1 &&
		expect 0 "$ctl" profile set t block_size=1MiB && says "$dir/out" "1 MiB" &&
		expect 0 "$ctl" profile reset t &&
		expect 2 "$ctl" bench io --folder "$store" --io_size 64KB && says "$dir/err" "--io_size 64KB" "1MiB"
}

a_log_of_the_library_that_cannot_be_written_is_reported() {
	DSAIO_DEBUG=$dir/none/debug expect 0 "$ctl" status &&
		says "$dir/err" "DSAIO_DEBUG=$dir/none/debug: No such file or directory" "nothing is logged" || return 1
	DSAIO_DEBUG=$dir/debug expect 0 "$ctl" status || return 1
	why="printed without a cause, or nothing was logged: $(cat "$dir/err")"
	[ ! -s "$dir/err" ] && [ -s "$dir/debug" ]
}

start_daemon
for t in raw_escapes_in_file_names_do_not_reach_the_terminal sizes_are_taken_as_they_are_printed \
	a_log_of_the_library_that_cannot_be_written_is_reported; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
