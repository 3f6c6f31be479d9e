#!/bin/bash
# Boots a real systemd, PID 1 of namespaces of its own on an overlay of this machine's root, with
# the project installed in it by make install, or by its packages if make deb has built these sources, and uses the service as people do.  A line for each
# check, then N passed, N failed, N skipped.  Some seconds; root only; leaves nothing behind.
#
#   BUILD=dir tests/systemd/check.sh [nspawn|unshare]
#
# nspawn is systemd-nspawn; unshare needs no further package.  Without an argument: what is there.
# If the machine's root may not raise limits, its systemd cannot either: LimitMEMLOCK=
# is looked at as systemd has read it, and locking is tried under a limit that always holds.
set -u
here=$(dirname "$(readlink -f "$0")")
cd "$here/../.." || exit 1
BUILD=${BUILD:-build}
suite=systemd
. tests/checks.sh

[ "$(id -u)" = 0 ] || skip_all "needs root"
[ -x /lib/systemd/systemd ] || skip_all "needs systemd: apt-get install systemd"
mountpoint -q / || skip_all "needs a root that is a mount point, not a chroot"
mode=${1:-unshare}
[ $# -gt 0 ] || ! command -v systemd-nspawn >/dev/null || mode=nspawn

work=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-systemd.XXXXXX") || exit 1
root=$work/root
name=dsaio$$
supervisor= # the process that keeps the container
init=       # its PID 1, as seen from here
loops=()
cgroup2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)

