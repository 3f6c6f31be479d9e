"""Pinned memory: who owns it, and which addresses are pinned.

`Pinned` is a range of it: an Allocation, or a Registration of the program's own memory (_register.py).  Each open
op keeps that, so memory outlives its ops whatever happens to the tensor (share_memory_() replaces a tensor's
storage in place).

An Allocation owns memory of the daemon's pool, and releases it when it is garbage.  It lives as long
as the ctypes array that exports the memory, and the array as long as any tensor, array or view over it:
torch.frombuffer() and numpy keep what they were made from.

`_table` and `_starts` hold all of Pinned, to find one by an address inside it.  No lock guards
them, since a finalizer may run at any point of any thread: each change is one call of a list or dict,
and find() checks that the address lies in the range that it returns.
"""

from __future__ import annotations

import ctypes
import warnings
import weakref
from bisect import bisect_right, insort

from . import _check as check
from . import _library as library
from ._connection import Connection, at_fork, connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

_starts: List[int] = []
_table: Dict[int, weakref.ref[Pinned]] = {}


class Pinned:
    """Memory that the daemon shares: `nbytes` from `address` on.  An open op on it keeps it."""

    __slots__ = ("connection", "address", "nbytes", "is_locked", "__weakref__")

    connection: Connection
    address: int
    nbytes: int
    is_locked: bool

    def _enter(self) -> None:
        """find() finds it from now on."""
        _table[self.address] = weakref.ref(self)
        insort(_starts, self.address)

    def _leave(self) -> None:
        _starts.remove(self.address)
        del _table[self.address]


class Allocation(Pinned):
    """Memory of the pool."""

    __slots__ = ()

    def __init__(self, nbytes: int, wait_usec: int = 0, is_rados: bool = False) -> None:
        options = library.AllocOptions(flags=library.NO_ZERO, wait_usec=wait_usec)
        memory = ctypes.c_void_p()
        self.address = 0
        self.nbytes = nbytes
        # False after free_cpu_locked_tensor(): views may still use the memory, but is_pinned() denies it.
        self.is_locked = True
        self.connection = connection(is_rados)
        library.check(
            library.alloc(self.connection.pointer, nbytes, ctypes.byref(options), ctypes.byref(memory))
        )
        self.address = memory.value or 0
        self._enter()
        if not library.client_is_locked(self.connection.pointer):
            _warn_unlocked()

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending, free: Any = library.free) -> None:
        if not self.address or self.connection.is_of_parent or is_ending():
            return
        self._leave()
        # EBUSY: the daemon was given up with an op open, which may still write there.  It stays.
        free(self.connection.pointer, self.address)


_has_warned = False


def _warn_unlocked() -> None:
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    text = (
        "pinned memory of dsaio is served unlocked, and may be swapped out: raise RLIMIT_MEMLOCK of the daemon"
        " (ulimit -l before the program that starts it, or LimitMEMLOCK= of its service); see dsaioctl status"
    )
    warnings.warn(text, ResourceWarning, stacklevel=2)


def room(is_rados: bool) -> int:
    """Bytes of the pool, of one daemon or the other, that this process may have beside those that it has.

    Other programs may leave it less.  Raises OSError.
    """
    of_daemon = connection(is_rados)
    most: int = library.client_pool_max(of_daemon.pointer)
    all_pinned = map(find_start, _starts[:])
    return most - sum(pinned.nbytes for pinned in all_pinned if pinned and pinned.connection is of_daemon)


def find(address: int, nbytes: int) -> Optional[Pinned]:
    """The pinned memory that the whole range lies in, or None."""
    while True:
        i = bisect_right(_starts, address)
        if not i:
            return None
        try:
            start = _starts[i - 1]
            pinned = _table[start]()
        except (IndexError, KeyError):
            continue  # another thread has changed them meanwhile
        if pinned is None:
            return None
        if start <= address and address + nbytes <= start + pinned.nbytes:
            return pinned
        if bisect_right(_starts, address) == i and _starts[i - 1] == start:
            return None


def find_start(address: int) -> Optional[Pinned]:
    """The pinned memory that starts at the address, or None."""
    reference = _table.get(address)
    return None if reference is None else reference()


def array(nbytes: int, wait_usec: int = 0, is_rados: bool = False) -> ctypes.Array[ctypes.c_char]:
    """New pinned memory, page aligned, as a ctypes array that owns it.  The content is undefined.

    is_rados: of the daemon of RADOS stores.
    """
    nbytes = check.integer("nbytes", nbytes, 1, check.MAX)
    allocation = Allocation(nbytes, wait_usec, is_rados)
    memory = (ctypes.c_char * nbytes).from_address(allocation.address)
    memory.allocation = allocation  # type: ignore[attr-defined]
    return memory


def new(nbytes: int, pinned: bool, is_rados: bool = False) -> ctypes.Array[ctypes.c_char]:
    """New memory, as of array(); ordinary memory if the caller of the package chose pinned=False."""
    if not pinned:
        import mmap

        pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return (ctypes.c_char * nbytes).from_buffer(pages)
    return array(nbytes, 0, is_rados)


def alloc(nbytes: int, *, wait: float = 0) -> memoryview:
    """New pinned memory, page aligned, as a memoryview of bytes.  The content is undefined.

    It returns to the pool when the last view is gone.  dsaio.torch.empty() and dsaio.numpy.empty() make tensors.
     wait: seconds to wait for room in the pool.  Raises OSError: ENOMEM if there is none.
    """
    return memoryview(array(nbytes, check.usec("wait", wait))).cast("B")


def _forget() -> None:
    # A child sees the parent's memory, but its own connection does not know it: ops copy it.
    _starts.clear()
    _table.clear()


at_fork(_forget)
