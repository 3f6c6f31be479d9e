# shellcheck shell=bash
# Sourced by the tests of dsaioctl: a directory with a store, a daemon on it, and checks.
#
# A test is a function, run by name with run_test; it fails by returning non-zero, after setting
# $why; 2 means that it needs root, or what this machine has not ($why, if set, says what).  In it: $dir (fresh for the script), $store, $ctl.

BUILD=$(realpath "${BUILD:-build}")
ctl=$BUILD/dsaioctl
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-ctl-XXXXXX") || exit 1
store=$dir/store
mkdir "$store" || exit 1
: >"$dir/dsaiod.conf" # for a script to fill before start_daemon
unset DSAIO_SOCKET DSAIOD
export DSAIO_AUTOSTART=0 STATE_DIRECTORY=$dir/state # nothing outside $dir
daemon=
failed=0
why=

stop_daemon() {
	[ -n "$daemon" ] || return 0
	kill "$daemon" 2>/dev/null
	wait "$daemon"
	local rc=$?
	daemon=
	return "$rc"
}

finish() {
	stop_daemon
	rm -rf "$dir"
}
trap finish EXIT

# start_daemon [OPTION]...: on $dir/s.sock, with the store unless $dir/dsaiod.conf has one; returns
# when it serves.
start_daemon() {
	local line fd
	grep -q '^\[store ' "$dir/dsaiod.conf" || set -- --store "t=$store" "$@"
	rm -f "$dir/log.fifo"
	mkfifo "$dir/log.fifo" || return 1
	"$BUILD/dsaiod" --config "$dir/dsaiod.conf" --socket "$dir/s.sock" "$@" 2>"$dir/log.fifo" </dev/null &
	daemon=$!
	exec {fd}<"$dir/log.fifo"
	while IFS= read -r line <&"$fd"; do
		case $line in *ready:*)
			cat <&"$fd" >"$dir/daemon.log" &
			exec {fd}<&-
			export DSAIO_SOCKET=$dir/s.sock
			return 0
			;;
		esac
		echo "$line" >&2
	done
	exec {fd}<&-
	echo "not ok start_daemon: the daemon did not start"
	exit 1
}

# as_nobody: sets $nobody, the prefix that runs a command as another user; 2: impossible here.
as_nobody() {
	nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	why="needs root, and a build that another user may run"
	[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || return 2
	chmod 755 "$dir" "$store"
	chmod 666 "$dir/s.sock"
	"${nobody[@]}" "$ctl" --version >/dev/null 2>&1 || return 2
	why=
}

# run_test FUNCTION: prints its line.
run_test() {
	local name=${1//_/ }
	why=
	"$1"
	case $? in
	0) echo "ok ctl: $name" ;;
	2) echo "skip ctl: $name: ${why:-needs root and loop devices}" ;;
	*)
		echo "not ok ctl: $name: ${why:-failed}"
		failed=1
		;;
	esac
}

# expect STATUS COMMAND...: runs it; its output lies in $dir/out and $dir/err.
expect() {
	local status=$1 rc
	shift
	"$@" >"$dir/out" 2>"$dir/err" </dev/null
	rc=$?
	[ $rc = "$status" ] && return 0
	why="exit status $rc instead of $status of: $*: $(tail -c 600 "$dir/err" | tr '\n' ' ')"
	return 1
}

# says FILE TEXT...: the file has each text.
says() {
	local file=$1 text
	shift
	for text in "$@"; do
		grep -qF -e "$text" "$file" && continue
		why="\"$text\" is not in: $(head -c 600 "$file" | tr '\n' ' ')"
		return 1
	done
}

# says_not FILE TEXT: the file does not have the text.
says_not() {
	! grep -qF -e "$2" "$1" && return 0
	why="\"$2\" is in: $(head -c 600 "$1" | tr '\n' ' ')"
	return 1
}

