"""Tensors of a GPU: ops on them, gds_handle, and what DeepNVMe's programs do with it."""

import asyncio
import errno
import os
import random
import sys

import pytest

import dsaio
import gpu
from conftest import MIB, PACKAGE, Daemon, file_bytes, make_file


@pytest.fixture(scope="module", autouse=True)
def cuda():
    if not os.path.exists(gpu.PATH):
        pytest.skip(f"{gpu.PATH} is not built: make tests")
    return gpu.load()


@pytest.fixture(params=["gds_handle", "aio_handle"])
def any_handle(request):
    with getattr(dsaio, request.param)() as handle:
        yield handle


@pytest.fixture
def handle():
    with dsaio.gds_handle() as handle:
        yield handle


@pytest.fixture
def cupy(monkeypatch):
    module = gpu.cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.fixture
def stream():
    return gpu.Stream()


@pytest.fixture
def torch(monkeypatch, stream):
    module = gpu.torch(stream)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def some(nbytes):
    return random.Random(nbytes).getrandbits(8 * nbytes).to_bytes(nbytes, "little")


# ---- ops ----

SIZES = [(1, 0), (512, 4096), (4096, 0), (54321, 12345), (9 * MIB + 13, 511)]


@pytest.mark.parametrize("nbytes, offset", SIZES)
def test_a_write_takes_the_bytes_of_gpu_memory(any_handle, path, nbytes, offset):
    data = some(nbytes + 7)
    array = gpu.Array(data)
    assert any_handle.async_pwrite(array.part(3, 3 + nbytes), path, offset) == 0
    assert any_handle.wait() == 1
    assert file_bytes(path)[offset:] == data[3 : 3 + nbytes]


@pytest.mark.parametrize("nbytes, offset", SIZES)
def test_a_read_fills_gpu_memory_and_nothing_around_it(any_handle, path, nbytes, offset):
    data = some(nbytes)
    make_file(path, bytes(offset) + data)
    array = gpu.Array(b"\xee" * (nbytes + 7))
    assert any_handle.async_pread(array.part(3, 3 + nbytes), path, offset) == 0
    assert any_handle.wait() == 1
    assert array.bytes == b"\xee" * 3 + data + b"\xee" * 4


def test_all_methods_of_deepnvme_take_gpu_memory(any_handle, path, capfd):
    data = some(MIB)
    array, back = gpu.Array(data), gpu.Array(bytes(MIB))
    assert any_handle.write(array, path, True) == 0
    assert any_handle.read(back, path, True) == 0 and back.bytes == data
    assert any_handle.pwrite(array, path, True, False, 100) == 1
    assert any_handle.pread(back, path, True, False, 100) == 1 and back.bytes == data
    assert any_handle.pwrite(array, path, True, True) == 0 == any_handle.pread(back, path, True, True)
    assert any_handle.wait() == 2
    assert any_handle.sync_pwrite(array, path) == 1 == any_handle.sync_pread(back, path)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        assert any_handle.async_pwrite(array.part(0, 4096), fd=fd, file_offset=4096) == 0 and any_handle.wait() == 1
    finally:
        os.close(fd)
    assert file_bytes(path)[4096:8192] == data[:4096]
    output = capfd.readouterr().out
    assert output.count("Pass") == 6 and "Fail" not in output


