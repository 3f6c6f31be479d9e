#!/bin/bash
# Installs the wheel with pip as a user without rights, in an environment without variables, and uses it
# as people do: a daemon starts with the first program.  A line for each check, then N passed, N failed,
# N skipped.
#
#   BUILD=dir tests/wheel/check.sh	after make wheel sdist
#
# PYTHONS: with which (python3); each needs its module venv.  WHEEL: another wheel, by its whole path; then
# its build is not checked, and nothing but this script, tests/checks.sh and a Python is needed.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
PYTHONS=${PYTHONS:-python3}
suite=wheel
. tests/checks.sh
[ ! -e /run/dsaiod/dsaiod.sock ] || skip_all "this host has a daemon, so that programs start none"
work=$(realpath "$(mktemp -d "${TMPDIR:-/var/tmp}/dsaio-wheel.XXXXXX")") || exit 1
chmod 711 "$work"
home=$work/home # of the user
python=         # the one that is tested

# ---- helpers ----

# as_user COMMAND...: as a user without rights, and with the variables of a shell of theirs.
as_user() (
	local drop=()
	[ "$(id -u)" != 0 ] || drop=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)
	cd "$home" && exec "${drop[@]}" env -i HOME="$home" XDG_RUNTIME_DIR="$home/run" PATH=/usr/local/bin:/usr/bin:/bin \
		LC_ALL=C.UTF-8 "$@"
)

# The process id of the user's daemon; nothing if there is none.
daemon_pid() {
	local pid exe
	pid=$(cut -d ' ' -f 1 "$home/run/dsaiod/dsaiod.sock.lock" 2>/dev/null)
	exe=$(readlink "/proc/${pid:-none}/exe")
	[[ $exe != */dsaiod* ]] || echo "$pid"
}

daemon_stop() {
	local pid
	pid=$(daemon_pid)
	[ -z "$pid" ] || { kill "$pid" && timeout 30 tail --pid="$pid" -f /dev/null; }
}

