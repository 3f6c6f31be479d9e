#!/bin/bash
# dsaioctl bench latency: DS-AIO-Benchmark's numbers, closed and open loop; bench report of them.
. "$(dirname "$0")/ctl_common.sh"

latency() {
	"$ctl" bench latency --nvme-path "$store" --sizes 4K 64K --iterations 50 --threads 2 "$@"
}

nothing_is_left() {
	why="left: $(find "$store" -name '_dsaioctl_bench.*')"
	[ -z "$(find "$store" -name '_dsaioctl_bench.*')" ]
}

each_size_is_written_and_then_read() {
	expect 0 latency || return 1
	why="order: $(grep ' transfers$' "$dir/out" | tr '\n' ';')"
	[ "$(grep ' transfers$' "$dir/out")" = "Writes of 4 KiB, 50 transfers
Writes of 64 KiB, 50 transfers
Reads of 4 KiB, 50 transfers
Reads of 64 KiB, 50 transfers" ] || return 1
	says "$dir/out" " latency " " bandwidth" "MiB/s" "mean" "median" "standard deviation" "95% interval" \
		"percentile 90" "percentile 99.9" "max" &&
		says "$dir/err" "coordinated omission" && nothing_is_left
}

# Percentiles grow, the mean lies in its interval, the histogram has all transfers.
numbers_agree_with_each_other() {
	expect 0 latency --iterations 1000 --json --log_dir "$dir/logs" && echo >>"$dir/logs/latency.json" &&
		same "$dir/out" "$dir/logs/latency.json" || return 1
	why=$(awk '
		{ gsub(/[",]/, "") }
		$1 == "mean_nsec:" { mean = $2 } $1 == "mean_low_nsec:" { low = $2 }
		$1 == "mean_high_nsec:" { high = $2 } $1 == "min_nsec:" { min = $2 }
		$1 == "p50_nsec:" { p50 = $2 } $1 == "p90_nsec:" { p90 = $2 } $1 == "p99_nsec:" { p99 = $2 }
		$1 == "p999_nsec:" { p999 = $2 } $1 == "count:" { counted += $2 }
		$1 == "max_nsec:" { n++; max = $2
			if (!(min > 0 && min <= p50 && p50 <= p90 && p90 <= p99 && p99 <= p999 && p999 <= max))
				print "percentiles:", min, p50, p90, p99, p999, max
			if (!(low < mean && mean < high)) print "mean:", low, mean, high }
		END { if (n != 4 || counted != 4000) print n, "latencies,", counted, "transfers in histograms" }' "$dir/out")
	[ -z "$why" ]
}

# 50 transfers at 1,000 a second take 49 ms at least; as many at once take a fraction of it.
the_open_loop_keeps_its_rate() {
	expect 0 latency --rate 1000 --json || return 1
	says "$dir/out" '"rate": 1000' && ! grep -q "closed loop" "$dir/err" || return 1
	why="took $(grep '"task_sec"' "$dir/out" | tr -d '\n')"
	awk '/"task_sec"/ { gsub(/[",]/, ""); n++; if ($2 < 0.049) short++ } END { exit n < 4 || short > 0 }' \
		"$dir/out"
}

# The 99.9th percentile of five transfers is none, and no latency is negative.
what_few_transfers_do_not_tell_is_not_printed() {
	expect 0 latency --iterations 5 || return 1
	why="percentiles: $(grep percentile "$dir/out" | tr '\n' ';')"
	[ "$(grep -cE '^  percentile 9[0-9.]* +- +-  \(needs 10+ transfers\)$' "$dir/out")" = 12 ] || return 1
	says "$dir/out" "percentile 99.9" "(needs 1000 transfers)" "(needs 10 transfers)" || return 1
	why="negative: $(grep -E ' -[0-9]' "$dir/out" | head -n 2)"
	! grep -qE ' -[0-9]' "$dir/out" || return 1
	expect 0 latency --iterations 1 && says "$dir/out" "(needs 2 transfers)" || return 1
	expect 0 latency --iterations 99 --json && says "$dir/out" '"p99_nsec": null' '"p999_nsec": null' || return 1
	why="the 90th percentile is none of 99 transfers"
	! grep -q '"p90_nsec": null' "$dir/out"
}

a_rate_that_is_missed_is_reported() {
	expect 0 latency --sizes 1M --iterations 200 --rate 10000000 &&
		says "$dir/err" "--rate 10000000: only " "give a smaller --rate" && says "$dir/out" "begun a second" || return 1
	expect 0 latency --sizes 4K --iterations 10 --rate 20 --json && says "$dir/out" '"rate_achieved": '
}

# There is no --io_size here.
advice_names_no_option_of_another_bench() {
	expect 1 latency --sizes 10T && says "$dir/err" "free: give a smaller size" || return 1
	why="advice: $(cat "$dir/err")"
	! grep -q -- "--io_size" "$dir/err"
}

absurd_values_are_refused() {
	expect 2 latency --sizes none && says "$dir/err" "--sizes none: is no size" &&
		expect 2 latency --sizes 0 && expect 2 latency --iterations 0 && says "$dir/err" "--iterations 0" &&
		expect 2 latency --threads 65 && expect 2 latency --queue-depth 5000 &&
		expect 2 latency --block-size 1000 && expect 2 latency --rate 0 &&
		expect 2 "$ctl" bench latency && says "$dir/err" "--dir" &&
		expect 1 "$ctl" bench latency --nvme-path "$dir/none" && says "$dir/err" "$dir/none" &&
		nothing_is_left
}

# It once ended without a word.
ctrl_c_leaves_no_file_and_says_so() {
	env --default-signal=INT "$ctl" bench latency --nvme-path "$store" --sizes 1M --iterations 100000000 \
		>"$dir/out" 2>"$dir/err" </dev/null &
	local bench=$!
	file_is_there() { find "/proc/$bench/fd" -lname "$(realpath "$store")/*(deleted)" 2>/dev/null | grep -q .; }
	await "$bench" file_is_there
	kill -INT "$bench"
	wait "$bench"
	local rc=$?
	why="exit status $rc: $(cat "$dir/err")"
	[ "$rc" = 130 ] && says "$dir/err" "interrupted" && nothing_is_left
}

# All transfers of the size that was under way were once lost.
ctrl_c_prints_what_was_measured_until_then() {
	local before bench rc
	writes() { "$ctl" status --json | sed -n 's/.*"writes": \([0-9]*\).*/\1/p' | sort -n | tail -n 1; }
	has_written() { [ "$(writes)" -ge "$1" ]; }
	before=$(writes)
	env --default-signal=INT "$ctl" bench latency --nvme-path "$store" --sizes 4K --iterations 100000000 \
		--log_dir "$dir/cut" >"$dir/out" 2>"$dir/err" </dev/null &
	bench=$!
	await "$bench" has_written $((before + 20))
	kill -INT "$bench"
	wait "$bench"
	rc=$?
	why="exit status $rc: $(cat "$dir/out" "$dir/err")"
	[ "$rc" = 130 ] && grep -qE '^Writes of 4 KiB, [0-9]+ transfers$' "$dir/out" || return 1
	says "$dir/out" "median" "max" && says "$dir/err" "interrupted: 1 points are in $dir/cut/latency.1" &&
		says "$dir/cut/latency.1/latency.json" '"p50_nsec": ' '"is_complete": false' && nothing_is_left
}

# ---- bench report ----

a_report_is_one_page_beside_the_results() {
	has_matplotlib || return 2
	rm -rf "$dir/logs"
	expect 0 latency --json --log_dir "$dir/logs" && expect 0 "$ctl" bench report "$dir/logs" || return 1
	says "$dir/out" "$dir/logs/report.html" && says "$dir/logs/report.html" "</html>" "<svg" "read 4 KiB" ||
		return 1
	why="it refers to something outside"
	! grep -qE 'https?:|src=|href="[^#]|url\([^#]|@import|<script' "$dir/logs/report.html"
}

several_runs_go_to_one_page() {
	local ctl_path

	has_matplotlib || return 2
	ctl_path=$(realpath "$ctl")
	rm -rf "$dir/logs" "$dir/sweep"
	expect 0 latency --json --log_dir "$dir/logs" &&
		expect 0 "$ctl" bench sweep --nvme_dir "$store" --io_size 64K --log_dir "$dir/sweep" &&
		expect 0 "$ctl" bench report "$dir/logs" "$dir/sweep/results.json" -o "$dir/both.html" --json &&
		says "$dir/out" '"runs": 2' "$dir/both.html" &&
		says "$dir/both.html" "$dir/logs" "$dir/sweep/results.json" "fastest profile" &&
		expect 0 "$ctl" bench report "$dir/logs" "$dir/sweep/results.json" -o - && same "$dir/out" "$dir/both.html" &&
		(cd "$dir" && expect 0 "$ctl_path" bench report logs "$dir/sweep/results.json" -o -page.html) &&
		[ -s "$dir/-page.html" ]
}

what_is_no_result_is_reported_and_an_old_report_stays() {
	has_matplotlib || return 2
	mkdir -p "$dir/wrong" && echo '{"format": "other"}' >"$dir/wrong/latency.json" &&
		echo old >"$dir/wrong/report.html" || return 1
	expect 1 "$ctl" bench report "$dir/wrong" && says "$dir/err" "is no results of dsaioctl bench" &&
		says "$dir/wrong/report.html" old &&
		mkfifo "$dir/pipe" && expect 1 "$ctl" bench report "$dir/logs" -o "$dir/pipe" &&
		says "$dir/err" "is no regular file" && [ -p "$dir/pipe" ] &&
		expect 1 "$ctl" bench report "$dir/none" && says "$dir/err" "$dir/none" &&
		expect 2 "$ctl" bench report && expect 2 "$ctl" bench report "$dir/wrong" -o &&
		says "$dir/err" "-o: needs a value" || return 1
	[ -d "$dir/logs" ] || return 0
	expect 1 "$ctl" bench report "$dir/logs" -o "$dir/none/page.html" && says "$dir/err" "$dir/none/page.html"
}

start_daemon
# It died of SIGPIPE at once, and its test files stayed.  The first size lasts until head has gone.
a_reader_that_goes_away_leaves_no_files() {
	"$ctl" bench latency --nvme-path "$store" --sizes 4K 8K --iterations 5000 2>/dev/null | head -n 1 >"$dir/out"
	local rc=${PIPESTATUS[0]}
	why="exit status $rc, left: $(ls -A "$store")"
	[ "$rc" = 141 ] && [ -z "$(find "$store" -name '_dsaioctl_bench.*')" ]
}

for t in each_size_is_written_and_then_read numbers_agree_with_each_other the_open_loop_keeps_its_rate \
	what_few_transfers_do_not_tell_is_not_printed a_rate_that_is_missed_is_reported \
	advice_names_no_option_of_another_bench \
	absurd_values_are_refused ctrl_c_leaves_no_file_and_says_so ctrl_c_prints_what_was_measured_until_then a_reader_that_goes_away_leaves_no_files a_report_is_one_page_beside_the_results \
	several_runs_go_to_one_page what_is_no_result_is_reported_and_an_old_report_stays; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
