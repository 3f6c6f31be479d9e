#!/bin/bash
# Runs all tests and ends with one line: N passed, N failed, N skipped.
#
# Unit tests are Check programs, one suite each.  End-to-end and fault tests are programs and
# scripts that print a line for each test, "ok NAME", "not ok NAME: why" or "skip NAME: why", and
# exit 0 if none failed.  A program without such a line, or that ends by a signal or the timeout, counts as
# a failed test of its own name.
#
#   tests/run.sh [PATTERN]...	only programs and scripts whose path has one of the patterns
#   BUILD=dir			what to test (build)
#   SANITIZE=name		how that was built: stretches the time-outs
#   VALGRIND=1			the unit tests of daemon and library, under valgrind
#   JOBS=n			at a time (three times the processors, since many tests wait; at most 6)
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
export BUILD SANITIZE="${SANITIZE:-}"
VALGRIND=${VALGRIND:-}
JOBS=${JOBS:-$(($(nproc) > 1 ? 6 : 3))}
# The limit of a program: each test in it has one of its own, and a slow device is no mistake.
seconds=1800
if [ -n "$SANITIZE$VALGRIND" ]; then
	export CK_TIMEOUT_MULTIPLIER=10 TEST_TIME_FACTOR=10
fi
export DSAIO_AUTOSTART=0 # no daemon that no test has asked for
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-}

out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

