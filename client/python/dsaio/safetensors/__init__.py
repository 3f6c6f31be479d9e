"""safetensors files: read once for all processes of a host, or straight into pinned memory, and replaced as a whole.

    from dsaio.safetensors import load_file, load_into, safe_open, save_file

    save_file({"embedding": torch.zeros(512, 1024)}, "model.safetensors")
    tensors = load_file("model.safetensors")          # {name: torch tensor}
    load_into("model.safetensors", tensors)           # again, into the same tensors
    with safe_open("model.safetensors", framework="np") as file:
        array = file.get_slice("embedding")[:100]

Names and arguments are those of safetensors.torch; `framework="np"` makes arrays of numpy.
dsaio.safetensors.torch and dsaio.safetensors.numpy take the places of safetensors.torch and safetensors.numpy;
install() puts safe_open() where other libraries have that of safetensors.
Files that these accept are accepted, and files are written with their bytes.  A file that is refused raises
SafetensorError (a ValueError) with what is wrong, and where; what else fails raises OSError.

Tensors are views of pinned memory, which lives as long as one of them does.  In the file they lie at multiples
of 8 at best.  One that is not aligned to its elements is copied.

A file of at least 4 MiB is read once for all processes of the host, which share one pinned copy (dsaio_view() of
dsaio(3)): a tensor that a process writes to is its own from then on, page by page.  Parts for which the daemon has no
room, and files that were changed in the last 2 s, are read into ordinary memory.

Other memory is taken, and read into, in pieces, so the device is reading while the daemon makes the next piece:
that took 0.7 of the time of one piece for all (measured with 2.4 GB).
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import threading
import warnings
import weakref
from functools import partial
from math import prod
from operator import index

from .. import _buffer
from .. import _check as check
from .. import _memory as memory
from .. import _view
from .._connection import at_fork
from .._file import File, is_rados, naming, open_regular, path_bytes
from .._handle import Handle, handle_for
from .._loaders import finish, install, uninstall
from .._op import wait_all
from .._replace import new_file, remove_leftovers_beside
from .._safetensors import CODES, DTYPES, METADATA, Info, SafetensorError, make_header, pread, read_header
from .._stream import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

    from .._file import Path
    from .._op import Op

    Device = Union[None, str, int, Any]  # Any: a torch.device
    _Framework = Union["_Torch", "_Numpy"]

__all__ = [
    "SafetensorError",
    "install",
    "load",
    "load_file",
    "load_into",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "uninstall",
]

_PAGE = 4096  # memory starts at a multiple of it, and direct I/O needs no larger one
_PIECE = 64 << 20  # bytes of tensors that share their memory
_SHARED_LEAST = 4 << 20  # bytes of a file that is read as a view
_WINDOW = 256 << 20  # bytes of a file in memory at a time on their way to another device
_HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_BACKENDS = ("mmap", "pread")

# ---- the handle, ops ----

_lock = threading.Lock()
_handles: weakref.WeakValueDictionary[bool, Handle] = weakref.WeakValueDictionary()  # each goes with its last user


def _shared_handle(path: Path) -> Handle:
    """A handle of each store's own tuning, for all files, or all of RADOS stores."""
    with _lock:
        handle = _handles.get(is_rados(path))
        c = None if handle is None else handle._rados_c if is_rados(path) else handle._c
        if handle is None or (c is not None and c.connection.is_lost()):
            handle = _handles[is_rados(path)] = handle_for(path)
        return handle


def _forget() -> None:
    global _lock
    _lock = threading.Lock()


at_fork(_forget)


# ---- reading ----


