#!/bin/bash
# The fields that dsaioctl --json prints are those that its man pages describe.
. "$(dirname "$0")/ctl_common.sh"

checker=$(dirname "$0")/ctl_json_fields.py
# The loader finds the stand-in where the driver's library would be.
mkdir "$dir/driver"
ln -s "$BUILD/tests/gpu/libcuda.so" "$dir/driver/libcuda.so.1"

# json NAME STATUS COMMAND...: keeps the output as NAME.json.
json() {
	local name=$1
	shift
	expect "$@" --json && cp "$dir/out" "$dir/$name.json"
}

# of_proto MESSAGE: an object with the fields that its JSON has, which are those of the message, except one.
of_proto() {
	sed -n "/^message $1 {/,/^}/s/^\t\(repeated \)\?[A-Za-z0-9]* \([a-z_]*\) = .*/\"\2\": null/p" proto/dsaio.proto |
		sed 's/"text"/"what_frees_it"/' | paste -sd, | sed 's/.*/{&}/' >"$dir/$1.json"
	why="proto/dsaio.proto has no message $1"
	[ "$(wc -c <"$dir/$1.json")" -gt 10 ]
}

# page_has PAGE OBJECT=NAME...
page_has() {
	local page=$1 args=() arg
	shift
	for arg; do
		args+=("${arg%=*}=$dir/${arg##*=}.json")
	done
	why=$(python3 "$checker" "$page" "${args[@]}" 2>&1)
}

# The trace of a daemon whose socket is on tmpfs, as the flight recorder needs it.
trace_json() {
	local shm pid rc
	shm=$(mktemp -d /dev/shm/dsaio-ctl-XXXXXX) || return 1
	"$BUILD/dsaiod" --config /dev/null --socket "$shm/s.sock" --store "t=$store" 2>/dev/null &
	pid=$!
	await "$pid" "$ctl" status --socket "$shm/s.sock" >/dev/null 2>&1
	expect 0 "$ctl" cp --socket "$shm/s.sock" "$store/a" "$store/b" && json trace 0 "$ctl" trace --socket "$shm/s.sock" &&
		expect 0 env DSAIO_SOCKET="$shm/s.sock" "$ctl" trace record "$dir/job.ops" --json -- "$ctl" cp "$store/a" "$store/b" &&
		sed -n '/^{/,$p' "$dir/out" >"$dir/record.json" &&
		json replay 0 "$ctl" bench replay "$dir/job.ops" --dir "$store" --socket "$shm/s.sock"
	rc=$?
	kill "$pid"
	wait "$pid"
	rm -rf "$shm"
	return $rc
}

fields_of_commands_are_in_the_page() {
	local client rc
	why="needs python3"
	command -v python3 >/dev/null || return 2
	random_file "$store/a" 100000
	"$ctl" bench io --dir "$store" --io_size 4M --loops 1000000 >/dev/null 2>&1 &
	client=$!
	await "$client" writers_are 1 && json status 0 "$ctl" status && json clients 0 "$ctl" clients &&
		json wear 0 "$ctl" wear && json kill 0 "$ctl" kill "$("$ctl" clients | awk '$2 == "dsaioctl" { print $1; exit }')"
	rc=$?
	kill "$client"
	wait "$client" 2>/dev/null
	[ "$rc" = 0 ] && json stores 0 "$ctl" stores &&
		json show 0 "$ctl" profile show && json set 0 "$ctl" profile set t queue_depth=64 &&
		json reset 0 "$ctl" profile reset t && expect 0 "$ctl" limit --store t --iops 1000000 && json limits 0 "$ctl" limit &&
		expect 0 "$ctl" limit --store t --iops 0 && json cp 0 "$ctl" cp "$store/a" "$store/b" &&
		json put 0 "$ctl" put "$store/c" && json version 0 "$ctl" --version && json error 1 "$ctl" stores nosuch && trace_json &&
		json doctor 0 "$ctl" doctor &&
		of_proto Hung && of_proto Others && of_proto Limit && of_proto Gpus && of_proto Gpu &&
		page_has man/dsaioctl.1 status=status status=clients status=wear status=limits stores=stores stores=show stores=set \
			stores=reset cp=cp put=put trace=trace "trace record=record" doctor=doctor kill=kill version=version "an error=error" \
			hung=Hung others=Others \
			limit=Limit gpus=Gpus gpu=Gpu
}

fields_of_benches_are_in_the_page() {
	local bench="bench sweep, tune and latency" all
	why="needs python3"
	command -v python3 >/dev/null || return 2
	# A depth of one is reached on a busy machine, too.
	echo '{"block_size": ["64K"], "queue_depth": [1], "io_parallel": [1, 2]}' >"$dir/space.json"
	json io 0 "$ctl" bench io --dir "$store" --io_size 1M || return 1
	all=(--dir "$store" --log_dir "$dir/logs")
	json sweep 0 "$ctl" bench sweep "${all[@]}" --sweep_config "$dir/space.json" --io_size 1M &&
		json tune 0 "$ctl" bench tune "${all[@]}" --sweep_config "$dir/space.json" --io_size 1M &&
		json latency 0 "$ctl" bench latency "${all[@]}" --sizes 4K --iterations 20 --rate 1000 &&
		printf '[a]\nruntime=0.02\nsize=1M\n' >"$dir/job.fio" && json mix 0 "$ctl" bench mix "$dir/job.fio" --dir "$store" &&
		json gpu 0 env LD_LIBRARY_PATH="$dir/driver" "$ctl" bench latency "${all[@]}" --sizes 4K --iterations 2 --gpu &&
		echo '{"report": "", "runs": 1}' >"$dir/report.json" || return 1
	if has_matplotlib; then
		json report 0 "$ctl" bench report "$dir/logs" || return 1
	fi
	page_has man/dsaioctl-bench.1 "bench io=io" "$bench=sweep" "$bench=tune" "$bench=latency" "$bench=gpu" \
		"bench report=report" "bench mix=mix" "bench replay=replay"
}

# A checker that finds nothing would pass with every page.
a_field_too_many_on_either_side_is_found() {
	why="needs python3"
	command -v python3 >/dev/null || return 2
	sed 's/^\.It Li is_synced$/.It Li is_sunk/' man/dsaioctl.1 >"$dir/page.1"
	json put 0 "$ctl" put "$store/c" && ! page_has "$dir/page.1" put=put || return 1
	echo "$why" >"$dir/out"
	says "$dir/out" "put: is_synced is printed, and not in the page" "put: is_sunk is in the page, and never printed"
}

start_daemon
for t in fields_of_commands_are_in_the_page fields_of_benches_are_in_the_page a_field_too_many_on_either_side_is_found; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
