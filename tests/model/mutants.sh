#!/bin/bash
# Drops each of the five fences of proto/ring.h in turn.  The model, with store buffers, must
# fail each time; the tests of tests/unit/test_ring_stress.c, built without that fence, tell
# whether this machine's hardware loses a wake-up for it, too (it need not: a store buffer drains
# fast, and a compiler may order by chance).  Parking is tried in the lane itself, too, by
# tests/unit/test_park.c.  Ends with "N of N caught": by the model.
#
#   RING_SECONDS=n	how long the stress test may try, for each fence (20)
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
limit=${RING_SECONDS:-20}
caught=0 n=0

for fence in SUBMIT SLEEP PARK COMPLETE WAIT; do
	n=$((n + 1))
	number=$(sed -n "s/^#define RING_MUTANT_$fence //p" proto/ring.h)
	if line=$(JOBS=1 tests/model/run.sh "no fence $fence " | grep '^ok '); then
		caught=$((caught + 1))
		model="the model fails (${line##*: })"
	else
		model="THE MODEL HOLDS"
	fi

	sources=(tests/unit/test_ring_stress.c)
	if [ "$fence" = PARK ]; then # what is compiled here comes before what the archive has
		sources=(tests/unit/test_park.c daemon/lane/intake.c "$BUILD/daemon.a" "$BUILD/libdsaio-client.a"
			-levent_core -laio -lprotobuf-c -lsystemd)
	fi
	program=$BUILD/test_mutant$number
	mkdir -p "$BUILD" && ${CC:-gcc} -std=gnu17 -D_GNU_SOURCE -I. -I"$BUILD" -O2 -pthread \
		-DRING_MUTANT="$number" -o "$program" "${sources[@]}" -lcheck -lsubunit -lrt -lm || exit 1
	hardware="not caught in $limit s by the stress test"
	start=$SECONDS
	while [ $((SECONDS - start)) -lt "$limit" ]; do
		if said=$(timeout 60 "$program" 2>&1); then
			continue
		fi
		hardware="$(sed -n 's/^.*[0-9]: \(.*is lost\)$/\1/p' <<<"$said" | head -n 1)"
		hardware="caught by the stress test after $((SECONDS - start)) s: ${hardware:-it failed}"
		break
	done
	printf '%-8s %s; %s\n' "$fence" "$model" "$hardware"
done
echo "$caught of $n caught"
[ "$caught" = "$n" ]
