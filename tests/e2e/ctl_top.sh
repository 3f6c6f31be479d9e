#!/bin/bash
# dsaioctl top in a terminal of tmux: what it shows, its keys, and how it ends.
. "$(dirname "$0")/ctl_common.sh"

n_terminals=0
tmux=(:)
trap '"${tmux[@]}" kill-server 2>/dev/null; finish' EXIT

# in_terminal COMMAND: a new terminal of 80x24 that runs it, and shows its exit status.
in_terminal() {
	"${tmux[@]}" kill-server 2>/dev/null
	n_terminals=$((n_terminals + 1))
	tmux=(tmux -S "$dir/tmux$n_terminals" -f /dev/null) # the last server may still be ending
	"${tmux[@]}" new-session -d -x 80 -y 24 \
		"trap : INT; stty -g >$dir/before; $1; rc=\$?; stty -g >$dir/after; echo ended with \$rc; exec cat" \
		2>"$dir/err" || { why="tmux: $(cat "$dir/err")"; return 1; }
}

# The screen, with lines that did not fit joined again.
screen() {
	"${tmux[@]}" capture-pane -p -J
}

# eventually COMMAND...: until it succeeds.  $why is the screen at the end.
eventually() {
	local end=$((SECONDS + 20 * ${TEST_TIME_FACTOR:-1}))
	until screen >"$dir/screen" && "$@"; do
		[ $SECONDS -lt $end ] || { why="not so: $*: $(cat "$dir/screen")"; return 1; }
		read -rt 0.02 <> <(:)
	done
	return 0
}

# shows PATTERN...: the screen has each of them at some time.
shows() {
	local pattern
	for pattern; do
		eventually grep -qE -e "$pattern" "$dir/screen" || return 1
	done
}

shows_no() {
	lacks() { ! grep -qE -e "$1" "$dir/screen"; }
	eventually lacks "$1"
}

keys() {
	"${tmux[@]}" send-keys "$@"
}

# is_above FIRST SECOND: the order of two rows.
is_above() {
	first_is() { grep -nE -e "$1|$2" "$dir/screen" | head -n 1 | grep -qE -e "$1"; }
	eventually first_is "$@"
}

# A put that waits for bytes, whose name would clear the screen: $pid.  Its user sees it, and what it does.
evil() {
	exec -a $'evil\033[2Jname' "$ctl" "$@"
}

it_is_for_a_terminal() {
	expect 1 "$ctl" top && says "$dir/err" "must be a terminal" "dsaioctl status" &&
		expect 2 "$ctl" top --json && says "$dir/err" "dsaioctl status --json" &&
		expect 2 "$ctl" top --private && says "$dir/err" "leave it out" &&
		expect 2 "$ctl" top x && expect 2 "$ctl" top --interval 99
}

a_terminal_or_daemon_that_is_not_there_is_reported() {
	in_terminal "TERM=none $ctl top" && shows "TERM=none: no such terminal" "ended with 1" &&
		in_terminal "$ctl top --socket $dir/nobody.sock" && shows "no daemon listens" "ended with 3"
}

it_shows_stores_and_clients() {
	in_terminal "$ctl top --interval 100" &&
		shows "^healthy" "^3 clients, by bandwidth" "^STORE +READ/s WRITE/s" \
			"^disk9 +0 +[1-9]" "^CLIENT +PID USER" "^ *[0-9]+ +[0-9]+ .* +0 +[1-9].* dsaioctl$" "^q quit" || return 1
	shows "evil\?\[2Jname" || return 1 # and the rest is still there:
	shows "^CLIENT" || return 1
	why="lines that are too long: $(cat "$dir/screen")"
	! grep -qE '.{81}' "$dir/screen"
}

# One client writes; by errors, all are the same, and the one with the lowest number is the first.
it_sorts() {
	local busy=" 0 +[1-9][0-9.KMG]* +[0-9.]+K? +[0-9.]+ .?s .*dsaioctl$" idle=" 0 +0 +0 .*(dsaioctl|evil)"
	is_above "$busy" "$idle" && keys e && shows "by errors" && is_above "$idle" "$busy" && keys i &&
		shows "by IOPS" && is_above "$busy" "$idle" && keys p && shows "by P99" && keys b && shows "by bandwidth"
}

it_filters() {
	keys / && shows "whose user or command has" "^> *$" && keys evilx BSpace Enter && shows "only: evil$" &&
		shows_no " dsaioctl$" && shows "evil\?" &&
		keys / Enter && shows_no "only: "
}

