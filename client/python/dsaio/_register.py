"""Registered memory: shared memory of the program, which the daemon maps, too.

The library wants the file that the memory is mapped from.  It is found by the address in /proc/self/maps, so every
object with a buffer will do.  The file is opened by its path, or by a descriptor of this process where it has none.
"""

from __future__ import annotations

import errno
import mmap
import os

from . import _buffer
from . import _library as library
from . import _memory as memory
from ._connection import connection
from ._context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple


def _mapping(address: int) -> Tuple[bool, int, Tuple[int, int], str]:
    """Is the memory shared?  Its offset in a file, the file's device and inode, and its path.  Raises OSError."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            span, flags, offset, device, inode, *path = line.split(None, 5)
            start, end = (int(number, 16) for number in span.split(b"-"))
            if start <= address < end:
                major, minor = (int(number, 16) for number in device.split(b":"))
                name = os.fsdecode(path[0].rstrip(b"\n")) if path else ""
                file = os.makedev(major, minor), int(inode)
                return flags.endswith(b"s"), int(offset, 16) + address - start, file, name
    return False, 0, (0, 0), ""


def _open_mapped(file: Tuple[int, int], path: str) -> int:
    """The file of a mapping, opened for reading and writing.  -1: this process does not have it."""
    for name in [path] + [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]:
        try:
            found = os.stat(name)
            if (found.st_dev, found.st_ino) == file:
                return os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # a descriptor that another thread has closed, or one without the rights
            pass
    return -1


class Registration(Context, memory.Pinned):
    """Registered memory, of dsaio.register().  close() or the end of its `with` block unregisters it."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, kind: int, address: int, nbytes: int, fd: int = -1, fd_off: int = 0) -> None:
        self.address, self.nbytes, self.is_locked = 0, nbytes, True
        self._owner: Any = owner
        self.connection = connection()
        library.check(library.register(self.connection.pointer, kind, address, nbytes, fd, fd_off))
        self.address = address
        self._enter()

    def close(self) -> None:
        """Unregisters the memory, which ops copy from now on.  Twice is fine.

        Raises OSError: EBUSY while an op on it is open.
        """
        if self.address and not self.connection.is_of_parent:
            library.check(library.memory_unregister(self.connection.pointer, self.address))
            self._leave()
        self.address = 0
        self._owner = None

    def _refuse_if_closed(self) -> None:
        if not self.address:
            raise ValueError("dsaio: the memory is not registered any more")

    def __reduce__(self) -> Any:
        raise TypeError("dsaio: a Registration cannot be copied or pickled: each process registers for itself")

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending) -> None:
        if not is_ending():
            self.close()  # no op is open, since it would keep this object

    def __repr__(self) -> str:
        return f"<dsaio.Registration of {self.nbytes} bytes{'' if self.address else ' (closed)'}>"


def register(obj: Any) -> Registration:
    """Lets the ops of all handles use shared memory without a copy, until the object that it returns is closed.

    obj: a multiprocessing.shared_memory.SharedMemory, an mmap of a memfd or of a file in /dev/shm or on
    hugetlbfs, a torch tensor after share_memory_(), or any other buffer in such memory.  It counts towards the pool
    that this process may have, and is kept mapped until it is unregistered.  Also a tensor of a GPU.

    Each process registers for itself.  Raises ValueError for memory that is private or has no file; OSError: EEXIST
    if a page of it is registered already, ENOMEM if the process may not have more of the pool.
    """
    buffer = getattr(obj, "buf", obj)
    name = type(obj).__name__
    if buffer is None and obj is not None:
        raise ValueError(f"dsaio: the {name} is closed")
    address, nbytes = _buffer.extent(buffer)
    if not nbytes:
        raise ValueError(f"dsaio: a {name} without bytes cannot be registered: pass one that has memory")
    if _buffer.is_pinned(buffer):
        raise OSError(errno.EEXIST, f"dsaio: the memory of a {name} is pinned or registered already")
    # The alias of a tensor keeps the storage, also if the program gives the tensor another one.
    owner = buffer.detach() if hasattr(buffer, "data_ptr") else buffer
    if _buffer.is_gpu_tensor(buffer):
        return Registration(owner, library.MEMORY_CUDA, address, nbytes)
    if owner is buffer:
        owner = memoryview(buffer)  # so that a SharedMemory or mmap cannot be closed
    start = address - address % mmap.PAGESIZE
    is_shared, offset, file, path = _mapping(start)
    if not is_shared:
        raise ValueError(
            f"dsaio: the memory of a {name} is private and cannot be registered: ops copy it; dsaio.alloc() makes"
            " memory that they do not copy"
        )
    fd = _open_mapped(file, path)
    if fd < 0:
        raise ValueError(
            f"dsaio: the memory of a {name} ({path}) has no file that this process can open for reading and writing:"
            " use an mmap of a memfd, or a SharedMemory"
        )
    try:
        return Registration(owner, library.MEMORY_FD, start, address + nbytes - start, fd, offset)
    finally:
        os.close(fd)
