#!/bin/bash
# dsaioctl cat and put: bytes through pipes, and what happens where one end gives up.
. "$(dirname "$0")/ctl_common.sh"

# pipes FILE COMMAND...: the command's output, through a pipe, is the file.
piped_is() {
	local file=$1 rc
	shift
	"$@" 2>"$dir/err" </dev/null | cat >"$dir/piped"
	rc=${PIPESTATUS[0]}
	[ "$rc" = 0 ] || { why="exit status $rc of: $*: $(cat "$dir/err")"; return 1; }
	[ ! -s "$dir/err" ] || { why="$* said: $(cat "$dir/err")"; return 1; }
	same "$file" "$dir/piped"
}

# put_from FILE TARGET [OPTION]...: through a pipe.
put_from() {
	local rc
	cat "$1" | "$ctl" put "$2" "${@:3}" >"$dir/out" 2>"$dir/err"
	rc=$?
	[ $rc = 0 ] || { why="exit status $rc of put $2 ${*:3}: $(cat "$dir/err")"; return 1; }
	[ ! -s "$dir/err" ] || { why="put said: $(cat "$dir/err")"; return 1; }
}

sizes_of_all_kinds_go_round_through_pipes() {
	local size
	for size in 0 1 511 512 513 4095 4096 4097 262144 1048575 1048577 8388608 8388609 33554433 50000001; do
		random_file "$dir/src" "$size"
		rm -f "$store/f"
		put_from "$dir/src" "$store/f" && same "$dir/src" "$store/f" &&
			piped_is "$dir/src" "$ctl" cat "$store/f" || return 1
	done
}

cat_and_put_in_one_pipe() {
	random_file "$store/a" 30000001
	"$ctl" cat "$store/a" | "$ctl" put "$store/b" >"$dir/out" 2>"$dir/err"
	why="exit statuses ${PIPESTATUS[*]}: $(cat "$dir/err")"
	[[ $why = "exit statuses 0 0"* ]] && same "$store/a" "$store/b"
}

files_follow_one_another() {
	random_file "$store/a" 5000
	: >"$store/empty"
	random_file "$store/b" 9000001
	cat "$store/a" "$store/empty" "$store/b" "$store/a" >"$dir/all"
	piped_is "$dir/all" "$ctl" cat "$store/a" "$store/empty" "$store/b" "$store/a"
}

ranges_are_cut_at_any_byte() {
	local size=20000003 off len
	random_file "$store/a" $size
	while read -r off len; do
		tail -c +$((off + 1)) "$store/a" | head -c "$len" >"$dir/want"
		piped_is "$dir/want" "$ctl" cat --offset "$off" --length "$len" "$store/a" || return 1
	done <<-END
		0 0
		0 1
		1 1
		4095 2
		4096 4096
		13 8388608
		8388607 2
		4097 15000000
		$((size - 1)) 1
		$((size - 1)) 100
		$size 1
		30000000 5
	END
	tail -c +14 "$store/a" >"$dir/want"
	piped_is "$dir/want" "$ctl" cat --offset 13 "$store/a"
}

what_can_not_be_read_is_reported_and_the_rest_is_written() {
	random_file "$store/a" 5000
	expect 1 "$ctl" cat "$store/none" "$store/a" && says "$dir/err" "dsaioctl: cat: $store/none: No such file" &&
		same "$store/a" "$dir/out" && expect 1 "$ctl" cat "$store" && says "$dir/err" "is a directory" || return 1
	rm -f "$store/pipe"
	mkfifo "$store/pipe"
	expect 1 "$ctl" cat "$store/pipe" && says "$dir/err" "no regular file" &&
		expect 1 "$ctl" cat /proc/cpuinfo && says "$dir/err" "use cat(1)" &&
		expect 2 "$ctl" cat && expect 2 "$ctl" cat --json "$store/a" && expect 2 "$ctl" cat "" &&
		expect 2 "$ctl" cat --offset x "$store/a" && says "$dir/err" "is no number"
}

