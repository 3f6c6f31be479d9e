"""dsaio.Handle: ops to wait for, to await and to cancel; many ops in one call; files."""

import array
import asyncio
import contextlib
import errno
import gc
import mmap
import os
import threading
import weakref

import pytest

import dsaio
from conftest import MIB, file_bytes, make_file


@pytest.fixture(params=[dsaio.Handle, dsaio.aio_handle])
def handle(request):
    with request.param() as handle:
        yield handle


def make_open(handle, path, data):
    """A file that the handle can read from now on without asking the daemon anything."""
    make_file(path, data)
    handle.submit_read(bytearray(len(data)), path).wait()


# ---- one op ----


def test_an_op_returns_its_bytes(handle, kind, path):
    data = os.urandom(10001)
    op = handle.submit_write(kind.of(data), path, 7)
    assert op.wait() == 10001 and op.wait(0) == 10001 and op.done()
    buffer = kind.of(bytes(10001))
    op = handle.submit_read(buffer, path, 7)
    assert op.wait(timeout=60) == 10001 == op.bytes_done
    assert kind.bytes(buffer) == data


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex64", "bool", "bfloat16", "float16"])
def test_dtypes(handle, kind, path, dtype):
    if dtype not in kind.dtypes:
        pytest.skip(f"numpy has no {dtype}")
    data = bytes([1, 0] * 800)
    assert handle.submit_write(kind.of(data, dtype), path).wait() == 1600
    buffer = kind.of(bytes(1600), dtype)
    assert handle.submit_read(buffer, path).wait() == 1600
    assert kind.bytes(buffer) == data


def test_objects_with_the_buffer_protocol(handle, path):
    data = os.urandom(4096)
    for source in (data, bytearray(data), memoryview(data), array.array("i", data), array.array("d", data)):
        make_file(path, b"")
        assert handle.submit_write(source, path).wait() == 4096
        assert file_bytes(path) == data
    with mmap.mmap(-1, 4096) as to:
        assert handle.submit_read(to, path).wait() == 4096
        assert to[:] == data
    to = array.array("d", bytes(4096))
    assert handle.submit_read(memoryview(to), path).wait() == 4096
    assert to.tobytes() == data


def test_a_bytearray_cannot_change_its_size_while_an_op_uses_it(handle, path):
    make_file(path, bytes(MIB))
    buffer = bytearray(MIB)
    op = handle.submit_read(buffer, path)
    try:
        buffer.extend(b"x")  # fine only if it has ended
        assert op.done()
    except BufferError:
        pass
    op.wait()
    buffer.extend(b"x")


def test_an_empty_buffer(handle, kind, path):
    assert handle.submit_write(kind.of(b"x")[:0], path).wait() == 0
    assert file_bytes(path) == b""
    assert handle.submit_read(bytearray(), path).wait() == 0


def test_views_with_gaps_are_copied_both_ways(handle, kind, path):
    data = bytes(range(240))
    matrix = kind.of(data).reshape(12, 20)
    gaps = matrix[:, ::3]
    assert handle.submit_write(gaps, path).wait() == 12 * 7
    assert file_bytes(path) == kind.bytes(gaps)
    to = kind.of(bytes(240)).reshape(12, 20)
    make_file(path, bytes(range(84)))
    op = handle.submit_read(to[:, ::3], path)
    assert op.wait() == 84
    assert kind.bytes(to[:, ::3]) == bytes(range(84))
    assert kind.bytes(to[:, 1::3]) == bytes(84)


def test_torch_conjugated_and_negated_views(handle, path):
    torch = pytest.importorskip("torch")
    values = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    assert handle.submit_write(values.conj(), path).wait() == 16
    back = torch.zeros(2, dtype=torch.complex64)
    assert handle.submit_read(back, path).wait() == 16
    assert torch.equal(back, torch.tensor([1 - 2j, 3 + 4j]))
    assert handle.submit_write(torch._neg_view(torch.tensor([2.0, -4.0])), path).wait() == 8
    back = torch.zeros(2)
    assert handle.submit_read(back, path).wait() == 8
    assert torch.equal(back, torch.tensor([-2.0, 4.0]))


