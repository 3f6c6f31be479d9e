#!/bin/bash
# dsaioctl doctor: of this host and a daemon, and without one.  test_ctl_doctor has the checks on other hosts.
. "$(dirname "$0")/ctl_common.sh"

# Each WARN and FAIL has the line that mends it, and no OK has.
each_problem_has_a_remedy() {
	why="not as it should be: $(awk '
		/^      mend it: ./ { if (last !~ /^(WARN|FAIL)/) print last " / " $0; last = "mended"; next }
		last ~ /^(WARN|FAIL)/ { print last " / " $0 }
		!/^(OK  |WARN|FAIL)  [^:]+: ./ && !/^[0-9]+ WARN, [0-9]+ FAIL$/
		{ last = $0 }' "$dir/out")"
	[ "$why" = "not as it should be: " ]
}

host_and_daemon_are_checked() {
	expect 0 "$ctl" doctor && each_problem_has_a_remedy &&
		says "$dir/out" "  kernel: $(uname -r)" "  fs.aio-max-nr: " "  RLIMIT_MEMLOCK: " "  huge pages: " \
			"  RLIMIT_NOFILE: " "OK    daemon: answers" "OK    daemon's program: " "OK    clients: have the daemon's library" \
			"  store t: engine: " " at $store" " 0 FAIL"
}

# The store's device, or the one that has its partition.
the_disk_below_the_store_is_checked() {
	local disk
	disk=$(lsblk -nso NAME,TYPE -r "$(df --output=source "$store" | tail -n 1)" 2>/dev/null | awk '$2 == "disk" { print $1; exit }')
	why="needs a store on a disk"
	[ -n "$disk" ] && [ -e "/sys/block/$disk/queue/scheduler" ] || return 2
	expect 0 "$ctl" doctor && says "$dir/out" "  store t: $disk: scheduler: $(sed 's/.*\[\(.*\)\].*/\1/' "/sys/block/$disk/queue/scheduler")" \
		"  store t: $disk: write cache: $(cat "/sys/block/$disk/queue/write_cache")" \
		"  store t: $disk: alignment: off by 0 of blocks of $(cat "/sys/block/$disk/queue/logical_block_size") bytes"
}

a_client_is_counted() {
	local rc
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	expect 0 "$ctl" doctor && says "$dir/out" "OK    clients: have the daemon's library"
	rc=$?
	exec {feed}>&-
	wait "$pid" || { why="put failed"; return 1; }
	[ $rc = 0 ]
}

json_has_the_same() {
	expect 0 "$ctl" doctor && mv "$dir/out" "$dir/text" && expect 0 "$ctl" doctor --json || return 1
	why="JSON and text differ"
	[ "$(grep -c '"level": "' "$dir/out")" = "$(grep -c '^[OWF]' "$dir/text")" ] &&
		says "$dir/out" '"what": "kernel"' "\"value\": \"$(uname -r)\""
}

# A restart is due after an upgrade.
a_replaced_program_is_a_warning() {
	local other rc
	cp "$BUILD/dsaiod" "$dir/dsaiod" || return 1
	"$dir/dsaiod" --config /dev/null --socket "$dir/o.sock" --store "t=$store" 2>/dev/null &
	other=$!
	await "$other" "$ctl" status --socket "$dir/o.sock" >/dev/null 2>&1
	rm "$dir/dsaiod"
	expect 0 "$ctl" doctor --socket "$dir/o.sock" && each_problem_has_a_remedy &&
		says "$dir/out" "WARN  daemon's program: " "replaced since then" "systemctl restart dsaiod, or"
	rc=$?
	kill "$other" 2>/dev/null
	wait "$other"
	return $rc
}

without_a_daemon_the_host_is_checked() {
	expect 0 "$ctl" doctor --socket "$dir/none" && each_problem_has_a_remedy &&
		says "$dir/out" "  kernel: $(uname -r)" "WARN  daemon: connect: no daemon listens on $dir/none" "mend it: systemctl start dsaiod" &&
		says_not "$dir/out" "store t" &&
		expect 0 "$ctl" doctor --json --socket "$dir/none" && says "$dir/out" '"what": "kernel"' "$dir/none: " || return 1
	why="this host has a daemon"
	[ ! -e /run/dsaiod/dsaiod.sock ] || return 2
	mkdir -p -m 700 "$dir/runtime"
	expect 0 env -u DSAIO_SOCKET -u DSAIO_AUTOSTART XDG_RUNTIME_DIR="$dir/runtime" "$ctl" doctor &&
		says "$dir/out" "daemon: no daemon listens" || return 1
	why="something was started: $(ls "$dir/runtime")"
	[ -z "$(ls "$dir/runtime")" ]
}

wrong_usage_is_reported() {
	expect 2 "$ctl" doctor now && says "$dir/err" "now: takes no arguments" &&
		expect 2 "$ctl" doctor --private && says "$dir/err" "--private" "leave it out"
}

start_daemon
for t in host_and_daemon_are_checked the_disk_below_the_store_is_checked a_client_is_counted json_has_the_same \
	a_replaced_program_is_a_warning without_a_daemon_the_host_is_checked wrong_usage_is_reported; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
