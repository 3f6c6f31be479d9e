"""tests/bench/python.py measures every row, with small sizes."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT

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
    sizes = ("--tensors=5", "--large=1M", "--fresh=1M", "--safetensors=1M")
    done = bench("--rounds=2", *sizes, f"--json={file}", BUILD=str(tmp_path / "build"))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    lines = done.stdout.splitlines()[2:]
    assert len(lines) == len(rows) + 1 and lines[-1].startswith("bench: ")
    for row, line in zip(rows, lines):
        assert line.startswith(row["name"])
        if "beside the op" in row["name"]:
            assert "no DeepSpeed in" in row["missing"]
        elif "missing" in row:
            assert "beside safetensors" in row["name"] and row["missing"] == "safetensors is not installed"
        else:
            assert len(row["rounds"]) % 2 == 0 and row["ratio"] is not None
            assert (" yes" in line or " NO" in line) == ("bar" in row)


@pytest.mark.parametrize("wrong", ["--rounds=1", "--large=5", "--fresh=x", "--safetensors=0", "everything"])
def test_wrong_arguments_are_refused(wrong):
    done = bench(wrong)
    assert done.returncode == 2 and "usage:" in done.stderr
