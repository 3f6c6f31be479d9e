#!/bin/bash
# dsaioctl drain: its exit status and messages, and the rights that it needs.  fault/umount.c unmounts.
. "$(dirname "$0")/ctl_common.sh"

without_files_it_is_done() {
	expect 0 "$ctl" drain t && says "$dir/out" "store t ($store): 0 idle files closed" && says_not "$dir/out" CLIENT &&
		expect 0 "$ctl" drain "$store/" && expect 0 "$ctl" drain t --json &&
		says "$dir/out" '"store": "t"' '"closed": 0' '"closing": 0' '"files": 0' '"clients": [' '"clients_total": 0'
}

a_client_with_a_file_in_use_is_named() {
	local rc
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	expect 1 "$ctl" drain t && says "$dir/out" "CLIENT" "dsaioctl" "$pid" &&
		says "$dir/err" "1 file of clients there is still open"
	rc=$?
	[ $rc = 0 ] && { expect 1 "$ctl" drain t --json && says "$dir/out" "\"pid\": $pid" '"files": 1'; rc=$?; }
	exec {feed}>&-
	wait "$pid" || { why="put failed"; return 1; }
	[ $rc = 0 ] && expect 0 "$ctl" drain t
}

wrong_usage_is_reported() {
	expect 2 "$ctl" drain && says "$dir/err" "name one store" && expect 2 "$ctl" drain t t &&
		expect 2 "$ctl" drain "" && says "$dir/err" "empty" &&
		expect 2 "$ctl" drain t --private && says "$dir/err" "--private" "leave it out" &&
		expect 1 "$ctl" drain nosuch && says "$dir/err" "nosuch" &&
		expect 1 "$ctl" drain "$store/none" && says "$dir/err" "$store/none: No such file" &&
		expect 1 "$ctl" drain /proc && says "$dir/err" "on proc, a pseudo file system"
}

without_a_daemon_private_is_no_advice() {
	expect 3 "$ctl" drain t --socket "$dir/none" && says "$dir/err" "no daemon listens" && says_not "$dir/err" "--private" &&
		expect 3 env -u DSAIO_SOCKET XDG_RUNTIME_DIR="$dir" "$ctl" drain t && says_not "$dir/err" "--private" &&
		expect 3 "$ctl" status --socket "$dir/none" && says "$dir/err" "--private"
}

others_may_not() {
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" drain t && says "$dir/err" "dsaioctl: drain: " "administrators" "dsaio_file_drop()"
}

start_daemon
for t in without_files_it_is_done a_client_with_a_file_in_use_is_named wrong_usage_is_reported without_a_daemon_private_is_no_advice others_may_not; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
