#!/bin/bash
# dsaioctl cp: every byte arrives, whatever size, and nothing else changes.
. "$(dirname "$0")/ctl_common.sh"

sizes_of_all_kinds_arrive_byte_by_byte() {
	local size
	for size in 0 1 511 512 513 4095 4096 4097 262144 1048575 1048577 8388608 8388609 50000001; do
		random_file "$store/src" "$size"
		rm -f "$store/dst"
		expect 0 "$ctl" cp "$store/src" "$store/dst" && same "$store/src" "$store/dst" || return 1
		says "$dir/out" "synced" || return 1
	done
}

verify_reads_both_again() {
	random_file "$store/src" 20000003
	expect 0 "$ctl" cp --verify "$store/src" "$store/dst" && says "$dir/out" "no difference" &&
		same "$store/src" "$store/dst" && expect 0 "$ctl" cp --verify --json "$store/src" "$store/dst" &&
		says "$dir/out" '"bytes": 20000003' '"is_verified": true' '"is_written_by_daemon": true'
}

a_directory_gets_the_file_of_the_same_name() {
	mkdir -p "$store/into"
	random_file "$store/src" 5000
	expect 0 "$ctl" cp "$store/src" "$store/into/" && same "$store/src" "$store/into/src"
}

the_mode_goes_along() {
	local umask_before
	umask_before=$(umask)
	umask 022
	random_file "$store/src" 100
	chmod 440 "$store/src"
	rm -f "$store/dst"
	expect 0 "$ctl" cp "$store/src" "$store/dst" || return 1
	umask "$umask_before"
	chmod 644 "$store/src"
	why="mode $(stat -c %a "$store/dst")"
	[ "$(stat -c %a "$store/dst")" = 440 ] && rm -f "$store/dst"
}

# They were filled: a copy took as much room as the file had bytes.
holes_stay_holes() {
	local blocks where
	for where in "conv=notrunc seek=5" "seek=0" "seek=9"; do # in the middle, at the end, at the start
		rm -f "$store/src" "$store/dst"
		truncate -s 64M "$store/src"
		# shellcheck disable=SC2086 # two operands
		dd if=/dev/urandom of="$store/src" bs=1048573 count=2 conv=notrunc $where status=none
		expect 0 "$ctl" cp --verify "$store/src" "$store/dst" && same "$store/src" "$store/dst" || return 1
		blocks=$(stat -c %b "$store/src")
		why="$(stat -c %b "$store/dst") blocks instead of $blocks"
		[ "$(stat -c %b "$store/dst")" -le $((blocks + 64)) ] || return 1
	done
	rm -f "$store/src" "$store/dst"
	truncate -s 10000001 "$store/src"
	expect 0 "$ctl" cp "$store/src" "$store/dst" && says "$dir/out" "9.54 MiB (0 B of data)" ", 0 B/s" &&
		same "$store/src" "$store/dst"
}

# It did for each chunk, which made the copy of a large file from /dev/shm take several times as long.
a_copy_looks_once_for_the_next_hole() {
	local n
	why="strace is not installed, or cannot trace here"
	strace -o "$dir/trace" true 2>/dev/null || return 2
	random_file "$store/src" 40000000
	rm -f "$store/dst"
	# The leak sanitizer cannot work while strace(1) traces.
	expect 0 env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0" strace -f -e trace=lseek -o "$dir/trace" \
		"$ctl" cp "$store/src" "$store/dst" || return 1
	n=$(grep -c SEEK_HOLE "$dir/trace")
	why="$n times"
	[ "$n" -le 2 ] # to reserve the room, and to copy
}

what_can_not_be_copied_is_refused() {
	random_file "$store/src" 5000
	ln -f "$store/src" "$store/link"
	expect 1 "$ctl" cp "$store/src" "$store/link" && says "$dir/err" "are the same file" || return 1
	[ "$(stat -c %s "$store/src")" = 5000 ] || { why="the source was changed"; return 1; }
	expect 1 "$ctl" cp "$store" "$store/dst" && says "$dir/err" "is a directory" &&
		expect 1 "$ctl" cp "$store/none" "$store/dst2" && says "$dir/err" "No such file" || return 1
	[ ! -e "$store/dst2" ] || { why="a destination was made for nothing"; return 1; }
	mkfifo "$store/pipe"
	expect 1 "$ctl" cp "$store/pipe" "$store/dst2" && says "$dir/err" "no regular file" &&
		expect 1 "$ctl" cp "$store/src" /dev/null && says "$dir/err" "no regular file"
}

