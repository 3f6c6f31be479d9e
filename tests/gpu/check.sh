#!/bin/bash
# Runs build/tests/gpu/check on this machine's GPU, and keeps the results in tests/bench/results/gpu.txt.
# Without a GPU each test is skipped, with the reason, and nothing is kept.
set -u
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
