#!/bin/bash
# Checks the models with SPIN: one line each, and whether the result is the expected one.
# Ends with "N of N as expected"; exit status 0 if all are.  Needs spin and gcc; about a
# minute of one processor and up to 2 GB for each of the checks that run at a time ($JOBS).
#
#   run.sh [PATTERN]	only checks whose model and text match it
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
	local dir=$work/$1 line=$work/$1.line model=$2 want=$3 text=$4 got states why verdict optimize=-O0
	shift 4
	[ "$model" = ring ] && optimize=-O2 # the others are checked faster than they are compiled
	mkdir "$dir" && cd "$dir" || exit 1
	spin -a "$@" "$here/$model.pml" >log 2>&1 &&
		gcc -w $optimize -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c >>log 2>&1 &&
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
	[[ "$1 $3" =~ $pattern ]] || return
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	n=$((n + 1))
	check_one "$(printf %03d $n)" "$@" &
}

# check_names MODEL: the functions that its comments name are in the code.
check_names() {
	local name
	for name in $(perl -0777 -ne 'while (m{/\*(.*?)\*/}gs) { my $c = $1; print "$1\n" while $c =~ /\b(\w+)\(\)/g }' \
		"$here/$1.pml" | sort -u); do
		grep -rqE "^[a-z].*\b$name\(" "$here"/../../{daemon,client/lib,proto} --include='*.[ch]' && continue
		echo "WRONG $1: it names $name(), and no such function is in the code"
		return 1
	done
}

check_names recovery && check_names hand_over || exit 1

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

# Recovery: ops, and the blocks of dead daemons.  The mutants of tests/model/recovery_mutants.sh have their variant in
# brackets.
check recovery holds "two ends of daemons"
check recovery holds "two ends, an op cancelled at any time" -DCANCEL
check recovery holds "two ends, no daemon comes in time" -DCANCEL -DFAIL
check recovery holds "a store on RADOS, where the next daemon fences the old one" -DFENCED
check recovery holds "the same, an op cancelled, no daemon comes in time" -DENDS=1 -DFENCED -DCANCEL -DFAIL
check recovery fails "the same, served before the fence" -DENDS=1 -DFENCED -DNO_FENCE
check recovery fails "[NO_EXIT_WAIT] new daemon does not wait for the old one's blocks" -DENDS=1 -DNO_EXIT_WAIT
check recovery fails "nor does the client, buffers left alone (lost update)" -DENDS=1 -DNO_EXIT_WAIT -DNO_EOF -DKEEP_BUFFERS
check recovery fails "[NO_EOF] client does not wait for them, an op is cancelled" -DCANCEL -DNO_EOF
check recovery fails "[EARLY_FAIL] ops fail at once when the daemon is gone" -DENDS=1 -DEARLY_FAIL
check recovery fails "[REVERSED] resubmitted in another order" -DENDS=1 -DREVERSED
check recovery fails "[NO_ORDER] conflicting ops side by side" -DENDS=1 -DNO_ORDER
check recovery fails "[NO_TABLE] old completion ring read after resubmission" -DENDS=1 -DNO_TABLE
check recovery fails "[ONLY_TAKEN] only entries not yet taken are handed over" -DENDS=1 -DONLY_TAKEN
check recovery fails "[DROP_LAST] completions left in the old ring are dropped" -DENDS=1 -DDROP_LAST
check recovery fails "[RESUBMIT_CANCELLED] cancelled ops are resubmitted" -DENDS=1 -DCANCEL -DRESUBMIT_CANCELLED
check recovery fails "[NO_LIMIT] an op is submitted after two crashes" -DNO_LIMIT
check recovery fails "[STOP_COUNTS] a stop counts as a crash" -DSTOP_COUNTS
check recovery fails "[EARLY_PUT] ops are put before all is handed over" -DENDS=1 -DEARLY_PUT
check recovery fails "[OLD_ANSWER] a reply of the old session counts in the new one" -DOLD_ANSWER
# Recovery: slabs and their ids.
check hand_over holds "two ends of daemons"
check hand_over fails "[PUNCH_ADOPTED] adopted slabs are punched before Recovered" -DENDS=1 -DPUNCH_ADOPTED
check hand_over fails "[RECOVERED_FIRST] Recovered comes before all is handed over" -DENDS=1 -DRECOVERED_FIRST
check hand_over fails "[PUNCH_AT_STOP] a stop punches all slabs" -DENDS=1 -DPUNCH_AT_STOP
check hand_over fails "[KEEP_DEAD] a stop keeps slabs of the dead" -DENDS=1 -DKEEP_DEAD
check hand_over fails "[OTHER_ID] another id than the one that is wanted" -DENDS=1 -DOTHER_ID
check hand_over fails "[NO_IS_OF] a slab of a daemon that has gone joins the list" -DENDS=1 -DNO_IS_OF
check hand_over fails "[NO_SESSION] freed in a session that it is not of" -DENDS=1 -DNO_SESSION
check hand_over fails "[NO_DEFER] not freed in the session that it was handed over to" -DENDS=1 -DNO_DEFER
wait

cat "$work"/*.line
good=$(cat "$work"/*.line | grep -c '^ok ')
echo "$good of $n as expected"
[ "$n" != 0 ] && [ "$good" = "$n" ]
