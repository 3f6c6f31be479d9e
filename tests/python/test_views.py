"""Files that all processes of the host share: the loaders of dsaio.safetensors on views."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from conftest import BUILD, PACKAGE, Daemon
from dsaio.safetensors import save_file

CTL = os.path.join(BUILD, "dsaioctl")


@pytest.fixture(autouse=True)
def needs_numpy(monkeypatch):
    monkeypatch.setenv("DSAIOCTL", CTL)
    return pytest.importorskip("numpy")


@pytest.fixture
def small_daemon():
    daemon = Daemon(config="[daemon]\npool_size = 256M\nclient_pool_max = 128M\nuser_pool_max = 256M\n")
    yield daemon
    daemon.stop()


def test_a_file_beyond_client_pool_max_is_shared_as_far_as_that_goes(python, small_daemon):
    python(
        """
        import json, numpy, subprocess, time
        from dsaio import safetensors
        path = folder + "/f"
        wanted = {str(i): numpy.arange(i, i + (8 << 20), dtype="u4") for i in range(5)}  # 160 MiB
        safetensors.save_file(wanted, path)
        at_once = safetensors.load_file(path, framework="np")  # just changed, so not shared
        time.sleep(2.1)
        with safetensors.safe_open(path, "np") as file:
            tensors = file.get_tensors()
        for loaded in (at_once, tensors):
            assert all((loaded[name] == wanted[name]).all() for name in wanted)
            loaded["3"][:] = 7  # it is its own
        ctl = [os.environ["DSAIOCTL"], "status", "--json"]
        pool = json.loads(subprocess.check_output(ctl))["pool"]
        assert 1 <= pool["views"] < 3 and pool["view_bytes"] <= 128 << 20, pool
        safetensors.save_file(tensors, path + "2")
        del loaded, tensors
        again = safetensors.load_file(path + "2", framework="np", pinned=False)
        assert (again["3"] == 7).all() and all((again[name] == wanted[name]).all() for name in "0124")
        """,
        daemon=small_daemon,
    )


def test_files_for_which_the_pool_has_no_room_are_read_into_ordinary_memory(python, small_daemon):
    python(
        """
        import subprocess, numpy, time, warnings
        from dsaio import safetensors
        path = folder + "/f"
        wanted = {str(i): numpy.arange(i, i + (8 << 20), dtype="u4") for i in range(3)}  # 96 MiB
        safetensors.save_file(wanted, path)
        time.sleep(2.1)
        code = "import dsaio; m = dsaio.alloc(100 << 20); print(flush=True); input()"
        others = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                  for _ in range(2)]
        for other in others:
            other.stdout.readline()
        for least in (safetensors._SHARED_LEAST, 1 << 40):  # as what can be shared, and as a small one
            safetensors._SHARED_LEAST = least
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                tensors = safetensors.load_file(path, framework="np")
            if least == 1 << 40:
                assert len(seen) == 1 and "not pinned: " in str(seen[0].message), seen
                assert seen[0].filename == "<string>", seen[0]
            else:
                assert not seen
            assert not any(map(dsaio.is_pinned, tensors.values()))
            assert all((tensors[name] == wanted[name]).all() for name in wanted)
        dsaio.alloc(16 << 20)  # what was taken is free again
        for other in others:
            other.communicate()
        """,
        daemon=small_daemon,
    )


@pytest.fixture(scope="module")
def shared_file(daemon):
    """160 MiB that were written some time ago."""
    folder = tempfile.mkdtemp(dir=daemon.store)
    path = os.path.join(folder, "f")
    numpy = pytest.importorskip("numpy")
    save_file({str(i): numpy.arange(i, i + (8 << 20), dtype="i4") for i in range(5)}, path)
    time.sleep(2.1)
    yield path
    shutil.rmtree(folder)


WANTED = """
import gc, numpy, time
from dsaio import safetensors
path = {path!r}
def is_right(tensors):
    return all((tensors[str(i)] == numpy.arange(i, i + (8 << 20), dtype="u4")).all() for i in range(5))
