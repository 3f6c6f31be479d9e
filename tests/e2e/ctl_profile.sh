#!/bin/bash
# dsaioctl profile: shown, set, reset, saved across a restart; and the rights it needs.
. "$(dirname "$0")/ctl_common.sh"

# shows BLOCK_SIZE DEPTH SINGLE OVERLAP PARTS SOURCE: the row of store t in $dir/out.
shows() {
	local profile="$1 x $2"
	[ "$5" = 1 ] || profile+=" x $5"
	[ "$3" = no ] || profile+=" single"
	[ "$4" = yes ] || profile+=" sequential"
	why="no such row: $* in: $(cat "$dir/out")"
	grep -qE "^t +$store .* $profile +$6 +no " "$dir/out"
}

the_default_is_shown() {
	expect 0 "$ctl" profile show && shows '1 MiB' 128 no yes 1 default &&
		expect 0 "$ctl" profile show t && shows '1 MiB' 128 no yes 1 default &&
		expect 0 "$ctl" profile show "$store" && shows '1 MiB' 128 no yes 1 default &&
		expect 0 "$ctl" profile show "$store/" --json &&
		says "$dir/out" '"block_size": 1048576' '"profile_source": "default"'
}

a_path_inside_names_its_store() {
	printf x >"$store/file"
	cd "$store" || return 1
	expect 0 "$ctl" profile show ./file && shows '1 MiB' 128 no yes 1 default &&
		expect 0 "$ctl" profile show . && shows '1 MiB' 128 no yes 1 default
	local rc=$?
	cd "$OLDPWD" || return 1
	return $rc
}

named_values_change_and_the_others_stay() {
	expect 0 "$ctl" profile set t queue_depth=64 && shows '1 MiB' 64 no yes 1 saved &&
		says "$dir/out" "saved across restarts; holds for handles that open a channel from now on" &&
		expect 0 "$ctl" profile set "$store/" block-size=256K single_submit=yes overlap_events=no &&
		shows '256 KiB' 64 yes no 1 saved &&
		expect 0 "$ctl" profile set t intra_op_parallelism=4 --json &&
		says "$dir/out" '"intra_op_parallelism": 4' '"queue_depth": 64' &&
		expect 0 "$ctl" profile show t && shows '256 KiB' 64 yes no 4 saved
}

a_handle_opened_now_has_it() {
	expect 0 "$ctl" profile set t queue_depth=32 block_size=128K || return 1
	head -c 3000001 /dev/urandom >"$dir/src"
	"$ctl" put "$store/f" <"$dir/src" >"$dir/out" 2>"$dir/err" || { why=$(cat "$dir/err"); return 1; }
	same "$dir/src" "$store/f" && expect 0 "$ctl" cat "$store/f" && same "$dir/src" "$dir/out"
}

# One was saved for /proc once.
a_pseudo_file_system_has_no_profile() {
	expect 1 "$ctl" profile set /proc queue_depth=3 && says "$dir/err" "/proc" "on proc, a pseudo file system" &&
		says_not "$dir/err" "--store"
}

it_is_saved_over_a_restart() {
	expect 0 "$ctl" profile set t queue_depth=77 block_size=512K single_submit=no overlap_events=yes \
		intra_op_parallelism=2 || return 1
	stop_daemon || { why="the daemon did not stop in order"; return 1; }
	start_daemon
	expect 0 "$ctl" profile show t && shows '512 KiB' 77 no yes 2 saved
}

it_is_saved_over_a_kill() {
	expect 0 "$ctl" profile set t queue_depth=78 || return 1
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
	start_daemon
	expect 0 "$ctl" profile show t && shows '512 KiB' 78 no yes 2 saved
}

reset_forgets_it() {
	expect 0 "$ctl" profile reset t && shows '1 MiB' 128 no yes 1 default && says "$dir/out" "is forgotten" &&
		expect 0 "$ctl" profile reset t && expect 0 "$ctl" profile show t && shows '1 MiB' 128 no yes 1 default || return 1
	stop_daemon || { why="the daemon did not stop in order"; return 1; }
	start_daemon
	expect 0 "$ctl" profile show t && shows '1 MiB' 128 no yes 1 default
}

