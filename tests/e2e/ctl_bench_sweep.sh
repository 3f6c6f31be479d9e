#!/bin/bash
# dsaioctl bench sweep: DeepSpeed's space, names and lines; resuming; only its own files are touched.
. "$(dirname "$0")/ctl_common.sh"

space=$dir/space.json
logs=$dir/logs

# sweep [OPTION]...: of two points, with fresh logs.
sweep() {
	"$ctl" bench sweep --nvme_dir "$store" --sweep_config "$space" --io_size 1M --log_dir "$logs" "$@"
}

two_points() {
	echo '{"block_size": ["64K", 1048576], "queue_depth": [8]}' >"$space"
	rm -rf "$logs"
}

# many_points: one read takes a while, all of them would take too long.
many_points() {
	echo "{\"queue_depth\": [$(seq -s, 16)], \"io_parallel\": [1, 2]}" >"$space"
	rm -rf "$logs"
}

# start_sweep [OPTION]...: in the background, until this run has two points; sets $bench.  A shell's
# background job would ignore SIGINT.
start_sweep() {
	local earlier
	earlier=$(last_run)
	env --default-signal=INT "$ctl" bench sweep --nvme_dir "${where:-$store}" --sweep_config "$space" --io_size 1M \
		--log_dir "$logs" --loops 100 "$@" >"$dir/sweep.out" 2>"$dir/sweep.err" </dev/null &
	bench=$!
	# Until it has results of its own, here() is where an earlier run's are.
	two_are_there() { [ "$(last_run)" != "$1" ] && [ "$(here)" != "$logs" ] && has_points 2 "$logs" sweep; }
	await "$bench" two_are_there "$earlier" && return 0
	why="no point was measured: $(cat "$dir/sweep.err")"
	kill "$bench" 2>/dev/null
	wait "$bench"
	return 1
}

last_run() {
	find "$logs" -maxdepth 1 -name 'sweep.*[0-9]' 2>/dev/null | sort -V | tail -n 1
}

here() {
	run_dir "$logs" sweep
}

test_files() {
	find "$store" -name '_dsaioctl_bench.*'
}

nothing_is_left() {
	why="left: $(test_files)"
	[ -z "$(test_files)" ]
}

# ---- what it measures, and how that is written down ----

the_default_space_has_deepspeeds_64_names() {
	local bs d e s p
	rm -rf "$logs"
	expect 0 "$ctl" bench sweep --nvme_dir "$store" --io_size 64K --log_dir "$logs" --no_sudo || return 1
	for s in block single; do for e in overlap sequential; do for d in 32 128; do
		for bs in 1M 8M; do for p in 1 2 4 8; do
			echo "${s}_${e}_ftd1_d${d}_bs${bs}_p$p.txt"
		done; done; done
	done; done | sort >"$dir/names"
	sed 's/^/read_/' "$dir/names" | diff - <(cd "$logs/_aio_bench_read_logs" && printf '%s\n' * | sort) >"$dir/diff" &&
		sed 's/^/write_/' "$dir/names" |
		diff - <(cd "$logs/_aio_bench_write_logs" && printf '%s\n' * | sort) >"$dir/diff" ||
		{ why="names: $(head -c 300 "$dir/diff")"; return 1; }
	why="block sizes are measured one after the other"
	[ "$(awk '{ gsub(/[",]/, "") } $1 == "op:" { is_row = 1 } is_row && $1 == "block_size:" {
		n += $2 != last; last = $2; is_row = 0 } END { print n }' "$logs/results.json")" -gt 10 ] || return 1
	why="points: $(n_points "$logs" sweep)"
	[ "$(n_points "$logs" sweep)" = 128 ] && nothing_is_left && says "$logs/results.json" '"is_complete": true'
}