a_file_of_another_user_is_refused() {
	as_nobody || return 2
	random_file "$store/secret" 5000
	chmod 600 "$store/secret"
	expect 1 "${nobody[@]}" "$ctl" cat "$store/secret" && says "$dir/err" "$store/secret: Permission denied" || return 1
	[ ! -s "$dir/out" ] || { why="bytes of it came"; return 1; }
	expect 1 "${nobody[@]}" "$ctl" put "$store/secret" && says "$dir/err" "Permission denied" &&
		expect 1 "${nobody[@]}" "$ctl" put "$store/new" && says "$dir/err" "$store/new: Permission denied"
}

a_full_output_ends_with_one_error() {
	random_file "$store/a" 20000000
	"$ctl" cat "$store/a" "$store/a" >/dev/full 2>"$dir/err"
	why="exit status $?: $(cat "$dir/err")"
	[[ $why = "exit status 1:"* ]] && says "$dir/err" "standard output: write at byte 0: No space left" || return 1
	why="not one line: $(cat "$dir/err")"
	[ "$(wc -l <"$dir/err")" = 1 ]
}

a_closed_output_is_an_error() {
	random_file "$store/a" 5000
	cp "$store/a" "$store/before"
	"$ctl" cat "$store/a" >&- 2>"$dir/err"
	why="exit status $?: $(cat "$dir/err")"
	[[ $why = "exit status 1:"* ]] && says "$dir/err" "standard output" || return 1
	"$ctl" put "$store/a" <&- >"$dir/out" 2>"$dir/err"
	why="exit status $?: $(cat "$dir/err")"
	[[ $why = "exit status 1:"* ]] && says "$dir/err" "standard input" "nothing was copied" && same "$store/before" "$store/a"
}

a_reader_that_goes_away_ends_it_quietly() {
	random_file "$store/a" 50000000
	local rc how
	for how in default ignore; do
		env "--$how-signal=PIPE" "$ctl" cat "$store/a" 2>"$dir/err" | head -c 10 >"$dir/out"
		rc=${PIPESTATUS[0]}
		why="SIGPIPE $how: exit status $rc: $(cat "$dir/err")"
		[ ! -s "$dir/err" ] || return 1
		case $how in default) [ "$rc" = 141 ] ;; ignore) [ "$rc" = 1 ] ;; esac || return 1
		why="$(wc -c <"$dir/out") bytes instead of 10"
		[ "$(wc -c <"$dir/out")" = 10 ] || return 1
	done
}

output_that_is_the_file_itself_is_refused() {
	random_file "$store/a" 5000
	cp "$store/a" "$store/before"
	"$ctl" cat "$store/a" >>"$store/a" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "is also standard output" && same "$store/before" "$store/a" || return 1
	"$ctl" put "$store/a" <"$store/a" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "are the same file" && same "$store/before" "$store/a"
}

# The reader holds the pipe until the file has changed: at most the pieces read ahead came before.
changes_while_reading() {
	local size=$1 change=$2 fd pid rc
	random_file "$store/a" "$size"
	rm -f "$dir/fifo"
	mkfifo "$dir/fifo"
	"$ctl" cat "$store/a" >"$dir/fifo" 2>"$dir/err" &
	pid=$!
	exec {fd}<"$dir/fifo"
	head -c 1 <&"$fd" >"$dir/piped" # it writes: the pieces read ahead are 32 MiB at most
	eval "$change"
	cat <&"$fd" >>"$dir/piped"
	exec {fd}<&-
	wait "$pid"
	rc=$?
	why="exit status $rc, $(wc -c <"$dir/piped") bytes: $(cat "$dir/err")"
	return "$rc"
}

a_file_that_grows_is_read_to_its_end() {
	random_file "$dir/more" 3000001
	changes_while_reading 80000001 'cat "$dir/more" >>"$store/a"' || return 1
	same "$store/a" "$dir/piped"
}

a_file_that_becomes_shorter_is_an_error() {
	changes_while_reading 80000001 'truncate -s 70000001 "$store/a"' && return 1
	says "$dir/err" "became shorter while it was copied: ends at byte 70000001 of 80000001" || return 1
	head -c "$(wc -c <"$dir/piped")" "$store/a" | cmp -s - "$dir/piped" || { why="other bytes"; return 1; }
}