def test_ops_of_handles_take_gpu_memory(path):
    data = some(MIB)
    with dsaio.Handle() as handle, dsaio.File(path, os.O_RDWR | os.O_CREAT) as file:
        arrays = [gpu.Array(data[i : i + MIB // 4]) for i in range(0, MIB, MIB // 4)]
        for op in handle.submit_writes([(array, file, i * MIB // 4) for i, array in enumerate(arrays)]):
            assert op.wait() == MIB // 4
        back = gpu.Array(bytes(MIB))

        async def read():
            return await handle.submit_read(back, file)

        assert asyncio.run(read()) == MIB
        assert back.bytes == data
        with pytest.raises(OSError) as e:
            handle.submit_read(back, file, 1).wait()
        assert e.value.errno == errno.ENODATA


def test_memory_of_a_dropped_tensor_is_kept_until_the_op_has_ended(handle, daemon, path):
    data = some(MIB)
    array = gpu.Array(data)
    memory = array.memory
    assert handle.sync_pwrite(array, path) == 1  # the file and the channel are open
    with daemon.frozen():
        assert handle.async_pwrite(array, path) == 0
        del array
        n_kept = sys.getrefcount(memory)
    handle.wait()
    assert sys.getrefcount(memory) == n_kept - 1
    assert file_bytes(path) == data


# ---- the program's streams ----


@pytest.mark.parametrize("version, named", [(3, "own"), (3, "default"), (2, "default")])
def test_an_op_comes_after_the_work_on_the_tensor_s_stream(handle, path, stream, version, named):
    data = some(MIB)
    stream = stream if named == "own" else gpu.Stream(1)
    array = gpu.Array(bytes(MIB), version=version, stream=stream.handle)
    if version == 2:
        del array.interface["stream"]
    stream.fill(array.memory, data)
    assert handle.sync_pwrite(array, path) == 1
    assert file_bytes(path) == data


def test_work_on_a_stream_that_reads_memory_ends_before_a_read_overwrites_it(handle, path, stream):
    data = some(MIB)
    make_file(path, data)
    array = gpu.Array(bytes(MIB), stream=stream.handle)
    stream.fill(array.memory, b"\xee" * MIB)
    assert handle.sync_pread(array, path) == 1
    assert array.bytes == data


def test_a_stream_of_none_is_not_waited_for(handle, path, stream):
    array = gpu.Array(bytes(MIB))
    stream.fill(array.memory, some(MIB))
    assert handle.sync_pwrite(array, path) == 1
    assert file_bytes(path) == bytes(MIB)


def test_work_that_failed_fails_the_op_that_comes_after_it(handle, path, stream, monkeypatch, caplog):
    array = gpu.Array(bytes(MIB), stream=stream.handle)
    monkeypatch.setenv("STANDIN", "cuStreamSynchronize=719")
    assert handle.async_pwrite(array, path) == -1
    assert "cuStreamSynchronize(): unknown error (719)" in caplog.text
    with pytest.raises(OSError) as e:
        handle.submit_write(array, path)
    assert e.value.errno == errno.EIO
    monkeypatch.delenv("STANDIN")
    assert handle.sync_pwrite(array, path) == 1


# ---- what is refused ----


def test_what_is_no_range_of_gpu_memory_is_refused(handle, path):
    make_file(path, bytes(MIB))
    array = gpu.Array(bytes(100))
    with pytest.raises(ValueError, match="read-only"):
        handle.async_pread(gpu.Array(bytes(100), data=(array.address, True)), path)
    for gaps in (dict(shape=(50,), strides=(2,)), dict(shape=(5, 10), strides=(1, 5))):
        with pytest.raises(ValueError, match="with gaps"):
            handle.async_pread(gpu.Array(bytes(100), **gaps), path)
    with pytest.raises(OSError) as e:
        handle.submit_read(gpu.Array(bytes(100), data=(4096, False)), path)
    assert e.value.errno == errno.EFAULT and "0x1000 is no memory of a GPU" in str(e.value)
    with pytest.raises(TypeError, match="buffer"):
        handle.async_pread(object(), path)
    with pytest.raises(OSError) as e:  # it passes the allocation's end
        handle.submit_read(gpu.Array(bytes(100), shape=(MIB,)), path).wait()
    assert e.value.errno == errno.EFAULT


def test_strides_without_gaps_and_no_elements_are_taken(handle, path):
    data = some(96)
    for typestr in ("<f8", "<M8[ns]"):
        array = gpu.Array(data, shape=(4, 3, 1), typestr=typestr, strides=(24, 8, 7))
        assert handle.sync_pwrite(array, path) == 1 and file_bytes(path) == data
        os.unlink(path)
    empty = gpu.Array(b"", shape=(0, 3), strides=(1, 1), data=(0, False), stream=1)
    assert handle.sync_pwrite(empty, path) == 1 == handle.sync_pread(empty, path)
    assert file_bytes(path) == b""


@pytest.mark.parametrize(
    "wrong, text",
    [
        (dict(shape=None), "malformed: .*shape a tuple of integers"),
        (dict(shape=("3",)), "malformed: "),
        (dict(typestr="f"), "malformed: .*typestr such as"),
        (dict(typestr=4), "malformed: "),
        (dict(data=4096), r"malformed: .*data must be \(address, is_read_only\)"),
        (dict(data=("4096", False)), "malformed: "),
        (dict(version="3"), "malformed: .*version an integer"),
        (dict(strides=3), "malformed: "),
    ],
)
def test_a_malformed_interface_is_named(handle, path, wrong, text):
    with pytest.raises(ValueError, match="the __cuda_array_interface__ of a Array is " + text):
        handle.sync_pwrite(gpu.Array(b"1", **wrong), path)


@pytest.mark.parametrize("missing", ["data", "shape", "typestr", "version"])
def test_what_an_interface_lacks_is_named(handle, path, missing):
    array = gpu.Array(b"1")

    class Incomplete:
        @property
        def __cuda_array_interface__(self):
            return {name: value for name, value in array.__cuda_array_interface__.items() if name != missing}

    for call in (lambda: handle.sync_pwrite(Incomplete(), path), lambda: handle.pin_device_tensor(Incomplete())):
        with pytest.raises(ValueError, match=f"the __cuda_array_interface__ of a Incomplete has no '{missing}'"):
            call()


def test_a_process_without_libcuda_says_so(python):
    output = python(
        """
        class Array:
            __cuda_array_interface__ = dict(shape=(1,), typestr="|u1", data=(4096, False), version=3, stream=1)
        with dsaio.gds_handle() as handle:
            assert handle.async_pread(Array(), "/dev/null") == -1
            assert not handle.is_pinned(Array()) and not handle.unpin_device_tensor(Array())
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        """
    )
    assert "0x1000 is no memory of a GPU that this process uses" in output


# ---- DLPack ----


def test_tensors_with_dlpack_alone_are_taken(handle, path):
    data = some(4096)
    array = gpu.Array(bytes(100) + data).part(100, 4196)
    gpu.Stream(1).fill(array.memory, bytes(100) + data[::-1])
    assert handle.sync_pwrite(gpu.DlArray(array), path) == 1 and file_bytes(path) == data[::-1]
    assert handle.sync_pwrite(gpu.DlArray(array, (2, 1), 13), path) == 1
    back = gpu.Array(bytes(4096))
    assert handle.sync_pread(gpu.DlArray(back), path) == 1 and back.bytes == data[::-1]
    with pytest.raises(ValueError, match="with gaps"):
        handle.sync_pwrite(gpu.DlArray(array, (1, 1024)), path)
    with pytest.raises(TypeError, match="buffer"):
        handle.sync_pwrite(gpu.DlArray(array, kind=1), path)


# ---- torch ----


def test_tensors_of_torch_are_taken_where_they_lie(handle, path, torch, stream):
    data = some(MIB)
    tensor = gpu.Tensor(gpu.Array(bytes(MIB)))
    stream.fill(tensor.array.memory, data)
    assert handle.async_pwrite(tensor, path) == 0
    assert tensor.n_aliases, "the op must keep the storage, whatever becomes of the tensor"
    assert handle.wait() == 1 and file_bytes(path) == data
    back = gpu.Tensor(gpu.Array(bytes(MIB)))
    assert handle.sync_pread(back, path) == 1 and back.array.bytes == data


def test_safetensors_take_gpu_memory(path, torch):
    from dsaio import safetensors

    pytest.importorskip("numpy")
    tensors = {"a": gpu.Tensor(gpu.Array(some(100000))), "b": gpu.Tensor(gpu.Array(some(7)))}
    safetensors.save_file(tensors, path)
    back = {name: gpu.Tensor(gpu.Array(bytes(tensor.numel()))) for name, tensor in tensors.items()}
    safetensors.load_into(path, back)
    assert all(back[name].array.bytes == tensors[name].array.bytes for name in tensors)
    arrays = safetensors.load_file(path, framework="np")
    assert all(arrays[name].tobytes() == tensors[name].array.bytes for name in tensors)


# ---- gds_handle ----


def test_gds_handle_has_the_values_of_its_constructor():
    with dsaio.gds_handle(262144, 2, True, True, 2) as handle:
        assert (handle.get_block_size(), handle.get_queue_depth()) == (262144, 2)
        assert handle.get_single_submit() is True is handle.get_overlap_events()
        assert handle.get_intra_op_parallelism() == 2 and handle.get_alignment() == 512
    with dsaio.gds_handle() as handle, dsaio.aio_handle() as other:
        assert handle._values == other._values
    with pytest.raises(OSError) as e:
        dsaio.gds_handle(block_size=1)
    assert e.value.errno == errno.EINVAL


def test_cpu_tensors_work_on_gds_handle_by_path_and_by_descriptor(handle, path, kind):
    data = some(MIB)
    pinned = handle.new_cpu_locked_tensor(MIB, kind.empty())
    for tensor in (kind.of(data), pinned):
        tensor[:] = kind.of(data)
        assert handle.async_pwrite(tensor, path) == 0 and handle.wait() == 1 and file_bytes(path) == data
        os.truncate(path, 0)
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        assert handle.async_pwrite(buffer=tensor, fd=fd, file_offset=0) == 0 and handle.wait() == 1
        os.close(fd)
        assert file_bytes(path) == data
        tensor[:] = 0
        assert handle.sync_pread(tensor, path) == 1 and kind.bytes(tensor) == data
    assert handle.is_pinned(pinned) and handle.free_cpu_locked_tensor(pinned)


def test_memory_is_pinned_until_it_is_unpinned(handle):
    array = gpu.Array(bytes(MIB))
    assert not handle.is_pinned(array)
    assert handle.unpin_device_tensor(array) is False
    assert handle.pin_device_tensor(array) is True is handle.pin_device_tensor(array)
    with dsaio.gds_handle() as other:
        for part in (array, array.part(0, 1), array.part(100, MIB)):
            assert other.is_pinned(part) and dsaio.is_pinned(part)
        assert not other.is_pinned(gpu.Array(bytes(MIB)))
        assert other.unpin_device_tensor(array.part(100, MIB)) is False
        assert other.unpin_device_tensor(array.part(0, 1)) is True
    assert not handle.is_pinned(array)
    assert handle.free_cpu_locked_tensor(array) is False


def test_pinned_memory_is_read_and_written(handle, path):
    data = some(9 * MIB)
    array = gpu.Array(data)
    handle.pin_device_tensor(array)
    assert handle.sync_pwrite(array, path) == 1 and file_bytes(path) == data
    array.memory.bytes = bytes(9 * MIB)
    for start in range(0, 9 * MIB, MIB):
        assert handle.async_pread(array.part(start, start + MIB), path, start) == 0
    assert handle.wait() == 9 and array.bytes == data
    assert handle.unpin_device_tensor(array) is True


def test_registered_memory_of_a_gpu(handle, path):
    array = gpu.Array(some(MIB))
    with dsaio.register(array) as registration:
        assert dsaio.is_pinned(array) and dsaio.is_pinned(array.part(100, MIB))
        with pytest.raises(OSError) as e:
            dsaio.register(array)
        assert e.value.errno == errno.EEXIST
        assert handle.sync_pwrite(array, path) == 1 and file_bytes(path) == array.bytes
    assert not dsaio.is_pinned(array)
    registration.close()


def test_new_tensors_are_pinned(handle, cupy):
    tensor = handle.new_pinned_device_tensor(1000, gpu.Array())
    assert tensor.nbytes == 1000 and handle.is_pinned(tensor)
    assert handle.free_pinned_device_tensor(tensor) is True
    assert handle.free_pinned_device_tensor(tensor) is False and not handle.is_pinned(tensor)
    for named in ("example_tenosr", "example_tensor"):
        tensor = handle.new_pinned_device_tensor(num_elem=10, **{named: gpu.Array()})
        assert handle.is_pinned(tensor) and handle.free_pinned_device_tensor(tensor)
    empty = handle.new_pinned_device_tensor(0, gpu.Array())
    assert empty.nbytes == 0 and handle.free_pinned_device_tensor(empty) is False
    for wrong in ((10,), (10, None), (10, b"")):
        with pytest.raises(TypeError):
            handle.new_pinned_device_tensor(*wrong)
    with pytest.raises(ValueError):
        handle.new_pinned_device_tensor(-1, gpu.Array())


def test_new_tensors_of_torch_are_pinned(handle, torch):
    tensor = handle.new_pinned_device_tensor(1000, gpu.Tensor(gpu.Array()))
    assert tensor.numel() == 1000 and handle.is_pinned(tensor)
    assert handle.free_pinned_device_tensor(tensor) is True and not handle.is_pinned(tensor)


def test_pinning_what_is_no_gpu_memory_says_what_to_do(handle):
    with pytest.raises(TypeError, match="new_cpu_locked_tensor"):
        handle.pin_device_tensor(bytearray(10))
    with pytest.raises(OSError) as e:
        handle.pin_device_tensor(gpu.Array(b"1", data=(4096, False)))
    assert e.value.errno == errno.EINVAL
    assert handle.unpin_device_tensor(bytearray(10)) is False
    with pytest.raises(TypeError, match="for tensors of a GPU, not for a NoneType: "):
        handle.pin_device_tensor(None)
    with pytest.raises(TypeError, match="for tensors of a GPU, not for a MetaTensor on the device .*meta"):
        handle.pin_device_tensor(MetaTensor(gpu.Array()))


class MetaTensor(gpu.Tensor):
    is_cuda, device = False, property(lambda self: gpu.Device("meta", None), lambda self, device: None)


# ---- how the bytes go ----


@pytest.fixture(params=["auto", "direct", "copy"])
def gpu_mode(request, monkeypatch):
    """A daemon with a GPU and nvidia-fs, and how it moves the bytes of GPU memory."""
    monkeypatch.setenv("STANDIN", "nvfs=2.24")
    cufile = os.path.join(os.path.dirname(gpu.PATH), "libcufile.so")
    keys = dict(cuda_library=gpu.PATH, cufile_library=cufile, gpu=request.param)
    daemon = Daemon(config="[daemon]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    yield daemon, "copied" if request.param == "copy" else "gpu"  # auto: the first ops take the usual path
    daemon.stop()


def test_the_daemon_moves_the_bytes_or_the_library_copies_them(python, gpu_mode):
    daemon, path = gpu_mode
    output = python(
        """
        import gpu
        gpu.load()
        data = os.urandom(5 << 20)
        path = os.path.join(folder, "f")
        array, back = gpu.Array(b"1" + data), gpu.Array(bytes(len(data)))
        with dsaio.gds_handle() as handle:
            handle.pin_device_tensor(array)
            assert handle.sync_pwrite(array.part(1, len(data) + 1), path) == 1
            assert open(path, "rb").read() == data
            assert handle.sync_pread(back, path) == 1 and back.bytes == data
            ops = [handle.submit_read(back, path), handle.submit_write(array, path), handle.submit_write(data, path)]
            for op in ops:
                op.wait()
            print([op.path for op in ops], [bool(op.why_copied) for op in ops])
            assert handle.unpin_device_tensor(array)
        """,
        daemon=daemon,
        PYTHONPATH=os.pathsep.join([PACKAGE, os.path.dirname(gpu.__file__)]),
    )
    is_copied = path == "copied"
    assert output.splitlines()[-1] == f"{[path, path, 'copied']} {[is_copied, is_copied, False]}"


# ---- copies on the host ----


def test_deepspeed_memcpy_copies_to_and_from_gpu_memory(cuda):
    data = some(MIB)
    array, back = gpu.Array(bytes(MIB)), bytearray(MIB)
    assert dsaio.deepspeed_memcpy(array, data) == 0 and array.bytes == data
    other = gpu.Array(bytes(MIB))
    assert dsaio.deepspeed_memcpy(other, array) == 0 and other.bytes == data
    assert dsaio.deepspeed_memcpy(back, other) == 0 and bytes(back) == data
