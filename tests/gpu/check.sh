#!/bin/bash
# Runs build/tests/gpu/check on this machine's GPU, and keeps the results in tests/bench/results/gpu.txt.
# Without a GPU each test is skipped, with the reason, and nothing is kept.
#
#     tests/gpu/check.sh [PART OF A NAME]...	only those tests; -l lists them
#     tests/gpu/check.sh --help
#     CUDA_LIBRARY=FILE, CUFILE_LIBRARY=FILE	which libraries; one that does not open is a failure
#     CHECK_GPU_MIB=N				bytes of the large test (16384)
#     BUILD=DIR					where it was built (build)
set -u
case ${1:-} in
-h | --help)
	sed -n '2,/^set -u/{/^set -u/d;s/^#\( \|$\)//;p}' "$0"
	exit
	;;
esac
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

facts() {
	echo "date: $(date -u +%F)"
	echo "commit: $(git rev-parse --short HEAD 2>/dev/null)"
	echo "kernel: $(uname -sr)"
	echo "processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) of them"
	echo "disk: $(df --output=source,fstype "${TEST_BASE:-/var/tmp}" | tail -n 1)"
	echo "driver: $(head -n 1 /proc/driver/nvidia/version 2>/dev/null)"
	echo "nvidia-fs: $(cat /proc/driver/nvidia-fs/version 2>/dev/null || echo none)"
}

"${BUILD:-build}/tests/gpu/check" "$@" | tee "$out"
status=${PIPESTATUS[0]}
if grep -q '^# .* MB/s' "$out"; then
	mkdir -p tests/bench/results
	{ facts; cat "$out"; } >tests/bench/results/gpu.txt
	echo "kept: tests/bench/results/gpu.txt"
fi
exit "$status"
