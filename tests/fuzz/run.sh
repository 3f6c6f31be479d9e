#!/bin/bash
# Runs each fuzz target for $FUZZ_SECONDS (30), one for each processor at a time, starting from
# tests/fuzz/seeds and what earlier runs have found ($BUILD/corpus).  A target that finds something, or executes
# nothing, has failed.  Ends with: N passed, N failed, N skipped.
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/fuzz}
seconds=${FUZZ_SECONDS:-30}
export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-}
passed=0 failed=0

run_one() {
	local name=$1 corpus=$BUILD/corpus/$1 log=$BUILD/$1.log n rc
	mkdir -p "$corpus" "$BUILD/found"
	"$BUILD/tests/fuzz/$name" -max_total_time="$seconds" -print_final_stats=1 -verbosity=1 \
		-max_len=16384 -timeout=20 -artifact_prefix="$BUILD/found/$name-" \
		"$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 </dev/null
	rc=$?
	n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	if [ $rc != 0 ]; then
		echo "not ok $name: exit status $rc"
		tail -n 40 "$log" | sed 's/^/    /'
	elif [ "${n:-0}" = 0 ]; then
		echo "not ok $name: nothing was executed"
	else
		echo "ok $name: $n executions, $(find "$corpus" "tests/fuzz/seeds/$name" -type f | wc -l) inputs in the corpus"
	fi
}

results=$(for source in tests/fuzz/fuzz_*.c; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	run_one "$(basename "${source%.c}")" &
done
wait)
echo "$results"
passed=$(grep -c '^ok ' <<<"$results")
failed=$(grep -c '^not ok ' <<<"$results")
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