clean_up() {
	daemon_stop
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ends STATUS COMMAND...: the command ends so.
ends() {
	local wanted=$1 status
	shift
	"$@"
	status=$?
	[ $status = "$wanted" ] || { echo "wanted status $wanted, got $status"; return 1; }
}

# ---- the build ----

build() {
	python3 client/python/wheel/build.py "$@"
}

version() {
	echo "${WHEEL##*/}" | cut -d - -f 2
}

same_bytes_twice() {
	mkdir -p "$work/twice/wheel" && cp "$BUILD"/wheel/* "$work/twice/wheel" && touch "$work"/twice/wheel/* &&
		build "$work/twice/wheel" "$(version)" && cmp "$work"/twice/dsaio-*.whl "$WHEEL"
}

# Each file, with the digest that RECORD has of it.
record_is_true() {
	python3 - "$WHEEL" <<'END'
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
record = next(name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
assert sorted(rows) == sorted(wheel.namelist()), set(rows) ^ set(wheel.namelist())
assert rows.pop(record) == ["", ""]
for name, (digest, size) in rows.items():
    data = wheel.read(name)
    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert (digest, int(size)) == ("sha256=" + wanted, len(data)), name
for part in "LICENSE NOTICE libaio/copyright libaio/LGPL-2.1 libevent/copyright protobuf-c/copyright json-c/copyright ncurses/copyright".split():
    assert wheel.read(record.replace("RECORD", "licenses/" + part)), part
END
}

files_of() {
	python3 -c 'import sys, zipfile; print(*sorted(zipfile.ZipFile(sys.argv[1]).namelist()), sep="\n")' "$1"
}

# pip builds the same wheel from the sdist, without git.  It takes our objects, since packages are compiled from a
# tarball by make deb; links are made anew.
sdist_makes_the_wheel() {
	local dir
	mkdir "$work/sdist" && tar -xf "$sdist" -C "$work/sdist" && dir=$(echo "$work"/sdist/*) && [ ! -e "$dir/.git" ] &&
		find "$dir" -type f -exec touch -d @0 {} + && mkdir -p "$dir/$BUILD" && cp -rp "$BUILD"/{proto,daemon,client,bare} "$dir/$BUILD" &&
		python3 -m pip wheel --no-cache-dir --disable-pip-version-check --no-index --no-deps -C BUILD="$BUILD" \
			-w "$work/sdist" "$dir" && diff <(files_of "$work"/sdist/*.whl) <(files_of "$WHEEL")
}

# refuses WORDS FILE: the wheel is not made with another file in the place of one of its programs.
refuses() {
	local dir
	dir=$(mktemp -d "$work/refused.XXXXXX") && mkdir "$dir/wheel" && cp "$BUILD"/wheel/* "$dir/wheel" &&
		cp "$2" "$dir/wheel/${3:-dsaiod}" && says "$1" ends 1 build "$dir/wheel" "$(version)" &&
		! ls "$dir"/dsaio-*
}

# compiled NAME CODE FLAG...
compiled() {
	printf '%s\n' "$2" >"$work/$1.c" && gcc -o "$work/$1" "$work/$1.c" "${@:3}"
}

refuses_newer_symbols() {
	compiled newer '#include <stdlib.h>
		int main(void) { return (int)arc4random(); }' && refuses "GLIBC_2.36 (arc4random)" "$work/newer"
}

refuses_libraries() {
	compiled linked '#include <libaio.h>
		int main(void) { return io_destroy(0); }' -laio && refuses "libaio.so.1" "$work/linked"
}

refuses_exports() {
	compiled exports 'int protobuf_c_version(void); int protobuf_c_version(void) { return 0; }' -shared -fPIC &&
		refuses "protobuf_c_version" "$work/exports" libdsaio-client.so.0
}

refuses_missing_symbols() {
	compiled missing 'int missing(void); int dsaio_x(void); int dsaio_x(void) { return missing(); }' -shared -fPIC &&
		refuses "needs missing" "$work/missing" libdsaio-client.so.0
}

refuses_directories_of_this_machine() {
	compiled rpath 'int main(void) { return 0; }' -Wl,-rpath,/opt && refuses RUNPATH "$work/rpath"
}

refuses_large_files() {
	head -c 4M /dev/urandom >"$work/noise" && cp "$BUILD/wheel/dsaiod" "$work/large" &&
		cat "$work/noise" >>"$work/large" && refuses "3000000" "$work/large"
}

# ---- the installation ----

venv= # of the Python that is tested
pip() {
	as_user "$venv/bin/python" -m pip --no-cache-dir --disable-pip-version-check "$@"
}

install() {
	as_user "$python" -m venv "$venv" && files >"$work/before" && pip install --no-index "$home/${WHEEL##*/}"
}

files() {
	(cd "$venv" && find . -type f ! -name '*.pyc' | sort)
}

uninstalled() {
	pip uninstall -y dsaio && files >"$work/after" && diff "$work/before" "$work/after" &&
		! find "$venv" -name '*dsaio*' | grep .
}

# ---- its use ----

# Bytes of odd sizes, pinned and not, by both interfaces.
program='
import dsaio, os, sys
folder = sys.argv[1]
data = os.urandom(3000001)
path = os.path.join(folder, "a")
with dsaio.Handle() as handle:
    handle.submit_write(data, path).wait()
    pinned = dsaio.alloc(len(data))
    handle.submit_read(pinned, path).wait()
    assert bytes(pinned) == data and dsaio.is_pinned(pinned)
handle = dsaio.aio_handle(block_size=65536, queue_depth=8, intra_op_parallelism=2)
back = bytearray(len(data))
assert handle.async_pread(back, path) == 0 and handle.wait() == 1
assert back == data and open(path, "rb").read() == data
'