reset_goes_back_to_the_configuration() {
	stop_daemon || { why="the daemon did not stop in order"; return 1; }
	printf '[store t]\npath = %s\nqueue_depth = 99\n' "$store" >"$dir/dsaiod.conf"
	start_daemon
	expect 0 "$ctl" profile show t && shows '1 MiB' 99 no yes 1 configuration &&
		expect 0 "$ctl" profile set t queue_depth=11 && shows '1 MiB' 11 no yes 1 saved &&
		expect 0 "$ctl" profile reset t && shows '1 MiB' 99 no yes 1 configuration
}

# A tmpfs has nothing to know it by after a restart.
a_profile_that_cannot_be_saved_is_reported() {
	expect 0 "$ctl" profile set /dev/shm/ queue_depth=9 && says "$dir/out" "the profile is not saved: " " set" || return 1
	why="it claims to be saved: $(cat "$dir/out")"
	! grep -q "saved across restarts" "$dir/out" || return 1
	expect 0 "$ctl" profile set /dev/shm/ queue_depth=8 --json && says "$dir/err" "is not saved" &&
		says "$dir/out" '"profile_source": "set"' && expect 0 "$ctl" profile reset /dev/shm/
}

wrong_values_are_refused() {
	expect 2 "$ctl" profile set t queue_depth=5000 && says "$dir/err" "queue_depth 5000: must be from 1 to 4096" &&
		expect 2 "$ctl" profile set t block_size=5000 && says "$dir/err" "multiple of 512" &&
		expect 2 "$ctl" profile set t block_size=128M &&
		expect 2 "$ctl" profile set t intra_op_parallelism=0 &&
		expect 2 "$ctl" profile set t depth=5 && says "$dir/err" "a profile has block_size" &&
		expect 2 "$ctl" profile set t overlap_events=maybe && says "$dir/err" "must be yes or no" &&
		expect 2 "$ctl" profile set t queue_depth=64 block_size && says "$dir/err" "KEY=VALUE" || return 1
	expect 0 "$ctl" profile show t && shows '1 MiB' 99 no yes 1 configuration
}

wrong_usage_is_reported() {
	expect 2 "$ctl" profile && says "$dir/err" "show, set or reset?" && expect 2 "$ctl" profile list t &&
		expect 2 "$ctl" profile set t && expect 2 "$ctl" profile set && expect 2 "$ctl" profile reset &&
		expect 2 "$ctl" profile reset t t && expect 2 "$ctl" profile show t t &&
		expect 2 "$ctl" profile show "" && says "$dir/err" "empty"
}

unknown_stores_are_reported() {
	expect 1 "$ctl" profile show nosuch && says "$dir/err" "nosuch" &&
		expect 1 "$ctl" profile set nosuch queue_depth=1 && says "$dir/err" "nosuch" &&
		expect 1 "$ctl" profile reset nosuch && says "$dir/err" "nosuch" &&
		expect 1 "$ctl" profile show "$store/none" && says "$dir/err" "$store/none: No such file"
}

others_may_look_and_not_set() {
	as_nobody || return 2
	expect 0 "${nobody[@]}" "$ctl" profile show t && shows '1 MiB' 99 no yes 1 configuration &&
		expect 1 "${nobody[@]}" "$ctl" profile set t queue_depth=1 && says "$dir/err" "dsaioctl: profile: " "administrator" &&
		expect 1 "${nobody[@]}" "$ctl" profile reset t && says "$dir/err" "administrator" &&
		expect 0 "$ctl" profile show t && shows '1 MiB' 99 no yes 1 configuration
}

start_daemon
for t in the_default_is_shown a_path_inside_names_its_store named_values_change_and_the_others_stay \
	a_handle_opened_now_has_it it_is_saved_over_a_restart it_is_saved_over_a_kill reset_forgets_it \
	reset_goes_back_to_the_configuration a_profile_that_cannot_be_saved_is_reported wrong_values_are_refused wrong_usage_is_reported \
	unknown_stores_are_reported a_pseudo_file_system_has_no_profile others_may_look_and_not_set; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