# DeepSpeed's parse_nvme_stats: the name is cut at '_' (d, p, t: a number behind; bs: with K or M),
# a file's metric is the last word but one of the line that begins with "E2E Read Speed".
parse_nvme_stats() {
	local metric=$1 file
	for file in "$2"/*; do
		awk -v name="$(basename "$file" .txt)" -v search="E2E $metric Speed" '
			index($0, search) == 1 { value = $(NF - 1) }
			END {
				n = split(name, field, "_")
				for (i = 1; i <= n; i++) {
					v = field[i]
					if (v ~ /^bs[0-9]+K$/) v = substr(v, 3) * 1024
					else if (v ~ /^bs[0-9]+M$/) v = substr(v, 3) * 1048576
					else if (v ~ /^[tdp][0-9]+$/) v = substr(v, 2)
					key = key (i > 1 ? "," : "") v
				}
				if (value !~ /^[0-9.e-]+$/) value = "None"
				print key, value
			}' "$file"
	done | sort
}

# The same keys and numbers, from results.json.
results_as_stats() {
	awk -v op="$1" '
		{ gsub(/[",]/, "") }
		$1 == "op:" { is_it = $2 == op; in_served = 0 }
		$1 == "served:" { in_served = 1 }
		$1 == "repetitions:" { in_served = 0 }
		in_served { next }
		$1 == "block_size:" { bs = $2 }
		$1 == "queue_depth:" { d = $2 }
		$1 == "sequential_requests:" { e = $2 == "true" ? "sequential" : "overlap" }
		$1 == "single_submit:" { s = $2 == "true" ? "single" : "block" }
		$1 == "io_parallel:" { p = $2 }
		$1 == "processes:" { n = $2 }
		$1 == "e2e_speed_gb_per_sec:" && is_it {
			print op "," s "," e ",ftd" n "," d "," bs "," p " " $2
		}' "$logs/results.json" | sort
}

deepspeeds_parser_reads_the_same_numbers_from_our_logs() {
	mkdir -p "$store/second"
	echo '{"block_size": ["64K", "1M"], "queue_depth": [8, 16], "sequential_requests": [true, false],
		"single_submit": [true, false], "io_parallel": [1, 3]}' >"$space"
	rm -rf "$logs"
	expect 0 "$ctl" bench sweep --nvme-dir "$store" "$store/second" --sweep-config="$space" --io-size 64K \
		--log-dir "$logs" --loops 2 || return 1
	local op what
	for op in read write; do
		what=$([ $op = read ] && echo Read || echo Write)
		parse_nvme_stats $what "$logs/_aio_bench_${op}_logs" >"$dir/parsed"
		results_as_stats $op >"$dir/stats"
		why="$op: $(diff "$dir/parsed" "$dir/stats" | head -4)"
		[ "$(wc -l <"$dir/stats")" = 32 ] && cmp -s "$dir/parsed" "$dir/stats" || return 1
		! grep -q None "$dir/parsed" || return 1
	done
	nothing_is_left
}

a_row_tells_what_was_served_every_loop_and_where_it_came_from() {
	echo '{"block_size": ["16M"], "queue_depth": [4096], "io_parallel": [64]}' >"$space"
	rm -rf "$logs"
	expect 0 sweep --loops 3 --json || return 1
	why="standard output is not what is in results.json"
	cmp -s "$dir/out" "$logs/results.json" || diff <(cat "$dir/out") <(cat "$logs/results.json"; echo) >/dev/null ||
		return 1
	why="repetitions: $(grep -c '"at_sec"' "$dir/out")"
	[ "$(grep -c '"at_sec"' "$dir/out")" = 6 ] &&
		says "$dir/out" '"served": {' '"source": "' '"cpu": ' '"kernel": ' '"memory_bytes": ' \
			'"fs_type": ' '"device": ' '"profile": {' '"version": ' '"others_bytes": ' '"share": ' '"wall_sec": '
}

reads_or_writes_can_be_left_out() {
	two_points
	expect 0 sweep --no_read || return 1
	why="reads were measured"
	[ "$(n_points "$logs" sweep)" = 2 ] && [ -z "$(ls "$logs/_aio_bench_read_logs")" ] || return 1
	two_points
	expect 0 sweep --no_write || return 1
	why="writes were measured"
	[ "$(n_points "$logs" sweep)" = 2 ] && [ -z "$(ls "$logs/_aio_bench_write_logs")" ] || return 1
	expect 2 sweep --no_read --no_write && says "$dir/err" "nothing is left to measure"
}

tmpfs_is_memory_and_needs_no_daemon_of_the_systems() {
	local there
	there=$(mktemp -d /dev/shm/dsaio-XXXXXX) || return 2
	two_points
	expect 0 "$ctl" bench sweep --private --nvme_dir "$there" --sweep_config "$space" --io_size 1M \
		--log_dir "$logs" --no_write
	local rc=$?
	why="left: $(ls -A "$there")"
	rmdir "$there" && [ $rc = 0 ] && says "$logs/results.json" '"source": "memory"' '"is_private": true'
}

# ---- interrupted ----

ctrl_c_removes_the_files_and_resume_goes_on() {
	many_points
	start_sweep || return 1
	local first before rc
	kill -INT "$bench"
	wait "$bench"
	rc=$?
	why="exit status of Ctrl-C: $rc"
	[ $rc = 130 ] && nothing_is_left && says "$dir/sweep.err" "--resume goes on" &&
		says "$(here)/results.json" '"is_complete": false' || return 1
	before=$(n_points "$logs" sweep)
	first=$(begins "$logs" sweep 1)
	expect 2 sweep --loops 99 --resume && says "$dir/err" "loops 100, not 99" || return 1
	expect 2 sweep --loops 100 --io_size 2M --resume && says "$dir/err" "io_size 1048576, not 2097152" ||
		return 1
	two_points_of_the_same
	expect 2 sweep --loops 100 --resume && says "$dir/err" "was made with space" || return 1
	why="what was refused changed results.json: $before points before, $(n_points "$logs" sweep) now"
	[ "$(n_points "$logs" sweep)" = "$before" ] && [ "$(begins "$logs" sweep 1)" = "$first" ]
}

two_points_of_the_same() {
	echo '{"queue_depth": [1, 2]}' >"$space"
}

a_second_one_in_the_same_log_dir_is_refused() {
	many_points
	local rc=0
	start_sweep || return 1
	expect 1 sweep && says "$dir/err" "--log_dir $logs: a dsaioctl bench is at work there (process $bench)" || rc=1
	kill -INT "$bench" 2>/dev/null
	wait "$bench"
	[ $? = 130 ] && [ $rc = 0 ] && says "$dir/sweep.err" "interrupted: " "--resume goes on" || return 1
	two_points_of_the_same && expect 0 sweep && nothing_is_left
}

a_log_dir_that_vanished_is_not_called_kept() {
	many_points
	start_sweep || return 1
	rm -rf "$logs"
	wait "$bench"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/sweep.err" "could not be saved" && nothing_is_left
}

a_killed_sweep_is_resumed_and_leaves_no_files() {
	many_points
	local first
	start_sweep || return 1
	kill -KILL "$bench"
	wait "$bench" 2>/dev/null
	first=$(begins "$logs" sweep 1)
	why="it was over before it could be killed"
	[ "$(n_points "$logs" sweep)" -lt 64 ] && nothing_is_left || return 1
	# A row that the crash cut short.
	printf '{"points":{"op":"read"' >>"$(here)/rows.jsonl"
	expect 0 sweep --loops 100 --resume || return 1
	why="the first point was measured again, or points are missing: $(n_points "$logs" sweep)"
	[ "$(begins "$logs" sweep 1)" = "$first" ] && [ "$(n_points "$logs" sweep)" = 64 ] || return 1
	why="logs: $(find "$logs" -name '*.txt' | wc -l)"
	[ "$(find "$logs"/_aio_bench_*/ -name '*.txt' | wc -l)" = 64 ] || return 1
	expect 0 sweep --loops 100 --resume && says "$dir/err" "results in $logs are complete"
}