numpy_program='
import dsaio, numpy, os, sys
path = os.path.join(sys.argv[1], "n")
with dsaio.Handle() as handle:
    tensor = numpy.frombuffer(dsaio.alloc(4 * 1001), numpy.float32)
    tensor[:] = numpy.arange(1001)
    handle.submit_write(tensor, path).wait()
    back = numpy.zeros(1001, numpy.float32)
    handle.submit_read(back, path).wait()
assert (back == tensor).all()
'

# A program in the middle of its work: a line on standard input lets it go on.
steady_program='
import dsaio, os, sys
path = os.path.join(sys.argv[1], "s")
with dsaio.Handle() as handle:
    pinned = dsaio.alloc(1 << 20)
    for line in sys.stdin:
        pinned[:] = os.urandom(len(pinned))
        handle.submit_write(pinned, path).wait()
        assert open(path, "rb").read() == bytes(pinned)
        print("written", flush=True)
'

runs() {
	as_user "$venv/bin/python" -c "$1" "$home/data"
}

first_program_starts_the_daemon() {
	[ -z "$(daemon_pid)" ] && runs "$program" && [ "$(readlink "/proc/$(daemon_pid)/exe")" = "$(package)/dsaiod" ]
}

# Python reads dsaio.pth when it starts, and that is for children of programs that use DeepSpeed.
pth_is_read() {
	as_user DSAIO_DEEPSPEED=1 "$venv/bin/python" -c "import sys; assert 'dsaio.deepspeed' in sys.modules" &&
		as_user "$venv/bin/python" -c "import sys; assert 'dsaio' not in sys.modules"
}

package() {
	echo "$venv"/lib/python3*/site-packages/dsaio
}

# Other libraries of the same name in the process, with all their symbols visible, change nothing.
beside_other_libraries() {
	runs "
import ctypes, ctypes.util
for name in ('protobuf-c', 'event_core', 'aio', 'json-c'):
    path = ctypes.util.find_library(name)
    path and ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
$program"
}

with_numpy() {
	pip install --no-index --no-deps --target "$home/target" "$home/${WHEEL##*/}" &&
		as_user PYTHONPATH="$home/target" "$python" -c "$numpy_program" "$home/data"
}

ctl() {
	as_user "$venv/bin/dsaioctl" "$@"
}

put_and_cat() {
	as_user bash -c 'set -o pipefail; "$1" cat data/a | "$1" put data/b && cmp data/a data/b' - "$venv/bin/dsaioctl"
}

# Python ignores SIGPIPE; the program must not.
ends_by_sigpipe() {
	as_user bash -c '"$1" cat data/a | head -c 1 >/dev/null; [ "${PIPESTATUS[0]}" = 141 ]' - "$venv/bin/dsaioctl"
}

# The entry point is the program itself, so what ends it is reported as it is.
ends_by_sigterm() {
	as_user bash -c 'mkfifo fifo && { "$1" put data/c <fifo & } && exec 3>fifo &&
		until [ "$(readlink /proc/$!/exe)" = "$2" ]; do kill -0 $! && sleep .02 || exit 1; done &&
		kill $!; wait $!; [ $? = 143 ] && rm fifo' - "$venv/bin/dsaioctl" "$(package)/dsaioctl"
}

# The files are replaced, and the daemon goes on with those that it has open.
upgrade_over_a_daemon() {
	local pid to from line
	pid=$(daemon_pid)
	coproc as_user "$venv/bin/python" -c "$steady_program" "$home/data"
	from=${COPROC[0]} to=${COPROC[1]}
	echo "before" >&"$to" && read -r -t 60 line <&"$from" && [ "$line" = written ] &&
		pip install --no-index --force-reinstall "$home/${WHEEL##*/}" &&
		echo "after" >&"$to" && read -r -t 60 line <&"$from" && [ "$line" = written ] &&
		runs "$program" && [ "$(daemon_pid)" = "$pid" ]
	local status=$?
	exec {to}>&-
	wait "$COPROC_PID" && return $status
}

