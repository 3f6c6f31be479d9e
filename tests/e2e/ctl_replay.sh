#!/bin/bash
# dsaioctl trace record and bench replay: the ops of a job, recorded and done again.
TMPDIR=/dev/shm
. "$(dirname "$0")/ctl_common.sh"

why_skip="needs python3, and /dev/shm on tmpfs"
if ! command -v python3 >/dev/null || [ "$(stat -f -c %T "$dir")" != tmpfs ]; then
	echo "skip ctl: record and replay: $why_skip"
	exit 0
fi
# On a disk as jobs are: tmpfs has no direct I/O to compare.
disk=$(mktemp -d /var/tmp/dsaio-ctl-XXXXXX) || exit 1
store=$disk/store
mkdir "$store"
trap 'finish; rm -rf "$disk"' EXIT
random_file "$store/a" 3000123

# holds EXPRESSION FILE...: Python, where j is the list of the JSON in the files.
holds() {
	local expression=$1
	shift
	why="$expression is false of: $(head -c 900 "$@" | tr '\n' ' ')"
	python3 -c 'import json, sys
j = [json.load(open(name)) for name in sys.argv[2:]]
sys.exit(not eval("(" + sys.argv[1] + ")"))' "$expression" "$@"
}

record() {
	expect 0 "$ctl" trace record "$dir/job.ops" "$@"
}

# shape FILTER <TRACE >OPS: what each op was, without times, and without its place in the replay's one file.
shape() {
	python3 -c 'import json, sys
for e in json.load(sys.stdin)["ops"]:
    if eval(sys.argv[1]):
        print(e["what"], e["offset"] % 4096, e["bytes"])' "$1"
}

the_same_ops_are_done_again() {
	local before after
	"$ctl" trace record "$dir/job.ops" -- "$ctl" cp "$store/a" "$store/b" >"$dir/out" 2>"$dir/err" || return 1
	says "$dir/out" "$dir/job.ops: " "5.72 MiB" && expect 0 "$ctl" trace --json || return 1
	shape True <"$dir/out" >"$dir/recorded"
	before=$(ls -lA --full-time "$store")
	expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" && says "$dir/out" "recorded" "replayed" && says "$dir/err" "streams: 1, " || return 1
	why="the files of the job, or others there, are changed"
	after=$(ls -lA --full-time "$store")
	[ "$before" = "$after" ] && cmp "$store/a" "$store/b" || return 1
	# Its first op, a sync, opens the channel.
	expect 0 "$ctl" trace --json || return 1
	shape True <"$dir/out" | tail -n "+$(($(wc -l <"$dir/recorded") + 2))" >"$dir/replayed"
	why="recorded: $(cat "$dir/recorded"), replayed: $(cat "$dir/replayed")"
	[ -s "$dir/recorded" ] && diff "$dir/recorded" "$dir/replayed" >/dev/null || return 1
	expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --fast --json &&
		holds 'j[0]["is_fast"] and j[0]["recorded"]["ops"] == j[0]["replayed"]["ops"] > 0 and
j[0]["recorded"]["bytes"] == j[0]["replayed"]["bytes"] == 2 * 3000123' "$dir/out"
}

# Each process of a bench is a client.
streams_run_side_by_side() {
	local bench=("$ctl" bench io --dir "$store" --io_size 1M --multi_process 3 --loops 4)
	"$ctl" trace record "$dir/job.ops" --json -- "${bench[@]}" >"$dir/all" 2>"$dir/err"
	sed -n '/^{/,$p' "$dir/all" >"$dir/out"
	rm -f "$store"/_aio*
	holds 'j[0]["ops"] >= 15 and j[0]["bytes"] == j[0]["ops"] << 20 and j[0]["events_lost"] == 0' "$dir/out" || return 1
	cp "$dir/out" "$dir/recorded"
	expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --json &&
		holds 'j[0]["streams"] == 3 and j[0]["recorded"]["ops"] == j[0]["replayed"]["ops"] == j[1]["ops"] and
j[0]["recorded"]["bytes"] == j[0]["replayed"]["bytes"] and
0 < j[0]["replayed"]["p50_nsec"] <= j[0]["replayed"]["took_nsec"]' \
			"$dir/out" "$dir/recorded"
}

# 40 writes, 5 ms apart, and as many reads: the pauses are the time that their latencies are not.
pauses_are_kept() {
	record -- "$ctl" bench latency --dir "$store" --sizes 4K --iterations 40 --rate 200 &&
		expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --json &&
		holds 'j[0]["streams"] == 2 and j[0]["recorded"]["took_nsec"] >= 190e6 and j[0]["replayed"]["took_nsec"] >= 80e6' "$dir/out"
}

# Reads at the end of a file, and writes that make one longer, find the file as the job did.
ends_of_files_are_where_they_were() {
	record -- sh -c "'$ctl' cat '$store/a' | '$ctl' put '$store/put' && '$ctl' cat '$store/put'" &&
		cmp "$store/a" "$store/put" && expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --json &&
		holds 'j[0]["recorded"]["bytes"] == j[0]["replayed"]["bytes"] == 3 * 3000123' "$dir/out"
}

