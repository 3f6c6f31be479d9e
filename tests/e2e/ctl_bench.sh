#!/bin/bash
# dsaioctl bench io and status: ds_io's lines, files and checks; status sees every process.
. "$(dirname "$0")/ctl_common.sh"

number='[0-9]+(\.[0-9]+)?(e-[0-9]+)?'

# The lines that DeepSpeed's parse_nvme_stats reads, and no others.
has_result_lines() {
	local what=$1 lines
	lines=$(grep -cE "^(Task|E2E) $what (Latency = $number sec|Speed = $number GB/sec)\$" "$dir/out")
	why="output: $(cat "$dir/out")"
	[ "$lines" = 4 ] && [ "$(wc -l <"$dir/out")" = 4 ]
}

writes_print_ds_ios_lines_and_leave_its_files() {
	expect 0 "$ctl" bench io --folder "$store" --io_size 4M --validate && has_result_lines Write &&
		says "$dir/err" "1 test file of 4 MiB stays for a later run: $store/_aio_write_4194304.pt.*" || return 1
	why="no file of that name and size: $(ls "$store")"
	[ "$(stat -c %s "$store/_aio_write_4194304.pt.0_0")" = 4194304 ]
}

# It once showed nothing until its end.
a_terminal_sees_a_bar() {
	local pid rc
	why="needs script(1)"
	command -v script >/dev/null || return 2
	SHELL=/bin/bash script -qfec "exec '$ctl' bench io --folder '$store' --io_size 1M --loops 1000000" "$dir/seen" \
		>/dev/null </dev/null &
	pid=$!
	bar_is_there() { grep -q 'writing \[' "$dir/seen" 2>/dev/null; }
	await "$pid" bar_is_there
	rc=$?
	why="it ended without a bar: $(tail -c 300 "$dir/seen")"
	kill "$(pgrep -P "$pid")" # a signal of the terminal would be ignored in the background
	wait "$pid"
	return "$rc"
}

reads_make_their_files_where_missing_or_of_another_size() {
	local file=$store/_aio_read_1000001.pt.0_0 before
	printf x >"$file"
	expect 0 "$ctl" bench io --folder "$store" --io_size 1000001 --read --validate &&
		has_result_lines Read || return 1
	why="not made anew"
	[ "$(stat -c %s "$file")" = 1000001 ] || return 1
	before=$(cksum <"$file")
	expect 0 "$ctl" bench io --folder "$store" --io_size 1000001 --read || return 1
	why="a file that fits was made anew"
	[ "$(cksum <"$file")" = "$before" ]
}

a_full_disk_leaves_no_part_of_a_file_to_read() {
	[ "$(id -u)" = 0 ] || return 2 # mounts a small file system
	local small=$dir/small rc file=_aio_read_41943040.pt.0_0
	mkdir "$small" && mount -t tmpfs -o size=16M none "$small" 2>/dev/null || return 2
	expect 1 "$ctl" bench io --private --folder "$small" --io_size 40M --read &&
		says "$dir/err" "$file: cannot make the file to read: No space left on device" &&
		{ why="left: $(ls "$small")"; [ ! -e "$small/$file" ]; } &&
		random_file "$small/$file" 5000001 && cp "$small/$file" "$dir/before" &&
		expect 1 "$ctl" bench io --private --folder "$small" --io_size 40M --read &&
		same "$dir/before" "$small/$file" && { why="blocks: $(stat -c %b "$small/$file")"; [ "$(stat -c %b "$small/$file")" -lt 10000 ]; }
	rc=$?
	umount "$small"
	return "$rc"
}

# It once left them behind, and the disk full.
a_full_disk_keeps_no_file_that_a_failed_write_made() {
	[ "$(id -u)" = 0 ] || return 2 # mounts a small file system
	local small=$dir/full rc old=_aio_write_41943040.pt.0_0
	mkdir "$small" && mount -t tmpfs -o size=16M none "$small" 2>/dev/null || return 2
	expect 1 "$ctl" bench io --private --folder "$small" --io_size 40M --multi_process 2 &&
		says "$dir/err" "No space left on device" &&
		{ why="left: $(ls "$small")"; [ -z "$(ls "$small")" ]; } &&
		random_file "$small/$old" 1000 &&
		expect 1 "$ctl" bench io --private --folder "$small" --io_size 40M &&
		{ why="a file that was there is gone"; [ -e "$small/$old" ]; }
	rc=$?
	umount "$small"
	return "$rc"
}