# run_one KIND PATH: leaves result lines in $out/NAME.tap and all it said in $out/NAME.log.
run_one() {
	local kind=$1 path=$2 name log rc start=$SECONDS
	name=${path#"$BUILD"/}; name=${name#tests/}; name=${name//\//_}
	log=$out/$name.log
	local wrap=()
	if [ -n "$VALGRIND" ] && grep -q 'setrlimit(' "tests/unit/${path##*/}.c"; then
		echo "skip $name: it sets limits that valgrind could not live in" >"$out/$name.tap"
		return
	fi
	if [ -n "$VALGRIND" ] && grep -q 'deepnvme_new(' "tests/unit/${path##*/}.c"; then
		echo "skip $name: valgrind does not know io_pgetevents, which DeepNVMe uses" >"$out/$name.tap"
		return
	fi
	if [ -n "$VALGRIND" ] && grep -q 'huge_pages_bytes(' "tests/unit/${path##*/}.c"; then
		echo "skip $name: valgrind refuses mremap(2) of an old size of 0" >"$out/$name.tap"
		return
	fi
	if [ -n "$VALGRIND" ] && grep -qE '(gpu_probe_new|probe_start|probe_begin)\(' "tests/unit/${path##*/}.c"; then
		echo "skip $name: valgrind does not know pidfd_open" >"$out/$name.tap"
		return
	fi
	if [ "$kind" = unit ] && [ -n "$VALGRIND" ]; then
		wrap=(valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite
		      --suppressions=tests/valgrind.supp)
	fi
	timeout -k 5 "$seconds" "${wrap[@]}" "$path" >"$log" 2>&1 </dev/null
	rc=$?
	if [ "$kind" = unit ]; then
		# "100%: Checks: 7, Failures: 0, Errors: 0", and a line for each that failed:
		# "FILE:LINE:F:CASE:TEST:0: why"
		awk -v name="$name" '
			/^[0-9]+%: Checks: / {
				gsub(",", ""); n = $3 - $5 - $7
				for (i = 0; i < n; i++) print "ok " name
			}
			match($0, /^[^:]+:[0-9]+:[FE]:/) {
				split($0, part, ":"); why = $0
				sub(/^[^:]+:[0-9]+:[FE]:[^:]+:[^:]+:[0-9]+: /, "", why)
				print "not ok " name " " part[5] ": " part[1] ":" part[2] ": " why
			}
			/^skip / { print }' "$log" >"$out/$name.tap"
	else
		grep -E '^(ok|not ok|skip) ' "$log" >"$out/$name.tap"
	fi
	if [ $rc = 124 ] || [ $rc = 137 ]; then
		echo "not ok $name: still running after $seconds s" >>"$out/$name.tap"
	elif [ ! -s "$out/$name.tap" ]; then
		echo "not ok $name: said nothing, exit status $rc" >>"$out/$name.tap"
	elif [ $rc != 0 ] && ! grep -q '^not ok ' "$out/$name.tap"; then
		echo "not ok $name: exit status $rc" >>"$out/$name.tap"
	fi
	if grep -q '^not ok ' "$out/$name.tap"; then
		printf 'FAILED %s (%d s)\n' "$name" $((SECONDS - start))
		grep '^not ok ' "$out/$name.tap" # first, where only the begin of the output is seen
		sed 's/^/    /' "$log" | tail -n 150 # a sanitizer's report is long
	else
		printf 'passed %s (%d s)\n' "$name" $((SECONDS - start))
	fi
}

# Not with the thread sanitizer, which looks at the threads of one process.  They are about data at all sizes and
# places, parameters, configuration, refusals, memory that processes share, and the kernel: the threads of
# daemon and library do in them what they do in others.  Scripts are about dsaioctl, whose only threads
# are the library's.
not_threads=" e2e/autostart e2e/batch e2e/cache_strace e2e/errors e2e/gpu_auto e2e/gpus e2e/huge_pages e2e/large
	e2e/memory e2e/order e2e/outsiders e2e/pages e2e/placed e2e/privileges e2e/profiles e2e/rest e2e/sizes
	e2e/stdio e2e/stores e2e/submit fault/cached fault/descriptors fault/discover fault/edges fault/full
	fault/import_raw fault/late_block fault/limits fault/mapped fault/memory fault/objects fault/protocol fault/refused
	fault/restart_sync fault/rings fault/shared_memory fault/shares fault/start fault/stores "

# The programs and scripts, from the sources, so that what an older build left is not run.  Those that
# wait the longest come first.
list() {
	local source name
	for source in tests/fault/*.c tests/e2e/*.c; do
		name=${source#tests/} name=${name%.c}
		[ -z "$VALGRIND" ] || continue
		[ "$SANITIZE" != thread ] || [[ ${not_threads//[[:space:]]/ } != *" $name "* ]] || continue
		# Programs that a script runs with arguments of its own name it in their head.
		grep -qE '^ \* Run (by|alone)' "$source" || echo "e2e $BUILD/tests/$name"
	done
	for source in tests/e2e/*.sh tests/fault/*.sh; do
		[ -n "$VALGRIND" ] || [ ! -x "$source" ] || [ "$SANITIZE" = thread ] || echo "e2e $source"
	done
	for source in tests/unit/test_*.c; do
		# dsaioctl reads its user's files, which the sanitizers look at; its tuner would take a minute.
		[[ -z $VALGRIND || $source != */test_ctl_* ]] || continue
		# Stress is for the order of two threads, which valgrind and sanitizers of memory do not look at.
		[[ $source == *_stress.c && $VALGRIND$SANITIZE =~ ^(1|address|undefined) ]] ||
			echo "unit $BUILD/${source%.c}"
	done
	[ -z "$VALGRIND" ] || return
	# A test that uses up a resource of the whole host, or compares times, says in its head that it must run alone.
	for source in $(grep -lE '^ \* Run alone' tests/e2e/*.c tests/fault/*.c); do
		name=${source#tests/} name=${name%.c}
		[ "$SANITIZE" != thread ] || [[ ${not_threads//[[:space:]]/ } != *" $name "* ]] || continue
		echo "alone $BUILD/${source%.c}"
	done
}

wanted() {
	local pattern
	[ $# -gt 1 ] || return 0
	for pattern in "${@:2}"; do
		case $1 in *"$pattern"*) return 0 ;; esac
	done
	return 1
}

while read -r kind path; do
	wanted "$path" "$@" || continue
	[ "$kind" != alone ] || wait
	while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
		wait -n
	done
	run_one "$kind" "$path" &
	[ "$kind" != alone ] || wait
done < <(list)
wait

cat "$out"/*.tap >"$out/all" 2>/dev/null
echo
grep '^not ok ' "$out/all"
grep '^skip ' "$out/all"
# A number (C1 to C23, E1 to E14) counts when a test of its name passed and none failed.
bad_input() {
	sed -nE "s/^$1 (.*[ _])?([CE][0-9]+)[_ :-].*/\2/p; s/^$1 (.*[ _])?([CE][0-9]+)\$/\2/p" "$out/all" |
		sort -u
}
if [ $# = 0 ] && [ -z "$VALGRIND$SANITIZE" ]; then
	echo "bad input: $(comm -23 <(bad_input ok) <(bad_input 'not ok') | wc -l) of $((23 + 14))"
fi
passed=$(grep -c '^ok ' "$out/all")
failed=$(grep -c '^not ok ' "$out/all")
skipped=$(grep -c '^skip ' "$out/all")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