def test_tensors_without_memory_are_type_errors(handle, path):
    torch = pytest.importorskip("torch")
    for tensor in (torch.empty(4, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(TypeError, match=r"without memory of its own \(torch.*\): pass a dense one"):
            handle.submit_write(tensor, path)
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="objects"):
        handle.submit_write(numpy.array([{}]), path)


def test_numpy_read_only_and_foreign_dtypes(handle, path):
    numpy = pytest.importorskip("numpy")
    times = numpy.array(["2026-01-01", "2026-02-03"], "datetime64[s]")
    assert handle.submit_write(times, path).wait() == 16
    back = numpy.empty_like(times)
    assert handle.submit_read(back, path).wait() == 16
    assert (back == times).all()
    back.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        handle.submit_read(back, path)


def test_a_read_that_passes_the_end_raises_enodata(handle, path):
    make_file(path, b"x" * 100)
    buffer = bytearray(200)
    op = handle.submit_read(buffer, path)
    with pytest.raises(OSError, match="ends after 100") as e:
        op.wait()
    assert e.value.errno == errno.ENODATA and e.value.filename == path
    assert op.bytes_done == 100 and buffer == b"x" * 100 + bytes(100)
    with pytest.raises(OSError):
        op.wait()


def test_failure_to_start_raises(handle, folder):
    with pytest.raises(FileNotFoundError) as e:
        handle.submit_read(bytearray(10), folder + "/none")
    assert e.value.filename == folder + "/none" and folder in e.value.strerror
    with pytest.raises(IsADirectoryError):
        handle.submit_write(b"x", folder)
    with pytest.raises(OSError) as e:
        handle.submit_write(b"x", 987654)
    assert e.value.errno == errno.EBADF


def test_wait_with_a_timeout_ends_and_the_op_goes_on(handle, daemon, path):
    data = b"x" * MIB
    make_open(handle, path, data)
    buffer = bytearray(MIB)
    with daemon.frozen():
        op = handle.submit_read(buffer, path)
        for timeout in (0, 0.01, 0.25):
            with pytest.raises(TimeoutError, match="goes on"):
                op.wait(timeout)
        assert not op.done() and op.bytes_done == 0 and handle.stats().open == 1
    assert op.wait() == MIB and op.done() and buffer == data


def test_cancel_ends_an_op_once(handle, folder):
    buffer = bytes(64 * MIB)
    n_cancelled = 0
    while not n_cancelled:  # each round, it may come too late
        ops = [handle.submit_write(buffer, f"{folder}/{i}") for i in range(8)]
        for op in ops:
            op.cancel()
        for op in ops:
            try:
                assert op.wait() == 64 * MIB
            except OSError as e:
                assert e.errno == errno.ECANCELED
                n_cancelled += 1
            op.cancel()
    assert handle.stats().failed == n_cancelled


def test_an_op_s_own_timeout(handle, folder):
    buffer = bytes(64 * MIB)
    ops = [handle.submit_write(buffer, f"{folder}/{i}", timeout=1e-6) for i in range(4)]
    n_timed_out = 0
    for op in ops:
        try:
            op.wait()
        except TimeoutError as e:
            assert e.errno == errno.ETIMEDOUT and op.done()
            text = ": timeout= of the op, or op_timeout= of the handle, is over; what the range holds is undefined"
            assert text in e.strerror, e
            n_timed_out += 1
    assert n_timed_out > 0


def test_ops_do_not_count_for_wait(path):
    with dsaio.aio_handle() as handle:
        op = handle.submit_write(b"x" * 5000, path)
        assert handle.async_pwrite(b"y" * 5000, path, 8192) == 0
        assert handle.wait() == 1
        assert op.wait() == 5000


def test_fsync(handle, path):
    handle.submit_write(b"x" * 5000, path)
    with dsaio.File(path, os.O_RDWR) as file:
        assert handle.submit_fsync(file).wait() == 0
        assert handle.submit_fsync(file, data_only=True).wait() == 0
    assert handle.submit_fsync(path).wait() == 0
    assert handle.stats().syncs == 3


def test_ops_that_nobody_waits_for_let_go_of_their_buffers(handle, path):
    make_file(path, bytes(4096))

    class Array(array.array):
        pass

    references = []
    for _ in range(300):
        buffer = Array("b", bytes(4096))
        references.append(weakref.ref(buffer))
        handle.submit_read(buffer, path)
        del buffer
    handle.close()
    gc.collect()
    assert not any(reference() for reference in references)


def test_a_buffer_lives_until_its_op_has_ended(handle, path):
    make_file(path, b"x" * MIB)
    for _ in range(100):
        op = handle.submit_read(bytearray(MIB), path)
        bytearray(MIB)  # would take the place
    assert op.wait() == MIB


# ---- many ----


def test_many_ops_in_one_call(handle, kind, folder):
    n = 300  # more than one call of the library takes at once
    data = [os.urandom(100 + i) for i in range(n)]
    ops = handle.submit_writes((kind.of(d), f"{folder}/{i}") for i, d in enumerate(data))
    assert [op.wait() for op in ops] == [len(d) for d in data]
    buffers = [kind.of(bytes(len(d) - 10)) for d in data]
    ops = handle.submit_reads([(b, f"{folder}/{i}", 10) for i, b in enumerate(buffers)])
    assert [op.wait() for op in ops] == [len(d) - 10 for d in data]
    assert [kind.bytes(b) for b in buffers] == [d[10:] for d in data]
    assert handle.submit_reads([]) == []


def test_many_ops_on_descriptors_and_files(handle, path):
    with dsaio.File(path, os.O_RDWR | os.O_CREAT) as file:
        fd = os.open(path, os.O_RDWR)
        ops = handle.submit_writes([(b"a" * 4096, file), (b"b" * 4096, fd, 4096), (b"c" * 4096, path, 8192)])
        os.close(fd)
        assert [op.wait() for op in ops] == [4096] * 3
    assert file_bytes(path) == b"a" * 4096 + b"b" * 4096 + b"c" * 4096


@pytest.mark.parametrize("wrong", [0, 1, 70])
def test_where_one_of_many_fails_to_start_the_exception_has_those_before(handle, folder, wrong):
    requests = []
    for i in range(100):
        make_file(f"{folder}/{i}", b"x" * 100)
        requests.append((bytearray(100), f"{folder}/{'none' if i == wrong else i}"))
    with pytest.raises(FileNotFoundError) as e:
        handle.submit_reads(requests)
    assert e.value.filename == folder + "/none"
    assert [op.wait() for op in e.value.ops] == [100] * wrong


# ---- files ----


def test_files(handle, path):
    with pytest.raises(FileNotFoundError) as e:
        dsaio.File(path)
    assert e.value.filename == path
    with dsaio.File(path, os.O_RDWR | os.O_CREAT) as file:
        assert file.name == path and file.size() == 0
        assert file.alignment in (512, 4096)
        assert handle.submit_write(b"x" * 5000, file).wait() == 5000
        assert file.size() == 5000
        file.truncate(100)
        buffer = bytearray(100)
        assert handle.submit_read(buffer, file).wait() == 100 and buffer == b"x" * 100
        with pytest.raises(ValueError):
            file.truncate(-1)
        op = handle.submit_write(b"y" * 100, file, 100)
    assert op.wait() == 100
    for call in (file.size, lambda: file.truncate(0), lambda: handle.submit_read(bytearray(1), file)):
        with pytest.raises(ValueError, match="closed"):
            call()
    with dsaio.File(path) as file, pytest.raises(OSError) as e:
        handle.submit_write(b"x", file)
    assert e.value.errno == errno.EBADF


def is_held(daemon, path):
    """Whether the daemon has the file open."""
    folder = f"/proc/{daemon.process.pid}/fd"
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(f"{folder}/{fd}") == os.path.realpath(path):
                return True
    return False


@pytest.mark.parametrize("all_files", [False, True])
def test_a_closed_file_is_dropped_and_an_open_one_is_busy(daemon, handle, path, all_files):
    make_file(path, b"x" * 4096)
    assert handle.submit_read(bytearray(4096), path).wait() == 4096
    assert is_held(daemon, path)
    dsaio.drop(path + ".other")
    assert is_held(daemon, path)
    with dsaio.File(path):
        if all_files:
            dsaio.drop()
        else:
            with pytest.raises(OSError, match="close it") as e:
                dsaio.drop(path)
            assert (e.value.errno, e.value.filename) == (errno.EBUSY, path)
        assert is_held(daemon, path)
    dsaio.drop(None if all_files else os.fsencode(path))
    assert not is_held(daemon, path)
    assert handle.submit_read(bytearray(4096), path).wait() == 4096


def test_paths_of_every_kind(handle, folder):
    import pathlib

    name = "n\u00e4me \udcff"
    for path in (os.path.join(folder, name), pathlib.Path(folder, name), os.fsencode(os.path.join(folder, name))):
        assert handle.submit_write(b"abc", path).wait() == 3
        buffer = bytearray(3)
        assert handle.submit_read(buffer, path).wait() == 3
        assert buffer == b"abc"
        os.unlink(path)


# ---- event loops ----


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_await(handle, folder):
    async def main():
        data = [os.urandom(50000) for _ in range(50)]
        writes = [handle.submit_write(d, f"{folder}/{i}") for i, d in enumerate(data)]
        assert await asyncio.gather(*writes) == [50000] * 50
        buffers = [bytearray(50000) for _ in range(50)]
        reads = handle.submit_reads([(b, f"{folder}/{i}") for i, b in enumerate(buffers)])
        for read in reversed(reads):
            assert await read == 50000
        assert buffers == data
        assert await reads[0] == 50000  # again

    for _ in range(3):  # each time with a new loop
        run(main())


def test_await_raises_the_op_s_error(handle, path):
    make_file(path, b"x")

    async def main():
        with pytest.raises(OSError) as e:
            await handle.submit_read(bytearray(100), path)
        assert e.value.errno == errno.ENODATA

    run(main())


def test_the_loop_runs_while_an_op_is_awaited(handle, daemon, path):
    make_open(handle, path, b"x" * MIB)

    async def main():
        is_read = False

        async def read():
            nonlocal is_read
            await handle.submit_read(bytearray(MIB), path)
            is_read = True

        with daemon.frozen():
            task = asyncio.ensure_future(read())
            for _ in range(100):
                await asyncio.sleep(0)
            assert not is_read
        await task

    run(main())


def test_a_cancelled_await_is_not_the_end_of_the_op(handle, daemon, path):
    make_open(handle, path, b"x" * MIB)

    async def main():
        buffer = bytearray(MIB)
        with daemon.frozen():
            op = handle.submit_read(buffer, path)

            async def wait():
                return await op

            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not op.done()
        assert await op == MIB and buffer == b"x" * MIB

    run(main())


def test_one_op_is_awaited_by_several_tasks_loops_and_threads(handle, daemon, path):
    make_open(handle, path, b"x" * MIB)
    results = []
    barrier = threading.Barrier(5)

    async def main():
        async def wait():
            return await op

        tasks = [asyncio.ensure_future(wait()) for _ in range(2)]
        await asyncio.sleep(0)
        barrier.wait()
        results.extend(await asyncio.gather(*tasks))

    def main_without_loop():
        barrier.wait()
        results.append(op.wait())

    with daemon.frozen():
        op = handle.submit_read(bytearray(MIB), path)
        threads = [threading.Thread(target=run, args=(main(),)) for _ in range(3)]
        threads.append(threading.Thread(target=main_without_loop))
        for thread in threads:
            thread.start()
        barrier.wait()
    for thread in threads:
        thread.join()
    assert results == [MIB] * 7


# ---- options, stats ----


@pytest.mark.parametrize("io_class", ["demand", "normal", "background"])
def test_classes_and_weights(io_class, path):
    with dsaio.Handle(dsaio.Profile(block_size=4096, queue_depth=4), io_class=io_class, weight=4) as handle:
        assert handle.submit_write(bytes(100000), path).wait() == 100000


def test_wrong_options():
    with pytest.raises(ValueError, match="io_class"):
        dsaio.Handle(io_class="fast")
    with pytest.raises(OSError) as e:
        dsaio.Handle(weight=17)
    assert e.value.errno == errno.EINVAL
    for value in (0, -1, 1 << 33):
        with pytest.raises(OSError, match=f"block_size {value}"):
            dsaio.Handle(dsaio.Profile(block_size=value))
    with pytest.raises(OSError, match="queue_depth 0"):
        dsaio.Handle(dsaio.Profile(queue_depth=0))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda p: dsaio.Handle(weight=(1 << 32) + 1), OSError, "weight 4294967297: must be from 1 to 16"),
        (lambda p: dsaio.Handle(weight=-1), OSError, "weight -1: must be from 1 to 16"),
        (lambda p: dsaio.Handle(weight="1"), TypeError, "weight '1': must be an integer"),
        (lambda p: dsaio.Handle(op_timeout=1e300), OSError, "op_timeout 1e.300: must be from 0 to 4294967 seconds"),
        (lambda p: dsaio.Handle(op_timeout=-1), OSError, "op_timeout -1: must be from 0"),
        (lambda p: dsaio.Handle(op_timeout=1 << 5000), OSError, "op_timeout .*: must be from 0"),
        (lambda p: dsaio.Handle(op_timeout="5"), TypeError, "op_timeout '5': must be a number of seconds"),
        (lambda p: dsaio.Handle({"block_size": 4096}), TypeError, "profile {.*}: must be a dsaio.Profile"),
        (lambda p: dsaio.Handle(1 << 20), TypeError, "profile 1048576: must be a dsaio.Profile"),
        (lambda p: dsaio.Handle(io_class=["demand"]), ValueError, "io_class .*: must be one of"),
        (lambda p: dsaio.Handle(dsaio.Profile(block_size="1M")), TypeError, "block_size '1M': must be an integer"),
        (lambda p: dsaio.Handle(dsaio.Profile(block_size=0)), OSError, "block_size 0: must be from 512 to 67108864"),
        (lambda p: dsaio.Handle(dsaio.Profile(single_submit="no")), TypeError, "single_submit 'no': must be True or"),
        (lambda p: dsaio.aio_handle(queue_depth="8"), TypeError, "queue_depth '8': must be an integer"),
        (lambda p: dsaio.aio_handle(1 << 20, 128, False, None), TypeError, "overlap_events None: must be True or"),
        (lambda p: dsaio.alloc(1 << 70), ValueError, "nbytes .*: must be from 1 to 2.63 - 1"),
        (lambda p: dsaio.alloc(1.5), TypeError, "nbytes 1.5: must be an integer"),
        (lambda p: dsaio.alloc(4096, wait="1"), TypeError, "wait '1': must be a number of seconds"),
        (lambda p: dsaio.alloc(4096, wait=-1), ValueError, "wait -1: must be from 0"),
        (lambda p: dsaio.File(p, 1 << 32), ValueError, "flags 4294967296: must be from 0"),
        (lambda p: dsaio.File(p, "r"), TypeError, "flags 'r': must be flags of os.open"),
        (lambda p: dsaio.File(5), TypeError, "file 5: must be a path$"),
        (lambda p: dsaio.drop(5), TypeError, "file 5: must be a path$"),
        (lambda p: dsaio.File(p).truncate("0"), TypeError, "size '0': must be an integer"),
    ],
)
def test_a_wrong_argument_is_named(path, call, error, message):
    make_file(path, b"x")
    with pytest.raises(error, match=message) as e:
        call(path)
    assert error is not OSError or e.value.errno == errno.EINVAL