# It once ended without a word, and left its files.
ctrl_c_removes_the_files_that_it_made_and_says_so() {
	local pid rc there=$store/stopped
	mkdir "$there" && : >"$there/_aio_write_4194304.pt.1_0" || return 1
	env --default-signal=INT "$ctl" bench io --folder "$there" --io_size 4M --multi_process 3 --loops 1000000 \
		>"$dir/out" 2>"$dir/err" </dev/null &
	pid=$!
	while [ "$(find "$there" -size +4000k | wc -l)" != 3 ] && kill -0 "$pid" 2>/dev/null; do
		read -rt 0.02 <> <(:)
	done
	kill -INT "$pid"
	wait "$pid"
	rc=$?
	why="exit status $rc, left: $(ls "$there"): $(cat "$dir/err")"
	[ "$rc" = 130 ] && [ "$(ls "$there")" = _aio_write_4194304.pt.1_0 ] &&
		says "$dir/err" "interrupted: the transfers are stopped" "made are removed (2)"
}

# It said that all files were removed.
ctrl_c_while_it_reads_says_which_files_stay() {
	local pid rc there=$store/stopped_read
	mkdir "$there" || return 1
	env --default-signal=INT "$ctl" bench io --folder "$there" --io_size 4M --read --loops 1000000 \
		>"$dir/out" 2>"$dir/err" </dev/null &
	pid=$!
	until clients_json | grep -q '"reads": [1-9]' || ! kill -0 "$pid" 2>/dev/null; do
		read -rt 0.02 <> <(:)
	done
	kill -INT "$pid"
	wait "$pid"
	rc=$?
	why="exit status $rc, left: $(ls "$there"): $(cat "$dir/err")"
	[ "$rc" = 130 ] && [ "$(ls "$there")" = _aio_read_4194304.pt.0_0 ] &&
		says "$dir/err" "did not complete are removed (0)" "1 test file of 4 MiB stays for a later run"
}

each_loop_may_have_its_own_file() {
	expect 0 "$ctl" bench io --folder "$store" --io_size 64K --loops 2 --warmup_loops 1 \
		--different_file_each_iteration --single_submit --sequential_requests --io_parallel 3 \
		--multi_process 2 || return 1
	local task loop
	for task in 0 1; do
		for loop in 0 1 2; do
			why="no file of task $task, loop $loop"
			[ -e "$store/_aio_write_65536.pt.${task}_$loop" ] || return 1
		done
	done
}

# In memory: other tests use the disk at the same time.
json_tells_the_numbers_and_what_was_served() {
	expect 0 "$ctl" bench io --private --json --exclusive --folder "$memory" --io_size 1M --loops 2 --include_warmup_time \
		--multi_process 2 --block_size 64K --queue_depth 8 &&
		says "$dir/out" '"op": "write"' '"bytes": 6291456' '"processes": 2' '"block_size": 65536' \
			'"queue_depth": 8' '"task_latency_sec": ' '"e2e_speed_gb_per_sec": ' '"is_disturbed": false'
}

mappings_have_a_process_each() {
	mkdir -p "$store/a" "$store/b"
	expect 0 "$ctl" bench io --folder_to_device_mapping "$store/a:0" "$store/b:1" --io_size 64K &&
		has_result_lines Write || return 1
	why="a file is missing"
	[ -e "$store/a/_aio_write_65536.pt.0_0" ] && [ -e "$store/b/_aio_write_65536.pt.1_0" ]
}

an_error_of_one_process_ends_all() {
	mkdir -p "$store/c"
	mkdir "$store/c/_aio_write_65536.pt.1_0" 2>/dev/null # a directory in the second one's way
	expect 1 timeout 300 "$ctl" bench io --folder "$store/c" --io_size 64K --multi_process 3 &&
		says "$dir/err" "_aio_write_65536.pt.1_0"
}

