#!/bin/bash
# dsaioctl status, stores and clients: their output, and the rights it needs.
. "$(dirname "$0")/ctl_common.sh"

# A client of ours that stays, with a handle and memory, until stop_client; the bench itself, which
# looks at the stores, is a second one.
start_client() {
	"$ctl" bench io --folder "$store" --io_size 4M --loops 1000000 >/dev/null 2>&1 &
	client=$!
	why="the client wrote nothing"
	await "$client" writers_are 1
}

stop_client() {
	kill "$client"
	wait "$client" 2>/dev/null
}

# The rows have 80 columns; the lines above them may have more.  On a busy machine no op may end in a while.
status_shows_who_uses_the_disk() {
	local moves='[1-9][0-9.]*[KMGT]? +[0-9.]+K? +[0-9.]+ [mun]?s +[01] +0 +0'
	store_moves() { expect 0 "$ctl" status --interval 100 && grep -qxE "t +0 +$moves" "$dir/out"; }
	why="the store never writes: $(cat "$dir/out")"
	await "$client" store_moves || return 1
	says "$dir/out" "dsaiod " "pool: " || return 1
	why="no verdict: $(cat "$dir/out")"
	sed -n 1p "$dir/out" | grep -qx healthy || return 1
	why="no such rows: $(cat "$dir/out")"
	grep -qxE "STORE +READ/s WRITE/s  IOPS     P99 OPEN  ERR HUNG" "$dir/out" &&
		grep -A1 "^CLIENT     PID USER " "$dir/out" |
		grep -qE "^ *[0-9]+ +[0-9]+ $(id -un | cut -c -7)[^ ]* +0 +$moves dsaioctl$" || return 1
	why="too wide: $(cat "$dir/out")"
	! sed '1,/^$/d' "$dir/out" | grep -qE '.{81}' || return 1
	expect 0 "$ctl" status --interval 0 || return 1
	why="rates without a second look: $(cat "$dir/out")"
	grep -qE "^t +- +- +- +[0-9]" "$dir/out"
}

json_has_all_numbers_and_rates() {
	json_moves() {
		expect 0 "$ctl" status --json --interval 100 &&
			[ "$(grep -cE '"write_bytes_per_sec": [1-9]' "$dir/out")" = 2 ] # store and client
	}
	why="no rates: $(cat "$dir/out")"
	await "$client" json_moves && says "$dir/out" '"stores"' '"read_bytes"' '"latency_p99_nsec"' \
		'"clients"' '"others": ' '"hung": ' '"is_admin": ' '"is_automatic": false' '"problems": [' || return 1
	expect 0 "$ctl" status --json --interval 0 || return 1
	why="rates without a second look"
	[ "$(grep -c '"rates": null' "$dir/out")" -ge 2 ] && ! grep -q per_sec "$dir/out"
}

# Its client writes, and waits for that: so there is time in the device, and on the way.
clients_show_where_time_went() {
	expect 0 "$ctl" clients && says "$dir/out" "QUEUE" "DEVICE" "DELIVERY" || return 1
	why="no shares: $(cat "$dir/out")"
	grep -E "^ *[0-9]+/[0-9]+ +dsaioctl " "$dir/out" | grep -qE " [0-9.]+% +[0-9.]+% +[0-9.]+%\$" || return 1
	expect 0 "$ctl" clients --json && says "$dir/out" '"queue_nsec": ' || return 1
	why="no time in the device, or of delivery: $(cat "$dir/out")"
	grep -qE '"device_nsec": [1-9]' "$dir/out" && grep -qE '"delivery_nsec": [1-9]' "$dir/out"
}

handles_have_small_numbers() {
	expect 0 "$ctl" clients || return 1
	why="no such handle: $(cat "$dir/out")"
	grep -qE '^ *[0-9]+/[0-9]{1,4} +dsaioctl +t +background +1 ' "$dir/out"
}

clients_show_memory_and_handles() {
	expect 0 "$ctl" clients && says "$dir/out" "CLIENT" "WRITTEN" "ERRORS" "ENTRIES" "RINGS" || return 1
	why="no row with its memory: $(cat "$dir/out")"
	grep -qE "^ *[0-9]+ +dsaioctl +[0-9]+ +$(id -u) +4 MiB +1 +1 +1 +0 B\$" "$dir/out" || return 1
	why="no row with what was written: $(cat "$dir/out")"
	grep -qE " yes +[01] +0 +0 B +[0-9.]+( M)? +[0-9.]+ [MGT]iB +[0-9]+ +0 " "$dir/out" || return 1
	expect 0 "$ctl" clients --json && says "$dir/out" '"handles"' '"has_rings": true' '"others": '
}

stores_show_all_or_that_of_a_path() {
	expect 0 "$ctl" stores && says "$dir/out" "$store" "libaio" "everybody" "IN FLIGHT" "BLOCK SIZE" "default" || return 1
	mkdir -p "$store/sub"
	expect 0 "$ctl" stores "$store/sub" && says "$dir/out" "$store" "libaio" &&
		expect 0 "$ctl" stores --json "$store/sub" && says "$dir/out" '"name": "t"' &&
		expect 0 "$ctl" stores t && says "$dir/out" "$store"
}

