#!/bin/bash
# dsaioctl bench with buffers in the memory of GPUs, which are stand-ins.
. "$(dirname "$0")/ctl_common.sh"

# The loader finds the stand-in where the driver's library would be.
mkdir "$dir/driver" "$dir/broken"
ln -s "$BUILD/tests/gpu/libcuda.so" "$dir/driver/libcuda.so.1"
: >"$dir/broken/libcuda.so.1"
export STANDIN="gpus=2"

# on_gpus COMMAND...
on_gpus() {
	LD_LIBRARY_PATH=$dir/driver "$@"
}

io_moves_the_bytes_of_gpu_memory() {
	# Odd sizes, and more than one step of the copies.
	for size in 4096 1000001 20M; do
		expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size $size --gpu --validate --json &&
			says "$dir/out" '"GPU 0 (Stand-in GPU 0)"' '"op": "write"' &&
			expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size $size --gpu --validate --read || return 1
	done
	why="ds_io's lines are not all of standard output"
	[ "$(wc -l <"$dir/out")" = 4 ]
}

a_copy_that_fails_is_named() {
	expect 1 on_gpus env STANDIN="cuMemcpyDtoH_v2=1" \
		"$ctl" bench io --folder "$store" --io_size 64K --gpu --validate --read &&
		says "$dir/err" "--gpu: cuMemcpyDtoH(): unknown error (1)"
}

each_process_has_a_gpu() {
	mkdir -p "$store/a" "$store/b"
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu --multi_process 3 --json &&
		says "$dir/out" '"GPU 0 (Stand-in GPU 0)"' '"GPU 1 (Stand-in GPU 1)"' || return 1
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu=cuda:1 --multi_process 3 --json &&
		says "$dir/out" '"GPU 1 (Stand-in GPU 1)"' && says_not "$dir/out" "GPU 0" || return 1
	expect 0 on_gpus "$ctl" bench io --folder_to_device_mapping "$store/a:1" "$store/b:1" --io_size 64K --gpu --json &&
		says "$dir/out" '"GPU 1 (Stand-in GPU 1)"' && says_not "$dir/out" "GPU 0" || return 1
	expect 0 "$ctl" bench io --folder "$store" --io_size 64K --json && says "$dir/out" '"gpus": ['
}

a_gpu_that_is_not_there_is_named() {
	local command
	for command in "io --folder $store --io_size 64K" "latency --nvme-path $store" "sweep --nvme_dir $store" \
		"tune --nvme_dir $store"; do
		# shellcheck disable=SC2086 # words
		expect 2 on_gpus "$ctl" bench $command --gpu 1 && says "$dir/err" "--gpu 1: " "write --gpu=1" &&
			expect 2 on_gpus "$ctl" bench $command --gpu cuda:1 && says "$dir/err" "write --gpu=cuda:1" &&
			expect 2 on_gpus "$ctl" bench $command --gpu=x && says "$dir/err" "--gpu=x: is no number" ||
			return 1
	done
	expect 1 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu=2 &&
		says "$dir/err" "--gpu: there is no GPU 2: this machine has 2" || return 1
	expect 1 on_gpus env STANDIN="cuInit=100" "$ctl" bench io --folder "$store" --io_size 64K --gpu &&
		says "$dir/err" "--gpu: this machine has no GPU" "without --gpu" || return 1
	expect 1 on_gpus env STANDIN="cuInit=3" "$ctl" bench io --folder "$store" --io_size 64K --gpu &&
		says "$dir/err" "--gpu: cuInit(): CUDA_ERROR_NOT_INITIALIZED (3)" || return 1
	expect 1 on_gpus env STANDIN="cuMemAlloc_v2=2" "$ctl" bench io --folder "$store" --io_size 64K --gpu &&
		says "$dir/err" "GPU 0 (Stand-in GPU 0) has no room for 64 KiB"
}