"""


def views_of(daemon):
    ctl = [CTL, "--socket", daemon.socket, "status", "--json"]
    return json.loads(subprocess.check_output(ctl))["pool"]


def test_processes_share_one_copy_and_a_write_is_one_s_own(python, daemon, shared_file):
    with open(shared_file, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = views_of(daemon)
    outputs = []
    threads = [
        threading.Thread(
            target=lambda: outputs.append(
                python(
                    WANTED.format(path=shared_file)
                    + """
tensors = safetensors.load_file(path, framework="np")
assert is_right(tensors)
tensors["2"][:100] = 5
with safetensors.safe_open(path, "np") as file:
    assert (file.get_slice("2")[:100] == numpy.arange(2, 102)).all()
time.sleep(1)
assert (tensors["2"][:100] == 5).all() and tensors["2"][100] == 102
"""
                )
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    most = before
    while any(thread.is_alive() for thread in threads):
        now = views_of(daemon)
        most = max(most, now, key=lambda pool: pool["view_uses"])
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert len(outputs) == 4
    assert most["views"] == 3 and most["view_bytes"] < 170 << 20, most  # once for all of them
    assert most["view_uses"] > 3, most
    assert views_of(daemon)["view_saved_bytes"] > before["view_saved_bytes"]


def test_memory_of_a_view_lives_as_long_as_one_tensor(python, daemon, shared_file):
    python(
        WANTED.format(path=shared_file)
        + """
import threading
ctl = [os.environ["DSAIOCTL"], "status", "--json"]
def uses():
    import json, subprocess
    return json.loads(subprocess.check_output(ctl))["pool"]["view_uses"]
