"""Where the bytes of a tensor, an array or another buffer lie, for an op.

A buffer is a torch tensor, a numpy array, a CuPy array or another one of a GPU (_gpu.py), or any object with
the buffer protocol (bytearray, mmap, memoryview, array.array; bytes for writes).  Neither torch nor numpy is
imported here: where a program has a tensor, it has imported torch.

Contiguous memory of this process, and of a GPU of CUDA, is used where it lies.  Every other tensor (on another
device, or a view with gaps) goes through a pinned copy: filled before a write, and copied back after a read.
"""

from __future__ import annotations

import ctypes
import sys
from math import prod

from . import _check as check
from . import _memory as memory
from ._place import GpuMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from ._place import Place


class _PyBuffer(ctypes.Structure):
    """Py_buffer of the C API."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_DLPACK_CUDA, _DLPACK_MANAGED = 2, 13  # DLDeviceType

_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.c_void_p,)
_release_buffer.restype = None


def locate(buffer: Any, for_read: bool) -> Place:
    """Where the op's bytes are.  for_read: the op writes to the buffer.

    Raises TypeError or ValueError if it is no buffer, or a read-only one for a read.
    """
    try:
        address = buffer.data_ptr()
        if not (buffer.is_cpu and buffer.is_contiguous()) or buffer.is_neg() or buffer.is_conj():
            return _locate_tensor(buffer, for_read)
        nbytes = buffer.numel() * buffer.element_size()
    except AttributeError:
        return _locate_other(buffer, for_read)
    except RuntimeError as e:  # a sparse, meta or fake tensor has no memory
        raise _no_memory(buffer) from e
    return address, nbytes, memory.find(address, nbytes) or buffer, None  # type: ignore[return-value]


def is_direct(tensor: Any) -> bool:
    """Can an op use a torch tensor's memory where it lies?  Else locate() takes pinned memory for a copy of it."""
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return False
    if not tensor.is_cuda:
        return bool(tensor.is_cpu)
    from . import _gpu

    return _gpu.is_known(tensor.data_ptr())


def _locate_tensor(tensor: Any, for_read: bool) -> Place:
    """locate() of a torch tensor that has gaps or is not on the CPU."""
    if not (tensor.is_cuda and is_direct(tensor)):
        return _stage_tensor(tensor, for_read)
    from . import _gpu

    return _gpu.locate(tensor, for_read)


def locate_on_host(buffer: Any, for_read: bool) -> Place:
    """As locate(), for bytes that the processor is to use: those of a GPU go through a pinned copy, too."""
    place = locate(buffer, for_read)
    if not isinstance(place[2], GpuMemory):
        return place
    from . import _gpu

    return _gpu.stage(place, for_read)


def bytes_of(place: Place, start: int, nbytes: int) -> bytes:
    """Bytes of a place, from `start` of it on.  Raises OSError."""
    address = place[0] + start
    if not isinstance(place[2], GpuMemory):
        return ctypes.string_at(address, nbytes)
    from . import _gpu

    data = ctypes.create_string_buffer(nbytes)
    _gpu.copy(address, ctypes.addressof(data), address, nbytes)
    return data.raw


def _no_memory(tensor: Any) -> TypeError:
    return TypeError(
        f"dsaio: a tensor without memory of its own ({tensor.layout}, {tensor.device}): pass a dense one that is on"
        " the CPU or a GPU"
    )


def _stage_tensor(tensor: Any, for_read: bool) -> Place:
    import torch

    if tensor.is_sparse or tensor.device.type == "meta":
        raise _no_memory(tensor)
    staged = new_tensor(tensor.shape, tensor.dtype)

    def finish() -> None:
        with torch.no_grad():
            tensor.copy_(staged)

    if not for_read:
        with torch.no_grad():
            staged.copy_(tensor)
    nbytes = staged.numel() * staged.element_size()
    return staged.data_ptr(), nbytes, staged, finish if for_read else None  # type: ignore[return-value]


def is_gpu_tensor(buffer: Any) -> bool:
    """Is it a tensor of a GPU?  It may be of one that the library does not know."""
    if hasattr(buffer, "data_ptr"):
        return bool(buffer.is_cuda)
    if hasattr(buffer, "__cuda_array_interface__"):
        return True
    device = getattr(buffer, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in (_DLPACK_CUDA, _DLPACK_MANAGED)


def _is_array(buffer: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(buffer, numpy.ndarray)


def _locate_other(buffer: Any, for_read: bool) -> Place:
    if _is_array(buffer):
        return _locate_array(buffer, for_read)
    try:
        view = memoryview(buffer)
    except (TypeError, BufferError):
        if is_gpu_tensor(buffer):
            from . import _gpu

            return _gpu.locate(buffer, for_read)
        raise check.wrong_type("buffer", buffer, "a tensor, an array or an object with the buffer protocol") from None
    if for_read and view.readonly:
        raise ValueError(f"dsaio: cannot read into a read-only {type(buffer).__name__}")
    if not view.c_contiguous:
        raise ValueError(f"dsaio: a {type(buffer).__name__} with gaps: pass one whose bytes follow one another")
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), 0)  # the view keeps the memory where it is
    address, nbytes = raw.buf or 0, view.nbytes
    _release_buffer(ctypes.byref(raw))
    return address, nbytes, (view, memory.find(address, nbytes)), None  # type: ignore[return-value]


