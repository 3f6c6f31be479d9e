#!/bin/bash
# dsaioctl bench mix: its report agrees with itself, it leaves nothing, and says what is wrong with a job.
. "$(dirname "$0")/ctl_common.sh"

cat >"$dir/job.fio" <<'END'
[global]
runtime=0.1
size=4M
[writer]
rw=write
bs=256K
iodepth=4
class=background
[reader.1]
rw=randread
rate_iops=500
[reader.2]
rw=randread
rate_iops=500
[both]
rw=randrw
rwmixread=30
bs=16k
iodepth=2
rate=8M
class=demand
END

mix() {
	"$ctl" bench mix "$dir/job.fio" --dir "$store" "$@"
}

# The store is empty, also under temporary names, and the clients have gone.
nothing_is_left() {
	why="left: $(ls -A "$store")"
	[ -z "$(ls -A "$store")" ] && expect 0 "$ctl" clients && says "$dir/out" "no clients"
}

a_table_has_each_client_alone_and_together() {
	expect 0 mix || return 1
	why="rows: $(awk '{ print $1, $2 }' "$dir/out" | tr '\n' ';')"
	[ "$(awk 'NR > 1 { print ($1 == "together" ? $1 : $1 " " $2) }' "$dir/out" | tr '\n' ';')" = \
		"writer alone;together;reader.1 alone;together;reader.2 alone;together;both alone;together;" ] &&
		says "$dir/out" "CLIENT" "BANDWIDTH" "P99.9" && nothing_is_left
}

numbers_agree_with_each_other() {
	expect 0 mix --json || return 1
	why="needs python3"
	command -v python3 >/dev/null || return 2
	why=$(python3 - "$dir/out" 2>&1 <<'END'
import json, sys

mix = json.load(open(sys.argv[1]))
clients = {c["name"]: c for c in mix["clients"]}
sizes = {"writer": 256 << 10, "reader.1": 4096, "reader.2": 4096, "both": 16 << 10}
assert list(clients) == ["writer", "reader.1", "reader.2", "both"], list(clients)
for c in clients.values():
    for run in (c["alone"], c["together"]):
        assert run["ops"] > 0 and run["bytes"] == run["ops"] * sizes[c["name"]], run
        assert run["took_nsec"] >= 90_000_000, run
        assert abs(run["bytes_per_sec"] * run["took_nsec"] / 1e9 / run["bytes"] - 1) < 1e-6, run
        assert run["p99_nsec"] is None or run["p50_nsec"] <= run["p99_nsec"], run
        assert run["p999_nsec"] is None or run["ops"] >= 1000, run
    assert c["alone"]["iops"] < 530 or not c["name"].startswith("reader"), c  # at most its rate
END
	) && nothing_is_left
}

writer_is_there() {
	expect 0 "$ctl" clients && grep -q background "$dir/out"
}

# The daemon has a client for each, with the class of its section.
clients_do_what_the_job_says() {
	local pid rc
	sed -i 's/runtime=.*/runtime=60/' "$dir/job.fio"
	"$ctl" bench mix "$dir/job.fio" --dir "$store" >"$dir/mix" 2>&1 &
	pid=$!
	await "$pid" writer_is_there
	rc=$?
	kill "$pid"
	wait "$pid"
	[ $? = 143 ] || { why="not interrupted: $(cat "$dir/mix")"; return 1; }
	sed -i 's/runtime=.*/runtime=0.1/' "$dir/job.fio"
	[ $rc = 0 ] && { why="clients: $(cat "$dir/out")"; [ "$(awk '$2 == "dsaioctl"' "$dir/out" | wc -l)" -ge 4 ]; } && await_no_clients && nothing_is_left
}

await_no_clients() {
	none() { "$ctl" clients 2>/dev/null | grep -q "no clients"; }
	await "$daemon" none
}

mistakes_are_reported() {
	printf '[a]\nioengine=libaio\n' >"$dir/bad.fio"
	printf '[a]\nsize=1T\n' >"$dir/large.fio"
	expect 2 "$ctl" bench mix && says "$dir/err" "name one job file and a directory" &&
		expect 2 "$ctl" bench mix "$dir/job.fio" && says "$dir/err" "--dir DIR" &&
		expect 1 "$ctl" bench mix "$dir/none" --dir "$store" && says "$dir/err" "$dir/none: No such file" &&
		expect 2 "$ctl" bench mix "$dir/bad.fio" --dir "$store" &&
		says "$dir/err" "$dir/bad.fio: line 2: ioengine: there is no such key: see dsaioctl bench mix --help" &&
		expect 1 "$ctl" bench mix "$dir/job.fio" --dir "$dir/none" && says "$dir/err" "$dir/none" &&
		expect 3 "$ctl" bench mix "$dir/job.fio" --dir "$store" --socket "$dir/nobody.sock" &&
		expect 1 "$ctl" bench mix "$dir/large.fio" --dir "$store" && says "$dir/err" "the test files need 1" "free" && nothing_is_left
}

the_example_is_right() {
	sed 's/runtime=.*/runtime=0.03/; s/size=.*/size=4M/' systemd/mix.fio >"$dir/example.fio"
	expect 0 "$ctl" bench mix "$dir/example.fio" --dir "$store" --private && says "$dir/out" checkpoint loader inference optimizer || return 1
	why="the page has another example"
	diff <(sed -n '/^\[global\]/,$p' systemd/mix.fio) <(sed -n '/^\[global\]/,/^\.Ed/{/^\.Ed/!p}' man/dsaioctl-bench.1)
}

start_daemon
for t in a_table_has_each_client_alone_and_together numbers_agree_with_each_other clients_do_what_the_job_says mistakes_are_reported \
	the_example_is_right; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