a_path_needs_no_right_to_read_it() {
	as_nobody || return 2
	printf x >"$store/secret"
	chmod 600 "$store/secret"
	expect 0 "${nobody[@]}" "$ctl" stores "$store/secret" && says "$dir/out" "$store"
}

a_path_on_no_store_is_reported() {
	expect 1 "$ctl" stores "$store/none" && says "$dir/err" "$store/none: No such file" &&
		expect 1 "$ctl" stores /proc/self && says "$dir/err" "/proc" || return 1
	expect 1 "$ctl" stores nosuch && says "$dir/err" "nosuch"
}

nothing_takes_other_arguments() {
	expect 2 "$ctl" status x && says "$dir/err" "takes no arguments" && expect 2 "$ctl" status --interval 60001 && expect 2 "$ctl" clients x && expect 2 "$ctl" stores "" && expect 2 "$ctl" stores t t
}

another_user_sees_the_others_as_one_line() {
	as_nobody || return 2
	local command
	for command in status clients; do
		expect 0 "${nobody[@]}" "$ctl" "$command" &&
			says "$dir/out" "2 clients of other users: " " of the pool, 1 slab, 1 file, 1 handle" &&
			says_not "$dir/out" "CLIENT" && says_not "$dir/out" "no clients" || return 1
		why="$command: a client of root is shown: $(cat "$dir/out")"
		! grep -qE "^ *[0-9]+ +dsaioctl +[0-9]+ +0 " "$dir/out" || return 1
	done
	expect 0 "${nobody[@]}" "$ctl" status --json --interval 0 && says "$dir/out" '"is_admin": false' '"others": {' || return 1
	expect 0 "$ctl" status --json --interval 0 && says "$dir/out" '"is_admin": true' '"others": null'
}

# A count of clients was never 0.
the_client_that_asks_is_not_shown() {
	local command
	for command in status clients; do
		expect 0 "$ctl" $command && says "$dir/out" "no clients" && says_not "$dir/out" "CLIENT" || return 1
		expect 0 "$ctl" $command --json && says "$dir/out" '"clients": [' '"clients_shown": 0' '"clients_total": 0' &&
			says_not "$dir/out" '"client": ' || return 1
	done
}

# It once said nothing for 30 s.
a_wait_for_a_silent_daemon_is_reported() {
	local pid rc
	kill -STOP "$daemon"
	"$ctl" status >"$dir/out" 2>"$dir/err" &
	pid=$!
	while ! grep -q "dsaioctl: status: waiting for the daemon's answer" "$dir/err" && kill -0 "$pid" 2>/dev/null; do
		read -rt 0.05 <> <(:)
	done
	kill -CONT "$daemon"
	wait "$pid"
	rc=$?
	why="exit status $rc: $(cat "$dir/err")"
	[ "$rc" = 0 ] && says "$dir/err" "waiting for the daemon's answer" && says "$dir/out" "STORE"
}

a_private_daemon_serves_this_directory() {
	expect 0 env -u DSAIO_SOCKET "$ctl" stores --private && says "$dir/out" "private1" &&
		expect 0 env -u DSAIO_SOCKET "$ctl" stores --private "$store" && says "$dir/out" "$store"
}

# Every build was 0.1.0, and an upgrade left the old daemon running without a word.
an_upgrade_that_left_the_old_daemon_is_reported() {
	local build other
	expect 0 "$ctl" --version --json || return 1
	build=$(sed -n 's/.*"build": "\(.*\)".*/\1/p' "$dir/out")
	why="there is no build id"
	[ -n "$build" ] || return 1
	other=$(tr 0-9a-z 1-9a-z0 <<<"$build") # as long
	expect 0 "$ctl" status && says "$dir/out" "(build $build)" && says_not "$dir/out" "upgrade" || return 1
	stop_daemon
	mkdir "$dir/new"
	sed "s/$build/$other/g" "$BUILD/dsaiod" >"$dir/new/dsaiod"
	chmod 755 "$dir/new/dsaiod"
	BUILD=$dir/new start_daemon
	expect 0 "$dir/new/dsaiod" --version && says "$dir/out" "(build $other)" && expect 0 "$ctl" status &&
		says "$dir/out" "(build $other)" "dsaioctl is of another build" "(build $build)" "restart the daemon" ||
		return 1
	cp "$BUILD/dsaiod" "$dir/new/next" && mv "$dir/new/next" "$dir/new/dsaiod"
	expect 0 "$ctl" status && says "$dir/out" "NOT HEALTHY: " "program was replaced after its start" "restart the daemon" &&
		expect 0 "$ctl" status --json --interval 0 && says "$dir/out" '"is_replaced": true' "\"daemon_build\": \"$other\""
}

start_daemon
run_test the_client_that_asks_is_not_shown
client=
start_client || { echo "not ok ctl: a client starts: $why"; failed=1; }
for t in status_shows_who_uses_the_disk json_has_all_numbers_and_rates clients_show_where_time_went handles_have_small_numbers clients_show_memory_and_handles \
	stores_show_all_or_that_of_a_path a_path_needs_no_right_to_read_it \
	a_path_on_no_store_is_reported nothing_takes_other_arguments another_user_sees_the_others_as_one_line \
	a_wait_for_a_silent_daemon_is_reported a_private_daemon_serves_this_directory; do
	run_test $t
done
stop_client
run_test an_upgrade_that_left_the_old_daemon_is_reported
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
