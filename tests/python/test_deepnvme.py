"""aio_handle and its like: every method, argument name, default and result of DeepNVMe."""

import array
import contextlib
import ctypes
import errno
import gc
import inspect
import operator
import os
import sys
import threading
import weakref

import pytest

import dsaio
from dsaio import _library as library
from dsaio import _op, deepnvme
from conftest import MIB, file_bytes, make_file

# ---- the constructor ----


def test_defaults_are_those_of_deepnvme(handle):
    assert handle.get_block_size() == 1048576
    assert handle.get_queue_depth() == 128
    assert handle.get_single_submit() is False
    assert handle.get_overlap_events() is False
    assert handle.get_intra_op_parallelism() == 1
    assert handle.get_alignment() == 512


def test_values_by_position_and_by_name():
    for handle in (
        dsaio.aio_handle(1024, 32, True, True, 4),
        dsaio.aio_handle(
            block_size=1024, queue_depth=32, single_submit=True, overlap_events=True, intra_op_parallelism=4
        ),
    ):
        assert (handle.get_block_size(), handle.get_queue_depth()) == (1024, 32)
        assert handle.get_single_submit() is True and handle.get_overlap_events() is True
        assert (handle.get_intra_op_parallelism(), handle.get_alignment()) == (4, 2048)


@pytest.mark.parametrize("block_size", [512, 1024, 1536, 4096, 64 * MIB])
def test_block_sizes_from_512_in_steps_of_512(block_size, path):
    data = os.urandom(10000)
    make_file(path, data)
    buffer = bytearray(10000)
    with dsaio.aio_handle(block_size) as handle:
        assert handle.sync_pread(buffer, path) == 1
    assert buffer == data


@pytest.mark.parametrize(
    "name, value",
    [
        ("block_size", 511),
        ("block_size", 0),
        ("block_size", 1000),
        ("block_size", 64 * MIB + 512),
        ("block_size", -512),
        ("block_size", (1 << 32) + 512),
        ("queue_depth", 0),
        ("queue_depth", 4097),
        ("intra_op_parallelism", 0),
        ("intra_op_parallelism", 65),
    ],
)
def test_values_out_of_range_are_named(name, value):
    with pytest.raises(OSError, match=f"{name} {value}") as e:
        dsaio.aio_handle(**{name: value})
    assert e.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "name, value",
    [
        ("single_submit", "False"),
        ("overlap_events", "True"),
        ("block_size", "1M"),
        ("queue_depth", 1.5),
    ],
)
def test_text_and_fractions_are_type_errors(name, value):
    with pytest.raises(TypeError):
        dsaio.aio_handle(**{name: value})


ARGUMENTS = {
    "read": ["buffer", "filename", "validate", "file_offset"],
    "write": ["buffer", "filename", "validate", "file_offset"],
    "sync_pread": ["buffer", "filename", "file_offset"],
    "sync_pwrite": ["buffer", "filename", "file_offset"],
    "async_pread": ["buffer", "filename", "file_offset"],
    "async_pwrite": ["buffer", "filename", "file_offset", "fd"],
    "wait": [],
    "new_cpu_locked_tensor": ["num_elem", "example_tenosr", "example_tensor"],
    "free_cpu_locked_tensor": ["tensor"],
    "is_pinned": ["tensor"],
}


@pytest.mark.parametrize("method", ARGUMENTS)
def test_argument_names(method):
    parameters = inspect.signature(getattr(dsaio.aio_handle, method)).parameters
    assert list(parameters)[1:] == ARGUMENTS[method]
    if "file_offset" in parameters:
        assert parameters["file_offset"].default == 0