# A process that is killed loses no row, however short the points are; what is cut short is no row.
a_killed_sweep_of_short_points_has_every_row_that_it_wrote() {
	local n
	rm -rf "$logs"
	echo "{\"queue_depth\": [$(seq -s, 100)], \"io_parallel\": [$(seq -s, 32)]}" >"$space"
	"$ctl" bench sweep --nvme_dir "$store" --sweep_config "$space" --io_size 4K --log_dir "$logs" --no_write \
		>"$dir/sweep.out" 2>"$dir/sweep.err" </dev/null &
	bench=$!
	await "$bench" has_points 50 "$logs" sweep
	why="it was over before it could be killed: $(cat "$dir/sweep.err")"
	kill -KILL "$bench" 2>/dev/null || return 1
	wait "$bench" 2>/dev/null
	n=$(n_points "$logs" sweep)
	why="$n points, and whole lines: $(grep -c '^{"points":.*}$' "$(here)/rows.jsonl")"
	[ "$n" -ge 50 ] && [ "$(grep -c '^{"points":.*}$' "$(here)/rows.jsonl")" = "$n" ] || return 1
	# A report shows them, and another sweep takes nothing away.
	! has_matplotlib || { expect 0 "$ctl" bench report "$logs" -o "$dir/page.html" && says "$dir/page.html" "not complete" &&
		grep -qE "<td>[0-9]+ of $n</td>" "$dir/page.html"; } || return 1
	cksum "$(here)"/* >"$dir/before"
	echo '{"queue_depth": [1], "io_parallel": [1]}' >"$space"
	expect 0 sweep --io_size 4K --no_write && nothing_is_left || return 1
	cksum "$logs"/sweep.1/* >"$dir/after"
	same "$dir/before" "$dir/after"
}

a_process_that_dies_is_a_row_with_an_error() {
	many_points
	start_sweep || return 1
	local worker
	worker=$(pgrep -P "$bench" | head -1)
	kill -KILL "$worker"
	local n
	n=$(n_points "$logs" sweep)
	await "$bench" has_points $((n + 3)) "$logs" sweep
	kill -INT "$bench"
	wait "$bench"
	says "$(here)/results.json" '"error": "process 0: ended by signal 9"' || return 1
	why="no point was measured after it"
	[ "$(grep -c '"error": null' "$(here)/results.json")" -ge 4 ] && nothing_is_left
}

a_daemon_that_goes_away_leaves_what_was_measured() {
	local n rc
	many_points
	start_sweep || return 1
	stop_daemon
	wait "$bench"
	rc=$?
	n=$(grep -c '"error": null' "$(here)/results.json")
	start_daemon
	why="exit status $rc, $n points"
	[ $rc = 1 ] && [ "$n" -ge 2 ] && says "$dir/sweep.err" "points are in $logs/sweep.1: --resume goes on" &&
		nothing_is_left || return 1
	expect 0 sweep --loops 100 --resume || return 1
	why="points: $(n_points "$logs" sweep)"
	[ "$(n_points "$logs" sweep)" = 64 ]
}

points_that_fail_are_rows_and_measured_again() {
	many_points
	start_sweep --no_write || return 1
	truncate -s 4096 "$(find "/proc/$bench/fd" -lname "$(realpath "$store")/*(deleted)" | sort -V | head -n 1)" # to read
	wait "$bench"
	local rc=$?
	why="exit status of a sweep with failed points: $rc; $(tail -3 "$dir/sweep.err")"
	[ $rc = 0 ] && says "$logs/results.json" "became shorter" && says "$dir/sweep.err" "points failed" ||
		return 1
	local failed_points
	failed_points=$(grep -c '"error": "' "$logs/results.json")
	why="logs of points that failed: $(find "$logs" -name '*.txt' | wc -l) files"
	[ "$(find "$logs" -name '*.txt' | wc -l)" = $((32 - failed_points)) ] || return 1
	expect 0 sweep --loops 100 --no_write --resume || return 1
	why="errors are still there: $(grep -c '"error": "' "$logs/results.json")"
	! grep -q '"error": "' "$logs/results.json"
}

# ---- what is not its own ----

a_folder_with_foreign_files_is_left_as_it_was() {
	local there=$store/theirs
	mkdir -p "$there/sub"
	echo 1 >"$there/_dsaioctl_bench.abcdef"
	echo 2 >"$there/read"
	echo 3 >"$there/sub/model.pt"
	ln -s "$there/sub" "$there/_dsaioctl_bench.link"
	(cd "$there" && find . -type f -exec cksum {} + | sort) >"$dir/before"
	two_points
	expect 0 "$ctl" bench sweep --nvme_dir "$there" --sweep_config "$space" --io_size 1M --log_dir "$logs" || return 1
	(cd "$there" && find . -type f -exec cksum {} + | sort) >"$dir/after"
	same "$dir/before" "$dir/after" || return 1
	why="new: $(ls -A "$there")"
	[ "$(ls -A "$there" | wc -l)" = 4 ] || return 1
	rm -r "$there"
}

somebody_elses_logs_are_left_and_reported() {
	two_points
	mkdir -p "$logs/_aio_bench_read_logs"
	echo theirs >"$logs/_aio_bench_read_logs/read_block_overlap_ftd1_d8_bs64K_p1.txt"
	expect 1 sweep && says "$dir/err" "$logs/_aio_bench_read_logs: " "another --log_dir" || return 1
	says "$logs/_aio_bench_read_logs/read_block_overlap_ftd1_d8_bs64K_p1.txt" theirs || return 1
	rm -r "$logs/_aio_bench_read_logs"
	echo '{"points": 1}' >"$logs/results.json"
	expect 1 sweep && says "$dir/err" "$logs/results.json: is no link to a run" &&
		says "$logs/results.json" '"points": 1'
}

# sums: of every file of every run in the log directory.
sums() {
	(cd "$logs" && find . -type f ! -path "./report.html" -exec cksum {} + | sort -k 3)
}

# is_kept: the first sweep's results and logs, whose sums are in $dir/first, are as they were.
is_kept() {
	sums | grep -F ' ./sweep.1/' >"$dir/kept"
	same "$dir/first" "$dir/kept"
}

a_second_sweep_keeps_the_first_ones_results_and_logs() {
	two_points
	expect 0 sweep && sums >"$dir/first" || return 1
	echo '{"block_size": ["128K"], "queue_depth": [8]}' >"$space"
	expect 0 sweep || return 1
	is_kept || return 1
	why="logs of the first sweep are among those of the second: $(ls "$logs/_aio_bench_read_logs")"
	[ "$(ls "$logs/_aio_bench_read_logs")" = read_block_overlap_ftd1_d8_bs128K_p1.txt ] || return 1
	why="in the log directory: $(ls -A "$logs")"
	[ "$(ls -A "$logs" | sort | tr '\n' ' ')" = \
		"$(printf '%s\n' _aio_bench_read_logs _aio_bench_write_logs results.json sweep sweep.1 sweep.2 | sort | tr '\n' ' ')" ] ||
		return 1
	! has_matplotlib || { expect 0 "$ctl" bench report "$logs" "$logs/sweep.1" -o "$dir/page.html" --json && says "$dir/out" '"runs": 2'; }
}

a_tune_after_a_sweep_leaves_its_results_and_logs() {
	two_points
	expect 0 sweep && sums >"$dir/first" || return 1
	# A depth that even one request reaches: the tune has a verdict on any machine.
	echo '{"block_size": ["64K", "1M"], "queue_depth": [1]}' >"$space"
	expect 0 "$ctl" bench tune --nvme_dir "$store" --sweep_config "$space" --io_size 1M --log_dir "$logs" || return 1
	sums | grep -v tune >"$dir/after"
	same "$dir/first" "$dir/after" || return 1
	! has_matplotlib || { expect 0 "$ctl" bench report "$logs" --json && says "$dir/out" '"runs": 2' &&
		says "$logs/report.html" "$logs/results.json" "$logs/tune.json" "recommended profile"; } || return 1
	sums | grep ' ./tune' >"$dir/before"
	expect 0 sweep || return 1
	sums | grep ' ./tune' >"$dir/after"
	same "$dir/before" "$dir/after" && says "$logs/tune.json" '"is_complete": true'
}

a_sweep_that_fails_leaves_the_results_that_were_there() {
	two_points
	expect 0 sweep && sums >"$dir/first" || return 1
	unchanged() {
		sums >"$dir/after"
		same "$dir/first" "$dir/after" || { why="$1: $why"; return 1; }
	}
	local there=$dir/nothing
	# No such folder; a file; one where nothing can be made; no room.
	expect 1 "$ctl" bench sweep --nvme_dir "$there" --sweep_config "$space" --io_size 1M --log_dir "$logs" &&
		unchanged "no folder" || return 1
	expect 1 "$ctl" bench sweep --nvme_dir "$space" --sweep_config "$space" --io_size 1M --log_dir "$logs" &&
		unchanged "no directory" || return 1
	expect 1 "$ctl" bench sweep --nvme_dir /proc --sweep_config "$space" --io_size 1M --log_dir "$logs" &&
		unchanged "/proc" || return 1
	expect 1 sweep --io_size 60T && unchanged "no room"
}

a_killed_sweep_leaves_the_results_that_were_there() {
	two_points
	expect 0 sweep && sums >"$dir/first" || return 1
	local signal
	for signal in KILL INT; do
		echo "{\"queue_depth\": [$(seq -s, 16)], \"io_parallel\": [1, 2]}" >"$space"
		start_sweep || return 1
		kill -$signal "$bench"
		wait "$bench" 2>/dev/null
		is_kept || return 1
		why="the last complete run is $(readlink "$logs/sweep")"
		[ "$(readlink "$logs/sweep")" = sweep.1 ] || return 1
	done
	# The last one is what --resume continues, and then the first one's results are kept.
	expect 0 sweep --loops 100 --resume || return 1
	why="points: $(grep -c '"op": ' "$logs/results.json")"
	[ "$(grep -c '"op": ' "$logs/results.json")" = 64 ] || return 1
	is_kept && nothing_is_left
}

# The owner of a log directory plants links; root measures there and writes through none of them.
a_log_directory_of_another_user_does_not_redirect_roots_writes() {
	as_nobody || return 2
	local there=$dir/open/hers folder=$store/hers log name
	mkdir -p "$dir/open" "$dir/roots" "$folder"
	chmod 777 "$dir/open" "$folder"
	two_points
	chmod 644 "$space"
	local words=(bench sweep --nvme_dir "$folder" --sweep_config "$space" --io_size 1M --log_dir "$there")
	expect 0 "${nobody[@]}" "$ctl" "${words[@]}" || return 1
	echo precious >"$dir/roots/precious"
	for log in "$there"/_aio_bench_*/*.txt; do
		"${nobody[@]}" ln -sf "$dir/roots/precious" "$log" || return 1
	done
	for name in sweep.2.new report.html sweep.1/rows.jsonl; do
		"${nobody[@]}" ln -sf "$dir/roots/precious" "$there/$name" || return 1
	done
	untouched() {
		says "$dir/roots/precious" precious || return 1
		why="in root's directory: $(ls "$dir/roots")"
		[ "$(wc -l <"$dir/roots/precious")" = 1 ] && [ "$(ls "$dir/roots")" = precious ]
	}
	# As an earlier run of hers, and with a new one of root's own.
	expect 0 "$ctl" "${words[@]}" --resume && untouched || return 1
	expect 1 "$ctl" "${words[@]}" && says "$dir/err" "the results stay in $there/sweep.2" && untouched || return 1
	expect 0 "$ctl" "${words[@]}" && untouched || return 1
	! has_matplotlib || { expect 0 "$ctl" bench report "$there" && untouched; } || return 1
	"${nobody[@]}" cp -R "$there/sweep.1" "$there/sweep.9" &&
		"${nobody[@]}" sed -i '2i "rows_file": "rows.jsonl",' "$there/sweep.9/results.json" || return 1
	expect 1 "$ctl" "${words[@]}" --resume && says "$dir/err" "rows.jsonl: is a symbolic link" && untouched ||
		return 1
	# A directory of hers in place of the logs', and in place of all.
	rm -rf "$there"
	"${nobody[@]}" mkdir "$there" && "${nobody[@]}" ln -s "$dir/roots" "$there/_aio_bench_read_logs" || return 1
	expect 1 "$ctl" "${words[@]}" && says "$dir/err" "_aio_bench_read_logs" && untouched || return 1
	rm -rf "$there"
	"${nobody[@]}" ln -s "$dir/roots" "$there" || return 1
	expect 1 "$ctl" "${words[@]}" && says "$dir/err" "root follows no link" && untouched
}