with safetensors.safe_open(path, "np") as file:
    first = file.get_tensor("0")
    assert uses() >= 1
    threads = [threading.Thread(target=file.get_tensors) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    tensors = file.get_tensors()
part = tensors["4"][5:7]
del first, tensors, file
gc.collect()
assert list(part) == [9, 10] and uses() >= 1
pid = os.fork()
if pid == 0:
    ok = list(part) == [9, 10]
    del part
    ok = ok and is_right(safetensors.load_file(path, framework="np"))
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
assert list(part) == [9, 10]
del part
gc.collect()
for _ in range(100):
    if uses() == 0: break
    time.sleep(0.05)
else:
    raise AssertionError(uses())
"""
    )


def test_a_shared_file_that_is_changed_is_an_error_and_a_replaced_one_is_read(python, folder):
    python(
        """
        import numpy, time
        from dsaio import safetensors
        path = folder + "/f"
        wanted = {"a": numpy.arange(24 << 20, dtype="u4"), "b": numpy.zeros(16, "u1")}
        def save():
            safetensors.save_file(wanted, path)
            time.sleep(2.1)
        for is_begun in (False, True):
            save()
            with safetensors.safe_open(path, "np") as file:
                if is_begun:
                    assert list(file.get_slice("a")[:4]) == [0, 1, 2, 3]
                safetensors.save_file({"a": numpy.zeros(3)}, path)
                assert (file.get_tensor("a") == wanted["a"]).all()
        save()
        with safetensors.safe_open(path, "np") as file:
            os.truncate(path, 80 << 20)
            try:
                file.get_tensor("a")
            except safetensors.SafetensorError as e:
                assert "was changed after it was opened" in str(e), e
            else:
                raise AssertionError("cut")
        for change in ("write", "cut"):
            save()
            with safetensors.safe_open(path, "np") as file:
                first = file.get_slice("a")[:4]
                with open(path, "r+b") as other:
                    if change == "write":
                        other.seek(90 << 20)
                        other.write(b"x")
                    else:
                        other.truncate(80 << 20)
                try:
                    file.get_tensors()
                except safetensors.SafetensorError as e:
                    assert "was changed after it was opened: open it again" in str(e), e
                else:
                    raise AssertionError(change)
                assert list(first) == [0, 1, 2, 3]
        """
    )


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_shared_tensors_outlive_the_daemon(python, own_daemon, signal_number):
    path = os.path.join(own_daemon.store, "f")
    code = (
        WANTED.format(path=path)
        + """
safetensors.save_file({str(i): numpy.arange(i, i + (8 << 20), dtype="u4") for i in range(5)}, path)
time.sleep(2.1)
file = safetensors.safe_open(path, "np")
first = file.get_tensor("0")
print("ready", flush=True)
sys.stdin.readline()
tensors = file.get_tensors()
assert is_right(tensors) and (first == tensors["0"]).all()
assert is_right(safetensors.load_file(path, framework="np"))
"""
    )
    environment = dict(os.environ, PYTHONPATH=PACKAGE, DSAIO_SOCKET=own_daemon.socket, DSAIO_RECONNECT="60")
    child = subprocess.Popen(
        [sys.executable, "-c", "import os, sys\n" + code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    own_daemon.restart(signal_number)
    child.communicate("\n")
    assert child.returncode == 0


def test_tensors_for_another_device_share_views(shared_file, monkeypatch):
    pytest.importorskip("torch")
    from dsaio import _view, safetensors

    made = []
    real = _view.array
    monkeypatch.setattr(_view, "array", lambda fd, start, nbytes: made.append(nbytes) or real(fd, start, nbytes))
    with safetensors.safe_open(shared_file, "pt", device="meta") as file:
        for name in file.keys() + file.keys():
            assert file.get_tensor(name).device.type == "meta"
    assert made == [os.path.getsize(shared_file)]
    del made[:]
    monkeypatch.setattr(safetensors, "_WINDOW", 64 << 20)
    assert len(safetensors.load_file(shared_file, device="meta")) == 5
    assert len(made) == 3 and max(made) < 70 << 20


LOADER = """
import numpy, os, random, sys, time
from dsaio import safetensors
path = sys.argv[1]

def load():
    try:
        tensors = safetensors.load_file(path, framework="np")
    except (OSError, safetensors.SafetensorError) as e:
        return f"error {type(e).__name__}"
    versions = {int(version) for tensor in tensors.values() for version in (tensor.min(), tensor.max())}
    return "whole" if len(versions) == 1 else f"MIXED {versions}"

n_killed = 0
while n_killed < 100 or not os.path.exists(path + ".stop"):
    pid = os.fork()
    if pid == 0:
        os.write(1, (load() + "\\n").encode())
        os._exit(0)
    if random.random() < 0.8:  # the others shall end whole, however slow the host is
        time.sleep(random.uniform(0, 0.25))
        os.kill(pid, 9)
    if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
        n_killed += 1
        print("killed", flush=True)
"""


def test_each_load_has_one_version_while_clients_and_daemons_are_killed_and_the_file_changes(own_daemon, needs_numpy):
    numpy = needs_numpy
    path = os.path.join(own_daemon.store, "f")
    sizes = {str(i): 4 << 20 for i in range(5)}  # 80 MiB: two pieces

    def tensors_of(version):
        return {name: numpy.full(n, version, "u4") for name, n in sizes.items()}

    save_file(tensors_of(1), path)
    environment = dict(os.environ, PYTHONPATH=PACKAGE, DSAIO_SOCKET=own_daemon.socket, DSAIO_RECONNECT="60")
    command = [sys.executable, "-c", LOADER, path]
    loaders = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(2)]
    for i in range(1, 21):
        time.sleep(2.1)
        own_daemon.restart(signal.SIGKILL if i % 2 else signal.SIGTERM)
        if i % 4 == 2:
            with open(path, "r+b") as file:  # other times, the same bytes
                file.seek(-4, os.SEEK_END)
                last = file.read()
                file.seek(-4, os.SEEK_END)
                file.write(last)
        elif i % 4 == 0:
            os.truncate(path, 60 << 20)
            time.sleep(0.3)
        if i % 2 == 0:
            save_file(tensors_of(i), path)
    with open(path + ".stop", "wb"):
        pass
    output = "".join(loader.communicate()[0] for loader in loaders)
    assert [loader.returncode for loader in loaders] == [0, 0]
    lines = output.split("\n")
    assert "MIXED" not in output, output
    n_errors = sum(line.startswith("error") for line in lines)
    assert lines.count("killed") >= 200 and lines.count("whole") > max(20, n_errors), output
