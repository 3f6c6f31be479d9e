#!/bin/bash
# Brings a cluster up and runs the tests of RADOS stores on it, one after the other: programs and scripts as those of
# tests/run.sh, with the same last line.  They get CEPH_CONF, CEPH_DIR, and CEPH_TOOL, which is cluster.sh.
#
#   tests/rados/run.sh [PATTERN]...	only programs and scripts whose path has one of the patterns
#   BUILD=dir				what to test (build)
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
export BUILD DSAIO_AUTOSTART=0
export CEPH_TOOL=$PWD/tests/rados/cluster.sh
# librados does not free all it has; tests/rados/lsan.supp names that.
export LSAN_OPTIONS=suppressions=$PWD/tests/rados/lsan.supp:print_suppressions=0
seconds=120 # for one program

skip_all() {
	printf 'skip rados: %s\n0 passed, 0 failed, 1 skipped\n' "$1"
	exit 0
}

for program in ceph ceph-mon ceph-mgr ceph-osd ceph-authtool rados; do
	command -v $program >/dev/null || skip_all "needs $program: make deps-rados"
done
[ -e "$BUILD/dsaiod-rados.so" ] || skip_all "dsaiod-rados.so is not built: it needs librados-dev"

out=$(mktemp -d) || exit 1 # short: sockets are in it
export CEPH_DIR=$out/ceph CEPH_CONF=$out/ceph/ceph.conf
clean_up() {
	[ ! -d "$CEPH_DIR" ] || "$CEPH_TOOL" down "$CEPH_DIR"
	rm -rf --one-file-system "$out"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_one PATH
run_one() {
	local name=${1##*/} log=$out/log rc start=$SECONDS
	timeout -k 5 $seconds "$1" >"$log" 2>&1 </dev/null
	rc=$?
	grep -E '^(ok|not ok|skip) ' "$log" >"$out/tap"
	if [ $rc = 124 ] || [ $rc = 137 ]; then
		echo "not ok $name: still running after $seconds s" >>"$out/tap"
	elif [ ! -s "$out/tap" ] || { [ $rc != 0 ] && ! grep -q '^not ok ' "$out/tap"; }; then
		echo "not ok $name: exit status $rc" >>"$out/tap"
	fi
	cat "$out/tap"
	cat "$out/tap" >>"$out/all"
	echo "# $name: $((SECONDS - start)) s"
	! grep -q '^not ok ' "$out/tap" || sed 's/^/    /' "$log" | tail -n 100
}

# faults leaves the cluster with work; rate is for bench.sh.
list() {
	local source
	for source in tests/rados/*.c tests/rados/faults.c; do
		[ "${source##*/}" != rate.c ] || continue
		echo "$BUILD/${source%.c}"
	done | awk '!/faults$/ { print } END { print }'
	for source in tests/rados/test_*.sh; do
		[ ! -x "$source" ] || echo "$source"
	done
}

wanted() {
	local pattern
	[ $# -gt 1 ] || return 0
	for pattern in "${@:2}"; do
		[[ $1 != *"$pattern"* ]] || return 0
	done
	return 1
}

if ! "$CEPH_TOOL" up "$CEPH_DIR"; then
	printf 'not ok rados: the cluster does not start\n0 passed, 1 failed, 0 skipped\n'
	exit 1
fi
: >"$out/all"
for path in $(list); do
	! wanted "$path" "$@" || run_one "$path"
done
passed=$(grep -c '^ok ' "$out/all")
failed=$(grep -c '^not ok ' "$out/all")
skipped=$(grep -c '^skip ' "$out/all")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