# Whether the buffers are in huge pages decides about the speed: every run says so, and so does a report.
the_share_of_the_buffers_in_huge_pages_is_reported() {
	local rc=0
	two_points
	expect 0 sweep && says "$dir/err" "buffers: " " in huge pages" && says "$logs/results.json" '"huge_page_bytes": ' ||
		return 1
	stop_daemon
	printf '[daemon]\nhuge_pages = no\n' >"$dir/dsaiod.conf"
	start_daemon --store "m=$memory"
	{ expect 0 sweep --log_dir "$dir/small_pages" && says "$dir/err" "buffers: none of 1 MiB in huge pages" "huge_pages" &&
		says "$dir/small_pages/results.json" '"huge_page_bytes": 0' &&
		{ ! has_matplotlib || { expect 0 "$ctl" bench report "$logs" "$dir/small_pages" -o "$dir/page.html" &&
			says "$dir/page.html" "<td>none of 1 MiB</td>"; }; }; } || rc=1
	stop_daemon
	: >"$dir/dsaiod.conf"
	start_daemon --store "m=$memory"
	return $rc
}

keep_leaves_the_files() {
	two_points
	expect 0 sweep --keep && says "$dir/err" "the test file is kept: $store/_dsaioctl_bench." || return 1
	why="kept: $(ls -l "$store")"
	[ "$(stat -c %s "$store"/_dsaioctl_bench.* | xargs)" = "1048576 1048576" ] || return 1
	two_points
	expect 0 sweep || return 1
	why="the next sweep removed what was kept"
	[ "$(test_files | wc -l)" = 2 ] || return 1
	rm "$store"/_dsaioctl_bench.*
}

