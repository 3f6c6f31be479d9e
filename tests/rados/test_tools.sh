#!/bin/bash
# dsaioctl and the Python package on stores on RADOS: names, copies, what is seen of a store, and the example.
# shellcheck source=tests/rados/common.sh
. "$(dirname "$0")/common.sh"

export PYTHONPATH=$PWD/client/python DSAIO_LIBRARY=$BUILD/libdsaio-client.so PYTHONPYCACHEPREFIX=$BUILD/pycache
python=${PYTHON:-/usr/bin/python3}

# The script on standard input, with arguments; 2: what is needed is missing.
run_python() { # MODULE ARGUMENT...
	local script=$dir/script.py
	[ -z "${SANITIZE:-}" ] || { why="a sanitizer's library does not fit into Python"; return 2; }
	"$python" -c "import $1" 2>/dev/null || { why="needs $1"; return 2; }
	cat >"$script"
	expect 0 "$python" "$script" "${@:2}"
}

names_are_listed_and_removed() {
	local uri
	uri=$(rados_uri n)
	head -c 5000 /dev/urandom >"$dir/five" && : >"$dir/empty"
	expect 0 "$ctl" cp "$dir/five" "$uri/step/b" && "$ctl" put "$uri/step/a" <"$dir/five" >"$dir/out" &&
		expect 0 "$ctl" cp "$dir/empty" "$uri/other" &&
		expect 0 "$ctl" ls --json "$uri/step/" || return 1
	why="ls: $(cat "$dir/out")"
	python3 - "$dir/out" <<-'END' || return 1
		import json, sys
		files = json.load(open(sys.argv[1]))["files"]
		assert [f["name"] for f in files] == ["step/a", "step/b"], files
		assert all(f["bytes"] == 5000 and f["mtime_sec"] > 1600000000 and f["object_bytes"] for f in files), files
		assert files[0]["id"] != files[1]["id"] and len(files[0]["id"]) == 16, files
	END
	expect 0 "$ctl" ls "RADOS${uri#rados}/" && says "$dir/out" "step/a" "4.88 KiB" "other" "0 B" &&
		expect 0 "$ctl" stat "$uri/step/a" && says "$dir/out" "5000 bytes" "$uri/step/a" &&
		expect 0 "$ctl" rm "$uri/step/a" "$uri/other" && expect 1 "$ctl" stat "$uri/step/a" &&
		says "$dir/err" "No such file" && expect 1 "$ctl" rm "$uri/none" && expect 0 "$ctl" ls "$uri/" &&
		says "$dir/out" "step/b" && ! grep -q "step/a" "$dir/out"
}

copies_are_the_same_both_ways() {
	local uri
	uri=$(rados_uri n)
	head -c 20000001 /dev/urandom >"$dir/big"
	expect 0 "$ctl" cp --verify "$dir/big" "$uri/" && says "$dir/out" "no difference" &&
		expect 0 "$ctl" cp --verify "$uri/big" "$uri/copy" && expect 0 "$ctl" cp "$uri/copy" "$dir/back" || return 1
	why="the copy differs"
	cmp "$dir/big" "$dir/back" && "$ctl" cat "$uri/big" | cmp - "$dir/big" &&
		"$ctl" cat --offset 4097 --length 5000000 "$uri/big" | cmp - <(tail -c +4098 "$dir/big" | head -c 5000000)
}

a_copy_uses_the_daemon_of_each_side() {
	local uri
	uri=$(rados_uri n)
	printf '[daemon]\nlock = auto\nstate_dir = %s\n[store t]\npath = %s\n' "$dir/state-local" "$store" >"$dir/local.conf"
	rados_start local && cp "$dir/big" "$store/big" || return 1
	DSAIO_SOCKET=$dir/local.sock expect 0 "$ctl" cp --json --verify "$store/big" "$uri/both" &&
		says "$dir/out" '"is_read_by_daemon": true' '"is_written_by_daemon": true' &&
		DSAIO_SOCKET=$dir/local.sock expect 0 "$ctl" cp --json --verify "$uri/both" "$store/back" &&
		says "$dir/out" '"is_read_by_daemon": true' '"is_written_by_daemon": true' &&
		cmp "$store/back" "$dir/big" &&
		expect 0 "$ctl" cp --private --verify "$uri/both" "$store/private" && cmp "$store/private" "$dir/big"
}

