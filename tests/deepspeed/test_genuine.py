"""Genuine DeepSpeed, unchanged, on dsaiod: training, checkpoints, ds_io, ds_nvme_tune, and its own tests.

Programs run by `python -m dsaio run`, with PYTHONPATH alone, so their children are reached by the sitecustomize.
The daemon's counters show that the bytes went through it.  make check-deepspeed runs this.
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tarfile

import pytest

from conftest import BUILD, PACKAGE, SECONDS

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.dirname(sys.executable)

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: make check-deepspeed")


def run(*arguments, cwd=None, **variables):
    """What Python prints to standard output."""
    environment = dict(os.environ, PYTHONPATH=PACKAGE, **variables)
    process = subprocess.run(
        [sys.executable, "-m", "dsaio", "run", *arguments],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=2 * SECONDS,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    return process.stdout


class Counters:
    """Bytes that the daemon has moved since this was made."""

    def __init__(self, daemon):
        self._daemon = daemon
        self._read, self._written = self._look()

    def _look(self):
        command = [os.path.join(BUILD, "dsaioctl"), "stores", "--json"]
        output = subprocess.run(
            command, env=dict(os.environ, DSAIO_SOCKET=self._daemon.socket), stdout=subprocess.PIPE, check=True
        ).stdout
        counters = [store["counters"] for store in json.loads(output)["stores"]]
        return sum(c["read_bytes"] for c in counters), sum(c["write_bytes"] for c in counters)

    def read(self):
        return self._look()[0] - self._read

    def written(self):
        return self._look()[1] - self._written


@pytest.fixture
def counters(daemon):
    return Counters(daemon)


# ---- ZeRO-Infinity ----


def test_training_on_nvme_is_bit_equal_to_training_in_memory(folder, counters):
    program = os.path.join(HERE, "training.py")
    in_memory = json.loads(run(program, "cpu", folder).splitlines()[-1])
    assert counters.written() == 0
    on_nvme = json.loads(run(program, "nvme", folder).splitlines()[-1])
    assert on_nvme == in_memory
    assert len(set(on_nvme["losses"])) == on_nvme["steps"] == 5
    # Adam's two states and the 32-bit weights of a million parameters, in most of five steps.
    assert counters.read() > 4 * 12e6 and counters.written() > 4 * 12e6


RESTARTS = {"step 1\n": signal.SIGKILL, "step 2\n": signal.SIGTERM, "step 3\n": signal.SIGKILL}


def test_training_through_three_restarts_is_bit_equal(own_daemon):
    """Each restart comes in the middle of a step's transfers."""
    arguments = [sys.executable, "-m", "dsaio", "run", os.path.join(HERE, "training.py"), "nvme", own_daemon.store]
    environment = dict(os.environ, PYTHONPATH=PACKAGE, DSAIO_SOCKET=own_daemon.socket, DSAIO_RECONNECT="60")
    undisturbed = json.loads(run(*arguments[4:], DSAIO_SOCKET=own_daemon.socket).splitlines()[-1])
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, universal_newlines=True) as training:
        try:
            for line in training.stdout:
                if line in RESTARTS:
                    counters = Counters(own_daemon)
                    while counters.read() < 4e6:
                        assert training.poll() is None
                    own_daemon.restart(RESTARTS[line])
        finally:
            training.kill()
    assert json.loads(line) == undisturbed and undisturbed["steps"] == 5


# ---- checkpoints ----


def test_checkpoints_of_fast_file_writer_are_loaded_by_torch(folder, counters):
    output = run(os.path.join(HERE, "checkpoint.py"), "writer", folder, DS_PIN_MEMORY_BACKEND="native")
    assert output.splitlines()[-1] == "equal"
    assert counters.written() > 4 * 12e6


def test_the_decoupled_writer_s_process_uses_dsaio(folder, counters):
    output = run(os.path.join(HERE, "checkpoint.py"), "engine", folder, DS_PIN_MEMORY_BACKEND="native")
    assert output.splitlines()[-1] == "equal"
    assert counters.written() > 1e6


# ---- gds_handle ----

