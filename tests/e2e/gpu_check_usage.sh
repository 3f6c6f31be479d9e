#!/bin/bash
# How make check-gpu ends, on the stand-ins: a mistake of its user is a failure, never a skipped test.
#
#     tests/e2e/gpu_check_usage.sh [PART OF A NAME]
cd "$(dirname "$0")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}") || exit 1
export BUILD CUDA_LIBRARY=$BUILD/tests/gpu/libcuda.so CUFILE_LIBRARY=$BUILD/tests/gpu/libcufile.so
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-test-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
wanted=${1:-}
failed=0

# check NAME STATUS WORDS ARGUMENT...: check.sh ends with this status and says all the words (";" between them).
check() {
	local name=$1 status=$2 words=$3 got word
	shift 3
	case $name in *"$wanted"*) ;; *) return ;; esac
	tests/gpu/check.sh "$@" >"$dir/said" 2>&1
	got=$?
	IFS=';' read -ra words <<<"$words"
	for word in "${words[@]}"; do
		grep -qF -e "$word" "$dir/said" || got="$got without \"$word\""
	done
	if [ "$got" = "$status" ]; then
		echo "ok $name"
	else
		echo "not ok $name: $got: $(tr '\n' ' ' <"$dir/said")"
		failed=1
	fi
}

check "facts" 0 "# GPU 0: Stand-in;# libcufile's batch API: no cuFileBatch;# the daemon: ;CAP_SYS_RAWIO" "GPUs of this host"
check "help" 0 "CUDA_LIBRARY=FILE;PART OF A NAME" --help
check "no test has the name" 1 "no test's name has \"nothing\"" nothing
CUDA_LIBRARY=$dir/none.so check "a libcuda that does not open" 1 "not ok;CUDA_LIBRARY=$dir/none.so: " "GPUs of this host"
for test in "GPUs of this host" "speed beside cuFile"; do
	CUFILE_LIBRARY=$dir/none.so check "a libcufile that does not open: $test" 1 \
		"not ok;CUFILE_LIBRARY=$dir/none.so: " "$test"
done
exit $failed
