"""Pinned memory: who recognises it, and when it returns to the pool."""

import errno
import gc
import re
import weakref

import pytest

import dsaio
from conftest import MIB


def test_a_pinned_tensor_is_aligned_writable_and_has_no_base(handle, kind):
    for dtype in kind.dtypes:
        example = kind.empty(dtype)
        tensor = handle.new_cpu_locked_tensor(1000, example)
        assert tensor.dtype == example.dtype and tuple(tensor.shape) == (1000,)
        assert kind.address(tensor) % 4096 == 0
        assert getattr(tensor, "_base", None) is None  # DeepSpeed finalizes the tensor, and keeps a slice of it
        tensor[:] = 1
        assert handle.is_pinned(tensor)


def test_arguments_of_new_cpu_locked_tensor(handle, kind):
    for tensor in (
        handle.new_cpu_locked_tensor(10, kind.empty()),
        handle.new_cpu_locked_tensor(num_elem=10, example_tenosr=kind.empty()),
        handle.new_cpu_locked_tensor(num_elem=10, example_tensor=kind.empty()),
        dsaio.pin_handle().new_cpu_locked_tensor(num_elem=10, example_tensor=kind.empty()),
    ):
        assert handle.is_pinned(tensor)
    for wrong in ((10,), (10, None), (10, [1.0])):
        with pytest.raises(TypeError):
            handle.new_cpu_locked_tensor(*wrong)
    with pytest.raises(ValueError):
        handle.new_cpu_locked_tensor(-1, kind.empty())


def test_a_tensor_without_elements(handle, kind):
    tensor = handle.new_cpu_locked_tensor(0, kind.empty("float32"))
    assert tuple(tensor.shape) == (0,) and tensor.dtype == kind.empty("float32").dtype
    assert handle.free_cpu_locked_tensor(tensor) is False


def test_is_pinned_knows_views_and_nothing_else(handle, kind):
    tensor = handle.new_cpu_locked_tensor(10000, kind.empty())
    other = handle.new_cpu_locked_tensor(10000, kind.empty())
    for view in (
        kind.narrow(tensor, 0, 10000),
        kind.narrow(tensor, 5000, 5000),
        kind.narrow(tensor, 1, 1),
        tensor.reshape(100, 100)[:, 3],
        tensor.reshape(100, 100).T,
        tensor[::7],
        other,
    ):
        assert handle.is_pinned(view) is True
        assert dsaio.is_pinned(view) is True
    assert handle.is_pinned(kind.of(bytes(10000))) is False
    assert handle.is_pinned(kind.of(bytes(10000)).reshape(100, 100).T) is False


def test_handles_know_each_other_s_memory(handle, kind):
    pins = dsaio.pin_handle()
    tensor = pins.new_cpu_locked_tensor(100, kind.empty())
    with dsaio.aio_handle() as second:
        assert handle.is_pinned(tensor) and second.is_pinned(tensor) and pins.is_pinned(tensor)
        assert handle.free_cpu_locked_tensor(tensor) is True
        assert not second.is_pinned(tensor) and not pins.is_pinned(tensor)
    tensor = handle.new_cpu_locked_tensor(100, kind.empty())
    assert pins.free_cpu_locked_tensor(locked_tensor=tensor) is True
    tensor = handle.new_cpu_locked_tensor(100, kind.empty())
    assert pins.free_cpu_locked_tensor_by_ptr(kind.address(tensor) + 1) is False
    assert pins.free_cpu_locked_tensor_by_ptr(kind.address(tensor)) is True
    assert pins.free_cpu_locked_tensor_by_ptr(kind.address(tensor)) is False
    assert not handle.is_pinned(tensor)


