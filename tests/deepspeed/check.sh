#!/bin/bash
# The Python package with the genuine torch and DeepSpeed from PyPI: all of tests/python, then tests/deepspeed,
# then a short comparison with DeepSpeed's own op.  The last line is N passed, N failed, N skipped.  Where the
# packages cannot be had, it says why, and exits 0.
#
#   DEEPSPEED_VENV=folder	use this virtual environment, and install nothing
#   DEEPSPEED_PACKAGES=...	what pip installs into BUILD/deepspeed
#   TORCH_EXTENSIONS_DIR=folder	where DeepSpeed's own ops are compiled (BUILD/deepspeed/ops)
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
PYTHON=${PYTHON:-/usr/bin/python3}
export BUILD PYTHONPYCACHEPREFIX=$BUILD/pycache DS_ACCELERATOR=cpu
unset DSAIO_DEEPSPEED DSAIO_SOCKET DSAIO_LIBRARY PYTHONPATH CUDA_VISIBLE_DEVICES

skip() {
	echo "skip check-deepspeed: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

for tool in g++:g++ "$PYTHON":python3; do
	command -v "${tool%:*}" >/dev/null || skip "${tool%:*} is missing: apt-get install ${tool#*:}"
done
echo '#include <libaio.h>' | g++ -E -x c++ - >/dev/null 2>&1 || skip "libaio.h is missing: apt-get install libaio-dev"
include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -e "$include/Python.h" ] || skip "$include/Python.h is missing: apt-get install python3-dev"

if [ -n "${DEEPSPEED_VENV:-}" ]; then
	venv=$(realpath "$DEEPSPEED_VENV")
else
	venv=$BUILD/deepspeed
	# shellcheck disable=SC2086 # a list of words
	why=$(tests/deepspeed/venv.sh "$venv" "$PYTHON" $DEEPSPEED_PACKAGES) || skip "$why"
fi
export TORCH_EXTENSIONS_DIR=${TORCH_EXTENSIONS_DIR:-$BUILD/deepspeed/ops} PATH=$venv/bin:$PATH
mkdir -p "$TORCH_EXTENSIONS_DIR"
for module in torch deepspeed numpy pytest ninja; do
	"$venv/bin/python" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$module'))" ||
		skip "$venv has no $module"
done

# DeepSpeed compiles its other ops at their first use, for minutes.
log=$BUILD/deepspeed-ops.log
echo "DeepSpeed's CPU ops, in $TORCH_EXTENSIONS_DIR"
"$venv/bin/python" tests/deepspeed/compile.py CPUAdamBuilder UtilsBuilder ShareMemCommBuilder >"$log" 2>&1 ||
	skip "DeepSpeed's own CPU ops do not compile: $log"

# All tests share the conftest.py of tests/python.
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
PYTHONPATH=tests/python TEST_TIME_FACTOR=${TEST_TIME_FACTOR:-5} "$venv/bin/python" -m pytest -q -p no:cacheprovider \
	--noconftest -p conftest tests/python tests/deepspeed | tee "$out"
rc=${PIPESTATUS[0]}

# Shown, but no test: the machine may have other work.
DEEPSPEED_VENV=$venv "$venv/bin/python" tests/bench/zero_infinity.py --short || rc=1
tail -n 1 "$out"
exit "$rc"