FUNCTIONS = {
    "aio_read": "buffer filename block_size queue_depth single_submit overlap_events validate",
    "aio_write": "buffer filename block_size queue_depth single_submit overlap_events validate",
    "deepspeed_memcpy": "dest src",
    "pin_handle.new_cpu_locked_tensor": "self num_elem example_tensor",
    "pin_handle.free_cpu_locked_tensor": "self locked_tensor",
    "pin_handle.free_cpu_locked_tensor_by_ptr": "self address",
    "pin_handle.is_pinned": "self tensor",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_argument_names_of_functions_and_of_pin_handle(name):
    parameters = inspect.signature(operator.attrgetter(name)(dsaio)).parameters
    assert list(parameters) == FUNCTIONS[name].split()
    assert all(p.default is inspect.Parameter.empty for p in parameters.values())


def test_each_method_by_names_alone_gives_its_result(handle, kind, path, capsys):
    """Exactly: DeepSpeed asserts on some of them."""
    tensor = kind.of(os.urandom(4096))
    file = {"buffer": tensor, "filename": path, "file_offset": 0}
    results = {
        "write": handle.write(**file, validate=False),
        "read": handle.read(**file, validate=False),
        "sync_pwrite": handle.sync_pwrite(**file),
        "sync_pread": handle.sync_pread(**file),
        "async_pwrite": handle.async_pwrite(**file),
        "async_pread": handle.async_pread(**file),
        "pwrite": handle.pwrite(**file, validate=False, **{"async": True}),
        "pread": handle.pread(**file, validate=False, **{"async": True}),
        "wait": handle.wait(),
        "pwrite, not async": handle.pwrite(**file, validate=False, **{"async": False}),
        "is_pinned": handle.is_pinned(tensor=tensor),
        "free_cpu_locked_tensor": handle.free_cpu_locked_tensor(tensor=tensor),
    }
    pinned = handle.new_cpu_locked_tensor(num_elem=7, example_tenosr=tensor)
    results["is_pinned, pinned"] = handle.is_pinned(tensor=pinned)
    results["free_cpu_locked_tensor, pinned"] = handle.free_cpu_locked_tensor(tensor=pinned)
    expected = {name: 0 for name in ("write", "read", "async_pwrite", "async_pread", "pwrite", "pread")}
    expected.update({"sync_pwrite": 1, "sync_pread": 1, "wait": 4, "pwrite, not async": 1})
    expected.update({"is_pinned": False, "free_cpu_locked_tensor": False})
    expected.update({"is_pinned, pinned": True, "free_cpu_locked_tensor, pinned": True})
    assert {name: (type(r), r) for name, r in results.items()} == {n: (type(e), e) for n, e in expected.items()}


# ---- transfers ----


def test_async_ops_return_0_and_wait_counts_them(handle, kind, folder):
    tensors = [kind.of(os.urandom(4096 * n)) for n in range(1, 6)]
    paths = [os.path.join(folder, str(i)) for i in range(5)]
    for tensor, path in zip(tensors, paths):
        assert handle.async_pwrite(tensor, path, 0) == 0
    assert handle.wait() == 5
    back = [kind.of(bytes(4096 * n)) for n in range(1, 6)]
    for tensor, path in zip(back, paths):
        assert handle.async_pread(tensor, path, 0) == 0
    assert handle.wait() == 5
    assert [kind.bytes(t) for t in back] == [kind.bytes(t) for t in tensors]


def test_wait_with_nothing_pending_returns_0(handle):
    assert handle.wait() == 0


def test_sync_ops_wait_for_all_pending_and_count_them(handle, kind, folder):
    data = os.urandom(8192)
    assert handle.sync_pwrite(kind.of(data), folder + "/a") == 1
    buffers = [kind.of(bytes(8192)) for _ in range(3)]
    assert handle.async_pread(buffers[0], folder + "/a") == 0
    assert handle.async_pread(buffers[1], folder + "/a") == 0
    assert handle.sync_pread(buffers[2], folder + "/a") == 3
    assert all(kind.bytes(buffer) == data for buffer in buffers)
    assert handle.wait() == 0


def test_keywords(handle, kind, path):
    data = os.urandom(4096)
    assert handle.async_pwrite(buffer=kind.of(data), filename=path, file_offset=512) == 0
    assert handle.wait() == 1
    buffer = kind.of(bytes(4096))
    assert handle.async_pread(buffer=buffer, filename=path, file_offset=512) == 0
    assert handle.wait() == 1
    assert kind.bytes(buffer) == data
    assert file_bytes(path) == bytes(512) + data


@pytest.mark.parametrize("by_name", [False, True])
def test_async_pwrite_by_descriptor(handle, kind, path, by_name):
    data = os.urandom(3 * 4096)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    for i in range(3):
        part = kind.of(data[i * 4096 : (i + 1) * 4096])
        if by_name:
            assert handle.async_pwrite(buffer=part, fd=fd, file_offset=i * 4096) == 0
        else:
            assert handle.async_pwrite(part, fd, i * 4096) == 0
    assert handle.wait() == 3
    os.close(fd)  # still the caller's: EBADF, were it closed
    with open(path, "ab") as f:
        f.write(b"tail")
    assert file_bytes(path) == data + b"tail"


def test_fsync_of_a_plain_writer_beside_a_growing_file(handle, path):
    """As DeepSpeed's FastFileWriter: multiples of 512 at growing offsets, and a tail that is appended plainly."""
    n = MIB + 512
    data = os.urandom(2 * n)
    memory = dsaio.alloc(2 * n)
    memory[:] = data
    make_file(path, bytes(512 + n))
    with open(path, "rb+", buffering=0) as plain:
        os.fsync(plain.fileno())  # allocates its blocks, so that writes need not wait for one another
        os.posix_fadvise(plain.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
        stop = threading.Event()

        def write_head():
            while not stop.wait(0.0001):
                os.pwrite(plain.fileno(), b"head", 0)

        writer = threading.Thread(target=write_head)
        writer.start()
        try:
            for offset in [0] * 500 + [n]:  # the first is beside the head
                assert handle.async_pwrite(memory[offset : offset + n], fd, 512 + offset) == 0
                assert handle.wait() == 1
        finally:
            stop.set()
            writer.join()
            os.close(fd)
        os.fsync(plain.fileno())
    with open(path, "ab") as f:
        f.write(b"tail")
    assert file_bytes(path) == b"head" + bytes(508) + data + b"tail"


def test_pread_and_pwrite_by_position_and_name(handle, kind, path):
    data = os.urandom(4096)
    assert handle.pwrite(kind.of(data), path, False, False) == 1
    assert handle.pwrite(kind.of(data), path, False, True, 4096) == 0
    assert handle.wait() == 1
    buffer = kind.of(bytes(8192))
    assert handle.pread(buffer, path, False, **{"async": True}) == 0
    assert handle.wait() == 1
    assert kind.bytes(buffer) == data * 2
    buffer = kind.of(bytes(4096))
    assert handle.pread(buffer, path, False, **{"async": False, "file_offset": 4096}) == 1
    assert kind.bytes(buffer) == data
    for wrong in ({}, {"async": True, "offset": 1}):
        with pytest.raises(TypeError):
            handle.pread(buffer, path, False, **wrong)
    with pytest.raises(TypeError):
        handle.pread(buffer, path, False, True, **{"async": True})


def test_read_and_write_return_0_and_print_the_time(handle, kind, path, capsys):
    data = os.urandom(5000)
    assert handle.write(kind.of(data), path, False) == 0
    assert file_bytes(path) == data
    buffer = kind.of(bytes(5000))
    assert handle.read(buffer, path, False) == 0
    assert kind.bytes(buffer) == data
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line.startswith("Elapsed time(usec): aio = ") for line in lines)
    assert handle.read(kind.of(bytes(4999)), path, False) == -1


def test_validate_prints_and_changes_no_result(handle, path, capsys):
    data = os.urandom(10000)
    assert handle.pwrite(data, path, True, False) == 1
    assert capsys.readouterr().out.startswith("Pass")
    assert handle.pread(bytearray(10000), path, True, True) == 0
    assert handle.wait() == 1
    assert capsys.readouterr().out.startswith("Pass")
    assert handle.write(data, path, True) == 0
    assert capsys.readouterr().out.startswith("Pass")


def test_a_smaller_rewrite_keeps_the_old_tail(handle, path):
    assert handle.sync_pwrite(b"a" * 8192, path) == 1
    assert handle.sync_pwrite(b"b" * 4096, path) == 1
    assert file_bytes(path) == b"b" * 4096 + b"a" * 4096


def test_a_new_file_has_the_mode_of_the_umask(handle, path):
    umask = os.umask(0o027)
    try:
        handle.sync_pwrite(b"x", path)
    finally:
        os.umask(umask)
    assert os.stat(path).st_mode & 0o777 == 0o640


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("n, offset", [(1, 0), (511, 1), (4097, 513), (100001, 7), (3 * MIB + 5, 4095)])
def test_odd_sizes_and_offsets(kind, path, parallelism, n, offset):
    data = os.urandom(n)
    make_file(path, b"before" * 3000000)
    before = bytearray(file_bytes(path))
    with dsaio.aio_handle(65536, 8, intra_op_parallelism=parallelism) as handle:
        pinned = handle.new_cpu_locked_tensor(n + 3, kind.empty())
        part = kind.narrow(pinned, 3, n)  # at an odd address
        part[:] = kind.of(data)
        assert handle.sync_pwrite(part, path, offset) == 1
        before[offset : offset + n] = data
        assert file_bytes(path) == before
        buffer = kind.of(bytes(n))
        assert handle.sync_pread(buffer, path, offset) == 1
        assert kind.bytes(buffer) == data
        part[:] = kind.of(bytes(n))
        assert handle.sync_pread(part, path, offset) == 1
        assert kind.bytes(part) == data


def test_views_with_gaps_are_filled_by_wait(handle, kind, path):
    make_file(path, bytes(range(80)))
    matrix = kind.of(bytes(240)).reshape(12, 20)
    assert handle.async_pread(matrix[::3], path) == 0
    assert handle.wait() == 1
    assert kind.bytes(matrix[::3]) == bytes(range(80))
    assert kind.bytes(matrix[1::3]) == bytes(80)


# ---- failures ----


def test_failure_to_start_returns_minus_1_and_is_logged(handle, folder, caplog):
    for call in (
        lambda: handle.async_pread(bytearray(10), folder + "/none"),
        lambda: handle.sync_pread(bytearray(10), folder + "/none"),
        lambda: handle.pread(bytearray(10), folder + "/none", False, True),
        lambda: handle.read(bytearray(10), folder + "/none", False),
        lambda: handle.async_pwrite(bytes(10), folder + "/none/f"),
        lambda: handle.sync_pwrite(bytes(10), folder),
        lambda: handle.pwrite(bytes(10), folder + "/none/f", False, False),
        lambda: handle.write(bytes(10), folder + "/none/f", False),
        lambda: handle.async_pwrite(bytes(10), 987654),
    ):
        caplog.clear()
        assert call() == -1
        assert [r.name for r in caplog.records] == ["dsaio"]
    assert handle.wait() == 0


def test_failure_later_raises_from_wait_after_all_have_ended(handle, folder):
    make_file(folder + "/short", b"x" * 5000)
    make_file(folder + "/long", b"y" * 8192)
    first, second = bytearray(8192), bytearray(8192)
    assert handle.async_pread(first, folder + "/short") == 0
    assert handle.async_pread(second, folder + "/long") == 0
    with pytest.raises(OSError, match="ends after 5000") as e:
        handle.wait()
    assert e.value.errno == errno.ENODATA and e.value.filename == folder + "/short"
    assert second == b"y" * 8192 and first[:5000] == b"x" * 5000
    assert handle.wait() == 0


def test_a_write_beyond_the_limit_of_file_sizes_raises_efbig(python):
    python(
        """
        import errno, resource, signal
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        handle = dsaio.aio_handle()
        result = handle.async_pwrite(bytes(2 << 20), folder + "/f")
        if result == 0:
            try:
                handle.wait()
            except OSError as e:
                assert e.errno == errno.EFBIG and e.filename == folder + "/f", repr(e)
            else:
                raise AssertionError("the write was no failure")
        """
    )


@pytest.mark.parametrize(
    "buffer, error",
    [
        (b"read only", ValueError),
        (memoryview(bytearray(100))[::2], ValueError),
        (None, TypeError),
        (5, TypeError),
        ("text", TypeError),
    ],
)
def test_what_cannot_be_read_into(handle, path, buffer, error):
    make_file(path, bytes(100))
    with pytest.raises(error):
        handle.async_pread(buffer, path)


def test_wrong_paths_and_offsets(handle, path):
    for wrong in ("a\0b", b"a\0b"):
        with pytest.raises(ValueError):
            handle.async_pwrite(b"x", wrong)
    for wrong in (-1, 1 << 63, 1 << 64):
        with pytest.raises(ValueError):
            handle.async_pwrite(b"x", path, wrong)
    for wrong in ((), (path, 0, path), (None,)):
        with pytest.raises(TypeError):
            handle.async_pwrite(b"x", *wrong)
    with pytest.raises(TypeError):
        handle.async_pwrite(b"x", path, fd=3)
    assert not os.path.exists(path)


def test_a_closed_handle_raises_value_error(path):
    handle = dsaio.aio_handle()
    handle.close()
    handle.close()
    with pytest.raises(ValueError, match="closed"):
        handle.async_pwrite(b"x", path)
    with pytest.raises(ValueError, match="closed"):
        handle.submit_write(b"x", path)


def test_close_waits_and_raises_as_wait_does(folder):
    data = os.urandom(4 * MIB)
    with dsaio.aio_handle() as handle:
        assert handle.async_pwrite(data, folder + "/f") == 0
    assert file_bytes(folder + "/f") == data
    with pytest.raises(OSError):
        with dsaio.aio_handle() as handle:
            assert handle.async_pread(bytearray(5 * MIB), folder + "/f") == 0


def test_a_handle_dropped_with_work_pending_finishes_it(folder):
    data = os.urandom(4 * MIB)
    handle = dsaio.aio_handle()
    for i in range(8):
        assert handle.async_pwrite(bytes(data), f"{folder}/{i}") == 0
    del handle
    for i in range(8):
        assert file_bytes(f"{folder}/{i}") == data


# ---- threads ----


def test_two_threads_in_sync_pread_on_one_handle_get_1_each(handle, folder):
    for i in range(2):
        make_file(f"{folder}/{i}", bytes([i]) * MIB)
    barrier = threading.Barrier(2)
    results = [[], []]

    def run(i):
        buffer = bytearray(MIB)
        for _ in range(50):
            barrier.wait()
            results[i].append(handle.sync_pread(buffer, f"{folder}/{i}"))
            assert buffer == bytes([i]) * MIB

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1] * 50, [1] * 50]