def test_free_matches_the_first_element(handle, kind):
    tensor = handle.new_cpu_locked_tensor(100, kind.empty())
    assert handle.free_cpu_locked_tensor(kind.narrow(tensor, 1, 50)) is False
    assert handle.is_pinned(tensor)
    assert handle.free_cpu_locked_tensor(kind.narrow(tensor, 0, 50)) is True
    assert handle.is_pinned(tensor) is False
    assert handle.free_cpu_locked_tensor(tensor) is False
    assert handle.free_cpu_locked_tensor(kind.of(bytes(100))) is False


# ---- when the bytes return ----

def mapped_bytes():
    """Bytes of the pool that this process maps."""
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:" in line and "rw-s" in line:
                start, end = re.match(r"([0-9a-f]+)-([0-9a-f]+)", line).groups()
                total += int(end, 16) - int(start, 16)
    return total


BIG = 300 * MIB  # more than one slab for small buffers: it has a slab of its own


def test_memory_returns_with_the_last_view(handle, kind):
    gc.collect()
    before = mapped_bytes()
    tensor = handle.new_cpu_locked_tensor(BIG, kind.empty())
    view = kind.narrow(tensor, 100, 5)
    assert mapped_bytes() >= before + BIG
    del tensor
    gc.collect()
    view[:] = 7
    assert mapped_bytes() >= before + BIG and handle.is_pinned(view)
    del view
    gc.collect()
    assert mapped_bytes() < before + BIG


def test_freed_memory_stays_until_the_last_view_is_gone(handle, kind, path):
    gc.collect()
    before = mapped_bytes()
    tensor = handle.new_cpu_locked_tensor(BIG, kind.empty())
    view = kind.narrow(tensor, 4096, 4096)
    view[:] = 7
    assert handle.free_cpu_locked_tensor(tensor) is True
    assert handle.is_pinned(view) is False
    del tensor
    assert handle.sync_pwrite(view, path) == 1
    with open(path, "rb") as f:
        assert f.read() == b"\7" * 4096
    assert mapped_bytes() >= before + BIG
    del view
    gc.collect()
    assert mapped_bytes() < before + BIG


def test_an_op_keeps_the_memory_of_a_tensor_that_is_gone(handle, kind, path):
    gc.collect()
    before = mapped_bytes()
    for opener in (handle.submit_write, handle.async_pwrite):
        tensor = handle.new_cpu_locked_tensor(BIG, kind.empty())
        tensor[:] = 3
        op = opener(tensor, path)
        del tensor
        gc.collect()
        if op:
            assert op.wait() == BIG
        else:
            assert handle.wait() == 1
        gc.collect()
        assert mapped_bytes() < before + BIG


def test_an_op_keeps_memory_whose_tensor_gets_another_storage(handle, path):
    """share_memory_() and pickling replace the storage in place, and its finalizer runs at once."""
    torch = pytest.importorskip("torch")
    gc.collect()
    before = mapped_bytes()
    tensor = handle.new_cpu_locked_tensor(BIG, torch.empty(0, dtype=torch.uint8))
    tensor.fill_(5)
    assert handle.async_pwrite(tensor, path) == 0
    tensor.share_memory_()
    others = [handle.new_cpu_locked_tensor(MIB, tensor).fill_(9) for _ in range(4)]
    assert handle.wait() == 1
    with open(path, "rb") as f:
        assert f.read() == b"\5" * BIG
    assert not handle.is_pinned(tensor)
    del others
    gc.collect()
    assert mapped_bytes() < before + BIG


def test_a_finalizer_on_the_tensor_waits_for_slices(handle):
    """DeepSpeed's native pinning frees by a finalizer on the tensor, and keeps only a slice of it."""
    torch = pytest.importorskip("torch")
    pins = dsaio.pin_handle()
    tensor = pins.new_cpu_locked_tensor(1000, torch.empty(0))
    calls = []
    weakref.finalize(tensor, calls.append, tensor.data_ptr())
    part = tensor[:100]
    assert part._base is tensor
    del tensor
    gc.collect()
    assert not calls and pins.is_pinned(part)


