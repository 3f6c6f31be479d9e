#!/bin/bash
# make check-tune: is bench tune to be believed?  On a disk, with an exhaustive sweep beside it, and
# so not in CI: with the default IO_SIZE it takes some ten minutes, and wants the machine for itself.
#
#   IO_SIZE (400M), TUNE_DIR (/var/tmp: a directory on the disk)
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}") || exit 1
ctl=$build/dsaioctl
size=${IO_SIZE:-400M}
dir=$(mktemp -d "${TUNE_DIR:-/var/tmp}/dsaio-tune-XXXXXX") || exit 1
mkdir "$dir/store"
daemon=
trap '[ -z "$daemon" ] || kill $daemon; wait; rm -rf "$dir"' EXIT
rounds=9 repetitions=5 runs=5
passed=0 failed=0

holds() { # TEXT CONDITION(0 or 1)
	if [ "$2" = 1 ]; then
		passed=$((passed + 1)); echo "holds  $1"
	else
		failed=$((failed + 1)); echo "NOT    $1"
	fi
}

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
value() { sed -n "s/.*\"$1\": \([^,]*\),*$/\1/p" "$2" | head -n 1; }

# profile_of FILE: "block depth sequential single parallel" of the block that tune prints.
profile_of() {
	sed -n '/"aio": {/,/}/p' "$1" >"$dir/block"
	local seq=true
	[ "$(value overlap_events "$dir/block")" = true ] && seq=false
	echo "$(value block_size "$dir/block") $(value queue_depth "$dir/block") $seq" \
		"$(value single_submit "$dir/block") $(value intra_op_parallelism "$dir/block")"
}

# best_of FILE: the point with the largest sum of read and write, of a sweep's results.json.
best_of() {
	awk '{ gsub(/[",]/, "") }
		$1 == "op:" { op = $2 } $1 == "served:" { served = 1 } $1 == "repetitions:" { served = 0 }
		served { next }
		$1 == "block_size:" { bs = $2 } $1 == "queue_depth:" { qd = $2 }
		$1 == "sequential_requests:" { seq = $2 } $1 == "single_submit:" { ss = $2 }
		$1 == "io_parallel:" { p = $2 }
		$1 == "e2e_speed_gb_per_sec:" { sum[bs " " qd " " seq " " ss " " p] += $2 }
		END { for (k in sum) if (sum[k] > best) { best = sum[k]; at = k } print at }' "$1"
}

# point "block depth sequential single parallel": the sum of read and write, measured now.
point() {
	read -r bs qd seq ss p <<<"$1"
	echo "{\"block_size\": [$bs], \"queue_depth\": [$qd], \"sequential_requests\": [$seq],
		\"single_submit\": [$ss], \"io_parallel\": [$p]}" >"$dir/point.json"
	"$ctl" bench sweep --nvme_dir "$dir/store" --io_size "$size" --log_dir "$dir/point" \
		--sweep_config "$dir/point.json" >/dev/null 2>>"$dir/log" || return 1
	awk '/"e2e_speed_gb_per_sec"/ { gsub(/,/, ""); sum += $2 } END { print sum }' "$dir/point/results.json"
}

# ratio FILE A B: of the columns A and B of all rounds: "mean low high", 95% (Student's, 8 degrees).
ratio() {
	awk -v a="$2" -v b="$3" '{ x = log($a / $b); n++; sum += x; squares += x * x }
		END { m = sum / n; s = sqrt((squares - n * m * m) / (n - 1)); h = 2.306 * s / sqrt(n)
			printf "%.4f %.4f %.4f\n", exp(m), exp(m - h), exp(m + h) }' "$1"
}

"$build/dsaiod" --config /dev/null --socket "$dir/s.sock" --store "tune=$dir/store" 2>"$dir/daemon.log" &
daemon=$!
export DSAIO_SOCKET=$dir/s.sock DSAIO_AUTOSTART=0
for _ in $(seq 100); do [ -S "$DSAIO_SOCKET" ] && break; sleep 0.05; done

echo "exhaustive sweep: 64 points, read and written, a warm-up loop and $repetitions repetitions of $size"
start=$(now)
"$ctl" bench sweep --nvme_dir "$dir/store" --io_size "$size" --loops $repetitions --log_dir "$dir/all" \
	>"$dir/all.txt" 2>"$dir/log" || { tail -n 3 "$dir/log"; exit 1; }
sweep_sec=$(since "$start")
best=$(best_of "$dir/all/results.json")
echo "  $sweep_sec s, best: $best"

n_reporting=0
tune_secs=()
recommended=()
for i in $(seq $runs); do
	start=$(now)
	"$ctl" bench tune --nvme_dir "$dir/store" --io_size "$size" --log_dir "$dir/tune$i" \
		>"$dir/tune$i.txt" 2>>"$dir/log" || { tail -n 3 "$dir/log"; exit 1; }
	tune_secs+=("$(since "$start")")
	recommended+=("$(profile_of "$dir/tune$i.txt")")
	n_ties=$(grep -c tied "$dir/tune$i.txt")
	[ "$n_ties" = 0 ] || n_reporting=$((n_reporting + 1))
	echo "tune $i: ${tune_secs[-1]} s, ${recommended[-1]}, $n_ties tied with a fastest"
done

