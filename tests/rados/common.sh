# shellcheck shell=bash
# Sourced by tests/rados/test_*.sh, which run.sh runs: as for the tests of dsaioctl, and daemons with RADOS stores.
# A daemon is named by a word, such as a and b for two hosts.  A store is a namespace of its own, of this script.
. tests/e2e/ctl_common.sh

declare -A daemons # name: process

# rados_uri NAMESPACE [FILE]
rados_uri() {
	echo "rados://dsaio/t$$-$1${2:+/$2}"
}

# rados_conf NAME NAMESPACE... [-- LINE...]: the daemon's configuration: a store of each namespace's name, and these
# lines in each of them.
rados_conf() {
	local name=$1 space spaces=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		spaces+=("$1")
		shift
	done
	[ $# = 0 ] || shift
	{
		printf '[daemon]\nlock = auto\nstate_dir = %s\n' "$dir/state-$name"
		for space in "${spaces[@]}"; do
			printf '[store %s]\npath = %s\nceph_user = dsaio\n' "$space" "$(rados_uri "$space")"
			[ $# = 0 ] || printf '%s\n' "$@"
		done
	} >"$dir/$name.conf"
}

# rados_start NAME: the daemon of that configuration, on $dir/NAME.sock; its log is $dir/NAME.log.
rados_start() {
	"$BUILD/dsaiod" --config "$dir/$1.conf" --socket "$dir/$1.sock" 2>>"$dir/$1.log" </dev/null &
	daemons[$1]=$!
	await "${daemons[$1]}" rados_status "$1"
}

# rados_use NAME: programs find that daemon.
rados_use() {
	export DSAIO_SOCKET=$dir/$1.sock DSAIO_RADOS_SOCKET=$dir/$1.sock
}

rados_status() {
	"$ctl" status --json --socket "$dir/$1.sock" >"$dir/status" 2>/dev/null
}

# rados_is NAME NAMESPACE true|false: whether the store is offline.
rados_is() {
	rados_status "$1" && python3 -c 'import json, sys
stores = {store["name"]: store for store in json.load(open(sys.argv[1]))["stores"]}
sys.exit(stores[sys.argv[2]].get("is_offline", False) != (sys.argv[3] == "true"))' "$dir/status" "$2" "$3"
}

# rados_await_online NAME NAMESPACE; rados_await_offline
rados_await_online() {
	await "${daemons[$1]}" rados_is "$1" "$2" false
}

rados_await_offline() {
	await "${daemons[$1]}" rados_is "$1" "$2" true
}

# rados_end NAME SIGNAL: the status of the daemon.
rados_end() {
	local pid=${daemons[$1]}
	unset "daemons[$1]"
	kill "-$2" "$pid" && wait "$pid"
}

rados_finish() {
	local name
	for name in "${!daemons[@]}"; do
		rados_end "$name" TERM
	done
	finish
}
trap rados_finish EXIT
