#!/bin/bash
# dsaioctl limit: what is set, shown and saved, and that it holds.
. "$(dirname "$0")/ctl_common.sh"

# bytes_of CLIENT: that it has read.
bytes_of() {
	"$ctl" clients --json | python3 -c '
import json, sys
for client in json.load(sys.stdin)["clients"]:
    if client["client"] == int(sys.argv[1]):
        print(sum(c["counters"]["read_bytes"] for h in client["handles"] for c in h["channels"]))
' "$1"
}

# The number of the first client whose reads are counted, in $client.
find_client() {
	client=$("$ctl" clients --json | python3 -c '
import json, sys
print(next((c["client"] for c in json.load(sys.stdin)["clients"] for h in c["handles"] for x in h["channels"]
            if x["counters"]["read_bytes"]), ""))')
	[ -n "$client" ]
}

milliseconds() {
	local now=${EPOCHREALTIME/[.,]/}
	echo "$((now / 1000))"
}

limits_are_set_shown_and_removed() {
	expect 0 "$ctl" limit && says "$dir/out" "nothing is limited" &&
		expect 0 "$ctl" limit --store t --bandwidth 500M --iops 20000 && says "$dir/out" "store  t" "500 MiB/s" " 20000 " &&
		expect 0 "$ctl" limit --store "$store" --bandwidth 500M && says "$dir/out" "500 MiB/s" && says_not "$dir/out" 20000 &&
		expect 0 "$ctl" limit --user 4000000000 --iops 7 && says "$dir/out" "user   4000000000" " 7 " &&
		expect 0 "$ctl" limit --user root --bandwidth 1G --json && says "$dir/out" '"bytes_per_sec": 1073741824' '"ops_per_sec": 7' \
		'"bytes_per_sec": 524288000' && expect 0 "$ctl" limit && says "$dir/out" "user   root" "1 GiB/s" &&
		expect 0 "$ctl" stores --json && says "$dir/out" '"bytes_per_sec": 524288000' &&
		expect 0 "$ctl" limit --store t --bandwidth 0 && expect 0 "$ctl" limit --user root --bandwidth 0 &&
		expect 0 "$ctl" limit --user 4000000000 --iops 0 && says "$dir/out" "nothing is limited"
}

# The bytes of a second may start at once, and less than a block and a burst beside.
a_store_moves_no_more_than_its_limit() {
	local begin spent
	random_file "$store/f" $((8 << 20))
	expect 0 "$ctl" limit --store t --bandwidth 8M || return 1
	begin=$(milliseconds)
	expect 0 "$ctl" cat "$store/f" || return 1
	spent=$(($(milliseconds) - begin))
	why="8 MiB of 8 MiB/s took $spent ms"
	[ "$spent" -ge 700 ] || return 1
	expect 0 "$ctl" limit --store t --bandwidth 0
}

a_limited_client_leaves_the_rest_to_others() {
	local bench client begin before moved most
	why="needs python3"
	command -v python3 >/dev/null || return 2
	"$ctl" bench io --dir "$store" --io_size 256K --block_size 64K --read --loops 1000000 >/dev/null 2>&1 &
	bench=$!
	await "$bench" find_client && expect 0 "$ctl" limit --client "$client" --bandwidth 1M && says "$dir/out" "1 MiB/s" || return 1
	begin=$(milliseconds)
	before=$(bytes_of "$client")
	for _ in 1 2 3 4 5 6; do
		expect 0 "$ctl" cp "$store/f" "$store/g" || return 1
	done
	moved=$(($(bytes_of "$client") - before))
	# Two megabytes: ops in flight, a burst, a quantum.
	most=$(((($(milliseconds) - begin) << 20) / 1000 + (2 << 20)))
	why="the client of 1 MiB/s moved $moved bytes, at most $most are allowed"
	[ "$moved" -le "$most" ] || return 1
	why="others moved 96 MiB meanwhile, the limited client $moved bytes"
	[ "$moved" -le $((48 << 20)) ] || return 1
	# It goes on within a moment, though it owes something.
	expect 0 "$ctl" limit --client "$client" --bandwidth 1 --weight 8 && says "$dir/out" "1 B/s" " 8" &&
		expect 0 "$ctl" limit --client "$client" --bandwidth 0 && says "$dir/out" "$client dsaioctl" " 8" || return 1
	before=$(bytes_of "$client")
	has_moved() { [ "$(bytes_of "$client")" -gt $((before + (8 << 20))) ]; }
	await "$bench" has_moved || return 1
	kill "$bench"
	wait "$bench" 2>/dev/null
	return 0
}

limits_outlive_the_daemon_but_not_their_client() {
	expect 0 "$ctl" limit --user 65534 --bandwidth 9M && expect 0 "$ctl" limit --store t --iops 12345 || return 1
	stop_daemon || { why="exit status $?"; return 1; }
	start_daemon
	expect 0 "$ctl" limit && says "$dir/out" "user   $(id -un 65534 2>/dev/null || echo 65534) " "9 MiB/s" "12345" &&
		says "$dir/state"/user-65534.conf "[settings]" "bandwidth = 9437184" && says_not "$dir/state"/user-65534.conf "[profile]" || return 1
	# A profile beside the limit is kept, too.
	expect 0 "$ctl" profile set t queue_depth=17 && expect 0 "$ctl" limit --store t --iops 0 || return 1
	stop_daemon || { why="exit status $?"; return 1; }
	start_daemon
	expect 0 "$ctl" profile show t && says "$dir/out" 17 saved && expect 0 "$ctl" profile reset t &&
		expect 0 "$ctl" limit --user 65534 --bandwidth 0 && says "$dir/out" "nothing is limited" || return 1
	why="left: $(ls "$dir/state")"
	[ -z "$(find "$dir/state" -name '*.conf')" ]
}

what_cannot_be_saved_is_reported() {
	stop_daemon || { why="exit status $?"; return 1; }
	rm -rf "$dir/state"
	: >"$dir/state"
	start_daemon
	expect 0 "$ctl" limit --user 65534 --iops 5 && says "$dir/err" "user 65534: the limit is not saved" "until the daemon ends" &&
		expect 0 "$ctl" limit --store t --iops 5 && says "$dir/err" "store t: the limit is not saved" &&
		expect 0 "$ctl" drain t && says "$dir/err" "store t: the drain is not saved" || return 1
	rm "$dir/state"
	expect 0 "$ctl" limit --user 65534 --iops 0 && expect 0 "$ctl" limit --store t --iops 0 && expect 0 "$ctl" undrain t
}

wrong_usage_is_reported() {
	expect 2 "$ctl" limit t && says "$dir/err" "t: takes no arguments" &&
		expect 2 "$ctl" limit --store t && says "$dir/err" "and --bandwidth, --iops or --weight" &&
		expect 2 "$ctl" limit --bandwidth 1M && says "$dir/err" "name one of --store, --user and --client" &&
		expect 2 "$ctl" limit --store t --user root --iops 1 && says "$dir/err" "name one of" &&
		expect 2 "$ctl" limit --store t --bandwidth fast && says "$dir/err" "--bandwidth fast: is no number" &&
		expect 2 "$ctl" limit --store t --iops 1X && says "$dir/err" "--iops 1X: is no number" &&
		expect 2 "$ctl" limit --store t --weight 2 && says "$dir/err" "only a client has one" &&
		expect 2 "$ctl" limit --client 1 --weight 17 && says "$dir/err" "--weight 17" "16" &&
		expect 2 "$ctl" limit --private && says "$dir/err" "leave it out" &&
		expect 1 "$ctl" limit --store nosuch --iops 1 && says "$dir/err" "nosuch" "it serves t=" &&
		expect 1 "$ctl" limit --user no_such_user --iops 1 && says "$dir/err" "user no_such_user: this host has none of that name" &&
		expect 1 "$ctl" limit --client 4000000 --iops 1 && says "$dir/err" "client 4000000: there is none with this number" &&
		expect 1 "$ctl" limit --store t --bandwidth 2000T && says "$dir/err" "each must be at most"
}

others_may_not() {
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" limit --store t --iops 1 && says "$dir/err" "dsaioctl: limit: only administrators set limits" &&
		expect 0 "${nobody[@]}" "$ctl" limit && says_not "$dir/out" user
}

start_daemon
for t in limits_are_set_shown_and_removed a_store_moves_no_more_than_its_limit a_limited_client_leaves_the_rest_to_others \
	wrong_usage_is_reported others_may_not limits_outlive_the_daemon_but_not_their_client what_cannot_be_saved_is_reported; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
