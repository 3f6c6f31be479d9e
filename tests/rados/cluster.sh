#!/bin/bash
# A Ceph cluster for tests, on this machine's loopback and in one directory.
#
#   cluster.sh up DIR [osds=3] [store=bluestore] [mgr=1]
#					the pool dsaio, with a copy on each osd, and its user client.dsaio;
#					mgr=0: no manager, which takes 300 MB, and no quotas; store=memstore
#					is the smaller one that a killed osd loses
#   cluster.sh kill|start DIR NAME...	SIGKILL, or the daemon again: mon.a, mgr.x, osd.0 and so on
#   cluster.sh freeze|thaw DIR NAME...	SIGSTOP, SIGCONT
#   cluster.sh quota DIR POOL BYTES	of the pool; 0: none
#   cluster.sh down DIR			kills the daemons, removes DIR
#
# After `up`, CEPH_CONF=DIR/ceph.conf is all that a client needs.  Only processes that are noted in DIR get a signal.
set -u
command=${1:-} dir=${2:-}
[[ $dir = /* ]] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
shift 2
export CEPH_CONF=$dir/ceph.conf
osds=3 store=bluestore mgr=1

die() {
	echo "cluster.sh: $*" >&2
	exit 1
}

# start_time PID: field 22 of stat, counted behind the last ")".
start_time() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	read -ra stat <<<"${stat##*) }"
	[ "${stat[0]}" != Z ] && echo "${stat[19]}"
}

# pid_of NAME: only if it is still the process that we started.
pid_of() {
	local pid start
	read -r pid start 2>/dev/null <"$dir/run/$1.pid" && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}

start() {
	pid_of "$1" >/dev/null && return
	setsid "ceph-${1%.*}" -f -i "${1#*.}" -c "$CEPH_CONF" >>"$dir/log/$1.out" 2>&1 </dev/null &
	echo "$! $(start_time $!)" >"$dir/run/$1.pid"
}

# signal SIGNAL NAME...
signal() {
	local name pid
	for name in "${@:2}"; do
		pid=$(pid_of "$name") && kill "-$1" "$pid"
	done
}

all() {
	local file
	for file in "$dir"/run/*.pid; do
		file=${file##*/}
		echo "${file%.pid}"
	done
}

# A daemon whose end is not awaited could still write.
kill_all() {
	local name pid
	signal KILL "$@"
	for name; do
		while pid=$(pid_of "$name"); do
			sleep .02
		done
		rm -f "$dir/run/$name.pid"
	done
}

admin() {
	timeout 60 ceph --connect-timeout 20 "$@"
}

# key NAME CAPABILITY...: a keyring, for the daemon or client itself and for the monitor's first database.
key() {
	ceph-authtool --create-keyring "$dir/$1.keyring" --gen-key -n "$1" "${@:2}" &&
		{ [ "$1" = mon. ] || ceph-authtool "$dir/mon..keyring" --import-keyring "$dir/$1.keyring"; }
}

write_conf() {
	cat >"$CEPH_CONF" <<-CONF
		[global]
		fsid = $fsid
		mon_initial_members = a
		mon_host = [v2:127.0.0.1:$port/0]
		public_addr = 127.0.0.1
		cluster_addr = 127.0.0.1
		ms_bind_msgr1 = false
		ms_bind_port_min = $((port + 1))
		ms_bind_port_max = $((port + 200))
		auth_cluster_required = cephx
		auth_service_required = cephx
		auth_client_required = cephx
		keyring = $dir/\$name.keyring
		run_dir = $dir/run
		admin_socket =
		log_file =
		crash_dir = $dir/log
		log_max_recent = 50
		ms_async_op_threads = 1
		osd_pool_default_size = $osds
		osd_pool_default_min_size = $(((osds + 1) / 2))
		osd_crush_chooseleaf_type = 0
		osd_heartbeat_interval = 1
		osd_heartbeat_grace = 5
		mon_osd_min_down_reporters = 1
		mon_osd_down_out_interval = 0
		mon_osd_report_timeout = 30
		osd_beacon_report_interval = 5
		[mon]
		mon_data = $dir/mon
		mon_data_avail_warn = 2
		mon_data_avail_crit = 1
		auth_allow_insecure_global_id_reclaim = false
		paxos_propose_interval = 0.05
		mon_cpu_threads = 1
		mon_memory_autotune = false
		mon_allow_pool_size_one = true
		rocksdb_cache_size = 16777216
		[mgr]
		mgr_data = $dir/mgr
		mgr_initial_modules =
		mgr_tick_period = 1
		mgr_stats_period = 1
		[osd]
		osd_data = $dir/osd\$id
		osd_objectstore = $store
		osd_class_update_on_start = false
		osd_op_num_shards = 2
		osd_op_num_threads_per_shard = 1
		osd_mclock_skip_benchmark = true
		bluestore_block_size = 6442450944
		bluestore_cache_autotune = false
		bluestore_cache_size = 67108864
		memstore_device_bytes = 2147483648
	CONF
}