a_missing_destination_is_reported_as_what_it_is() {
	random_file "$store/src" 5000
	mkdir -p "$store/d ir"
	ln -sfn "$store/nothing" "$store/dangling"
	ln -sfn "$store/loop" "$store/loop"
	expect 1 "$ctl" cp "$store/src" "$store/dangling" &&
		says "$dir/err" "$store/dangling: is a symbolic link to nothing" &&
		expect 1 "$ctl" cp "$store/src" "$store/loop" && says "$dir/err" "Too many levels" &&
		expect 1 "$ctl" cp "$store/src" "$store/newname/" &&
		says "$dir/err" "$store/newname/: no such directory: make it first" &&
		expect 1 "$ctl" cp "$store/src" "$store/d ir/new/" &&
		says "$dir/err" "$store/d ir/new/: no such directory: make it first" || return 1
	why="something was made"
	[ ! -e "$store/nothing" ] && [ ! -e "$store/newname" ] && [ ! -e "$store/d ir/new" ]
}

# closed STATUS REDIRECTION...: a copy with these descriptors closed is the source and nothing else.
closed() {
	local status=$1 rc
	shift
	rm -f "$store/dst"
	bash -c "exec \"\$0\" cp --verify \"\$1\" \"\$2\" $*" "$ctl" "$store/src" "$store/dst" \
		>"$dir/out" 2>"$dir/err" </dev/null
	rc=$?
	[ $rc = "$status" ] || { why="exit status $rc instead of $status with $*: $(cat "$dir/err")"; return 1; }
	same "$store/src" "$store/dst"
}

# The destination, or the daemon's socket, was standard output then.
closed_descriptors_do_not_let_output_into_files() {
	random_file "$store/src" 300001
	closed 1 "<&- >&-" && says "$dir/err" "standard output" && closed 1 "<&- >&- 2>&-" &&
		closed 1 ">&-" && closed 0 "<&-" && closed 0 "2>&-" && closed 0 "<&- 2>&-"
}

status_with_a_closed_output_fails() {
	local options
	for options in "" --json; do
		# shellcheck disable=SC2086 # may be none
		"$ctl" status $options >&- 2>"$dir/err"
		why="exit status $? with a closed output: $(cat "$dir/err")"
		[[ $why = "exit status 1 "* ]] && says "$dir/err" "standard output" || return 1
	done
	expect 0 "$ctl" status
}

a_failed_start_leaves_no_file() {
	random_file "$store/src" 5000
	expect 3 "$ctl" cp --socket "$dir/none.sock" "$store/src" "$store/fresh" || return 1
	why="an empty file was left"
	[ ! -e "$store/fresh" ]
}

# /dev/shm is another file system: on no store of this daemon.
one_side_may_lie_on_no_store() {
	local shm
	shm=$(mktemp -d /dev/shm/dsaio-ctl-XXXXXX) || return 1
	random_file "$shm/src" 3000001
	expect 0 "$ctl" cp --verify "$shm/src" "$store/dst" && says "$dir/err" "read without the daemon" &&
		same "$shm/src" "$store/dst" && expect 0 "$ctl" cp "$store/dst" "$shm/back" &&
		says "$dir/err" "written without the daemon" && same "$shm/src" "$shm/back" &&
		expect 1 "$ctl" cp "$shm/src" "$shm/other" && says "$dir/err" "neither file"
	local rc=$?
	rm -rf "$shm"
	return "$rc"
}

# Its size is 0, but not its content.
a_file_of_proc_is_refused() {
	rm -f "$store/dst"
	expect 1 "$ctl" cp /proc/cpuinfo "$store/dst" && says "$dir/err" "use cp(1)" || return 1
	why="an empty file was left"
	[ ! -e "$store/dst" ] || return 1
	random_file "$store/dst" 5000
	cp "$store/dst" "$store/dst.before"
	expect 1 "$ctl" cp /proc/cpuinfo "$store/dst" && says "$dir/err" "nothing was copied" || return 1
	same "$store/dst.before" "$store/dst"
}

a_full_disk_changes_nothing() {
	[ "$(id -u)" = 0 ] || return 2 # mounts a small file system
	local small=$dir/small rc
	mkdir "$small" && truncate -s 32M "$dir/image" && mkfs.ext4 -q "$dir/image" &&
		mount -o loop "$dir/image" "$small" 2>/dev/null || return 2
	random_file "$store/src" 60000000
	expect 1 "$ctl" cp --private "$store/src" "$small/dst" &&
		says "$dir/err" "cannot reserve 57.2 MiB: No space left on device" "nothing was copied" &&
		no_temporary "$small" && { why="a file was left"; [ ! -e "$small/dst" ]; } && full_disk_keeps_the_old "$small"
	rc=$?
	umount "$small"
	return "$rc"
}

