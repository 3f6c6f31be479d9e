#!/bin/bash
# Ours beside `rados bench`, on the test cluster, in interleaved rounds: ops per second, medians, and their ratio.
# The bars are 0.9.  Both with objects of 4 MiB, new ones for writes; the files of ours are removed before theirs begins.
# CEPH_CONF and CEPH_DIR as for tests/rados/run.sh, which brings the cluster up.
#
#   tests/rados/bench.sh [ROUNDS] [SECONDS]
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-5} seconds=${2:-3}
BUILD=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
trap 'kill "$daemon"; wait "$daemon"; rm -rf "$dir"' EXIT
cat >"$dir/conf" <<CONF
[daemon]
lock = auto
state_dir = $dir/state
pool_size = 2G
client_pool_max = 1G
[store c]
path = rados://dsaio/bench$$
ceph_user = dsaio
trash_after = 1
CONF
"$BUILD/dsaiod" --config "$dir/conf" --socket "$dir/s" 2>"$dir/log" &
daemon=$!
export DSAIO_SOCKET=$dir/s
until [ -S "$dir/s" ]; do sleep 0.05; done

theirs() { # KIND BLOCK DEPTH
	local bench="timeout 120 rados --id dsaio -p dsaio -N theirs$$ bench $seconds" kind=$1
	[ "$1" != read ] || { kind=seq; [ "$2" = 4096 ] && kind=rand
		$bench write -b "$2" -O 4194304 -t "$3" --no-cleanup >/dev/null 2>&1; }
	$bench $kind ${4:+-b "$2" -O 4194304} -t "$3" --no-cleanup 2>/dev/null | awk '/^Average IOPS/ { print $3 }'
	timeout 120 rados --id dsaio -p dsaio -N theirs$$ cleanup >/dev/null 2>&1
}
ours() { # KIND BLOCK DEPTH
	timeout 120 "$BUILD/tests/rados/rate" "rados://dsaio/bench$$/x" "$1" "$2" "$3" "$seconds"
	sleep 3
}
for row in "write 4194304 8" "read 4194304 8" "write 4096 16" "read 4096 16"; do
	read -r kind block depth <<<"$row"
	: >"$dir/ours"; : >"$dir/theirs"
	for round in $(seq "$rounds"); do
		if [ $((round % 2)) = 1 ]; then
			ours $row >>"$dir/ours"; theirs $row $([ "$kind" = write ] && echo b) >>"$dir/theirs"
		else
			theirs $row $([ "$kind" = write ] && echo b) >>"$dir/theirs"; ours $row >>"$dir/ours"
		fi
	done
	python3 - "$row" "$dir/ours" "$dir/theirs" <<-'PY'
		import statistics, sys
		ours, theirs = ([float(line) for line in open(name)] for name in sys.argv[2:])
		ratios = [a / b for a, b in zip(ours, theirs)]
		print("%-16s ours %8.1f  rados bench %8.1f  ratio %.3f (%.3f to %.3f)" % (sys.argv[1],
		      statistics.median(ours), statistics.median(theirs), statistics.median(ratios), min(ratios), max(ratios)))
	PY
done
