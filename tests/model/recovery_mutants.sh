#!/bin/bash
# Makes the mistakes of recovery.pml and hand_over.pml in a copy of the code, one at a time, and runs the test that
# must fail then.  A row of the table: the variant of the model; the file; a Perl expression that changes it; the
# test program, and which of its tests.  First all these tests have to pass without a change.
# Ends with "N of N caught".
#
#   recovery_mutants.sh [NAME]...	only these
cd "$(dirname "$0")/../.." || exit 1
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy" || exit 1
cd "$copy" || exit 1
export BUILD=$copy/build DSAIO_AUTOSTART=0
caught=0 n=0

build() {
	make -s -j"$(nproc)" BUILD=build CC="${CC:-gcc}" "$@" >make.log 2>&1 && return
	grep -m 5 error make.log
	return 1
}

# run PROGRAM [TEST]: passes, fails or does not end.
run() {
	CK_TIMEOUT_MULTIPLIER=0.1 timeout -k 5 90 "build/tests/$1" ${2:+"$2"} >run.log 2>&1 </dev/null
}

# check NAME FILE EXPRESSION PROGRAM [TEST]
rows=()
check() {
	rows+=("$1" "$2" "$3" "$4" "${5:--}")
}

check NO_EXIT_WAIT daemon/control/start_lock.c 's/flock\(lock_fd, LOCK_EX \| LOCK_NB\) == 0/true/' \
	fault/start "dying daemon"
# The one proof that the daemon is gone: for ops that end with an error, and those that are submitted again.
check NO_EOF,EARLY_FAIL client/lib/link/conn_call.c \
	's/(bool conn_is_gone.*?if \(conn_was_gone\(conn\))/$1 || atomic_load(&conn->is_broken)/s' unit/test_client_rows
check REVERSED client/lib/io/channel.c \
	's/\? -1 : (.*);/? 1 : -($1);/' unit/test_client_rows
check NO_ORDER daemon/lane/order.c \
	's/if \(may_start\(order, node\) && !conflicts\(order->ranges\[false\], node\)\)/if (true)/' unit/test_order
check NO_TABLE client/lib/io/channel.c 's/channel->ring\.cq = ring\.cq;//' e2e/restart_cases "linked, detached"
# The client cannot see what the daemon has taken: it might have taken all that was open at its crash.
check ONLY_TAKEN client/lib/io/channel.c 's/(int r = row_check\(.*?\n)/$1\t\tif (op->n_crashes)\n\t\t\tcontinue;\n/' \
	unit/test_client_rows
check DROP_LAST client/lib/io/channel.c 's/channel_consume\(channel, list\); (?=\/\* may find)//' unit/test_client_rows
check RESUBMIT_CANCELLED client/lib/io/channel.c \
	's/atomic_load\(&op->is_cancelled\)(?=\)\n\t\treturn)/false/' unit/test_client_rows
check NO_LIMIT client/lib/io/channel.c 's/op->n_crashes > 1/op->n_crashes > 100/' unit/test_client_rows
check STOP_COUNTS client/lib/io/channel.c 's/op->n_crashes \+ is_crash/op->n_crashes + 1/' unit/test_client_rows
check EARLY_PUT client/lib/io/recover.c \
	's/\treport->slabs = (b.*?)\n//; s/(doorbell_watch\(handle, EPOLL_CTL_ADD\);.*?\n\t\}\n)(?=\})/$1\treport->slabs = buffers_hand_over(&client->buffers, client->conn);\n/' \
	e2e/restart "ops that are open"
check OLD_ANSWER client/lib/link/conn.c \
	's/\tconn_calls_stop\(conn\);\n\tconn_calls_deinit\(conn\);\n\tconn_calls_init\(conn\);\n//' unit/test_client_conn
check PUNCH_ADOPTED daemon/control/objects.c 's/return goes_on \|\| .*?;/return goes_on;/' \
	fault/recovery_raw "kept its memory"
early='Wire__Request early = WIRE__REQUEST__INIT;
	Wire__Recovered nothing = WIRE__RECOVERED__INIT;

	early.body_case = WIRE__REQUEST__BODY_RECOVERED;
	early.recovered = &nothing;
	conn_post(next, &early);'
check RECOVERED_FIRST client/lib/io/recover.c "s/(\\tint n, r = 0;\\n)/\$1\\t$early\\n/" e2e/restart "ops that are open"
check PUNCH_AT_STOP daemon/control/session.c 's/(return) session->is_stopped && !session->is_lost/$1 false/' \
	fault/recovery_raw "were empty"
check KEEP_DEAD daemon/control/session.c 's/!session->is_lost &&\s+connection_has_peer\(&session->connection\)/true/' \
	fault/recovery_raw "kept its memory"
check OTHER_ID daemon/control/objects.c 's/(id_table_add\(table, object), wanted_id/$1, 0 * wanted_id/' \
	fault/recovery_raw "an id that a client wants"
check NO_IS_OF client/lib/memory/buffer.c 's/if \(!conn_is_of\(buffers->conn, slab->slab\.session\)\)/if (false)/' \
	unit/test_client_buffers
check NO_SESSION client/lib/link/conn_call.c 's/session == conn_session\(conn\) && (?=!atomic_load)//' unit/test_client_conn
check NO_DEFER client/lib/link/conn_call.c 's/session == conn_attempt\(conn\)/false/' unit/test_client_conn

wanted() {
	local name
	[ $# = 1 ] && return
	for name in "${@:2}"; do
		[[ ,$1, == *,$name,* ]] && return
	done
	return 1
}

# try_row NAME FILE EXPRESSION PROGRAM TEST: its line.
try_row() {
	local test=${5#-} rc
	cp "$2" original
	perl -0pi -e "$3" "$2"
	if cmp -s original "$2"; then
		echo "WRONG   $1: its expression changes nothing in $2"
	elif ! build all "build/tests/$4"; then
		echo "WRONG   $1: it does not compile"
	else
		run "$4" "$test"
		rc=$?
		if [ $rc = 0 ]; then
			echo "MISSED  $1: $4 $test passes"
		elif [ $rc -ge 124 ]; then
			echo "caught  $1: $4 $test does not end"
		else
			echo "caught  $1: $4: $(grep -m 1 -E '^not ok|:[FE]:' run.log |
				sed 's/^not ok //; s/^.*:[FE]:[^:]*:\([^:]*\):.*/\1/' | cut -c1-100)"
		fi
	fi
	cp original "$2"
	touch "$2"
}

programs=()
for ((i = 0; i < ${#rows[@]}; i += 5)); do
	wanted "${rows[i]}" "$@" && programs+=("build/tests/${rows[i + 3]}")
done
build all "${programs[@]}" || exit 1
for ((i = 0; i < ${#rows[@]}; i += 5)); do
	wanted "${rows[i]}" "$@" || continue
	run "${rows[i + 3]}" "${rows[i + 4]#-}" && continue
	echo "${rows[i + 3]} ${rows[i + 4]} fails without a mistake"
	exit 1
done
for ((i = 0; i < ${#rows[@]}; i += 5)); do
	wanted "${rows[i]}" "$@" || continue
	n=$((n + 1))
	line=$(try_row "${rows[@]:i:5}")
	echo "$line"
	[[ $line != caught* ]] || caught=$((caught + 1))
done
echo "$caught of $n caught"
[ "$n" != 0 ] && [ "$caught" = "$n" ]