def test_wait_returns_only_when_the_thread_s_own_ops_have_ended(handle, folder):
    """Another thread's wait() may be the one that takes them."""
    n_threads, failures = 6, []
    for i in range(n_threads):
        make_file(f"{folder}/{i}", bytes([i + 1]) * 65536)

    def run(i):
        for _ in range(40):
            buffers = [bytearray(65536) for _ in range(4)]
            for buffer in buffers:
                if handle.async_pread(buffer, f"{folder}/{i}") != 0:
                    failures.append("start")
            handle.wait()
            if any(buffer != bytes([i + 1]) * 65536 for buffer in buffers):
                failures.append("data")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_eight_threads_with_a_handle_each(kind, folder):
    """They share pinned memory, open files and paths, and make and free tensors meanwhile."""
    n_threads, failures = 8, []
    barrier = threading.Barrier(n_threads)
    make_file(f"{folder}/common", bytes(range(256)) * 256)
    common = dsaio.File(f"{folder}/common")

    def work(i):
        with dsaio.aio_handle() as own:
            mine = own.new_cpu_locked_tensor(65536, kind.empty())
            theirs = own.new_cpu_locked_tensor(65536, kind.empty())
            mine[:] = i + 1
            barrier.wait()
            for k in range(30):
                file = common if k % 2 else f"{folder}/common"
                assert own.async_pwrite(mine, f"{folder}/{i}") == 0
                assert own.async_pread(theirs, file) == 0
                assert own.wait() == 2
                back = own.new_cpu_locked_tensor(65536, kind.empty())
                assert own.is_pinned(kind.narrow(back, 1, 100))
                assert own.sync_pread(back, f"{folder}/{i}") == 1
                assert kind.bytes(back) == bytes([i + 1]) * 65536
                assert kind.bytes(theirs) == bytes(range(256)) * 256

    def run(i):
        try:
            work(i)
        except BaseException as e:
            failures.append(e)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    common.close()
    assert not failures