def test_handles_and_memory_die_in_any_order(kind, path):
    handle = dsaio.aio_handle()
    tensor = handle.new_cpu_locked_tensor(4096, kind.empty())
    tensor[:] = 1
    del handle
    gc.collect()
    with dsaio.aio_handle() as handle:
        assert handle.is_pinned(tensor)
        assert handle.sync_pwrite(tensor, path) == 1


# ---- memory without a tensor ----


def test_alloc(handle, path):
    memory = dsaio.alloc(10000)
    assert len(memory) == 10000 and memory.format == "B" and not memory.readonly
    memory[:] = b"a" * 10000
    assert dsaio.is_pinned(memory) and dsaio.is_pinned(memory[17:20])
    assert not dsaio.is_pinned(bytearray(100))
    assert handle.submit_write(memory, path).wait() == 10000
    assert handle.submit_read(memory[5000:], path).wait() == 5000
    with pytest.raises(ValueError):
        dsaio.alloc(0)


def test_numpy_and_torch_tensors_of_alloc_keep_it(handle):
    numpy = pytest.importorskip("numpy")
    memory = dsaio.alloc(4096)
    tensor = numpy.frombuffer(memory, numpy.float32)
    del memory
    gc.collect()
    tensor[:] = 1
    assert handle.is_pinned(tensor)


@pytest.mark.parametrize("shape, wanted", [(7, (7,)), ((2, 3), (2, 3)), ([4, 5, 6], (4, 5, 6)), ((), ())])
def test_empty_tensors_are_pinned(kind, shape, wanted):
    for dtype in kind.dtypes:
        tensor = kind.empty_pinned(shape, dtype)
        assert tensor.dtype == kind.empty(dtype).dtype and tuple(tensor.shape) == wanted
        assert kind.address(tensor) % 4096 == 0 and dsaio.is_pinned(tensor)
        tensor[...] = 1
    assert kind.empty_pinned(shape, None).dtype == kind.default_dtype()


def test_empty_tensors_without_elements(kind):
    for shape in (0, (0,), (3, 0, 2)):
        assert tuple(kind.empty_pinned(shape).shape) == ((0,) if shape == 0 else shape)


def test_the_memory_of_an_empty_tensor_lives_as_long_as_its_views(kind):
    gc.collect()
    before = mapped_bytes()
    tensor = kind.empty_pinned((300, MIB))
    view = tensor[7][5:10]
    del tensor
    gc.collect()
    view[:] = 7
    assert mapped_bytes() >= before + BIG and dsaio.is_pinned(view)
    del view
    gc.collect()
    assert mapped_bytes() < before + BIG


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((-1,), ValueError, "shape -1: must be from 0"),
        (((2, -1),), ValueError, "shape -1: must be from 0"),
        ((None,), TypeError, "shape None: must be an integer, or a sequence"),
        ((1.5,), TypeError, "shape 1.5: must be an integer, or a sequence"),
        (((2, 1.5),), TypeError, "shape 1.5: must be an integer"),
        (((1 << 40, 1 << 40),), ValueError, "must be from 1 to 2\\^63"),
        ((1 << 50,), OSError, "this client may have"),
    ],
)
def test_wrong_shapes_of_empty(kind, arguments, error, message):
    with pytest.raises(error, match=message):
        kind.empty_pinned(*arguments)


def test_wrong_dtypes_of_empty(kind):
    for wrong in ("float33", object()):
        with pytest.raises(TypeError):
            kind.empty_pinned(3, wrong)
    numpy_empty = pytest.importorskip("dsaio.numpy").empty
    with pytest.raises(TypeError, match="Python objects"):
        numpy_empty(3, object)


def test_an_exhausted_pool_is_enomem(handle, kind):
    with pytest.raises(OSError) as e:
        handle.new_cpu_locked_tensor(1 << 50, kind.empty())
    assert e.value.errno == errno.ENOMEM and e.value.strerror
    with pytest.raises(OSError) as e:
        dsaio.alloc(1 << 50, wait=0.01)
    assert e.value.errno == errno.ENOMEM
