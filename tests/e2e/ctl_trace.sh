#!/bin/bash
# The flight recorder and dsaioctl trace: the files of a daemon that crashes, and the users that may read them.
TMPDIR=/dev/shm
. "$(dirname "$0")/ctl_common.sh"
ulimit -c 0

random_file "$store/a" 100000
random_file "$store/small" 5000
run_ops() { expect 0 "$ctl" cp "$store/a" "$store/b"; }

# lacks_tmpfs: where sockets lie must be tmpfs.
lacks_tmpfs() {
	why="/dev/shm is no tmpfs"
	[ "$(stat -f -c %T "$dir")" != tmpfs ]
}

# die SIGNAL
die() {
	kill -s "$1" "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
}

recordings() {
	find "$dir" -maxdepth 1 -name "s.sock.$1.*" | sort | tr '\n' ' '
}

# has_op EXPRESSION: the JSON in $dir/out has an op for which the Python expression of e is true.
has_op() {
	why="no op with $1 in: $(head -c 600 "$dir/out" | tr '\n' ' ')"
	python3 -c 'import json, sys
sys.exit(not any(eval(sys.argv[2]) for e in json.load(open(sys.argv[1]))["ops"]))' "$dir/out" "$1"
}

# The stages of an op are its time.
ops_are_shown_with_their_stages() {
	local sum='e["queue_nsec"] + e["device_nsec"] + e["delivery_nsec"] == e["total_nsec"] > 0'
	lacks_tmpfs && return 2
	command -v python3 >/dev/null || return 2
	start_daemon && run_ops && expect 0 "$ctl" trace && says "$dir/out" "QUEUE" "TOTAL" "97.7 KiB" || return 1
	expect 0 "$ctl" trace --json && has_op "e['what'] == 'read' and e['bytes'] == 100000 and e['error'] is None and $sum" &&
		has_op "e['what'] == 'write' and $sum" || return 1
	why="an op is open, or they are not in order"
	! has_op 'e["is_open"]' && python3 -c 'import json, sys
times = [e["time_nsec"] for e in json.load(open(sys.argv[1]))["ops"]]
sys.exit(times != sorted(times))' "$dir/out"
}

# rows EXPRESSION [OPTION]...: all ops that these options choose fulfil it, and there is one.
rows() {
	local that=$1
	shift
	expect 0 "$ctl" trace --json "$@" || return 1
	why="not only $that, or none: $(head -c 600 "$dir/out" | tr '\n' ' ')"
	python3 -c 'import json, sys
ops = json.load(open(sys.argv[1]))["ops"]
sys.exit(not ops or not all(eval(sys.argv[2]) for e in ops))' "$dir/out" "$that"
}

no_rows() {
	expect 0 "$ctl" trace "$@" && says "$dir/out" "no ops"
}

ops_are_chosen_by_what_they_are() {
	local pid
	lacks_tmpfs && return 2
	command -v python3 >/dev/null || return 2
	start_daemon && run_ops || return 1
	"$ctl" cat "$store/small" >/dev/null &
	pid=$!
	wait "$pid" && rows "e['pid'] == $pid and e['bytes'] == 5000" --pid "$pid" && no_rows --pid "$$" &&
		rows "e['uid'] == $(id -u)" --user "$(id -u)" && rows "e['uid'] == $(id -u)" --user "$(id -un)" && no_rows --user 4242 &&
		rows 'e["total_nsec"] >= 1000' --slower 1us && no_rows --slower 1000s && no_rows --errors && rows 'e["store"] == "t"' --store t
}

ops_of_a_killed_daemon_are_shown() {
	local victim
	lacks_tmpfs && return 2
	command -v python3 >/dev/null || return 2
	start_daemon && victim=$daemon && expect 0 "$ctl" cat "$store/a" && expect 0 "$ctl" trace &&
		says "$dir/out" "with pid $victim: TIME is before now" "read " "97.7 KiB" || return 1
	die KILL
	# Nobody has started another one yet.
	expect 0 "$ctl" trace --last-crash && says "$dir/out" "with pid $victim was killed" "97.7 KiB" || return 1
	start_daemon 2>"$dir/start.log" && says "$dir/start.log" "dsaioctl trace --last-crash --socket $dir/s.sock" && expect 1 "$ctl" trace && says "$dir/err" "dsaioctl trace --last-crash" &&
		expect 0 "$ctl" cat "$store/small" && expect 0 "$ctl" trace --json && says_not "$dir/out" '"length": 100000' &&
		expect 0 "$ctl" trace --last-crash --json && says "$dir/out" "\"pid\": $victim" '"is_crash": true' &&
		has_op 'e["what"] == "read" and e["bytes"] == e["length"] == 100000 and e["error"] is None and not e["is_open"]' || return 1
	stop_daemon || { why="exit status $? of the stop"; return 1; }
}