a_record_has_only_what_was_asked_for() {
	rm -f "$dir/job.ops"
	expect 1 "$ctl" trace record "$dir/job.ops" --user 4242 -- "$ctl" cat "$store/a" && says "$dir/err" "no op came" &&
		expect 1 "$ctl" trace record "$dir/job.ops" --store other -- "$ctl" cat "$store/a" &&
		expect 1 "$ctl" trace record "$dir/job.ops" --pid $$ -- "$ctl" cat "$store/a" || return 1
	record --store t --user "$(id -u)" -- "$ctl" cat "$store/a" && says "$dir/out" "2.86 MiB"
}

the_status_is_that_of_the_program() {
	expect 7 "$ctl" trace record "$dir/job.ops" -- sh -c "'$ctl' cat '$store/a' >/dev/null; exit 7" &&
		says "$dir/out" "2.86 MiB" && expect 1 "$ctl" trace record "$dir/job.ops" -- "$dir/none" && says "$dir/err" "No such file"
}

# begins: the record that writes to record.out has begun to read.
begins() {
	grep -q recording "$dir/record.out"
}

a_signal_ends_a_record() {
	local pid
	rm -f "$dir/job.ops"
	"$ctl" trace record "$dir/job.ops" >"$dir/record.out" 2>&1 &
	pid=$!
	await "$pid" begins || return 1
	for _ in 1 2 3; do "$ctl" cat "$store/a" >/dev/null; done
	kill -TERM "$pid" # SIGINT is ignored in the background of a script
	wait "$pid"
	why="exit status $? of: $(cat "$dir/record.out")"
	grep -q "job.ops: .* ops, " "$dir/record.out" && [ -s "$dir/job.ops" ] || return 1
	expect 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --fast
}

# make_ops END KIND: an op of that kind, of the last 4 KiB of a file that ends there.
make_ops() {
	python3 -c 'import struct, sys
end, kind = int(sys.argv[2]), int(sys.argv[3])
header = b"dsaiorec" + struct.pack("<IIII", 2, 64, 34, 0) + bytes(24 + 64)
header += bytes(128 - len(header)) + struct.pack("<Q", 2) + bytes(56)
event = lambda nsec, result, what: struct.pack("<QQQQqIIIIIBBxx", nsec, 1, end - 4096, 4096, result, 1, 1, 1, 1, 0, what, kind)
open(sys.argv[1], "wb").write(header + event(5000, 0, 1) + event(6000, 4096, 2) + bytes(64 * 32))' "$dir/made.ops" "$@"
}

files_that_cannot_be_replayed_are_refused() {
	make_ops 1048576 1 && expect 0 "$ctl" bench replay "$dir/made.ops" --dir "$store" && says "$dir/err" "streams: 1, ops: 1, and 0 that" || return 1
	make_ops $((1 << 40)) 1 && expect 1 "$ctl" bench replay "$dir/made.ops" --dir "$store" &&
		says "$dir/err" "1 TiB" "free" || return 1
	make_ops 1048576 9 && expect 1 "$ctl" bench replay "$dir/made.ops" --dir "$store" && says "$dir/err" "made.ops: has no op that can be done again" &&
		expect 1 "$ctl" bench replay "$store/a" --dir "$store" && says "$dir/err" "is no file of the flight recorder" &&
		expect 1 "$ctl" bench replay "$dir/none" --dir "$store" && expect 1 "$ctl" bench replay "$dir/job.ops" --dir "$dir/none" || return 1
	why="left: $(ls -A "$store")"
	[ -z "$(find "$store" -name '_dsaioctl*')" ]
}

another_user_may_not_record() {
	as_nobody || return 2
	expect 1 "${nobody[@]}" "$ctl" trace record /tmp/dsaio-none.ops -- true && says "$dir/err" "only root" "may read it"
}

a_private_daemon_replays() {
	make_ops 1048576 2 && expect 0 env -u DSAIO_SOCKET DSAIOD="$BUILD/dsaiod" "$ctl" bench replay "$dir/made.ops" --dir "$store" --private
}

its_usage_is_checked() {
	expect 2 "$ctl" trace record && says "$dir/err" "name a file" && expect 2 "$ctl" trace record "$dir/x" --private &&
		expect 1 "$ctl" trace record "$dir/none/x" -- true &&
		expect 2 "$ctl" trace recorded && says "$dir/err" "recorded" && expect 2 "$ctl" bench replay --dir "$store" &&
		expect 2 "$ctl" bench replay "$dir/made.ops" && says "$dir/err" "--dir" && expect 0 "$ctl" trace record --help &&
		says "$dir/out" "dsaioctl trace record" && expect 3 "$ctl" bench replay "$dir/made.ops" --dir "$store" --socket "$dir/none.sock"
}

start_daemon
for t in the_same_ops_are_done_again streams_run_side_by_side pauses_are_kept ends_of_files_are_where_they_were \
	a_record_has_only_what_was_asked_for the_status_is_that_of_the_program \
	a_signal_ends_a_record files_that_cannot_be_replayed_are_refused another_user_may_not_record \
	a_private_daemon_replays its_usage_is_checked; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