# Room for the old file and half of the new one.
full_disk_keeps_the_old() {
	local small=$1 n_free
	random_file "$store/old" 10000001
	cp "$store/old" "$small/dst"
	expect 1 "$ctl" cp --private "$store/src" "$small/dst" &&
		says "$dir/err" "beside the old file: No space left on device" "cp(1) or dd(1)" "nothing was copied" &&
		same "$store/old" "$small/dst" && no_temporary "$small" || return 1
	why="what was taken was not released"
	n_free=$(stat -f -c '%a * %S' "$small")
	[ $((n_free)) -gt 10000000 ] || return 1
	head -c 60000000 /dev/zero | "$ctl" put --private "$small/dst" >"$dir/out" 2>"$dir/err"
	why="exit status ${PIPESTATUS[1]}: $(cat "$dir/err")"
	[[ $why = "exit status 1:"* ]] && says "$dir/err" "No space left" "dst is as it was" &&
		same "$store/old" "$small/dst" && no_temporary "$small"
}

an_old_file_keeps_its_mode_and_owner() {
	random_file "$store/src" 5000
	random_file "$store/dst" 9000
	chmod 640 "$store/dst"
	[ "$(id -u)" != 0 ] || chown 65534:65533 "$store/dst"
	local before
	before=$(stat -c '%a %u %g' "$store/dst")
	expect 0 "$ctl" cp "$store/src" "$store/dst" && same "$store/src" "$store/dst" || return 1
	why="mode and owner $(stat -c '%a %u %g' "$store/dst") instead of $before"
	[ "$(stat -c '%a %u %g' "$store/dst")" = "$before" ] || return 1
	random_file "$dir/src" 7000
	"$ctl" put "$store/dst" <"$dir/src" >"$dir/out" 2>"$dir/err" && same "$dir/src" "$store/dst" || return 1
	[ "$(stat -c '%a %u %g' "$store/dst")" = "$before" ] && rm -f "$store/dst"
}

# A file of a group that the user is not in: its group's rights are not for another group.
an_owner_that_cannot_be_kept_is_reported() {
	as_nobody || return 2
	random_file "$store/src" 5000
	mkdir -p "$store/open"
	random_file "$store/open/dst" 9000
	chmod 777 "$store/open"
	chmod 676 "$store/open/dst"
	chmod 644 "$store/src"
	expect 0 "${nobody[@]}" "$ctl" cp "$store/src" "$store/open/dst" && same "$store/src" "$store/open/dst" &&
		says "$dir/err" "gets another owner" || return 1
	why="mode $(stat -c %a "$store/open/dst")"
	[ "$(stat -c '%a %u' "$store/open/dst")" = "666 65534" ] && rm -rf "$store/open"
}

a_link_leads_to_the_new_file() {
	random_file "$store/src" 5000
	random_file "$store/target" 9000
	ln -sfn target "$store/soft"
	expect 0 "$ctl" cp "$store/src" "$store/soft" && same "$store/src" "$store/target" || return 1
	why="the link is none any more"
	[ -L "$store/soft" ] || return 1
	random_file "$store/target" 9000
	ln -f "$store/target" "$store/hard"
	cp "$store/target" "$dir/before"
	expect 1 "$ctl" cp "$store/src" "$store/hard" && says "$dir/err" "has 2 names (hard links)" "cp(1) or dd(1)" &&
		same "$dir/before" "$store/target"
}

a_directory_that_takes_no_file_is_reported_with_cp_and_dd() {
	as_nobody || return 2
	random_file "$store/src" 5000
	chmod 644 "$store/src"
	mkdir -p "$store/closed"
	random_file "$store/closed/dst" 9000
	chmod 666 "$store/closed/dst"
	cp "$store/closed/dst" "$dir/before"
	expect 1 "${nobody[@]}" "$ctl" cp "$store/src" "$store/closed/dst" &&
		says "$dir/err" "closed/dst: cannot be replaced in its directory: Permission denied" "cp(1) or dd(1)" &&
		same "$dir/before" "$store/closed/dst" || return 1
	chmod 1777 "$store/closed" # as /tmp: another's file
	expect 1 "${nobody[@]}" "$ctl" cp "$store/src" "$store/closed/dst" && says "$dir/err" "cp(1) or dd(1)" &&
		same "$dir/before" "$store/closed/dst" && no_temporary "$store/closed" || return 1
	chown 65534 "$store/closed/dst" # planted there, so that root would write for them
	expect 1 "$ctl" cp "$store/src" "$store/closed/dst" && says "$dir/err" "has the sticky bit" "cp(1) or dd(1)" &&
		same "$dir/before" "$store/closed/dst" || return 1
	chown 0 "$store/closed/dst"
	expect 0 "$ctl" cp "$store/src" "$store/closed/dst" && same "$store/src" "$store/closed/dst" || return 1
	chmod 444 "$store/closed/dst"
	chmod 777 "$store/closed"
	expect 1 "${nobody[@]}" "$ctl" cp "$store/src" "$store/closed/dst" && says "$dir/err" "dst: Permission denied"
}