an_orderly_stop_leaves_no_files_and_keeps_the_last_crash() {
	lacks_tmpfs && return 2
	start_daemon && run_ops || return 1
	why="no file of its own: $(recordings trace)"
	[ -n "$(recordings trace)" ] || return 1
	die KILL
	start_daemon && run_ops && stop_daemon
	why="left: $(recordings trace); last crash: $(recordings last-crash)"
	[ -z "$(recordings trace)" ] && [ "$(recordings last-crash)" = "$dir/s.sock.last-crash.0 " ]
}

a_signal_of_a_crash_is_named() {
	lacks_tmpfs && return 2
	start_daemon && run_ops || return 1
	die ABRT
	expect 0 "$ctl" trace --last-crash && says "$dir/out" "crashed (SIGABRT) at " &&
		expect 0 "$ctl" trace --last-crash --json && says "$dir/out" '"signal": 6'
}

# The op whose block never comes back is taken, and not ended.
an_open_op_of_a_killed_daemon_is_shown() {
	local client plan=$dir/plan
	lacks_tmpfs && return 2
	why="needs root"
	[ "$(id -u)" = 0 ] || return 2
	# struct fault_plan: serial 1, FAULT_NEVER, reads, of both engines, the next 255
	printf '\1\0\0\0\5\0\0\0\0\0\0\0\1\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\377\0\0\0\0\0\0\0' >"$plan"
	start_daemon --fault-plan "$plan" || return 1
	DSAIO_RECONNECT=0 "$ctl" cat "$store/a" >/dev/null 2>&1 &
	client=$!
	has_block() { expect 0 "$ctl" trace --json && has_op 'e["queue_nsec"] is not None'; }
	await "$client" has_block || return 1
	die KILL
	wait "$client" 2>/dev/null
	expect 0 "$ctl" trace --last-crash --json &&
		has_op "e['pid'] == $client and e['is_open'] and e['length'] == 100000 and e['bytes'] == 0 and e['delivery_nsec'] is None" &&
		expect 0 "$ctl" trace --last-crash && says "$dir/out" "  open"
}

store_and_number_choose_ops() {
	lacks_tmpfs && return 2
	start_daemon && run_ops && expect 0 "$ctl" cat "$store/a" &&
		expect 0 "$ctl" trace -n 2 && says "$dir/out" "showing the last 2 of " || return 1
	why="lines: $(cat "$dir/out")"
	[ "$(grep -c ' t  ' "$dir/out")" = 2 ] && expect 0 "$ctl" trace --store t --json -n 1 &&
		expect 0 "$ctl" trace --store nvme9 && says "$dir/out" "no ops" || return 1
	stop_daemon
}

another_user_is_refused() {
	lacks_tmpfs && return 2
	start_daemon && run_ops || return 1
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" trace && says "$dir/err" "only root" "may read it" || return 1
	why="mode: $(stat -c %a "$dir/s.sock.trace.0")"
	[ "$(stat -c %a "$dir/s.sock.trace.0")" = 600 ] || return 1
	die KILL
	start_daemon && chmod 666 "$dir/s.sock" && expect 1 "${nobody[@]}" "$ctl" trace --last-crash &&
		says "$dir/err" "only root" "may read it" && stop_daemon
}

# Nobody may make dsaioctl wait, or believe bytes.
files_of_a_stranger_are_refused() {
	lacks_tmpfs && return 2
	rm -f "$dir"/s.sock.*
	mkfifo "$dir/s.sock.trace.0"
	random_file "$dir/s.sock.trace.1" 5000
	ln -s /etc/passwd "$dir/s.sock.trace.2"
	expect 1 "$ctl" trace --socket "$dir/s.sock" && says "$dir/err" "s.sock.trace.0 is no file" || return 1
	rm "$dir/s.sock.trace.0"
	expect 1 "$ctl" trace --socket "$dir/s.sock" && says "$dir/err" "s.sock.trace.1 is no file" || return 1
	: >"$dir/s.sock.trace.1"
	expect 1 "$ctl" trace --socket "$dir/s.sock" && says "$dir/err" "s.sock.trace.2: Too many levels" || return 1
	rm "$dir/s.sock.trace.2"
	expect 1 "$ctl" trace --socket "$dir/s.sock" && says "$dir/err" "nothing is recorded" || return 1
	rm -f "$dir"/s.sock.*
}

