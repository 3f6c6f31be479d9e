#!/bin/bash
# The loaders of the Python package with the genuine torch, safetensors, transformers, accelerate and vLLM of PyPI:
# tests/python/test_loaders.py and the tests of safetensors.  The last line is N passed, N failed, N skipped.  Where the
# packages cannot be had, it says why, and exits 0.
#
#   LOADERS_VENV=folder		use this virtual environment, and install nothing
#   LOADERS_PACKAGES=...	what pip installs into BUILD/loaders
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
PYTHON=${PYTHON:-/usr/bin/python3}
export BUILD PYTHONPYCACHEPREFIX=$BUILD/pycache
unset DSAIO_DEEPSPEED DSAIO_SAFETENSORS DSAIO_SOCKET DSAIO_LIBRARY PYTHONPATH CUDA_VISIBLE_DEVICES

if [ -n "${LOADERS_VENV:-}" ]; then
	venv=$(realpath "$LOADERS_VENV")
else
	venv=$BUILD/loaders
	# shellcheck disable=SC2086 # a list of words
	if ! why=$(tests/deepspeed/venv.sh "$venv" "$PYTHON" $LOADERS_PACKAGES); then
		echo "skip check-loaders: $why"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python/test_loaders.py tests/python/test_safetensors.py \
	tests/python/test_safetensors_drop_in.py tests/python/test_views.py