without_the_driver_one_message_says_so_before_anything_is_made() {
	local command
	mkdir -p "$store/none"
	for command in "io --folder $store/none --io_size 64K" "sweep --nvme_dir $store/none --log_dir $dir/logs" \
		"tune --nvme_dir $store/none --log_dir $dir/logs" "latency --nvme-path $store/none"; do
		# shellcheck disable=SC2086 # words
		expect 1 env "LD_LIBRARY_PATH=$dir/broken" "$ctl" bench $command --gpu &&
			says "$dir/err" "--gpu: cannot open NVIDIA's driver library: " "without --gpu" || return 1
		why="$command: more than a message, or something was made: $(cat "$dir/err" "$dir/out")"
		[ "$(cat "$dir/err" "$dir/out" | wc -l)" = 1 ] && [ -z "$(ls "$store/none")" ] && [ ! -e "$dir/logs" ] ||
			return 1
	done
}

gds_goes_with_a_gpu() {
	expect 2 "$ctl" bench io --folder "$store" --io_size 64K --use_gds &&
		says "$dir/err" "--use_gds: moves" "give --gpu, too" &&
		expect 2 "$ctl" bench io --folder "$store" --io_size 64K --gds && says "$dir/err" "--gds: moves" || return 1
	expect 2 "$ctl" bench latency --nvme-path "$store" --gds && says "$dir/err" "give --gpu, too" &&
		expect 2 on_gpus "$ctl" bench io --folder_to_device_mapping "$store:0" --io_size 64K --gpu=1 &&
		says "$dir/err" "--gpu=N goes with --dir" &&
		expect 2 on_gpus "$ctl" bench io --folder_to_device_mapping "$store:x" --io_size 64K --gpu &&
		says "$dir/err" "$store:x" "the number of a GPU"
}

sweep_tune_and_latency_measure_gpu_memory() {
	echo '{"block_size": ["64K"], "queue_depth": [2, 4]}' >"$dir/space"
	mkdir -p "$store/c" "$store/d"
	expect 0 on_gpus "$ctl" bench sweep --nvme_dir "$store/c" "$store/d" --sweep_config "$dir/space" --io_size 1M \
		--gpu --log_dir "$dir/logs" &&
		says "$dir/err" "buffers: in the memory of GPU 0 (Stand-in GPU 0), GPU 1 (Stand-in GPU 1)" &&
		says "$dir/logs/results.json" '"gpu": "each"' '"GPU 1 (Stand-in GPU 1)"' '"huge_page_bytes": null' || return 1
	expect 2 on_gpus "$ctl" bench sweep --nvme_dir "$store/c" "$store/d" --sweep_config "$dir/space" --io_size 1M \
		--log_dir "$dir/logs" --resume && says "$dir/err" "was made with gpu" || return 1
	! has_matplotlib || { expect 0 "$ctl" bench report "$dir/logs" -o "$dir/report.html" &&
		says "$dir/report.html" "none: a GPU&#x27;s, of 2 MiB" "<th>memory of GPUs</th>" \
		"<td>GPU 0 (Stand-in GPU 0), GPU 1 (Stand-in GPU 1): copied: "; } || return 1
	# A depth that each transfer reaches, however slow the machine is: tune ranks only such points.
	echo '{"block_size": ["64K"], "queue_depth": [1, 2]}' >"$dir/space"
	expect 0 on_gpus "$ctl" bench tune --nvme_dir "$store/c" --sweep_config "$dir/space" --io_size 1M --gpu=1 \
		--log_dir "$dir/logs" && says "$dir/logs/tune.json" '"gpu": 1' '"GPU 1 (Stand-in GPU 1)"' || return 1
	expect 0 on_gpus "$ctl" bench latency --nvme-path "$store/c" --sizes 4K 64K --iterations 20 --gpu --json &&
		says "$dir/out" '"GPU 0 (Stand-in GPU 0)"' '"p50_nsec"'
}

