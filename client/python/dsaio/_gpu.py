"""GPU memory of the program: where it lies, its stream, and its registration.

A tensor of a GPU is one of torch, or an object with `__cuda_array_interface__` (CuPy, Numba, JAX) or DLPack.  The
library moves its bytes.  It does not wait for the program's streams, so this module waits until the work on
the tensor's stream has ended, before an op is submitted.

The program has opened libcuda, or it would have no such tensor.  Neither torch nor libcuda is loaded here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from math import prod
from operator import index

from . import _library as library
from . import _memory as memory
from ._connection import connection, existing
from ._place import GpuMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence

    from ._place import Place

    class Range(NamedTuple):
        """Memory of a GPU."""

        address: int
        nbytes: int
        owner: Any  # keeps it
        stream: Optional[int]  # whose work must have ended before an op; None: there is none

else:
    from collections import namedtuple

    Range = namedtuple("Range", "address nbytes owner stream")

_LIBRARY = "libcuda.so.1"
_LEGACY = 1  # CUstream: the default one, which all of the context's blocking streams wait for


# ---- libcuda ----

_FUNCTIONS: Dict[str, Sequence[Any]] = {
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
}
_found: Any = None


def _libcuda() -> Any:
    """The program's libcuda.  None: it has opened none."""
    global _found
    if _found is None:
        try:
            found = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
            for name, arguments in _FUNCTIONS.items():
                getattr(found, name).argtypes = arguments
        except (OSError, AttributeError):
            return None
        _found = found
    return _found


def _call(name: str, *arguments: Any) -> None:
    """Raises OSError."""
    result = getattr(_libcuda(), name)(*arguments)
    if result:
        text = c_char_p()
        _libcuda().cuGetErrorName(result, byref(text))
        shown = text.value.decode(errors="replace") if text.value else "unknown error"
        raise OSError(errno.EIO, f"dsaio: GPU memory: {name}(): {shown} ({result})")


def _number(address: int) -> int:
    """The number of the GPU whose memory it is.  Negative: it is no GPU's.  Raises OSError: no connection."""
    current = existing() or connection()
    number: int = library.memory_gpu(current.pointer, address)
    return number


def is_known(address: int) -> bool:
    """Is it memory of a GPU of the program's libcuda?  Only the library moves that.  Raises OSError as _number()."""
    return _number(address) >= 0


@contextlib.contextmanager
def _context_of(address: int) -> Iterator[None]:
    """The primary context of the memory's GPU is current meanwhile.  Raises OSError."""
    device, context = _number(address), c_void_p()
    _call("cuDevicePrimaryCtxRetain", byref(context), device)
    try:
        _call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", byref(context))
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", device)


def _synchronize(address: int, stream: int) -> None:
    with _context_of(address):
        _call("cuStreamSynchronize", stream)


def copy(gpu: int, to: int, source: int, nbytes: int) -> None:
    """Copies between the host and a GPU, and waits.  gpu: that one of the two addresses.  Raises OSError."""
    with _context_of(gpu):
        _call("cuMemcpyHtoD_v2" if to == gpu else "cuMemcpyDtoH_v2", to, source, nbytes)
        _call("cuStreamSynchronize", _LEGACY)


# ---- tensors ----


class _DlTensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int),
        ("device_id", c_int),
        ("ndim", c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(ctypes.c_int64)),
        ("strides", POINTER(ctypes.c_int64)),
        ("byte_offset", c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, c_char_p)
_capsule_pointer.restype = c_void_p


def _has_gaps(shape: Sequence[int], strides: Optional[Sequence[int]], itemsize: int) -> bool:
    if 0 in shape:
        return False
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides or ())):
        if n != 1 and stride != expected:
            return True
        expected *= n
    return False


def _of_torch(tensor: Any) -> Range:
    torch = sys.modules["torch"]
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    # The alias keeps the storage, also if the program gives the tensor another one.
    return Range(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor.detach(), stream)


def _of_interface(buffer: Any, for_read: bool) -> Range:
    interface, name = buffer.__cuda_array_interface__, type(buffer).__name__
    try:
        address, is_read_only = interface["data"]
        shape, typestr = interface["shape"], interface["typestr"]
        itemsize = int(typestr[2:].partition("[")[0])  # a date has its unit in []
        has_gaps = _has_gaps(shape, interface.get("strides"), itemsize)
        nbytes = index(prod(shape) * itemsize)
        # Before version 3 nothing is said of the stream.
        stream = interface.get("stream") if interface["version"] >= 3 else _LEGACY
        address = index(address or 0)
    except KeyError as e:
        raise ValueError(f"dsaio: the __cuda_array_interface__ of a {name} has no {e}: it must be added") from None
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"dsaio: the __cuda_array_interface__ of a {name} is malformed: {e}: data must be (address, is_read_only),"
            ' shape a tuple of integers, typestr such as "<f4", version an integer'
        ) from None
    if for_read and is_read_only:
        raise ValueError(f"dsaio: cannot read into a read-only {name}")
    if has_gaps:
        raise _gaps(buffer)
    return Range(address, nbytes, buffer, stream)


