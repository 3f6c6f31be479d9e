"""A daemon for all tests, and what they share.

BUILD (default build) is where dsaiod and the package lie; TMPDIR (default /var/tmp) is for files.  Tests
that end a process, fork, or kill a daemon run a Python of their own: the fixture `python`.
"""

import contextlib
import ctypes
import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
PACKAGE = os.path.join(BUILD, "python")
sys.path.insert(0, PACKAGE)

MIB = 1 << 20
SECONDS = 300 * int(os.environ.get("TEST_TIME_FACTOR") or 1)  # until a Python of its own counts as hung


def _end_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@pytest.fixture(autouse=True)
def no_test_hangs():
    """Ends the run, with the stacks of all threads, where a test takes too long."""
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Daemon:
    """dsaiod on a socket and a store of its own.

    prepare: called in its process before it starts.  config: lines of its configuration.
    """

    def __init__(self, prepare=lambda: None, config=""):
        self.dir = tempfile.mkdtemp(prefix="dsaio-python-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.store = os.path.join(self.dir, "store")
        self.socket = os.path.join(self.dir, "s.sock")
        os.mkdir(self.store)
        self.log = open(os.path.join(self.dir, "log"), "w+b")
        make_file(os.path.join(self.dir, "dsaiod.conf"), config.encode())
        self._prepare = prepare
        self._start()

    def _start(self):
        command = [os.path.join(BUILD, "dsaiod"), "--config", os.path.join(self.dir, "dsaiod.conf")]
        command += ["--socket", self.socket]
        command += ["--store", "t=" + self.store]

        def before():
            _end_with_parent()
            self._prepare()

        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=before
        )
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if b" ready: " in line:
                break
        else:
            raise RuntimeError(f"dsaiod did not start: {b''.join(lines).decode()}")
        # It writes few lines, which fit into the pipe.

    def restart(self, signal_number):
        """Ends it by that signal.  Another one takes its place."""
        self.process.send_signal(signal_number)
        self.process.wait()
        self.process.stderr.close()
        self._start()

    @contextlib.contextmanager
    def frozen(self):
        """It stands still meanwhile: what is open stays open.  Its answers come after."""
        gc.collect()  # handles of earlier tests, whose end needs the daemon, may be in cycles
        gc.disable()
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)
            gc.enable()

    def stop(self):
        self.process.send_signal(signal.SIGCONT)  # a test may have left it frozen
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()
        self.log.close()
        shutil.rmtree(self.dir)


@pytest.fixture(scope="session", autouse=True)
def daemon():
    daemon = Daemon()
    os.environ.update(DSAIO_SOCKET=daemon.socket, DSAIO_AUTOSTART="0", DSAIO_RECONNECT="0")
    yield daemon
    daemon.stop()


@pytest.fixture
def own_daemon():
    """A daemon for one test, which may kill it."""
    daemon = Daemon()
    yield daemon
    daemon.stop()


@pytest.fixture
def folder(daemon):
    """A folder in the daemon's store."""
    path = tempfile.mkdtemp(dir=daemon.store)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def path(folder):
    return os.path.join(folder, "f")


def make_file(path, data):
    with open(path, "wb") as f:
        f.write(data)


def file_bytes(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.fixture
def handle():
    import dsaio

    with dsaio.aio_handle() as handle:
        yield handle


@pytest.fixture
def copied(monkeypatch):
    """The bytes of each copy by ctypes.memmove()."""
    lengths = []
    real = ctypes.memmove

    def copy(to, source, nbytes):
        lengths.append(nbytes)
        real(to, source, nbytes)

    monkeypatch.setattr(ctypes, "memmove", copy)
    return lengths


class Numpy:
    """Tensors by numpy.  Bytes are those of a tensor in the order of its elements."""

    dtypes = "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128 bool".split()

    def __init__(self):
        self.numpy = pytest.importorskip("numpy")

    def empty(self, dtype="uint8"):
        return self.numpy.empty(0, dtype)

    def empty_pinned(self, shape, dtype="uint8"):
        from dsaio.numpy import empty

        return empty(shape, dtype)

    def default_dtype(self):
        return self.numpy.empty(0).dtype

    def of(self, data, dtype="uint8"):
        return self.numpy.frombuffer(bytearray(data), dtype)

    def bytes(self, tensor):
        return tensor.tobytes()

    def address(self, tensor):
        return tensor.__array_interface__["data"][0]

    def narrow(self, tensor, start, n):
        return tensor[start : start + n]


class Torch:
    """The same by torch."""

    dtypes = Numpy.dtypes + ["bfloat16"]

    def __init__(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed: make deps-python")

    def empty(self, dtype="uint8"):
        return self.torch.empty(0, dtype=getattr(self.torch, dtype))

    def empty_pinned(self, shape, dtype="uint8"):
        from dsaio.torch import empty

        return empty(shape, getattr(self.torch, dtype) if hasattr(self.torch, str(dtype)) else dtype)

    def default_dtype(self):
        return self.torch.empty(0).dtype

    def of(self, data, dtype="uint8"):
        return self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, dtype))

    def bytes(self, tensor):
        tensor = tensor.contiguous()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def address(self, tensor):
        return tensor.data_ptr()

    def narrow(self, tensor, start, n):
        return tensor.narrow(0, start, n)


@pytest.fixture(params=[Numpy, Torch], ids=["numpy", "torch"])
def kind(request):
    return request.param()


PRELUDE = """
import dsaio, os, signal, sys
folder = {folder!r}
daemon = {daemon}
# A shell's background job begins with it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
def freeze():
    os.kill(daemon, signal.SIGSTOP)
    is_running = True
    while is_running:
        with open(f"/proc/{{daemon}}/stat") as stat:
            is_running = ") T " not in stat.read()
"""


@pytest.fixture
def python(daemon, folder):
    """Runs Python code in a process of its own, after PRELUDE.  Returns what it printed."""

    def run(code, daemon=daemon, status=0, options=(), **variables):
        environment = dict(os.environ, PYTHONPATH=PACKAGE, DSAIO_SOCKET=daemon.socket, DSAIO_RECONNECT="0")
        environment.update(variables)
        place = folder if folder.startswith(daemon.dir) else daemon.store
        code = PRELUDE.format(folder=place, daemon=daemon.process.pid) + textwrap.dedent(code)
        process = subprocess.Popen(
            [sys.executable, *options, "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=SECONDS)[0]
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert process.returncode == status, output
        return output

    return run


def pytest_unconfigure(config):
    """The last line is that of the project's other tests."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    n = {what: len(reporter.stats.get(what, [])) for what in ("passed", "failed", "error", "skipped")}
    for report in reporter.stats.get("skipped", []):
        print(f"skip {report.nodeid}: {report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr}")
    print(f"{n['passed']} passed, {n['failed'] + n['error']} failed, {n['skipped']} skipped")