# A real daemon that says another release of itself, with the same protocol.
another_release_serves() {
	daemon_stop
	as_user sed "s/\x00$(version)\x00/\x009.8.7\x00/g" "$(package)/dsaiod" >"$home/dsaiod" && chmod 755 "$home/dsaiod" &&
		says "dsaiod 9.8.7" as_user "$home/dsaiod" --version &&
		as_user DSAIOD="$home/dsaiod" "$venv/bin/python" -c "$program" "$home/data" &&
		runs "$program" && says 9.8.7 ctl status && [ "$(readlink "/proc/$(daemon_pid)/exe")" = "$home/dsaiod" ]
	local status=$?
	daemon_stop
	return $status
}

check_python() {
	local name
	name=$(as_user "$python" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])' 2>&1) &&
		as_user "$python" -c 'import venv, ensurepip' 2>/dev/null ||
		{ skip "$python: another user cannot run it, or it lacks venv (python3-venv)"; return; }
	venv=$home/venv
	check "$name: pip installs it, without network or root" install
	check "$name: the first program starts the wheel's daemon" first_program_starts_the_daemon
	check "$name: other libraries in the process do not disturb" beside_other_libraries
	check "$name: Python reads dsaio.pth when it starts" pth_is_read
	check "$name: dsaioctl status" says "pool" ctl status
	check "$name: dsaioctl bench io" ctl bench io --folder "$home/data" --io_size 16M --read
	check "$name: dsaioctl put and cat" put_and_cat
	check "$name: dsaioctl's status is its own" ends 2 ctl frobnicate
	check "$name: dsaioctl ends by SIGPIPE" ends_by_sigpipe
	check "$name: dsaioctl ends by SIGTERM" ends_by_sigterm
	check "$name: dsaiod runs" says "dsaiod $(version)" as_user "$venv/bin/dsaiod" --version
	check "$name: the man pages are where man looks" [ -f "$venv/share/man/man1/dsaioctl.1" ]
	check "$name: it is installed anew while a program and the daemon use it" upgrade_over_a_daemon
	check "$name: a daemon of another release with the same protocol serves" another_release_serves
	if as_user "$python" -c 'import numpy' 2>/dev/null; then
		check "$name: numpy, in a directory of pip --target" with_numpy
	fi
	check "$name: uninstall leaves nothing" uninstalled
	daemon_stop
	rm -rf "${home:?}"/*
}

make_home() {
	mkdir -p "$home/run" "$home/data" && chmod 700 "$home/run" && cp "$WHEEL" "$home" &&
		{ [ "$(id -u)" != 0 ] || chown -R 65534:65534 "$home"; }
}

if [ -z "${WHEEL:-}" ]; then
	WHEEL=$(echo "$BUILD"/dsaio-*.whl)
	[ -f "$WHEEL" ] || { echo "there is no wheel in $BUILD: make wheel"; exit 1; }
	check "the same programs make the same bytes" same_bytes_twice
	sdist=$(echo "$BUILD"/dsaio-*.tar.gz)
	if command -v twine >/dev/null; then
		check "twine check of wheel and sdist" twine check --strict "$WHEEL" "$sdist"
	else
		skip "twine check: needs twine"
	fi
	check "pip builds the wheel from the sdist" sdist_makes_the_wheel
	check "RECORD is true, and the licences are there" record_is_true
	check "a program with a newer symbol of glibc is refused" refuses_newer_symbols
	check "a program that needs another library is refused" refuses_libraries
	check "a library that exports other names is refused" refuses_exports
	check "a library that needs a symbol of no library is refused" refuses_missing_symbols
	check "a program that looks for libraries in this machine's directories is refused" \
		refuses_directories_of_this_machine
	check "a wheel that is too large is refused" refuses_large_files
fi
for python in $PYTHONS; do
	make_home
	check_python
done
sums
