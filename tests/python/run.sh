#!/bin/bash
# Runs the tests of the Python package, a file for each processor at a time, since most of them wait for one
# program after the other.  Ends with: N passed, N failed, N skipped.
#
#   BUILD=dir PYTHON=program tests/python/run.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

run_one() {
	local log=$out/${1##*/} rc
	"${PYTHON:-/usr/bin/python3}" -m pytest -q -p no:cacheprovider "$1" >"$log" 2>&1
	rc=$?
	cat "$log"
	# conftest.py's last line, unless pytest has died.
	tail -n 1 "$log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' >"$log.sum" ||
		echo "0 passed, 1 failed, 0 skipped: $1 ended with $rc" | tee "$log.sum"
}

for file in $(ls -S tests/python/test_*.py); do # the largest first
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	run_one "$file" &
done
wait
cat "$out"/*.sum | awk '{ p += $1; f += $3; s += $5 } END { print p " passed, " f " failed, " s " skipped"; exit f > 0 || p == 0 }'
