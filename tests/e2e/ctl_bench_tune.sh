#!/bin/bash
# dsaioctl bench tune: a verdict that programs can read, resuming, the profile set on the store.
. "$(dirname "$0")/ctl_common.sh"

space=$dir/space.json
logs=$dir/logs
echo '{"block_size": ["64K", "1M"], "queue_depth": [1, 8], "sequential_requests": [true, false],
	"single_submit": [true, false], "io_parallel": [1, 2]}' >"$space"

tune() {
	"$ctl" bench tune --nvme_dir "$store" --sweep_config "$space" --io_size 4M --log_dir "$logs" "$@"
}

# value KEY FILE: of the first such member.
value() {
	sed -n "s/.*\"$1\": \([^,]*\),*$/\1/p" "$2" | head -n 1
}

# best_of FILE: the recommended profile in the order of profile set.
best_of() {
	local block=$dir/best
	sed -n '/"aio": {/,/}/p' "$1" >"$block"
	echo "$(value block_size "$block") $(value queue_depth "$block")" \
		"$(value single_submit "$block") $(value overlap_events "$block")" \
		"$(value intra_op_parallelism "$block")"
}

nothing_is_left() {
	why="left: $(find "$store" -name '_dsaioctl_bench.*')"
	[ -z "$(find "$store" -name '_dsaioctl_bench.*')" ]
}

the_best_is_reported_as_deepspeeds_tuner_tells_it() {
	rm -rf "$logs"
	expect 0 tune || return 1
	why="no such line: $(grep 'Best' "$dir/out")"
	grep -qE '^Best performance \(GB/sec\): read = [ 0-9]+\.[0-9]{2}, write = [ 0-9]+\.[0-9]{2}$' "$dir/out" ||
		return 1
	# The block is JSON with real booleans, and a point of the space.
	sed -n '/^{$/,/^}$/p' "$dir/out" >"$dir/block"
	why="block: $(tr '\n' ' ' <"$dir/block")"
	[ "$(sed -n '2s/ //gp' "$dir/block")" = '"aio":{' ] || return 1
	[[ "$(best_of "$dir/block")" =~ ^(65536|1048576)\ (1|8)\ (true|false)\ (true|false)\ (1|2)$ ]] || return 1
	says "$dir/out" "95% interval" "recommended" "read " "write " "sum " && nothing_is_left
}

# The daemon here serves several users, so it cuts blocks to what the device takes at once.
requests_smaller_than_the_block_are_reported() {
	local kib small=$dir/small.json
	why="no block device below $store, or it takes 64M at once"
	kib=$(cat "/sys/dev/block/$(stat -c %Hd:%Ld "$store")/queue/max_sectors_kb" 2>/dev/null ||
		cat "/sys/dev/block/$(stat -c %Hd:%Ld "$store")/../queue/max_sectors_kb" 2>/dev/null) || return 2
	[ "$kib" -lt 65536 ] || return 2
	rm -rf "$logs"
	echo '{"block_size": ["64M"], "queue_depth": [1]}' >"$small"
	expect 0 "$ctl" bench tune --nvme_dir "$store" --sweep_config "$small" --io_size 128M --no_read \
		--log_dir "$logs" || return 1
	says "$dir/err" "blocks of 64 MiB go to the device as requests of at most "
}

results_have_every_step_and_the_verdict() {
	rm -rf "$logs"
	expect 0 tune --json || return 1
	says "$dir/out" '"kind": "tune"' '"is_complete": true' '"is_tied": true' '"n_dropped": ' \
		'"speed_low": ' '"loss_high": ' || return 1
	why="best: $(best_of "$logs/tune.json"); points: $(n_points "$logs" tune)"
	# 24 points, read and written, in the first round alone: 8 blocks of 1M do not fit into 4M.
	[ "$(n_points "$logs" tune)" -ge 48 ] && [ -n "$(best_of "$logs/tune.json")" ] &&
		echo >>"$logs/tune.json" && same "$dir/out" "$logs/tune.json"
}

