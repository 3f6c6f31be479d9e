#!/bin/bash
# dsaioctl --private: a daemon for one command, found where it should be, and gone afterwards
# however the command ended.
. "$(dirname "$0")/ctl_common.sh"

export XDG_RUNTIME_DIR=$dir/run
mkdir -m 700 "$dir/run"

# daemons: the command lines of those that were started in $dir/run.
daemons() {
	local file words
	for file in /proc/[0-9]*/cmdline; do
		mapfile -d '' words <"$file"
		[[ ${words[*]} != *"--socket $dir/run/"* ]] || echo "${words[*]}"
	done 2>/dev/null # processes end while we look
}

# The daemon of an ended command needs a moment where the command was killed.
nothing_is_left() {
	local began=$SECONDS
	until [ -z "$(ls -A "$dir/run")$(daemons)" ]; do
		why="left: $(ls -AR "$dir/run") $(daemons)"
		[ $((SECONDS - began)) -lt 60 ] || return 1
		read -rt 0.02 <> <(:)
	done
	return 0
}

copies_without_a_running_daemon() {
	random_file "$store/src" 3000001
	expect 0 "$ctl" cp --private --verify "$store/src" "$store/dst" && same "$store/src" "$store/dst" &&
		nothing_is_left
}

two_file_systems_get_two_stores() {
	local shm rc
	shm=$(mktemp -d /dev/shm/dsaio-ctl-XXXXXX) || return 1
	random_file "$store/src" 3000001
	expect 0 "$ctl" cp --private --verify --json "$store/src" "$shm/dst" &&
		says "$dir/out" '"is_written_by_daemon": true' && same "$store/src" "$shm/dst" && nothing_is_left
	rc=$?
	rm -rf "$shm"
	return "$rc"
}

stores_are_the_current_directory() {
	(cd "$store" && expect 0 "$ctl" stores --private && says "$dir/out" "$store") && nothing_is_left
}

measures_in_several_processes() {
	expect 0 "$ctl" bench io --private --folder "$store" --io_size 1M --multi_process 3 --read &&
		nothing_is_left
}

an_error_cleans_up() {
	expect 1 "$ctl" bench io --private --folder "$store" --io_size 60T && nothing_is_left
}

a_daemon_that_does_not_start_is_reported() {
	printf '#!/bin/sh\necho "dsaiod: no luck today" >&2\nexit 1\n' >"$dir/broken"
	chmod +x "$dir/broken"
	expect 1 env DSAIOD="$dir/broken" "$ctl" status --private &&
		says "$dir/err" "dsaioctl: status: --private: " "no luck today" && nothing_is_left &&
		expect 3 env DSAIOD="$dir/nowhere" "$ctl" status --private &&
		says "$dir/err" "$dir/nowhere" "DSAIOD" && nothing_is_left
}

# The private daemon once "said nothing", or did not answer for 30 s.
a_limit_of_descriptors_is_named() {
	local n
	for n in 8 9 16; do
		expect 1 bash -c "ulimit -n $n && exec \"\$@\"" - "$ctl" stores --private "$store" &&
			says "$dir/err" "64 descriptors" "limit is $n" "ulimit -n" || return 1
	done
	expect 0 bash -c 'ulimit -Sn 8 && exec "$@"' - "$ctl" stores --private "$store" && nothing_is_left
}

a_daemon_in_the_path_is_not_used() {
	local sbindir
	mkdir -p "$dir/alone" "$dir/bin"
	cp "$ctl" "$dir/alone/"
	cp "$dir/broken" "$dir/bin/dsaiod"
	# Whether another one is found is a matter of what is installed on this host.
	sbindir=$(sed -n 's/^#define DSAIO_SBINDIR "\(.*\)"$/\1/p' "$BUILD/proto/dirs.h")
	env PATH="$dir/bin:$PATH" "$dir/alone/dsaioctl" status --private >/dev/null 2>"$dir/err" </dev/null
	says_not "$dir/err" "no luck today" && nothing_is_left || return 1
	[ -e "$sbindir/dsaiod" ] || says "$dir/err" "no dsaiod in $dir/alone nor $sbindir:"
}

# ends_by SIGNAL: a command that was ended by it leaves nothing.
ends_by() {
	local pid
	"$ctl" bench io --private --folder "$store" --io_size 4M --multi_process 2 --loops 1000000 \
		>/dev/null 2>&1 &
	pid=$!
	await "$pid" test -s "$store/_aio_write_4194304.pt.1_0"
	kill "-$1" "$pid"
	wait "$pid" 2>/dev/null
	rm -f "$store"/_aio_*
	nothing_is_left
}
ctrl_c_cleans_up() { ends_by INT; }
sigterm_cleans_up() { ends_by TERM; }
sigkill_cleans_up() { ends_by KILL; }

# Background jobs of a script have SIGINT ignored; with job control they do not.
set -m
for t in copies_without_a_running_daemon two_file_systems_get_two_stores \
	stores_are_the_current_directory measures_in_several_processes an_error_cleans_up \
	a_daemon_that_does_not_start_is_reported a_limit_of_descriptors_is_named a_daemon_in_the_path_is_not_used ctrl_c_cleans_up \
	sigterm_cleans_up sigkill_cleans_up; do
	run_test $t
done
exit $failed