def _of_dlpack(buffer: Any) -> Range:
    # The producer lets the default stream wait for its own.
    capsule = buffer.__dlpack__(stream=_LEGACY)
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tensor.shape[: tensor.ndim]
    if tensor.strides and _has_gaps(shape, tensor.strides[: tensor.ndim], 1):
        raise _gaps(buffer)
    nbytes = (prod(shape) * tensor.bits * tensor.lanes + 7) // 8
    return Range((tensor.data or 0) + tensor.byte_offset, nbytes, (buffer, capsule), _LEGACY)


def _gaps(buffer: Any) -> ValueError:
    return ValueError(f"dsaio: a {type(buffer).__name__} with gaps: pass one whose bytes follow one another")


def _range_of(buffer: Any, for_read: bool) -> Range:
    if hasattr(buffer, "data_ptr"):
        return _of_torch(buffer)
    if hasattr(buffer, "__cuda_array_interface__"):
        return _of_interface(buffer, for_read)
    return _of_dlpack(buffer)


def extent(buffer: Any) -> tuple[int, int]:
    """The address of the first byte of a tensor of a GPU, and its bytes.  Raises ValueError if it has gaps."""
    return _range_of(buffer, False)[:2]


def locate(buffer: Any, for_read: bool) -> Place:
    """The place of a tensor of a GPU that is_gpu_tensor(), without gaps.  Its stream has ended its work.

    Raises ValueError; OSError: EFAULT if it is no memory of a GPU, EIO if the work failed.
    """
    address, nbytes, owner, stream = _range_of(buffer, for_read)
    if nbytes:
        if not is_known(address):
            raise OSError(errno.EFAULT, f"dsaio: {address:#x} is no memory of a GPU that this process uses")
        if stream is not None:
            _synchronize(address, stream)
    return address, nbytes, GpuMemory(owner), None  # type: ignore[return-value]


def stage(place: Place, for_read: bool) -> Place:
    """A pinned copy of a place in a GPU's memory, filled unless for_read.  finish() copies it back."""
    address, nbytes, owner = place[:3]
    if not nbytes:
        return place
    array = memory.array(nbytes)
    to = ctypes.addressof(array)

    def finish() -> None:
        copy(address, address, to, nbytes)

    if not for_read:
        copy(address, to, address, nbytes)
    return to, nbytes, (array, owner), finish if for_read else None  # type: ignore[return-value]


# ---- what is pinned ----


def pin(address: int, nbytes: int) -> None:
    """Registers the memory.  Twice is fine.  Raises OSError."""
    code = library.register(connection().pointer, library.MEMORY_CUDA, address, nbytes)
    if code < 0 and not (code == -errno.EEXIST and is_pinned(address, nbytes)):
        raise library.error(code)


def unpin(address: int) -> bool:
    """Undoes pin() of memory that starts there.  False: there is none.  Raises OSError."""
    current = existing()
    code = library.memory_unregister(current.pointer, address) if current and address else -errno.EINVAL
    return code != -errno.EINVAL and not library.check(code)


def is_pinned(address: int, nbytes: int) -> bool:
    """Does the whole range lie in memory that is pinned?"""
    current = existing()
    return current is not None and library.memory_kind(current.pointer, address, nbytes) == library.MEMORY_CUDA


def new_like(n_elements: int, example: Any) -> Any:
    """A 1-D tensor of as many elements and the example's dtype, on its GPU, or else on the current one.

    Raises TypeError if the example is neither of torch nor of CuPy.
    """
    if hasattr(example, "data_ptr"):
        torch = sys.modules["torch"]
        return torch.empty(n_elements, dtype=example.dtype, device=example.device if example.is_cuda else "cuda")
    cupy = sys.modules.get("cupy")
    if cupy is None or not isinstance(example, cupy.ndarray):
        raise TypeError(f"dsaio: the example must be a tensor of torch or CuPy, not {type(example).__name__}")
    with example.device:
        return cupy.empty(n_elements, example.dtype)
