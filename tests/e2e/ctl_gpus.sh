#!/bin/bash
# dsaioctl pool, and status, on a host with GPUs, which are stand-ins.
. "$(dirname "$0")/ctl_common.sh"

# gpus_are STANDIN [KEY]: a daemon whose stand-ins do that, with a line of its configuration.
gpus_are() {
	stop_daemon
	printf '[daemon]\ncuda_library = %s\ncufile_library = %s\n%s\n' "$BUILD/tests/gpu/libcuda.so" \
		"$BUILD/tests/gpu/libcufile.so" "${2:-}" >"$dir/dsaiod.conf"
	export STANDIN=$1
	start_daemon
}

# pool_says TEXT: once the driver has come to that.
pool_says() {
	is_said() { "$ctl" pool >"$dir/out" && grep -qF -e "$1" "$dir/out"; }
	why="pool does not say \"$1\""
	await "$daemon" is_said "$1"
}

gpus_are_a_table() {
	gpus_are "gpus=2 nvfs=2.24"
	pool_says "CUDA 13.2, cuFile 1.17 with nvidia-fs 2.24" || return 1
	why="not two rows: $(cat "$dir/out")"
	[ "$(grep -cE '^GPU-[0-9a-f-]{36} +Stand-in GPU [01] +80 GiB$' "$dir/out")" = 2 ] || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"cuda_version": 13020' '"memory_bytes": 85899345920' \
		'"uuid": "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"' '"problem": null' '"call": null' \
		'"cufile": "cuFile 1.17 with nvidia-fs 2.24"' '"path": "auto"' \
		'"why": "cuFile 1.17 with nvidia-fs 2.24"'
}

the_path_of_GPU_memory_is_reported() {
	gpus_are ""
	pool_says "GPU memory is copied through pinned memory: cuFile 1.17 in compatibility mode" || return 1
	gpus_are "nvfs=2.24"
	pool_says "GPU memory is used directly where cuFile takes the file, else copied: cuFile 1.17 with nvidia-fs" || return 1
	gpus_are "nvfs=2.24" "gpu = copy"
	pool_says "GPU memory is copied through pinned memory: the daemon's configuration says gpu = copy" ||
		return 1
	gpus_are "" "gpu = direct"
	pool_says "GPU memory goes through cuFile, or the op fails: cuFile 1.17 in compatibility mode, which copies" &&
		expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"path": "direct"'
}

a_host_without_gpus_is_reported_where_they_are_demanded() {
	gpus_are "cuInit=100" "gpu = direct"
	pool_says "or the op fails: the daemon has found no GPU on this host: see whether nvidia-smi" &&
		says_not "$dir/out" "CUDA" && says_not "$dir/out" "cannot be used" || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"cuda_version": 0' '"path": "direct"'
}

a_driver_that_hangs_is_named() {
	gpus_are "cuFileDriverOpen=hang"
	pool_says "the GPU driver has not answered yet: cuFileDriverOpen() of $BUILD/tests/gpu/libcufile.so" &&
		says "$dir/out" "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf" "CUDA 13.2" &&
		expect 0 "$ctl" status && says "$dir/out" "NOT HEALTHY: the GPU driver has not answered yet"
}

a_driver_that_fails_is_named() {
	gpus_are "cuInit=999"
	pool_says "GPUs cannot be used: cuInit() of $BUILD/tests/gpu/libcuda.so: unknown error (999)" &&
		expect 0 "$ctl" status && says "$dir/out" "NOT HEALTHY: GPUs cannot be used"
}

a_host_without_gpus_shows_none() {
	gpus_are "cuInit=100"
	expect 0 "$ctl" pool && says_not "$dir/out" "CUDA" && expect 0 "$ctl" status && says_not "$dir/out" "GPU" || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"gpus": null'
}

for t in gpus_are_a_table the_path_of_GPU_memory_is_reported a_driver_that_hangs_is_named a_driver_that_fails_is_named a_host_without_gpus_shows_none \
	a_host_without_gpus_is_reported_where_they_are_demanded; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