def _locate_array(array: Any, for_read: bool) -> Place:
    if array.dtype.hasobject:
        raise TypeError(f"dsaio: an array of Python objects ({array.dtype}) has no bytes to transfer")
    address, is_read_only = array.__array_interface__["data"]
    if for_read and is_read_only:
        raise ValueError("dsaio: cannot read into a read-only array")
    if not array.flags.c_contiguous:
        return _stage_array(array, for_read)
    return address, array.nbytes, memory.find(address, array.nbytes) or array, None  # type: ignore[return-value]


def _stage_array(array: Any, for_read: bool) -> Place:
    import numpy

    staged = new_array(array.shape, array.dtype)

    def finish() -> None:
        numpy.copyto(array, staged)

    if not for_read:
        numpy.copyto(staged, array)
    address = staged.__array_interface__["data"][0]
    return address, staged.nbytes, staged, finish if for_read else None  # type: ignore[return-value]


# ---- new pinned memory ----


def _dimensions(shape: Any) -> List[int]:
    try:
        dimensions = [shape] if hasattr(shape, "__index__") else list(shape)
    except TypeError:
        raise check.wrong_type("shape", shape, "an integer, or a sequence of integers") from None
    return [check.integer("shape", n, 0, check.MAX) for n in dimensions]


def new_tensor(shape: Any, dtype: Any) -> Any:
    """A pinned torch tensor.  A 1-D one is a view of no other tensor."""
    import torch

    dimensions = _dimensions(shape)
    example = torch.empty(0, dtype=dtype)
    n_elements = prod(dimensions)
    if n_elements == 0:
        return example.new_empty(dimensions)
    tensor = torch.frombuffer(memory.array(n_elements * example.element_size()), dtype=example.dtype, count=n_elements)
    return tensor if len(dimensions) == 1 else tensor.view(dimensions)


def new_array(shape: Any, dtype: Any) -> Any:
    """A pinned numpy array."""
    import numpy

    dimensions, dtype = _dimensions(shape), numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"dsaio: an array of Python objects ({dtype}) cannot be pinned")
    nbytes = prod(dimensions) * dtype.itemsize
    if nbytes == 0:
        return numpy.empty(dimensions, dtype)
    return numpy.ndarray(dimensions, dtype, memory.array(nbytes))


def new_like(n_elements: int, example: Any) -> Any:
    """A pinned 1-D tensor or array of as many elements, of the example's dtype."""
    n_elements = check.integer("num_elem", n_elements, 0, check.MAX)
    if _is_array(example):
        return new_array(n_elements, example.dtype)
    if not hasattr(example, "data_ptr"):
        raise TypeError(f"dsaio: the example must be a torch tensor or a numpy array, not {type(example).__name__}")
    return new_tensor(n_elements, example.dtype)


# ---- what is pinned ----


def extent(buffer: Any) -> tuple[int, int]:
    """The address of a buffer's first byte, and the bytes from there to its last, gaps included."""
    if hasattr(buffer, "data_ptr"):
        if not (buffer.is_cpu or buffer.is_cuda):
            return 0, 0
        nbytes = buffer.numel() * buffer.element_size()
        if nbytes and not buffer.is_contiguous():
            last = sum((n - 1) * stride for n, stride in zip(buffer.shape, buffer.stride()))
            nbytes = (last + 1) * buffer.element_size()
        return buffer.data_ptr(), nbytes
    if _is_array(buffer):
        first = last = buffer.__array_interface__["data"][0]
        for n, stride in zip(buffer.shape, buffer.strides):
            if n and stride < 0:
                first += (n - 1) * stride
            elif n:
                last += (n - 1) * stride
        return first, last + buffer.itemsize - first if buffer.size else 0
    if is_gpu_tensor(buffer):
        from . import _gpu

        return _gpu.extent(buffer)
    address, nbytes, _, _ = _locate_other(buffer, False)
    return address, nbytes


def is_pinned(buffer: Any) -> bool:
    """Does the whole range of the buffer lie in pinned or registered memory, of dsaio or of torch?"""
    address, nbytes = extent(buffer)
    pinned = memory.find(address, nbytes)
    if pinned is not None:
        return pinned.is_locked
    if hasattr(buffer, "data_ptr") and not buffer.is_cuda:
        return bool(buffer.is_pinned())
    if not is_gpu_tensor(buffer):
        return False
    from . import _gpu

    return _gpu.is_pinned(address, nbytes)


def unlock(address: int) -> bool:
    """is_pinned() denies the allocation that starts there, from now on.  False: there is none."""
    allocation = memory.find_start(address)
    if not isinstance(allocation, memory.Allocation) or not allocation.is_locked:
        return False
    allocation.is_locked = False
    return True
