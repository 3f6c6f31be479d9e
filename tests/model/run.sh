#!/bin/bash
# Checks the models with SPIN: one line each, and whether the result is the expected one.
# Ends with "N of N as expected"; exit status 0 if all are.  Needs spin and gcc; about three
# minutes of one processor and up to 2 GB for each of the checks that run at a time ($JOBS).
#
#   run.sh [PATTERN]	only checks whose text matches it
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
free_gb=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$(($(nproc) < free_gb / 3 ? $(nproc) : free_gb / 3))
jobs=${JOBS:-$((jobs > 1 ? jobs : 1))}
pattern=${1:-}
n=0

# check_one NUMBER MODEL holds|fails TEXT [-D...]: leaves its line in $work/NUMBER.line.
check_one() {
	local dir=$work/$1 line=$work/$1.line model=$2 want=$3 text=$4 got states why verdict
	shift 4
	mkdir "$dir" && cd "$dir" || exit 1
	spin -a "$@" "$here/$model.pml" >log 2>&1 &&
		gcc -w -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c >>log 2>&1 &&
		timeout 3600 ./pan -m400000 >out 2>&1
	if grep -q 'errors: 0' out 2>/dev/null &&
	   ! grep -qE 'max search depth|out of memory|Search not completed' out; then
		got=holds
	elif grep -q 'errors: [1-9]' out 2>/dev/null && ls ./*.trail >/dev/null 2>&1; then
		got=fails
	else
		got=UNKNOWN
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out 2>/dev/null)
	why=$(sed -n 's/^pan:1: \(.*\) (at depth.*/: \1/p' out 2>/dev/null | cut -c1-60)
	if [ "$got" = "$want" ]; then verdict=ok; else verdict=WRONG; fi
	printf '%-5s %-9s %-5s %10s states  %s%s\n' "$verdict" "$model" "$got" "$states" "$text" \
		"$why" >"$line.new"
	cd / && rm -rf "$dir" && mv "$line.new" "$line"
}

check() {
	[[ $3 =~ $pattern ]] || return
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	n=$((n + 1))
	check_one "$(printf %03d $n)" "$@" &
}

# As proto/ring.h, the lane and the library do it; parking is there and not used yet.
check ring holds "two clients, stores seen at once" -DOPS0=2 -DOPS1=1
check ring holds "two clients, store buffers" -DTSO -DOPS0=1 -DOPS1=1
check ring holds "one client, 3 ops, store buffers" -DTSO -DOPS0=3 -DOPS1=0
check ring holds "parking: two clients, stores seen at once" -DPARK=0 -DOPS0=1 -DOPS1=1
check ring holds "parking: one client, store buffers" -DPARK=0 -DTSO -DOPS0=2 -DOPS1=0
check ring holds "parking: two polling clients, store buffers" -DPARK=0 -DTSO -DCLIENTS_POLL -DOPS0=2 -DOPS1=1
check ring holds "parking: the same, the other channel, sq_park read first" -DPARK=1 -DTSO -DCLIENTS_POLL -DOPS0=2 -DOPS1=1 -DPARK_FIRST
check ring holds "parking: the lane never sleeps, store buffers" -DPARK=0 -DTSO -DCLIENTS_POLL -DOPS0=2 -DOPS1=1 -DBUSY
check ring fails "no look at the rings between announcing sleep and sleeping" -DNO_RECHECK
check ring fails "a lane sleeps before it has woken all clients" -DSLEEP_BEFORE_WAKE
check ring fails "futex on the tail, one wake-up per cq_wait value" -DFUTEX_ON_TAIL
# The mutants of tests/model/mutants.sh.
check ring fails "no fence SUBMIT (after sq_tail)" -DTSO -DOPS1=0 -DNO_FENCE_SUBMIT
check ring fails "no fence SLEEP (after lane_state)" -DTSO -DOPS1=0 -DNO_FENCE_SLEEP
check ring fails "no fence COMPLETE (after cq_tail)" -DTSO -DOPS1=0 -DNO_FENCE_COMPLETE
check ring fails "no fence WAIT (after cq_wait)" -DTSO -DOPS1=0 -DNO_FENCE_WAIT
check ring fails "no fence PARK (after sq_park)" -DPARK=0 -DTSO -DCLIENTS_POLL -DNO_FENCE_PARK
check ring fails "parking: no second look at sq_tail" -DPARK=0 -DCLIENTS_POLL -DNO_PARK_RECHECK
check ring fails "parking: client does not look at sq_park" -DPARK=0 -DCLIENTS_POLL -DNO_PARK_LOOK
check ring fails "parking: a bell that ends a sleep does not un-park" -DPARK=0 -DCLIENTS_POLL -DNO_UNPARK_ON_WAKE
check ring fails "parking: lane never sleeps nor polls the bells" -DPARK=0 -DCLIENTS_POLL -DBUSY -DNO_POLL

# The code of today is the third: ops fail after the end of file.
check recovery holds "two crashes" -DCRASHES=2
check recovery holds "one crash, an op cancelled at any time" -DCRASHES=1 -DCANCEL
check recovery holds "one crash, ops fail when the old blocks are back" -DCRASHES=1 -DFAIL
check recovery fails "new daemon does not wait for the old one's blocks" -DCRASHES=1 -DNO_EXIT_WAIT
check recovery fails "the same, buffers left alone (lost update)" -DCRASHES=1 -DNO_EXIT_WAIT -DKEEP_BUFFERS
check recovery fails "ops fail at once when the daemon is gone" -DCRASHES=1 -DEARLY_FAIL
check recovery fails "resubmitted in another order" -DCRASHES=1 -DREVERSED
check recovery fails "conflicting ops side by side" -DCRASHES=1 -DNO_ORDER
check recovery fails "old completion ring read after resubmission" -DCRASHES=1 -DNO_TABLE
check recovery fails "only entries not yet taken are handed over" -DCRASHES=1 -DONLY_TAKEN
wait

cat "$work"/*.line
good=$(cat "$work"/*.line | grep -c '^ok ')
echo "$good of $n as expected"
[ "$n" != 0 ] && [ "$good" = "$n" ]
