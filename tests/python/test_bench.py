"""The benches of the Python package measure every row, with small sizes."""

import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT

PROGRAM = os.path.join(ROOT, "tests", "bench", "python.py")


def bench(*arguments, **variables):
    # Without DeepSpeed: loading it takes longer than all rows.
    environment = dict(os.environ, DEEPSPEED_VENV="", **variables)
    command = [sys.executable, PROGRAM, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_each_row_has_rounds_or_says_why_not(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "rows.json"
    os.mkdir(tmp_path / "build")
    for name in ("dsaiod", "python"):
        os.symlink(os.path.join(os.path.abspath(os.environ.get("BUILD", "build")), name), tmp_path / "build" / name)
    sizes = ("--tensors=5", "--large=1M", "--fresh=1M", "--checkpoint=1M", "--safetensors=1M")
    done = bench("--rounds=2", *sizes, f"--json={file}", BUILD=str(tmp_path / "build"))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    lines = done.stdout.splitlines()[2:]
    assert len(lines) == len(rows) + 1 and lines[-1].startswith("bench: ")
    for row, line in zip(rows, lines):
        assert line.startswith(row["name"])
        if "beside the op" in row["name"]:
            assert "no DeepSpeed in" in row["missing"]
        elif "missing" in row and "in a folder" in row["name"]:
            assert "needs torch 2.3 or newer" in row["missing"]
        elif "missing" in row:
            assert "beside safetensors" in row["name"] and row["missing"] == "safetensors is not installed"
        else:
            assert len(row["rounds"]) % 2 == 0 and row["ratio"] is not None
            assert (" yes" in line or " NO" in line) == ("bar" in row)


@pytest.mark.parametrize("wrong", ["--rounds=1", "--large=5", "--fresh=x", "--safetensors=0", "everything"])
def test_wrong_arguments_are_refused(wrong):
    done = bench(wrong)
    assert done.returncode == 2 and "usage:" in done.stderr


# ---- tests/bench/zero_infinity.py and build/bench replay ----


def replay(daemon, folder, lines, passes=2):
    program = os.path.join(BUILD, "bench")
    if not os.path.exists(program):
        pytest.skip("build/bench is not built: make tests")
    calls = os.path.join(folder, "calls")
    with open(calls, "w") as file:
        file.write("\n".join(lines) + "\n")
    environment = dict(os.environ, DSAIO_SOCKET=daemon.socket)
    command = [program, "replay", calls, str(passes)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_calls_of_a_step_are_recorded_and_made_again(monkeypatch, daemon, folder, path):
    torch = pytest.importorskip("torch")
    import dsaio

    monkeypatch.syspath_prepend(os.path.join(ROOT, "tests", "bench"))
    import zero_infinity

    clock = zero_infinity.Clock()
    kind = clock.handle(dsaio.aio_handle)
    profile = dict(block_size=4096, queue_depth=8, single_submit=False, overlap_events=True, intra_op_parallelism=1)
    handle = kind(**profile)
    tensor = handle.new_cpu_locked_tensor(6000, torch.empty(0, dtype=torch.uint8))
    assert handle.is_pinned(tensor)
    handle.async_pwrite(tensor[1000:], path, 4)
    assert handle.wait() == 1
    handle.async_pread(tensor[:100], path)
    assert handle.sync_pread(tensor[2000:3000], path, 1) == 2
    found = zero_infinity.lines(clock, clock.calls[0][3])
    assert found[:3] == ["handle 4096 8 0 1 1", "memory 100", "memory 5000"]
    assert [line.split()[0] for line in found[3:]] == ["file", "write", "wait", "read", "read", "wait"]
    assert [line.split()[1:-1] for line in found[4:]] == [
        ["0", "0", "1", "0", "5000", "4"],
        ["0"],
        ["0", "0", "0", "0", "100", "0"],
        ["0", "0", "1", "1000", "1000", "1"],
        ["0"],
    ]
    os.truncate(path, 0)
    done = replay(daemon, folder, found)
    assert done.returncode == 0, done.stderr
    assert len([float(usec) for usec in done.stdout.split()]) == 2
    assert os.path.getsize(path) == 5004


@pytest.mark.parametrize(
    "wrong",
    [
        "memory x",
        "handle 1 2",
        "read 0 0 0 0 10 0 0",
        "wait 1 0",
        "nothing",
        "handle 4096 8 0 1 1\nread 0 0 0 1 10 0 0",
    ],
)
def test_calls_that_make_no_sense_are_refused(daemon, folder, wrong):
    done = replay(daemon, folder, ["memory 10", "file /none", *wrong.split("\n")])
    assert done.returncode == 1 and f"line {3 + wrong.count(chr(10))}:" in done.stderr


def test_a_replay_reports_the_op_that_failed(daemon, folder, path):
    lines = ["handle 4096 8 0 1 1", "memory 10", "file " + path, "read 0 0 0 0 10 0 0", "wait 0 0"]
    done = replay(daemon, folder, lines)
    assert done.returncode == 1 and path in done.stderr and done.stdout == ""
