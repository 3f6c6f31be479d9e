#!/bin/bash
# dsaioctl drain: its exit status and messages, and the rights that it needs.  fault/umount.c unmounts.
. "$(dirname "$0")/ctl_common.sh"

without_files_it_is_done() {
	expect 0 "$ctl" drain --once t && says "$dir/out" "store t ($store): 0 idle files closed" && says_not "$dir/out" CLIENT &&
		expect 0 "$ctl" drain --once "$store/" && expect 0 "$ctl" drain --once t --json &&
		says "$dir/out" '"store": "t"' '"closed": 0' '"closing": 0' '"files": 0' '"clients": [' '"clients_total": 0'
}

a_client_with_a_file_in_use_is_named() {
	local rc
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	expect 1 "$ctl" drain --once t && says "$dir/out" "CLIENT" "dsaioctl" "$pid" &&
		says "$dir/err" "1 file of clients there is still open"
	rc=$?
	[ $rc = 0 ] && { expect 1 "$ctl" drain --once t --json && says "$dir/out" "\"pid\": $pid" '"files": 1'; rc=$?; }
	exec {feed}>&-
	wait "$pid" || { why="put failed"; return 1; }
	[ $rc = 0 ] && expect 0 "$ctl" drain --once t
}

# The next op of a program that writes there fails, and its message says why.
a_drained_store_refuses_files_and_ops() {
	local rc
	begin_put "$ctl" put "$store/g" || { why="put has ended"; return 1; }
	expect 1 "$ctl" drain t && says "$dir/out" "takes no new op" "$pid" && says "$dir/err" "1 file of clients there is still open"
	rc=$?
	"$ctl" put "$store/h" <<<hello >"$dir/put.out" 2>"$dir/put.err"
	[ $? = 1 ] && [ $rc = 0 ] && says "$dir/put.err" "store t is drained" "dsaioctl undrain t"
	rc=$?
	# The other put has one file for output and errors of all that this test has run.
	exec {feed}>&-
	wait "$pid"
	why="the put that had begun: exit status $?"
	[ $rc = 0 ] && [ ! -e "$store/g" ] && expect 0 "$ctl" drain t && expect 0 "$ctl" stores t --json && says "$dir/out" '"is_drained": true' &&
		expect 0 "$ctl" stores && says "$dir/out" DRAINED yes && expect 0 "$ctl" status && says "$dir/out" "store t is drained"
}

a_drain_outlives_the_daemon() {
	stop_daemon || { why="exit status $?"; return 1; }
	start_daemon
	expect 1 "$ctl" put "$store/h" && says "$dir/err" "store t is drained" &&
		expect 0 "$ctl" undrain t && says "$dir/out" "store t ($store): is served again" && expect 0 "$ctl" put "$store/h" || return 1
	expect 0 "$ctl" drain t && expect 0 "$ctl" undrain "$store" --json && says "$dir/out" '"store": "t"' || return 1
	stop_daemon || { why="exit status $?"; return 1; }
	start_daemon
	expect 0 "$ctl" put "$store/h"
}

wrong_usage_is_reported() {
	expect 2 "$ctl" drain && says "$dir/err" "name one store" && expect 2 "$ctl" drain t t &&
		expect 2 "$ctl" undrain && says "$dir/err" "dsaioctl undrain STORE" &&
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
	expect 1 "${nobody[@]}" "$ctl" drain t && says "$dir/err" "dsaioctl: drain: " "administrators" "dsaio_file_drop()" &&
		expect 1 "${nobody[@]}" "$ctl" undrain t && says "$dir/err" "dsaioctl: undrain: " "administrators" &&
		expect 0 "$ctl" stores --json && says "$dir/out" '"is_drained": false'
}

start_daemon
for t in without_files_it_is_done a_client_with_a_file_in_use_is_named a_drained_store_refuses_files_and_ops \
	a_drain_outlives_the_daemon wrong_usage_is_reported without_a_daemon_private_is_no_advice others_may_not; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