overhead=$(sed -n '/"overhead"/,/}/p' "$dir/all/results.json" >"$dir/block"; value share "$dir/block")
holds "the measuring itself costs under 1% of the sweep: $overhead" \
	"$(awk -v o="$overhead" 'BEGIN { print (o < 0.01) }')"
longest=$(printf '%s\n' "${tune_secs[@]}" | sort -n | tail -n 1)
holds "tune takes at most a fifth of the exhaustive sweep (one loop of $((repetitions + 1)) warms up): $longest s of $sweep_sec s" \
	"$(awk -v t="$longest" -v s="$sweep_sec" 'BEGIN { print (t <= s / 5) }')"

# All that were recommended, and the sweep's best, beside each other: the order turns each round.
points=("$best")
for p in "${recommended[@]}"; do
	printf '%s\n' "${points[@]}" | grep -qxF "$p" || points+=("$p")
done
n=${#points[@]}
for ((round = 0; round < rounds; round++)); do
	row=()
	for ((k = 0; k < n; k++)); do
		i=$(((k + round) % n))
		row[i]=$(point "${points[i]}") || exit 1
	done
	echo "${row[*]}" >>"$dir/rounds"
done
column() { local i; for ((i = 0; i < n; i++)); do [ "${points[i]}" = "$1" ] && echo $((i + 1)); done | head -n 1; }
# tied A B: can the measurements of these two columns not tell them apart?
tied() {
	local low high
	[ "$1" = "$2" ] && return 0
	read -r _ low high <<<"$(ratio "$dir/rounds" "$1" "$2")"
	awk -v l="$low" -v h="$high" 'BEGIN { exit !(l <= 1 && h >= 1) }'
}
columns=()
for p in "${recommended[@]}"; do columns+=("$(column "$p")"); done
# The largest set of which each is tied with each other, of all sets: there are few.
most=0
for ((set = 1; set < 1 << runs; set++)); do
	members=()
	for ((i = 0; i < runs; i++)); do ((set >> i & 1)) && members+=("${columns[i]}"); done
	[ ${#members[@]} -gt "$most" ] || continue
	for x in "${members[@]}"; do for y in "${members[@]}"; do tied "$x" "$y" || continue 3; done; done
	most=${#members[@]}
done
# The width of "tied": how far an interval reaches to either side.
n_pairs=0 n_tied=0
for ((x = 1; x <= n; x++)); do
	for ((y = x + 1; y <= n; y++)); do
		n_pairs=$((n_pairs + 1))
		tied "$x" "$y" && n_tied=$((n_tied + 1))
		ratio "$dir/rounds" "$x" "$y"
	done
done >"$dir/pairs"
width=$(awk '{ w = ($3 - $2) / 2 / $1 * 100; sum += w; if (w > max) max = w }
	END { if (NR) printf "%.1f%%, at most %.1f%%", sum / NR, max; else print "none: all recommend the best" }' "$dir/pairs")
echo "$n profiles measured side by side, $rounds rounds: $n_tied of $n_pairs pairs are tied; intervals reach to" \
	"either side by (mean) $width"
holds "of $runs runs $most recommend profiles that are all tied with each other (at least 4)" $((most >= 4))
if [ $n_tied -gt 0 ]; then
	holds "there are ties, and $n_reporting of $runs runs report some (at least 1)" $((n_reporting >= 1))
fi
for i in $(seq $runs); do
	read -r mean low high <<<"$(ratio "$dir/rounds" "$(column "${recommended[i - 1]}")" 1)"
	holds "tune $i's profile beside the sweep's best, $rounds rounds: $mean ($low-$high), within 3%" \
		"$(awk -v m="$mean" 'BEGIN { print (m >= 0.97) }')"
done

# The same point by bench io and by the sweep, by turns, each on a file that it has just made: one that
# is older may be slower.
by_io() {
	rm -f "$dir/store"/_aio_read_*
	"$ctl" bench io --folder "$dir/store" --io_size "$size" --read --loops 3 >"$dir/io" 2>>"$dir/log" &&
		awk '/^E2E Read Speed/ { print $5 }' "$dir/io"
}
by_sweep() {
	"$ctl" bench sweep --nvme_dir "$dir/store" --io_size "$size" --loops 3 --log_dir "$dir/point" --no_write \
		--sweep_config "$dir/point.json" >/dev/null 2>>"$dir/log" &&
		awk '/"e2e_speed_gb_per_sec"/ { gsub(/,/, ""); print $2 }' "$dir/point/results.json"
}
echo '{"block_size": ["1M"], "queue_depth": [32], "sequential_requests": [false]}' >"$dir/point.json"
for ((round = 0; round < rounds; round++)); do
	if ((round % 2)); then
		io=$(by_io) && sweep=$(by_sweep) || exit 1
	else
		sweep=$(by_sweep) && io=$(by_io) || exit 1
	fi
	echo "$sweep $io" >>"$dir/same"
done
read -r mean low high <<<"$(ratio "$dir/same" 1 2)"
holds "sweep and bench io agree within the interval: $mean ($low-$high)" \
	"$(awk -v l="$low" -v h="$high" 'BEGIN { print (l <= 1 && h >= 1) }')"

echo "$passed of $((passed + failed)) hold"
[ "$failed" = 0 ]