def test_a_wrong_argument_of_an_op_is_named(handle, path):
    make_file(path, bytes(100))
    buffer = bytearray(1)
    for timeout in (-1, 1e300, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="timeout .*: must be from 0 to 4294967 seconds"):
            handle.submit_read(buffer, path, timeout=timeout)
    for offset in ("0", 1.5):
        with pytest.raises(TypeError, match=f"file_offset {offset!r}: must be an integer"):
            handle.submit_read(buffer, path, offset)
        with pytest.raises(TypeError, match=f"file_offset {offset!r}: must be an integer"):
            handle.submit_reads([(buffer, path, offset)])
    with open(path, "rb") as f, pytest.raises(TypeError, match="pass its fileno.., or open its path as a dsaio.File"):
        handle.submit_read(buffer, f)
    with pytest.raises(TypeError, match="buffer 'text': must be a tensor"):
        handle.submit_write("text", path)
    op = handle.submit_read(buffer, path)
    with pytest.raises(TypeError, match="timeout 'a': must be a number of seconds"):
        op.wait(timeout="a")
    assert op.wait(timeout=float("inf")) == 1


def test_a_request_with_too_many_parts_starts_nothing(handle, path):
    make_file(path, bytes(100))
    for wrong in ((bytearray(1), path, 0, 0.001, "junk"), (bytearray(1),), 5):
        with pytest.raises(ValueError, match="request 1: must be .buffer, file"):
            handle.submit_reads([(bytearray(1), path), wrong])
    assert handle.stats()[:2] == (0, 0) and handle.stats().open == 0