# ---- room and rights ----

# It once took up to 30 s: the command waited for the daemon's status.
one_ctrl_c_is_enough_while_the_daemon_is_stopped() {
	local pid began rc
	env --default-signal=INT "$ctl" bench sweep --nvme_dir "$store" --io_size 1M --loops 1000 --log_dir "$dir/stopped" \
		>"$dir/out" 2>"$dir/err" &
	pid=$!
	await "$pid" has_points 1 "$dir/stopped" sweep
	kill -STOP "$daemon"
	began=$SECONDS
	kill -INT "$pid"
	wait "$pid"
	rc=$?
	kill -CONT "$daemon"
	why="exit status $rc after $((SECONDS - began)) s: $(cat "$dir/err")"
	[ "$rc" = 130 ] && [ $((SECONDS - began)) -lt 29 ] && says "$dir/err" "points are in" && nothing_is_left
}

a_disk_that_is_too_full_is_reported_before_anything_is_made() {
	[ "$(id -u)" = 0 ] || return 2
	local small=$dir/small rc
	mkdir "$small" && mount -t tmpfs -o size=12M none "$small" 2>/dev/null || return 2
	two_points
	mkdir "$small/a" "$small/b"
	expect 1 "$ctl" bench sweep --nvme_dir "$small/a" "$small/b" --sweep_config "$space" --io_size 4M \
		--log_dir "$logs" && says "$dir/err" "need 16 MiB" "has 12 MiB free" "give a smaller size"
	rc=$?
	why="${why:-left: $(ls -A "$small")}"
	[ "$(find "$small" -mindepth 1 | sort | tr '\n' ' ')" = "$small/a $small/b " ] || rc=1
	if [ $rc = 0 ]; then # results that cannot be written
		head -c 12M /dev/zero >"$small/zero" 2>/dev/null
		two_points
		expect 1 sweep --log_dir "$small" && says "$dir/err" "No space left" && nothing_is_left
		rc=$?
	fi
	umount "$small"
	return $rc
}

