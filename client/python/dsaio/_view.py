"""Views: bytes of a file that all processes of the host share.

The array of a View owns it, and tensors are made from the array: so memory lives as long as one of them does.
"""

from __future__ import annotations

import ctypes

from . import _library as library
from ._connection import connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Set

    from ._op import CHandle


_PART = 64 << 20  # of the file, which is read at once


def _parts(start: int, end: int) -> range:
    return range(start // _PART, -(-end // _PART) if end > start else 0)


class View:
    """struct dsaio_view of a descriptor's file, which this process may write: it alone sees that."""

    __slots__ = ("connection", "address", "nbytes", "start", "_ready")

    def __init__(self, fd: int, start: int, nbytes: int) -> None:
        self.address = 0
        self.connection = connection()
        self.nbytes = nbytes
        self.start = start
        self._ready: Set[int] = set()  # parts of the file, by their number, that have been waited for
        client = self.connection.pointer
        file, memory = ctypes.c_void_p(), ctypes.c_void_p()
        library.check(library.file_from_fd(client, fd, ctypes.byref(file)))
        try:
            out = ctypes.byref(memory)
            library.check(library.view(client, file, start, nbytes, library.VIEW_WRITABLE, out))
        finally:
            library.file_close(file)
        self.address = memory.value or 0

    def has(self, start: int, end: int) -> bool:
        """Are the bytes of the file from start to end known to be there?"""
        return all(i in self._ready for i in _parts(start, end))

    def wait(self, handle: CHandle, start: int, end: int) -> None:
        """Waits until they are there.  Raises OSError."""
        for i in _parts(start, end):
            first = max(i * _PART, self.start)
            last = min((i + 1) * _PART, self.start + self.nbytes)
            library.check(library.view_wait(handle.pointer, self.address + first - self.start, last - first))
            self._ready.add(i)

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending, free: Any = library.view_free) -> None:
        if self.address and not self.connection.is_of_parent and not is_ending():
            free(self.connection.pointer, self.address)


def array(fd: int, start: int, nbytes: int) -> Any:
    """A view as a ctypes array that owns it, as its `view`.  Nothing is read yet."""
    view = View(fd, start, nbytes)
    memory = (ctypes.c_char * nbytes).from_address(view.address)
    memory.view = view  # type: ignore[attr-defined]
    return memory