# run_dir LOG_DIR KIND: where the results of the last run are: in its own directory until it is complete.
run_dir() {
	local run
	run=$(find "$1" -maxdepth 1 -name "$2.*[0-9]" 2>/dev/null | sort -V | tail -n 1)
	grep -q '"is_complete": false' "$run/$(results_name "$2")" 2>/dev/null && echo "$run" || echo "$1"
}

# results_name KIND
results_name() {
	[ "$1" = sweep ] && echo results.json || echo "$1.json"
}

# n_points LOG_DIR KIND: rows of that run, also those that are not in the results file yet.
n_points() {
	local run
	run=$(run_dir "$1" "$2")
	cat "$run/$(results_name "$2")" "$run/rows.jsonl" 2>/dev/null | grep -cE '"op": ?"(read|write)'
}

# begins LOG_DIR KIND N: when the first N repetitions of that run began.
begins() {
	local run
	run=$(run_dir "$1" "$2")
	cat "$run/$(results_name "$2")" "$run/rows.jsonl" 2>/dev/null | grep -oE '"at_sec": ?[0-9.e+]+' | tr -d ' ' |
		head -n "$3"
}

# random_file PATH BYTES
random_file() {
	head -c "$2" /dev/urandom >"$1"
}

# await PID COMMAND...: until the command succeeds, or that process has ended: then it fails.  Only
# run.sh limits the time.
await() {
	local pid=$1
	shift
	until "$@"; do
		kill -0 "$pid" 2>/dev/null || return 1
		read -rt 0.02 <> <(:)
	done
	return 0
}

# new_file PID DIR: prints a path of the file that the process, or its child, writes there instead of a
# file in its place: one without a name, or with a temporary one.
new_file() {
	local fd child=none
	read -r child _ <"/proc/$1/task/$1/children"
	for fd in "/proc/$1/fd"/* "/proc/$child/fd"/*; do
		case $(readlink "$fd") in "$2"/[#.]*) echo "$fd" && return ;; esac
	done
	return 1
}

# begin_put COMMAND...: dsaioctl put, or its parent, in the background: $pid.  It has got 40 MB from the
# descriptor $feed, has written 32 MiB of its new file in the store, and waits for more.
begin_put() {
	most_is_there() { [ "$(stat -L -c %s "$(new_file "$pid" "$store")" 2>/dev/null || echo 0)" -ge 33554432 ]; }
	rm -f "$dir/fifo"
	mkfifo "$dir/fifo"
	"$@" <"$dir/fifo" >"$dir/out" 2>"$dir/err" &
	pid=$!
	exec {feed}>"$dir/fifo"
	head -c 40000000 /dev/zero >&"$feed"
	await "$pid" most_is_there
}

# await_socket PID: it connects to the daemon.
await_socket() {
	has_socket() { readlink "/proc/$1"/fd/* 2>/dev/null | grep -q ^socket:; }
	await "$1" has_socket "$1"
}

# has_points N LOG_DIR KIND
has_points() {
	[ "$(n_points "$2" "$3")" -ge "$1" ]
}

# Only the list of clients.
clients_json() {
	"$ctl" clients --json | sed '/^  "clients"/,/^  \]/!d'
}

# writers_are N: so many channels of clients have written.
writers_are() {
	clients_json >"$dir/out" && [ "$(grep -c '"write_bytes": [1-9]' "$dir/out")" -ge "$1" ]
}

# no_temporary DIR: nothing of a copy that failed is there.
no_temporary() {
	why="left: $(echo "$1"/.dsaio-*)"
	[ -z "$(find "$1" -maxdepth 1 -name '.dsaio-*')" ]
}

same() {
	cmp -s "$1" "$2" && return 0
	why="$1 and $2 differ: $(cmp "$1" "$2" 2>&1)"
	return 1
}

# bench report draws with it.  A test returns 2, which skips it.
has_matplotlib() {
	why="needs python3-matplotlib"
	/usr/bin/python3 -c "import matplotlib" 2>/dev/null
}