def test_a_wait_that_is_interrupted_while_it_fills_buffers_begins_anew(handle, folder, monkeypatch):
    numpy = pytest.importorskip("numpy")
    make_file(f"{folder}/f", b"x" * 5000)
    with_gaps = [numpy.zeros(10000, "u1")[::2] for _ in range(3)]
    for buffer in with_gaps:
        assert handle.async_pread(buffer, f"{folder}/f") == 0
    finish, calls = _op.finish, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return finish(*arguments)

    monkeypatch.setattr(_op, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    assert handle.stats().open == 3 and handle.stats().reads == 0
    assert handle.wait() == 3
    assert all(buffer.tobytes() == b"x" * 5000 for buffer in with_gaps)
    assert handle.stats()[:6] == (3, 0, 0, 0, 15000, 0) and handle.wait() == 0


def test_a_sync_op_whose_wait_is_interrupted_is_pending(handle, folder, monkeypatch):
    make_file(f"{folder}/f", b"x" * 5000)
    await_all = _op.await_all

    def interrupted(pointers):
        raise KeyboardInterrupt

    monkeypatch.setattr(_op, "await_all", interrupted)
    buffer = bytearray(5000)
    with pytest.raises(KeyboardInterrupt):
        handle.sync_pread(buffer, f"{folder}/f")
    monkeypatch.setattr(_op, "await_all", await_all)
    assert handle.wait() == 1
    assert buffer == b"x" * 5000


@pytest.mark.parametrize("end", ["wait", "close"])
def test_a_sync_op_s_failure_is_raised_although_the_wait_for_others_was_interrupted(folder, monkeypatch, end):
    make_file(f"{folder}/f", b"x" * 10)
    handle = dsaio.aio_handle()
    assert handle.async_pread(bytearray(10), f"{folder}/f") == 0
    await_all, calls = _op.await_all, []

    def interrupted(pointers):
        calls.append(pointers)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return await_all(pointers)

    monkeypatch.setattr(_op, "await_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        handle.sync_pread(bytearray(100), f"{folder}/f")
    with pytest.raises(OSError) as e:
        getattr(handle, end)()
    assert e.value.errno == errno.ENODATA
    assert handle.wait() == 0 and handle.stats()[:4] == (2, 0, 0, 1)
    handle.close()


def test_a_handle_that_is_dropped_logs_the_failure_of_a_wait_that_was_interrupted(folder, monkeypatch, caplog):
    make_file(f"{folder}/f", b"x" * 10)
    handle = dsaio.aio_handle()

    class Interrupted:
        def __enter__(self):
            raise KeyboardInterrupt

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr(handle, "_wait_lock", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        handle.sync_pread(bytearray(100), f"{folder}/f")
    monkeypatch.undo()
    del handle
    gc.collect()
    assert "pread of 100 bytes" in caplog.text


def test_buffers_outlive_a_dropped_handle_whose_wait_is_interrupted(folder, monkeypatch):
    make_file(f"{folder}/f", b"x" * 10)
    handle = dsaio.aio_handle()
    buffer = array.array("B", bytes(10))
    assert handle.async_pread(buffer, f"{folder}/f") == 0
    reference, ignored = weakref.ref(buffer), []
    del buffer

    def interrupted(pointers):
        raise KeyboardInterrupt

    monkeypatch.setattr(_op, "await_all", interrupted)
    monkeypatch.setattr(_op, "_all_slots", [])  # so that all of it goes with this test
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: ignored.append(unraisable.exc_type))
    del handle
    gc.collect()
    assert ignored == [KeyboardInterrupt] and reference() is not None
    monkeypatch.undo()
    assert reference() is None


def test_each_op_is_freed_once(handle, folder, monkeypatch):
    make_file(f"{folder}/f", b"x" * 10)
    freed, free_many, free = [], library.op_free_many, library.op_free

    def note_many(address, n):
        freed.extend((ctypes.c_uint64 * n).from_address(address))
        free_many(address, n)

    def note(pointer):
        freed.append(pointer)
        free(pointer)

    monkeypatch.setattr(library, "op_free_many", note_many)
    monkeypatch.setattr(_op.Op.__del__, "__defaults__", (library.is_ending, note))
    for nbytes in (10, 100):  # the larger one passes the end of the file
        assert handle.async_pread(bytearray(10), f"{folder}/f") == 0
        assert handle.async_pread(bytearray(nbytes), f"{folder}/f") == 0
        expected = [op[0] for op in handle._pending]
        with contextlib.suppress(OSError):
            handle.wait()
        assert freed == expected
        with contextlib.suppress(OSError):
            handle.sync_pread(bytearray(nbytes), f"{folder}/f")
        assert len(freed) == 3
        del freed[:]
        op = handle.submit_read(bytearray(nbytes), f"{folder}/f")
        expected = [op._pointer]
        with contextlib.suppress(OSError):
            op.wait()
        assert not freed
        del op
        gc.collect()
        assert freed == expected
        del freed[:]


# ---- the module's functions ----


def test_aio_write_and_aio_read(kind, path, capsys):
    data = os.urandom(8192)
    assert dsaio.aio_write(kind.of(data), path, 4096, 8, False, True, False) == 0
    buffer = kind.of(bytes(8192))
    assert dsaio.aio_read(buffer, path, 4096, 8, False, True, True) == 0
    assert kind.bytes(buffer) == data
    assert "Pass" in capsys.readouterr().out


def test_deepspeed_memcpy(kind):
    data = os.urandom(100000)
    to = kind.of(bytes(100000))
    assert dsaio.deepspeed_memcpy(to, kind.of(data)) == 0
    assert kind.bytes(to) == data
    with pytest.raises(ValueError):
        dsaio.deepspeed_memcpy(to, kind.of(bytes(5)))
    assert dsaio.deepspeed_memcpy(kind.empty(), kind.empty()) == 0


@pytest.fixture(params=[1, 2, 5])
def copiers(request, monkeypatch):
    """deepspeed_memcpy() copies by that many threads at most, from 10,000 bytes on for each."""
    monkeypatch.setattr(deepnvme, "_COPY_BYTES", 10000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(request.param)))
    return request.param


@pytest.mark.parametrize("nbytes", [1, 19999, 20000, 20001, 4096 * 30, 300001])
def test_deepspeed_memcpy_by_several_threads(monkeypatch, kind, copiers, nbytes):
    ranges, memmove = [], ctypes.memmove

    def note(to, source, n):
        ranges.append((to, to + n, threading.get_ident()))
        memmove(to, source, n)

    monkeypatch.setattr(ctypes, "memmove", note)
    data = os.urandom(nbytes + 2)
    to = kind.of(bytes(nbytes + 2))
    assert dsaio.deepspeed_memcpy(kind.narrow(to, 1, nbytes), kind.narrow(kind.of(data), 1, nbytes)) == 0
    assert kind.bytes(to) == b"\0" + data[1:-1] + b"\0"
    ranges.sort()
    assert ranges[0][0] == kind.address(to) + 1 and ranges[-1][1] == kind.address(to) + 1 + nbytes
    assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:]))
    assert len(ranges) == max(1, min(copiers, nbytes // 10000))


@pytest.mark.parametrize("distance", [1, -1, 4096, -4096, 30000, -30000])
def test_deepspeed_memcpy_of_tensors_that_overlap(kind, copiers, distance):
    data = os.urandom(100000)
    whole = kind.of(data)
    first, second = max(distance, 0), max(-distance, 0)
    n = len(data) - abs(distance)
    assert dsaio.deepspeed_memcpy(kind.narrow(whole, first, n), kind.narrow(whole, second, n)) == 0
    expected = bytearray(data)
    expected[first : first + n] = data[second : second + n]
    assert kind.bytes(whole) == expected


def test_deepspeed_memcpy_of_tensors_with_gaps(kind, copiers):
    data = os.urandom(200000)
    to = kind.of(bytes(400000))
    assert dsaio.deepspeed_memcpy(to[::2], kind.of(data)) == 0
    assert kind.bytes(to)[::2] == data and kind.bytes(to)[1::2] == bytes(200000)
    back = kind.of(bytes(200000))
    assert dsaio.deepspeed_memcpy(back, to[::2]) == 0
    assert kind.bytes(back) == data


def test_deepspeed_memcpy_where_no_thread_can_start(monkeypatch, kind, copiers):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    data = os.urandom(100000)
    to = kind.of(bytes(100000))
    assert dsaio.deepspeed_memcpy(to, kind.of(data)) == 0
    assert kind.bytes(to) == data