# From a pipe that goes on, so that the put is at work for sure.
a_copy_that_is_ended_leaves_the_old_file() {
	local uri pid
	uri=$(rados_uri n)
	"$ctl" put "$uri/kept" <"$dir/five" >"$dir/out" || return 1
	mkfifo "$dir/pipe" && exec 8<>"$dir/pipe"
	"$ctl" put "$uri/kept" <"$dir/pipe" >"$dir/out" 2>"$dir/err" 8>&- &
	pid=$!
	cat "$dir/big" >&8 # more than a pipe holds: it has read
	kill -TERM "$pid"
	wait "$pid"
	exec 8>&-
	says "$dir/err" "interrupted" || return 1
	why="the old file is not there"
	"$ctl" cat "$uri/kept" | cmp - "$dir/five"
}

# All osds stop before the end of what put reads, so nothing but the commit has to wait.
a_commit_without_an_answer_is_said_to_be_unknown() {
	local uri pid osds="osd.0 osd.1 osd.2"
	uri=$(rados_uri u)
	rados_conf slow u -- "op_timeout = 1" && rados_start slow && rados_await_online slow u || return 1
	exec 8<>"$dir/pipe"
	DSAIO_RADOS_SOCKET=$dir/slow.sock "$ctl" put "$uri/unknown" <"$dir/pipe" >"$dir/out" 2>"$dir/err" 8>&- &
	pid=$!
	until timeout 10 rados --id dsaio -p dsaio -N "t$$-u" ls 2>/dev/null | grep -q index; do
		sleep 0.1 # the first file makes an object of the index
	done
	# shellcheck disable=SC2086
	"$CEPH_TOOL" freeze "$CEPH_DIR" $osds
	exec 8>&-
	wait "$pid"
	pid=$?
	# shellcheck disable=SC2086
	"$CEPH_TOOL" thaw "$CEPH_DIR" $osds
	rados_await_online slow u
	why="status $pid: $(cat "$dir/err")"
	[ $pid = 1 ] && says "$dir/err" "not known whether it was committed"
}

status_and_doctor_show_the_cluster() {
	why="online: $(cat "$dir/status")"
	"$ctl" doctor >"$dir/out" 2>"$dir/err"
	says "$dir/out" "store n: cluster: online" && expect 0 "$ctl" metrics &&
		says "$dir/out" 'dsaio_store_online{store="n"' 'dsaio_store_pauses_total{store="n"' || return 1
	sed "s/state-a/state-away/; s,^ceph_user,ceph_conf = /dev/null\n&," "$dir/a.conf" >"$dir/away.conf"
	rados_start away && rados_await_offline away n || return 1
	expect 0 "$ctl" status --socket "$dir/away.sock" && says "$dir/out" "NOT HEALTHY" "store n is OFFLINE" &&
		expect 1 "$ctl" doctor --socket "$dir/away.sock" && says "$dir/out" "FAIL  store n: cluster" "ceph -s" &&
		DSAIO_RADOS_SOCKET=$dir/none expect 3 "$ctl" ls "$(rados_uri n)/" &&
		says "$dir/err" "no daemon listens" "systemctl start dsaiod@rados"
}

