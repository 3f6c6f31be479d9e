#!/bin/bash
# The tests of make check-gpu, on the stand-ins: so they work at once where there is a GPU.
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}") || exit 1
export CUDA_LIBRARY=$build/tests/gpu/libcuda.so CUFILE_LIBRARY=$build/tests/gpu/libcufile.so
export CHECK_GPU_MIB=8
exec "$build/tests/gpu/check" "$@"