clean_up() {
	trap '' INT TERM
	if [ -n "$supervisor" ]; then
		[ -z "$init" ] || kill -s RTMIN+4 "$init" 2>/dev/null # poweroff
		timeout 10 tail --pid="$supervisor" -f /dev/null
		[ -z "$init" ] || kill -KILL "$init" 2>/dev/null
		kill -KILL "$supervisor" 2>/dev/null
		wait "$supervisor" 2>/dev/null
	fi
	[ -z "${frozen:-}" ] || fsfreeze -u "$frozen" 2>/dev/null
	umount -R "$root" 2>/dev/null || umount -R -l "$root" 2>/dev/null
	umount "$work/overlay" 2>/dev/null || umount -l "$work/overlay" 2>/dev/null
	# nspawn leaves the last two in every hierarchy.
	find /sys/fs/cgroup -maxdepth 3 -type d \
		\( -name "$name" -o -name payload -o -name supervisor \) 2>/dev/null |
		while read -r group; do
			find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
		done
	for mount in "$work"/loop.*; do
		umount "$mount" 2>/dev/null
	done
	for loop in "${loops[@]}"; do
		losetup -d "$loop" 2>/dev/null
	done
	rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fails COMMAND...
fails() {
	! "$@"
}

inside() {
	nsenter -t "$init" -a -- "$@"
}

ctl() {
	inside systemctl "$@"
}

# Another user, with no groups; dsaioctl must find the daemon by itself.
as_nobody() {
	inside setpriv --reuid nobody --regid nogroup --clear-groups \
		env -u DSAIO_SOCKET DSAIO_AUTOSTART=0 "$@"
}

# ---- the root: an overlay of ours, and what is installed ----

. tests/systemd/packages.sh
prefix=/usr/local
! packages_are_ours || prefix=/usr

install_into_root() {
	if [ $prefix = /usr ]; then
		packages_install
		return
	fi
	${MAKE:-make} --no-print-directory -s BUILD="$BUILD" install DESTDIR="$root"
}

make_root() {
	local up=$work/overlay/up

	mkdir "$work/overlay" "$work/store" "$root" &&
		mount -t tmpfs -o size=512m,mode=755 dsaio-systemd "$work/overlay" &&
		mkdir "$up" "$work/overlay/work" &&
		mount -t overlay overlay -o "lowerdir=/,upperdir=$up,workdir=$work/overlay/work" "$root" ||
		return 1

	# Nothing of this machine starts in it, and nothing asks.
	rm -rf "$root"/etc/systemd/system/*.wants "$root/etc/machine-id" \
		"$root/var/lib/dbus/machine-id" "$root/etc/dsaiod"
	echo uninitialized >"$root/etc/machine-id"
	: >"$root/etc/fstab"
	ln -sf /dev/null "$root/etc/systemd/system/systemd-firstboot.service"
	mkdir -p "$root/etc/systemd/journald.conf.d"
	printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' \
		>"$root/etc/systemd/journald.conf.d/check.conf"
	printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' \
		>"$root/etc/systemd/system/check.target"

	install_into_root >"$work/install.log" 2>&1 || return 1
	# A store on this machine's disk: the overlay is no file system that is served unasked.
	mkdir -p "$root/srv/store" && mount --bind "$work/store" "$root/srv/store" &&
		chmod 1777 "$work/store" &&
		printf '[store check]\npath = /srv/store\n' >>"$root/etc/dsaiod/dsaiod.conf"
}

# loop_mount NAME MKFS...: a file system of its own at /srv/NAME, on a loop device.
loop_mount() {
	local name=$1 loop
	shift
	truncate -s 300M "$work/$name.image" && mkdir "$work/loop.$name" "$root/srv/$name" &&
		loop=$(losetup -f --show "$work/$name.image") && loops+=("$loop") && "$@" -q "$loop" &&
		mount "$loop" "$work/loop.$name" && mount --bind "$work/loop.$name" "$root/srv/$name" &&
		chmod 1777 "$root/srv/$name"
}

# ---- boot ----

boot_nspawn() {
	systemd-nspawn -q -b -D "$root" -M "$name" --register=no --keep-unit --link-journal=no \
		--private-network --capability=all --console=pipe \
		systemd.unit=check.target systemd.show_status=no </dev/null >"$work/boot.log" 2>&1 &
	supervisor=$!
}

boot_unshare() {
	[ -n "$cgroup2" ] || { echo "no cgroup2 is mounted" >"$work/boot.log"; return 1; }
	mkdir "$cgroup2/$name" || return 1
	bash -c 'echo $$ >"$1/cgroup.procs" && shift &&
		exec unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child "$@"' - \
		"$cgroup2/$name" "$here/init.sh" "$root" --unit=check.target \
		</dev/null >"$work/boot.log" 2>&1 &
	supervisor=$!
}

# The child or grandchild of the supervisor that is systemd, and 1 in its own namespace.
find_init() {
	local child pid

	for child in $(pgrep -P "$supervisor"); do
		for pid in "$child" $(pgrep -P "$child"); do
			[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = systemd ] &&
				[ "$(awk '/^NSpid/ { print $NF }' "/proc/$pid/status")" = 1 ] &&
				init=$pid && return 0
		done
	done
	return 1
}

# systemd tells nobody outside when it is up: asks each 50 ms, for five minutes.
wait_up() {
	local i

	for ((i = 0; i < 6000; i++)); do
		kill -0 "$supervisor" 2>/dev/null || return 1
		if [ -n "$init" ] || find_init; then
			case $(ctl is-system-running 2>/dev/null) in
			running) return 0 ;;
			degraded) ctl --failed; return 1 ;;
			esac
		fi
		sleep .05
	done
	return 1
}

# ---- what is checked ----

verify() {
	local said
	said=$(inside systemd-analyze verify --man="$(command -v man >/dev/null && echo yes || echo no)" \
		dsaiod.service dsaiod.socket dsaiod@rados.service dsaiod-metrics.service 2>&1)
	echo "$said"
	[ -z "$said" ]
}

exposure() {
	systemd-analyze security --offline=true --no-pager --threshold="$2" "$root$(ctl show -P FragmentPath "$1")" |
		tail -n 1
	return "${PIPESTATUS[0]}"
}

# The service has a mount namespace of its own: mounts that came after its start, ...
later_mount_works() {
	inside sh -ec 'mkdir -p /mnt/later && mount -t tmpfs -o mode=1777 none /mnt/later' &&
		client_works /mnt/later/user
}

# ... and those that it never sees, as in a container.
unseen_mount_works() {
	inside unshare -m sh -ec 'mount -t tmpfs none /media && cd /media
		head -c 3000001 /dev/urandom >m && dsaioctl put n <m && cmp m n && dsaioctl cat n | cmp - m'
}

# A container has mount, pid, user and network namespaces of its own, and its root is a user of the host.
container_works() {
	as_nobody unshare --user --map-root-user --mount --pid --fork --mount-proc --net --ipc --uts sh -ec '
		mkdir /srv/store/container && cd /srv/store/container && head -c 3000001 /dev/urandom >m
		[ $$ -lt 5 ] && dsaioctl put n <m && cmp m n && dsaioctl cat n | cmp - m &&
		dsaioctl clients --json | grep -q "clients"'
}

runs_as_dsaiod() {
	[ "$(inside stat -c %U "/proc/$(ctl show -P MainPID dsaiod)")" = dsaiod ]
}

# Real bytes through the daemon, by another user: a file of theirs, into the store and out of it.
client_works() {
	local dir=$1 # fresh

	as_nobody sh -ec "mkdir -m 700 $dir && cd $dir && head -c 3000001 /dev/urandom >a &&
		dsaioctl put b <a && cmp a b && dsaioctl cat b | cmp - a"
}

# In a mount namespace that sees the runtime directory elsewhere, as a container does, and there alone.
bind_mount_works() {
	inside unshare -m sh -ec '
		mkdir -p /mnt/dsaiod && mount --bind /run/dsaiod /mnt/dsaiod
		mount -t tmpfs none /run/dsaiod && [ ! -e /run/dsaiod/dsaiod.sock ]
		systemctl '"$1"'
		cd /srv/store && head -c 3000001 /dev/urandom >m
		export DSAIO_SOCKET=/mnt/dsaiod/dsaiod.sock
		dsaioctl put n <m && cmp m n && dsaioctl cat n | cmp - m'
}

# with_config LINE UNIT-LINE...: restarts it with that in [daemon] and in [Service].
with_config() {
	printf '[store check]\npath = /srv/store\n[daemon]\n%s\n' "$1" >"$root/etc/dsaiod/dsaiod.conf"
	shift
	with_unit "$@"
}

# config LINE...: the configuration, of these lines behind the store.
config() {
	{ printf '[store check]\npath = /srv/store\n'; printf '%s\n' "$@"; } >"$root/etc/dsaiod/dsaiod.conf"
}

# The main process of the service: it has not been restarted while this is the same.
main_pid() {
	ctl show -P MainPID dsaiod
}

hangup_is_survived() {
	local pid
	pid=$(main_pid)
	ctl kill -s HUP --kill-who=main dsaiod && wait_journal "SIGHUP has no effect" &&
		[ "$(main_pid)" = "$pid" ] && client_works /srv/store/hangup
}

# wait_journal TEXT JOURNALCTL-OPTION...: the service's log gets it, within a minute.
wait_journal() {
	local text=$1 i
	shift
	for ((i = 0; i < 1200; i++)); do
		inside journalctl -u dsaiod --no-pager -o cat "$@" | grep -qF -e "$text" && return 0
		sleep .05
	done
	echo "the journal has no \"$text\": $(inside journalctl -u dsaiod --no-pager -n 10 "$@")"
	return 1
}

# By HTTP on this host: of a user of its own, who sees the stores and itself.
metrics_are_answered() {
	inside bash -c 'exec 3<>/dev/tcp/localhost/9469 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' >"$work/metrics" &&
		grep -q '^dsaio_store_writes_total{store="check"}' "$work/metrics" &&
		grep -q '^dsaio_user_clients{.*user="dsaiod-metrics"} 0' "$work/metrics" && ! grep -q 'user="root"' "$work/metrics" &&
		grep -q '^# EOF' "$work/metrics" || { cat "$work/metrics"; return 1; }
}

metrics_service_works() {
	ctl start dsaiod-metrics && wait_journal "answers GET /metrics" -u dsaiod-metrics &&
		metrics_are_answered && ctl restart dsaiod && metrics_are_answered && ctl stop dsaiod-metrics
}

reload_applies() {
	local pid
	pid=$(main_pid)
	config '[daemon]' 'lock = auto' 'pool_size = 321M' && ctl reload dsaiod && says "321 MiB" inside dsaioctl status &&
		ctl is-active --quiet dsaiod && [ "$(main_pid)" = "$pid" ] && wait_journal "reload: applied: [daemon] pool_size"
}

reload_keeps_the_good_daemon() {
	local pid
	pid=$(main_pid)
	config '[daemon]' 'pool_size = much' && fails ctl reload dsaiod &&
		wait_journal "dsaiod.conf:4: [daemon] pool_size = much: must be a number" -p err &&
		[ "$(main_pid)" = "$pid" ] && says "321 MiB" inside dsaioctl status && client_works /srv/store/reload
}

# More often than systemd's default limits allow.
clients_are_refused() {
	local i
	for i in $(seq 30); do
		says "journalctl -u dsaiod" fails as_nobody timeout 120 dsaioctl status || return 1
	done
}

many_clients_are_refused() {
	says 64 inside setpriv --reuid nobody --regid nogroup --clear-groups sh -c '
		export DSAIO_AUTOSTART=0
		for i in $(seq 64); do { timeout 120 dsaioctl status 2>&1; } & done |
			grep -c "journalctl -u dsaiod"'
}

next_client_is_served() {
	config && client_works "$1" && ctl is-active --quiet dsaiod.socket
}

# As a package does: the file is another one, and the daemon goes on with the old one.
upgrade_is_reported() {
	local program=$root$prefix/sbin/dsaiod
	cp "$program" "$program.new" && mv "$program.new" "$program" &&
		says "program was replaced after its start" as_nobody dsaioctl status &&
		ctl restart dsaiod && says "(build " as_nobody dsaioctl status &&
		fails says "restart the daemon" as_nobody dsaioctl status
}

# ---- a program that goes on while the service is restarted ----

# Not in a subshell, as check() runs commands: it is this shell's child.
load_start() {
	cp "$BUILD/tests/systemd/load" "$root/usr/local/bin/dsaio-load"
	mkfifo "$work/load-in" "$work/load-out"
	as_nobody env LD_LIBRARY_PATH=/usr/local/lib dsaio-load /srv/store/load \
		<"$work/load-in" >"$work/load-out" 2>&1 &
	load=$!
	exec 8>"$work/load-in" 9<"$work/load-out"
}

load_end() {
	exec 8>&-
	wait "$load"
	check "$1" test $? = 0
	exec 9<&-
}

# It has done some more rounds, and no op of it has failed.
load_says() {
	local line
	echo >&8 && read -r -t 120 line <&9 && echo "$line" | tee -a "$work/load-says" && [[ $line == ok:* ]]
}

# goes_on COMMAND...: the command leaves another daemon, and the load goes on with it.
goes_on() {
	local pid
	load_says && pid=$(main_pid) && "$@" && load_says && [ "$(main_pid)" != "$pid" ]
}

# check_load NAME COMMAND...: as check(), of goes_on(), and notes with what the load says meanwhile.
check_load() {
	: >"$work/load-says"
	check "$1" goes_on "${@:2}"
	sed '1d; s/^/# /' "$work/load-says" # the first is from before
}

restart_three_times() {
	ctl restart dsaiod && load_says && ctl restart dsaiod && load_says && ctl restart dsaiod
}

# Restarts it with these lines in [Service]; none: as it was.
with_unit() {
	inside sh -c 'mkdir -p /run/systemd/system/dsaiod.service.d
		{ echo "[Service]"; printf "%s\n" "$@"; } >/run/systemd/system/dsaiod.service.d/check.conf
		systemctl daemon-reload && systemctl restart dsaiod' - "$@"
}

with_drop_in() {
	cp "systemd/dsaiod.service.d/$1" "$root/etc/systemd/system/dsaiod.service.d.tmp" &&
		mkdir -p "$root/etc/systemd/system/dsaiod.service.d" &&
		mv "$root/etc/systemd/system/dsaiod.service.d.tmp" "$root/etc/systemd/system/dsaiod.service.d/check.conf" &&
		ctl daemon-reload && ctl restart dsaiod && client_works "/srv/store/$1" || return 1
	rm "$root/etc/systemd/system/dsaiod.service.d/check.conf" && ctl daemon-reload
}

# A stopped process answers nobody.
watchdog_ends_a_stopped_daemon() {
	local before
	before=$(ctl show -P NRestarts dsaiod)
	ctl kill -s STOP --kill-who=main dsaiod && wait_journal "Watchdog timeout" && client_works /srv/store/watched &&
		[ "$(ctl show -P NRestarts dsaiod)" -gt "$before" ]
}

# A write there waits in the kernel, in the lane or in a worker, for longer than the watchdog would.
watchdog_leaves_a_hung_mount() {
	local pid put rc
	pid=$(main_pid)
	client_works /srv/ext4/before && fsfreeze -f "$work/loop.ext4" && frozen=$work/loop.ext4 || return 1
	as_nobody sh -ec 'head -c 3000001 /dev/zero | dsaioctl put /srv/ext4/before/hung' &
	put=$!
	sleep 5 # two and a half times its limit
	client_works /srv/store/beside && kill -0 $put # it still waits
	rc=$?
	fsfreeze -u "$frozen" && frozen= && wait "$put" && [ $rc = 0 ] && [ "$(main_pid)" = "$pid" ]
}

# As README says it.
upgrade() {
	if [ $prefix = /usr ]; then
		packages_upgrade
		return
	fi
	install_into_root && inside ldconfig && ctl daemon-reload && ctl try-restart dsaiod
}

# The program starts it at once, through the socket.
stop_and_start() {
	ctl stop dsaiod.service && sleep 1 && ctl start dsaiod.service
}

stop_both_and_start() {
	ctl stop dsaiod.socket dsaiod.service && sleep 1 && ctl start dsaiod.socket
}

disabled_leaves_no_socket() {
	ctl enable --now dsaiod.socket && client_works /srv/store/enabled &&
		ctl disable --now dsaiod.socket && ! inside test -e /run/dsaiod/dsaiod.sock &&
		inside setpriv --reuid nobody --regid nogroup --clear-groups \
			env -u DSAIO_SOCKET -u XDG_RUNTIME_DIR HOME=/tmp dsaioctl put /srv/store/own </dev/null
}

# The load's restarts were such events, for a process of another user.
fields_are_in_the_journal() {
	says '"DSAIO_CLIENT_UID":"65534"' inside journalctl -u dsaiod -o json DSAIO_EVENT=recovered &&
		says '"DSAIO_CLIENT_PID":"' inside journalctl -u dsaiod -o json DSAIO_EVENT=recovered &&
		says '"PRIORITY":"4"' inside journalctl -u dsaiod -o json DSAIO_EVENT=crash
}

# Each command of the manual page, with this host's names.  dsaioctl trace has nothing to show on a fresh daemon.
operate() {
	local line client failed=0
	while IFS= read -r line; do
		line=${line//nvme0/check} line=${line//\/nvme//srv/store} line=${line//alice/nobody}
		[[ $line != *"kill 7"* ]] || { client_begin && line=${line/kill 7/kill $client}; }
		inside sh -c "$line" </dev/null >"$work/said" 2>&1 && continue
		[[ $line = "dsaioctl trace"* ]] && grep -q "nothing is recorded\|no crash" "$work/said" && continue
		[[ $line = "dsaioctl doctor" ]] && grep -q "warnings\?, [0-9]* failure" "$work/said" && continue
		echo "$line: $(cat "$work/said")" && failed=1
	done < <(sed -n '/^\.Sh STORES ON CEPH/q; /^\.Bd/,/^\.Ed/{/^\./d;p}' man/dsaiod-operating.7)
	exec 8>&-
	return $failed
}

# A client that waits for its input: its number is $client.
client_begin() {
	local put i
	mkfifo "$work/hold"
	as_nobody dsaioctl put /dev/shm/held <"$work/hold" &
	put=$!
	exec 8>"$work/hold"
	for ((i = 0; i < 600; i++)); do
		client=$(inside dsaioctl clients --json | grep -oE '"client": [0-9]+' | grep -oE '[0-9]+') && return 0
		kill -0 $put || return 1
		sleep .05
	done
	return 1
}

# On a host without a network no cluster answers.
rados_is_offline() {
	printf '[store away]\npath = rados://away/check\n' >>"$root/etc/dsaiod/dsaiod-rados.conf"
	mkdir -p "$root/etc/ceph" && printf '[global]\nmon_host = 192.0.2.1\nauth_client_required = none\n' >"$root/etc/ceph/ceph.conf"
	ctl start dsaiod@rados && ctl is-active --quiet dsaiod@rados &&
		says "store away is OFFLINE" inside dsaioctl status --socket /run/dsaiod-rados/dsaiod.sock &&
		ctl stop dsaiod@rados && cp systemd/dsaiod-rados.conf "$root/etc/dsaiod/"
}

lock_refused() {
	says RLIMIT_MEMLOCK fails client_works /srv/store/refused
}

if ! make_root; then
	echo "not ok systemd: the root cannot be made: $(cat "$work/install.log" 2>/dev/null)"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
has_loops=no
loop_mount ext4 mkfs.ext4 -E lazy_itable_init=0 >"$work/loop.log" 2>&1 && loop_mount btrfs mkfs.btrfs >>"$work/loop.log" 2>&1 &&
	has_loops=yes
"boot_$mode"
if ! wait_up; then
	echo "not ok systemd: no boot by $mode: $(cat "$work/boot.log")"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
echo "# $mode: a systemd has booted"

check "the units verify clean" verify
check "the exposure of the service is at most 2.5" exposure dsaiod.service 25
check "that of dsaiod-metrics is at most 1.5" exposure dsaiod-metrics.service 15
check "that of dsaiod@rados is at most 2.5" exposure dsaiod@rados.service 25
check "LimitMEMLOCK=infinity" says infinity ctl show -P LimitMEMLOCK dsaiod
check "start" ctl start dsaiod
check "active" ctl is-active --quiet dsaiod
check "runs as dsaiod" runs_as_dsaiod
check "the status says that it serves" says "serving on /run/dsaiod/dsaiod.sock" ctl show -P StatusText dsaiod
check "a client as another user" client_works /srv/store/user
check "a client as another user, on a store that nobody has configured" client_works /dev/shm/user
check "a client on a file system that was mounted later" later_mount_works
check "a client on a file system that only its own mount namespace has" unseen_mount_works
check "a client in a container: mount, pid, user and network namespaces of its own" container_works
if [ $has_loops = yes ]; then
	check "a client on btrfs" client_works /srv/btrfs/user
	check "a client on ext4" client_works /srv/ext4/user
else
	skip "a client on btrfs and on ext4: no loop devices, or no mkfs.btrfs"
fi
check "another user may not set a profile" \
	says administrator fails as_nobody dsaioctl profile set check queue_depth=17
check "root may" inside dsaioctl profile set check queue_depth=17
check "stop" ctl stop dsaiod.service
check "the journal says how many clients it cut off" wait_journal "stopping on Terminated: disconnects 0 clients"
check "no more active, and the end was orderly" \
	says $'Result=success\nActiveState=inactive' ctl show -p Result -p ActiveState dsaiod
check "started again by a client through the socket" client_works /srv/store/socket
check "the profile was saved, in the state directory" says 17 inside dsaioctl profile show check
check "a bind mount of /run/dsaiod works over a restart" bind_mount_works 'restart dsaiod'
check "a bind mount of /run/dsaiod works over a stop, and a start by the client" \
	bind_mount_works 'stop dsaiod.service'
check "a bind mount of /run/dsaiod works over a stop and start of the socket" \
	bind_mount_works 'restart dsaiod.socket'
ctl reset-failed dsaiod # five starts within ten seconds would be one too many
check "SIGKILL" ctl kill -s KILL --kill-who=main dsaiod
check "served again after SIGKILL" client_works /srv/store/killed
check "the journal says that the daemon before was killed" wait_journal "did not stop in order"
check "status reports a daemon that an upgrade left" upgrade_is_reported

check "dsaiod-metrics answers, also after a restart of the daemon" metrics_service_works
check "the drop-in for GPU-less hosts" with_drop_in no-gpu.conf
check "the drop-in with CAP_IPC_LOCK" with_drop_in lock.conf
check "with a watchdog of two seconds" with_unit WatchdogSec=2
check "the watchdog ends a daemon that does not answer" watchdog_ends_a_stopped_daemon
if [ $has_loops = yes ]; then
	check "the watchdog leaves a daemon with a mount that hangs" watchdog_leaves_a_hung_mount
else
	skip "the watchdog leaves a daemon with a mount that hangs: no loop devices"
fi
check "with the unit's own watchdog again" with_unit

if inside sh -c 'ls /usr/lib/*/dsaiod/dsaiod-rados.so /usr/local/lib/dsaiod/dsaiod-rados.so 2>/dev/null | grep -q .'; then
	check "dsaiod@rados starts without its cluster, and its store is offline" rados_is_offline
else
	skip "dsaiod@rados starts without its cluster: dsaiod-rados.so is not built"
fi

check "each command of dsaiod-operating(7)" operate

load_start
check "a program works" load_says
check_load "it goes on over three restarts" restart_three_times
check_load "it goes on over an upgrade" upgrade
check_load "it goes on over SIGKILL" ctl kill -s KILL --kill-who=main dsaiod
check_load "it goes on over a stop and a start a second later" stop_and_start
check_load "it goes on over a second without service and socket" stop_both_and_start
load_end "it ends well"
check "the journal has an event's fields" fields_are_in_the_journal

check "without CAP_IPC_LOCK, lock = yes: starts" with_config 'lock = yes' LimitMEMLOCK=64K
check "without CAP_IPC_LOCK, lock = yes: refused, and the message says why" lock_refused
check "without CAP_IPC_LOCK, lock = auto: starts" with_config 'lock = auto' LimitMEMLOCK=64K
check "without CAP_IPC_LOCK, lock = auto: served" client_works /srv/store/auto
check "without CAP_IPC_LOCK, lock = auto: status says so" says RLIMIT_MEMLOCK as_nobody dsaioctl status
check "with CAP_IPC_LOCK, lock = yes: starts" \
	with_config 'lock = yes' LimitMEMLOCK=64K AmbientCapabilities=CAP_IPC_LOCK
check "with CAP_IPC_LOCK, lock = yes: served" client_works /srv/store/locked
check "the journal has the daemon's lines" says 'ready:' inside journalctl -u dsaiod --no-pager -o cat
check "SIGHUP is logged and survived" hangup_is_survived
check "a new limit: reload applies it" reload_applies
check "a wrong configuration: reload refuses, the daemon goes on" reload_keeps_the_good_daemon
check "a wrong configuration: restart fails" fails ctl restart dsaiod
check "a wrong configuration: each client is refused, and the message says where the cause is" \
	clients_are_refused
check "a wrong configuration: so are 64 clients at once" many_clients_are_refused
check "a wrong configuration: the journal has it as an error" wait_journal "pool_size = much" -p err
check "the configuration mended: the next client is served" next_client_is_served /srv/store/mended
check "no start limit is in the way" fails ctl is-failed --quiet dsaiod.service dsaiod.socket
check "disable --now leaves no socket, and programs start their own daemon" disabled_leaves_no_socket
check "stop of socket and service" ctl stop dsaiod.socket dsaiod.service

if [ $prefix = /usr ]; then
	packages_check
else
	skip "packages: make deb builds them"
fi

if [ $failed != 0 ]; then
	inside journalctl -u dsaiod -u dsaiod.socket --no-pager -n 60 -o short-monotonic | sed 's/^/# /'
fi
sums
