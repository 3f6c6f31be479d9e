#!/bin/bash
# bench full: the smallest point on every side, and what its JSON and its refusals say.
. "$(dirname "$0")/ctl_common.sh"
export BENCH_DIR=$dir BUILD

smallest=(full --sizes 4K --ops read --depths 2 --procs 1 --places disk --file 1M --rounds 2 --slice 10)

# has_side NAME: it was measured, with every number there.
has_side() {
	python3 - "$dir/rows.json" "$1" <<'PY'
import json, sys
all = json.load(open(sys.argv[1]))
row, = all["rows"]
side, = [s for s in row["sides"] if s["side"] == sys.argv[2]]
for key in ("kernel", "cpus", "version"):
    assert all[key], key
assert all["whole"] is True
assert (row["place"], row["op"], row["op_bytes"], row["depth"], row["processes"], row["order"]) == \
    ("disk", "read", 4096, 2, 1, "random"), row
assert "uring_over_ours" in row and "got_cold" in row
for key in ("bytes_per_sec", "ops_per_sec", "first_over_it", "first_over_it_q1", "first_over_it_q3"):
    assert side[key] > 0, (key, side)
for key in ("cpu_sec_per_gb", "cpu_sec_per_mops", "p50_usec", "p99_usec", "device_block_bytes",
            "device_depth"):
    assert side[key] >= 0, (key, side)
assert side["p99_usec"] >= side["p50_usec"] > 0
assert set(side["profile"]) == {"block_size", "queue_depth", "single_submit", "overlap_events",
                                "intra_op_parallelism"}
assert len(side["rounds"]) == 2
for r in side["rounds"]:
    assert r["bytes"] == r["ops"] * 4096 and r["seconds"] > 0 and r["cpu_seconds"] >= 0, r
if sys.argv[2].startswith("fio-"):
    assert "--ioengine=" in side["command"]
PY
}

a_side_has_all_its_numbers() {
	local side=$1 rc
	command -v python3 >/dev/null || { why="no python3 to read JSON"; return 2; }
	case $side in fio-*)
		command -v fio >/dev/null || { why="fio is not installed"; return 2; }
		if [ "$side" = fio-uring ] && ! fio --name=x --ioengine=io_uring --size=4k --filename="$dir/x" \
			>/dev/null 2>&1; then
			why="no io_uring here"
			return 2
		fi
	esac
	expect 0 timeout 500 "$BUILD/bench" "${smallest[@]}" --tune 4 --sides "$side" --json "$dir/rows.json" ||
		return 1
	why=$(has_side "$side" 2>&1)
	rc=$?
	why=${why##*$'\n'}
	[ "$rc" = 0 ] || return 1
	says "$dir/out" "ours/it" "uring/ours" "$side"
}

ours_has_all_its_numbers() { a_side_has_all_its_numbers ours; }
imported_memory_has_all_its_numbers() { a_side_has_all_its_numbers ours-imported; }
private_memory_has_all_its_numbers() { a_side_has_all_its_numbers ours-private; }
libaio_has_all_its_numbers() { a_side_has_all_its_numbers libaio; }
deepnvme_has_all_its_numbers() { a_side_has_all_its_numbers deepnvme; }
fio_with_libaio_has_all_its_numbers() { a_side_has_all_its_numbers fio-libaio; }
fio_with_io_uring_has_all_its_numbers() { a_side_has_all_its_numbers fio-uring; }

# Processes of one side hold copies of the other's sockets: closing the sides must not wait for that.
several_processes_on_several_sides_end_and_leave_nothing() {
	expect 0 timeout 500 "$BUILD/bench" "${smallest[@]}" --procs 3 --tune 0 --sides ours,libaio,deepnvme || return 1
	why="left behind: $(ls "$dir")"
	! compgen -G "$dir/dsaio-bench-*" >/dev/null
}

a_side_that_can_not_run_says_why_and_the_others_go_on() {
	mkdir -p "$dir/bin"
	printf '#!/bin/sh\nexit 1\n' >"$dir/bin/fio"
	chmod +x "$dir/bin/fio"
	PATH=$dir/bin:$PATH expect 0 timeout 500 "$BUILD/bench" "${smallest[@]}" --sides libaio,fio-libaio &&
		says "$dir/out" "not measured: fio does not run"
}

mistakes_on_the_command_line_are_refused() {
	expect 2 "$BUILD/bench" full --sizes 4X && says "$dir/err" '--sizes cannot be "4X"' &&
		expect 2 "$BUILD/bench" full --sizes 5000 &&
		expect 2 "$BUILD/bench" full --depths 129 && expect 2 "$BUILD/bench" full --sides fio &&
		expect 2 "$BUILD/bench" full --rounds 0 && expect 2 "$BUILD/bench" full more &&
		expect 0 "$BUILD/bench" full --help && says "$dir/out" "--sides LIST"
}

for t in ours_has_all_its_numbers imported_memory_has_all_its_numbers private_memory_has_all_its_numbers \
	libaio_has_all_its_numbers deepnvme_has_all_its_numbers fio_with_libaio_has_all_its_numbers \
	fio_with_io_uring_has_all_its_numbers several_processes_on_several_sides_end_and_leave_nothing \
	a_side_that_can_not_run_says_why_and_the_others_go_on mistakes_on_the_command_line_are_refused; do
	run_test $t
done
exit $failed