# A directory where its file would be: it serves nevertheless, and says so once.
a_daemon_that_cannot_record_serves() {
	lacks_tmpfs && return 2
	start_daemon && mkdir "$dir/s.sock.trace.0" && run_ops && run_ops || return 1
	stop_daemon || { why="exit status $? of the stop"; return 1; }
	rmdir "$dir/s.sock.trace.0"
	why="log: $(cat "$dir/daemon.log")"
	[ "$(grep -c 'no flight recorder' "$dir/daemon.log")" = 1 ]
}

on_a_disk_there_is_no_recorder() {
	local disk
	disk=$(mktemp -d /var/tmp/dsaio-ctl-XXXXXX) || return 1
	why="/var/tmp is on tmpfs"
	[ "$(stat -f -c %T "$disk")" != tmpfs ] || { rmdir "$disk"; return 2; }
	"$BUILD/dsaiod" --config /dev/null --socket "$disk/s.sock" --store "t=$store" 2>"$disk/log" &
	daemon=$!
	await "$daemon" "$ctl" status --socket "$disk/s.sock" >/dev/null 2>&1
	expect 0 "$ctl" cp --socket "$disk/s.sock" "$store/a" "$store/b" && expect 1 "$ctl" trace --socket "$disk/s.sock" &&
		says "$disk/log" "no flight recorder: $disk is not on tmpfs" && stop_daemon
	local rc=$?
	rm -rf "$disk"
	return $rc
}

where_others_may_write_there_is_no_recorder() {
	lacks_tmpfs && return 2
	chmod 1777 "$dir" && start_daemon && run_ops && expect 1 "$ctl" trace && says "$dir/err" "nothing is recorded" &&
		[ ! -e "$dir/s.sock.trace.0" ] && stop_daemon
	local rc=$?
	chmod 755 "$dir"
	return $rc
}

a_private_daemon_leaves_nothing() {
	lacks_tmpfs && return 2
	mkdir -m 700 "$dir/runtime"
	expect 0 env -u DSAIO_SOCKET XDG_RUNTIME_DIR="$dir/runtime" DSAIOD="$BUILD/dsaiod" "$ctl" cp --private "$store/a" "$store/d" || return 1
	why="left: $(find "$dir/runtime")"
	[ -z "$(ls -A "$dir/runtime")" ]
}

its_usage_is_checked() {
	expect 2 "$ctl" trace extra && expect 2 "$ctl" trace --private && says "$dir/err" "--private" &&
		expect 2 "$ctl" trace -n 0 && expect 2 "$ctl" trace --slower 10m && says "$dir/err" "10ms" && expect 2 "$ctl" trace --slower -1s &&
		expect 1 "$ctl" trace --user nobody-here && says "$dir/err" "no such user" &&
		expect 1 "$ctl" trace --socket "$dir/none/s.sock" && says "$dir/err" "nothing is recorded" &&
		expect 1 "$ctl" trace --last-crash --socket "$dir/none/s.sock" && says "$dir/err" "no daemon has crashed" &&
		expect 1 "$ctl" --json trace --socket "$dir/none/s.sock" && says "$dir/out" '"error": "'
}

for t in ops_are_shown_with_their_stages ops_are_chosen_by_what_they_are ops_of_a_killed_daemon_are_shown an_orderly_stop_leaves_no_files_and_keeps_the_last_crash a_signal_of_a_crash_is_named \
	an_open_op_of_a_killed_daemon_is_shown store_and_number_choose_ops another_user_is_refused \
	files_of_a_stranger_are_refused a_daemon_that_cannot_record_serves on_a_disk_there_is_no_recorder \
	where_others_may_write_there_is_no_recorder \
	a_private_daemon_leaves_nothing its_usage_is_checked; do
	run_test $t
	stop_daemon >/dev/null
done
exit $failed
