"""The worst defects of DeepNVMe's op, and that the opposite holds here.

Others of them are in test_deepnvme.py: slices at odd addresses, wait() with nothing pending, a handle that
is dropped with work pending, and a file that is too short.
"""

import ctypes
import gc
import itertools
import os
import resource
import signal
import time

import pytest

import dsaio
from conftest import MIB, Daemon, file_bytes, make_file


# ---- it never reads completion results ----


@pytest.mark.parametrize("memory", ["bytes", "dsaio.alloc"])
@pytest.mark.parametrize("name", ["path", "fd"])
def test_a_full_disk_is_an_error(python, memory, name):
    output = python(
        f"""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 1 << 18, 1 << 14
        disk = folder + "/disk"
        os.mkdir(disk)
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \\
           libc.mount(b"tmpfs", disk.encode(), b"tmpfs", 0, b"size=8m"):
            print("cannot mount:", os.strerror(ctypes.get_errno()))
            sys.exit()
        path = disk + "/f"
        fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        handle = dsaio.aio_handle()
        assert handle.async_pwrite({memory}(16 << 20), {name}) in (0, -1)
        try:
            handle.wait()
        except OSError as e:
            assert e.errno == errno.ENOSPC and "No space left" in str(e), e
            assert path in str(e) or {name} == fd, e
        else:
            raise AssertionError("it has not failed")
        assert os.stat(path).st_blocks * 512 <= 8 << 20
        """
    )
    if output:
        pytest.skip(output.strip())


# ---- signals ----


def test_signals_do_not_disturb_ops(handle, path):
    data = os.urandom(3 * MIB + 5)
    n = 0

    def on_alarm(*_):
        nonlocal n
        n += 1

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while n < 200:
            pinned, private = dsaio.alloc(len(data)), bytearray(len(data))
            assert handle.sync_pwrite(data, path) == 1
            assert handle.async_pread(pinned, path) == 0
            assert handle.async_pread(private, path) == 0
            assert handle.wait() == 2
            assert pinned == data and private == data
            assert handle.submit_read(private, path).wait(timeout=60) == len(data)
            dsaio.File(path).close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# ---- contexts beyond fs.aio-max-nr ----


