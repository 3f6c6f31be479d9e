#!/bin/bash
# dsaioctl kill: the client's message, its exit status and messages, and the rights that it needs.
. "$(dirname "$0")/ctl_common.sh"

# number_of PID
number_of() {
	"$ctl" clients | awk -v pid="$1" '$3 == pid { print $1; exit }'
}

a_client_that_is_killed_says_why() {
	local number rc
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	number=$(number_of "$pid")
	expect 0 "$ctl" kill "$number" --reason "wrong disk: ask Ann" && says "$dir/out" "client $number (pid $pid, dsaioctl): ended"
	rc=$?
	head -c 40000000 /dev/zero >&"$feed" 2>/dev/null
	exec {feed}>&-
	wait "$pid"
	why="put ended with $?"
	[ "$rc" = 0 ] && says "$dir/daemon.log" "client $number (pid $pid, dsaioctl): an administrator (uid $(id -u)) has ended this session: wrong disk: ask Ann" &&
		expect 1 "$ctl" kill "$number" && says "$dir/err" "client $number: there is none of that number"
}

put_says_why() {
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	cp "$dir/err" "$dir/before"
	"$ctl" kill "$(number_of "$pid")" --reason "wrong disk" >/dev/null || { why="kill failed"; return 1; }
	head -c 40000000 /dev/zero >&"$feed" 2>/dev/null
	exec {feed}>&-
	wait "$pid" && { why="put succeeded"; return 1; }
	says "$dir/err" "an administrator (uid $(id -u)) has ended this session: wrong disk"
}

wrong_usage_is_reported() {
	expect 2 "$ctl" kill && says "$dir/err" "name a client" && expect 2 "$ctl" kill x && expect 2 "$ctl" kill 1 2 &&
		expect 2 "$ctl" kill 0 && expect 2 "$ctl" kill 4294967296 && expect 2 "$ctl" kill 1 --reason "" &&
		expect 2 "$ctl" kill 1 --private && says "$dir/err" "leave it out" &&
		expect 3 "$ctl" kill 1 --socket "$dir/none" && says "$dir/err" "no daemon listens"
}

others_may_not() {
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" kill 1 && says "$dir/err" "dsaioctl: kill: " "administrators"
}

start_daemon
for t in a_client_that_is_killed_says_why put_says_why wrong_usage_is_reported others_may_not; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