# It once named a results file that had none of its points.
a_disk_that_fills_up_meanwhile_is_named_with_the_points_that_it_has() {
	[ "$(id -u)" = 0 ] || return 2
	local small=$dir/filled logs=$dir/filled/logs rc n
	mkdir "$small" && mount -t tmpfs -o size=12M none "$small" 2>/dev/null || return 2
	many_points
	start_sweep || return 1
	head -c 12M /dev/zero >"$small/zero" 2>/dev/null
	wait "$bench"
	rc=$?
	n=$(sed -nE "s|.*not complete: ([0-9]+) points are in $logs/sweep.1: --resume goes on|\\1|p" "$dir/sweep.err")
	why="exit status $rc, $(grep -c '^{"points":.*}$' "$logs/sweep.1/rows.jsonl") rows: $(cat "$dir/sweep.err")"
	[ "$rc" = 1 ] && [ "${n:-0}" -ge 1 ] &&
		[ "$(grep -c '^{"points":.*}$' "$logs/sweep.1/rows.jsonl")" = "$n" ] && nothing_is_left
	rc=$?
	umount "$small"
	return $rc
}

a_folder_that_can_not_be_written_is_reported() {
	two_points
	expect 1 "$ctl" bench sweep --nvme_dir "$dir/nowhere" --log_dir "$logs" &&
		says "$dir/err" "$dir/nowhere: No such file" &&
		expect 1 "$ctl" bench sweep --nvme_dir "$space" --log_dir "$logs" && says "$dir/err" "is no folder" &&
		expect 1 sweep --log_dir "$space/logs" && says "$dir/err" "--log_dir $space/logs" || return 1
	as_nobody || return 2
	mkdir -p "$dir/open"
	chmod 777 "$dir/open"
	chmod 644 "$space"
	expect 1 "${nobody[@]}" "$ctl" bench sweep --nvme_dir "$store" --sweep_config "$space" --io_size 1M \
		--log_dir "$dir/open/logs" && says "$dir/err" "$store: cannot make a test file" "Permission denied" &&
		expect 1 "${nobody[@]}" "$ctl" bench sweep --nvme_dir "$store" --sweep_config "$space" --io_size 1M \
			--log_dir "$dir/new/logs" && says "$dir/err" "new/logs: cannot be made: Permission denied"
}

