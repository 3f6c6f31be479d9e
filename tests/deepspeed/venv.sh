#!/bin/bash
# Makes a virtual environment with DeepSpeed, or uses the one that is there.  Where that is impossible, it prints
# why, in one line, and exits 1.
#
#   tests/deepspeed/venv.sh FOLDER PYTHON PACKAGE...
#
# A complete one has the file "complete", with what is in it.  Without it, as after an interruption, and where
# it has something else, all is made again; pip finds in its cache what it has fetched before.
set -u
venv=$1 python=$2
shift 2
what="$("$python" --version 2>&1), $*"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

fail() {
	echo "$1"
	exit 1
}

# As pip says it, and without the lines around it.
pip() {
	DS_ACCELERATOR=cpu "$venv/bin/python" -m pip --disable-pip-version-check -q install "$@" >"$log" 2>&1 ||
		fail "pip cannot install $2: $(grep -m 1 -i error "$log" | cut -c 1-200)"
}

[ "$(cat "$venv/complete" 2>/dev/null)" != "$what" ] || [ ! -x "$venv/bin/python" ] || exit 0

echo "making $venv: $* (about 5 GB)" >&2
"$python" -m venv --clear "$venv" >"$log" 2>&1 ||
	fail "$python cannot make a virtual environment: apt-get install python3-venv"
others=() deepspeed=()
for package; do
	case $package in deepspeed*) deepspeed+=("$package") ;; *) others+=("$package") ;; esac
done
pip --prefer-binary "${others[@]}" setuptools wheel
# Its setup.py imports torch.
[ ${#deepspeed[@]} = 0 ] || pip --no-build-isolation "${deepspeed[@]}"
echo "$what" >"$venv/complete"
