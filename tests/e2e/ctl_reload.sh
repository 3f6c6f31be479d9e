#!/bin/bash
# dsaioctl reload: what is applied while clients go on, what waits for a restart, and mistakes, which change nothing.
. "$(dirname "$0")/ctl_common.sh"

config() { # LINE...
	printf '%s\n' "$@" >"$dir/dsaiod.conf"
}

# The daemon's log gets each text, within a minute.
log_says() {
	local i
	for ((i = 0; i < 1200; i++)); do
		says "$dir/daemon.log" "$@" && return 0
		sleep .05
	done
	return 1
}

the_same_changes_nothing() {
	expect 0 "$ctl" reload && says "$dir/out" "nothing has changed"
}

# A client that is connected meanwhile gets the new limits, and goes on.
limits_profiles_and_access_are_applied() {
	local rc
	begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	config '[daemon]' 'pool_size = 320M' 'client_files = 77' "[store t]" "path = $store" 'queue_depth = 77' 'users = root'
	expect 0 "$ctl" reload &&
		says "$dir/out" "applied: [daemon] pool_size" "applied: [daemon] client_files" "applied: store t: users" \
			"applied: store t: queue_depth, of channels" && says_not "$dir/out" "restart" &&
		expect 0 "$ctl" status --interval 0 && says "$dir/out" "320 MiB" &&
		expect 0 "$ctl" stores t && says "$dir/out" "root" && expect 0 "$ctl" profile show t && says "$dir/out" "77" &&
		log_says "configuration reloaded: "
	rc=$?
	head -c 3000000 /dev/zero >&"$feed"
	exec {feed}>&-
	wait "$pid" || { why="put failed"; return 1; }
	return $rc
}

# After a reload it was saved in a directory whose name was in memory that had been freed.
a_saved_profile_takes_precedence() {
	expect 0 "$ctl" profile set t queue_depth=33 || return 1
	why="not in the state directory: $(ls "$dir/state")"
	grep -rqE "^queue_depth *= *33" "$dir/state" 2>/dev/null || return 1
	config '[daemon]' 'pool_size = 320M' "[store t]" "path = $store" 'queue_depth = 44' &&
		expect 0 "$ctl" reload && says "$dir/out" "store t: queue_depth, after dsaioctl profile reset" &&
		expect 0 "$ctl" profile show t && says "$dir/out" "33" && expect 0 "$ctl" profile reset t && says "$dir/out" "44"
}

what_needs_a_restart_is_said() {
	config '[daemon]' 'pool_size = 320M' 'lock = auto' 'huge_pages = no' "state_dir = $dir/other" "[store t]" "path = $dir" \
		'spin_usec = 7' 'window_max = 1M'
	expect 0 "$ctl" reload && says "$dir/out" "needs a restart: [daemon] huge_pages" "needs a restart: [daemon] state_dir" \
		"needs a restart: store t: path" "needs a restart: store t: spin_usec" "needs a restart: store t: window_max" &&
		expect 0 "$ctl" reload --json && says "$dir/out" '"applied": [' '"needs_restart": [' '"store t: path"'
}

stores_come_and_stay() {
	config "[store t]" "path = $store" "[store shm]" "path = /dev/shm" &&
		expect 0 "$ctl" reload && says "$dir/out" "applied: store shm: is served: /dev/shm" &&
		expect 0 "$ctl" stores shm && says "$dir/out" "/dev/shm" || return 1
	config "[store t]" "path = $store"
	expect 0 "$ctl" reload && says "$dir/out" "needs a restart: store shm: is served until then" "dsaioctl drain shm" &&
		expect 0 "$ctl" stores shm && expect 0 "$ctl" put "$dir/f" </dev/null &&
		expect 0 "$ctl" reload && says "$dir/out" "store shm: is served until then" || return 1
	config '[daemon]' # two that go at the same time
	expect 0 "$ctl" reload && says "$dir/out" "store shm: is served until then" "store t: is served until then" &&
		expect 0 "$ctl" stores t && expect 0 "$ctl" stores shm || return 1
	# Its file system has a store, and so has its name.
	config "[store t]" "path = $store" "[store again]" "path = /dev/shm"
	expect 0 "$ctl" reload && says "$dir/out" "needs a restart: store again: store shm serves its file system"
}

# The files of a client there belong to an automatic store.
a_store_in_use_waits_for_a_restart() {
	local rc
	config "[store shm]" "path = /dev/shm"
	stop_daemon && start_daemon && begin_put "$ctl" put "$store/f" || { why="put has ended"; return 1; }
	config "[store shm]" "path = /dev/shm" "[store t]" "path = $store"
	expect 0 "$ctl" reload && says "$dir/out" "needs a restart: store t: store " " serves its file system"
	rc=$?
	exec {feed}>&-
	wait "$pid" || { why="put failed"; return 1; }
	[ $rc = 0 ] && expect 0 "$ctl" drain "$store" && expect 0 "$ctl" reload &&
		says "$dir/out" "applied: store t: is served: $store"
}

mistakes_change_nothing() {
	local file=$dir/dsaiod.conf
	config '[daemon]' 'pool_size = 321M' 'client_files = many' "[store t]" "path = $store" "[store u]" "path = $dir/none"
	expect 1 "$ctl" reload && says "$dir/err" "$file:3: [daemon] client_files = many: must be a number" &&
		log_says "client_files = many" "the configuration stays as it was" || return 1
	config '[daemon]' 'pool_size = 321M' "[store t]" "path = $store" "[store u]" "path = $dir/none"
	expect 1 "$ctl" reload && says "$dir/err" "$file:6: [store u] path = $dir/none: " "No such file" || return 1
	rm "$file"
	expect 1 "$ctl" reload && says "$dir/err" "$file" "No such file" &&
		expect 0 "$ctl" status --interval 0 && says_not "$dir/out" "321 MiB"
}

wrong_usage_is_reported() {
	expect 2 "$ctl" reload now && says "$dir/err" "no argument" && expect 2 "$ctl" reload --private && says "$dir/err" "--private" &&
		expect 3 "$ctl" reload --socket "$dir/none" && says "$dir/err" "no daemon listens"
}

others_may_not() {
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" reload && says "$dir/err" "dsaioctl: reload: " "administrators"
}

config "[store t]" "path = $store"
start_daemon
for t in the_same_changes_nothing limits_profiles_and_access_are_applied a_saved_profile_takes_precedence \
	what_needs_a_restart_is_said stores_come_and_stay a_store_in_use_waits_for_a_restart \
	mistakes_change_nothing wrong_usage_is_reported others_may_not; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