class _Source:
    """An open file and its header.  The file is closed when nobody can read it any more."""

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.has_warned = False  # that tensors are in ordinary memory
        self.handle: Optional[Handle] = None  # kept open between reads
        self.shared: Any = None  # the array of a view of the file
        self.window: Any = None  # of what goes to another device: until the next one has what both need
        self.path = path
        if is_rados(path):
            self._open_rados(path)
            return
        self.fd, self.stat = open_regular(path, "safetensors file")
        self.file: Union[int, File] = self.fd
        with naming(path):
            self.header = read_header(partial(pread, self.fd), self.stat.st_size, os.fsdecode(path))
        self.nbytes = self.stat.st_size

    def _open_rados(self, path: Path) -> None:
        self.handle = _shared_handle(path)
        self.file = file = File(path)

        def read(nbytes: int, offset: int) -> bytes:
            data = bytearray(nbytes)
            self.handle.submit_read(data, file, offset).wait()  # type: ignore[union-attr]
            return bytes(data)

        self.nbytes = file.size()
        with naming(path):
            self.header = read_header(read, self.nbytes, os.fsdecode(path))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)

    def info(self, name: str) -> Info:
        try:
            return self.header.tensors[name]
        except KeyError:
            raise SafetensorError(f"{os.fsdecode(self.path)}: has no tensor {name!r}") from None

    def check(self) -> None:
        """To be called when all was read: has the file had this header all the time?  One of a RADOS store has."""
        if self.fd < 0:
            return
        now = os.fstat(self.fd)
        if (now.st_size, now.st_mtime_ns) != (self.stat.st_size, self.stat.st_mtime_ns):
            raise SafetensorError(f"{os.fsdecode(self.path)}: was changed after it was opened: open it again")

    def read(self, batches: Iterable[Iterable[Tuple[Any, int]]]) -> None:
        """Reads each (buffer, offset).  A batch may be made while the ones before it are read."""
        ops: List[Op] = []
        with naming(self.path):
            try:
                for batch in batches:
                    handle = self.handle = _shared_handle(self.path)
                    ops += handle.submit_reads((buffer, self.file, offset) for buffer, offset in batch)
            except OSError as e:
                ops += getattr(e, "ops", ())
                raise
            finally:
                try:
                    wait_all(ops)
                except OSError as e:
                    if e.errno == errno.ENODATA:
                        self.check()  # the file was cut
                    raise
        self.check()

    def load(self, infos: Iterable[Info], framework: _Framework) -> Dict[str, Any]:
        """The tensors, in new memory: ordinary one where the pool has too little room.

        infos: in the order of their bytes.
        """
        infos = list(infos)
        if framework.device is None or len(infos) < 2:  # one by one they share a view, too
            return self._load_here(infos, framework)
        tensors: Dict[str, Any] = {}
        try:
            for window in _pieces(infos, _WINDOW):
                tensors.update(self._load_here(window, framework, True))
        finally:
            self.window = None
        return tensors

    def _load_here(self, infos: List[Info], framework: _Framework, is_window: bool = False) -> Dict[str, Any]:
        if not framework.pinned:
            return self._load(infos, framework, False)
        if self.fd >= 0 and self.nbytes >= _SHARED_LEAST:
            return self._load_shared(infos, framework, is_window)
        need = sum(info.end - info.start for info in infos)
        try:
            if need > _PIECE:
                self._check_room(need)
            return self._load(infos, framework, True)
        except OSError as e:
            if e.errno != errno.ENOMEM:
                raise
            why = e.strerror
        # All that was taken of the pool is free again, since the exception is gone.
        self._warn(need, why)
        return self._load(infos, framework, False)

    def _check_room(self, need: int) -> None:
        """Refuses what cannot fit, before anything is taken and read."""
        room = memory.room(is_rados(self.path))
        if need > room:
            raise OSError(errno.ENOMEM, f"this process may have {room} bytes more of the pool (client_pool_max)")

    def _warn(self, need: int, why: str) -> None:
        if self.has_warned:
            return
        self.has_warned = True
        text = f"{os.fsdecode(self.path)}: {need} bytes of tensors are read into ordinary memory, not pinned: {why}"
        warnings.warn(text, RuntimeWarning, stacklevel=6)

    def _load(self, infos: List[Info], framework: _Framework, pinned: bool) -> Dict[str, Any]:
        tensors: Dict[str, Any] = {}
        pieces: List[Tuple[List[Info], Any, int]] = []

        def batches() -> Iterator[List[Tuple[Any, int]]]:
            for piece in _pieces(infos):
                # Whole pages, so that nothing goes through another page on its way.
                start = piece[0].start & -_PAGE
                end = min(-(-piece[-1].end // _PAGE) * _PAGE, self.nbytes)
                if piece[0].start == piece[-1].end:
                    pieces.append((piece, None, start))
                    continue
                array = memory.new(end - start, pinned, is_rados(self.path))
                pieces.append((piece, array, start))
                yield [(array, start)]

        self.read(batches())
        for piece, array, start in pieces:
            for info in piece:
                tensors[info.name] = self._tensor(info, framework, array, start, pinned)
        return tensors

    def _tensor(self, info: Info, framework: _Framework, array: Any, start: int, pinned: bool) -> Any:
        """start: of the array in the file."""
        try:
            return framework.tensor(info, array, info.start - start, pinned)
        except SafetensorError as e:
            raise SafetensorError(f"{os.fsdecode(self.path)}: tensor {info.name!r}: {e}") from None

    def _load_shared(self, infos: List[Info], framework: _Framework, is_window: bool) -> Dict[str, Any]:
        """Tensors of a view: of the whole file, where they stay in it."""
        with naming(self.path):
            need = sum(info.end - info.start for info in infos)
            if need > _HOST_BYTES:
                raise OSError(errno.ENOMEM, f"{need} bytes of tensors are more than this host's memory")
            for is_last in (False, False, True):
                try:
                    tensors = self._share(infos, framework, is_window)
                    break
                except OSError as e:
                    self.check()
                    # A next daemon cannot be given a file that came as a descriptor, which is still open here; and a
                    # file that was renamed is another version for the daemon.
                    if is_last or e.errno not in (errno.ESTALE, errno.ENODATA):
                        raise
                    self.shared = self.window = None
        self.check()
        return tensors

    def _share(self, infos: List[Info], framework: _Framework, is_window: bool) -> Dict[str, Any]:
        tensors: Dict[str, Any] = {}
        array = None if is_window else self.shared
        for piece in _pieces(infos):
            if array is None or not array.view.has(piece[0].start, piece[-1].end):
                handle = self.handle = _shared_handle(self.path)
                c = handle._c_of(self.fd)
                if array is None or array.view.connection is not c.connection:
                    array = self._view(infos) if is_window else self._whole_view(c)
                array.view.wait(c, piece[0].start, piece[-1].end)
                if is_window:
                    self.window = array
            for info in piece:
                tensors[info.name] = self._tensor(info, framework, array, array.view.start, False)
        return tensors

    def _view(self, infos: List[Info]) -> Any:
        start = min(infos[0].start, self.nbytes - 1) & -_PAGE
        return _view.array(self.fd, start, max(infos[-1].end - start, 1))

    def _whole_view(self, c: Any) -> Any:
        with _lock:  # of threads that share the file, one makes it
            if self.shared is None or self.shared.view.connection is not c.connection:
                self.shared = _view.array(self.fd, 0, self.nbytes)
            return self.shared


class _Content(_Source):
    """The same of a file's content in memory, which is copied."""

    def __init__(self, data: Any) -> None:
        self.fd = -1
        self.has_warned = False
        self.path = "the data"
        self.place = _buffer.locate(data, False)
        self.nbytes = self.place[1]
        self.header = read_header(self._bytes, self.nbytes, self.path)

    def _bytes(self, nbytes: int, offset: int) -> bytes:
        return _buffer.bytes_of(self.place, offset, nbytes)

    def read(self, batches: Iterable[Iterable[Tuple[Any, int]]]) -> None:
        for batch in batches:
            for array, offset in batch:
                ctypes.memmove(array, self.place[0] + offset, len(array))


def _pieces(infos: Iterable[Info], nbytes: Optional[int] = None) -> Iterator[List[Info]]:
    piece: List[Info] = []
    for info in infos:
        if piece and info.end - piece[0].start > (nbytes or _PIECE):
            yield piece
            piece = []
        piece.append(info)
    if piece:
        yield piece


def _impossible(info: Info, framework: str, e: Optional[Exception] = None) -> SafetensorError:
    why = f": {e}" if e else ""
    return SafetensorError(f"{framework} has no tensor of {info.dtype} with shape {list(info.shape)}{why}")


class _Torch:
    """Makes tensors of torch from memory that a file was read into."""

    def __init__(self, device: Device, pinned: bool) -> None:
        import torch

        self.torch = torch
        self.pinned = pinned
        try:
            place = torch.device("cpu" if device is None else device)
        except (RuntimeError, TypeError) as e:
            raise ValueError(f"dsaio: device {device!r}: {str(e).splitlines()[0]}") from None
        self.device = None if place.type == "cpu" else place
        torch.empty(0, device=place)  # raises if there is none

    def tensor(self, info: Info, array: Any, offset: int, pinned: bool) -> Any:
        """A tensor of the bytes from `offset` on.  Raises SafetensorError, which does not name the tensor."""
        torch = self.torch
        bits, name = DTYPES[info.dtype]
        dtype = getattr(torch, name, None) if name else None
        if dtype is None:
            raise _impossible(info, f"torch {torch.__version__}")
        try:
            shape = _packed(info)
            itemsize = max(bits // 8, 1)
            nbytes = info.end - info.start
            if nbytes == 0:
                tensor = torch.empty(shape, dtype=dtype)
            else:
                array, offset = _aligned(array, offset, nbytes, itemsize, pinned)
                tensor = torch.frombuffer(array, dtype=dtype, count=nbytes // itemsize, offset=offset)
            tensor = tensor.reshape(shape)
        except (TypeError, ValueError, OverflowError, RuntimeError) as e:
            raise _impossible(info, f"torch {torch.__version__}", e) from None
        return tensor if self.device is None else tensor.to(self.device)


def _aligned(array: Any, offset: int, nbytes: int, itemsize: int, pinned: bool) -> Tuple[Any, int]:
    """Where the bytes from `offset` on lie: in new memory of the same daemon if they are not aligned to elements."""
    address = ctypes.addressof(array) + offset
    if address % itemsize == 0:
        return array, offset
    own = memory.new(nbytes, pinned, pinned and array.allocation.connection.is_rados)
    ctypes.memmove(own, address, nbytes)
    return own, 0


def _packed(info: Info) -> List[int]:
    """The shape of the torch tensor: one of its elements has two of F4."""
    shape = list(info.shape)
    if info.dtype == "F4":
        if not shape or shape[-1] % 2:
            raise ValueError("the last dimension must be even")
        shape[-1] //= 2
    return shape


class _Numpy:
    """The same of numpy."""

    def __init__(self, device: Device, pinned: bool) -> None:
        import numpy

        self.numpy = numpy
        self.pinned = pinned
        self.device = None
        if device is not None and str(device) != "cpu":
            raise ValueError(f"dsaio: device {device!r}: numpy has only 'cpu'")

    def tensor(self, info: Info, array: Any, offset: int, pinned: bool) -> Any:
        """As of _Torch."""
        numpy = self.numpy
        name = DTYPES[info.dtype].name
        try:
            dtype = numpy.dtype(name)  # ml_dtypes adds some
        except TypeError:
            dtype = None
        if not name or dtype is None:
            raise _impossible(info, f"numpy {numpy.__version__}")
        try:
            nbytes = info.end - info.start
            if nbytes == 0:
                return numpy.empty(info.shape, dtype)
            array, offset = _aligned(array, offset, nbytes, dtype.itemsize, pinned)
            return numpy.ndarray(info.shape, dtype, array, offset)
        except (TypeError, ValueError, OverflowError) as e:
            raise _impossible(info, f"numpy {numpy.__version__}", e) from None


_FRAMEWORKS: Dict[str, Callable[[Device, bool], _Framework]] = {
    **dict.fromkeys(("pt", "torch", "pytorch"), _Torch),
    **dict.fromkeys(("np", "numpy"), _Numpy),
}


def _framework(name: str, device: Device, pinned: bool) -> _Framework:
    if not isinstance(name, str):
        raise check.wrong_type("framework", name, '"pt" or "np"')
    if name not in _FRAMEWORKS:
        text = 'must be "pt" or "np"; safetensors itself loads others, without dsaio.safetensors.install()'
        raise ValueError(f"dsaio: framework {name!r}: {text}")
    pinned = check.boolean("pinned", pinned)
    try:
        return _FRAMEWORKS[name](device, pinned)
    except ImportError as e:
        text = f'dsaio: framework {name!r}: {e}: "pt" makes tensors of torch, and "np" arrays of numpy'
        raise ImportError(text, name=e.name) from None


def _check_backend(backend: str) -> None:
    if not isinstance(backend, str):
        raise check.wrong_type("backend", backend, '"mmap" or "pread"')
    if backend not in _BACKENDS:
        raise SafetensorError(f'dsaio: backend {backend!r}: must be "mmap" or "pread" (the daemon reads with either)')


class safe_open:
    """A safetensors file whose tensors are read one by one, when they are asked for.

    filename: a path.  framework: "pt" (or "torch") or "np" (or "numpy").  device: where tensors of torch are
    put, "cpu" by default.  backend: "mmap" or "pread", as of the package safetensors; the daemon reads with
    either.  pinned: False for ordinary memory, which is taken, with a RuntimeWarning, also where the pool has too
    little room.

    Raises OSError, and SafetensorError for a file that the format does not allow.  The file that was opened is
    read, also after another one has taken its place; one that is changed where it lies is refused with
    SafetensorError.  Reading a tensor of a file of at least 4 MiB again shows what the process has written to it.
    The file is closed with the `with` block, or with the last reference.  Threads may share it,
    and a child of fork() may go on with it.
    """

    def __init__(
        self, filename: Path, framework: str, device: Device = "cpu", *, backend: str = "mmap", pinned: bool = True
    ) -> None:
        _check_backend(backend)
        self._framework = _framework(framework, device, pinned)
        self._opened: Optional[_Source] = _Source(filename)

    @property
    def _source(self) -> _Source:
        if self._opened is None:
            raise SafetensorError("dsaio: the safetensors file is closed")
        return self._opened

    def keys(self) -> List[str]:
        """The names of the tensors, sorted."""
        return sorted(self._source.header.tensors)

    def offset_keys(self) -> List[str]:
        """The names of the tensors, in the order of their bytes in the file."""
        return list(self._source.header.tensors)

    def metadata(self) -> Optional[Dict[str, str]]:
        """The texts of "__metadata__"; None if the file has none."""
        metadata = self._source.header.metadata
        return None if metadata is None else dict(metadata)

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor, which has memory of its own or shares that of the file.  Raises OSError, SafetensorError."""
        source = self._source
        return source.load([source.info(name)], self._framework)[name]

    def get_tensors(self) -> Dict[str, Any]:
        """Reads all tensors, as load_file() does."""
        return self._source.load(self._source.header.tensors.values(), self._framework)

    def get_slice(self, name: str) -> Slice:
        """A tensor to be indexed, as in file.get_slice(name)[10:20].  Raises SafetensorError."""
        source = self._source
        return Slice(source, source.info(name), self._framework)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened = None


class Slice:
    """A tensor of a file, which is read where it is indexed.

    Any index of the framework's tensors works.  Where its first part is an integer or a slice, only those rows
    are read.  It keeps the file open.
    """

    def __init__(self, source: _Source, info: Info, framework: _Framework) -> None:
        self._source = source
        self._info = info
        self._framework = framework

    def get_shape(self) -> List[int]:
        """The shape of the whole tensor."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """The tensor's dtype by its name in the format, such as "F32"."""
        return self._info.dtype

    def __getitem__(self, key: Any) -> Any:
        """Reads, and raises, as get_tensor(), and what the framework raises for such an index."""
        key = key if isinstance(key, tuple) else (key,)
        for part in key:
            if isinstance(part, (str, bytes)):
                what = f"tensor {self._info.name!r}: index"
                raise check.wrong_type(what, part, "an index of a tensor, such as [10:20]")
        info, key = _rows(self._info, key)
        return self._source.load([info], self._framework)[info.name][key]


def _rows(info: Info, key: Tuple[Any, ...]) -> Tuple[Info, Tuple[Any, ...]]:
    """The rows that the index takes, and the index of these rows."""
    shape = info.shape
    if not key or not shape or 0 in shape or prod(shape[1:]) * DTYPES[info.dtype].bits % 8:
        return info, key
    row_bytes = (info.end - info.start) // shape[0]
    first = key[0]
    if isinstance(first, slice):
        start, stop, step = first.indices(shape[0])
        if step < 1:
            return info, key
        stop = max(start, stop)
        first = slice(None, None, step)
    elif hasattr(first, "__index__") and not hasattr(first, "shape") and not isinstance(first, bool):
        try:
            start = range(shape[0])[index(first)]
        except IndexError:
            text = f"dsaio: tensor {info.name!r} with shape {list(shape)} has no row {index(first)}"
            raise IndexError(text) from None
        stop = start + 1
        first = 0
    else:
        return info, key
    rows = info._replace(
        shape=(stop - start, *shape[1:]), start=info.start + start * row_bytes, end=info.start + stop * row_bytes
    )
    return rows, (first, *key[1:])


def load_file(
    filename: Path, device: Device = "cpu", *, backend: str = "mmap", framework: str = "pt", pinned: bool = True
) -> Dict[str, Any]:
    """Reads all tensors of a file.  Returns them by name.

    Arguments and errors are as of safe_open().  The dict has the order of the tensors in the file.
    """
    with safe_open(filename, framework, device, backend=backend, pinned=pinned) as file:
        return file.get_tensors()


def load(data: Any, *, framework: str = "pt", pinned: bool = True) -> Dict[str, Any]:
    """Copies all tensors of a file's content, such as bytes, into pinned memory.  Returns them by name.

    Arguments and errors are as of load_file().
    """
    source = _Content(data)
    return source.load(source.header.tensors.values(), _framework(framework, "cpu", pinned))


# ---- into existing memory ----


def _description(name: str, value: Any) -> Tuple[str, Tuple[int, ...]]:
    """dtype and shape in the format's words.  Raises TypeError."""
    if hasattr(value, "data_ptr"):
        dtype, shape = str(value.dtype).rpartition(".")[2], tuple(value.shape)
    elif _buffer._is_array(value):
        dtype, shape = value.dtype.name, value.shape
    else:
        raise check.wrong_type(f"tensor {name!r}", value, "a torch tensor or a numpy array")
    if dtype not in CODES:
        raise TypeError(f"dsaio: tensor {name!r}: safetensors files have no {value.dtype}")
    code = CODES[dtype]
    if code == "F4":
        if not shape:
            raise TypeError(f"dsaio: tensor {name!r}: files have no scalar of {value.dtype}: reshape it to (1,)")
        shape = (*shape[:-1], 2 * shape[-1])
    return code, shape


def _mapping(tensors: Any) -> Any:
    if not hasattr(tensors, "items"):
        raise check.wrong_type("tensors", type(tensors), "a dict of tensors by name")
    return tensors


def _runs(places: Iterable[Tuple[Info, Any]]) -> Iterator[Tuple[Any, int]]:
    """Buffers, each with its offset in the file.  Neighbours in one pinned memory and the file share one."""
    at = offset = nbytes = 0
    owner: Any = None
    for info, (address, length, keep, _) in sorted(places, key=lambda place: place[0].start):
        is_next = address == at + nbytes and info.start == offset + nbytes
        if nbytes and is_next and keep is owner and isinstance(keep, memory.Allocation):
            nbytes += length
            continue
        if nbytes:
            yield _buffer_of(at, nbytes, owner), offset
        at, offset, nbytes, owner = address, info.start, length, keep
    if nbytes:
        yield _buffer_of(at, nbytes, owner), offset


def _buffer_of(address: int, nbytes: int, owner: Any) -> Any:
    array = (ctypes.c_char * nbytes).from_address(address)
    array.owner = owner  # type: ignore[attr-defined]
    return array


def _needs_copy(tensor: Any) -> bool:
    """Does locate() take memory for a copy of it?  False for what it refuses."""
    if _buffer._is_array(tensor):
        return bool(tensor.flags.writeable and not tensor.flags.c_contiguous)
    if str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
        return False
    return not _buffer.is_direct(tensor)


def _read_copies(source: _Source, infos: List[Info], tensors: Dict[str, Any]) -> None:
    """Reads tensors through copies, whose memory is free again afterwards."""
    places = [(info, _buffer.locate(tensors[info.name], True)) for info in infos]
    source.read([_runs(places)])
    for _, (_, _, _, finish) in places:
        finish()  # type: ignore[misc]


def load_into(filename: Path, tensors: Dict[str, Any]) -> None:
    """Reads tensors of a file into those that are there.

    tensors: torch tensors and numpy arrays by the names that they have in the file, with its dtypes and
    shapes.  Those in pinned memory are the fastest: of dsaio.torch.empty(), or of load_file() for a file of less
    than 4 MiB with the same names and shapes.  Those that have gaps, or are on a device other than CPU and CUDA,
    are read through pinned memory, of 64 MiB or as much as the largest of them has, whichever is more.

    Raises SafetensorError if the file lacks one, or has it with another dtype or shape, before anything is
    read; OSError, after which the content of all of them is undefined.
    """
    source = _Source(filename)
    places: List[Tuple[Info, Any]] = []
    copied: List[Info] = []
    for name, tensor in _mapping(tensors).items():
        info = source.info(name)
        described = _description(name, tensor)
        if described != (info.dtype, info.shape):
            raise SafetensorError(
                f"{os.fsdecode(filename)}: tensor {name!r} is {info.dtype} with shape {list(info.shape)}:"
                f" cannot be read into {described[0]} with shape {list(described[1])}"
            )
        if info.end == info.start:
            continue
        if _needs_copy(tensor):
            copied.append(info)
        else:
            places.append((info, _buffer.locate(tensor, True)))
    source.read([_runs(places)])
    for piece in _pieces(sorted(copied, key=lambda info: info.start)):
        _read_copies(source, piece, tensors)


# ---- saving ----


def _check_tensors(tensors: Dict[str, Any]) -> None:
    """Refuses what the format's reference refuses, and what it writes wrongly."""
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise check.wrong_type("the name of a tensor", name, "text")
        if name == METADATA:
            raise ValueError(f"dsaio: a tensor cannot have the name {METADATA}, which is that of the metadata")
        _description(name, tensor)
        if hasattr(tensor, "data_ptr"):
            if str(tensor.layout) != "torch.strided":
                raise ValueError(f"dsaio: tensor {name!r} is sparse: pass its to_dense(), which may be much larger")
            if tensor.device.type == "meta":
                raise ValueError(f"dsaio: tensor {name!r} is on the device meta, and has no data")
            is_contiguous = tensor.is_contiguous()
        else:
            is_contiguous = tensor.flags.c_contiguous
        if not is_contiguous:
            raise ValueError(f"dsaio: tensor {name!r} is not contiguous: pass a contiguous copy")
    _check_shared(tensors)


def storage_of(tensor: Any) -> Any:
    """The memory that a torch tensor is a view of."""
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _storage(tensor: Any) -> Tuple[int, int]:
    """Its address and bytes."""
    storage = storage_of(tensor)
    return storage.data_ptr(), storage.nbytes()


def sharing(tensors: Dict[str, Any]) -> Iterator[List[str]]:
    """Groups of two or more names: their torch tensors share memory."""
    by_storage: Dict[Any, List[Tuple[int, int, str]]] = {}
    for name, tensor in tensors.items():
        if not hasattr(tensor, "data_ptr") or str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
            continue
        start = tensor.data_ptr()
        end = start + tensor.numel() * tensor.element_size()
        if end > start:
            by_storage.setdefault((tensor.device, _storage(tensor)), []).append((start, end, name))
    for ranges in by_storage.values():
        group: List[str] = []
        group_end = 0
        for start, end, name in sorted(ranges):
            if start >= group_end:
                if len(group) > 1:
                    yield group
                group = []
            group.append(name)
            group_end = max(group_end, end)
        if len(group) > 1:
            yield group


def _check_shared(tensors: Dict[str, Any]) -> None:
    for name, other, *_ in sharing(tensors):
        raise RuntimeError(
            f"dsaio: tensors {name!r} and {other!r} share memory, which a file cannot express:"
            " leave one of them out, pass a clone(), or save_model() the model that has them"
        )


def _metadata(metadata: Any) -> Optional[Dict[str, str]]:
    if metadata is None:
        return None
    if not hasattr(metadata, "items"):
        raise check.wrong_type("metadata", metadata, "a dict of texts by name")
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise check.wrong_type("metadata", {key: text}, "text by name")
    return dict(metadata)


def _header(tensors: Dict[str, Any], metadata: Any) -> Tuple[bytes, List[str], int]:
    """A file's header, the names of the tensors in the order of their bytes, and the size of the file."""
    _check_tensors(_mapping(tensors))
    described = [(name, *_description(name, tensor)) for name, tensor in tensors.items()]
    sizes = [(name, dtype, shape, prod(shape) * DTYPES[dtype].bits // 8) for name, dtype, shape in described]
    header, names = make_header(sizes, _metadata(metadata))
    return header, names, len(header) + sum(size[3] for size in sizes)


def _write_tensors(writer: Any, tensors: Dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        tensor = tensors[name]
        if _buffer._is_array(tensor) and tensor.dtype.byteorder == ">":
            tensor = tensor.byteswap()
        place = _buffer.locate_on_host(tensor, False)
        if place[1]:
            writer.write(_buffer_of(*place[:3]))


def save_file(tensors: Dict[str, Any], filename: Path, metadata: Optional[Dict[str, str]] = None) -> None:
    """Writes tensors to a file, which replaces one of that name when it is on the device.

    tensors: torch tensors and numpy arrays by name, contiguous.  Those of a GPU are copied one by one.
    metadata: texts by name.  An interrupted save leaves the old file.  The tensors must not be changed
    meanwhile.

    Raises OSError; TypeError or ValueError for what the format does not allow; and, as safetensors does,
    RuntimeError for tensors of torch that share memory.
    """
    path_bytes(filename, "a path")
    header, names, nbytes = _header(tensors, metadata)
    remove_leftovers_beside(filename)
    with naming(filename), handle_for(filename) as handle, new_file(filename, handle) as new:
        with Writer(new, handle, nbytes) as writer:
            writer.write(header)
            _write_tensors(writer, tensors, names)


def save(tensors: Dict[str, Any], metadata: Optional[Dict[str, str]] = None) -> bytes:
    """The content of the file that save_file() writes, without the daemon.  Arguments and errors are the same."""
    header, names, _ = _header(tensors, metadata)
    content = io.BytesIO()
    content.write(header)
    _write_tensors(content, tensors, names)
    return content.getvalue()


# At the end, since they need what is above.
from .torch import load_model, save_model  # noqa: E402

finish()