# The names of its files can be guessed: somebody who may write to the folder may have planted them.
a_planted_link_is_not_written_through() {
	local there=$store/planted
	mkdir -p "$there"
	echo precious >"$dir/precious"
	ln -s "$dir/precious" "$there/_aio_write_65536.pt.0_0"
	ln -s "$dir/precious" "$there/_aio_read_65536.pt.0_0"
	expect 1 "$ctl" bench io --folder "$there" --io_size 64K && says "$dir/err" "is a symbolic link" &&
		expect 1 "$ctl" bench io --folder "$there" --io_size 64K --read && says "$dir/err" "is a symbolic link" ||
		return 1
	says "$dir/precious" precious || return 1
	rm "$there"/*
	ln "$dir/precious" "$there/_aio_write_65536.pt.0_0"
	expect 1 "$ctl" bench io --folder "$there" --io_size 64K && says "$dir/err" "has another name" &&
		says "$dir/precious" precious
}

another_users_file_is_not_written() {
	as_nobody || return 2
	local there=$store/shared
	mkdir -p "$there" && chmod 777 "$there"
	echo theirs >"$there/_aio_write_65536.pt.0_0"
	chown 65534:65534 "$there/_aio_write_65536.pt.0_0"
	expect 1 "$ctl" bench io --folder "$there" --io_size 64K && says "$dir/err" "belongs to another user" &&
		says "$there/_aio_write_65536.pt.0_0" theirs
}

status_during_a_bench_shows_all_four_processes() {
	local pid seen rc
	"$ctl" bench io --folder "$store" --io_size 16M --multi_process 4 --loops 1000000 >"$dir/bench" 2>&1 &
	pid=$!
	# Until all four have begun, which the first seconds show.
	await "$pid" writers_are 4
	seen=$(grep -c '"write_bytes": [1-9]' "$dir/out")
	expect 0 "$ctl" clients
	rc=$(sed "/^$/,\$d" "$dir/out" | grep -cE '^ *[0-9]+ +dsaioctl ')
	kill "$pid"
	wait "$pid" 2>/dev/null
	why="channels with writes: $seen; clients of that name, the bench among them: $rc"
	[ "$seen" = 4 ] && [ "$rc" = 5 ]
}

memory=$(mktemp -d /dev/shm/dsaio-XXXXXX) || exit 1
trap 'finish; rm -rf "$memory"' EXIT
# points_have KEY VALUE N: the output has N points, all with that value.
points_have() {
	why="$1: $(grep -oE "\"$1\": [0-9]+" "$dir/out" | sort | uniq -c | tr '\n' ' ')"
	[ "$(grep -cE "\"$1\": [0-9]+" "$dir/out")" = "$3" ] && [ "$(grep -cE "\"$1\": $2,?\$" "$dir/out")" = "$3" ]
}

# DeepNVMe's names of one thing differ from tool to tool.
one_name_works_in_all_benches() {
	local names
	# A depth of one is reached on a busy machine, too.
	echo '{"block_size": ["64K"], "queue_depth": [1], "io_parallel": [1, 2]}' >"$dir/space.json"
	for names in "--dir $store --parallel 3" "--folder $store --io_parallel 3"; do
		# shellcheck disable=SC2086 # options and values
		expect 0 "$ctl" bench io $names --io_size 1M --json && points_have intra_op_parallelism 3 1 || return 1
	done
	for names in "--dir $store --parallel 3" "--nvme-path $store --threads 3"; do
		# shellcheck disable=SC2086
		expect 0 "$ctl" bench latency $names --sizes 4K --iterations 2 --json && points_have io_parallel 3 2 || return 1
	done
	for names in "--dir $store" "--nvme_dir $store"; do
		# shellcheck disable=SC2086
		expect 0 "$ctl" bench sweep $names --parallel 3 --sweep_config "$dir/space.json" --no_read --io_size 1M \
			--log_dir "$dir/log" --json && points_have io_parallel 3 1 &&
			expect 0 "$ctl" bench tune $names --parallel 3 --sweep_config "$dir/space.json" --no_read --io_size 1M \
				--log_dir "$dir/log" && says "$dir/out" '"intra_op_parallelism": 3' || return 1
	done
}

start_daemon
for t in writes_print_ds_ios_lines_and_leave_its_files a_terminal_sees_a_bar \
	reads_make_their_files_where_missing_or_of_another_size a_full_disk_leaves_no_part_of_a_file_to_read \
	a_full_disk_keeps_no_file_that_a_failed_write_made \
	ctrl_c_removes_the_files_that_it_made_and_says_so \
	ctrl_c_while_it_reads_says_which_files_stay each_loop_may_have_its_own_file \
	json_tells_the_numbers_and_what_was_served mappings_have_a_process_each \
	an_error_of_one_process_ends_all a_planted_link_is_not_written_through \
	another_users_file_is_not_written \
	status_during_a_bench_shows_all_four_processes one_name_works_in_all_benches; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
