"""dsaio.register(): shared memory of the program, which ops use without a copy."""

import errno
import gc
import mmap
import os
import tempfile
from multiprocessing.shared_memory import SharedMemory

import pytest

import dsaio
from conftest import MIB, file_bytes

PAGE = mmap.PAGESIZE


@pytest.fixture
def shared():
    memory = SharedMemory(create=True, size=MIB)
    yield memory
    memory.close()
    memory.unlink()


def mapped(fd, nbytes, offset=0):
    os.ftruncate(fd, offset + nbytes)
    pages = mmap.mmap(fd, nbytes, offset=offset)
    os.close(fd)
    return pages


def goes_without_a_copy(handle, buffer, path):
    """Writes and reads it.  Did both ops use the memory itself?"""
    data = os.urandom(len(buffer))
    buffer[:] = data
    write = handle.submit_write(buffer, path)
    write.wait()
    assert file_bytes(path) == data
    buffer[:] = bytes(len(data))
    read = handle.submit_read(buffer, path)
    read.wait()
    assert bytes(buffer) == data
    return (write.path, read.path) == ("shared", "shared")


def test_a_shared_memory(handle, path, shared):
    assert not dsaio.is_pinned(shared.buf) and not goes_without_a_copy(handle, shared.buf, path)
    with dsaio.register(shared) as registration:
        assert dsaio.is_pinned(shared.buf) and dsaio.is_pinned(shared.buf[10:20])
        assert goes_without_a_copy(handle, shared.buf, path)
        with dsaio.Handle() as other:
            assert goes_without_a_copy(other, shared.buf, path)
        assert handle.free_cpu_locked_tensor(shared.buf) is False
    assert not dsaio.is_pinned(shared.buf) and not goes_without_a_copy(handle, shared.buf, path)
    registration.close()
    with pytest.raises(ValueError, match="not registered any more"):
        with registration:
            pass


def test_a_size_that_is_no_multiple_of_a_page(handle, path):
    memory = SharedMemory(create=True, size=5000)
    with dsaio.register(memory):
        assert goes_without_a_copy(handle, memory.buf[:4096], path)
    memory.close()
    memory.unlink()


def test_a_memory_that_another_process_made(handle, path, shared):
    again = SharedMemory(shared.name)
    with dsaio.register(again):
        assert goes_without_a_copy(handle, again.buf, path)
        assert shared.buf == again.buf
    again.close()


@pytest.mark.parametrize("offset", [0, 3 * PAGE])
def test_an_mmap_of_a_memfd_whose_descriptor_is_closed(handle, path, offset):
    pages = mapped(os.memfd_create("test"), MIB, offset)
    with dsaio.register(pages):
        assert goes_without_a_copy(handle, pages, path)
    pages.close()


def test_an_mmap_of_a_file_in_dev_shm(handle, path):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        pages = mapped(os.dup(file.fileno()), MIB)
        with dsaio.register(pages):
            assert goes_without_a_copy(handle, pages, path)
        pages.close()


def test_a_part_of_a_mapping(handle, path):
    pages = mapped(os.memfd_create("test"), 4 * PAGE)
    view = memoryview(pages)
    with dsaio.register(view[PAGE + 100 : 3 * PAGE]):
        assert dsaio.is_pinned(view[PAGE : 3 * PAGE])
        assert not dsaio.is_pinned(view[:PAGE]) and not dsaio.is_pinned(view[PAGE : 3 * PAGE + 1])
        assert goes_without_a_copy(handle, view[PAGE : 3 * PAGE], path)
        with pytest.raises(OSError) as e:
            dsaio.register(view[PAGE : PAGE + 1])
        assert e.value.errno == errno.EEXIST
        with dsaio.register(view[3 * PAGE :]):
            assert dsaio.is_pinned(view[3 * PAGE :])


def test_arrays_of_numpy(handle, path, shared):
    numpy = pytest.importorskip("numpy")
    array = numpy.frombuffer(shared.buf, "float32")
    with dsaio.register(array):
        array[:] = 3
        op = handle.submit_write(array, path)
        assert op.wait() == MIB and op.path == "shared"
    del array


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_shared_tensors_of_torch(handle, path, strategy):
    torch = pytest.importorskip("torch")
    multiprocessing = pytest.importorskip("torch.multiprocessing")
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy(strategy)
    try:
        tensor = torch.arange(MIB, dtype=torch.int32).share_memory_()
    finally:
        multiprocessing.set_sharing_strategy(before)
    registration = dsaio.register(tensor)
    assert dsaio.is_pinned(tensor) and dsaio.is_pinned(tensor[7:])
    assert handle.submit_write(tensor, path).wait() == 4 * MIB
    back = tensor.clone()
    tensor.zero_()
    op = handle.submit_read(tensor, path)
    assert op.wait() == 4 * MIB and torch.equal(tensor, back)
    registration.close()