# 8 blocks of 64K are in flight only where a transfer has more than that; 4M has four blocks of 1M.
every_measurement_is_long_enough_for_the_depth_it_names() {
	rm -rf "$logs"
	expect 0 tune || return 1
	awk '{ gsub(/[",]/, "") } $1 == "op:" { block = depth = size = 0; is_row = 1 } !is_row { next }
		$1 == "block_size:" && !block { block = $2 } $1 == "queue_depth:" && !depth { depth = $2 }
		$1 == "io_size:" && block && !size { size = $2; print block, depth, size }' \
		"$logs/tune.json" >"$dir/steps"
	why="too short: $(awk '$3 < 1.5 * $1 * $2 && $2 > 1' "$dir/steps" | sort | uniq -c | head -n 3)"
	[ -s "$dir/steps" ] && ! awk '$3 < 1.5 * $1 * $2 && $2 > 1' "$dir/steps" | grep -q . || return 1
	why="1M x 8 is ranked: $(cat "$dir/out")"
	! grep -qE '^(read|write|sum) +1M +8 ' "$dir/out" && says "$dir/err" " points are not ranked: a transfer of --io_size"
}

# On measurements that are written into a complete run: blocks of 128K are the fastest, and those of 64K lose 3%.
the_fastest_is_the_best_and_the_cheapest_of_those_tied_is_recommended() {
	local two=("$ctl" bench tune --nvme_dir "$store" --sweep_config "$dir/two.json" --io_size 4M --no_write
		--log_dir "$logs")
	rm -rf "$logs"
	echo '{"block_size": ["64K", "128K"], "queue_depth": [1]}' >"$dir/two.json"
	expect 0 "${two[@]}" || return 1
	# Five rounds of two points, beside the parameter; the first round is shorter.
	why="whole transfers: $(grep -c '"io_size": 4194304' "$logs/tune.json")"
	[ "$(grep -c '"io_size": 4194304' "$logs/tune.json")" = 11 ] || return 1
	awk 'BEGIN { cheap[0] = 1.1; cheap[1] = 1; dear[0] = 1.02; dear[1] = 1.22 }
		/"op":/ { block = 0 } /"block_size":/ && !block { block = $2 + 0; odd = n[block]++ % 2 }
		/"e2e_speed_gb_per_sec":/ { sub(/: .*/, ": " (block == 65536 ? cheap[!odd] : dear[!odd]) ",") } { print }' \
		"$logs/tune.json" >"$dir/edited" && cp "$dir/edited" "$logs/tune.json"
	expect 0 "${two[@]}" --resume &&
		says "$dir/out" "Best performance (GB/sec): read =  1.10" "recommended, read: 1.059 GB/sec" || return 1
	why="recommended: $(best_of "$dir/out")"
	[[ "$(best_of "$dir/out")" == "65536 1 "* ]]
}

where_no_depth_is_reached_tune_says_what_to_do() {
	rm -rf "$logs"
	echo '{"block_size": ["1M"], "queue_depth": [64]}' >"$dir/deep.json"
	expect 1 "$ctl" bench tune --nvme_dir "$store" --sweep_config "$dir/deep.json" --io_size 4M \
		--log_dir "$logs" && says "$dir/err" "too few blocks" "larger --io_size" || return 1
	why="an empty $logs is left"
	[ ! -e "$logs" ]
}

with_reads_alone_there_are_no_writes() {
	rm -rf "$logs"
	expect 0 tune --no_write || return 1
	why="wrote"
	! grep -q '"op": "write"' "$logs/tune.json" && ! grep -q 'write' "$dir/out" &&
		says "$dir/out" "Best performance (GB/sec): read ="
}

