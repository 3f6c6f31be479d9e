#!/bin/sh
# The daemon's command line and configuration: what is refused is refused with exit status 2 and
# a message that names file, line, key, value and what is allowed.
#
#     tests/e2e/daemon.sh [PART OF A NAME]

dsaiod=${BUILD:-build}/dsaiod
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-test-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
wanted=$1
failed=0
mkdir "$dir/store"

# check NAME STATUS WORDS ARGUMENT...: the daemon ends with this status and says all the words
# (";" between them).
check() {
	name=$1 status=$2 words=$3
	shift 3
	case $name in *"$wanted"*) ;; *) return ;; esac
	timeout 300 "$dsaiod" "$@" >"$dir/said" 2>&1
	got=$?
	if [ $got -ne "$status" ]; then
		echo "not ok $name: exit status $got, not $status: $(tr '\n' ' ' <"$dir/said")"
		failed=1
		return
	fi
	old_ifs=$IFS IFS=';'
	for word in $words; do
		if ! grep -qF -e "$word" "$dir/said"; then
			echo "not ok $name: it does not say \"$word\": $(tr '\n' ' ' <"$dir/said")"
			failed=1
			IFS=$old_ifs
			return
		fi
	done
	IFS=$old_ifs
	echo "ok $name"
}

# refuse NAME WORDS LINE...: the same for a configuration of these lines.
refuse() {
	name=$1 words=$2
	shift 2
	printf '%s\n' "$@" >"$dir/conf"
	check "configuration: $name" 2 "$words" --config "$dir/conf" --check-config
}

socket=$dir/s.sock
good="[store t]
path = $dir/store"

check "--help" 0 "--store;--config;--socket;--check-config" --help
check "--sample-config" 0 "[daemon];pool_size = ;intra_op_parallelism = 1" --sample-config
check "--sample-config of a user's own daemon" 0 ";idle_exit_sec = 60" --sample-config --user
check "--version" 0 "dsaiod" --version
check "-V" 0 "dsaiod" -V
check "an unknown option" 2 "--frobnicate" --frobnicate
check "--socket without a value" 2 "--socket: needs a value" --socket
check "--user with a value" 2 "--user=1;takes no value" --user=1
check "an argument too many" 2 "surplus" surplus
check "--store without a name" 2 "NAME=DIR" --store "$dir/store" --check-config
check "--store without a directory" 2 "t" --store t= --check-config
check "the same store twice" 2 "t" --store "t=$dir/store" --store "t=$dir/store" --check-config
check "no configuration file" 2 "$dir/missing" --config "$dir/missing" --check-config
check "--check-config of a store that is not there" 2 "$dir/missing" --socket "$socket" \
	--store "t=$dir/missing" --store "u=$dir/store" --check-config
check "a directory as configuration" 2 "$dir/store" --config "$dir/store" --check-config
cp /dev/null "$dir/file"
check "a socket path that is a file" 1 "$dir/file;no socket" --socket "$dir/file" --store "t=$dir/store"
[ ! -e "$dir/file.lock" ] || { echo "not ok a refused start leaves no lock beside a file"; failed=1; }
check "--check-config of stores" 0 "" --socket "$socket" --store "t=$dir/store" --check-config
! grep -qE '\[(never|deny)\]' /sys/kernel/mm/transparent_hugepage/shmem_enabled ||
	check "--check-config where huge pages come late" 0 "shmem_enabled is ;advise" --socket "$socket" \
		--check-config
check "--check-config of a socket in no directory" 2 \
	"--socket $dir/none/s.sock;directory $dir/none;No such file;make the directory" \
	--socket "$dir/none/s.sock" --check-config
check "--check-config of a socket path that is a file" 2 "$dir/file;no socket;remove it" \
	--socket "$dir/file" --check-config
check "--check-config of a socket leaves nothing" 0 "" --socket "$socket" --check-config
! ls -A "$dir" | grep -q "^\\." ||
	{ echo "not ok --check-config leaves nothing: $(ls -A "$dir")"; failed=1; }
printf '%s\n' "[daemon]" "state_dir = $dir/file" >"$dir/conf"
check "--check-config of a state_dir that is a file" 2 "conf:2;state_dir = $dir/file;Not a directory" \
	--config "$dir/conf" --socket "$socket" --check-config
# It was accepted once.
check "a store on a pseudo file system is refused by its name" 1 "store x: /proc: is on proc, a pseudo" \
	--socket "$socket" --store x=/proc
check "--check-config of a store on a pseudo file system" 2 "store x: /proc: is on proc, a pseudo" \
	--socket "$socket" --store x=/proc --check-config
export XDG_CONFIG_HOME="$dir/none"
check "--check-config without a configuration file" 0 "there is no configuration file" \
	--user --socket "$socket" --check-config
check "--check-config of two stores on one device" 2 \
	"--store u=$dir/store;same device;as store t;remove one" \
	--store "t=$dir" --store "u=$dir/store" --check-config