put_replaces_a_file() {
	local umask_before
	random_file "$dir/src" 1000001
	random_file "$store/b" 9000000
	put_from "$dir/src" "$store/b" && same "$dir/src" "$store/b" || return 1
	ln -f "$store/b" "$store/b.link"
	"$ctl" put "$store/b" <"$dir/src" >"$dir/out" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "has 2 names (hard links)" "cp(1) or dd(1)" || return 1
	rm -f "$store/b.link" "$store/new"
	umask_before=$(umask)
	umask 027
	put_from "$dir/src" "$store/new" --sync
	local rc=$?
	umask "$umask_before"
	[ $rc = 0 ] && says "$dir/out" "$store/new: " "synced" || return 1
	why="mode $(stat -c %a "$store/new")"
	[ "$(stat -c %a "$store/new")" = 640 ]
}

put_tells_json() {
	random_file "$dir/src" 70000
	put_from "$dir/src" "$store/b" --json --sync && says "$dir/out" '"bytes": 70000' '"is_synced": true'
}

an_announced_size_must_come() {
	random_file "$dir/src" 1000001
	put_from "$dir/src" "$store/b" --size 1000001 && same "$dir/src" "$store/b" || return 1
	rm -f "$store/b"
	"$ctl" put --size 1000002 "$store/b" <"$dir/src" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "ended after 1000001 of the 1000002" "was not made" &&
		no_temporary "$store" && { why="a file was left"; [ ! -e "$store/b" ]; } || return 1
	"$ctl" put --size 1000000 "$store/b" <"$dir/src" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "has more than the 1000000"
}

put_refuses_what_is_no_file() {
	expect 1 "$ctl" put "$store" && says "$dir/err" "is a directory" &&
		expect 1 "$ctl" put /dev/full && says "$dir/err" "no regular file" &&
		expect 1 "$ctl" put "$store/none/f" && says "$dir/err" "No such file" &&
		expect 2 "$ctl" put && says "$dir/err" "name one file" && expect 2 "$ctl" put a b &&
		expect 3 "$ctl" put --socket "$dir/none.sock" "$store/fresh" || return 1
	why="an empty file was left"
	[ ! -e "$store/fresh" ] || return 1
	mkdir -p "$store/d"
	"$ctl" put "$store/fresh" <"$store/d" 2>"$dir/err"
	why="exit status $?"
	[ "$why" = "exit status 1" ] && says "$dir/err" "standard input: read at byte 0: Is a directory" || return 1
	why="an empty file was left"
	[ ! -e "$store/fresh" ]
}

a_full_disk_is_reported_and_leaves_nothing() {
	[ "$(id -u)" = 0 ] || return 2 # mounts a small file system
	local small=$dir/small rc
	mkdir "$small" && mount -t tmpfs -o size=16M none "$small" 2>/dev/null || return 2
	head -c 40000000 /dev/zero | "$ctl" put --private "$small/f" >"$dir/out" 2>"$dir/err"
	rc=${PIPESTATUS[1]}
	why="exit status $rc"
	# The chunk that fails may be the first one.
	if [ "$rc" = 1 ] && says "$dir/err" "No space left on device" "to $small/f failed" &&
		{ says "$dir/err" "was not made" || says "$dir/err" "nothing was copied"; } &&
		says_not "$dir/err" "were copied" && says_not "$dir/err" "size is now" && no_temporary "$small" &&
		[ ! -e "$small/f" ]; then
		head -c 40000000 /dev/zero | "$ctl" put --private --size 40000000 "$small/f" >"$dir/out" 2>"$dir/err"
		rc=${PIPESTATUS[1]}
		why="exit status $rc"
		[ "$rc" = 1 ] && says "$dir/err" "cannot reserve 38.1 MiB: No space left" "nothing was copied" &&
			{ why="an empty file was left"; [ ! -e "$small/f" ]; }
	else
		false
	fi
	rc=$?
	umount "$small"
	return "$rc"
}

