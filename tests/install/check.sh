#!/bin/bash
# Installs below a home of its own, under a umask that takes all from others, as the README says, and
# builds and runs the README's example against that.  A line for each check, then N passed, N failed,
# N skipped.  It builds into a directory of its own, since the prefix is compiled in.
#
#   BUILD=dir tests/install/check.sh		(dir: build/install)
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build/install}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-install.XXXXXX") || exit 1
export HOME=$work XDG_RUNTIME_DIR=$work/run
unset LD_LIBRARY_PATH PKG_CONFIG_PATH DSAIO_SOCKET DSAIOD DSAIO_AUTOSTART XDG_CONFIG_HOME XDG_STATE_HOME
suite=install
. tests/checks.sh

daemon_pid() {
	cut -d ' ' -f 1 "$work/run/dsaiod/dsaiod.sock.lock" 2>/dev/null
}

clean_up() {
	local pid
	pid=$(daemon_pid)
	[ -z "$pid" ] || kill "$pid" 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT

# The README's indented line that starts so.
readme_line() {
	sed -n "s/^    \($1\)/\1/p" README.md | head -n 1
}

# The make in that line builds in our build folder.
make() {
	command make --no-print-directory -s -j"$(nproc)" BUILD="$BUILD" "$@"
}

# As a shell does it.
run_line() {
	[ -n "$1" ] || { echo "the README has no such line"; return 1; }
	echo "$1"
	eval "$1"
}

install_masked() (
	umask 077
	run_line "$install_line"
)

all_may_read() {
	[ -e "$work/.local/lib/pkgconfig/libdsaio-client.pc" ] && ! find "$work/.local" \( -type d ! -perm -go=rx -o -type f ! -perm -go=r \) | grep .
}

programs_may_run() {
	[ -e "$work/.local/sbin/dsaiod" ] && ! find "$work/.local/bin" "$work/.local/sbin" -type f ! -perm -go=rx | grep .
}

example_builds() {
	sed -n '/^```c$/,/^```$/p' README.md | sed -e '/^```/d' -e "s|/var/tmp/model.bin|$work/model.bin|" \
		>"$work/example.c" && cd "$work" && run_line "$example_line"
}

example_runs() {
	cd "$work" && ldd ./a.out | grep -F "$work/.local/lib/libdsaio-client.so" && ./a.out &&
		[ "$(readlink "/proc/$(daemon_pid)/exe")" = "$work/.local/sbin/dsaiod" ]
}

example_fails() {
	truncate -s 1M "$work/model.bin" && ! "$work/a.out" && "$work/a.out" 2>&1 | grep -F "the file ends after 1048576 bytes"
}

each_call_has_a_page() {
	MANPATH=$work/.local/share/man man dsaio_pread_path | grep -F "dsaio_pread_path"
}

# libdir is the loader's own: nothing to say.
no_rpath_for() {
	make install prefix="$1" DESTDIR="$work/dest" "${@:2}" &&
		find "$work/dest" -name libdsaio-client.pc | grep . &&
		! grep -r rpath "$work/dest" --include=libdsaio-client.pc && rm -rf "$work/dest"
}

# The second time there is a file of the user's in each directory that may have such.
uninstalled() {
	local dirs=("$work/.local/etc/dsaiod" "$work/.local/var/lib/dsaiod") dir
	make uninstall prefix="$work/.local" >"$work/said" && ! grep stays "$work/said" &&
		! find "$work/.local" -type f -o -name "dsaio*" | grep . || return 1
	mkdir -p "${dirs[@]}" && touch "${dirs[@]/%/\/mine}" && make uninstall prefix="$work/.local" >"$work/said" || return 1
	for dir in "${dirs[@]}"; do
		[ -e "$dir/mine" ] && grep -F "stays: $dir: rm -r $dir" "$work/said" || return 1
	done
}

mkdir -m 700 "$work/run"
head -c 16M /dev/urandom >"$work/model.bin"
install_line=$(readme_line "make install prefix=")
example_line=$(readme_line "cc example.c")
check "the README's make install, under umask 077" install_masked
check "everybody may read what was installed" all_may_read
check "everybody may run the programs" programs_may_run
check "each function of the library has a man page" each_call_has_a_page
check "dsaioctl runs" "$work/.local/bin/dsaioctl" --version
check "the README's example builds with the README's line" example_builds
check "the example runs, and starts the daemon beside its library" example_runs
check "the example fails after a short read" example_fails
check "uninstall leaves nothing" uninstalled
check "no rpath for /usr/local" no_rpath_for /usr/local
check "no rpath for a multiarch libdir" no_rpath_for /usr libdir="/usr/lib/$(gcc -print-multiarch)"

sums