printf '%s\n' "[daemon]" "socket = $socket" "pool_size = 64M" "client_pool_max = 32M" "lock = auto" \
	"spin_usec = 0" "$good" "block_size = 256K" "queue_depth = 32" "single_submit = no" \
	"overlap_events = yes" "intra_op_parallelism = 2" "spin_usec = 20" "window_max = 4M" \
	>"$dir/conf"
check "configuration: all keys" 0 "" --config "$dir/conf" --check-config

mkdir "$dir/conf.d" "$dir/home" "$dir/home/dsaiod" "$dir/home/dsaiod/dsaiod.conf.d"
printf '%s\n' "[store t]" "queue_depth = 0" >"$dir/conf.d/20.conf"
printf '%s\n' "[daemon]" "spin_usec = x" >"$dir/conf.d/10.conf"
printf '%s\n' "[daemon]" "lock = x" >"$dir/conf.d/10.conf.off"
refuse "files beside it" "conf.d/10.conf:2: [daemon] spin_usec = x;conf.d/20.conf:2: [store t] queue_depth = 0" "$good"
! grep -qF .off "$dir/said" || { echo "not ok configuration: a file beside it of another name"; failed=1; }
rm -r "$dir/conf.d"
cp /dev/null "$dir/conf.d"
refuse "a directory beside it that is none" "$dir/conf.d: Not a directory" "$good"
rm "$dir/conf.d"
printf '%s\n' "$good" >"$dir/home/dsaiod/dsaiod.conf.d/t.conf"
XDG_CONFIG_HOME=$dir/home
check "--check-config of a file beside a default configuration that is not there" 0 "right: 1 store" \
	--user --socket "$socket" --check-config
printf '%s\n' "lock = auto" >"$dir/home/dsaiod/dsaiod.conf.d/t.conf"
check "a user's own daemon reads the files beside its configuration" 2 "dsaiod.conf.d/t.conf:1: lock" \
	--user --socket "$socket"
XDG_CONFIG_HOME=$dir/none

refuse "no section" "conf:1" "pool_size = 1M"
refuse "an unknown section" "conf;tables" "[tables]" "x = 1"
refuse "an unknown key" "conf:2;colour" "[daemon]" "colour = red"
refuse "an unknown key of a store" "conf:3;colour" "[store t]" "path = $dir/store" "colour = red"
refuse "a size that is none" "conf:2;pool_size;much" "[daemon]" "pool_size = much"
refuse "a negative size" "conf:2;pool_size;-1" "[daemon]" "pool_size = -1"
refuse "a size that is too large" "conf:2;pool_size" "[daemon]" "pool_size = 99999999999999999999G"
refuse "lock" "conf:2;lock;maybe;auto" "[daemon]" "lock = maybe"
refuse "block_size below its limit" "conf:3;block_size;512" "[store t]" "path = $dir/store" \
	"block_size = 256"
refuse "block_size above its limit" "conf:3;block_size;64 MiB" "[store t]" "path = $dir/store" \
	"block_size = 65M"
refuse "block_size between steps" "block_size;5000;512" "[store t]" "path = $dir/store" \
	"block_size = 5000"
refuse "queue_depth 0" "conf:3;queue_depth" "[store t]" "path = $dir/store" "queue_depth = 0"
refuse "queue_depth above its limit" "conf:3;queue_depth;4096" "[store t]" "path = $dir/store" \
	"queue_depth = 4097"
refuse "intra_op_parallelism above its limit" "conf:3;intra_op_parallelism;64" "[store t]" \
	"path = $dir/store" "intra_op_parallelism = 65"
refuse "a boolean that is none" "conf:3;single_submit;perhaps" "[store t]" "path = $dir/store" \
	"single_submit = perhaps"
refuse "a socket that cannot be made" "conf:3;socket = $dir/none/s.sock;$dir/none;No such file" \
	"[daemon]" "spin_usec = 0" "socket = $dir/none/s.sock"
refuse "two stores on one device" "conf:5;store u;same device;store t;remove one" \
	"[store t]" "path = $dir/store" "" "[store u]" "path = $dir"
refuse "libraries that are not there" \
	"conf:2;cuda_library = $dir/none: No such file;conf:3;cufile_library = $dir/no: No such file" \
	"[daemon]" "cuda_library = $dir/none" "cufile_library = $dir/no"
refuse "a library by a relative path" "conf:2;cuda_library;libcuda.so.1;absolute path" \
	"[daemon]" "cuda_library = libcuda.so.1"
printf '[daemon]\ncuda_library = %s\ncufile_library = %s\n' "$dir/conf" "$dir/conf" >"$dir/libraries"
check "--check-config of libraries that are there" 0 "right" --socket "$socket" --config "$dir/libraries" \
	--check-config
: >"$dir/empty"
export DSAIO_CUFILE_LIBRARY="$dir/none"
check "--check-config of a library that the environment names" 2 "DSAIO_CUFILE_LIBRARY $dir/none: No such file" \
	--user --socket "$socket" --config "$dir/empty" --check-config
unset DSAIO_CUFILE_LIBRARY
refuse "a store that is not there" "conf:2;$dir/none;No such file" "[store t]" "path = $dir/none"
refuse "a store without a path" "t;path" "[store t]" "block_size = 1M"

exit $failed