# It once reported the size of the temporary file that it had removed.
a_terminated_put_leaves_the_file_as_it_was() {
	local rc how
	random_file "$dir/before" 5000001
	for how in new old; do
		rm -f "$store/b"
		[ $how = new ] || cp "$dir/before" "$store/b"
		begin_put "$ctl" put "$store/b"
		kill -TERM "$pid"
		wait "$pid"
		rc=$?
		exec {feed}>&-
		why="$how: exit status $rc: $(cat "$dir/err")"
		[ "$rc" = 143 ] && says "$dir/err" "interrupted" && says_not "$dir/err" "were copied" && no_temporary "$store" || return 1
		case $how in
		new) says "$dir/err" "b was not made" && { why="a file was left"; [ ! -e "$store/b" ]; } ;;
		old) says "$dir/err" "b is as it was" && same "$dir/before" "$store/b" ;;
		esac || return 1
	done
}

# Its temporary file stayed forever.
a_killed_put_leaves_nothing_that_the_next_one_does_not_remove() {
	random_file "$dir/before" 5000001
	cp "$dir/before" "$store/b"
	begin_put "$ctl" put "$store/b"
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	exec {feed}>&-
	put_from "$dir/before" "$store/new" && no_temporary "$store" && same "$dir/before" "$store/b"
}

# bash leaves a loop only if the command itself died of SIGINT.
ctrl_c_ends_a_loop_around_put() {
	: >"$dir/rounds"
	set -m # a process group of its own, as on a terminal
	begin_put env --default-signal=INT bash -c 'for i in 1 2 3; do echo "$i" >>"$1/rounds"; "$2" put "$3/dst$i"; done' - \
		"$dir" "$ctl" "$store"
	set +m
	kill -INT -- "-$pid"
	exec {feed}>&-
	wait "$pid"
	why="rounds: $(tr '\n' ' ' <"$dir/rounds"): $(cat "$dir/err")"
	[ "$(cat "$dir/rounds")" = 1 ] && no_temporary "$store"
}

# It once took up to 30 s: the library waited for the daemon.
one_ctrl_c_is_enough_while_the_daemon_is_stopped() {
	local how began rc
	for how in writing reading connecting; do
		rm -f "$store/dst"
		if [ $how = writing ]; then
			begin_put env --default-signal=INT "$ctl" put "$store/dst"
			kill -STOP "$daemon"
			head -c 4500000 /dev/zero >&"$feed" # it takes these, too, and begins a write
			exec {feed}>&-
		elif [ $how = reading ]; then # it has no op open
			begin_put env --default-signal=INT DSAIO_RECONNECT=0 "$ctl" put "$store/dst"
			sleep 0.3
			kill -STOP "$daemon"
		else
			kill -STOP "$daemon"
			env --default-signal=INT "$ctl" put "$store/dst" >"$dir/out" 2>"$dir/err" </dev/null &
			pid=$!
			await_socket "$pid"
		fi
		began=$SECONDS
		kill -INT "$pid"
		wait "$pid"
		rc=$?
		[ $how != reading ] || exec {feed}>&-
		kill -CONT "$daemon"
		why="$how: exit status $rc after $((SECONDS - began)) s: $(cat "$dir/err")"
		[ "$rc" = 130 ] && [ $((SECONDS - began)) -lt 20 ] && no_temporary "$store" &&
			[ ! -e "$store/dst" ] || return 1
	done
}

# The daemon has the temporary file open for a while, as the test has here.
a_failed_put_releases_its_room_at_once() {
	local pid in held blocks
	rm -f "$dir/fifo" "$store/new"
	mkfifo "$dir/fifo"
	"$ctl" put --size 20M "$store/new" <"$dir/fifo" >"$dir/out" 2>"$dir/err" &
	pid=$!
	exec {in}>"$dir/fifo"
	until exec {held}<"$(new_file "$pid" "$store")"; do
		kill -0 "$pid" || break
		sleep 0.01
	done 2>/dev/null
	exec {in}>&-
	wait "$pid"
	why="exit status $?: $(cat "$dir/err")"
	blocks=$(stat -L -c %b "/proc/self/fd/$held")
	exec {held}<&-
	says "$dir/err" "ended after 0 of the 20971520 bytes" "nothing was copied" || return 1
	why="$blocks blocks of the removed file are still in use"
	[ "$blocks" = 0 ] && no_temporary "$store"
}