def test_it_is_registered_until_the_object_is_gone():
    pages = mapped(os.memfd_create("test"), MIB)
    registration = dsaio.register(pages)
    with pytest.raises(BufferError):
        pages.close()
    del registration
    gc.collect()
    assert not dsaio.is_pinned(pages)
    dsaio.register(pages).close()
    pages.close()


def test_an_open_op_keeps_it(handle, daemon, path, shared):
    registration = dsaio.register(shared)
    assert goes_without_a_copy(handle, shared.buf, path)
    with daemon.frozen():
        op = handle.submit_read(shared.buf, path)
        with pytest.raises(OSError, match="Errno 16.*an open op uses the memory"):
            registration.close()
        assert dsaio.is_pinned(shared.buf)
        del registration
        gc.collect()
        assert dsaio.is_pinned(shared.buf)
    assert op.wait() == MIB
    del op
    gc.collect()
    assert not dsaio.is_pinned(shared.buf)


def closed_memory():
    memory = SharedMemory(create=True, size=1)
    memory.unlink()
    memory.close()
    return memory


def opened_read_only():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.ftruncate(file.fileno(), PAGE)
        return mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_COPY)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: bytearray(MIB), ValueError, "the memory of a bytearray is private and cannot be registered"),
        (lambda: mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE), ValueError, "the memory of a mmap is private"),
        (opened_read_only, ValueError, "the memory of a mmap is private"),
        (lambda: mmap.mmap(-1, MIB), ValueError, r"the memory of a mmap \(/dev/zero \(deleted\)\) has no file"),
        (lambda: dsaio.alloc(MIB), OSError, "Errno 17.*the memory of a memoryview is pinned or registered"),
        (lambda: b"", ValueError, "a bytes without bytes"),
        (closed_memory, ValueError, "the SharedMemory is closed"),
        (lambda: 7, TypeError, "buffer 7: must be a tensor"),
        (lambda: None, TypeError, "buffer None: must be a tensor"),
    ],
)
def test_what_cannot_be_registered_says_why(make, error, message):
    with pytest.raises(error, match=message):
        dsaio.register(make())


def test_a_file_on_a_disk_is_refused(path):
    pages = mapped(os.open(path, os.O_RDWR | os.O_CREAT), MIB)
    with pytest.raises(OSError) as e:
        dsaio.register(pages)
    assert e.value.errno == errno.EOPNOTSUPP


def test_a_sealed_memfd_is_refused():
    import fcntl

    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    pages = mmap.mmap(fd, PAGE, prot=mmap.PROT_READ)
    with pytest.raises(PermissionError, match="sealed against writing"):
        dsaio.register(pages)
    os.close(fd)


def test_a_child_of_fork_registers_for_itself(python):
    python(
        """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=1 << 20)
        handle = dsaio.Handle()
        def is_shared():
            op = handle.submit_write(memory.buf, folder + "/f")
            return op.wait() == 1 << 20 and op.path == "shared"
        with dsaio.register(memory):
            assert is_shared()
            pid = os.fork()
            if pid == 0:
                try:
                    assert not dsaio.is_pinned(memory.buf) and not is_shared()
                    with dsaio.register(memory):
                        assert dsaio.is_pinned(memory.buf) and is_shared()
                    os._exit(0)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            assert is_shared()
        handle.close()
        memory.close()
        memory.unlink()
        """
    )


def test_it_is_closed_after_the_daemon_has_died(python, own_daemon):
    python(
        """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=1 << 20)
        registrations = [dsaio.register(memory)]
        os.kill(daemon, signal.SIGKILL)
        registrations.pop().close()
        memory.close()
        memory.unlink()
        """,
        daemon=own_daemon,
    )


def test_a_registration_is_not_copied(daemon):
    import copy
    import pickle
    from multiprocessing.shared_memory import SharedMemory

    shared = SharedMemory(create=True, size=1 << 20)
    try:
        with dsaio.register(shared) as registration:
            for attempt in (copy.copy, pickle.dumps):
                with pytest.raises(TypeError, match="registers for itself"):
                    attempt(registration)
            assert dsaio.is_pinned(shared.buf)
    finally:
        shared.close()
        shared.unlink()
