#!/bin/bash
# dsaioctl metrics and wear: the text, its answers by HTTP, and what is kept over restarts.
. "$(dirname "$0")/ctl_common.sh"

checker=$(dirname "$0")/ctl_metrics.py
python=/usr/bin/python3

has_parser() {
	why="needs python3-prometheus-client"
	"$python" -c "import prometheus_client" 2>/dev/null
}

# has LINE...: the metrics have these lines.
has() {
	expect 0 "$ctl" metrics || return 1
	local line
	for line; do
		why="no line \"$line\": $(grep -F "${line%%[\{ ]*}" "$dir/out" | head -n 3)"
		grep -qxF -e "$line" "$dir/out" || return 1
	done
}

the_text_is_openmetrics_and_has_the_numbers_of_status() {
	has_parser || return 2
	expect 0 "$ctl" status --json && cp "$dir/out" "$dir/status.json" && expect 0 "$ctl" metrics || return 1
	why=$("$python" "$checker" text "$dir/out" "$dir/status.json" 2>&1)
}

the_dashboard_asks_for_metrics_that_are_there() {
	has_parser || return 2
	expect 0 "$ctl" metrics || return 1
	why=$("$python" "$checker" dashboard "$dir/out" systemd/grafana.json 2>&1) || return 1
	sed 's/dsaio_pool_used_bytes/dsaio_pool_spent_bytes/' systemd/grafana.json >"$dir/wrong.json"
	why="a name that is not there is not found"
	! "$python" "$checker" dashboard "$dir/out" "$dir/wrong.json" 2>/dev/null
}

another_user_sees_itself() {
	as_nobody || return 2
	local user
	user=$(id -un 65534)
	has "dsaio_user_clients{uid=\"0\",user=\"root\"} 0" || return 1
	expect 0 "${nobody[@]}" "$ctl" metrics && says "$dir/out" "dsaio_user_clients{uid=\"65534\",user=\"$user\"} 0" \
		'dsaio_store_writes_total{store="t"}' "dsaio_clients 0" && says_not "$dir/out" 'uid="0"' || return 1
	expect 0 "${nobody[@]}" "$ctl" wear && says "$dir/out" "user   $user " "store  t " && says_not "$dir/out" "root "
}

wrong_usage_is_reported() {
	expect 2 "$ctl" metrics x && expect 2 "$ctl" metrics --json && says "$dir/err" "status --json" &&
		expect 2 "$ctl" metrics --listen 9469 && says "$dir/err" "ADDRESS:PORT" && expect 2 "$ctl" metrics --listen :9469 &&
		expect 2 "$ctl" metrics --listen 127.0.0.1:65536 && expect 2 "$ctl" metrics --listen 127.0.0.1:x &&
		expect 2 "$ctl" metrics --private --listen 127.0.0.1 && expect 1 "$ctl" metrics --listen 192.0.2.1 &&
		says "$dir/err" "192.0.2.1: Cannot assign"
}

# listen ADDRESS: $listener, and $url when it answers.
listen() {
	local line fd
	rm -f "$dir/listen.fifo"
	mkfifo "$dir/listen.fifo"
	"$ctl" metrics --listen "$1" 2>"$dir/listen.fifo" &
	listener=$!
	exec {fd}<"$dir/listen.fifo"
	IFS= read -r line <&"$fd"
	exec {fd}<&-
	url=http://$1:${line##* }/metrics
	why="it says: $line"
	[[ $line = *"at port "[1-9]* ]]
}

# fetch ARGUMENT...: see the checker.
fetch() {
	why=$("$python" "$checker" fetch "$url" "$@" 2>"$dir/err") || why="$why $(cat "$dir/err")"
	[ -z "$why" ]
}

by_http_it_answers_one_path_and_bounds_what_it_reads() {
	why="needs python3"
	[ -x "$python" ] || return 2
	listen 127.0.0.1 || return 1
	fetch 200 "# EOF" && fetch 404 "" /other && fetch 404 "" / && fetch 413 "" /metrics --body && fetch 501 "" /metrics --put &&
		fetch 400 "" /metrics --headers && fetch 200 "# EOF"
}

# It connects anew for each request.
by_http_it_goes_on_after_a_restart_of_the_daemon() {
	why="nothing listens"
	[ -n "$listener" ] || return 2
	stop_daemon
	fetch 503 "no daemon listens on $dir/s.sock" || return 1
	start_daemon
	fetch 200 "# EOF"
}

# It once answered after 30 s, when a scraper had gone.
by_http_a_stopped_daemon_is_reported_within_seconds() {
	local start=$SECONDS took
	why="nothing listens"
	[ -n "$listener" ] || return 2
	kill -STOP "$daemon"
	fetch 503 "has not answered for 2 s: is the daemon stopped"
	took=$((SECONDS - start))
	kill -CONT "$daemon"
	[ -z "$why" ] || return 1
	why="it took $took s"
	[ "$took" -lt 20 ] && fetch 200 "# EOF"
}

two_cannot_listen_at_one_port() {
	why="nothing listens"
	[ -n "$listener" ] || return 2
	local port=${url%/metrics}
	expect 1 "$ctl" metrics --listen "127.0.0.1:${port##*:}" && says "$dir/err" "Address already in use"
}

# It once wrote a line for each accept(2) that failed, as fast as it could.
by_http_it_waits_when_descriptors_run_out() {
	local log=$dir/listen.log limited port fd fds=() rc
	why="needs python3"
	[ -x "$python" ] || return 2
	(ulimit -n 40 && exec "$ctl" metrics --listen 127.0.0.1 2>"$log") &
	limited=$!
	await "$limited" grep -q "at port " "$log" || return 1
	port=$(sed -n 's/.*at port //p' "$log")
	for _ in {1..45}; do
		exec {fd}<>"/dev/tcp/127.0.0.1/$port" && fds+=("$fd")
	done
	await "$limited" grep -q "Too many open files" "$log"
	for fd in "${fds[@]}"; do
		exec {fd}>&-
	done
	url=http://127.0.0.1:$port/metrics
	fetch 200 "# EOF"
	rc=$?
	kill "$limited"
	wait "$limited" 2>/dev/null
	[ $rc = 0 ] || return 1
	why="its log has $(wc -l <"$log") lines"
	[ "$(wc -l <"$log")" = 2 ]
}

written() {
	expect 0 "$ctl" wear --json || return 1
	sed -n '/"users"/,$d; s/.*"written_bytes": \([0-9]*\).*/\1/p' "$dir/out"
}

what_was_written_is_kept_over_restarts() {
	local before since
	before=$(written)
	since=$(sed -n 's/.*"wear_since_sec": \([0-9]*\).*/\1/p' "$dir/out")
	stop_daemon
	start_daemon
	why="$before bytes before, $(written) after the restart"
	[ "$before" -gt 0 ] && [ "$(written)" = "$before" ] || return 1
	has "dsaio_store_wear_bytes_total{store=\"t\"} $before" 'dsaio_store_write_bytes_total{store="t"} 0' \
		"dsaio_wear_since_seconds $since" "dsaio_user_wear_bytes_total{uid=\"$(id -u)\",user=\"$(id -un)\"} $before" || return 1
	expect 0 "$ctl" put "$store/more" <"$dir/dsaiod.conf" && random_file "$dir/mega" 1048576 &&
		"$ctl" cp "$dir/mega" "$store/mega" >/dev/null || return 1
	why="$(written) bytes, not 1 MiB more than $before"
	[ "$(written)" -ge $((before + 1048576)) ] || return 1
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
	start_daemon
	why="$(written) bytes after it was killed, not $before"
	[ "$(written)" = "$before" ] || return 1
	expect 0 "$ctl" wear && says "$dir/out" "since 2" "store  t " "user   $(id -un) "
}

# The flight recorder, which tells of a crash, needs a socket on tmpfs.
crashes_are_counted() {
	local shm pid n
	shm=$(mktemp -d /dev/shm/dsaio-ctl-XXXXXX) || return 1
	for n in 0 1 1; do
		"$BUILD/dsaiod" --config /dev/null --socket "$shm/s.sock" --store "t=$store" 2>/dev/null &
		pid=$!
		await "$pid" "$ctl" status --socket "$shm/s.sock" >/dev/null 2>&1
		expect 0 "$ctl" cp --socket "$shm/s.sock" "$store/mega" "$store/copy" && expect 0 "$ctl" metrics --socket "$shm/s.sock" &&
			says "$dir/out" "dsaio_crashes_total $n" || break
		if [ "$n" = 0 ]; then kill -9 $pid; else kill $pid; fi
		wait $pid 2>/dev/null
		pid=
	done
	[ -z "$pid" ] || kill "$pid"
	rm -rf "$shm"
	[ -z "$pid" ]
}

clients_that_come_back_are_counted() {
	local rc
	begin_put "$ctl" put "$store/put" || return 1
	has "dsaio_clients 1" "dsaio_recoveries_total 0" || return 1
	stop_daemon
	start_daemon
	head -c 40000000 /dev/zero >&"$feed" # it looks for a daemon when it needs one
	await "$pid" has "dsaio_recoveries_total 1"
	rc=$?
	kill "$pid" # the daemon has the fifo open, too: it would wait for more
	wait "$pid" 2>/dev/null
	exec {feed}>&-
	return $rc
}

start_daemon
listener=
random_file "$dir/some" 3000000
"$ctl" cp "$dir/some" "$store/some" >/dev/null
for t in the_text_is_openmetrics_and_has_the_numbers_of_status the_dashboard_asks_for_metrics_that_are_there another_user_sees_itself \
	wrong_usage_is_reported by_http_it_answers_one_path_and_bounds_what_it_reads two_cannot_listen_at_one_port \
	by_http_a_stopped_daemon_is_reported_within_seconds by_http_it_goes_on_after_a_restart_of_the_daemon by_http_it_waits_when_descriptors_run_out \
	what_was_written_is_kept_over_restarts crashes_are_counted \
	clients_that_come_back_are_counted; do
	run_test $t
done
if [ -n "$listener" ]; then
	kill "$listener"
	wait "$listener" 2>/dev/null
fi
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