a_copy_is_reported_and_gds_refuses_it() {
	local command
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu &&
		says "$dir/err" "buffers: in the memory of GPU 0 (Stand-in GPU 0): copied: " &&
		expect 0 "$ctl" bench io --folder "$store" --io_size 64K && says_not "$dir/err" "GPU" || return 1
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu --json && says "$dir/out" '"copied: ' &&
		expect 1 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu --use_gds || return 1
	says "$dir/err" "--gds: the bytes would be copied through memory of the host: " "without --gds" || return 1
	mkdir -p "$store/none"
	for command in "sweep --nvme_dir $store/none --log_dir $dir/logs3" "latency --nvme-path $store/none"; do
		# shellcheck disable=SC2086 # words
		expect 1 on_gpus "$ctl" bench $command --gpu --gds &&
			says "$dir/err" "--gds: the bytes would be copied through memory of the host: " || return 1
		why="$command: something was measured, or is left: $(cat "$dir/out") $(ls "$store/none")"
		[ ! -s "$dir/out" ] && [ -z "$(ls "$store/none")" ] || return 1
	done
}

# daemon_has_gpus KEY...: from now on one whose cuFile is a stand-in that moves bytes.
daemon_has_gpus() {
	stop_daemon
	printf '%s\n' '[daemon]' "cuda_library = $BUILD/tests/gpu/libcuda.so" \
		"cufile_library = $BUILD/tests/gpu/libcufile.so" "$@" >"$dir/dsaiod.conf"
	STANDIN="gpus=2 nvfs=2.24 ${words-}" start_daemon
}

the_daemon_moves_the_bytes_where_it_can() {
	daemon_has_gpus "gpu = direct"
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 1000001 --gpu=1 --gds --validate --json &&
		says "$dir/out" '"direct (' && says_not "$dir/out" '"copied' &&
		expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 1000001 --gpu --validate --read &&
		says "$dir/err" "GPU 0 (Stand-in GPU 0): direct (cuFile 1.17 with nvidia-fs 2.24)" || return 1
	echo '{"block_size": ["64K"], "queue_depth": [2, 4]}' >"$dir/space"
	expect 0 on_gpus "$ctl" bench sweep --nvme_dir "$store/c" --sweep_config "$dir/space" --io_size 1M --gpu --gds \
		--log_dir "$dir/logs2" && says "$dir/err" "GPU 0 (Stand-in GPU 0): direct" &&
		{ ! has_matplotlib || { expect 0 "$ctl" bench report "$dir/logs2" -o "$dir/report.html" && says "$dir/report.html" \
		"<td>GPU 0 (Stand-in GPU 0): direct (cuFile 1.17 with nvidia-fs 2.24)</td>"; }; } || return 1
	expect 0 on_gpus "$ctl" bench latency --nvme-path "$store/c" --sizes 4K --iterations 20 --gpu --gds --json &&
		says "$dir/out" '"direct"' || return 1
	daemon_has_gpus
	expect 0 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu --loops 20 --json &&
		says "$dir/out" '"direct (' && says_not "$dir/out" '"copied' || return 1
	daemon_has_gpus "gpu = copy"
	expect 1 on_gpus "$ctl" bench io --folder "$store" --io_size 64K --gpu --gds &&
		says "$dir/err" "--gds: the bytes would be copied" "gpu = copy"
}

start_daemon
for t in io_moves_the_bytes_of_gpu_memory a_copy_that_fails_is_named each_process_has_a_gpu \
	a_gpu_that_is_not_there_is_named without_the_driver_one_message_says_so_before_anything_is_made \
	gds_goes_with_a_gpu sweep_tune_and_latency_measure_gpu_memory a_copy_is_reported_and_gds_refuses_it \
	the_daemon_moves_the_bytes_where_it_can; do
	run_test $t
done
stop_daemon || { echo "not ok ctl: the daemon stops in order: exit status $?"; failed=1; }
exit $failed