flushing_needs_root_and_says_so_without_failing() {
	as_nobody || return 2
	mkdir -p "$dir/open" "$store/open"
	chmod 777 "$dir/open" "$store/open"
	two_points
	chmod 644 "$space"
	expect 0 "${nobody[@]}" "$ctl" bench sweep --nvme_dir "$store/open" --sweep_config "$space" --io_size 1M \
		--log_dir "$dir/open/flush" --flush_page_cache || return 1
	why="printed $(grep -c "needs root" "$dir/err") times"
	[ "$(grep -c "needs root" "$dir/err")" = 1 ]
}

# ---- a guest ----

exclusive_is_refused_while_another_client_is_there() {
	local other rc n
	writers_are 0
	n=$(grep -c '"write_bytes": [1-9]' "$dir/out")
	"$ctl" bench io --folder "$store" --io_size 4M --loops 1000000 >/dev/null 2>&1 &
	other=$!
	await "$other" writers_are $((n + 1))
	two_points
	expect 1 sweep --exclusive && says "$dir/err" "the store is used by 1 other client: " || rc=1
	[ -n "$rc" ] || { expect 1 "$ctl" bench io --folder "$store" --io_size 64K --exclusive &&
		says "$dir/err" "--exclusive: the store is used by 1 other client"; } || rc=1
	kill "$other"
	wait "$other" 2>/dev/null
	[ -z "$rc" ] || return 1
	why="refused, it left something in its logs"
	[ "$(n_points "$logs" sweep)" = 0 ]
}

its_handles_are_of_the_class_background() {
	many_points
	start_sweep || return 1
	# Between two points it has no handle.
	background_is_there() { "$ctl" clients >"$dir/out" && grep -qE ' background +1 ' "$dir/out"; }
	await "$bench" background_is_there
	local rc=$?
	kill -INT "$bench"
	wait "$bench"
	[ $rc = 0 ] && return 0
	why="clients: $(cat "$dir/out")"
	return 1
}

# ---- usage, progress ----

