"""GPU memory for tests: the stand-in for libcuda (tests/gpu/), and tensors over it.

As with a real one, the host cannot access the memory, and copies are queued on streams.  `Array` is an object as
CuPy's, `Tensor` as torch's, as far as the package looks at them: neither runs on a stand-in.
"""

import collections
import ctypes
import os
import types
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from conftest import BUILD

PATH = os.path.join(BUILD, "tests", "gpu", "libcuda.so")
_cuda = None


def load():
    """Opens the library, as the program that has a GPU does."""
    global _cuda
    if _cuda is None:
        cuda = ctypes.CDLL(PATH)
        cuda.standin_bytes.restype = c_void_p
        cuda.standin_bytes.argtypes = (c_uint64,)
        cuda.cuMemAlloc_v2.argtypes = (c_void_p, c_size_t)
        cuda.cuMemFree_v2.argtypes = (c_uint64,)
        cuda.cuMemcpyHtoDAsync_v2.argtypes = (c_uint64, c_void_p, c_size_t, c_void_p)
        cuda.cuStreamDestroy_v2.argtypes = cuda.cuCtxPushCurrent_v2.argtypes = (c_void_p,)
        assert cuda.cuInit(0) == 0
        _cuda = cuda
        with current():
            pass  # the primary context stays
    return _cuda


class current:
    """The context of GPU 0 is current meanwhile."""

    def __enter__(self):
        context = c_void_p()
        assert _cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
        assert _cuda.cuCtxPushCurrent_v2(context) == 0

    def __exit__(self, *exception):
        assert _cuda.cuCtxPopCurrent_v2(byref(c_void_p())) == 0


class Memory:
    """An allocation.  Freed with the last tensor."""

    def __init__(self, nbytes):
        address = c_uint64()
        with current():
            assert _cuda.cuMemAlloc_v2(byref(address), max(1, nbytes)) == 0
        self.address, self.nbytes = address.value, nbytes
        self.sources = []  # of the copies to it

    def __del__(self):
        with current():
            assert _cuda.cuMemFree_v2(self.address) == 0

    @property
    def bytes(self):
        return ctypes.string_at(_cuda.standin_bytes(self.address), self.nbytes)

    @bytes.setter
    def bytes(self, data):
        ctypes.memmove(_cuda.standin_bytes(self.address), data, len(data))


class Stream:
    """A stream of the program's, on which copies wait until somebody synchronizes it."""

    def __init__(self, handle=None):
        self.handle = handle
        if handle is None:
            created = c_void_p()
            with current():
                assert _cuda.cuStreamCreate(byref(created), 1) == 0
            self.handle = created.value

    def fill(self, memory, data):
        """Queues a copy of the bytes to the memory, which keeps them: this object may go before they are copied."""
        source = ctypes.create_string_buffer(data, len(data))
        memory.sources.append(source)
        with current():
            assert _cuda.cuMemcpyHtoDAsync_v2(memory.address, source, len(data), self.handle) == 0


class Array:
    """As cupy.ndarray."""

    device = current()

    def __init__(self, content=b"", start=0, end=None, memory=None, **interface):
        if memory is None:
            memory = Memory(len(content))
            memory.bytes = content
        self.memory = memory
        self.start, self.nbytes = start, (memory.nbytes if end is None else end) - start
        self.dtype = "uint8"
        self.interface = interface

    def part(self, start, end, **interface):
        return type(self)(memory=self.memory, start=self.start + start, end=self.start + end, **interface)

    @property
    def address(self):
        return self.memory.address + self.start

    @property
    def bytes(self):
        return self.memory.bytes[self.start : self.start + self.nbytes]

    @property
    def __cuda_array_interface__(self):
        described = dict(shape=(self.nbytes,), typestr="|u1", data=(self.address, False), version=3, stream=None)
        return dict(described, **self.interface)


def cupy():
    """The module."""
    module = types.ModuleType("cupy")
    module.ndarray = Array
    module.empty = lambda n, dtype: Array(bytes(n))
    return module


class _DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", c_int * 2),
        ("ndim", c_int),
        ("code_bits", ctypes.c_uint8 * 2),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", c_uint64),
    ]


class DlArray:
    """One with DLPack alone."""

    def __init__(self, array, strides=None, kind=2):
        self.array = array
        self.kind = kind
        self.shape = (ctypes.c_int64 * 2)(array.nbytes // 4, 2)
        self.strides = strides and (ctypes.c_int64 * 2)(*strides)
        self.n_open = 0

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, *, stream=None):
        assert stream == 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (c_void_p, ctypes.c_char_p, c_void_p)
        self.tensor = _DlTensor(self.array.memory.address, (self.kind, 0), 2, (1, 16), 1, self.shape, self.strides)
        self.tensor.byte_offset = self.array.start
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


Device = collections.namedtuple("Device", "type index")


class Tensor:
    """As torch.Tensor on a GPU."""

    is_cpu, is_cuda = False, True
    layout = "torch.strided"
    dtype = "torch.uint8"

    def __init__(self, array, n_aliases=None):
        self.array = array
        self.device = Device("cuda", 0)
        self.shape = (array.nbytes,)
        self.n_aliases = n_aliases if n_aliases is not None else []

    def data_ptr(self):
        return self.array.address

    def numel(self):
        return self.array.nbytes

    def element_size(self):
        return 1

    def is_contiguous(self):
        return True

    def is_neg(self):
        return False

    is_conj = is_neg

    def detach(self):
        self.n_aliases.append(1)
        return Tensor(self.array, self.n_aliases)

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.array.memory.address, nbytes=lambda: self.array.nbytes)


def torch(stream):
    """The module.  stream: the current one."""
    module = types.ModuleType("torch")
    module.cuda = types.SimpleNamespace(
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=stream.handle)
    )
    module.empty = lambda n, dtype, device: Tensor(Array(bytes(n)))
    return module
