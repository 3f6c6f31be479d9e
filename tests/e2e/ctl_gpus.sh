#!/bin/bash
# dsaioctl doctor and status on a host with GPUs, which are stand-ins.
. "$(dirname "$0")/ctl_common.sh"

# gpus_are STANDIN [KEY]: a daemon whose stand-ins do that, with a line of its configuration.
gpus_are() {
	stop_daemon
	printf '[daemon]\ncuda_library = %s\ncufile_library = %s\n%s\n' "$BUILD/tests/gpu/libcuda.so" \
		"$BUILD/tests/gpu/libcufile.so" "${2:-}" >"$dir/dsaiod.conf"
	export STANDIN=$1
	start_daemon
}

# doctor_says TEXT: once the driver has come to that.
doctor_says() {
	is_said() { "$ctl" doctor >"$dir/out";  grep -qF -e "$1" "$dir/out"; }
	why="doctor does not say \"$1\""
	await "$daemon" is_said "$1"
}

gpus_are_a_line() {
	gpus_are "gpus=2 nvfs=2.24"
	doctor_says "OK    GPUs: 2, CUDA 13.2, cuFile 1.17 with nvidia-fs 2.24; gpu = auto: cuFile" || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"cuda_version": 13020' '"memory_bytes": 85899345920' \
		'"uuid": "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"' '"problem": null' '"call": null' \
		'"cufile": "cuFile 1.17 with nvidia-fs 2.24"' '"path": "auto"' \
		'"why": "cuFile 1.17 with nvidia-fs 2.24"'
}

the_path_of_GPU_memory_is_reported() {
	gpus_are ""
	doctor_says "gpu = copy: cuFile 1.17 in compatibility mode" || return 1
	gpus_are "nvfs=2.24"
	doctor_says "gpu = auto: cuFile 1.17 with nvidia-fs" || return 1
	gpus_are "nvfs=2.24" "gpu = copy"
	doctor_says "gpu = copy: the daemon's configuration says gpu = copy" ||
		return 1
	gpus_are "" "gpu = direct"
	doctor_says "gpu = direct: cuFile 1.17 in compatibility mode, which copies" &&
		expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"path": "direct"'
}

a_host_without_gpus_is_reported_where_they_are_demanded() {
	gpus_are "cuInit=100" "gpu = direct"
	doctor_says "GPUs: 0, CUDA 0.0, ; gpu = direct: the daemon has found no GPU on this host: see whether nvidia-smi" || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"cuda_version": 0' '"path": "direct"'
}

a_driver_that_hangs_is_named() {
	gpus_are "cuFileDriverOpen=hang"
	doctor_says "WARN  GPUs: 1, CUDA 13.2, ; gpu = auto: cuFileDriverOpen() of $BUILD/tests/gpu/libcufile.so" &&
		expect 0 "$ctl" status && says "$dir/out" "NOT HEALTHY: " "the GPU driver has not answered yet: cuFileDriverOpen() of "
}

a_driver_that_fails_is_named() {
	gpus_are "cuInit=999"
	doctor_says ": cuInit() of $BUILD/tests/gpu/libcuda.so: unknown error (999)" &&
		expect 0 "$ctl" status && says "$dir/out" "NOT HEALTHY: " "GPUs cannot be used: cuInit() of "
}

a_host_without_gpus_shows_none() {
	gpus_are "cuInit=100"
	expect 0 "$ctl" status && says_not "$dir/out" "GPU" || return 1
	"$ctl" doctor >"$dir/out"
	says_not "$dir/out" "GPUs" || return 1
	expect 0 "$ctl" status --interval 0 --json && says "$dir/out" '"gpus": null'
}

for t in gpus_are_a_line the_path_of_GPU_memory_is_reported a_driver_that_hangs_is_named a_driver_that_fails_is_named a_host_without_gpus_shows_none \
	a_host_without_gpus_is_reported_where_they_are_demanded; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