def test_with_refuses_what_is_closed(path):
    make_file(path, b"x")
    for closed in (dsaio.Handle(), dsaio.aio_handle(), dsaio.File(path)):
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            with closed:
                raise AssertionError("it began")


def test_a_message_on_a_descriptor_does_not_end_in_its_number(handle):
    for fd in (987654, -1, (1 << 32) + 1):
        with pytest.raises(OSError, match=f"{fd}") as e:
            handle.submit_write(b"x", fd)
        assert e.value.errno == errno.EBADF and not str(e.value).endswith(f": {fd}")


def test_op_timeout_of_a_handle(folder):
    with dsaio.aio_handle(op_timeout=1e-6) as handle:
        ops = [handle.submit_write(bytes(64 * MIB), f"{folder}/{i}") for i in range(4)]
        errors = set()
        for op in ops:
            try:
                op.wait()
            except OSError as e:
                errors.add(e.errno)
                assert " op_timeout= of the handle, is over; what the range" in e.strerror, e
        assert errors == {errno.ETIMEDOUT}


def test_stats(path):
    with dsaio.aio_handle() as handle:
        assert handle.stats()[:-1] == (0, 0, 0, 0, 0, 0, 0)
        handle.sync_pwrite(bytes(1000), path)
        handle.async_pread(bytearray(1000), path)
        handle.async_pread(bytearray(600), path, 500)
        assert handle.stats().open == 2
        with pytest.raises(OSError):
            handle.wait()
        handle.submit_write(bytes(10), path).wait()
        handle.submit_fsync(path).wait()
        stats = handle.stats()
        assert stats.reads == 2 and stats.bytes_read == 1500 and stats.failed == 1
        assert stats.writes == 2 and stats.bytes_written == 1010 and stats.syncs == 1
        assert stats.open == 0 and stats.wait_seconds > 0