def test_handles_for_more_blocks_than_the_kernel_has_room_for(folder):
    with open("/proc/sys/fs/aio-max-nr") as file:
        n = min(int(file.read()) // 4096 + 8, 200)
    handles = [dsaio.aio_handle(queue_depth=4096, overlap_events=True) for _ in range(n)]
    for i, handle in enumerate(handles):
        assert handle.async_pwrite(bytes([i % 256]) * 10000, f"{folder}/{i}") == 0
    for i, handle in enumerate(handles):
        assert handle.wait() == 1
        assert file_bytes(f"{folder}/{i}") == bytes([i % 256]) * 10000
        handle.close()


def test_a_handle_too_many_is_an_error(python, own_daemon):
    python(
        """
        handles = []
        try:
            while len(handles) < 100000:
                handles.append(dsaio.Handle())
        except OSError as e:
            assert "client_handles" in e.strerror, e
        assert len(handles) >= 16
        handles.pop().close()
        assert handles[0].submit_write(b"x" * 5000, folder + "/f").wait() == 5000
        """,
        daemon=own_daemon,
    )


# ---- memory that cannot be locked ----


def refuse_locking():
    PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # EPERM: there is none to lose


def test_memory_that_cannot_be_locked_is_an_error(python):
    daemon = Daemon(prepare=refuse_locking)
    try:
        python(
            """
            import errno
            handle = dsaio.aio_handle()
            try:
                dsaio.alloc(1 << 20)
            except OSError as e:
                assert e.errno == errno.ENOMEM and "cannot be locked" in e.strerror, e
            else:
                raise AssertionError("it has not failed")
            # A private buffer needs pinned memory for its copy.
            try:
                started = handle.async_pwrite(b"x" * 5000, folder + "/f")
                handle.wait()
                assert started == -1
            except OSError as e:
                assert started == 0 and "cannot be locked" in e.strerror, e
            """,
            daemon=daemon,
        )
    finally:
        daemon.stop()


def test_memory_that_is_not_locked_was_served_without_a_word(python):
    daemon = Daemon(prepare=refuse_locking, config="[daemon]\nlock = auto\nhuge_pages = no\n")
    try:
        python(
            """
            import warnings
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                memory = [dsaio.alloc(1 << 20) for _ in range(3)]
            (warning,) = seen
            assert warning.category is ResourceWarning, warning
            assert "raise RLIMIT_MEMLOCK of the daemon (ulimit -l" in str(warning.message), warning
            """,
            daemon=daemon,
        )
    finally:
        daemon.stop()


# ---- "pinned" views with gaps ----


def test_a_pinned_view_with_gaps_is_filled(handle, kind, path):
    make_file(path, bytes(range(80)))
    matrix = handle.new_cpu_locked_tensor(240, kind.empty()).reshape(12, 20)
    matrix[:] = 0
    assert handle.is_pinned(matrix[::3])
    assert handle.sync_pread(matrix[::3], path) == 1
    assert kind.bytes(matrix[::3]) == bytes(range(80))
    assert kind.bytes(matrix[1::3]) == bytes(80)
    assert handle.sync_pwrite(matrix[::3, 4], path) == 1
    assert file_bytes(path)[:4] == bytes([4, 24, 44, 64])


# ---- "async" that is not ----


def test_ops_on_private_memory_start_while_the_daemon_stands_still(handle, daemon, folder):
    """Nothing is waited for at the start of an op, however large it is."""
    data = os.urandom(64 * MIB)
    for name in "ab":
        assert handle.sync_pwrite(data, f"{folder}/{name}") == 1
    buffer = bytearray(len(data))
    assert handle.sync_pread(buffer, folder + "/a") == 1
    buffer[:] = bytes(len(data))
    with daemon.frozen():
        assert handle.async_pread(buffer, folder + "/a") == 0
        assert handle.async_pwrite(data[::-1], folder + "/b") == 0
    assert handle.wait() == 2
    assert buffer == data
    assert file_bytes(folder + "/b") == data[::-1]


# ---- one synchronous op that waits for all others ----


def test_an_op_s_wait_and_read_leave_other_ops_alone(handle, path, capsys):
    make_file(path, b"x" * 5000)
    for _ in range(3):
        assert handle.async_pread(bytearray(5000), path) == 0
    op = handle.submit_read(bytearray(5000), path)
    assert handle.submit_read(bytearray(5000), path).wait() == 5000
    assert handle.read(bytearray(5000), path, False) == 0
    assert handle.stats().open == 4  # it has looked at none of them
    assert handle.wait() == 3 and op.wait() == 5000


# ---- the end of objects ----


@pytest.fixture
def quick_gc():
    """It looks at what the test makes alone, not at all of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_objects_of_an_open_op_go_in_any_order(daemon, folder, quick_gc):
    data = os.urandom(70000)
    for i, order in enumerate(itertools.permutations(("handle", "file", "op", "view"))):
        path = f"{folder}/{i}"
        objects = {"handle": dsaio.Handle(), "file": dsaio.File(path, os.O_RDWR | os.O_CREAT)}
        objects["view"] = dsaio.alloc(100000)[7:70007]
        objects["view"][:] = bytes(70000)
        # The first use of a file asks the daemon.
        assert objects["handle"].submit_write(objects["view"], objects["file"]).wait() == 70000
        objects["view"][:] = data
        with daemon.frozen():
            objects["op"] = objects["handle"].submit_write(objects["view"], objects["file"])
            for name in order:
                del objects[name]
                gc.collect()
        while file_bytes(path) != data:
            time.sleep(0.001)