# A device is no file to replace.
a_block_device_is_written_in_place() {
	local device rc
	[ "$(id -u)" = 0 ] || return 2
	# An image of its own: a test beside us that took a copy of our mounts has the other one mounted until it ends.
	truncate -s 16M "$dir/device"
	device=$(losetup -f --show "$dir/device" 2>/dev/null) || return 2
	a_device_is_written "$device"
	rc=$?
	losetup -d "$device"
	return "$rc"
}

# Its bytes, and not what the page cache has from before they were written direct.
device_has() {
	local seen
	seen=$(blockdev --flushbufs "$3" 2>&1 && cmp -n "$1" "$2" "$3" 2>&1) || why="$why: $seen" && [ "$seen" = "" ]
}

a_device_is_written() {
	random_file "$store/src" 3000001
	expect 0 "$ctl" cp --private --verify "$store/src" "$1" && says "$dir/out" "no difference" || return 1
	why="other bytes on the device"
	device_has 3000001 "$store/src" "$1" && [ -b "$1" ] || return 1
	truncate -s 17M "$store/large"
	expect 1 "$ctl" cp --private "$store/large" "$1" && says "$dir/err" "the device has 16 MiB" || return 1
	"$ctl" put --private --size 17M "$1" <"$store/large" >"$dir/out" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "the device has 16 MiB" || return 1
	why="a copy that was refused wrote to the device"
	device_has 3000001 "$store/src" "$1" || return 1
	random_file "$store/src" 5000
	"$ctl" put --private --sync "$1" <"$store/src" >"$dir/out" 2>"$dir/err"
	why="exit status $?: $(cat "$dir/err")"
	[ "${why%%:*}" = "exit status 0" ] || return 1
	why="other bytes on the device after put"
	device_has 5000 "$store/src" "$1" || return 1
	head -c 17M /dev/zero | "$ctl" put --private "$1" >"$dir/out" 2>"$dir/err"
	why="exit status ${PIPESTATUS[1]}"
	[ "$why" = "exit status 1" ] && says "$dir/err" "16 MiB were written to $1"
}

# The new file has a temporary name while it replaces the old one, and kept that.
what_a_killed_copy_left_is_removed_by_the_next_one() {
	why="strace is not installed, or cannot trace here"
	strace -o "$dir/trace" true 2>/dev/null || return 2
	random_file "$store/src" 5000
	random_file "$store/dst" 6000
	cp "$store/dst" "$dir/before"
	strace -f -o "$dir/trace" -e inject=renameat,renameat2:signal=KILL "$ctl" cp "$store/src" "$store/dst" \
		>"$dir/out" 2>"$dir/err"
	why="exit status $?, and in the directory: $(ls -A "$store")"
	compgen -G "$store/.dsaio-*.new" >/dev/null && same "$dir/before" "$store/dst" || return 1
	expect 0 "$ctl" cp "$store/src" "$store/other" && no_temporary "$store"
}

printf '[daemon]\nauto_stores = no\n' >"$dir/dsaiod.conf"
start_daemon
for t in sizes_of_all_kinds_arrive_byte_by_byte \
	verify_reads_both_again a_directory_gets_the_file_of_the_same_name the_mode_goes_along \
	holes_stay_holes a_copy_looks_once_for_the_next_hole what_can_not_be_copied_is_refused \
	a_missing_destination_is_reported_as_what_it_is closed_descriptors_do_not_let_output_into_files \
	status_with_a_closed_output_fails a_failed_start_leaves_no_file \
	one_side_may_lie_on_no_store a_file_of_proc_is_refused a_full_disk_changes_nothing \
	an_old_file_keeps_its_mode_and_owner an_owner_that_cannot_be_kept_is_reported a_link_leads_to_the_new_file \
	a_directory_that_takes_no_file_is_reported_with_cp_and_dd a_block_device_is_written_in_place \
	what_a_killed_copy_left_is_removed_by_the_next_one; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