make_daemons() {
	local id pids="" uuid
	key mon. --cap mon 'allow *' && key client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' &&
		key mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *' &&
		key client.dsaio --cap mon 'profile rbd' --cap osd 'allow rwx pool=dsaio' || return 1
	for ((id = 0; id < osds; id++)); do
		key "osd.$id" --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *' || return 1
	done
	monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port/0]" --set-min-mon-release pacific \
		--enable-all-features "$dir/monmap" &&
		ceph-mon --mkfs -i a -c "$CEPH_CONF" --monmap "$dir/monmap" --keyring "$dir/mon..keyring" || return 1
	start mon.a
	# One process for all commands: each start of it costs half a second.
	for ((id = 0; id < osds; id++)); do
		uuid=$(cat /proc/sys/kernel/random/uuid)
		echo "osd new $uuid $id"
		mkdir "$dir/osd$id"
		echo "$uuid" >"$dir/osd$id.uuid"
	done >"$dir/commands"
	admin <"$dir/commands" || return 1
	[ "$mgr" = 0 ] || start mgr.x
	for ((id = 0; id < osds; id++)); do
		ceph-osd --mkfs -i "$id" -c "$CEPH_CONF" --osd-uuid "$(cat "$dir/osd$id.uuid")" &
		pids="$pids $!"
	done
	for id in $pids; do
		wait "$id" || return 1
	done
	for ((id = 0; id < osds; id++)); do
		start "osd.$id"
	done
	printf '%s\n' "osd pool create dsaio 8 8 replicated" "osd pool application enable dsaio dsaio" >"$dir/commands"
	admin <"$dir/commands"
}

up() {
	local i fsid port
	fsid=$(cat /proc/sys/kernel/random/uuid)
	mkdir -p "$dir"/{run,log,mon,mgr} && chmod 700 "$dir" || exit 1
	for ((i = 0; i < 50; i++)); do
		port=$((20000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	write_conf
	# An acknowledged write shows more than any status.
	if make_daemons >"$dir/log/up" 2>&1 && timeout 60 rados -p dsaio put ready "$CEPH_CONF" && rados -p dsaio rm ready; then
		return
	fi
	tail -n 5 "$dir/log/up" >&2
	# shellcheck disable=SC2046
	kill_all $(all)
	die "no cluster: the logs are in $dir/log"
}

case $command in
up)
	[ ! -e "$CEPH_CONF" ] || die "$dir has a cluster already"
	for argument; do
		case $argument in
		osds=*|store=*|mgr=*) declare "${argument%%=*}=${argument#*=}" ;;
		*) die "$argument: not known to up" ;;
		esac
	done
	up
	;;
down)
	[ -d "$dir/run" ] || die "$dir has no cluster"
	# shellcheck disable=SC2046
	kill_all $(all)
	rm -rf --one-file-system "$dir"
	;;
kill) kill_all "$@" ;;
start) for name; do start "$name"; done ;;
freeze) signal STOP "$@" ;;
thaw) signal CONT "$@" ;;
quota) admin osd pool set-quota "$1" max_bytes "$2" ;;
*) die "$command: no such command" ;;
esac