GDS = """
import sys
import torch
from deepspeed.io import FastFileWriter, FastFileWriterConfig
from deepspeed.ops import op_builder
from deepspeed.ops.op_builder import GDSBuilder, SpatialInferenceBuilder
from deepspeed.ops.op_builder.gds import GDSBuilder as OfCuda
from deepspeed.ops.op_builder.utils import UtilsBuilder

import deepspeed.io.fast_file_writer
import dsaio

# DeepSpeed has a stand-in for it on CPU.
deepspeed.io.fast_file_writer.UtilsBuilder = UtilsBuilder

for builder in (GDSBuilder, OfCuda):
    assert builder().is_compatible() is True and builder().load(verbose=False) is dsaio
try:
    SpatialInferenceBuilder().load()
    assert False
except ValueError as e:
    assert "not been implemented" in str(e)
handle = GDSBuilder().load().gds_handle(block_size=1 << 20, queue_depth=8, intra_op_parallelism=2)
tensors = {"a": torch.arange(3000000), "b": torch.ones(7)}
buffer = torch.zeros(4 << 20, dtype=torch.uint8)
writer = FastFileWriter(sys.argv[1], FastFileWriterConfig(dnvme_handle=handle, pinned_tensor=buffer))
torch.save(tensors, writer)
writer.close()
back = torch.load(sys.argv[1])
assert all(torch.equal(back[name], tensors[name]) for name in tensors)
"""


def test_gds_builder_of_both_builds_loads_dsaio_and_its_handle_takes_cpu_tensors(folder, counters, tmp_path):
    program = tmp_path / "gds.py"
    program.write_text(GDS)
    run(str(program), os.path.join(folder, "f"))
    assert counters.written() > 24e6 - (4 << 20)


# ---- ds_io and ds_nvme_tune ----


@pytest.mark.parametrize("engine", ["aio_handle"])
@pytest.mark.parametrize("n_processes", [1, 2])
def test_ds_io_uses_dsaio_in_its_processes(folder, counters, n_processes, engine):
    size = 8 << 20
    arguments = ["--folder", folder, "--io_size", "8M", "--multi_process", str(n_processes), "--engine", engine]
    arguments += ["--loops", "2"]
    output = run(os.path.join(BIN, "ds_io"), *arguments)
    assert "E2E Write Speed" in output
    assert counters.written() >= 2 * n_processes * size
    output = run(os.path.join(BIN, "ds_io"), *arguments, "--read")
    assert "E2E Read Speed" in output
    assert counters.read() >= 2 * n_processes * size


def test_ds_nvme_tune_tunes_dsaio(folder, counters, tmp_path):
    space = {
        "block_size": ["1M"],
        "queue_depth": [8],
        "sequential_requests": [False],
        "single_submit": [False],
        "io_parallel": [1],
    }
    (tmp_path / "space.json").write_text(json.dumps(space))
    arguments = ["--nvme_dir", folder, "--sweep_config", str(tmp_path / "space.json"), "--io_size", "8M"]
    output = run(os.path.join(BIN, "ds_nvme_tune"), *arguments, "--log_dir", str(tmp_path / "logs"), cwd=str(tmp_path))
    assert "Best performance (GB/sec)" in output
    assert counters.read() >= 8 << 20 and counters.written() >= 8 << 20


# ---- DeepSpeed's own tests ----


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """The folder of DeepSpeed's source release, or why there is none."""
    import deepspeed

    folder = str(tmp_path_factory.mktemp("sources"))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download", "-d", folder]
    command += ["--no-binary", "deepspeed", "--no-deps", "--no-build-isolation", f"deepspeed=={deepspeed.__version__}"]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    archives = glob.glob(os.path.join(folder, "*.tar.gz"))
    if not archives:
        pytest.skip(f"pip cannot fetch the source release of DeepSpeed: {process.stdout[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder)
    return archives[0][: -len(".tar.gz")]


@pytest.mark.parametrize("name", ["test_aio.py", "test_pinned_manager.py", "test_aio_gil.py"])
def test_deepspeed_s_own_tests_pass(sources, name, folder):
    files = glob.glob(os.path.join(sources, "tests", "**", name), recursive=True)
    if not files:
        pytest.skip(f"{os.path.basename(sources)}'s source release has no {name}")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", os.path.join(folder, "t"), files[0])