# A bar comes after two seconds: the reader takes that long.
a_terminal_that_gets_no_output_sees_a_bar() {
	why="needs script(1)"
	command -v script >/dev/null || return 2
	random_file "$store/a" 50000000
	why=
	SHELL=/bin/bash script -qec "'$ctl' cat '$store/a' | { head -c 1000000; read -rt 2.3 <> <(:); cat; } >'$dir/piped'" \
		"$dir/seen" >/dev/null </dev/null
	same "$store/a" "$dir/piped" && says "$dir/seen" "reading [" "of 47.7 MiB"
}

without_a_daemon_a_private_one_serves() {
	random_file "$store/a" 100001
	DSAIO_SOCKET=$dir/none.sock expect 3 "$ctl" cat "$store/a" && says "$dir/err" "--private" || return 1
	[ ! -s "$dir/out" ] && piped_is "$store/a" "$ctl" cat --private "$store/a"
}

a_put_goes_on_with_the_next_daemon() {
	local rc
	random_file "$store/a" 20000001
	begin_put "$ctl" put "$store/f" # 40000000 zeros
	cat "$store/a" >&"$feed" &
	exec {feed}>&- # or the next daemon has it, too
	stop_daemon
	start_daemon
	wait "$pid"
	rc=$?
	why="exit status $rc: $(cat "$dir/err")"
	[ "$rc" = 0 ] && { head -c 40000000 /dev/zero; cat "$store/a"; } | cmp -s - "$store/f"
}

one_ctrl_c_is_enough_while_there_is_no_daemon() {
	local rc began
	begin_put env --default-signal=INT "$ctl" put "$store/g"
	stop_daemon
	exec {feed}>&- # a write of what it has begins
	began=$SECONDS
	sleep 0.5
	kill -INT "$pid"
	wait "$pid"
	rc=$?
	start_daemon
	why="exit status $rc after $((SECONDS - began)) s: $(cat "$dir/err")"
	[ "$rc" = 130 ] && [ $((SECONDS - began)) -lt 20 ] && says "$dir/err" "interrupted" && no_temporary "$store" &&
		[ ! -e "$store/g" ]
}

# It was "start it again", of a daemon that may run again by now.
after_a_restart_the_command_is_to_be_run_again() {
	local rc
	begin_put env DSAIO_RECONNECT=0 "$ctl" put "$store/f"
	stop_daemon
	start_daemon
	head -c 40000000 /dev/zero >&"$feed"
	exec {feed}>&-
	wait "$pid"
	rc=$?
	why="exit status $rc"
	[ "$rc" = 1 ] && says "$dir/err" "run the command again" && says_not "$dir/err" "start it" &&
		says_not "$dir/err" "connect again"
}

# The advice was --private again.
private_does_not_advise_itself() {
	expect 1 "$ctl" cat --private /proc/cpuinfo && says "$dir/err" "/proc" && says_not "$dir/err" "or --private"
}

start_daemon
for t in sizes_of_all_kinds_go_round_through_pipes cat_and_put_in_one_pipe files_follow_one_another \
	ranges_are_cut_at_any_byte what_can_not_be_read_is_reported_and_the_rest_is_written \
	a_file_of_another_user_is_refused a_full_output_ends_with_one_error a_closed_output_is_an_error \
	a_reader_that_goes_away_ends_it_quietly output_that_is_the_file_itself_is_refused \
	a_file_that_grows_is_read_to_its_end a_file_that_becomes_shorter_is_an_error \
	put_replaces_a_file put_tells_json an_announced_size_must_come put_refuses_what_is_no_file \
	a_full_disk_is_reported_and_leaves_nothing \
	a_terminated_put_leaves_the_file_as_it_was \
	a_killed_put_leaves_nothing_that_the_next_one_does_not_remove ctrl_c_ends_a_loop_around_put \
	one_ctrl_c_is_enough_while_the_daemon_is_stopped \
	a_failed_put_releases_its_room_at_once \
	a_terminal_that_gets_no_output_sees_a_bar without_a_daemon_a_private_one_serves \
	private_does_not_advise_itself a_put_goes_on_with_the_next_daemon one_ctrl_c_is_enough_while_there_is_no_daemon \
	after_a_restart_the_command_is_to_be_run_again; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
