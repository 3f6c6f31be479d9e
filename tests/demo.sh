#!/bin/bash
# The README's demonstration: a daemon of its own on a temporary directory, two processes that
# write, sync, read back and compare 400 MB of random tensors through it, and their speeds.
# Needs no root; leaves nothing behind.
#
#   BUILD=dir tests/demo.sh	what to run (build)
#   TMPDIR=dir			where the tensors go (/var/tmp, or what has room)
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
need_kb=$((450 * 1000))

fail() {
	echo "demo: $1" >&2
	exit 1
}

for program in dsaiod dsaioctl tests/demo; do
	[ -x "$BUILD/$program" ] || fail "$BUILD/$program is not built: run make demo"
done

parent=${TMPDIR:-/var/tmp}
[ -w "$parent" ] || fail "$parent: cannot write there: set TMPDIR to a directory with room for 450 MB"
free_kb=$(df -k --output=avail "$parent" | tail -n 1)
[ "${free_kb:-0}" -ge $need_kb ] ||
	fail "$parent: too little room for 450 MB: set TMPDIR to a directory that has it"
dir=$(mktemp -d "$parent/dsaio-demo.XXXXXX") || exit 1

daemon=
clean_up() {
	trap '' INT TERM
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null
		wait "$daemon" 2>/dev/null
	fi
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$dir/store" && mkfifo "$dir/log" || exit 1
echo "starting a daemon of our own: $BUILD/dsaiod --store demo=$dir/store"
"$BUILD/dsaiod" --config /dev/null --socket "$dir/s.sock" --store "demo=$dir/store" 2>"$dir/log" </dev/null &
daemon=$!

# Waits for the line that says that it serves, then reads on in the background.
exec 3<"$dir/log"
is_ready=
while IFS= read -r line <&3; do
	case $line in *ready:*) is_ready=yes; break ;; esac
	echo "  $line"
done
[ -n "$is_ready" ] || fail "the daemon did not start"
cat <&3 >"$dir/daemon.log" &
exec 3<&-

echo "two processes write and re-read 400 MB of random tensors:"
if ! DSAIO_SOCKET=$dir/s.sock "$BUILD/tests/demo" "$dir/store"; then
	sed 's/^/  /' "$dir/daemon.log" >&2
	fail "failed; see above"
fi
echo
echo "what the daemon counted (dsaioctl stores):"
echo
"$BUILD/dsaioctl" stores --socket "$dir/s.sock" | sed 's/^./  &/'