# Measured points are not measured again: existing rows stay first.
a_killed_tune_goes_on_where_it_was() {
	local before after
	rm -rf "$logs"
	"$ctl" bench tune --nvme_dir "$store" --sweep_config "$space" --io_size 64M --log_dir "$logs" \
		>"$dir/out" 2>"$dir/err" </dev/null &
	local bench=$!
	await "$bench" has_points 20 "$logs" tune
	why="it was over before it could be killed"
	kill -9 "$bench" 2>/dev/null || return 1
	wait "$bench" 2>/dev/null
	before=$(begins "$logs" tune 20)
	expect 2 tune --resume && says "$dir/err" "io_size" || return 1
	expect 0 tune --io_size 64M --resume || return 1
	after=$(begins "$logs" tune 20)
	why="the first rows are others"
	[ "$before" = "$after" ] && says "$logs/tune.json" '"is_complete": true' && nothing_is_left
}

# All is there: the same numbers come to the same verdict, without a byte moved.
a_run_that_is_complete_is_only_judged_again() {
	rm -rf "$logs"
	expect 0 tune --json && cp "$dir/out" "$dir/first" && expect 0 tune --resume --json || return 1
	why="another verdict"
	[ "$(sed -n '/"tune": {/,$p' "$dir/first" | grep -v ended)" = \
		"$(sed -n '/"tune": {/,$p' "$dir/out" | grep -v ended)" ] || return 1
	why="measured again"
	[ "$(grep -c '"at_sec"' "$dir/first")" = "$(grep -c '"at_sec"' "$dir/out")" ]
}

apply_sets_the_profile_and_it_is_kept() {
	local best shown
	rm -rf "$logs"
	expect 0 tune --apply && says "$dir/err" "store t has the recommended profile now" || return 1
	best=$(best_of "$logs/tune.json")
	expect 0 "$ctl" profile show t --json || return 1
	sed -n '/"profile": {/,/}/p' "$dir/out" >"$dir/profile"
	shown="$(value block_size "$dir/profile") $(value queue_depth "$dir/profile")"
	shown+=" $(value single_submit "$dir/profile") $(value overlap_events "$dir/profile")"
	shown+=" $(value intra_op_parallelism "$dir/profile")"
	why="recommended: $best, set: $shown"
	[ "$best" = "$shown" ] && expect 0 "$ctl" profile reset t
}

apply_is_refused_with_a_daemon_that_ends() {
	expect 2 tune --private --apply && says "$dir/err" "--apply: a daemon of --private ends"
}

# Reported before anything is measured, and before the run has a directory.
apply_needs_an_administrator_and_says_so_at_once() {
	as_nobody || return 2
	rm -rf "$logs" && mkdir -m 777 "$logs" "$store/theirs" && chmod 777 "$store/theirs" || return 1
	local theirs=("${nobody[@]}" "$ctl" bench tune --nvme_dir "$store/theirs" --sweep_config "$space"
		--io_size 1M --log_dir "$logs")
	expect 0 "${theirs[@]}" && cp "$logs/tune.json" "$dir/before" || return 1
	expect 1 "${theirs[@]}" --apply && says "$dir/err" "--apply" "administrator" || return 1
	why="measured, or the earlier results are gone: $(ls "$logs")"
	same "$dir/before" "$logs/tune.json" && [ "$(ls -A "$logs" | tr '\n' ' ')" = "tune tune.1 tune.json " ] && [ ! -s "$dir/out" ]
}

what_can_not_be_is_refused() {
	rm -rf "$logs"
	expect 2 tune --gds && says "$dir/err" "--gpu" && expect 2 "$ctl" bench tune && says "$dir/err" "--dir"
}

start_daemon
for t in the_best_is_reported_as_deepspeeds_tuner_tells_it results_have_every_step_and_the_verdict \
	requests_smaller_than_the_block_are_reported \
	every_measurement_is_long_enough_for_the_depth_it_names \
	the_fastest_is_the_best_and_the_cheapest_of_those_tied_is_recommended \
	where_no_depth_is_reached_tune_says_what_to_do \
	with_reads_alone_there_are_no_writes a_killed_tune_goes_on_where_it_was \
	a_run_that_is_complete_is_only_judged_again apply_sets_the_profile_and_it_is_kept \
	apply_is_refused_with_a_daemon_that_ends apply_needs_an_administrator_and_says_so_at_once \
	what_can_not_be_is_refused; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