# acts TEXT KEYS...: the last line says so.
acts() {
	local text=$1
	shift
	keys "$@" Enter && shows "^$text"
}

selected() {
	keys / Enter / evil Enter && shows "only: evil" " evil\?" && shows_no " dsaioctl$" || return 1
	number=$(sed -nE 's/^ *([0-9]+) .* evil\?.*/\1/p' "$dir/screen")
}

weights_and_limits_are_set() {
	local number
	selected && keys w && shows "^client $number, process $pid, evil.*: weight: 1 to 16" && keys 99 Enter &&
		shows "^99: must be 1 to 16" && keys l && shows "^client $number, .*: limit: bytes" && keys nonsense Enter &&
		shows "^nonsense: must be bytes" && acts "client $number: weight 4" w 4 &&
		acts "client $number: limit 100M 500" l "100M 500" && expect 0 "$ctl" limit &&
		says "$dir/out" "client" "100 MiB/s" " 500 " " 4" &&
		acts "client $number: limit 0" l 0 && expect 0 "$ctl" limit && says "$dir/out" " 4" && says_not "$dir/out" "MiB/s"
}

a_client_is_killed_after_a_confirmation() {
	local number
	selected && keys k && shows "^client $number, process $pid, evil.*: kill\? \(yes\)" && keys no Enter &&
		shows "^nothing was killed" && keys k Enter && shows "^q quit" && acts "client $number: killed" k yes || return 1
	shows_no "^ *[0-9]+ +[0-9]+ .* evil\?"
}

it_follows_the_size_of_the_terminal() {
	keys / Enter
	"${tmux[@]}" resize-window -x 120 -y 40
	at_line() { sed -n "$1p" "$dir/screen" | grep -q "^q quit"; } # the last line of the screen
	eventually at_line 40 || return 1
	"${tmux[@]}" resize-window -x 40 -y 8
	eventually at_line 8 || return 1
	why="lines that are too long: $(cat "$dir/screen")"
	! grep -qE '.{41}' "$dir/screen" || return 1
	"${tmux[@]}" resize-window -x 80 -y 24
	eventually at_line 24
}

it_waits_for_the_next_daemon() {
	stop_daemon
	shows "^no daemon: .*no daemon listens" || return 1
	start_daemon && shows "^healthy" "^disk9 "
}

# A stopped daemon answers nothing; the keys still work.
it_does_not_hang_with_the_daemon() {
	local rc
	kill -STOP "$daemon"
	shows "^status: the daemon has not answered in time; before that: " && keys / && shows "whose user or command has" "^> *$"
	rc=$?
	keys Enter
	kill -CONT "$daemon"
	[ $rc = 0 ] && shows_no "has not answered"
}

it_quits_and_leaves_the_terminal_as_it_was() {
	keys q && shows "^ended with 0" && same "$dir/before" "$dir/after" || return 1
	in_terminal "$ctl top" && shows "^q quit" && keys / && shows "^>" && keys C-c && shows "^ended with 130" && same "$dir/before" "$dir/after"
}

others_see_their_own_clients() {
	as_nobody || return 2
	in_terminal "${nobody[*]} $ctl top --interval 100" && shows "^disk9 " "^CLIENT" "^q quit" || return 1
	why="a client of another user: $(cat "$dir/screen")"
	! grep -qE " (dsaioctl|evil.*)$" "$dir/screen" && keys k && shows "^q quit" && keys q && shows "^ended with 0"
}

if ! command -v tmux >/dev/null; then
	echo "skip ctl: top: needs tmux"
	exit 0
fi
printf '[store disk9]\npath = %s\n' "$store" >"$dir/dsaiod.conf"
start_daemon
run_test it_is_for_a_terminal
run_test a_terminal_or_daemon_that_is_not_there_is_reported
"$ctl" bench io --folder "$store" --io_size 4M --loops 1000000 >/dev/null 2>&1 &
client=$!
await "$client" writers_are 1
begin_put evil put "$store/f" || { echo "not ok ctl: a client starts: $(cat "$dir/err")"; failed=1; }
for t in it_shows_stores_and_clients it_sorts it_filters weights_and_limits_are_set \
	a_client_is_killed_after_a_confirmation it_follows_the_size_of_the_terminal; do
	run_test $t
done
kill "$client" "$pid" 2>/dev/null
wait "$client" "$pid" 2>/dev/null
run_test it_waits_for_the_next_daemon
run_test it_does_not_hang_with_the_daemon
run_test it_quits_and_leaves_the_terminal_as_it_was
run_test others_see_their_own_clients
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