python_writes_and_reads() {
	run_python os "$(rados_uri n)" <<-'END'
		import errno, os, pickle, sys
		import dsaio

		uri = sys.argv[1]
		data = os.urandom(9_000_001)
		with dsaio.Handle() as handle, dsaio.create(f"{uri}/py", len(data)) as file:
		    handle.submit_write(data[:5000], file).wait()
		    with dsaio.create(f"{uri}/py", len(data), token=file.token) as other:
		        handle.submit_write(data[5000:], other, 5000).wait()
		    try:
		        dsaio.stat(f"{uri}/py")
		        sys.exit("seen before its commit")
		    except FileNotFoundError as e:
		        assert e.filename == f"{uri}/py"
		    file.commit()
		assert dsaio.open(f"{uri}/py").read() == data
		found = dsaio.stat(f"{uri}/py")
		assert (found.size, found.name) == (len(data), "py"), found
		assert found in dsaio.list_files(f"{uri}/p")
		back = bytearray(len(data))
		with dsaio.Handle() as handle, pickle.loads(pickle.dumps(dsaio.File(f"{uri}/py"))) as file:
		    handle.submit_read(back, file).wait()
		    try:
		        handle.submit_read(back, f"{uri}/py")
		        sys.exit("a name is no path of an op")
		    except ValueError as e:
		        assert "dsaio.File" in str(e), e
		assert back == data
		with dsaio.create(f"{uri}/gone") as file:
		    file.abandon()
		dsaio.remove(f"{uri}/py")
		assert not [f for f in dsaio.list_files(uri + "/") if f.name in ("py", "gone")]
	END
}

torch_and_safetensors_save_and_load() {
	run_python torch "$(rados_uri n)" <<-'END'
		import sys
		import torch
		import dsaio, dsaio.torch
		from dsaio.safetensors import load_file, load_into, safe_open, save_file

		uri = sys.argv[1]
		tensors = {"a": torch.arange(3_000_000.0).view(1000, 3000), "b": torch.ones(7, dtype=torch.int8), "c": torch.ones(5)}
		def same(x):
		    return x.keys() == tensors.keys() and all(torch.equal(x[k], tensors[k]) for k in tensors)
		save_file(tensors, f"{uri}/m.safetensors")
		assert same(load_file(f"{uri}/m.safetensors"))
		into = {k: torch.zeros_like(t) for k, t in tensors.items()}
		load_into(f"{uri}/m.safetensors", into)
		assert same(into)
		with safe_open(f"{uri}/m.safetensors", "pt") as f:
		    assert torch.equal(f.get_slice("a")[3:5], tensors["a"][3:5])
		dsaio.torch.save(tensors, f"{uri}/m.pt")
		assert same(dsaio.torch.load(f"{uri}/m.pt"))
		try:
		    dsaio.torch.save({"a": lambda: 0}, f"{uri}/m.pt")
		    sys.exit("a function was saved")
		except Exception:
		    assert same(dsaio.torch.load(f"{uri}/m.pt"))
		if torch.__version__ >= "2.3":
		    import torch.distributed.checkpoint as dcp
		    from dsaio.torch.checkpoint import StorageReader, StorageWriter

		    for scale in (2, 1):
		        state = {k: t * scale for k, t in tensors.items()}
		        dcp.save(state, storage_writer=StorageWriter(f"{uri}/dcp"))
		    dcp.load(into, storage_reader=StorageReader(f"{uri}/dcp"))
		    assert same(into)
		    names = [f.name for f in dsaio.list_files(f"{uri}/dcp/")]
		    assert len(names) == 2 and "dcp/.metadata" in names, names  # what was replaced is gone
	END
}

the_example_saves_by_two_hosts_and_loads_by_three() {
	rados_start b && rados_await_online b n || return 1
	run_python torch "$(rados_uri n example)" --socket "$dir/a.sock" --socket "$dir/b.sock" \
		<client/python/examples/rados_checkpoint.py && says "$dir/out" "saved by 2 hosts, loaded by 3"
}

rados_conf a n
cp "$dir/a.conf" "$dir/b.conf"
sed -i 's/state-a/state-b/' "$dir/b.conf"
rados_start a && rados_await_online a n || exit 1
rados_use a
for t in names_are_listed_and_removed copies_are_the_same_both_ways a_copy_uses_the_daemon_of_each_side a_copy_that_is_ended_leaves_the_old_file \
	a_commit_without_an_answer_is_said_to_be_unknown \
	status_and_doctor_show_the_cluster python_writes_and_reads torch_and_safetensors_save_and_load \
	the_example_saves_by_two_hosts_and_loads_by_three; do
	run_test $t
done
exit $failed