a_space_that_is_none_is_reported() {
	printf '{"block_size": ["1M"],\n "queue_depth": [32,, 64]}' >"$space"
	expect 2 sweep && says "$dir/err" "$space: is no JSON" "queue_depth" || return 1
	echo '{"block_sizes": ["1M"]}' >"$space"
	expect 2 sweep && says "$dir/err" "$space: block_sizes: unknown key" "sequential_requests" || return 1
	echo '{"queue_depth": [0]}' >"$space"
	expect 2 sweep && says "$dir/err" "queue_depth" "0" "4096" || return 1
	expect 2 sweep --io_size 0 && says "$dir/err" "--io_size 0" &&
		expect 2 sweep --loops 0 && says "$dir/err" "--loops 0" &&
		expect 2 sweep --io_size 1P && expect 2 sweep extra && says "$dir/err" "takes no arguments" &&
		expect 2 "$ctl" bench sweep && says "$dir/err" "--dir" &&
		expect 2 sweep --sweep_config "$dir/none.json" && says "$dir/err" "$dir/none.json: No such file"
}

absurd_sizes_are_reported_before_anything_is_made() {
	two_points
	expect 1 sweep --io_size 60T && says "$dir/err" "free: give a smaller size" && nothing_is_left
}

piped_it_prints_plain_lines_and_a_terminal_gets_one() {
	two_points
	expect 0 sweep --verbose && says "$dir/err" "sweep: point 1 of 4: " " GB/s read_block_overlap_ftd1_d8_bs64K_p1, " \
		" left" || return 1
	why="no plain lines"
	! grep -q $'[\r\033]' "$dir/err" || return 1
	command -v script >/dev/null || return 2
	rm -rf "$logs"
	script -qec "$ctl bench sweep --nvme_dir $store --sweep_config $space --io_size 1M --log_dir $logs" \
		/dev/null >"$dir/out" </dev/null
	says "$dir/out" $'\rsweep: point 2 of 4  ETA ' " GB/s read_block_"
}

without_a_terminal_there_are_a_few_lines() {
	rm -rf "$logs"
	echo "{\"queue_depth\": [$(seq -s, 25)], \"io_parallel\": [1, 2, 3, 4]}" >"$space"
	expect 0 sweep --io_size 4K --no_write || return 1
	why="$(grep -c 'point ' "$dir/err") lines for 100 points"
	[ "$(grep -c 'point ' "$dir/err")" -le 12 ] && says "$dir/err" "point 1 of 100" "point 100 of 100"
}

one_folder_given_twice_is_refused() {
	two_points
	ln -sfn "$store" "$dir/again"
	expect 2 "$ctl" bench sweep --nvme_dir "$store" "$dir/again" --sweep_config "$space" --io_size 1M --log_dir "$logs" &&
		says "$dir/err" "$store and $dir/again are one folder" && nothing_is_left
}

memory=$(mktemp -d /dev/shm/dsaio-XXXXXX) || exit 1
trap 'finish; rm -rf "$memory"' EXIT
start_daemon --store "m=$memory"
for t in the_default_space_has_deepspeeds_64_names deepspeeds_parser_reads_the_same_numbers_from_our_logs \
	a_row_tells_what_was_served_every_loop_and_where_it_came_from reads_or_writes_can_be_left_out \
	tmpfs_is_memory_and_needs_no_daemon_of_the_systems ctrl_c_removes_the_files_and_resume_goes_on \
	a_second_one_in_the_same_log_dir_is_refused a_log_dir_that_vanished_is_not_called_kept \
	a_killed_sweep_is_resumed_and_leaves_no_files \
	a_killed_sweep_of_short_points_has_every_row_that_it_wrote a_process_that_dies_is_a_row_with_an_error \
	a_daemon_that_goes_away_leaves_what_was_measured points_that_fail_are_rows_and_measured_again a_folder_with_foreign_files_is_left_as_it_was \
	somebody_elses_logs_are_left_and_reported a_second_sweep_keeps_the_first_ones_results_and_logs \
	a_tune_after_a_sweep_leaves_its_results_and_logs a_sweep_that_fails_leaves_the_results_that_were_there \
	a_killed_sweep_leaves_the_results_that_were_there \
	a_log_directory_of_another_user_does_not_redirect_roots_writes keep_leaves_the_files \
	the_share_of_the_buffers_in_huge_pages_is_reported \
	one_ctrl_c_is_enough_while_the_daemon_is_stopped \
	a_disk_that_is_too_full_is_reported_before_anything_is_made \
	a_disk_that_fills_up_meanwhile_is_named_with_the_points_that_it_has a_folder_that_can_not_be_written_is_reported \
	flushing_needs_root_and_says_so_without_failing \
	exclusive_is_refused_while_another_client_is_there \
	its_handles_are_of_the_class_background \
	a_space_that_is_none_is_reported absurd_sizes_are_reported_before_anything_is_made \
	piped_it_prints_plain_lines_and_a_terminal_gets_one without_a_terminal_there_are_a_few_lines \
	one_folder_given_twice_is_refused; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
